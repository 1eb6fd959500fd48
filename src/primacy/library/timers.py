"""The end of a hold as a descriptor that an event loop watches.

On Linux it is a kernel timer on CLOCK_BOOTTIME. Elsewhere (macOS, the BSDs) there is none: a thread of our own waits
and writes to a pipe. It looks up every `LOOK_S`, for its wait may not count while the machine sleeps, so that it can be
late by as much after a suspend; a body that asks `leadership.check()` is told by the clock itself. The kernel's
dead-man (`on_loss="kill"`) is Linux only.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from primacy.errors import CannotHere
from primacy.node.clock import SystemClock

HAS_KERNEL_TIMERS = hasattr(time, "CLOCK_BOOTTIME")
LOOK_S = 0.25
NEVER_MS = 1 << 62

if HAS_KERNEL_TIMERS:
    from primacy.supervise.guard import guard_tree as kernel


class ThreadTimer:
    """A pipe that becomes readable at an instant."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        for end in (self.descriptor, self._write):
            os.set_blocking(end, False)
        self._clock = SystemClock()
        self._at_ms = NEVER_MS
        self._closed = False
        self._news = threading.Condition()
        threading.Thread(target=self._wait, name="primacy-hold", daemon=True).start()

    def set(self, at_ms: int) -> None:
        with self._news:
            self._at_ms = at_ms
            self._news.notify_all()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
            os.close(self.descriptor)
            os.close(self._write)

    def _wait(self) -> None:
        with self._news:
            while not self._closed:
                left_ms = self._at_ms - self._clock.now_ms()
                if left_ms > 0:
                    self._news.wait(None if self._at_ms >= NEVER_MS else min(LOOK_S, left_ms / 1_000))
                    continue
                self._at_ms = NEVER_MS
                with contextlib.suppress(BlockingIOError):  # it rings already
                    os.write(self._write, b"\0")


_THREADS: dict[int, ThreadTimer] = {}
"""By descriptor; only where the kernel has no such timers."""


def make_timer() -> int:
    """The descriptor; to be closed by `close_timer`."""
    if HAS_KERNEL_TIMERS:
        return kernel.make_timer()
    made = ThreadTimer()
    _THREADS[made.descriptor] = made
    return made.descriptor


def set_timer(timer: int, at_ms: int) -> None:
    """It rings at this instant of our clock, and not at an earlier one."""
    if HAS_KERNEL_TIMERS:
        kernel.set_timer(timer, at_ms)
    else:
        _THREADS[timer].set(at_ms)


def close_timer(timer: int) -> None:
    if HAS_KERNEL_TIMERS:
        os.close(timer)
    else:
        _THREADS.pop(timer).close()


def check_kill(kill: bool) -> None:
    """Raises `CannotHere` where the kernel cannot end a process by itself."""
    if kill and not HAS_KERNEL_TIMERS:
        raise CannotHere('on_loss="kill" needs a timer of the Linux kernel: leave it at "cancel", and check the token')
