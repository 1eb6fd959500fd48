"""A node's clock beside true time: it runs at its own rate, and the rate may change.

Only the rate matters to the rules; the offset is arbitrary and different on every node, so that a machine that compared
clocks of two nodes would fail at once. Wall time is a third thing: it jumps, and may only ever lift a token.
"""

from __future__ import annotations

EPSILON_MS = 1e-4
"""Added when a local moment is turned into a true one, so that rounding never wakes a node before its deadline."""


class Clock:
    """CLOCK_BOOTTIME of one node, and its wall clock."""

    __slots__ = ("local0", "rate", "true0", "wall_offset_ms")

    def __init__(self, offset_ms: float, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self.true0 = 0.0
        self.local0 = offset_ms
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms

    def local_ms(self, true_ms: float) -> int:
        return int(self.local0 + (true_ms - self.true0) * self.rate)

    def true_ms(self, local_ms: float) -> float:
        """The first true moment at which the clock shows `local_ms`, if its rate stays."""
        return self.true0 + (local_ms - self.local0) / self.rate + EPSILON_MS

    def set_rate(self, true_ms: float, rate: float) -> None:
        self.local0 += (true_ms - self.true0) * self.rate
        self.true0 = true_ms
        self.rate = rate

    def wall_ms(self, true_ms: float) -> int:
        return int(true_ms) + self.wall_offset_ms
