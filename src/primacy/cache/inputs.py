"""What the machine of a cache peer can be told. Closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primacy.cache.messages import Message
from primacy.cache.model import Ballot, Failure, Fetched, Floor, Meta, PeerAddress


class Started(NamedTuple):
    """The first input of a boot: what the storage has kept. Values stay in the storage."""

    boot: int
    """Differs from every other boot of this peer: from the system's randomness."""
    metas: Mapping[bytes, Meta]
    floors: tuple[Floor, ...] = ()
    ceiling: int | None = None
    """The highest term that may have been used (C2); None: no memory of it, so nothing is known."""


class TimerPassed(NamedTuple):
    """The clock reached `deadline_ms`. May come late or early."""


class Received(NamedTuple):
    """A message of a listed peer, aimed at this one. `sender` is its url."""

    sender: str
    message: Message


class Asked(NamedTuple):
    """A client asks. Every request is answered exactly once by `Give`, `SeeOther` or `Refuse`, after any number of
    `KeepAlive`, unless it is `Withdrawn`."""

    request: int
    key: bytes
    after_ms: int = 0
    """Unix ms: the value must expire later than this. 0: any copy, however stale; now: a fresh one."""
    fetch: bool = True
    """False: what is here or nothing; no election."""
    offers: bool = False
    """The client can fetch it itself, if it is given a claim."""
    until_ms: int | None = None
    """On the machine's clock: nobody waits afterwards."""


class Withdrawn(NamedTuple):
    """Nobody waits for this request any more."""

    request: int


class SourceEnded(NamedTuple):
    """The call of this ballot is over, and nothing of it runs any more: with a result, by itself or after `Cancel`."""

    key: bytes
    ballot: Ballot
    result: Fetched | Failure


class CeilingStored(NamedTuple):
    """The ceiling is durable; or could not be made so (`ok` False: the disk)."""

    ceiling: int
    ok: bool = True


class FloorStored(NamedTuple):
    """The floor is durable and the old values are gone; or it could not be made so."""

    floor: Floor
    ok: bool = True


class ValueGone(NamedTuple):
    """The storage has no value of this epoch any more: evicted, or unreadable. One that came meanwhile stays."""

    key: bytes
    epoch: Ballot


class Invalidate(NamedTuple):
    """A client or operator wants everything of this key (or prefix) forgotten everywhere. Answered by `Finished`."""

    request: int
    key: bytes
    prefix: bool = False
    until_ms: int | None = None


class Refresh(NamedTuple):
    """Fetch anew, although the value is fresh. Answered by `Finished`."""

    request: int
    key: bytes
    until_ms: int | None = None


class Put(NamedTuple):
    """A client brings a value itself, by an election of its own. Answered by `Finished`."""

    request: int
    key: bytes
    value: bytes
    ttl_ms: int
    until_ms: int | None = None


class Reload(NamedTuple):
    """The list of peers has changed in the file (C10). `force`: without waiting for the others."""

    request: int
    peers: tuple[PeerAddress, ...]
    force: bool = False


Input = (
    Started
    | TimerPassed
    | Received
    | Asked
    | Withdrawn
    | SourceEnded
    | CeilingStored
    | FloorStored
    | ValueGone
    | Invalidate
    | Refresh
    | Put
    | Reload
)
