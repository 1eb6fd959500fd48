"""Who claims to act, and whether two claims overlapped in time. Pure.

A node's row is as old as the heartbeat that carried it. After a handover the new holder's document still shows the old
one as running, for it has heard nothing newer: two claims, but not at the same time. So each claim is kept as a span on
the reader's clock, from the first to the newest statement of it, and only spans that overlap are an alert. When a node
said something is known as well as its answer was quick: a span is what is certain of it, so that a slow answer is no
proof of two. A claim is one node's under one token: the next token is the next claim. One token on two nodes is an
alert whenever it is claimed.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.control.acting import ACTS
from primacy.dashboard.rows import Said

SLACK_MS = 30
"""Between a statement and our clock lie two hops and our own scheduling; spans that touch by less are no proof."""


class Span(NamedTuple):
    """One unbroken claim of one node."""

    first_ms: int
    """At the latest: it was claimed from here on."""
    last_ms: int
    """At the earliest: it was claimed up to here."""
    over: bool
    """A later statement said otherwise."""
    token: int = 0
    """0: the strategy has none, or it was not told."""


class Claims:
    """The newest claim of every node. Told in any order; an older statement than the newest one changes nothing."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        self._newest_ms: dict[str, int] = {}

    def hear(self, said: Said, at_ms: int, took_ms: int = 0) -> None:
        """What a node said at this moment of the reader's clock, or up to `took_ms` later."""
        if at_ms < self._newest_ms.get(said.node, at_ms):
            return
        self._newest_ms[said.node] = at_ms
        before = self.spans.get(said.node)
        if said.workload in ACTS:
            if before is None or before.over or (before.token != said.token and 0 not in (before.token, said.token)):
                before = Span(at_ms + took_ms, at_ms, over=False)
            first_ms = min(before.first_ms, at_ms + took_ms)
            self.spans[said.node] = Span(first_ms, at_ms, over=False, token=said.token or before.token)
        elif before is not None:
            self.spans[said.node] = before._replace(over=True)

    def overlapping(self) -> tuple[str, ...]:
        """The nodes whose newest claims were made at the same time as another's, or under its token."""
        found: set[str] = set()
        names = sorted(self.spans)
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                a, b = self.spans[one], self.spans[other]
                at_once = min(a.last_ms, b.last_ms) - max(a.first_ms, b.first_ms) > SLACK_MS
                if at_once or (a.token == b.token != 0):
                    found.update((one, other))
        return tuple(sorted(found))
