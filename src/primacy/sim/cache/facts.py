"""What happened in a trial of the cache, as its checkers see it. Closed.

Facts say what was done in true time: which call ran when, which value was given to whom, what stands in a storage.
What a machine believes is no fact. Every value of a trial is made once and has a number, so that it can be traced to
the call or the put that it comes from.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.cache.model import Ballot, Floor, Meta


class Up(NamedTuple):
    """A boot began. `kept`: what the storage still has of each key with a value."""

    at_ms: float
    peer: str
    boot: int
    kept: tuple[tuple[bytes, Meta], ...] = ()
    forgot: bool = False
    """The storage has no ceiling above every term in which this peer has ever said something: it was lost, or could not
    be written."""
    wall_ms: int = 0
    ceiling: int | None = None


class Down(NamedTuple):
    """A process ended; its calls ended with it."""

    at_ms: float
    peer: str
    boot: int


class Frozen(NamedTuple):
    """A process makes no step from now on (`on`), or makes steps again."""

    at_ms: float
    peer: str
    on: bool


class CallBegan(NamedTuple):
    """A source is called. `number` is that of the value that it will give, if it gives one."""

    at_ms: float
    peer: str
    key: bytes
    ballot: Ballot
    number: int
    wall_ms: int
    """The caller's wall clock at the step that decided it."""
    ttl_ms: int
    """What the result will say, or the setting."""


class CallCounts(NamedTuple):
    """Whether the call counts as running (S1). A coroutine of a frozen process does not run. One that wakes up after
    it should have been cancelled is fenced and never counts again; a child process always counts."""

    at_ms: float
    number: int
    on: bool


class CallOver(NamedTuple):
    """Nothing of the call runs any more."""

    at_ms: float
    number: int
    within_hold: bool
    """It was over by the time at which it had to be."""


class LateExtend(NamedTuple):
    """A machine prolonged a call after the moment at which it was to be cancelled (C4)."""

    at_ms: float
    peer: str
    key: bytes


class PutBrought(NamedTuple):
    """A client brought a value with this number to a peer."""

    at_ms: float
    peer: str
    key: bytes
    number: int
    ttl_ms: int


class ValueStored(NamedTuple):
    """A peer took a value."""

    at_ms: float
    peer: str
    key: bytes
    meta: Meta
    number: int
    wall_ms: int
    late_ms: int
    """For a value of a call of this very peer: how long its hold was over at this moment; 0 or less: it stood."""


class MetaStored(NamedTuple):
    """A peer noted what it knows of a key, without a value."""

    at_ms: float
    peer: str
    key: bytes
    meta: Meta


class ValueDropped(NamedTuple):
    """A peer gave up a value that its storage still had. `meta` is what the storage knew."""

    at_ms: float
    peer: str
    key: bytes
    meta: Meta
    wall_ms: int
    floors: tuple[Floor, ...]
    """That the peer had applied."""


class Floored(NamedTuple):
    """A floor holds on a peer from now on (C11): it takes and gives nothing at or below it."""

    at_ms: float
    peer: str
    floor: Floor


class Acked(NamedTuple):
    """A peer promised itself to this ballot (C5)."""

    at_ms: float
    peer: str
    key: bytes
    ballot: Ballot
    promise_ms: float
    """True time for which the promise surely runs."""


class Ended(NamedTuple):
    """A peer told all that this ballot of its own is over (C7), or sent its value to all."""

    at_ms: float
    peer: str
    key: bytes
    ballot: Ballot


class BadOrder(NamedTuple):
    """A peer said what it had not made durable before (C2, C11), although it has a storage that works."""

    at_ms: float
    peer: str
    what: str


class Asked(NamedTuple):
    """A request reached a machine."""

    at_ms: float
    peer: str
    request: int
    key: bytes
    until_ms: float
    """True time at which the client stops waiting."""


class Given(NamedTuple):
    """A value was given to a client."""

    at_ms: float
    peer: str
    request: int
    key: bytes
    meta: Meta
    number: int
    fresh: bool
    """It was called fresh."""
    wanted: bool
    """The client had asked for a fresh one, by the peer's own wall clock at that time."""
    after_ms: int
    """What the client had asked for: an expiry later than this. 0: any copy."""
    wall_ms: int


class Word(NamedTuple):
    """Another word to a client: keep-alive, see-other, refuse, finished."""

    at_ms: float
    peer: str
    request: int
    what: str
    ok: bool = False
    missing: tuple[str, ...] = ()


class Missed(NamedTuple):
    """A client that would take any copy was told that there is none, although the storage has one."""

    at_ms: float
    peer: str
    key: bytes
    meta: Meta


class Withdrew(NamedTuple):
    """Nobody waits for this request any more."""

    at_ms: float
    peer: str
    request: int


class Ordered(NamedTuple):
    """A client's invalidate, refresh, put or reload reached a machine."""

    at_ms: float
    peer: str
    request: int
    what: str
    key: bytes
    prefix: bool
    until_ms: float


class Echoed(NamedTuple):
    """One input from the wire made a peer send several messages to one receiver (E1)."""

    at_ms: float
    peer: str
    what: str
    messages: int


class ClientDone(NamedTuple):
    """A client has its answer, or has given up. `number` -1: none."""

    at_ms: float
    key: bytes
    asked_ms: float
    deadline_ms: float
    number: int
    outcome: str


class Calm(NamedTuple):
    """Everything is healed: from now on nothing is lost, no process ends, sources work."""

    at_ms: float
    peers: tuple[str, ...]
    """Those that are up and connected from now on."""


Fact = (
    Up
    | Down
    | Frozen
    | CallBegan
    | CallCounts
    | CallOver
    | LateExtend
    | PutBrought
    | ValueStored
    | MetaStored
    | ValueDropped
    | Floored
    | Acked
    | Ended
    | BadOrder
    | Asked
    | Given
    | Word
    | Missed
    | Withdrew
    | Ordered
    | Echoed
    | ClientDone
    | Calm
)
