"""What an operator decides, with real processes: a pause that is kept, and starts that wait for an approval (G8)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.agent.state import forget_pause, is_paused, keep_pause
from primacy.control import Approve, NodeStatus
from primacy.control.requests import order_of
from primacy.election.model import Role, View
from primacy.errors import Refused, UsageError
from primacy.node.folder import Folder
from primacy.settings import of_mapping
from primacy.settings.timing import PROFILES
from primacy.supervise.vocabulary import State
from primacy.supervise.workload import WorkloadView
from tests.processes.test_cli_agent import FILE, Node, Say, alive, free_ports, say, write_secret  # noqa: F401
from tests.support.real_nodes import tree
from tests.support.servers import stop_whole
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=30)

WITHIN_S = 60.0


# --- pause ------------------------------------------------------------------------------------------------------------


def test_a_pause_outlives_the_agent_and_resume_ends_it(say: Say, tmp_path: Path) -> None:  # noqa: F811
    node = Node(tmp_path)
    ran = node.runs(say)
    assert say("pause", "--state-dir", node.state).code == 0
    node.until(say, lambda s: s["role"] == "paused" and s["workload"]["state"] == "stopped", "a paused node")
    node.process.kill()
    node.process.wait(WITHIN_S)
    node = Node(tmp_path)
    state = node.until(say, lambda s: s["role"] == "paused", "a node that is still paused")
    assert (state["term"], state["waits_for"]) == (ran["term"], "an operator: primacy resume")
    assert "was paused before this start and stays so: primacy resume" in node.err.read_text()
    assert say("resume", "--state-dir", node.state).code == 0
    node.runs(say)
    assert node.end() == 0
    node = Node(tmp_path)
    node.runs(say)
    assert node.end() == 0


def test_a_pause_that_the_disk_does_not_take_is_said(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "state"))
    try:
        assert not is_paused(folder)
        os.mkdir(folder.path("paused"))  # nothing can be renamed onto it, nor is it unlinked
        with pytest.raises(Refused, match="only until its next start"):
            keep_pause(folder)
        with pytest.raises(Refused, match="stays paused"):
            forget_pause(folder)
        os.rmdir(folder.path("paused"))
        keep_pause(folder)
        assert is_paused(folder)
        forget_pause(folder)
        forget_pause(folder)
        assert not is_paused(folder)
    finally:
        folder.close()


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_the_last_moment_does_not_change_the_exit_code(number: int, tmp_path: Path) -> None:
    """The loop is closed and the interpreter about to end: this was once death by the signal."""
    script = (
        "import atexit, os, sys; from primacy.cli.main import main;"
        f"atexit.register(lambda: os.kill(os.getpid(), {int(number)})); main(sys.argv[1:])"
    )
    call = [sys.executable, "-c", script, "run", "--state-dir", str(tmp_path / "s"), "--restart", "never", "--"]
    done = subprocess.run(
        [*call, "sh", "-c", "exit 7"], cwd=tmp_path, capture_output=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 7, done.stderr


def test_however_often_it_is_asked_to_end_it_ends_with_0(say: Say, tmp_path: Path) -> None:  # noqa: F811
    node = Node(tmp_path)
    pid = node.runs(say)["workload"]["pid"]
    last = time.monotonic() + WITHIN_S
    while node.process.poll() is None and time.monotonic() < last:
        node.process.send_signal(signal.SIGTERM)
    assert node.process.poll() == 0, node.err.read_text()
    wait_until(lambda: not alive(pid), "the end of the command")  # asked more than twice it leaves; the guard goes on


# --- manual mode ------------------------------------------------------------------------------------------------------


MANUAL = "election: {mode: manual}\n"


def events(say: Say, node: Node) -> str:  # noqa: F811
    return say("why", "--state-dir", node.state, "--last", "1000").out


def waiting(say: Say, node: Node) -> dict[str, Any]:  # noqa: F811
    return node.until(say, lambda s: "an approval" in (s["waits_for"] or ""), "a node that waits for an approval")


def test_G8_a_winner_waits_for_an_approval_of_its_own_term(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """Also killed while it waits, and after the hold: an approval of another term never starts anything."""
    (tmp_path / "primacy.yaml").write_text(MANUAL)
    node = Node(tmp_path)
    state = waiting(say, node)
    me, term = state["node"], state["term"]
    assert state["waits_for"] == f"an approval: primacy approve {me} --term {term}"
    assert (state["role"], state["workload"]["state"], state["workload"]["pid"]) == ("leader", "waiting", None)
    assert f"node {me} waits for an approval: primacy approve" in say("status", "--state-dir", node.state).out
    node.process.kill()
    node.process.wait(WITHIN_S)
    node = Node(tmp_path)
    state = waiting(say, node)
    assert state["term"] > term
    refused = say("approve", me, "--term", str(term), "--state-dir", node.state)
    assert (refused.code, refused.out) == (1, "")
    assert f"waits for an approval of term {state['term']}, not {term}: primacy approve {me} --term" in refused.err
    time.sleep(1.1 * PROFILES["lan"].hold_ms / 1_000)  # longer than a hold: it neither starts nor resigns
    assert waiting(say, node)["term"] == state["term"]
    said = say("approve", "--state-dir", node.state)
    assert (said.code, said.err) == (0, "")
    assert f"a start of node {me} in term {state['term']} is approved" in said.out
    ran = node.runs(say)
    assert ran["term"] == state["term"]
    assert re.search(rf"the start in term {ran['term']} was approved by \S+ on \S+", events(say, node))
    for again in (
        say("approve", "--state-dir", node.state),
        say("approve", me, "--term", "1", "--state-dir", node.state),
    ):
        assert again.code == 1
    os.kill(ran["workload"]["pid"], signal.SIGKILL)  # a crash within an approved term needs no new approval (G10)
    back = node.until(say, lambda s: s["workload"]["pid"] not in (None, ran["workload"]["pid"]), "the next run")
    assert back["term"] == ran["term"]
    assert say("step-down", "--state-dir", node.state).code == 0
    assert waiting(say, node)["term"] > ran["term"]
    assert node.end() == 0


def test_G8_where_nothing_waits_nothing_is_approved(say: Say, tmp_path: Path) -> None:  # noqa: F811
    node = Node(tmp_path)
    node.runs(say)
    said = say("approve", "--state-dir", node.state)
    assert (said.code, "no node waits for an approval" in said.err) == (1, True)
    said = say("approve", node.document(say)["node"], "--term", "1", "--state-dir", node.state)
    assert (said.code, "election.mode is automatic" in said.err) == (1, True)
    assert node.end() == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "node and term"),
        ({"node": "a", "term": True}, "node and term"),
        ({"node": "a", "term": 0}, "node and term"),
        ({"node": ["a"], "term": 7}, "node and term"),
        ({"node": "a", "term": 7, "by": "x" * 101}, "by: a name"),
        ({"node": "a", "term": 7, "by": "x\ny"}, "by: a name"),
        ({"node": "a", "term": 7, "more": 1}, "more: no such field"),
        ({"node": "b", "term": 7}, "an approval of node b is given there"),
        ({"node": "a", "term": 6}, "of term 7, not 6: primacy approve a --term 7"),
    ],
)
def test_approvals_that_make_no_sense(body: dict[str, Any], says: str) -> None:
    settings = of_mapping({"election": {"mode": "manual"}})
    view = View(Role.LEADER, "a", 7, "a", 1_007, 900, ("a",), "")
    workload = WorkloadView("process", State.WAITING, 0, 0, 0, "", "")
    node_status = NodeStatus(settings, "a", view, workload, {}, {}, 0, 0, False, approval_term=7)
    assert order_of("approve", {"node": "a", "term": 7, "by": "ann"}, node_status) == Approve(7, "ann")
    assert order_of("approve", {"node": "a", "term": 7}, node_status) == Approve(7, "a holder of the control key")
    with pytest.raises((UsageError, Refused), match=says):
        order_of("approve", body, node_status)
    with pytest.raises(Refused, match="does not wait for an approval"):
        order_of("approve", {"node": "a", "term": 7}, node_status._replace(approval_term=0))


@contextlib.contextmanager
def three(folder: Path, strategy: str, more: str = "", *args: str) -> Iterator[dict[str, Node]]:
    """A cluster of three, by the names of its nodes."""
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    whole = (
        FILE.format(nodes=listed)
        .replace("explicit", "auto")
        .replace("profile: lan", f"profile: lan, strategy: {strategy}")
    )
    (folder / "primacy.yaml").write_text(whole + more)
    write_secret(folder / "secret")
    nodes = {name: Node(folder, *args, state=f"state-{name}", front=("--node", name)) for name in names}
    try:
        yield nodes
    finally:
        codes = [node.end() for node in nodes.values()]
    assert codes == [0, 0, 0]


def leads(say: Say, node: Node, check: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:  # noqa: F811
    """The row of the leader, as this node sees it, once it is as it is wanted."""

    def row(s: dict[str, Any]) -> dict[str, Any]:
        return next((r for r in s["rows"] if r["node"] == s["leader"] and r["role"] == "leader"), {})

    return row(node.until(say, lambda s: row(s) and check(row(s)), what))


def test_G8_a_transfer_before_the_approval_is_refused_and_the_leader_stays(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """It has no release to give: it could only resign, and any node would win."""
    with three(tmp_path, "raft, mode: manual") as nodes:
        waits = leads(say, nodes["a"], lambda r: "an approval" in (r["waits_for"] or ""), "a leader that waits")
        leader, term = waits["node"], waits["term"]
        to, third = (name for name in nodes if name != leader)
        for asked_at in (leader, third):
            for more in ((), ("--no-wait",), ("--json",)):
                refused = say("transfer", to, *more, "--state-dir", nodes[asked_at].state)
                assert (refused.code, refused.out) == (1, "")
                assert refused.err == (
                    f"primacy: node {leader} waits for an approval and has nothing to hand over: first primacy approve "
                    f"{leader} --term {term}, then transfer. Or let the others elect, without a start on {leader}: "
                    f"primacy pause {leader}\n"
                )
        assert waiting(say, nodes[leader])["term"] == term, "nothing was done"
        leads(say, nodes[to], lambda r: "an approval" in (r["waits_for"] or ""), "the same, seen from there")
        assert say("approve", "--state-dir", nodes[to].state).code == 0
        nodes[leader].runs(say)
        said = say("transfer", to, "--state-dir", nodes[third].state)
        assert (said.code, f"node {to} leads (term " in said.out, "waits for an approval" in said.out) == (
            0,
            True,
            True,
        )
        assert say("pause", to, "--state-dir", nodes[third].state).code == 0, "the other remedy"
        elected = leads(say, nodes[third], lambda r: r["node"] != to and "approve" in (r["waits_for"] or ""), "another")
        said = say("step-down", "--state-dir", nodes[third].state)
        assert (said.code, "waits for an approval: primacy approve" in said.out) == (0, True), (said, elected)


def test_G8_bully_shows_the_approval_that_it_waits_for(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """Its own sentences know of none: `approve` alone found nothing, and `step-down` waited for a start in vain."""
    with three(tmp_path, "bully, mode: manual", "", "--allow-split-brain") as nodes:

        def agreed() -> str:
            """Two may lead for a moment, while the nodes start."""
            said = [node.document(say) for node in nodes.values()]
            rows = [row for state in said for row in state["rows"]]
            of_leader = [row for row in rows if row["node"] == row["leader"]]
            waits = bool(of_leader) and all("an approval" in (row["waits_for"] or "") for row in of_leader)
            heard = all(row["heard_ms"] is not None for state in said for row in state["nodes"])
            return said[0]["leader"] if waits and heard and len({row["leader"] for row in rows}) == 1 else ""

        wait_until(agreed, "a leader that all follow", WITHIN_S, told=lambda: events(say, nodes["a"]))
        said = say("step-down", "--state-dir", nodes["a"].state)
        assert (said.code, "waits for an approval: primacy approve" in said.out) == (0, True), said

        def runs() -> bool:
            """Another one may lead by now, where a machine stalls: bully has no hold."""
            say("approve", "--state-dir", nodes["a"].state)
            return any(node.document(say)["workload"]["state"] == "running" for node in nodes.values())

        wait_until(runs, "a start that was approved", WITHIN_S, told=lambda: events(say, nodes["a"]))


def test_G8_a_transfer_during_the_start_waits_until_there_is_something_to_hand_over(
    say: Say,  # noqa: F811
    tmp_path: Path,
) -> None:
    permit = tmp_path / "permit"
    with three(tmp_path, "raft", f"run: {{fence_command: [test, -e, {permit}]}}\n") as nodes:
        fences = leads(say, nodes["a"], lambda r: "fence command" in (r["waits_for"] or ""), "a leader that fences")
        leader = fences["node"]
        to = next(name for name in nodes if name != leader)
        for more in (("--no-wait",), ("--within", "1ms")):
            refused = say("transfer", to, *more, "--state-dir", nodes[to].state)
            assert (refused.code, "before its work has started: it waits for its fence" in refused.err) == (1, True)
            assert "then say it again, or primacy step-down" in refused.err
        still = leads(say, nodes["a"], bool, "a leader")
        assert (still["node"], still["term"]) == (leader, fences["term"]), "nothing was done"
        call = [sys.executable, "-m", "primacy.cli.main", "transfer", to, "--within", "60s"]
        call += ["--state-dir", nodes[to].state]
        asks = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        assert asks.stderr is not None
        assert asks.stderr.readline().startswith(f"waits: node {leader} leads, and has nothing to hand over")
        permit.touch()
        out, err = asks.communicate(timeout=WITHIN_S)
        assert (asks.returncode, f"node {to} leads" in out) == (0, True), err
        nodes[to].runs(say)


# --- the fence command ------------------------------------------------------------------------------------------------


def fencing(folder: Path, script: str, more: str = "") -> None:
    (folder / "fence.sh").write_text(script)
    (folder / "primacy.yaml").write_text(f"run: {{fence_command: [sh, fence.sh]{more}}}\n")


def test_G8_nothing_starts_before_the_fence_command_has_ended_well(say: Say, tmp_path: Path) -> None:  # noqa: F811
    tells = "env | grep ^PRIMACY_ > told.new; mv told.new told"  # whole, whenever it is read
    fencing(tmp_path, f"{tells}; env | grep -c NOTIFY_SOCKET; test -e permit\n")
    node = Node(tmp_path)
    state = node.until(say, lambda s: "fence command" in (s["waits_for"] or ""), "a node that fences")
    assert state["workload"]["state"] == "waiting"
    node.until(say, lambda s: "it ended with code 1" in (s["waits_for"] or ""), "a failure that is shown")
    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines())
    assert told["PRIMACY_NODE"] == state["node"]
    assert (told["PRIMACY_TOKEN"], told["PRIMACY_TERM"]) == (str(state["token"]), str(state["term"]))
    assert (told["PRIMACY_PREDECESSOR"], told["PRIMACY_ELECTION"]) == ("", "main")
    (tmp_path / "permit").touch()
    ran = node.runs(say)
    assert ran["term"] == state["term"]
    assert "the fence command failed: it ended with code 1; again in 1,000 ms" in events(say, node)
    (tmp_path / "told").unlink()
    assert say("step-down", "--state-dir", node.state).code == 0
    node.until(say, lambda s: s["term"] > ran["term"] and s["workload"]["state"] == "running", "the next term")
    assert not (tmp_path / "told").exists(), "a release covered all predecessors"
    assert node.end() == 0


def test_G8_a_fence_command_that_hangs_is_killed_with_its_group_and_so_it_is_at_the_end(
    say: Say,  # noqa: F811
    tmp_path: Path,
) -> None:
    fencing(tmp_path, "sleep 300 & echo $! >> pids; wait\n", ", fence_ms: 300")
    node = Node(tmp_path)
    node.until(say, lambda s: "did not end within 300 ms" in (s["waits_for"] or ""), "a fence command that is late")
    pids = tmp_path / "pids"
    node.until(say, lambda _: pids.exists() and pids.read_text().count("\n") >= 2, "a second try")
    assert node.end() == 0
    wait_until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "its end", WITHIN_S)


def test_G8_any_node_shows_who_waits_and_passes_the_approval_on(say: Say, tmp_path: Path) -> None:  # noqa: F811
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    whole = FILE.format(nodes=listed).replace("explicit", "auto").replace("profile: lan", "profile: lan, mode: manual")
    (tmp_path / "primacy.yaml").write_text(whole)
    write_secret(tmp_path / "secret")
    nodes = {name: Node(tmp_path, state=f"state-{name}", front=("--node", name)) for name in names}
    try:
        leader = nodes["a"].until(say, lambda s: s["leader"], "a leader")["leader"]
        follower = next(nodes[name] for name in names if name != leader)
        sentence = f"an approval: primacy approve {leader} --term "
        seen = follower.until(
            say, lambda s: any(sentence in (r["waits_for"] or "") for r in s["rows"]), "who waits, seen elsewhere"
        )
        assert seen["acting"] == []
        said = say("approve", "--state-dir", follower.state)
        assert (said.code, f"a start of node {leader} in term" in said.out) == (0, True), said
        ran = nodes[leader].runs(say)
        follower.until(say, lambda s: s["acting"] == [leader], "who acts, seen elsewhere")
        assert ran["leader"] == leader
    finally:
        codes = [node.end() for node in nodes.values()]
    assert codes == [0, 0, 0]


def test_G8_a_successor_fences_the_one_that_was_lost_and_not_the_one_that_released(
    say: Say,  # noqa: F811
    tmp_path: Path,
) -> None:
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    script = 'echo "$PRIMACY_TERM $PRIMACY_NODE ${PRIMACY_PREDECESSOR:-nobody}" >> fenced'
    (tmp_path / "primacy.yaml").write_text(
        FILE.format(nodes=listed).replace("explicit", "auto") + f"run: {{fence_command: [sh, -c, '{script}']}}\n"
    )
    write_secret(tmp_path / "secret")
    nodes = {name: Node(tmp_path, state=f"state-{name}", front=("--node", name)) for name in names}

    def next_after(seen_at: Node, term: int) -> dict[str, Any]:
        """Who acts in a later term, as this node sees it."""
        state = seen_at.until(
            say, lambda s: s["acting"] and s["leader"] == s["acting"][0] and s["term"] > term, "somebody who acts"
        )
        return nodes[state["leader"]].runs(say)

    def fenced() -> list[list[str]]:
        return [line.split() for line in (tmp_path / "fenced").read_text().splitlines()]

    try:
        first = next_after(nodes["a"], 0)
        assert fenced()[-1] == [str(first["term"]), first["node"], "nobody"]
        assert say("step-down", "--state-dir", nodes[first["node"]].state).code == 0
        second = next_after(nodes[first["node"]], first["term"])
        assert int(fenced()[-1][0]) < second["term"], "released, and fenced nevertheless"
        lost = nodes.pop(second["node"])
        stop_whole(lost.process.pid)
        doomed = tree(lost.process.pid)
        for pid in (*doomed[1:], doomed[0]):  # guards, command and agent together: nobody is left to release
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        lost.process.wait(WITHIN_S)
        third = next_after(next(iter(nodes.values())), second["term"])
        assert fenced()[-1] == [str(third["term"]), third["node"], second["node"]]
    finally:
        codes = [node.end() for node in nodes.values()]
    assert codes == [0, 0]


def test_G8_a_leader_that_loses_its_majority_while_it_fences_starts_nothing(say: Say, tmp_path: Path) -> None:  # noqa: F811
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    (tmp_path / "primacy.yaml").write_text(
        FILE.format(nodes=listed).replace("explicit", "auto")
        + "run: {fence_command: [sh, -c, 'echo $$ >> pids; sleep 300'], fence_ms: 600000}\n"
    )
    write_secret(tmp_path / "secret")
    nodes = {name: Node(tmp_path, state=f"state-{name}", front=("--node", name)) for name in names}
    try:
        pids = tmp_path / "pids"

        def fences() -> str:
            """Whoever leads now: on a machine that stalls it may be another one than a moment ago."""
            said = {name: node.document(say) for name, node in nodes.items()}
            known = pids.exists() and "\n" in pids.read_text()
            its = (name for name, state in said.items() if state and "fence command" in (state["waits_for"] or ""))
            return next(its, "") if known else ""

        leader = wait_until(fences, "a leader that fences", WITHIN_S)
        others = [node.process for name, node in nodes.items() if name != leader]
        for process in others:
            process.send_signal(signal.SIGSTOP)
        nodes[leader].until(
            say,
            lambda s: s["role"] != "leader" and s["workload"]["state"] == "stopped",
            "a loss, and nothing that runs",
        )
        wait_until(
            lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "the end of fence commands", WITHIN_S
        )
        for process in others:
            process.send_signal(signal.SIGCONT)
        nodes[leader].until(say, lambda s: s["leader"], "a leader again")
    finally:
        codes = [node.end() for node in nodes.values()]
    assert codes == [0, 0, 0]
    assert not [name for name in names if "the command runs: process" in (tmp_path / f"err-state-{name}").read_text()]
