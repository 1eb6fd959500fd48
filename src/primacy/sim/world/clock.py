"""A node's clock beside true time: it runs at its own rate, and the rate may change.

Only the rate matters to the rules; the offset is arbitrary and different on every node, so that a machine that compared
clocks of two nodes would fail at once. Wall time is a third thing: it jumps, and may only ever lift a token.
"""

from __future__ import annotations

import math

EPSILON_MS = 1e-4
"""Added when a local moment is turned into a true one, so that rounding never wakes a node before its deadline."""


class Clock:
    """CLOCK_BOOTTIME of one node, and its wall clock."""

    __slots__ = ("_rate_later", "local0", "rate", "true0", "wall_offset_ms")

    def __init__(self, offset_ms: float, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self.true0 = 0.0
        self.local0 = offset_ms
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms
        self._rate_later = 0.0
        """While it is stopped: its rate once it goes on."""

    def local_ms(self, true_ms: float) -> int:
        return int(self.local0 + (true_ms - self.true0) * self.rate)

    def true_ms(self, local_ms: float) -> float:
        """The first true moment at which the clock shows `local_ms`, if its rate stays; never, while it is stopped."""
        if not self.rate:
            return math.inf
        return self.true0 + (local_ms - self.local0) / self.rate + EPSILON_MS

    @property
    def running_rate(self) -> float:
        """Its rate whenever it is not stopped."""
        return self.rate or self._rate_later

    def stop(self, true_ms: float) -> None:
        """It shows the same until it goes on: the machine is frozen together with its clock (F30)."""
        rate = self.running_rate
        self.set_rate(true_ms, 0.0)
        self._rate_later = rate

    def go_on(self, true_ms: float) -> None:
        rate, self._rate_later = self.running_rate, 0.0
        self.set_rate(true_ms, rate)

    def set_rate(self, true_ms: float, rate: float) -> None:
        if self._rate_later:
            self._rate_later = rate
            return
        self.local0 += (true_ms - self.true0) * self.rate
        self.true0 = true_ms
        self.rate = rate

    def wall_ms(self, true_ms: float) -> int:
        return int(true_ms) + self.wall_offset_ms
