"""The library where the kernel is not Linux's: tried by taking the names away that only Linux has."""

from __future__ import annotations

import select
import subprocess
import sys

import pytest

from primacy.library.timers import NEVER_MS, ThreadTimer
from primacy.node.clock import SystemClock

pytestmark = pytest.mark.beside(order=126)

WITHIN_S = 60
ELSEWHERE = """
import ctypes, os, select, signal, sys, time
LACK = {time: ["CLOCK_BOOTTIME"], select: ["epoll"], signal: ["pidfd_send_signal"],
        os: ["eventfd", "pidfd_open", "sched_setscheduler", "SCHED_FIFO", "SCHED_RESET_ON_FORK", "memfd_create"]}
for module, names in LACK.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"
class Library:
    real = ctypes.CDLL
    def __init__(self, name, **more):
        if name:
            raise OSError("there is no such library")
        self.found = Library.real(None, **more)
    def __getattr__(self, name):
        if name.startswith(("timer", "inotify", "prctl", "unshare", "setns", "ptrace")):
            raise AttributeError(name)
        return getattr(self.found, name)
ctypes.CDLL = Library
"""
USE = """
import asyncio, primacy
from primacy import blocking
with blocking.Lock("it", store="memory:", profile="wan") as leadership:
    print("blocking", leadership.left_ms() > 0)
async def main():
    async with primacy.Election("it", store="memory:", profile="wan", rest_ms=1) as election:
        async for leadership in election:
            async with leadership:
                leadership._hold.lose("as if it were not renewed")
                from primacy.library.timers import set_timer
                set_timer(leadership._hold._timer, leadership._hold._clock.now_ms() + 20)
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    print("cancelled")
                    raise
            break
asyncio.run(main())
"""


def said(program: str) -> list[str]:
    call = [sys.executable, "-c", ELSEWHERE + program]
    done = subprocess.run(call, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_works_and_cancels() -> None:
    assert said(USE)[:2] == ["blocking True", "cancelled"]


def test_what_needs_linux_says_so() -> None:
    kill = (
        "import primacy\nfrom primacy import blocking\n"
        "try:\n    blocking.Election('it', store='memory:', on_loss='kill')\n"
        "except primacy.PrimacyError as error:\n    print(error)\n"
    )
    assert "needs a timer of the Linux kernel" in said(kill)[0]
    run = "from primacy.cli.main import run\nprint(run(['run', '--', 'true']))\n"
    assert said(run) == ["4"]


def test_a_timer_of_a_thread_rings_at_its_instant_and_not_at_an_earlier_one() -> None:
    clock, timer = SystemClock(), ThreadTimer()
    try:
        timer.set(clock.now_ms() + 30)
        timer.set(clock.now_ms() + 120)
        before_ms = clock.now_ms()
        assert select.select([timer.descriptor], [], [], WITHIN_S)[0]
        assert clock.now_ms() - before_ms >= 100
    finally:
        timer.set(NEVER_MS)
        timer.close()
