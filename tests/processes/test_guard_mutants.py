"""Guards with a rule taken out: what is demanded in `test_guard.py` and `test_guard_deadlines.py` must fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes.test_guard import (
    holds_lock_until_the_last_is_gone,
    holds_spare_releases_nothing,
    holds_when_agent_is_killed,
    holds_when_both_are_stopped,
    holds_when_guard_is_killed,
)
from tests.processes.test_guard_deadlines import holds_extension_counts_by_its_instants, holds_through_the_pipe
from tests.support.guard_harness import (
    OWN,
    TERM_MS,
    Harness,
    OpenHarness,
    open_harness,
)
from tests.support.safety_checks import SafetyViolation

pytestmark = [pytest.mark.moments(order=40), pytest.mark.ordinary]

__all__ = ["open_harness"]

RELATIVE = f"""
absolute = Guard.extend

def extend(self, term_at, kill_at, deadman_at, starting=False):
    late = 0 if starting else tree.now_ms() + {TERM_MS} - term_at
    absolute(self, term_at + late, kill_at + late, deadman_at + late, starting)

Guard.extend = extend
"""
"""Counted from when it is read, as if every renewal had left just then."""
NOT_AT_TERM = """
before = Guard.hear_extensions

def hear_extensions(self, now):
    if now < self.term_at:
        before(self, now)
        self.look_at = tree.NEVER_MS

Guard.hear_extensions = hear_extensions
"""
"""Wakes at TERM only, and looks at the clock instead of the pipe."""
LOOKS_TOO_LATE = """
Guard.next_ms = lambda self: self.deadman_at + 20 if self.deadman_at else tree.NEVER_MS
"""
LAST_COUNTS = """
def hear_extensions(self, now):
    self.look_at = tree.NEVER_MS
    if self.deadman_at:
        with contextlib.suppress(BlockingIOError):
            _, *points = [*EXTENSION.iter_unpack(os.read(self.extensions, 40 * EXTENSION.size))][-1]
            self.term_at, self.kill_at, self.deadman_at = points
            tree.arm_deadman(self.deadman, self.deadman_at)

Guard.hear_extensions = hear_extensions
"""
MUTANTS: dict[str, tuple[Callable[[Harness], None], dict[str, str]]] = {
    "the timer is never armed": (
        holds_when_both_are_stopped,
        {"guard_tree.py": "def arm_deadman(timer, at_ms):\n    pass"},
    ),
    "the parent-death signal is omitted": (
        holds_when_guard_is_killed,
        {"guard_tree.py": "def bind_to_parent():\n    pass"},
    ),
    "the release leaves before the tree is gone": (
        holds_when_agent_is_killed,
        {"guard.py": "def may_release(guard):\n    return guard.agent_dead or guard.release_ordered"},
    ),
    "a spare guard releases": (
        holds_spare_releases_nothing,
        {"guard.py": "def may_release(guard):\n    return guard.run is None"},
    ),
    "deadlines in the pipe are durations": (
        holds_extension_counts_by_its_instants,
        {"guard.py": RELATIVE},
    ),
    "the pipe is not read before a deadline is judged": (
        holds_through_the_pipe,
        {"guard.py": NOT_AT_TERM},
    ),
    "the pipe is looked at when the kernel's timer has gone off": (
        holds_through_the_pipe,
        {"guard.py": LOOKS_TOO_LATE},
    ),
    "an earlier instant in the pipe takes the place of a later one": (
        holds_through_the_pipe,
        {"guard.py": LAST_COUNTS},
    ),
    "nobody keeps the lock when guard and init die": (
        holds_lock_until_the_last_is_gone,
        {"guard_tree.py": "def keep_lock(lock, root_fd):\n    return os.fork() or os._exit(0)"},
    ),
}


ATTEMPTS = 5
"""Some are seen for a moment only, in which the test may not have the processor."""


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(open_harness: OpenHarness, name: str) -> None:
    holds, mutant = MUTANTS[name]
    for _ in range(ATTEMPTS):
        try:
            holds(open_harness(OWN, mutant=mutant))
        except (AssertionError, SafetyViolation):
            return
    raise AssertionError(f"{name}: not caught in {ATTEMPTS} attempts")
