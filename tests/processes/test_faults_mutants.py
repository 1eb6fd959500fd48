"""Real clusters with a rule taken out: the stamps must show the overlap or the double, the counters the replay.

The guard's own mutants are in `test_guard_mutants.py`. Here whole agents run with a worse guard, a worse transport or a
worse memory, to show that the cases of `test_faults_process.py`, `test_faults_calm.py`, `test_faults_members.py` and
`test_members_faults.py` would notice.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from primacy.errors import PrimacyError
from primacy.supervise.containment import GUARD
from tests.processes.test_faults_calm import replay
from tests.support import real_nodes as crowds
from tests.support import stamp
from tests.support.guard_harness import mutate
from tests.support.real_nodes import Crowd, crowd_in

pytestmark = pytest.mark.moments(order=200)


def worse_guard(folder: Path, file: str, text: str) -> str:
    """A copy of the guard with this definition behind its own, and the words that make an agent use it."""
    folder.mkdir()
    for source in GUARD.parent.glob("guard*.py"):
        shutil.copy(source, folder)
    mutate(folder / file, text)
    return (
        "import pathlib, sys; from primacy.supervise import containment\n"
        f"containment.GUARD = pathlib.Path({str(folder / GUARD.name)!r})\n"
    )


OVERLAPPING: dict[str, tuple[str, str, Callable[[crowds.Node], object]]] = {
    "the timer is never armed": (
        "guard_tree.py",
        "def arm_deadman(timer, at_ms):\n    pass",
        crowds.stop_agent_and_guards,
    ),
    "the parent-death signal is omitted": (
        "guard_tree.py",
        "def bind_to_parent():\n    pass",
        crowds.kill_guard,
    ),
}


ATTEMPTS = 3
"""On a machine that stalls, another one may lead than the story needs, or in another term."""
SEEN_S = 20.0
"""What overlaps goes on stamping beside the other one, and is seen at once."""


def overlaps_of(crowd: Crowd, harm: Callable[[crowds.Node], object]) -> list[stamp.Violation]:
    """As the cases of `test_faults_process.py` look for them."""
    crowd.is_judged = False

    def look(within_s: float) -> list[stamp.Violation]:
        crowd.settle("ignore-term")
        old = crowd.acting()
        harm(crowd.nodes[old.node])
        crowd.acting(old.token)
        found: list[stamp.Violation] = crowd.until(lambda: stamp.violations(crowd.stamped()), "the overlap", within_s)
        return found

    for _ in range(1, ATTEMPTS):
        with contextlib.suppress(AssertionError):
            return look(SEEN_S)
    return look(crowds.WITHIN_S)


@pytest.mark.parametrize("name", OVERLAPPING)
def test_mutant_overlaps_and_is_seen(tmp_path: Path, name: str) -> None:
    file, text, harm = OVERLAPPING[name]
    with crowd_in(tmp_path, plant=worse_guard(tmp_path / "guard", file, text)) as crowd:
        found = overlaps_of(crowd, harm)
        assert found[0].what == stamp.TWO_AT_ONCE
        assert found[0].old.token < found[0].new.token


UNPROVED = """
import sys
from primacy.election.raft.change import Changing
Changing.is_proved = lambda self, leader: True
Changing.needs_joint = lambda self, register, goal: False
"""
"""R5 and R6: a leader changes the voters in one step, and asks nobody."""
FORGETFUL = """
import sys
from primacy.election.model import Ballot
from primacy.election.raft.recovery import Recovery

def remembered(self, wall_ms):
    heard = [r for r in self._reports() if r.memory and self.seat.membership.is_config(r.origin.config)]
    if not heard:
        return None
    told = (heard[0].origin.base, min(r.term for r in heard), "", heard[0].hold_max_ms, 0, self._incarnation(wall_ms))
    return Ballot(*told, (self.own,), register=self.newest())

Recovery.remembered = remembered
"""
"""M2: a node without memory asks one other and votes again, in terms in which it may have voted."""


def test_mutant_whose_members_change_without_a_proof_overlaps_and_is_seen(tmp_path: Path) -> None:
    for attempt in range(1, ATTEMPTS):
        with contextlib.suppress(AssertionError, PrimacyError):
            return changes_alone(tmp_path / str(attempt), SEEN_S)
    return changes_alone(tmp_path / "last", crowds.WITHIN_S)


def changes_alone(folder: Path, within_s: float) -> None:
    """R5, R6: a leader that is cut off is told that it is alone, and believes it, while the other two go on."""
    folder.mkdir()
    with crowd_in(folder, profile="fast", switched=True, plant=UNPROVED) as crowd:
        crowd.is_judged = False
        leader = crowd.settle()
        alone = {"node": leader.name, "addr": f"127.0.0.1:{crowd.listed[leader.name]}"}
        crowd.apart(leader.name, "".join(name for name in crowd.names if name != leader.name))
        assert leader.ask("/v1/members", {"verb": "apply", "members": [alone]}) is not None
        found: list[stamp.Violation] = crowd.until(lambda: stamp.violations(crowd.stamped()), "the overlap", within_s)
        assert found[0].what == stamp.TWO_AT_ONCE
        assert found[0].old.node == leader.name
        assert found[0].new.node != leader.name


def test_mutant_that_votes_without_its_memory_doubles_a_token_and_is_seen(tmp_path: Path) -> None:
    for attempt in range(1, ATTEMPTS):
        with contextlib.suppress(AssertionError):
            return votes_twice(tmp_path / str(attempt), SEEN_S)
    return votes_twice(tmp_path / "last", crowds.WITHIN_S)


def votes_twice(folder: Path, within_s: float) -> None:
    """M2: a voter lost its ballot and votes once more in the same term: two leaders with one token and one run.

    They do not overlap here, so that a checker that looks at moments alone, or at tokens alone, sees nothing.
    """
    folder.mkdir()
    with crowd_in(folder, switched=True, plant=FORGETFUL) as crowd:
        crowd.is_judged = False
        first = crowd.settle()
        behind, other = (name for name in crowd.names if name != first.name)
        crowd.apart(first.name + other, behind)
        before = crowd.acting()
        crowd.order(first, "/v1/step-down", {})
        elected = crowd.acting(before.token)  # by the two, in a term of which the third knows nothing
        forgets = first.name if elected.node == other else other
        crowd.order(crowd.nodes[forgets], "/v1/pause", {})  # it votes, and does not stand itself
        crowds.kill_all(crowd.nodes[forgets])
        crowd.nodes[forgets].wait()
        crowd.nodes[forgets].ballot.unlink()
        crowd.until(crowd.nobody, "the end of a leader without a majority")
        crowd.apart(elected.node, behind + forgets)
        crowd.start(forgets)
        found: list[stamp.Violation] = crowd.until(lambda: stamp.violations(crowd.stamped()), "the double", within_s)
        assert found[0].what == stamp.ONE_MARK
        assert {found[0].old.node, found[0].new.node} == {elected.node, behind}
        assert found[0].old.mark == found[0].new.mark


def test_mutant_without_a_replay_window_is_seen(tmp_path: Path) -> None:
    """What was recorded is heard again, and counted as nothing: `test_F55_A03` demands that all of it is counted."""
    plant = "import sys; from primacy.transport.seal import Windows\nWindows.is_new = lambda *_: True\n"
    with crowd_in(tmp_path, switched=True, plant=plant) as crowd:
        crowd.settle()
        crowd.until(lambda: crowd.nodes["b"].document()["counters"].get("received", 0) > 20, "some talk")
        for thrown, counted in replay(crowd, 1, within_s=0.3).values():
            assert thrown > 0
            assert counted < thrown
