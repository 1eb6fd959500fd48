"""`primacy agent`: three real agents, twelve elections, some of them on a lease; each command runs exactly once."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from primacy.cli import main
from tests.support.many_agents import CLUSTER, Agents, agents_in
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=14)

RAFT = tuple(f"raft{n}" for n in range(8))
LEASE = tuple(f"lease{n}" for n in range(3))
MANUAL = "manual"
STAYS = {"placement": {"spread": False}}
"""That nothing is touched is what is judged here: nothing moves for the sake of the spread (test_placement.py)."""
ELECTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(RAFT, STAYS),
    **{name: {"store": {"url": "sqlite:///leases.db"}, **STAYS} for name in LEASE},
    MANUAL: {"mode": "manual", **STAYS},
}


CANARY_HEARTBEAT_MS = 250
"""Of the profile: that no leader changes can only be asked of a machine that wakes its processes in time."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents_in(tmp_path_factory.mktemp("many"), ELECTIONS) as made:
        yield made


@pytest.fixture
def agents(running: Agents) -> Agents:
    """All are up with the one file, and all commands run but the one that waits for an approval."""
    running.start(*(name for name in running.names if name not in running.agents or not running.agents[name].is_up))
    if any("raft1" not in agent.rows() or "crash" in agent.rows() for agent in running.up):
        running.write(ELECTIONS)
        for agent in running.up:
            wait_until(agent.found, "an agent that answers")
            agent.process.send_signal(signal.SIGHUP)
    wait_until(lambda: all(sorted(agent.rows()) == sorted(ELECTIONS) for agent in running.up), "all", every_s=0.1)
    running.all_run(*RAFT, *LEASE)
    return running


class Said(NamedTuple):
    """What a command said, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def said(agents: Agents, at: str, *words: str) -> Said:
    """A command, as a person would give it; without a process of its own, which takes longer than the command."""
    call = [words[0], "--config", str(agents.folder / f"{at}.yaml")]
    return spoken([*call, "--state-dir", str(agents.folder / f"state-{at}"), *words[1:]])


def spoken(call: list[str]) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(call)
    return Said(code, out.getvalue(), err.getvalue())


def up_of(agents: Agents) -> str:
    return agents.up[0].name


def test_one_screen_shows_all_and_a_name_shows_one(agents: Agents) -> None:
    at = up_of(agents)

    def look() -> dict[str, str]:
        """What nodes say of themselves reaches the others within a second: until all are shown to run."""
        screen = said(agents, at, "status").stdout
        assert f"cluster {CLUSTER}, 12 elections; seen from {at}" in screen
        rows = {line.split()[0]: line for line in screen.splitlines() if line.split()[:1]}
        runs = all("runs on" in rows[name] or "held by" in rows[name] for name in (*RAFT, *LEASE))
        return rows if runs else {}

    rows = wait_until(look, "a screen on which all run", every_s=0.2)
    assert "nobody runs it" in rows[MANUAL]
    one = said(agents, at, "status", "--election", "lease1").stdout
    assert f"cluster {CLUSTER}, election lease1, lease, automatic; seen from {at}" in one
    document = json.loads(said(agents, at, "status", "--json").stdout)
    assert [row["election"] for row in document["elections"]] == sorted(ELECTIONS)


def test_every_command_takes_an_election_and_without_one_the_names_are_listed(agents: Agents) -> None:
    at = up_of(agents)
    for words in (("step-down",), ("transfer", "b"), ("pause",), ("resume",), ("approve",), ("members",), ("why",)):
        refusal = said(agents, at, *words)
        assert (refusal.returncode, "--election with one of raft0, raft1" in refusal.stderr) == (2, True), words
    assert "version 1" in said(agents, at, "members", "--election", "raft3").stdout
    assert "leads" in said(agents, at, "why", "--election", "raft3").stdout
    wrong = said(agents, at, "step-down", "--election", "raft33")
    assert (wrong.returncode, "is raft3 meant?" in wrong.stderr) == (2, True)


def test_a_request_is_for_its_election_alone(agents: Agents) -> None:
    others = [name for name in RAFT if name != "raft2"]
    before = agents.leaders(*others)
    leader = agents.leaders("raft2")["raft2"][0]
    to = next(agent.name for agent in agents.up if agent.name != leader)
    assert said(agents, up_of(agents), "transfer", to, "--election", "raft2").returncode == 0
    wait_until(lambda: (one := agents.acting("raft2")) is not None and one.node == to, f"raft2 on {to}")
    assert said(agents, to, "pause", "--election", "raft2").returncode == 0
    wait_until(lambda: (one := agents.acting("raft2")) is not None and one.node != to, f"raft2 not on {to}")
    assert said(agents, to, "resume", "--election", "raft2").returncode == 0
    wait_until(lambda: agents.leaders(MANUAL)[MANUAL][0], "a leader that waits")
    approved = wait_until(
        lambda: said(agents, up_of(agents), "approve", "--election", MANUAL).returncode == 0, "approval"
    )
    assert approved
    agents.all_run(MANUAL)
    assert agents.leaders(*others) == before


def test_metrics_have_the_election_as_a_label_and_leader_is_asked_of_one(agents: Agents) -> None:
    found = agents.up[0].found()
    assert found is not None
    line = http.client.HTTPConnection(found.host, found.port, timeout=60)
    line.request("GET", "/metrics")
    text = line.getresponse().read().decode()
    for name in ELECTIONS:
        assert f'primacy_acting_leader{{election="{name}"}}' in text
    line.request("GET", "/leader")
    answer = line.getresponse()
    assert (answer.status, b"one of lease0" in answer.read()) == (400, True)
    line.request("GET", "/leader?election=raft1")
    assert line.getresponse().status in (200, 503)
    line.close()


# --- the file, again --------------------------------------------------------------------------------------------------


def test_reload_adds_removes_and_changes_and_what_goes_wrong_there_changes_no_other_leader(agents: Agents) -> None:
    quiet = [name for name in RAFT if name not in ("raft0", "raft1")]
    before, leaders = agents.all_run(*RAFT, *LEASE), agents.leaders(*quiet)
    at = up_of(agents)
    good = (agents.folder / f"{at}.yaml").read_text()
    (agents.folder / f"{at}.yaml").write_text("elections: {raft0: {run: {comand: [x]}}}")
    code, sentence = _reload(agents, at)
    assert (code, "is `command` meant?" in sentence) == (2, True)
    (agents.folder / f"{at}.yaml").write_text(good.replace(CLUSTER, "other"))
    code, sentence = _reload(agents, at)
    assert (code, "cluster of" in sentence) == (1, True)
    changed = {name: {**one} for name, one in ELECTIONS.items() if name != "raft1"}
    changed["raft0"] = {"run": {"command": agents.command("raft0", "escape")}}
    changed["crash"] = {"run": {"command": agents.command("crash", "exit=1,20"), "restart_limit": 3}}
    changed["away"] = {"store": {"url": "postgresql://127.0.0.1:1/nowhere"}}
    changed["new"] = {"store": {"url": "sqlite:///leases.db"}, **STAYS}
    agents.write(changed)
    for agent in agents.up:
        reply = said(agents, agent.name, "reload", "--json")
        assert reply.returncode == 0, reply.stderr
        done = json.loads(reply.stdout)
        assert (done["added"], done["removed"], done["changed"]) == (["crash", "away", "new"], ["raft1"], ["raft0"])
    wait_until(lambda: agents.acting("raft1") is None, "the end of raft1")
    wait_until(lambda: all("raft1" not in agent.rows() for agent in agents.up), "nobody has it", every_s=0.1)
    anew = agents.all_run(*quiet, "raft0", "new")
    wait_until(lambda: agents.all_run("raft0")["raft0"].start != before["raft0"].start, "raft0 anew")
    wait_until(lambda: len(agents.stamps("crash")) > 6, "many crashes", every_s=0.1)
    assert agents.leaders(*quiet) == leaders
    assert {name: anew[name].start for name in quiet} == {name: before[name].start for name in quiet}
    agents.write(ELECTIONS)
    for agent in agents.up:
        agent.process.send_signal(signal.SIGHUP)
    agents.all_run("raft1")
    tokens = [one.token for one in agents.stamps("raft1")]
    safe(max(tokens) > before["raft1"].token, f"its token was kept, and the next is above it: {tokens}")
    wait_until(lambda: all(sorted(agent.rows()) == sorted(ELECTIONS) for agent in agents.up), "the file", every_s=0.1)


def test_an_agent_that_is_killed_loses_all_of_its_commands_to_the_others_and_none_runs_twice(agents: Agents) -> None:
    before = agents.all_run(*RAFT, *LEASE)
    counts = {agent.name: sum(one.node == agent.name for one in before.values()) for agent in agents.up}
    victim = max(counts, key=lambda name: counts[name])
    agents.agents[victim].process.kill()
    after = agents.all_run(*RAFT, *LEASE, other=victim)
    for name in RAFT:  # a lease may be lost to a slow disk at any time
        if before[name].node != victim:
            assert after[name].start == before[name].start, f"{name} was touched"
    agents.agents[victim].process.wait(60)
    agents.start(victim)
    again = agents.agents[
        victim
    ]  # also of those that wait for their turn to start, the address stands there from before
    wait_until(lambda: sum(row["here"] for row in again.rows().values()) == len(ELECTIONS), victim, every_s=0.2)
    assert all(one.start == after[name].start for name, one in agents.all_run(*RAFT).items())


def test_all_end_in_order_at_a_signal(agents: Agents) -> None:
    """The last one here: each command is stopped, confirmed and handed over, and the process ends with 0."""
    victim = up_of(agents)
    agents.agents[victim].process.terminate()
    assert agents.agents[victim].process.wait(60) == 0
    agents.all_run(*RAFT, *LEASE, other=victim)
    assert not list((agents.folder / f"state-{victim}" / CLUSTER).glob("*/control.json"))


def _reload(agents: Agents, at: str) -> tuple[int, str]:
    """With the folder and the cluster named, for its file is broken."""
    done = spoken(["reload", "--cluster", CLUSTER, "--state-dir", str(agents.folder / f"state-{at}")])
    return done.returncode, done.stderr
