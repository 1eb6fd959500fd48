"""What was read so far, as the pure functions of this package take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primacy.dashboard.rows import Chain, Cluster, Lab, Row

Model = dict[str, Any]


class Read(NamedTuple):
    """What one node answered, and when on our clock."""

    at: str
    document: Cluster | None
    read_ms: int
    """When it was asked: a slow answer must not look newer than it is."""
    failing_since_unix_ms: int = 0
    """0 while it answers."""
    error: str = ""
    took_ms: int = 0
    """Until it had answered: what it said, it said at some moment of these."""


class Plan(NamedTuple):
    """What the file says, as far as a page needs it."""

    text: str = ""
    """The canonical form, secrets removed."""
    source: str = ""
    """The node that told it."""
    heartbeat_ms: int = 0
    hold_ms: int = 0
    term_at_ms: int = 0
    contract: Mapping[str, Any] | None = None
    hashes: Mapping[str, str] = {}
    """By node: the hash of what must agree, of those that were asked."""


class Known(NamedTuple):
    """All that was read so far."""

    now_ms: int
    reads: tuple[Read, ...]
    rows: Sequence[Row] = ()
    plan: Plan = Plan()
    lab: Lab | None = None
    chain: Chain | None = None
    overlapping: tuple[str, ...] = ()
    began: Mapping[str, int] = {}
    """By node: since when, on our clock, it has claimed to act, as far as that was read."""
    gone: Mapping[str, int] = {}
    """By node: when, on our clock, its guard's report arrived that nothing of the command is left."""
    lab_error: str = ""
    """Why the lab itself does not answer; empty while it does. What it said of its processes counts no more then."""

    before: Sequence[Row] = ()
    """How things stood before the rows: of each node and code the last one."""

    @property
    def first(self) -> Cluster:
        return next((read.document for read in self.reads if read.document is not None), Cluster())

    @property
    def at_most_one(self) -> bool:
        return self.first.at_most_one
