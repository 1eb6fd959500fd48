"""The file of a real agent with several elections changes: nothing runs twice, and no reload is lost."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main
from tests.support import stamp
from tests.support.many_agents import CLUSTER, STOP_MS, WITHIN_S, AgentProcess, Agents, agents_in
from tests.support.ports import free_ports
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=35)

SLOW_STOP, LONG_STOP_MS = "ignore-term", 4 * STOP_MS
"""It runs until its stop time is over."""


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """One node."""
    with agents_in(tmp_path, {"keep": {}}, names="a") as made:
        made.all_run("keep")
        yield made


def spoken(*call: str) -> tuple[int, str, str]:
    """A command: its code, what it said, and its complaints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([*call])
    return code, out.getvalue(), err.getvalue()


def reload(agents: Agents) -> tuple[int, str, str]:
    return spoken("reload", "--config", str(agents.folder / "a.yaml"), "--state-dir", state(agents))


def reload_of(agents: Agents) -> tuple[int, str, str]:
    """With the folder and the cluster named, for its file is broken."""
    return spoken("reload", "--cluster", CLUSTER, "--state-dir", state(agents))


def state(agents: Agents) -> str:
    return str(agents.folder / "state-a")


def stamps(agents: Agents, of: str) -> list[stamp.Stamp]:
    return [one for one in agents.stamps(of) if one.kind == stamp.COMMAND]


def never_two(agents: Agents, of: str, what: str) -> None:
    """Judged when it was started twice, by two elections: their tokens have nothing to do with each other."""

    def both() -> list[stamp.Stamp]:
        found = stamps(agents, of)
        return found if len(found) == 2 else []

    ordered = sorted(wait_until(both, what), key=lambda one: one.first_ns)
    for old, new in itertools.pairwise(ordered):
        safe(old.last_ns < new.first_ns, f"two at once: {old} and {new}")


# --- a command that another election had ------------------------------------------------------------------------------


def test_an_election_that_was_renamed_begins_when_the_old_one_has_ended(agents: Agents) -> None:
    entry = {"run": {"command": agents.command("moved", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    agents.write({"keep": {}, "foo": entry})
    assert reload(agents)[0] == 0
    wait_until(lambda: stamps(agents, "moved"), "foo")
    agents.write({"keep": {}, "bar": entry})
    code, out, err = reload(agents)
    why = agents.agents["a"].rows()["bar"].get("why", "")
    never_two(agents, "moved", "bar")
    assert why == "it begins when foo, which had the same command, has ended"
    assert (code, "bar starts" in out) == (0, True)
    assert "warning: bar has the command that foo had" in err


def test_two_elections_that_exchange_their_commands_wait_for_each_other_s_end(agents: Agents) -> None:
    """Each is stopped for its change; one of them at once, the other one after its stop time."""
    slow = {"run": {"command": agents.command("slow", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    quick = {"run": {"command": agents.command("quick")}}
    agents.write({"keep": {}, "foo": slow, "bar": quick})
    assert reload(agents)[0] == 0
    for name in ("slow", "quick"):
        wait_until(lambda name=name: stamps(agents, name), name)
    agents.write({"keep": {}, "foo": quick, "bar": slow})
    assert reload(agents)[0] == 0
    for name in ("slow", "quick"):
        never_two(agents, name, name)


def test_one_that_waits_for_another_one_s_end_can_be_removed_again(agents: Agents) -> None:
    entry = {"run": {"command": agents.command("moved", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    agents.write({"keep": {}, "foo": entry})
    assert reload(agents)[0] == 0
    wait_until(lambda: stamps(agents, "moved"), "foo")
    for name in ("bar", "baz"):
        agents.write({"keep": {}, name: entry})
        assert reload(agents)[0] == 0
    wait_until(lambda: "bar" not in agents.agents["a"].rows(), "the end of bar, which never began")
    never_two(agents, "moved", "baz")
    assert set(agents.agents["a"].rows()) == {"keep", "baz"}


# --- stopped in order -------------------------------------------------------------------------------------------------


def tidy(agents: Agents) -> dict[str, Any]:
    """A command that needs a second to end, and notes that it was let."""
    script = f"trap 'sleep 1; echo >> {agents.folder}/tidied; exit 0' TERM; echo >> {agents.folder}/began; "
    return {"run": {"command": ["sh", "-c", script + "while :; do sleep 0.02; done"], "stop_ms": 30_000}}


def runs_tidy(agents: Agents) -> None:
    agents.write({"keep": {}, "tidy": tidy(agents)})
    assert reload(agents)[0] == 0
    wait_until((agents.folder / "began").exists, "the command")


def test_one_that_is_removed_while_it_stops_for_a_change_is_still_stopped_in_order(agents: Agents) -> None:
    runs_tidy(agents)
    agents.write({"keep": {}, "tidy": {"run": {"command": ["sleep", "60"]}}})
    assert reload(agents)[0] == 0
    agents.write({"keep": {}})
    assert reload(agents)[0] == 0
    wait_until(lambda: "tidy" not in agents.agents["a"].rows(), "its end")
    assert (agents.folder / "tidied").exists(), "it was killed before its stop time was over"


def test_an_agent_that_is_asked_to_end_while_one_is_being_removed_stops_that_in_order_too(agents: Agents) -> None:
    runs_tidy(agents)
    agents.write({"keep": {}})
    assert reload(agents)[0] == 0
    agents.agents["a"].process.terminate()
    assert agents.agents["a"].process.wait(WITHIN_S) == 0
    assert (agents.folder / "tidied").exists(), "it was killed before its stop time was over"


# --- a second agent, which waits for its turn -------------------------------------------------------------------------


@pytest.fixture
def second(agents: Agents) -> AgentProcess:
    """It waits for the one that runs; what it logs stands behind that one's lines."""
    agents.start("a")
    one = agents.agents["a"]
    wait_until(lambda: "waits for process" in one.text, "that it waits")
    return one


def first_ends(agents: Agents) -> None:
    first = agents.started[0].process
    first.terminate()
    assert first.wait(WITHIN_S) == 0


def test_an_agent_that_has_waited_runs_what_its_file_says_then(agents: Agents, second: AgentProcess) -> None:
    agents.write({"new": {}})
    second.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "it does when it begins" in second.text, "an answer")
    first_ends(agents)
    agents.all_run("new")
    assert set(second.rows()) == {"new"}
    assert len(stamps(agents, "keep")) == 1, "keep stands in no file any more"


def test_an_agent_that_has_waited_and_finds_a_broken_file_ends_as_at_a_start(
    agents: Agents, second: AgentProcess
) -> None:
    (agents.folder / "a.yaml").write_text("elections: {keep: {run: {comand: [x]}}}")
    first_ends(agents)
    assert second.process.wait(WITHIN_S) == 2
    assert "is `command` meant?" in second.text


def test_an_agent_whose_file_names_another_cluster_when_it_has_waited_goes_there(
    agents: Agents, second: AgentProcess
) -> None:
    path = agents.folder / "a.yaml"
    path.write_text(path.read_text().replace(f'"name": "{CLUSTER}"', '"name": "elsewhere"'))
    first_ends(agents)
    wait_until((second.state / "elsewhere" / "keep" / "ballot").exists, "its part in the other cluster")
    wait_until(lambda: len(stamps(agents, "keep")) == 2, "the command")
    never_two(agents, "keep", "the second")


class Two:
    """Two starts of one command with one file, of which the second waits for the first."""

    def __init__(self, folder: Path, *call: str) -> None:
        folder.chmod(0o755)
        self.file, self.log = folder / "p.yaml", folder / "log"
        self.call = [sys.executable, "-m", "primacy", *call, "--config", str(self.file), "--state-dir", f"{folder}/s"]
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.started.append(subprocess.Popen(self.call, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self.started[-1]

    def second_waits(self) -> None:
        self.start()
        wait_until(lambda: "waits for process" in self.log.read_text(), "that the second waits")

    def first_ends(self) -> None:
        self.started[0].terminate()
        assert self.started[0].wait(WITHIN_S) == 0

    def end(self) -> None:
        for each in self.started:
            each.terminate()
            each.wait(WITHIN_S)


def test_a_command_line_goes_on_to_count_above_the_file_of_one_that_has_waited(tmp_path: Path) -> None:
    """`primacy run`: the file's new command is taken, and the name of the command line kept."""
    two, out = Two(tmp_path, "run", "--election", "mine"), tmp_path / "out"

    def write(word: str) -> None:
        tell = f"echo {word} $PRIMACY_ELECTION >> {out}; exec sleep 60"
        two.file.write_text(json.dumps({"cluster": {"name": CLUSTER}, "run": {"command": ["sh", "-c", tell]}}))

    def lines() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    with contextlib.ExitStack() as ends:
        ends.callback(two.end)
        write("old")
        two.start()
        wait_until(lambda: lines() == ["old mine"], "the first")
        two.second_waits()
        write("new")
        two.first_ends()
        wait_until(lambda: len(lines()) == 2, "the second")
        assert lines() == ["old mine", "new mine"]


def test_slots_are_served_where_the_file_says_when_one_has_waited(tmp_path: Path) -> None:
    two, ports = Two(tmp_path, "slots", "serve"), free_ports(2)

    def write(port: int) -> None:
        lease = {"strategy": "lease", "store": {"url": f"sqlite:///{tmp_path}/leases.db"}}
        two.file.write_text(json.dumps({"election": lease, "slots": {"addr": f"127.0.0.1:{port}"}}))

    def served() -> bool:
        return f"on 127.0.0.1:{ports[1]}, " in two.log.read_text()

    with contextlib.ExitStack() as ends:
        ends.callback(two.end)
        write(ports[0])
        two.start()
        wait_until(lambda: "while this node leads" in two.log.read_text(), "the first")
        two.second_waits()
        write(ports[1])
        two.first_ends()
        wait_until(served, "the second, at its new address")


# --- many signals -----------------------------------------------------------------------------------------------------


def test_a_storm_of_signals_takes_the_newest_file_and_a_broken_one_changes_nothing(agents: Agents) -> None:
    agent = agents.agents["a"]

    def storm(times: int) -> None:
        for _ in range(times):
            agent.process.send_signal(signal.SIGHUP)
            time.sleep(0.002)

    path = agents.folder / "a.yaml"
    good = path.read_text()
    for broken in (b"", b"\0\xff", b"elections: [", b"[" * 20_000, b"elections: {keep: {run: {comand: [x]}}}"):
        path.write_bytes(broken)
        code, _, err = reload_of(agents)
        assert (code, agent.is_up) == (2, True), err
        storm(5)
    path.unlink()
    storm(5)
    path.write_text(good)
    storm(50)
    agents.write({"keep": {}, "new": {}})
    storm(50)
    agents.all_run("new")
    assert len(stamps(agents, "keep")) == 1, "nobody touched it"


def test_signals_while_the_agent_ends_do_not_change_how_it_ends(agents: Agents) -> None:
    process = agents.agents["a"].process
    process.terminate()
    until = time.monotonic() + WITHIN_S
    while process.poll() is None and time.monotonic() < until:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.0005)
    assert process.wait(WITHIN_S) == 0
