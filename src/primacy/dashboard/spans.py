"""What the timeline needs beside events, kept while the dashboard reads: holds, signatures, clocks. Bounded. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from primacy.dashboard.rows import Chain
from primacy.timeline.clocks import TICK_MS, Span

HOLDS_MAX = 200
"""One for each leadership: a bad hour."""
SIGNATURES_MAX = 2_000
"""Of the chain of a lab: several minutes."""
READS_MAX = 16
"""Of one clock. Old ones go, for a clock drifts, and may be set."""


class HoldSpan(NamedTuple):
    from_unix_ms: int
    to_unix_ms: int


class Spans:
    """On the clock of the reader."""

    def __init__(self) -> None:
        self.holds: dict[tuple[str, int], HoldSpan] = {}
        self.signatures: dict[int, tuple[int, str, int, int]] = {}
        """By their numbers: (at, node, token, gap)."""
        self._clocks: dict[str, deque[Span]] = {}

    def hear_hold(self, node: str, token: int, ends_unix_ms: int, hold_ms: int) -> None:
        """It ends then, if it is not renewed. What is heard late changes nothing."""
        self.hear_span(node, token, HoldSpan(ends_unix_ms - hold_ms, ends_unix_ms))

    def hear_span(self, node: str, token: int, span: HoldSpan) -> None:
        """The same, as a node kept it."""
        before = self.holds.get((node, token))
        if before is None or span.to_unix_ms > before.to_unix_ms:
            self.holds[node, token] = span
        while len(self.holds) > HOLDS_MAX:
            del self.holds[next(iter(self.holds))]

    def hear_chain(self, chain: Chain) -> None:
        newest = max(self.signatures, default=0)
        if chain.newest and chain.newest[0].number < newest:  # another chain: the lab began anew
            self.signatures.clear()
            newest = 0
        for each in reversed(chain.newest):
            if each.number > newest:
                self.signatures[each.number] = (each.at_unix_ms, each.node, each.token, each.gap_ms)
        while len(self.signatures) > SIGNATURES_MAX:
            del self.signatures[next(iter(self.signatures))]

    def hear_clock(self, node: str, said_unix_ms: int, asked_unix_ms: int, answered_unix_ms: int) -> None:
        """The node's clock showed `said` between two moments of this reader's clock."""
        if node and said_unix_ms > 0 and answered_unix_ms >= asked_unix_ms:
            span = Span(said_unix_ms - answered_unix_ms - TICK_MS, said_unix_ms - asked_unix_ms + TICK_MS)
            self._clocks.setdefault(node, deque(maxlen=READS_MAX)).append(span)

    def clocks(self) -> Mapping[str, Span]:
        """What all the last reads of a clock allow. Where they contradict each other it was set: then the newest."""
        found = {}
        for node, spans in self._clocks.items():
            low, high = max(each.low_ms for each in spans), min(each.high_ms for each in spans)
            found[node] = Span(low, high) if low <= high else spans[-1]
        return found
