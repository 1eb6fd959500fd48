"""Real clusters with a rule taken out: the stamps must show the overlap, the counters the replay.

The guard's own mutants are in `test_guard_mutants.py`. Here whole agents run with a worse guard, or with a worse
transport, to show that the cases of `test_faults_process.py` and `test_faults_calm.py` would notice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import crowd as crowds
from tests import stamp
from tests.crowd import Crowd, crowd_in
from tests.guard_desk import mutate
from tests.test_faults_calm import replay

from primacy.watchdog.containment import GUARD


def worse_guard(folder: Path, file: str, text: str) -> str:
    """A copy of the guard with this definition behind its own, and the words that make an agent use it."""
    folder.mkdir()
    for source in (GUARD, GUARD.with_name("guard_tree.py")):
        shutil.copy(source, folder)
    mutate(folder / file, text)
    return (
        "import pathlib, sys; from primacy.watchdog import containment\n"
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


def overlaps_of(crowd: Crowd, harm: Callable[[crowds.Node], object]) -> list[stamp.Violation]:
    """As the cases of `test_faults_process.py` look for them."""
    crowd.is_judged = False
    crowd.settle("ignore-term")
    old = crowd.acting()
    harm(crowd.nodes[old.node])
    crowd.acting(old.token)
    found: list[stamp.Violation] = crowd.until(lambda: stamp.violations(crowd.lives()), "the overlap")
    return found


@pytest.mark.parametrize("name", OVERLAPPING)
def test_mutant_overlaps_and_is_seen(tmp_path: Path, name: str) -> None:
    file, text, harm = OVERLAPPING[name]
    with crowd_in(tmp_path, plant=worse_guard(tmp_path / "guard", file, text)) as crowd:
        found = overlaps_of(crowd, harm)
        assert found[0].what == stamp.TWO_AT_ONCE
        assert found[0].old.token < found[0].new.token


def test_mutant_without_a_replay_window_is_seen(tmp_path: Path) -> None:
    """What was recorded is heard again, and counted as nothing: `test_F55_A03` demands that all of it is counted."""
    plant = "import sys; from primacy.transport.seal import Windows\nWindows.is_new = lambda *_: True\n"
    with crowd_in(tmp_path, switched=True, plant=plant) as crowd:
        crowd.settle()
        crowd.until(lambda: crowd.nodes["b"].document()["counters"].get("received", 0) > 20, "some talk")
        for thrown, counted in replay(crowd, 1, within_s=0.3).values():
            assert thrown > 0
            assert counted < thrown
