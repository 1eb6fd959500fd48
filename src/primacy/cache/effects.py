"""What the machine of a cache peer can ask for, in order. Closed.

Performed one after the other; a crash may fall between any two. Storing is asked for and not waited for: what must be
durable before something is said, the machine says only once it was told so (`CeilingStored`, `FloorStored`).
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.cache.messages import Message
from primacy.cache.model import Ballot, Floor, Meta, PeerAddress


class Send(NamedTuple):
    """To one peer by its url, or to all (`*`). It may be lost, repeated, late."""

    to: str
    message: Message


class SendEntry(NamedTuple):
    """Send this UPDATE with the stored value of the key, if it is still of this meta's epoch; otherwise `ValueGone`."""

    to: str
    message: Message
    meta: Meta


class StoreEntry(NamedTuple):
    """Keep the value, then its meta. In this order, lazily: a lost value costs a retrieval."""

    key: bytes
    meta: Meta
    value: bytes


class StoreMeta(NamedTuple):
    """Keep the meta, lazily. The value stays as it is."""

    key: bytes
    meta: Meta


class DropValue(NamedTuple):
    """Forget the value, keep the meta (C8)."""

    key: bytes
    meta: Meta


class Forget(NamedTuple):
    """Forget value and meta: nothing of this key can come back any more."""

    key: bytes


class StoreCeiling(NamedTuple):
    """Make this number durable and say so by `CeilingStored`."""

    ceiling: int


class StoreFloor(NamedTuple):
    """Make the floor durable, drop the values that it kills, and say so by `FloorStored`."""

    floor: Floor


class ForgetFloor(NamedTuple):
    """This floor is older than every value that may still exist."""

    floor: Floor


class Call(NamedTuple):
    """Call the source for this key, once. `requests`: waiting clients that offered to fetch it themselves."""

    key: bytes
    ballot: Ballot
    cancel_at_ms: int
    """On the machine's clock, as things are now; moved by `Extend`. A call that runs then is cancelled."""
    over_at_ms: int
    """By then it is confirmed over, or the process ends (C4)."""
    offers: tuple[int, ...] = ()


class Extend(NamedTuple):
    """The hold of this call was proved anew: its two times move, never back."""

    key: bytes
    ballot: Ballot
    cancel_at_ms: int
    over_at_ms: int


class Cancel(NamedTuple):
    """End this call now, and say by `SourceEnded` when nothing of it runs any more."""

    key: bytes
    ballot: Ballot
    over_at_ms: int


class Give(NamedTuple):
    """Answer the request with the stored value of this key; `ValueGone` if it cannot be read, then the request is
    asked again."""

    request: int
    key: bytes
    meta: Meta
    stale: bool


class KeepAlive(NamedTuple):
    """Tell the client to go on waiting."""

    request: int


class SeeOther(NamedTuple):
    """Tell the client to ask another peer."""

    request: int
    miss: bool = False
    """`fetch` was False and there is nothing."""


class Refuse(NamedTuple):
    """Tell the client why there is no value. Originals' clients get SEEOTHER instead."""

    request: int
    reason: str
    miss: bool = False
    """Nothing failed: no peer has it, and nobody can fetch it, or the source has no such entry."""


class Finished(NamedTuple):
    """An `Invalidate`, `Refresh`, `Put` or `Reload` has ended. `missing`: urls of peers that could not be told."""

    request: int
    ok: bool
    reason: str = ""
    missing: tuple[str, ...] = ()


class Membership(NamedTuple):
    """The list has changed: connect to these, disconnect from others."""

    peers: tuple[PeerAddress, ...]


class Record(NamedTuple):
    """Note a fact: `event` is one of the names in docs, `fields` its values."""

    event: str
    key: bytes
    detail: str


Effect = (
    Send
    | SendEntry
    | StoreEntry
    | StoreMeta
    | DropValue
    | Forget
    | StoreCeiling
    | StoreFloor
    | ForgetFloor
    | Call
    | Extend
    | Cancel
    | Give
    | KeepAlive
    | SeeOther
    | Refuse
    | Finished
    | Membership
    | Record
)
