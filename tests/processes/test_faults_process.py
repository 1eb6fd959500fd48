"""Faults of processes in a real cluster (F01-F10, F12): whatever is killed, stopped or hangs, one command at a time.

Safety, in the profile `lab`, judged from the stamps, and never repeated. Every case is struck at the node that acts;
afterwards another token's command runs. The functions `case_...` are what `make proof PART=run` counts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import real_nodes as crowds
from tests.support import stamp
from tests.support.guard_harness import NOBODY, status_of
from tests.support.real_nodes import LEAVING, Crowd, burning, crowd_in
from tests.support.safety_checks import safe
from tests.support.silence import outwaits_the_hold

pytestmark = [pytest.mark.beside(order=15), pytest.mark.ordinary]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    with crowd_in(tmp_path_factory.mktemp("crowd"), plant=crowds.HANG) as made:
        yield made


def case_whole_node_killed(crowd: Crowd) -> None:
    crowd.settle(*LEAVING)
    done = outwaits_the_hold(crowd, crowds.kill_all)
    crowd.elsewhere(done.struck.name)
    crowd.one_now()


def case_agent_killed(crowd: Crowd) -> None:
    """Its guard ends the tree at once and releases; started again beside what is dying, it starts nothing."""
    crowd.settle(*LEAVING, "ignore-term", "heavy")

    def kill_and_start(node: crowds.Node) -> None:
        node.process.kill()
        crowd.start(node.name)

    done = crowd.strike(kill_and_start)
    ended_ns = max(one.last_ns for one in crowd.stamped() if one.token == done.old.token)
    safe(ended_ns < done.new.first_ns, "the old tree runs on beside the next")
    crowd.one_now()


def case_child_killed(crowd: Crowd) -> None:
    """Started again on the same node, under the same token, as the next run; nobody elects."""
    crowd.settle(*LEAVING)
    old = crowd.acting()
    command = crowd.until(lambda: the_command(crowd), "one command")
    crowds.tell_all(signal.SIGKILL, [command])  # it may have ended by itself: then there is another leader
    crowd.until(lambda: any((one.token, one.run) > (old.token, old.run) for one in crowd.living()), "the next run")
    new = crowd.one_now()
    assert new.token > old.token or (new.node, new.run) == (old.node, old.run + 1)


def the_command(crowd: Crowd) -> int:
    """The one that leads its session and has not left; 0 if there is not exactly one just now."""
    with contextlib.suppress(ProcessLookupError, KeyError):
        found = [pid for pid in crowd.commands() if os.getsid(pid) == pid and not is_escaped(pid, crowd)]
        return found[0] if len(found) == 1 else 0
    return 0


def is_escaped(pid: int, crowd: Crowd) -> bool:
    """Its number, as it sees it, is that of one who left."""
    own = int(status_of(pid)["NSpid"].split()[-1])
    return own in {one.pid for one in crowd.living() if one.kind == stamp.ESCAPED}


def case_guard_killed(crowd: Crowd) -> None:
    """The kernel ends the tree; the term is closed, and whoever leads next has another token."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.strike(crowds.kill_guard)
    crowd.one_now()


def case_agent_stopped(crowd: Crowd) -> None:
    crowd.settle(*LEAVING)
    outwaits_the_hold(crowd, crowds.stop_agent)
    crowd.mend()
    time.sleep(crowd.timing.hold_ms / 1_000)  # it would start again now, if it did not know better
    crowd.one_now()


def case_agent_and_guard_stopped(crowd: Crowd) -> None:
    """Nobody of ours is awake; the kernel's timer ends the tree, with what left the command by fork and session."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.until(lambda: len({one.kind for one in crowd.living()}) == 1 + len(LEAVING), "the command, and who left it")
    done = crowd.strike(crowds.stop_agent_and_guards)
    held = [one for one in crowd.stamped() if one.token == done.old.token]
    assert {one.kind for one in held} == {stamp.COMMAND, *([stamp.ESCAPED] if LEAVING else [])}
    crowd.mend()
    time.sleep(crowd.timing.hold_ms / 1_000)
    crowd.one_now()


def case_guard_stopped_first(crowd: Crowd) -> None:
    """The other way round, so that the agent still extends a hold that its guard does not hear of."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.strike(crowds.stop_guards_and_agent)
    crowd.mend()
    crowd.one_now()


def case_guard_stopped_alone(crowd: Crowd) -> None:
    """It reads no extension, so that the last one it read ends it; the agent finds it gone and closes the term."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.strike(lambda node: crowds.tell_all(signal.SIGSTOP, node.guards))
    crowd.mend()
    crowd.one_now()


def case_guard_stopped_and_agent_replaced(crowd: Crowd) -> None:
    """The agent is killed and started anew while its old guard is stopped and the command lives: it must wait."""
    crowd.settle(*LEAVING, "ignore-term")

    def stop_and_replace(node: crowds.Node) -> None:
        crowds.tell_all(signal.SIGSTOP, node.guards)
        node.process.kill()
        node.wait()
        crowd.start(node.name)

    crowd.strike(stop_and_replace)
    crowd.mend()
    crowd.one_now()


def case_loop_hangs(crowd: Crowd) -> None:
    """One call into C with the interpreter's lock held, for longer than the hold: no thread of the agent could act."""
    crowd.settle(*LEAVING, "ignore-term")
    outwaits_the_hold(crowd, crowds.hang)
    crowd.one_now()


def case_term_ignored(crowd: Crowd) -> None:
    """KILL follows TERM inside the hold."""
    crowd.settle("ignore-term")
    done = crowd.strike(crowds.stop_agent)
    last_ns = max(one.last_ns for one in crowd.stamped() if one.token == done.old.token)
    safe(last_ns < done.new.first_ns, "the old tree runs on beside the next")
    crowd.mend()
    crowd.one_now()


def case_forks_while_killed(crowd: Crowd) -> None:
    """A tree that grows and one that is never where it was, swept while they fork."""
    crowd.settle("ignore-term", "forking", "hopping", "escape")
    try:
        crowd.until(crowd.has_grown, "a tree")
        crowd.strike(crowds.kill_agent)
        crowd.one_at_a_time()
    finally:
        crowd.ways()
    crowd.until(lambda: crowd.acting().node, "one that runs")


def case_busy(crowd: Crowd) -> None:
    """Both cores are given to others: late, perhaps, and never twice."""
    crowd.settle(*LEAVING, "ignore-term")
    with burning(2 * (os.cpu_count() or 1)):
        for harm in (crowds.kill_agent, crowds.stop_agent, crowds.kill_all):
            crowd.strike(harm)
            crowd.mend()
            crowd.start_missing()
    crowd.agree()
    crowd.one_now()


CASES: dict[str, Callable[[Crowd], None]] = {
    "F01 agent, guard and command killed together": case_whole_node_killed,
    "F02 agent killed": case_agent_killed,
    "F02 guard killed": case_guard_killed,
    "F03 command killed": case_child_killed,
    "F04 agent stopped": case_agent_stopped,
    "F07 agent and guard stopped": case_agent_and_guard_stopped,
    "F07 guard and agent stopped": case_guard_stopped_first,
    "F07 guard stopped": case_guard_stopped_alone,
    "F07 guard stopped, agent killed and started": case_guard_stopped_and_agent_replaced,
    "F08 loop hangs": case_loop_hangs,
    "F09 TERM ignored": case_term_ignored,
    "F12 busy machine": case_busy,
    "F10 tree that forks": case_forks_while_killed,
}
"""What `make proof PART=run` repeats. The tree that forks comes last: it fills the file of stamps."""


def test_F01_a_node_that_is_lost_as_a_whole(crowd: Crowd) -> None:
    case_whole_node_killed(crowd)


def test_F02_an_agent_killed_and_started_again_at_once(crowd: Crowd) -> None:
    case_agent_killed(crowd)


def test_F02_a_guard_killed_alone(crowd: Crowd) -> None:
    case_guard_killed(crowd)


def test_F03_a_command_killed_keeps_node_and_token(crowd: Crowd) -> None:
    case_child_killed(crowd)


def test_F04_an_agent_stopped_longer_than_the_hold(crowd: Crowd) -> None:
    case_agent_stopped(crowd)


def test_F07_agent_and_guard_stopped_while_the_command_has_left_its_session(crowd: Crowd) -> None:
    case_agent_and_guard_stopped(crowd)


def test_F07_the_guard_stopped_before_the_agent(crowd: Crowd) -> None:
    case_guard_stopped_first(crowd)


def test_F07_the_guard_stopped_alone(crowd: Crowd) -> None:
    case_guard_stopped_alone(crowd)


def test_F07_the_guard_stopped_and_its_agent_replaced(crowd: Crowd) -> None:
    case_guard_stopped_and_agent_replaced(crowd)


def test_F08_a_loop_that_hangs_in_one_call(crowd: Crowd) -> None:
    case_loop_hangs(crowd)


def test_F09_a_command_that_ignores_TERM(crowd: Crowd) -> None:
    case_term_ignored(crowd)


def test_F12_a_busy_machine(crowd: Crowd) -> None:
    case_busy(crowd)


def test_F10_a_tree_that_forks_during_the_sweep(crowd: Crowd) -> None:
    """The last one of this crowd, for it fills the file of stamps."""
    case_forks_while_killed(crowd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
def test_F10_user_and_the_parent_death_signal() -> None:
    """A change of user takes the parent-death signal away, and the guard asks for it afterwards: it must be there.

    In a folder of its own: every start of pytest closes its own root to other users.
    """
    with (
        tempfile.TemporaryDirectory(prefix="crowd-") as folder,
        crowd_in(Path(folder), options=("--user", "nobody", "--cwd", "/")) as crowd,
    ):
        Path(folder).chmod(0o755)
        for harm in (crowds.kill_guard, crowds.stop_agent_and_guards):
            crowd.settle()
            users = crowd.until(lambda: status_of(the_command(crowd)).get("Uid"), "one command")
            assert users.split() == [str(NOBODY)] * 4
            crowd.strike(harm)
            crowd.mend()
            crowd.one_now()
