"""The only place that asks the system for the time.

Decisions are made on CLOCK_BOOTTIME, which goes on while the machine sleeps: a hold must not seem fresh after a
suspend. Wall time is for people, and may only ever lift a token (T2). Both are whole milliseconds, rounded down.
"""

from __future__ import annotations

import time
from typing import Protocol

NS_PER_MS = 1_000_000
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Outside of Linux the monotonic clock, which on macOS and FreeBSD goes on while the machine sleeps, too."""


class Clock(Protocol):
    """Two readings, in integer milliseconds."""

    def now_ms(self) -> int:
        """For decisions: CLOCK_BOOTTIME."""
        ...

    def wall_ms(self) -> int:
        """For people: Unix time."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.clock_gettime_ns(CLOCK) // NS_PER_MS

    def wall_ms(self) -> int:
        return time.time_ns() // NS_PER_MS


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self, now_ms: int = 10_000, wall_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms
        self.offset_ms = wall_ms - now_ms

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms + self.offset_ms
