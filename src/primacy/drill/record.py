"""What a drill read: events, signatures, holds and lateness, and the timeline that is drawn from them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from primacy.timeline.clocks import TOKENS_FROM, Log, Span
from primacy.timeline.fold import Facts, timeline_of
from primacy.timeline.schema import Timeline, Told, Violation

EVENTS_MAX = 20_000
"""Of a drill of hours; the timeline draws the newest of them."""
SIGNATURES_MAX = 40_000
HOLDS_MAX = 400
FIELDS = ("at_unix_ms", "node", "term", "code", "text", "value")


class Signature(NamedTuple):
    """One that the chain of a lab took."""

    at_unix_ms: int
    node: str
    token: int
    gap_ms: int


class Standing(NamedTuple):
    """How the cluster stands at one moment."""

    leader: str = ""
    """Who leads and runs the command; empty: nobody, or nobody knows."""
    token: int = 0
    up: tuple[str, ...] = ()
    """Nodes that answer, or are heard."""
    voters: int = 0
    names: tuple[str, ...] = ()
    disturbed: str = ""
    """What is not as it should be before a fault begins; empty: all is well."""


class Doubles(NamedTuple):
    """Proofs of two at once that somebody outside of the cluster counted."""

    number: int = 0
    sentences: tuple[str, ...] = ()


class Record:
    """Grows while a drill runs. Bounded."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.signatures: list[Signature] = []
        self.doubles = Doubles()
        self.has_chain = False
        self.holds: dict[tuple[str, int], tuple[int, int]] = {}
        self.late: list[tuple[int, int]] = []
        """When this machine was late, and by how many milliseconds."""
        self.token_base = 0
        self.names: tuple[str, ...] = ()
        self.acting: dict[str, int] = {}
        """Who acts now, and when that was said."""
        self.since_ms = 0
        """When the drill began: what was before is read, to know who ran, and not drawn."""
        self._doubles_before: int | None = None
        self._newest_event = 0
        self._newest_signature = 0

    @property
    def newest_event(self) -> int:
        return self._newest_event

    @property
    def newest_signature(self) -> int:
        return self._newest_signature

    def add_events(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self._newest_event = max(self._newest_event, int(row["number"]))
            self.told.append(Told(*(row[name] for name in FIELDS)))
        del self.told[:-EVENTS_MAX]

    def add_signatures(self, rows: Sequence[dict[str, Any]]) -> None:
        self.has_chain = True
        for row in rows:
            self._newest_signature = max(self._newest_signature, int(row["number"]))
            self.signatures.append(Signature(row["at_unix_ms"], row["node"], row["token"], row["gap_ms"]))
        del self.signatures[:-SIGNATURES_MAX]

    def add_doubles(self, count: int, sentences: Sequence[str]) -> None:
        """As the chain counts them. What it had seen before this drill is not of this drill."""
        if self._doubles_before is None:
            self._doubles_before = count
        fresh = count - self._doubles_before
        self.doubles = Doubles(fresh, tuple(sentences[-fresh:]) if fresh else ())

    def add_state(self, state: dict[str, Any], now_ms: int, hold_ms: int) -> None:
        """What a node says of itself: its hold, and what tokens have more than terms."""
        token, term, left_ms = state.get("token") or 0, state.get("term") or 0, state.get("hold_left_ms") or 0
        if token >= TOKENS_FROM > term > 0:
            self.token_base = token - term
        if state.get("role") == "leader" and token and left_ms > 0:
            self.holds[state["node"], token] = (now_ms + left_ms - hold_ms, now_ms + left_ms)
            while len(self.holds) > HOLDS_MAX:
                del self.holds[next(iter(self.holds))]

    def late_ms(self, from_ms: float, to_ms: float) -> int:
        """By how much this machine was late at most, in this span."""
        return max((ms for at_ms, ms in self.late if from_ms <= at_ms <= to_ms + ms), default=0)

    def timeline(self, title: str, now_ms: int, *, one_machine: bool, reader: str = "") -> Timeline:
        """`reader`: the node whose log was read, where not all nodes share a clock."""
        logs: list[Log] = [(reader, self.told)] if reader else []
        facts = Facts(
            now_ms=now_ms,
            title=title,
            kind="drill",
            names=self.names,
            acting=self.acting,
            token_base=self.token_base,
            one_machine=one_machine,
            reads={reader: Span(0.0, 0.0)} if reader else None,
            logs=logs,
            holds=[(node, *span, token) for (node, token), span in self.holds.items()],
            chain=[tuple(each) for each in self.signatures],  # type: ignore[misc]
        )
        drawn = since(timeline_of(self.told, facts), self.since_ms)
        seen = [Violation(drawn.to_ms, "chain", sentence) for sentence in self.doubles.sentences]
        return drawn._replace(violations=[*drawn.violations, *seen])


def since(drawn: Timeline, from_ms: float) -> Timeline:
    """The same without what was over before."""
    return drawn._replace(
        from_ms=max(drawn.from_ms, from_ms),
        roles=[each for each in drawn.roles if each.to_ms >= from_ms],
        runs=[each for each in drawn.runs if each.to_ms >= from_ms],
        holds=[each for each in drawn.holds if each.to_ms >= from_ms],
        faults=[each for each in drawn.faults if each.to_ms >= from_ms],
        links=[each for each in drawn.links if each.to_ms >= from_ms],
        decisions=[each for each in drawn.decisions if each.at_ms >= from_ms],
        chain=[each for each in drawn.chain if each.at_ms >= from_ms],
        overlaps=[each for each in drawn.overlaps if each.to_ms >= from_ms],
        gaps=[each for each in drawn.gaps if each.to_ms >= from_ms],
        violations=[each for each in drawn.violations if each.at_ms >= from_ms],
    )
