"""The document that every timeline is drawn from: rows and their fields. docs/timeline.md explains them to users.

Rows are tuples and become lists in JSON, not objects: a page holds tens of thousands of them. Times are milliseconds on
one axis: since 1970 (`unix`), or since the start of a trial (`trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from primacy.timeline import SCHEMA

NETWORK = -1
"""In place of a node: of the whole network, or of nobody."""
CONFIRMED, OPEN, UNKNOWN = "confirmed", "open", "unknown"
"""How a run ended: its guard reported that nothing is left; it still runs; nobody could report it."""


class Told(NamedTuple):
    """One event of one node, on that node's clock."""

    at_unix_ms: int
    node: str
    term: int
    code: str
    text: str
    value: int = 0


class Node(NamedTuple):
    """A lane, and how well its clock is known. Times in its rows are already brought to the common axis."""

    name: str
    offset_ms: float = 0.0
    """How far its clock is ahead of the axis: subtracted from its times. 0 where it may be right."""
    uncertainty_ms: float | None = 0.0
    """Its times may be wrong by this much either way; None: not known at all."""
    clock: str = "axis"
    """How that is known: axis | machine | read | order | unknown."""


class Role(NamedTuple):
    node: int
    from_ms: float
    to_ms: float
    role: str
    term: int = 0


class Run(NamedTuple):
    """One run of the workload on one node."""

    node: int
    from_ms: float
    to_ms: float
    token: int
    """0: not known."""
    run: int
    sure_ms: float
    """Up to here it is known that it ran; from here to `to_ms` it may have: no end was reported, or it was late."""
    end: str = CONFIRMED


class Hold(NamedTuple):
    """From the newest renewal that is known to the moment at which the hold ends, or would have ended."""

    node: int
    from_ms: float
    to_ms: float
    token: int = 0


class Fault(NamedTuple):
    node: int
    from_ms: float
    to_ms: float
    text: str


class Decision(NamedTuple):
    at_ms: float
    node: int
    code: str
    text: str
    term: int = 0


class SentMessage(NamedTuple):
    at_ms: float
    sender: int
    to: int
    delay_ms: float
    """Below 0: it was lost."""
    label: int
    """Its place in `labels`."""


class Overlap(NamedTuple):
    """Two runs at once, by more than their clocks are uncertain."""

    from_ms: float
    to_ms: float
    node: int
    other: int


class Gap(NamedTuple):
    """Nobody ran, from a confirmed end to the next start."""

    from_ms: float
    to_ms: float
    uncertainty_ms: float | None


class Link(NamedTuple):
    """Which links of a node were cut, as it said itself."""

    node: int
    from_ms: float
    to_ms: float
    cut: tuple[tuple[int, str], ...]
    """The other node, and what is cut: both | in | out."""


class Signature(NamedTuple):
    """One that the chain of a lab recorded."""

    at_ms: float
    node: int
    token: int
    gap_ms: float


class Violation(NamedTuple):
    at_ms: float
    rule: str
    text: str


class Timeline(NamedTuple):
    """All of it."""

    title: str
    kind: str
    """cluster | incident | trial | drill"""
    axis: str
    """unix | trial"""
    from_ms: float
    to_ms: float
    nodes: Sequence[Node]
    at_most_one: bool = True
    """Else two at work is what the strategy promises, and no violation."""
    roles: Sequence[Role] = ()
    runs: Sequence[Run] = ()
    holds: Sequence[Hold] = ()
    faults: Sequence[Fault] = ()
    decisions: Sequence[Decision] = ()
    messages: Sequence[SentMessage] = ()
    routine: Sequence[SentMessage] = ()
    """Heartbeats and their answers: drawn only when asked for."""
    labels: Sequence[str] = ()
    links: Sequence[Link] = ()
    chain: Sequence[Signature] = ()
    overlaps: Sequence[Overlap] = ()
    gaps: Sequence[Gap] = ()
    violations: Sequence[Violation] = ()
    calm_ms: float | None = None
    """From here on a trial has no faults."""
    left_out: Sequence[str] = ()
    notes: Sequence[str] = ()
    """What a reader must know: sentences."""
    figures: Sequence[tuple[str, str]] = ()
    known_from_ms: float | None = None
    """From here to `known_to_ms` the rows are all there; elsewhere in the span only `counts` are. None: everywhere."""
    known_to_ms: float | None = None
    counts: Sequence[tuple[int, int]] = ()
    """Of the whole span: from when, and how many events there were in the five minutes from then on."""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        found = {name: list(value) if isinstance(value, tuple | list) else value for name, value in self._zip()}
        return {"timeline": SCHEMA, **found, "nodes": [node._asdict() for node in self.nodes]}

    def _zip(self) -> list[tuple[str, Any]]:
        return list(zip(self._fields, self, strict=True))
