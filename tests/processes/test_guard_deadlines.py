"""The guard's deadlines with real processes: TERM, KILL, the kernel's timer, and extensions (G1, Q8, F09, F10)."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest

from tests.support.canary import Canary
from tests.support.guard_harness import (
    ALL,
    BOOT_MS,
    HOLD_MS,
    LONG_MS,
    OWN,
    PROMPT_MS,
    STRONG,
    Deadlines,
    Harness,
    OpenHarness,
    boot_ms,
    cpu_ms_of,
    dead_after,
    dead_in_time,
    open_harness,
    state_of,
    wait_until,
    wait_until_still,
    wakes_of,
    was_told_to_end,
)
from tests.support.safety_checks import safe

pytestmark = [pytest.mark.moments(order=20), pytest.mark.ordinary]

__all__ = ["open_harness"]

CANARY_HEARTBEAT_MS = PROMPT_MS / 2
"""Deadlines are parts of a second apart, and a start comes before the first of them: asked of a machine that lets
processes run in time. That nothing outlives its hold is judged always (`safe`)."""


def gone_in_time(harness: Harness, points: Deadlines) -> None:
    safe(harness.last_ms() <= points.hold_at, f"it lived until {harness.last_ms():.0f}, and its hold ended at {points}")


@pytest.mark.parametrize("mode", ALL)
def test_G1_without_an_extension_TERM_comes_in_time(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    points = harness.start("escape", expect=2, long=False)
    assert harness.hear("exited") == {"is": "exited", "run": 1, "code": None, "signal": signal.SIGTERM}
    assert points.term_at <= boot_ms()
    assert harness.hear("gone") == {"is": "gone", "run": 1, "released": False}
    safe(harness.commands() == [], "something of it lives, although it was said to be gone")
    gone_in_time(harness, points)
    assert harness.last_ms() <= points.kill_at
    safe(harness.release_arrived_ns() is None, "a release without an order, of an agent that lives")
    harness.order(run=2)
    assert harness.hear("failed")["why"] == "no extension came in time"


@pytest.mark.parametrize("mode", ALL)
def test_F09_a_tree_that_ignores_TERM_is_killed_in_time(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    with Canary(PROMPT_MS / 4) as canary:
        points = harness.start("ignore-term", "escape", expect=2, long=False)
        assert harness.hear("exited")["signal"] == signal.SIGKILL
    assert points.kill_at <= boot_ms(), "not before"
    harness.hear("gone")
    safe(harness.commands() == [], "something of it lives, although it was said to be gone")
    gone_in_time(harness, points)
    assert points.term_at < harness.last_ms()
    early_ms = points.kill_at - harness.last_ms()
    canary.judge(early_ms < PROMPT_MS / 2, f"the last stamp {early_ms:.0f} ms before KILL was due")


@pytest.mark.parametrize("mode", STRONG)
def test_F10_a_tree_that_forks_while_it_is_killed(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    points = harness.start("ignore-term", "forking", "hopping", expect=20, long=False)
    dead_in_time(harness, points)


@pytest.mark.parametrize("mode", ["weak"])
def test_F10_weak_a_tree_that_forks_is_hunted_until_nothing_is_left(open_harness: OpenHarness, mode: str) -> None:
    harness = open_harness(mode)
    harness.start("ignore-term", "forking", "hopping", "escape", expect=30)
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    harness.hear("exited")
    harness.hear("gone")
    safe(harness.commands() == [], "something of it lives, although it was said to be gone")
    dead_after(harness)


def test_G1_an_extension_moves_the_deadlines_and_an_earlier_one_does_not(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    first = harness.start(long=False)
    later = Deadlines.after(first.hold_at)
    harness.extend(later)
    harness.extend(first)
    harness.extend(Deadlines.after(0))
    harness.hear("exited")
    assert boot_ms() >= later.term_at
    assert harness.last_ms() >= first.hold_at
    harness.hear("gone")


def holds_extension_counts_by_its_instants(harness: Harness) -> None:
    """The guard sleeps over TERM with the extension in its socket: it goes on, and not a moment longer than said."""
    first = harness.start(long=False, deadman_at=boot_ms() + LONG_MS)
    harness.signal(signal.SIGSTOP, harness.guard_pid)
    later = Deadlines.after(first.term_at)
    harness.extend(later)
    wait_until(lambda: boot_ms() > later.term_at + 50)
    harness.signal(signal.SIGCONT, harness.guard_pid)
    assert harness.hear("exited")["signal"] == signal.SIGTERM, "the KILL of the hold before is past, and does not count"
    assert first.kill_at < harness.last_ms() <= later.kill_at
    harness.hear("gone")


def test_G1_an_extension_counts_by_its_instants_however_late_it_is_read(open_harness: OpenHarness) -> None:
    holds_extension_counts_by_its_instants(open_harness(OWN))


def holds_through_the_pipe(harness: Harness) -> None:
    """What came through the pipe while the guard slept keeps the command beyond all that the guard had read before."""
    first = harness.order(s_ms=boot_ms() + 2 * BOOT_MS)
    harness.hear("running")
    wait_until_still(harness.guard_pid)
    harness.extend(Deadlines.after(boot_ms() + LONG_MS))
    harness.extend(first)
    wait_until(lambda: boot_ms() > first.hold_at)
    assert len(harness.commands()) == 1
    before = harness.last_ms()
    wait_until(lambda: harness.last_ms() > before)


@pytest.mark.parametrize("mode", ["user", "capless"])
def test_G1_extensions_through_the_pipe_are_read_in_time(open_harness: OpenHarness, mode: str) -> None:
    holds_through_the_pipe(open_harness(mode))


def test_an_extension_does_not_wake_the_guard(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    points = harness.start()
    wakes = wait_until_still(harness.guard_pid)
    for more_ms in range(500):
        harness.extend(Deadlines.after(points.term_at + more_ms))
    time.sleep(0.1)
    assert wakes_of(harness.guard_pid) == wakes
    harness.extend_by_packet(points)
    wait_until(lambda: wakes_of(harness.guard_pid) > wakes)
    assert harness.commands()


def test_G1_a_full_pipe_is_read_to_its_end_and_a_packet_counts_beside_it(open_harness: OpenHarness) -> None:
    """The guard sleeps until the pipe is full; what is said by packet then, and what was said last, both count."""
    harness = open_harness(OWN)
    first = harness.order(s_ms=boot_ms() + BOOT_MS, deadman_at=boot_ms() + LONG_MS)
    harness.hear("running")
    harness.signal(signal.SIGSTOP, harness.guard_pid)
    with contextlib.suppress(BlockingIOError):
        while True:
            harness.extend(first)
    later = Deadlines.after(boot_ms() + LONG_MS)
    harness.extend_by_packet(later)
    wait_until(lambda: boot_ms() > first.kill_at)
    harness.signal(signal.SIGCONT, harness.guard_pid)
    before = harness.last_ms()
    wait_until(lambda: harness.last_ms() > max(before, first.hold_at))
    harness.extend(later)  # there is room again
    assert harness.commands()


def test_Q8_what_lies_in_the_pipe_of_an_ended_hold_reopens_nothing(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    points = harness.start("block-term", long=False)
    (command,) = harness.commands()
    wait_until(lambda: was_told_to_end(command))
    later = Deadlines.after(boot_ms() + LONG_MS)
    harness.extend(later)
    harness.say("nonsense")  # wakes it
    harness.hear("error", "exited")
    harness.extend(later)
    wait_until(lambda: not harness.commands())
    gone_in_time(harness, points)


@pytest.mark.parametrize("mode", ["weak"])
def test_weak_orphans_that_end_are_reaped_while_extensions_come(open_harness: OpenHarness, mode: str) -> None:
    """What the command leaves behind comes to the guard, which is woken by its timer only."""
    harness = open_harness(mode)
    points = harness.order("escape", s_ms=boot_ms() + 3 * BOOT_MS)
    harness.hear("running")
    wait_until(lambda: len(harness.stamped()) == 2)
    (orphan,) = [pid for pid in harness.commands() if pid != harness.news[-1]["pid"]]
    wait_until_still(harness.guard_pid)
    harness.extend(Deadlines.after(points.hold_at + LONG_MS))
    harness.signal(signal.SIGKILL, orphan)

    wait_until(lambda: state_of(orphan) == "", within_s=30)
    assert len(harness.commands()) == 1


SLEEPS_AFTER_ITS_POLL = """
class Late:
    real, naps = select.poll, 1

    def __init__(self):
        self.inner = Late.real()
        self.register = self.inner.register

    def poll(self):
        while self_guard.run is None or self_guard.run.phase != "running" or not Late.naps:
            found = self.inner.poll()
            if found:
                return found
        Late.naps = 0
        while tree.now_ms() <= self_guard.kill_at:
            pass
        return []

class Guard(Guard):
    def __init__(self, agent):
        global self_guard
        self_guard = self
        super().__init__(agent)

select.poll = Late
"""
"""A guard that is not scheduled between what its poll found and what it does about it, until its KILL point."""


def test_G1_an_extension_counts_also_if_the_guard_slept_after_it_had_polled(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN, mutant={"guard.py": SLEEPS_AFTER_ITS_POLL})
    first = harness.start(long=False, deadman_at=boot_ms() + LONG_MS)
    later = Deadlines.after(first.term_at)
    harness.extend(later)
    harness.hear("exited")
    assert later.term_at <= boot_ms()
    assert first.kill_at < harness.last_ms() <= later.kill_at
    harness.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_a_guard_that_waits_takes_no_time(open_harness: OpenHarness, mode: str) -> None:
    """Beside a command that runs, and beside one that was asked to end and does not."""
    harness = open_harness(mode)
    harness.start("ignore-term")
    cpu_ms = cpu_ms_of(harness.guard_pid)
    time.sleep(0.3)
    harness.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    time.sleep(0.3)
    assert cpu_ms_of(harness.guard_pid) - cpu_ms <= 50


def test_Q8_no_extension_reopens_a_hold_that_ran_out(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    points = harness.start("block-term", long=False)
    (command,) = harness.commands()
    wait_until(lambda: was_told_to_end(command))
    harness.extend(Deadlines.after(boot_ms() + LONG_MS))
    harness.hear("exited")
    assert points.kill_at <= boot_ms()
    harness.hear("gone")
    gone_in_time(harness, points)


def test_a_start_whose_hold_has_run_out_is_refused(open_harness: OpenHarness) -> None:
    harness = open_harness(OWN)
    harness.order(s_ms=boot_ms() - HOLD_MS)
    assert harness.hear("failed")["why"] == "the hold has already run out"
    harness.start()
