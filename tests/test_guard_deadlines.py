"""The guard's deadlines with real processes: TERM, KILL, the kernel's timer, and extensions (G1, Q8, F09, F10)."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest
from tests.canary import Canary
from tests.guard_desk import (
    ALL,
    BOOT_MS,
    HOLD_MS,
    LONG_MS,
    OWN,
    PROMPT_MS,
    STRONG,
    Deadlines,
    Desk,
    OpenDesk,
    boot_ms,
    cpu_ms_of,
    dead_after,
    dead_in_time,
    open_desk,
    state_of,
    wait_until,
    wait_until_still,
    wakes_of,
    was_told_to_end,
)
from tests.safety import safe

__all__ = ["open_desk"]

CANARY_BEAT_MS = PROMPT_MS / 2
"""Deadlines are parts of a second apart, and a start comes before the first of them: asked of a machine that lets
processes run in time. That nothing outlives its hold is judged always (`safe`)."""


def gone_in_time(desk: Desk, points: Deadlines) -> None:
    safe(desk.last_ms() <= points.hold_at, f"it lived until {desk.last_ms():.0f}, and its hold ended at {points}")


@pytest.mark.parametrize("mode", ALL)
def test_G1_without_an_extension_TERM_comes_in_time(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    points = desk.start("escape", expect=2, long=False)
    assert desk.hear("exited") == {"is": "exited", "run": 1, "code": None, "signal": signal.SIGTERM}
    assert points.term_at <= boot_ms()
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": False}
    safe(desk.commands() == [], "something of it lives, although it was said to be gone")
    gone_in_time(desk, points)
    assert desk.last_ms() <= points.kill_at
    safe(desk.release_arrived_ns() is None, "a release without an order, of an agent that lives")
    desk.order(run=2)
    assert desk.hear("failed")["why"] == "no extension came in time"


@pytest.mark.parametrize("mode", ALL)
def test_F09_a_tree_that_ignores_TERM_is_killed_in_time(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    with Canary(PROMPT_MS / 4) as canary:
        points = desk.start("ignore-term", "escape", expect=2, long=False)
        assert desk.hear("exited")["signal"] == signal.SIGKILL
    assert points.kill_at <= boot_ms(), "not before"
    desk.hear("gone")
    safe(desk.commands() == [], "something of it lives, although it was said to be gone")
    gone_in_time(desk, points)
    assert points.term_at < desk.last_ms()
    early_ms = points.kill_at - desk.last_ms()
    canary.judge(early_ms < PROMPT_MS / 2, f"the last stamp {early_ms:.0f} ms before KILL was due")


@pytest.mark.parametrize("mode", STRONG)
def test_F10_a_tree_that_forks_while_it_is_killed(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    points = desk.start("ignore-term", "forking", "hopping", expect=20, long=False)
    dead_in_time(desk, points)


@pytest.mark.parametrize("mode", ["weak"])
def test_F10_weak_a_tree_that_forks_is_hunted_until_nothing_is_left(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.start("ignore-term", "forking", "hopping", "escape", expect=30)
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    desk.hear("exited")
    desk.hear("gone")
    safe(desk.commands() == [], "something of it lives, although it was said to be gone")
    dead_after(desk)


def test_G1_an_extension_moves_the_deadlines_and_an_earlier_one_does_not(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    first = desk.start(long=False)
    later = Deadlines.after(first.hold_at)
    desk.extend(later)
    desk.extend(first)
    desk.extend(Deadlines.after(0))
    desk.hear("exited")
    assert boot_ms() >= later.term_at
    assert desk.last_ms() >= first.hold_at
    desk.hear("gone")


def holds_extension_counts_by_its_instants(desk: Desk) -> None:
    """The guard sleeps over TERM with the extension in its socket: it goes on, and not a moment longer than said."""
    first = desk.start(long=False, deadman_at=boot_ms() + LONG_MS)
    desk.signal(signal.SIGSTOP, desk.guard_pid)
    later = Deadlines.after(first.term_at)
    desk.extend(later)
    wait_until(lambda: boot_ms() > later.term_at + 50)
    desk.signal(signal.SIGCONT, desk.guard_pid)
    assert desk.hear("exited")["signal"] == signal.SIGTERM, "the KILL of the hold before is past, and does not count"
    assert first.kill_at < desk.last_ms() <= later.kill_at
    desk.hear("gone")


def test_G1_an_extension_counts_by_its_instants_however_late_it_is_read(open_desk: OpenDesk) -> None:
    holds_extension_counts_by_its_instants(open_desk(OWN))


def holds_through_the_pipe(desk: Desk) -> None:
    """What came through the pipe while the guard slept keeps the command beyond all that the guard had read before."""
    first = desk.order(s_ms=boot_ms() + 2 * BOOT_MS)
    desk.hear("running")
    wait_until_still(desk.guard_pid)
    desk.extend(Deadlines.after(boot_ms() + LONG_MS))
    desk.extend(first)
    wait_until(lambda: boot_ms() > first.hold_at)
    assert len(desk.commands()) == 1
    before = desk.last_ms()
    wait_until(lambda: desk.last_ms() > before)


@pytest.mark.parametrize("mode", ["user", "capless"])
def test_G1_extensions_through_the_pipe_are_read_in_time(open_desk: OpenDesk, mode: str) -> None:
    holds_through_the_pipe(open_desk(mode))


def test_an_extension_does_not_wake_the_guard(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    points = desk.start()
    wakes = wait_until_still(desk.guard_pid)
    for more_ms in range(500):
        desk.extend(Deadlines.after(points.term_at + more_ms))
    time.sleep(0.1)
    assert wakes_of(desk.guard_pid) == wakes
    desk.extend_by_packet(points)
    wait_until(lambda: wakes_of(desk.guard_pid) > wakes)
    assert desk.commands()


def test_G1_a_full_pipe_is_read_to_its_end_and_a_packet_counts_beside_it(open_desk: OpenDesk) -> None:
    """The guard sleeps until the pipe is full; what is said by packet then, and what was said last, both count."""
    desk = open_desk(OWN)
    first = desk.order(s_ms=boot_ms() + BOOT_MS, deadman_at=boot_ms() + LONG_MS)
    desk.hear("running")
    desk.signal(signal.SIGSTOP, desk.guard_pid)
    with contextlib.suppress(BlockingIOError):
        while True:
            desk.extend(first)
    later = Deadlines.after(boot_ms() + LONG_MS)
    desk.extend_by_packet(later)
    wait_until(lambda: boot_ms() > first.kill_at)
    desk.signal(signal.SIGCONT, desk.guard_pid)
    before = desk.last_ms()
    wait_until(lambda: desk.last_ms() > max(before, first.hold_at))
    desk.extend(later)  # there is room again
    assert desk.commands()


def test_Q8_what_lies_in_the_pipe_of_an_ended_hold_reopens_nothing(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    points = desk.start("block-term", long=False)
    (command,) = desk.commands()
    wait_until(lambda: was_told_to_end(command))
    later = Deadlines.after(boot_ms() + LONG_MS)
    desk.extend(later)
    desk.say("nonsense")  # wakes it
    desk.hear("error", "exited")
    desk.extend(later)
    wait_until(lambda: not desk.commands())
    gone_in_time(desk, points)


@pytest.mark.parametrize("mode", ["weak"])
def test_weak_orphans_that_end_are_reaped_while_extensions_come(open_desk: OpenDesk, mode: str) -> None:
    """What the command leaves behind comes to the guard, which is woken by its alarm only."""
    desk = open_desk(mode)
    points = desk.order("escape", s_ms=boot_ms() + 3 * BOOT_MS)
    desk.hear("running")
    wait_until(lambda: len(desk.lives()) == 2)
    (orphan,) = [pid for pid in desk.commands() if pid != desk.news[-1]["pid"]]
    wait_until_still(desk.guard_pid)
    desk.extend(Deadlines.after(points.hold_at + LONG_MS))
    desk.signal(signal.SIGKILL, orphan)

    wait_until(lambda: state_of(orphan) == "", within_s=30)
    assert len(desk.commands()) == 1


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


def test_G1_an_extension_counts_also_if_the_guard_slept_after_it_had_polled(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN, mutant={"guard.py": SLEEPS_AFTER_ITS_POLL})
    first = desk.start(long=False, deadman_at=boot_ms() + LONG_MS)
    later = Deadlines.after(first.term_at)
    desk.extend(later)
    desk.hear("exited")
    assert later.term_at <= boot_ms()
    assert first.kill_at < desk.last_ms() <= later.kill_at
    desk.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_a_guard_that_waits_takes_no_time(open_desk: OpenDesk, mode: str) -> None:
    """Beside a command that runs, and beside one that was asked to end and does not."""
    desk = open_desk(mode)
    desk.start("ignore-term")
    cpu_ms = cpu_ms_of(desk.guard_pid)
    time.sleep(0.3)
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    time.sleep(0.3)
    assert cpu_ms_of(desk.guard_pid) - cpu_ms <= 50


def test_Q8_no_extension_reopens_a_hold_that_ran_out(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    points = desk.start("block-term", long=False)
    (command,) = desk.commands()
    wait_until(lambda: was_told_to_end(command))
    desk.extend(Deadlines.after(boot_ms() + LONG_MS))
    desk.hear("exited")
    assert points.kill_at <= boot_ms()
    desk.hear("gone")
    gone_in_time(desk, points)


def test_a_start_whose_hold_has_run_out_is_refused(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.order(s_ms=boot_ms() - HOLD_MS)
    assert desk.hear("failed")["why"] == "the hold has already run out"
    desk.start()
