"""Faults of processes on a lease (F01-F10 on a store): whatever is killed, stopped or hangs, one command at a time.

The same blows as in `test_faults_process.py`, with nodes that meet in a database only. Safety is judged from the
stamps, and never repeated.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primacy.store.releaser import TRY_S
from tests.support import real_nodes as crowds
from tests.support import stamp
from tests.support.canary import Canary
from tests.support.holder_harness import BETWEEN_STOPS_S
from tests.support.real_nodes import LEAVING
from tests.support.real_nodes_on_lease import LeaseCrowd, lease_crowd
from tests.support.safety_checks import safe
from tests.support.servers import stop_whole
from tests.support.silence import heartbeats_watched

pytestmark = pytest.mark.beside(order=10)

KINDS = ("sqlite", "postgresql")
PROFILE = "fast"
"""Two cores that are shared with everything else may take the 100 ms that `lab` leaves to a statement, and to a guard
that is to have a lease released."""


@pytest.fixture(scope="module", params=KINDS)
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeaseCrowd]:
    with lease_crowd(request.param, tmp_path_factory.mktemp("crowd"), profile=PROFILE, plant=crowds.HANG) as made:
        yield made


def waited_out(crowd: LeaseCrowd, harm: Callable[[crowds.Node], object]) -> crowds.Handover:
    """Nobody was told anything: the whole hold had to pass, but for the age of the last renewal.

    That is younger than TERM, or nothing would have been held. On a machine that is late the struck one may have given
    the lease back already, because it could not renew it. How long it takes beyond is for `bench/lease.py`.
    """
    with contextlib.ExitStack() as watched:
        canary = watched.enter_context(heartbeats_watched(crowd.timing))

        def struck(node: crowds.Node) -> None:
            harm(node)
            watched.close()

        done = crowd.strike(struck)
    least_ms = crowd.timing.hold_ms - crowd.timing.term_at_ms
    canary.judge(done.took_ms > least_ms, f"{done.took_ms:.0f} ms without a command, {least_ms} at least")
    return done


def is_released(crowd: LeaseCrowd) -> bool:
    """Waits for it, for as long as the releaser tries, and some more."""
    last_s = time.monotonic() + 2 * TRY_S
    while not crowd.row().released:
        if time.monotonic() > last_s:
            return False
        time.sleep(0.02)
    return True


def between_writes(crowd: LeaseCrowd, stop: Callable[[crowds.Node], None]) -> Callable[[crowds.Node], None]:
    """SQLite: a process that is stopped in the middle of a write keeps the file for as long as it stands (leases.md).

    That nobody leads then is true, and no news: here it is stopped when it does not write.
    """

    def harm(node: crowds.Node) -> None:
        stop(node)
        stop_whole(node.pid)
        while crowd.is_locked():
            crowds.tell_all(signal.SIGCONT, [node.pid, *node.guards])
            time.sleep(BETWEEN_STOPS_S)
            stop(node)
            stop_whole(node.pid)

    return harm


def test_F02_an_agent_killed_and_started_again_at_once(crowd: LeaseCrowd) -> None:
    """Its guard ends the tree, and has the lease released; started beside what is dying, it starts nothing."""
    crowd.settle(*LEAVING, "ignore-term", "heavy")

    def kill_and_start(node: crowds.Node) -> None:
        node.process.kill()
        crowd.start(node.name)

    done = crowd.strike(kill_and_start)
    ended_ns = max(one.last_ns for one in crowd.stamped() if one.token == done.old.token)
    safe(ended_ns < done.new.first_ns, "the old tree runs on beside the next")
    crowd.one_now()


def test_G5_the_guard_of_a_killed_agent_has_the_lease_released(crowd: LeaseCrowd) -> None:
    """Nobody else is there to do so: the row is released although every agent is dead.

    The guard needs its time of the processor before the dead-man: on a machine that does not give it, nobody releases,
    which is safe, and the others wait for the hold. On SQLite, an agent that is killed in the middle of a write leaves
    a row that does not vouch, and that nobody may release (`store/note.py`): here it is killed when it does not write.
    """
    holder = crowd.settle(*LEAVING)
    for name in crowd.names:
        if name != holder.name:
            crowd.nodes[name].process.kill()
            crowd.nodes[name].wait()

    def held_by_the_one_that_is_left() -> stamp.Stamp | None:
        """Another may have held it in the moment in which it was killed."""
        found, row = crowd.acting(), crowd.row()
        return found if (row.token, found.node) == (found.token, holder.name) else None

    old = crowd.until(held_by_the_one_that_is_left, "the lease, held by the one that is left")
    token = old.token
    with Canary(crowd.timing.heartbeat_ms) as canary:
        between_writes(crowd, crowds.stop_agent)(crowd.nodes[old.node])
        crowd.nodes[old.node].process.kill()
        came = is_released(crowd)
    safe(not came or not crowd.commands(), "the lease is free, and the command lives")
    crowd.until(crowd.nobody, "the end of the command")
    canary.judge(came, "the guard had the lease released")
    row = crowd.row()
    assert not came or (row.token, row.successor) == (token, ""), (
        "its work ran, so that the release covers all before it"
    )


def test_F01_a_node_that_is_lost_as_a_whole(crowd: LeaseCrowd) -> None:
    crowd.settle(*LEAVING)
    done = waited_out(crowd, crowds.kill_all)
    crowd.elsewhere(done.struck.name)
    crowd.one_now()


def test_F02_a_guard_killed_alone(crowd: LeaseCrowd) -> None:
    crowd.settle(*LEAVING, "ignore-term")
    crowd.strike(crowds.kill_guard)
    crowd.one_now()


def test_F04_an_agent_stopped(crowd: LeaseCrowd) -> None:
    """Its guard ends the tree in time; the agent is not dead, so that nothing is released."""
    crowd.settle(*LEAVING)
    waited_out(crowd, between_writes(crowd, crowds.stop_agent))
    crowd.mend()
    time.sleep(crowd.timing.hold_ms / 1_000)  # it would start again now, if it did not know better
    crowd.one_now()


def test_F07_agent_and_guard_stopped(crowd: LeaseCrowd) -> None:
    """Nobody of ours is awake; the kernel's timer ends the tree, with what left the command by fork and session."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.until(lambda: len({one.kind for one in crowd.living()}) == 1 + len(LEAVING), "the command, and who left it")
    done = waited_out(crowd, between_writes(crowd, crowds.stop_agent_and_guards))
    held = [one for one in crowd.stamped() if one.token == done.old.token]
    assert {one.kind for one in held} == {stamp.COMMAND, *([stamp.ESCAPED] if LEAVING else [])}
    crowd.mend()
    time.sleep(crowd.timing.hold_ms / 1_000)
    crowd.one_now()


def test_F07_a_guard_stopped_and_its_agent_replaced(crowd: LeaseCrowd) -> None:
    """The run lock is held by what the stopped guard still has: the new agent of this node must not start beside it."""
    crowd.settle(*LEAVING, "ignore-term")

    stopped: list[int] = []

    def stop_and_replace(node: crowds.Node) -> None:
        stopped.extend(node.guards)
        crowds.tell_all(signal.SIGSTOP, stopped)
        node.process.kill()
        node.wait()
        crowd.start(node.name)

    try:
        crowd.strike(stop_and_replace)
    finally:
        crowds.tell_all(signal.SIGCONT, stopped)  # releasers among them, which then find that nobody wants them
    crowd.mend()
    crowd.one_now()


def test_F08_a_loop_that_hangs(crowd: LeaseCrowd) -> None:
    """The renewing thread hangs with it: the interpreter's lock is held."""
    crowd.settle(*LEAVING, "ignore-term")
    waited_out(crowd, crowds.hang)
    crowd.one_now()


def test_F10_a_tree_that_forks_while_it_is_killed(crowd: LeaseCrowd) -> None:
    crowd.settle("ignore-term", "forking", "hopping", "escape")
    try:
        crowd.until(crowd.has_grown, "a tree")
        crowd.strike(crowds.kill_agent)
        crowd.one_at_a_time()
    finally:
        crowd.ways()
    crowd.until(lambda: crowd.acting().node, "one that runs")


def test_T1_tokens_only_grow(crowd: LeaseCrowd) -> None:
    """After all that: as many tokens as leaderships that worked, in the order of their starts."""
    firsts = {}
    for one in crowd.stamped():
        firsts.setdefault(one.token, one.first_ns)
    assert len(firsts) >= 5
    assert [token for token, _ in sorted(firsts.items(), key=lambda item: item[1])] == sorted(firsts)


def test_L4_alone_on_its_machine_a_node_that_was_lost_comes_back_at_once(tmp_path: Path) -> None:
    """Agent, guard and command are killed, and nobody releases: the free run lock proves that all of it is dead."""
    with lease_crowd("sqlite", tmp_path, "a", "lan") as crowd:
        crowd.start()
        old = crowd.acting()
        between_writes(crowd, crowds.stop_agent)(crowd.nodes["a"])  # a row that was half written would not vouch
        crowds.kill_all(crowd.nodes["a"])
        crowd.nodes["a"].wait()
        assert not crowd.row().released
        crowd.start("a")
        crowd.acting(old.token)
        told = crowd.nodes["a"].text
        assert "knows by the free run lock that the work of a, which stands in the row, is gone" in told
        assert "no longer hears a" not in told, "no hold was waited for"
        a = crowd.nodes["a"]
        crowd.until(lambda: a.document()["token"] == crowd.one_now().token, "a to say the token that its command has")


def test_L3_a_node_with_another_folder_waits(tmp_path: Path) -> None:
    """The same name on the same machine, but not under the same run lock: nothing proves the old holder dead."""
    with lease_crowd("sqlite", tmp_path, "a", "fast") as crowd:
        crowd.start()
        old = crowd.acting()
        crowds.kill_all(crowd.nodes["a"])
        killed_ns = stamp.now_ns()
        crowd.start("a", state="state-other")
        new = crowd.acting(old.token)
        assert (new.first_ns - killed_ns) / 1e6 > crowd.timing.hold_ms
        crowd.one_at_a_time()
