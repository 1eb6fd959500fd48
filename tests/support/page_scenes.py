"""Blocks of commands that stand on the pages without a mark, and how each is run: with real nodes, on free ports, with
programs that are here. All else is as the page has it. A scene takes every line of its blocks, or says why not."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.support.page_blocks import ROOT, blocks
from tests.support.page_shell import Lines, Shell, is_shown
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

WORK = "sleep 1000"
"""What stands in for a scheduler."""
UP_S = 60.0
"""Only a hang reaches it."""


class Scene(NamedTuple):
    """Blocks that are run together, each by its page and its beginning."""

    name: str
    blocks: tuple[tuple[str, str], ...]
    play: Callable[..., None]
    """Is given a shell, and the lines of each block in their order."""

    def lines(self) -> list[Lines]:
        return [Lines(f"{page}: {begin}", text_of(page, begin)) for page, begin in self.blocks]


def text_of(page: str, begin: str) -> str:
    """The text of the one block of the page that begins so."""
    (found,) = (block.text for block in blocks(ROOT / page) if block.text.startswith(begin))
    return found


def state(shell: Shell, more: str = "") -> dict[str, Any]:
    """Of the node that answers; nothing if none does."""
    done = shell.run(f"primacy status --json {more} 2> /dev/null", code=None)
    found: dict[str, Any] = json.loads(done.said) if done.said.startswith("{") else {}
    return found


def leads(shell: Shell, more: str = "") -> str:
    """Who leads, once the command runs there."""
    return shell.run(
        f'primacy status --json {more} 2> /dev/null | grep -o \'"leader": *"[^"]*"\' | head -n 1 | cut -d \'"\' -f 4',
        code=None,
    ).said.strip()


def runs(shell: Shell, more: str = "") -> bool:
    """`primacy status` ends with 0 while this node knows of one that runs the command."""
    return shell.run(f"primacy status {more}", code=None).code == 0


def insist(shell: Shell, command: str) -> None:
    """Until it is done: on a busy machine a transfer misses now and then, and says so."""
    wait_until(lambda: shell.run(command, code=None).code == 0, command, UP_S, 0.2, shell.told)


# --- run.md -----------------------------------------------------------------------------------------------------------


def alone(shell: Shell, commands: Lines, stored: Lines, of_leases: Lines, looks: Lines) -> None:
    """Nodes that are alone: the command runs, and what ends by itself ends the agent."""
    (shell.folder / "import.sh").write_text('#!/bin/sh\n[ "$PRIMACY_ELECTION" = nightly ] && echo imported\n')
    (shell.folder / "import.sh").chmod(0o755)
    assert "imported" in shell.run(commands.take("primacy run --election nightly")).said
    here = commands.take("primacy run -- /usr/bin/scheduler").replace("/usr/bin/scheduler --port 8000", WORK)
    started = [("", shell.start(here))]
    as_user = commands.take("primacy run --user sched")
    if os.geteuid() == 0:  # only root may
        out = shell.folder / "sched.log"
        changed = as_user.replace("/var/log/sched.log", str(out)).replace("sched ", "nobody ", 1)
        changed = changed.replace("primacy run", "primacy run --election other --restart never")
        shell.run(changed.replace("/usr/bin/scheduler", "sh -c 'id -un; pwd'"))
        assert out.read_text().split() == ["nobody", "/srv"]
    url = f"sqlite:///{shell.folder}/leases.db"
    shell.run(f"primacy lease schema --new --yes --store {url}")
    on_lease = stored.take("primacy run --store").replace("postgresql://app@db/app", url)
    started.append(("--election reports", shell.start(on_lease.replace("/usr/bin/build-reports", WORK))))
    on_file = of_leases.take("primacy run --store sqlite:///leases.db").replace("/usr/bin/scheduler", WORK)
    on_file = on_file.replace("primacy run", "primacy run --election third")
    started.append(("--election third", shell.start(on_file)))
    for more, _ in started:
        wait_until(partial(runs, shell, more), f"the command runs {more}", UP_S, 0.1, shell.told)
    look_at_lease(shell, looks, url)
    for _, process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(UP_S) == 0


def look_at_lease(shell: Shell, looks: Lines, url: str) -> None:
    """While a node holds it."""

    def here(begin: str) -> str:
        return looks.take(begin).replace("NAME", "reports").replace("URL", url)

    for begin in ("primacy lease list", "primacy lease show"):
        assert "reports" in shell.run(here(begin)).said
    watch = shell.start(here("primacy lease watch"))
    wait_until(shell.logs[-1].read_text, "the row", UP_S, 0.1, shell.told)
    watch.send_signal(signal.SIGINT)
    looks.leave("primacy lease break", "waits for ten seconds; tests/processes/test_cli_lease.py")


def elected(shell: Shell, python: Lines) -> None:
    """The part of a program that README shows, in a program."""
    python.left.clear()
    part = text_of("README.md", "async with primacy.Election(").replace("postgresql://host/db", "sqlite:///leases.db")
    indented = re.sub("^", "    ", part, flags=re.MULTILINE)
    (shell.folder / "program.py").write_text(
        "import asyncio, sys\nimport primacy\n\n\nasync def build_reports(token: int) -> None:\n"
        f"    sys.exit(f'builds under {{token}}')\n\n\nasync def main() -> None:\n{indented}\n\nasyncio.run(main())\n"
    )
    shell.run("primacy lease schema --new --yes --store sqlite:///leases.db")
    assert re.search(r"builds under \d+", shell.run("python program.py", code=1).said)


def simulated(shell: Shell, console: Lines) -> None:
    """A strategy of one's own, from the checkout."""
    shell.run(f"PYTHONPATH={ROOT} {console.take('primacy simulate')}".replace("--seeds 200", "--seeds 5"))
    line, ports = console.take("primacy node start --port 5001"), free_ports(2)
    for number, port in enumerate(ports, 1):
        line = line.replace(f"500{number}", str(port))
    for port in ports:
        shell.start(f"env PYTHONPATH={ROOT} {line.replace(f'--port {ports[0]}', f'--port {port}')}")
    wait_until(lambda: "leads" in shell.told(), "a leader", UP_S, 0.1, shell.told)


def approved(shell: Shell, approve: Lines) -> None:
    """An elected node waits for an operator's word."""
    (shell.folder / "primacy.yaml").write_text(
        "cluster: {node: a}\nelection: {mode: manual, profile: lab}\nrun: {command: [sleep, '1000']}\n"
    )
    shell.start("primacy run")
    waiting = wait_until(
        lambda: (found := state(shell)).get("workload", {}).get("state") == "waiting" and found, "waits", UP_S, 0.1
    )
    shell.run(approve.take("primacy approve a").replace("--term 7", f"--term {waiting['term']}"))
    wait_until(lambda: runs(shell), "the command runs", UP_S, 0.1, shell.told)


# --- operate.md -------------------------------------------------------------------------------------------------------

NODES = "abc"


def on_node(shell: Shell, node: str, line: str) -> None:
    """In the background; node a has the state folder that commands look at, the others one of their own."""
    shell.start(line if node == "a" else f"env PRIMACY_STATE_DIR={shell.folder}/state-{node} {line}")


def cluster(shell: Shell, new: Lines, start: Lines, new_too: Lines, start_too: Lines) -> None:
    """Three nodes as two pages start them, in a quicker profile."""
    assert new_too.take("primacy new") == new.left[0]
    shell.run(new.take("primacy new"))
    changes = "; ".join(f"s/740{n}/{port}/" for n, port in enumerate(free_ports(3), 1))
    shell.run(f"sed -i '{changes}; s/profile: lan/profile: fast/' primacy.yaml")
    shell.run(new.take("primacy check"))
    line = start.take("primacy --node a").replace("/usr/bin/scheduler", WORK)
    line_too = start_too.take("primacy run --node a").replace("/usr/bin/scheduler", WORK)
    for node in NODES:
        on_node(shell, node, (line if node == "a" else line_too).replace("--node a", f"--node {node}"))
    wait_until(lambda: runs(shell), "the command runs", UP_S, 0.1, shell.told)


def operated(
    shell: Shell,
    new: Lines,
    start: Lines,
    upgrade: Lines,
    change: Lines,
    trail: Lines,
    members: Lines,
    why: Lines,
    new_too: Lines,
    start_too: Lines,
) -> None:
    """What an operator says to a cluster of three that runs."""
    cluster(shell, new, start, new_too, start_too)
    settled = partial(wait_until, lambda: runs(shell), "the command runs", UP_S, 0.1, shell.told)
    for lines in (upgrade, change):
        shell.run(lines.take("primacy status"))
    shell.run("cp primacy.yaml new.yaml")
    shell.run(change.take("primacy check new.yaml"))
    insist(shell, upgrade.take("primacy transfer b"))
    settled()
    assert leads(shell) == "b"
    for lines in (upgrade, change):
        shell.run(lines.take("primacy status"))
    change_members(shell, members)
    settled()
    audited = trail.take("primacy audit").replace("[--last N]", "--last 20").replace("[--json]", "--json")
    assert "transfer" in shell.run(audited).said
    assert "b" in shell.run(why.take("primacy why --since")).said
    shell.run(re.sub(r"\d{4}-\d\d-\d\d", time.strftime("%F"), why.take("primacy why --from")))


def change_members(shell: Shell, members: Lines) -> None:
    """Each line is a recipe of its own; here they come in an order in which each can be done. `a` leads at the end."""
    ports = free_ports(2)
    members.leave("primacy members replace b d", "docs/tasks/replace-machine.md runs it")
    assert "voter" in shell.run(members.take("primacy members")).said
    added = members.take("primacy members add d").replace("10.0.0.4:7400", f"127.0.0.1:{ports[0]}")
    shell.run(f"{added} --no-wait")
    shell.run(members.take("primacy members cancel"))  # it is an observer then, and not a voter
    on_node(shell, "d", f"primacy --node d run --bind 127.0.0.1:{ports[0]} -- {WORK}")
    insist(shell, members.take("primacy members promote d"))
    assert f"127.0.0.1:{ports[0]}" in shell.run(members.take("primacy members export")).said
    shell.run(f"{members.take('primacy members apply')} --yes")
    assert f"127.0.0.1:{ports[0]}" not in shell.run("primacy members export").said
    insist(shell, "primacy transfer a")
    shell.stop("state-b")
    on_node(shell, "b", f"primacy --node b run --bind 127.0.0.1:{ports[1]} -- {WORK}")
    shell.run(members.take("primacy members set b").replace("10.0.0.9:7400", f"127.0.0.1:{ports[1]}"))
    shell.run(members.take("primacy members remove b"))


# --- many.md ----------------------------------------------------------------------------------------------------------


def many(shell: Shell, agent: Lines, said: Lines, placed: Lines, reload: Lines) -> None:
    """Three agents with the elections of the page."""
    shell.run("primacy new --nodes 3")
    file = shell.folder / "primacy.yaml"
    url = f"sqlite:///{shell.folder}/leases.db"
    shell.run(f"primacy lease schema --new --yes --store {url}")
    text = file.read_text().partition("run:")[0].replace("profile: lan", "profile: fast")
    for number, port in enumerate(free_ports(3), 1):
        text = text.replace(f":740{number}", f":{port}")
    text = re.sub(r"^  name: main.*\n", "", text, flags=re.MULTILINE)
    elections = re.sub(r"/usr/bin/\w+", "sleep, '1000'", text_of("docs/many.md", "elections:\n  billing: {run"))
    file.write_text(f"{text}\n{elections.replace('postgresql://db/app', url)}")
    shell.run(agent.take("primacy check"))
    line = agent.take("primacy agent")
    for node in NODES:
        on_node(shell, node, f"{line} --node {node}")
    of = partial(runs, shell)
    for name in ("billing", "reports"):
        more = f"--election {name}"
        wait_until(partial(of, more), f"{name} runs", UP_S, 0.1, shell.told)
    mail = said.take("primacy status --election mail")
    wait_until(lambda: "approv" in shell.run(mail, code=None).said, "mail waits", UP_S, 0.1, shell.told)
    shell.run(said.take("primacy status"), code=1)  # mail waits for a word
    approve = said.take("primacy approve --election mail")
    shell.run(approve)
    wait_until(partial(of, "--election mail"), "mail runs", UP_S, 0.1, shell.told)
    insist(shell, said.take("primacy transfer b --election mail"))
    shell.run(approve, code=None)  # b leads in another term, or did before
    wait_until(partial(of, "--election mail"), "mail runs", UP_S, 0.1, shell.told)
    shell.run(said.take("primacy pause --election billing"))
    wait_until(partial(of, "--election billing"), "billing runs elsewhere", UP_S, 0.1, shell.told)
    shell.run("primacy resume --election billing")
    for begin in ("primacy members --election billing", "primacy why --election", "primacy contract --election"):
        assert shell.run(said.take(begin)).said
    page = shell.start(said.take("primacy dashboard"))
    wait_until(lambda: "http://" in shell.logs[-1].read_text(), "its address", UP_S, 0.1, shell.told)
    page.send_signal(signal.SIGINT)
    for begin in ("primacy placement", "primacy rebalance --dry-run", "primacy rebalance", "primacy drain c"):
        shell.run(placed.take(begin))
    for begin in ("primacy undrain c", "primacy maintenance on"):
        shell.run(placed.take(begin))
    shell.run(reload.take("primacy reload"))


# --- lab.md, drills.md ------------------------------------------------------------------------------------------------


def lab(shell: Shell, lines: Lines, demo: Lines, python: Lines) -> None:
    """Labs, one after the other: one has the folder."""
    up = [lines.take("primacy lab up --nodes"), lines.take("primacy lab up --strategy"), lines.take("primacy lab up")]
    look, down = lines.take("primacy lab status"), lines.take("primacy lab down")
    for line in up:
        here = line.replace("/usr/bin/scheduler", WORK).replace("--profile lan", "--profile fast")
        if "--detach" in line:
            shell.run(here)
        else:
            shell.start(here)
        acts = partial(_lab_acts, shell, look)
        wait_until(acts, line, UP_S, 0.1, shell.told)
        shell.run(down)
    demo.leave("make demo", "it makes an environment first; the next line is what it runs then")
    tour = shell.run(demo.take("primacy demo --scenario").replace("--seconds 60", "--seconds 3")).said
    assert '"overlaps": 0' in tour, tour
    (shell.folder / "program.py").write_text(text_of("docs/lab.md", "from primacy.lab.cluster"))
    python.left.clear()
    assert "runs it now" in shell.run("python program.py").said


def _lab_acts(shell: Shell, look: str) -> bool:
    done = shell.run(look, code=None)
    return done.code == 0 and " runs the command" in done.said


def drilled(shell: Shell, lines: Lines) -> None:
    """Of a lab; what takes minutes is what the next line does, again and again."""
    lines.leave("primacy drill --lab --all", "a minute; tests/processes/test_drill.py plays every scenario")
    lines.leave("primacy drill --lab --minutes", "half an hour of the same")
    lines.leave("primacy drill --config", "of a real cluster: with the pages of an operator")
    shell.run(lines.take("primacy lab up"))
    found = shell.run(lines.take("primacy drill --lab --scenario power"), code=None).said
    assert "never two were seen" in found
    shell.run("primacy lab down")


# --- node.md, slots.md ------------------------------------------------------------------------------------------------


def nodes(shell: Shell, lines: Lines) -> None:
    """One terminal each."""
    ports = free_ports(3)

    def here(line: str) -> str:
        for number, port in enumerate(ports, 1):
            line = line.replace(f"500{number}", str(port))
        return line

    for number in (1, 2, 3):
        shell.start(here(lines.take(f"primacy node start --port 500{number}")))
        wait_until(lambda: "follow" in shell.told() or "lead" in shell.told(), "it is up", UP_S, 0.1)
    look = lines.take("primacy cluster status")

    def all_agree() -> bool:
        said = shell.run(look, code=None).said
        return all(f"localhost-{port}" in said for port in ports)

    wait_until(all_agree, "three nodes", UP_S, 0.2, shell.told)


def slots(shell: Shell, serve: Lines, http: Lines, client: Lines) -> None:
    """A server of the page's file, and its clients; then one that speaks HTTP."""
    port, web = free_ports(2)
    console = text_of("docs/slots.md", "$ cat slots.yaml")
    file = console.partition("$ primacy")[0].partition("\n")[2]
    serve.leave("cat slots.yaml", "its content is the file")
    serve.left = [line for line in serve.left if line.startswith("primacy")]
    (shell.folder / "slots.yaml").write_text(file.replace("9090", str(port)) + '  "014": {kind: broadcast}\n')
    shell.start(serve.take("primacy slots serve"))
    shown = console.splitlines()[-1].replace("3 slots", "4 slots").replace("9090", str(port))
    wait_until(lambda: is_shown((shown,), shell.logs[0].read_text()), shown, UP_S, 0.05, shell.told)
    text = shell.folder / "slots.yaml"
    (shell.folder / "primacy.yaml").write_text(text.read_text())
    told = [line.replace("node1:25873", f"localhost:{port}").replace(" --addr node2:25873", "") for line in client.left]
    printed = text_of("docs/slots.md", "$ primacy slots set").splitlines()[1]
    assert client.left.pop(1) == printed
    client.left = [line for line in client.left if not line.startswith("primacy")]
    put, get, watch, bench = (line for line in told if line.startswith("primacy"))
    assert shell.run(put).said.strip() == printed
    assert '"hello"' in shell.run(get).said
    shell.start(f"{watch} --count 1")
    heard(shell, "news", "primacy slots set 14 news")
    assert "requests" in shell.run(f"{bench} --seconds 0.5").said
    (shell.folder / "web.yaml").write_text(text.read_text().replace(str(port), f"{web}\n  protocol: http"))
    shell.start("primacy slots serve --config web.yaml")
    ask, stream = (line for line in http.left if line.startswith("curl"))
    answers = http.left[1::2]
    http.left.clear()
    asked = wait_until(
        lambda: shell.run(f"{ask.replace('25873', str(web))} --silent", code=None).said, "an answer", UP_S, 0.1
    )
    assert asked.strip() == answers[0]
    shell.start(stream.replace("25873", str(web)) + " --silent")
    heard(shell, answers[1], f"curl --silent -d news http://localhost:{web}/014")


def heard(shell: Shell, what: str, say: str) -> None:
    """By what was started last; said again, for it may not listen yet."""

    def come() -> bool:
        shell.run(say)
        return what in shell.logs[-1].read_text()

    wait_until(come, what, UP_S, 0.2, shell.told)


SCENES = (
    Scene(
        "alone",
        (
            ("docs/run.md", "primacy run -- /usr/bin/scheduler"),
            ("docs/run.md", "primacy run --store"),
            ("docs/leases.md", "primacy run --store"),
            ("docs/leases.md", "primacy lease list"),
        ),
        alone,
    ),
    Scene("elected", (("README.md", "async with primacy.Election("),), elected),
    Scene("simulated", (("docs/strategies.md", "$ primacy simulate"),), simulated),
    Scene("approved", (("docs/run.md", "primacy approve"),), approved),
    Scene(
        "operated",
        (
            ("docs/operate.md", "primacy new --nodes 3"),
            ("docs/operate.md", "primacy --node a run"),
            ("docs/operate.md", "primacy status                     # all heard"),
            ("docs/operate.md", "primacy check new.yaml"),
            ("docs/operate.md", "primacy audit"),
            ("docs/operate.md", "primacy members"),
            ("docs/timeline.md", "primacy why"),
            ("docs/run.md", "primacy new --nodes 3"),
            ("docs/run.md", "primacy run --node a"),
        ),
        operated,
    ),
    Scene(
        "many",
        (
            ("docs/many.md", "primacy check"),
            ("docs/many.md", "primacy status"),
            ("docs/many.md", "primacy placement"),
            ("docs/many.md", "primacy reload"),
        ),
        many,
    ),
    Scene(
        "lab",
        (
            ("docs/lab.md", "primacy lab up"),
            ("docs/lab.md", "make demo"),
            ("docs/lab.md", "from primacy.lab.cluster"),
        ),
        lab,
    ),
    Scene("drilled", (("docs/drills.md", "primacy lab up"),), drilled),
    Scene("nodes", (("docs/node.md", "$ primacy node start"),), nodes),
    Scene(
        "slots",
        (
            ("docs/slots.md", "$ cat slots.yaml"),
            ("docs/slots.md", "$ curl"),
            ("docs/slots.md", "$ primacy slots set"),
        ),
        slots,
    ),
)
