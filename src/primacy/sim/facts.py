"""What happened in a simulated trial, as the checkers, the trace and the counters see it.

Checkers decide from facts alone, never from a machine's inside: what a node believes plays no role, what its work
does in true time does. Kinds are closed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What sort of fact."""

    WORK_STARTED = "work-started"
    WORK_ENDED = "work-ended"
    EVENT = "event"
    VOTE = "vote"
    BAD_ORDER = "bad-order"
    UP = "up"
    DOWN = "down"
    ROLE = "role"
    LEADER = "leader"
    FAULT = "fault"
    CALM = "calm"
    FROZEN = "frozen"
    """The whole machine is frozen: its work exists and does nothing."""
    THAWED = "thawed"
    RELEASE_SENT = "release-sent"
    REGISTER = "register"
    """A register of members is durable on a node: `subject` is its id, `detail` the rest of it."""


MEMORY_LOST = "memory lost"
"""Text of the fault after which nothing is left of a node's ballot; the node was ended before it."""


OLDER = " after "
"""In a fact: between the id of a register that was saved and that of the newer one whose place it takes."""


class Fact(NamedTuple):
    """One fact at a true time. `number` and `text` depend on the kind; see where it is emitted."""

    at_ms: float
    kind: Kind
    node: str
    number: int = 0
    text: str = ""
    extra: int = 0
    subject: str = ""
    detail: str = ""
