"""A whole tree stands still over its dead-man, agent and guard included (F29): by signals and by both freezers.

What stands still by SIGSTOP or in cgroup v2 can be killed, and is: the kernel's timer ends it where it stands. What is
frozen by cgroup v1 cannot die before it is thawed. Then the chain of deaths and the command start at the same instant:
what is shown here is how soon it ends, and documents say that no kernel promises more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.canary import Canary
from tests.support.guard_harness import PROMPT_MS, Harness, OpenHarness, boot_ms, is_alive, open_harness, wait_until
from tests.support.safety_checks import safe

pytestmark = pytest.mark.moments(order=80)

__all__ = ["open_harness"]

AHEAD_MS = (800, 1_600, 6_400)
SET_UP_MS = 300
"""To stop or freeze it."""
OVER_MS = 150
"""Between dead-man and hold of the profile `fast`."""
DYING_MS = 60
"""Guard, init and command die one after the other: each may wait for its turn for half of this."""
MODES = ("root", "traced")


@contextlib.contextmanager
def a_group(kind: str) -> Iterator[Path]:
    """A control group of our own in a hierarchy that can freeze."""
    found = None
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, what, options, *_ = line.split()
        if (kind, what) == ("v2", "cgroup2") or (what == "cgroup" and kind == "v1" and "freezer" in options.split(",")):
            found = Path(where)
    if found is None or not os.access(found, os.W_OK) or os.geteuid() != 0:
        pytest.skip(f"no freezer of cgroup {kind} that this user may use")
    group = found / f"primacy-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def standing(open_harness: OpenHarness, mode: str) -> tuple[Harness, int]:
    """A harness with a tree of two whose dead-man is near, and when that is; later if the machine was too slow for
    it.
    """
    for ahead_ms in AHEAD_MS:
        harness = open_harness(mode)
        due_ms = boot_ms() + ahead_ms
        harness.order("escape", "ignore-term", term_at=due_ms, kill_at=due_ms, deadman_at=due_ms)
        wait_until(lambda harness=harness, due_ms=due_ms: len(harness.stamped()) == 2 or boot_ms() > due_ms)
        if boot_ms() < due_ms - SET_UP_MS:
            return harness, due_ms
    raise AssertionError("nothing could be started in time")


def dead_within_the_hold(harness: Harness, stopped_ms: float, due_ms: int) -> None:
    """Nothing of it runs again, on any machine. How soon it is gone is asked of one that lets the dying run."""
    with Canary(DYING_MS) as canary:
        wait_until(lambda: boot_ms() >= due_ms + OVER_MS)
        left = [*harness.commands(), *([harness.guard_pid] if is_alive(harness.guard_pid) else [])]
        wait_until(lambda: not harness.commands() and not is_alive(harness.guard_pid))
    safe(harness.last_ms() <= stopped_ms + 1, "something of it ran again")
    canary.judge(not left, f"{len(left)} processes are left {OVER_MS} ms after the dead-man")


@pytest.mark.parametrize("mode", MODES)
def test_F29_a_tree_that_is_stopped_as_a_whole_dies_where_it_stands(open_harness: OpenHarness, mode: str) -> None:
    harness, due_ms = standing(open_harness, mode)
    harness.signal(signal.SIGSTOP, harness.agent_pid, *harness.processes())
    dead_within_the_hold(harness, boot_ms(), due_ms)


@pytest.mark.parametrize("mode", MODES)
def test_F29_a_tree_in_the_freezer_of_cgroup_v2_dies_where_it_stands(open_harness: OpenHarness, mode: str) -> None:
    with a_group("v2") as group:
        harness, due_ms = standing(open_harness, mode)
        for pid in (harness.agent_pid, *harness.processes()):
            (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text())
        dead_within_the_hold(harness, boot_ms(), due_ms)
        (group / "cgroup.freeze").write_text("0")
        harness.signal(signal.SIGKILL, harness.agent_pid)


@pytest.mark.parametrize("mode", MODES)
def test_F29_a_tree_in_the_freezer_of_cgroup_v1_dies_as_soon_as_it_is_thawed(
    open_harness: OpenHarness, mode: str
) -> None:
    """Outside of the promise: it runs on for a moment, beside whoever took over."""
    with a_group("v1") as group:
        harness, due_ms = standing(open_harness, mode)
        for pid in (harness.agent_pid, *harness.processes()):
            (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_until(lambda: (group / "freezer.state").read_text() == "FROZEN\n")
        wait_until(lambda: boot_ms() >= due_ms + OVER_MS)
        assert len(harness.commands()) == 2, "a frozen process cannot die"
        time.sleep(0.01)
        with Canary(PROMPT_MS / 4) as canary:
            thawed_ms = boot_ms()
            (group / "freezer.state").write_text("THAWED")
            wait_until(lambda: not harness.commands())
        ran_ms = harness.last_ms() - thawed_ms
        canary.judge(ran_ms < PROMPT_MS / 4, f"it ran for {ran_ms:.1f} ms after the thaw")
        harness.signal(signal.SIGKILL, harness.agent_pid)
