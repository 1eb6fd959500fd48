"""The guard with real processes (rules G1-G5, G9, G10; faults F02-F06, F09, F10).

Whoever lived, and until when, is read from the stamps in a mapped file, never from what the guard says. What a rule
demands is in a function `holds_...`, so that the mutants at the end can be shown to break it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import stamp
from tests.canary import Canary
from tests.guard_desk import (
    BOOT_MS,
    HOLD_MS,
    LIMIT_S,
    LONG_MS,
    NOBODY,
    OWN,
    TERM_MS,
    Deadlines,
    Desk,
    Ended,
    boot_ms,
    cpu_ms_of,
    is_alive,
    need,
    state_of,
    status_of,
    wait_until,
    wait_until_still,
    wakes_of,
    was_told_to_end,
)

from primacy.agent.guard_link import GuardLink
from primacy.watchdog import guard_tree
from primacy.watchdog.containment import containment_sentence, start_guard

STRONG = ("root", "user")
ALL = ("root", "user", "weak", "capless")
MIB = 1024
RESIDENT_KIB_MAX = 14 * MIB
PROMPT_MS = 200
"""At once: what of it a machine may take that stood still for no longer than the canary says."""

OpenDesk = Callable[..., Desk]


@pytest.fixture
def open_desk() -> Iterator[OpenDesk]:
    """Desks that have said hello, closed at the end with whatever is left of them."""
    desks: list[Desk] = []

    def opened(mode: str, containment: str = "any", **more: Any) -> Desk:
        expected = need(mode)
        desks.append(Desk(mode, **more))
        ready = desks[-1].hello(containment)
        if expected == "strong" and ready["containment"] == "weak" and mode == "user":
            pytest.skip(ready["why"])
        assert ready["containment"] == expected, ready
        return desks[-1]

    yield opened
    for desk in desks:
        desk.close()


def dead_after(desk: Desk) -> None:
    """Nothing of the tree lives, and nothing stamped after we found that."""
    wait_until(lambda: not desk.commands())
    seen = desk.last_ms()
    assert seen <= boot_ms() + 1
    assert desk.last_ms() == seen


def ended_at_once(desk: Desk, killed_ms: int, canary: Canary) -> None:
    """No deadline is near that could have done it; whoever was killed does not stamp any more."""
    took_ms = desk.last_ms() - killed_ms
    canary.judge(took_ms < PROMPT_MS, f"stamps until {took_ms:.0f} ms after the blow, {PROMPT_MS} at most")


# --- what the mutants break -------------------------------------------------------------------------------------------


def holds_when_guard_is_killed(desk: Desk) -> None:
    """G2, F10: the whole tree dies with the guard; the lock is free only then."""
    expect = 1 if desk.mode in ("weak", "capless") else 2
    desk.start(*(["escape"] if expect == 2 else []), "ignore-term", expect=expect)
    with Canary(PROMPT_MS / 4) as canary:
        desk.signal(signal.SIGKILL, desk.guard_pid)
        killed_ms = boot_ms()
        wait_until(desk.lock_is_free, within_s=5.0)
    assert desk.commands() == []
    ended_at_once(desk, killed_ms, canary)
    assert desk.lives()[-1].run == 1
    assert len(desk.lives()) == expect


def holds_when_both_are_stopped(desk: Desk) -> None:
    """G1, F04: agent and guard are stopped; the kernel's timer ends the tree within the hold."""
    expect = 1 if desk.mode in ("weak", "capless") else 2
    ways = ["escape"] if expect == 2 else []
    points = desk.start(*ways, "ignore-term", expect=expect, long=False)
    desk.signal(signal.SIGSTOP, desk.agent_pid, desk.guard_pid)
    wait_until(lambda: boot_ms() >= points.hold_at)
    assert desk.commands() == []
    assert points.term_at < desk.last_ms() <= points.hold_at
    assert not is_alive(desk.guard_pid)
    wait_until(desk.lock_is_free)


def holds_when_agent_is_killed(desk: Desk) -> None:
    """G5, F02: the tree dies at once, and only then the release leaves."""
    desk.start("heavy", "escape", "forking", "ignore-term", expect=20)
    tree = desk.watch()
    with Canary(PROMPT_MS / 4) as canary:
        desk.signal(signal.SIGKILL, desk.agent_pid)
        killed_ms = boot_ms()
        arrived_ns = desk.release_arrived_ns(within_s=LIMIT_S)
        living = tree.living()
    tree.close()
    assert arrived_ns
    assert living == 0, f"{living} processes lived when the release arrived"
    assert desk.commands() == []
    assert desk.last_ms() * 1e6 < arrived_ns
    ended_at_once(desk, killed_ms, canary)
    wait_until(lambda: not is_alive(desk.guard_pid))
    assert desk.lock_is_free()


@pytest.mark.parametrize("mode", ALL)
def test_G2_a_killed_guard_takes_the_tree_with_it(open_desk: OpenDesk, mode: str) -> None:
    holds_when_guard_is_killed(open_desk(mode))


@pytest.mark.parametrize("mode", ALL)
def test_G1_the_kernel_ends_the_tree_of_a_stopped_guard(open_desk: OpenDesk, mode: str) -> None:
    holds_when_both_are_stopped(open_desk(mode))


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_killed_agent_is_followed_by_its_tree_and_then_the_release(open_desk: OpenDesk, mode: str) -> None:
    holds_when_agent_is_killed(open_desk(mode))


# --- deadlines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G1_without_an_extension_TERM_comes_in_time(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    points = desk.start("escape", expect=2, long=False)
    assert desk.hear("exited") == {"is": "exited", "run": 1, "code": None, "signal": signal.SIGTERM}
    assert points.term_at <= boot_ms()
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": False}
    assert desk.commands() == []
    assert desk.last_ms() <= points.kill_at
    assert desk.release_arrived_ns() is None
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
    assert desk.commands() == []
    assert points.term_at < desk.last_ms() <= points.hold_at
    early_ms = points.kill_at - desk.last_ms()
    canary.judge(early_ms < PROMPT_MS / 2, f"the last stamp {early_ms:.0f} ms before KILL was due")


@pytest.mark.parametrize("mode", STRONG)
def test_F10_a_tree_that_forks_while_it_is_killed(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    points = desk.start("ignore-term", "forking", "hopping", expect=20, long=False)
    wait_until(lambda: boot_ms() >= points.hold_at)
    assert desk.commands() == []
    assert points.term_at < desk.last_ms() <= points.hold_at


@pytest.mark.parametrize("mode", ["weak", "capless"])
def test_F10_weak_a_tree_that_forks_is_hunted_until_nothing_is_left(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.start("ignore-term", "forking", "hopping", "escape", expect=30)
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    desk.hear("exited")
    desk.hear("gone")
    assert desk.commands() == []
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
    assert desk.last_ms() <= points.hold_at


@pytest.mark.parametrize("mode", ["weak", "capless"])
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
    assert desk.last_ms() <= points.hold_at


def test_a_start_whose_hold_has_run_out_is_refused(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.order(s_ms=boot_ms() - HOLD_MS)
    assert desk.hear("failed")["why"] == "the hold has already run out"
    desk.start()


# --- stops, ends and restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G9_a_planned_stop(open_desk: OpenDesk, mode: str) -> None:
    """The signal at once; leadership, and with it the deadlines of the hold, go on meanwhile."""
    desk = open_desk(mode)
    desk.start("escape", expect=2)
    desk.say("stop", signal=signal.SIGUSR1, kill_at=boot_ms() + LONG_MS)
    assert desk.hear("exited") == {"is": "exited", "run": 1, "code": None, "signal": signal.SIGUSR1}
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": False}
    assert desk.commands() == []
    desk.say("bye")
    with pytest.raises(Ended):
        desk.hear()
    wait_until(desk.lock_is_free)


def test_G9_a_planned_stop_has_an_end(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.start("ignore-term")
    kill_at = boot_ms() + 100
    desk.say("stop", signal=signal.SIGTERM, kill_at=kill_at)
    assert desk.hear("exited")["signal"] == signal.SIGKILL
    assert kill_at <= boot_ms()
    desk.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_F06_a_stopped_command_can_be_stopped(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.start()
    (command,) = desk.commands()
    desk.signal(signal.SIGSTOP, command)
    wait_until(lambda: state_of(command) == "T")
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    assert desk.hear("exited")["signal"] == signal.SIGTERM
    desk.hear("gone")
    desk.start(run=2)
    (command,) = desk.commands()
    desk.signal(signal.SIGSTOP, command)
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms())
    assert desk.hear("exited")["signal"] in (signal.SIGTERM, signal.SIGKILL)
    desk.hear("gone")


@pytest.mark.parametrize("mode", ALL)
def test_G10_a_restart_waits_until_the_whole_old_tree_is_gone(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.start("escape", "exit=3,1500", expect=2)
    desk.order(run=2)
    assert desk.hear("failed") == {"is": "failed", "run": 2, "why": "run 1 is not gone yet"}
    assert desk.hear("exited") == {"is": "exited", "run": 1, "code": 3, "signal": None}
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": False}
    assert desk.commands() == []
    desk.start("escape", expect=2, run=2)
    assert not desk.lock_is_free()
    lives = desk.lives()
    assert [one.run for one in lives] == [1, 1, 2, 2]
    assert stamp.overlaps(lives) == []


def test_the_overlap_checker_sees_an_overlap() -> None:
    one, two, three = (
        stamp.Stamp(b"a", 7, run, 1, 1, first, last) for run, first, last in ((1, 5, 9), (2, 9, 12), (3, 13, 14))
    )
    assert stamp.overlaps([one, two, three]) == [(one, two)]


# --- the run lock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G3_no_second_start_while_the_lock_is_held(open_desk: OpenDesk, mode: str) -> None:
    one = open_desk(mode)
    one.start()
    two = open_desk(mode, lock=one.lock)
    two.order()
    assert two.hear("locked") == {"is": "locked", "by": one.guard_pid}
    one.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + LONG_MS)
    one.hear("exited")
    one.hear("gone")
    two.order()
    assert two.hear("locked")["by"] == one.guard_pid
    one.say("bye")
    wait_until(one.lock_is_free)
    two.start()


def holds_lock_until_the_last_is_gone(desk: Desk) -> None:
    """G3: whoever finds the lock free after the guard was killed finds no process of the tree either."""
    desk.start("heavy", "escape", "ignore-term", expect=2)
    tree = desk.watch()
    desk.signal(signal.SIGKILL, desk.guard_pid)
    while not desk.lock_is_free():
        pass
    living = tree.living()
    tree.close()
    assert living == 0, f"{living} processes lived when the lock was free"


@pytest.mark.parametrize("mode", STRONG)
def test_G3_the_lock_is_free_only_when_the_last_descendant_is_gone(open_desk: OpenDesk, mode: str) -> None:
    holds_lock_until_the_last_is_gone(open_desk(mode))


@pytest.mark.parametrize("mode", ["weak", "capless"])
def test_G3_weak_what_outlives_a_killed_guard_keeps_the_next_start_away(open_desk: OpenDesk, mode: str) -> None:
    """The named limit of weak: the one that left the command lives on. It has inherited the lock."""
    one = open_desk(mode)
    one.start("escape", expect=2)
    one.signal(signal.SIGKILL, one.guard_pid)
    wait_until(lambda: len(one.commands()) == 1)
    two = open_desk(mode, lock=one.lock)
    two.order()
    assert two.hear("locked")["by"] == one.guard_pid
    one.signal(signal.SIGKILL, *one.commands())
    wait_until(one.lock_is_free)
    two.start()
    assert stamp.overlaps(one.lives() + two.lives()) == []


def test_G3_a_killed_keeper_is_replaced(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.start()
    (keeper,) = desk.named("primacy-lock")
    desk.signal(signal.SIGKILL, keeper)
    wait_until(lambda: desk.named("primacy-lock") not in ([], [keeper]))
    assert desk.commands()


def test_a_lock_file_that_was_replaced_is_not_the_lock(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.lock.unlink()
    desk.start()
    assert not desk.lock_is_free()
    assert stat.S_IMODE(desk.lock.stat().st_mode) == 0o600
    assert int(desk.lock.read_text()) == desk.guard_pid


# --- the release ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G5_a_closed_socket_is_no_dead_agent(open_desk: OpenDesk, mode: str) -> None:
    """The tree is stopped in order and the guard ends, without a release."""
    desk = open_desk(mode)
    desk.start("escape", expect=2)
    desk.socket.close()
    wait_until(lambda: not is_alive(desk.guard_pid))
    assert desk.commands() == []
    assert is_alive(desk.agent_pid)
    assert desk.release_arrived_ns() is None
    assert desk.lock_is_free()


def test_G5_an_agent_that_dies_as_agents_do(open_desk: OpenDesk) -> None:
    """Its socket is closed a moment before its death can be seen; that must not cost the release."""
    desk = open_desk(OWN)
    desk.start()
    desk.signal(signal.SIGSTOP, desk.guard_pid)
    desk.socket.close()
    desk.signal(signal.SIGCONT, desk.guard_pid)
    wait_until(lambda: not desk.commands())
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(desk.release_arrived_ns)


def test_G5_an_ordered_release_waits_for_the_end_of_the_tree(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.start("ignore-term")
    host, port = desk.inbox.getsockname()
    desk.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port], ["?", "no.name.here", 9]])
    desk.say("stop", signal=signal.SIGTERM, kill_at=boot_ms() + 100)
    while boot_ms() < desk.last_ms() + 50 and desk.commands():
        assert desk.release_arrived_ns() is None or not desk.commands()
    desk.hear("exited")
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": True}
    arrived = desk.release_arrived_ns()
    assert arrived is not None
    assert desk.last_ms() * 1e6 < arrived
    desk.order(run=2)
    assert desk.hear("failed")["why"] == "a release was ordered"


def test_G5_a_release_ordered_after_the_end(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.start("exit=0,20")
    desk.hear("exited")
    desk.hear("gone")
    host, port = desk.inbox.getsockname()
    desk.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port]])
    assert desk.hear("gone") == {"is": "gone", "run": 1, "released": True}
    assert desk.release_arrived_ns() is not None
    assert desk.release_arrived_ns() is not None, "it is sent twice"
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(lambda: not is_alive(desk.guard_pid))
    assert desk.release_arrived_ns() is None


def holds_spare_releases_nothing(desk: Desk) -> None:
    """G4: it holds no lock, so that neither an order nor its agent's death gets a release out of it."""
    host, port = desk.inbox.getsockname()
    desk.say("release", datagrams=[[base64.b64encode(b"release").decode(), host, port]])
    assert desk.hear("gone") == {"is": "gone", "run": 0, "released": False}
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(lambda: not is_alive(desk.guard_pid))
    assert desk.release_arrived_ns() is None


def test_G4_a_spare_guard_releases_nothing(open_desk: OpenDesk) -> None:
    holds_spare_releases_nothing(open_desk(OWN))


def test_G5_an_agent_that_dies_between_two_runs_leaves_a_release(open_desk: OpenDesk) -> None:
    desk = open_desk(OWN)
    desk.start("exit=0,20")
    desk.hear("exited")
    desk.hear("gone")
    desk.signal(signal.SIGKILL, desk.agent_pid)
    wait_until(desk.release_arrived_ns)
    wait_until(lambda: not is_alive(desk.guard_pid))


# --- the command ------------------------------------------------------------------------------------------------------

REPORT = """
import json, os, sys
def mask(name):
    with open("/proc/self/status") as file:
        return int([line.split()[1] for line in file if line.startswith(name + ":")][0], 16)
umask = os.umask(0)
with open("/proc/self/environ", "rb") as file:
    env = dict(each.split("=", 1) for each in os.fsdecode(file.read()).split("\\0") if each)
fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in "0123456789" if os.path.exists(f"/proc/self/fd/{fd}")}
print(json.dumps({"env": env, "fds": fds, "umask": umask, "cwd": os.getcwd(), "uid": os.getresuid(),
  "gid": os.getresgid(), "groups": os.getgroups(), "leads": os.getsid(0) == os.getpid(), "ignored": mask("SigIgn"),
  "blocked": mask("SigBlk"), "pid": os.getpid(), "self": int(os.readlink("/proc/self")), "argv": sys.argv[1:]}))
"""


@pytest.mark.parametrize("mode", ALL)
def test_the_command_gets_what_was_ordered_and_nothing_else(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    out, err = desk.folder / "out", desk.folder / "err"
    user = {"uid": NOBODY, "gid": NOBODY, "groups": [NOBODY]} if mode in ("root", "capless") else {}
    env = {"ONE": "1", "ODD": "\udcff ü\n", "PATH": "/nowhere", "BIG": "x" * 100_000}
    argv = [desk.anyones_python, "-I", "-S", "-X", "utf8", "-c", REPORT, "a b", "$HOME", ""]
    desk.order(argv=argv, env=env, cwd="/usr", umask=0o27, stdout=str(out), stderr=str(err), **user)
    desk.hear("running")
    desk.hear("exited")
    desk.hear("gone")
    said = json.loads(out.read_text())
    fds = said["fds"]
    assert [fds.pop("0"), fds.pop("1"), fds.pop("2")] == ["/dev/null", str(out), str(err)]
    assert list(fds.values()) == ([str(desk.lock)] if mode in ("weak", "capless") else [])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    gid = NOBODY if os.geteuid() == 0 else os.getegid()
    assert said["env"] == env
    assert said["groups"] == [NOBODY] or not user
    assert said["uid"] == [uid] * 3
    assert said["gid"] == [gid] * 3
    assert said["umask"] == 0o27
    assert said["cwd"] == "/usr"
    assert said["leads"]
    assert said["argv"] == ["a b", "$HOME", ""]
    assert said["blocked"] == 0
    assert said["pid"] == said["self"], "/proc shows the numbers that the command itself sees"
    python_ignores = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    nobody_can_set = (1 << 32 - 1) | (1 << 33 - 1)  # the C library's own; no program can give them back
    assert said["ignored"] & ~python_ignores & ~nobody_can_set == 0


@pytest.mark.parametrize("mode", ["root", "capless"])
def test_F10_another_user_is_bound_to_the_guard_all_the_same(open_desk: OpenDesk, mode: str) -> None:
    """A change of user takes the parent-death signal away, so it is asked for afterwards."""
    desk = open_desk(mode)
    desk.start(uid=NOBODY, gid=NOBODY, groups=[])
    (command,) = desk.commands()
    assert status_of(command)["Uid"].split() == [str(NOBODY)] * 4
    assert status_of(command)["Groups"] == ""
    with Canary(PROMPT_MS / 4) as canary:
        desk.signal(signal.SIGKILL, desk.guard_pid)
        killed_ms = boot_ms()
        dead_after(desk)
    ended_at_once(desk, killed_ms, canary)


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"argv": ["/nowhere/at/all"]}, "cannot execute /nowhere/at/all: No such file or directory"),
        ({"argv": ["/etc/passwd"]}, "cannot execute /etc/passwd: Permission denied"),
        ({"cwd": "/nowhere"}, "cannot enter /nowhere: No such file or directory"),
        ({"stdout": "/nowhere/out"}, "cannot open /nowhere/out: No such file or directory"),
        ({"argv": []}, "the order makes no sense: no command, or deadlines out of order"),
    ],
)
def test_a_command_that_cannot_be_started(open_desk: OpenDesk, mode: str, wrong: dict[str, Any], why: str) -> None:
    desk = open_desk(mode)
    desk.order(**wrong)
    assert desk.hear("failed") == {"is": "failed", "run": 1, "why": why}
    assert desk.commands() == []
    desk.start(run=2)


@pytest.mark.parametrize("mode", ["user", "weak"])
def test_a_user_that_cannot_be_had(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.order(uid=0, gid=0)
    assert desk.hear("failed")["why"] == "cannot become user 0, group 0: Operation not permitted"


# --- the guard itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_G9_the_guard_stands_alone(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(mode)
    desk.start("escape", expect=2)
    assert os.getsid(desk.guard_pid) == desk.guard_pid
    desk.signal(signal.SIGTERM, desk.guard_pid)
    desk.signal(signal.SIGINT, desk.guard_pid)
    desk.signal(signal.SIGHUP, desk.guard_pid)
    desk.say("nonsense")
    assert desk.hear("error")["why"] == "not now, or never heard of: nonsense"
    desk.say("bye")
    desk.hear("error")
    desk.socket.send(b"{")
    desk.hear("error")
    desk.socket.send(b"[1]")
    desk.hear("error")
    assert len(desk.commands()) == 2
    assert [os.sched_getscheduler(pid) for pid in desk.commands()] == [os.SCHED_OTHER] * 2


def test_strong_containment_can_be_required(open_desk: OpenDesk) -> None:
    desk = open_desk("weak", containment="strong")
    desk.order()
    assert desk.hear("failed")["why"] == "strong containment is required and cannot be had here"


def test_G2_the_sentence_says_what_holds_why_and_the_cure(open_desk: OpenDesk) -> None:
    (ready,) = open_desk("weak").news
    sentence = containment_sentence(ready["containment"], ready["why"])
    assert sentence.startswith("containment is weak: no pid namespace can be made (No space left on device: ")
    assert "to make it strong, run as root" in sentence
    assert "\n" not in sentence
    assert "the kernel ends every process" in containment_sentence("strong", "x")


def test_a_guard_refuses_a_stranger_as_agent(open_desk: OpenDesk) -> None:
    need(OWN)
    desk = Desk(OWN)
    try:
        desk.say("hello", agent=os.getpid(), lock=str(desk.lock), containment="any")
        with pytest.raises(Ended):
            desk.hear()
    finally:
        desk.close()


def test_start_guard_makes_a_small_guard_that_ends_with_its_socket(tmp_path: Path) -> None:
    guard = start_guard()
    with guard.socket:
        hello = {"do": "hello", "agent": os.getpid(), "lock": str(tmp_path / "lock"), "containment": "any"}
        guard.socket.send(json.dumps(hello).encode())
        assert json.loads(guard.socket.recv(65536))["is"] == "ready"
        environment = Path(f"/proc/{guard.process.pid}/environ").read_bytes().split(b"\0")
        assert [each for each in environment if each and not each.startswith(b"LD_LIBRARY_PATH=")] == []
        resident_kib = int(status_of(guard.process.pid)["VmRSS"].split()[0])
    assert guard.process.wait(timeout=LIMIT_S) == 0
    assert resident_kib <= RESIDENT_KIB_MAX


# --- mutants ----------------------------------------------------------------------------------------------------------

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

MUTANTS: dict[str, tuple[Callable[[Desk], None], dict[str, str]]] = {
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


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(open_desk: OpenDesk, name: str) -> None:
    holds, mutant = MUTANTS[name]
    desk = open_desk(OWN, mutant=mutant)
    with pytest.raises(AssertionError):
        holds(desk)


def test_a_command_that_is_killed_while_it_waits_for_its_byte_is_a_failure_and_not_the_guards_end() -> None:
    run = guard_tree.Run.__new__(guard_tree.Run)
    run.phase, run.command_fd = "preparing", -1
    run.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    run.line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    say = f"import os; os.write({theirs.fileno()}, b'+')"
    child = subprocess.Popen([sys.executable, "-c", say], pass_fds=[theirs.fileno()])
    child.wait()
    with run.line, theirs:
        assert run.hear_line()
    assert (run.phase, run.command_fd, run.command) == ("failed", -1, child.pid)


def test_the_agents_link_uses_the_pipe_and_a_packet_when_that_is_full(tmp_path: Path) -> None:
    """It never waits, and a guard that has not looked for long is woken."""

    async def scene() -> None:
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        ended = asyncio.Event()
        link = GuardLink(lambda _, packet: said.put_nowait(packet), lambda _: ended.set())
        link.hello(str(tmp_path / "lock"), "any")
        assert (await said.get())["is"] == "ready"
        os.kill(link.process.pid, signal.SIGSTOP)
        extended = 0
        while not unread_bytes(link.socket):
            link.extend(1, 2, 3)
            extended += 1
        assert extended > 1_000, "a guard that sleeps has room for minutes"
        os.kill(link.process.pid, signal.SIGCONT)
        while unread_bytes(link.socket):
            await asyncio.sleep(0.001)
        link.send({"do": "bye"})
        await ended.wait()
        link.extend(1, 2, 3)
        assert said.empty(), said

    asyncio.run(asyncio.wait_for(scene(), 2 * LIMIT_S))


def unread_bytes(line: socket.socket) -> int:
    """What was sent and not read yet."""
    return int(struct.unpack("i", fcntl.ioctl(line, termios.TIOCOUTQ, b"    "))[0])
