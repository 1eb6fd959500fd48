"""Peer messages as frames of ZeroMQ, and back. Pure. The client's half stands in `wire_client.py`.

`[target, sender, type, body ..., trailer]`: the first three and the bodies of the first seven types are those of the
original, byte for byte. The trailer is one more frame, which originals ignore: two bytes that say that it is one of
this product and of which version, then msgpack. Further frames behind it are left to others (a seal).

Integers are little-endian in base 256, as short as can be. A reader takes zero bytes at the end, as the original does,
and nothing above 2^53 - 1. Frames of any kind may be handed in: what is no message of a listed peer to this one comes
back as `Dropped`, with a reason that can be counted, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NamedTuple, assert_never

import msgspec

from primacy.cache import messages
from primacy.cache.messages import Message, Trailer
from primacy.cache.model import ALL, NO_BALLOT, TERM_MAX, Ballot, Floor

TAG = b"\xc1\x01"
"""How every frame begins that this product adds: a byte that msgpack never uses, and a version."""
INTEGER_BYTES_MAX = 32
"""Seven are enough; the original takes any number of zero bytes behind them."""
URL_CHARS_MAX = 512
FLOORS_MAX = 1_024
"""In one message. The machine's pages are smaller."""
TRAILER_BYTES_MAX = 4_096
FRAMES_MAX = 16
"""Parts of one message; the longest that is sent has nine."""
HEAD = 3


class Limits(NamedTuple):
    """The largest key and value that are taken from the wire."""

    key_bytes_max: int = 8_192
    """Too small: clients with longer keys are not answered. Too large: each key may cost that much memory."""
    value_bytes_max: int = 16 * 1024 * 1024
    """Too small: larger results of the source are failures. Too large: one value may cost that much memory, often."""


LIMITS = Limits()
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot read."""


class Bad(Exception):
    """No message. Never leaves this file, nor `wire_client.py`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Dropped(NamedTuple):
    """What came is of no use. `reason` is one of few, so that it can be counted."""

    reason: str


class Heard(NamedTuple):
    """A message of a listed peer, to this one or to all."""

    sender: str
    message: Message


def integer(number: int) -> bytes:
    """As short as can be; zero is one byte."""
    assert 0 <= number <= TERM_MAX, f"{number} does not fit on the wire"
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "little")


def read_integer(frame: bytes) -> int | None:
    """None: empty, which is no number."""
    if not frame:
        return None
    if len(frame) > INTEGER_BYTES_MAX:
        raise Bad("integer: too long")
    number = int.from_bytes(frame, "little")
    if number > TERM_MAX:
        raise Bad("integer: too large")
    return number


def number(frame: bytes) -> int:
    """A field that must be there."""
    found = read_integer(frame)
    if found is None:
        raise Bad("integer: empty")
    return found


def flag(value: bool) -> bytes:
    return b"\x01" if value else b""


def read_flag(frame: bytes) -> bool:
    """A first byte that is not zero."""
    return bool(frame) and frame[0] != 0


# --- the trailer ------------------------------------------------------------------------------------------------------

Natural = Annotated[int, msgspec.Meta(ge=0)]
Term = Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]


class _Ballot(NamedTuple):
    term: Term
    peer: Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)]
    boot: Natural


class _Trailer(msgspec.Struct, array_like=True, gc=False):
    """The fields of `Trailer`, in its order, with their bounds. A later version may add fields at the end."""

    membership: Natural
    previous: Natural
    boot: Natural
    echo: Natural
    ballot: _Ballot
    number: Natural
    epoch: _Ballot
    need: Term
    wait_ms: Term
    ended: bool
    digest: Natural
    since: Term
    wall_ms: Term
    fetched_ms: Term
    floor: Term
    pending: Natural = 0
    missing: bool = False


assert _Trailer.__struct_fields__ == Trailer._fields, "the trailer of the wire is that of the messages"

_encode = msgspec.msgpack.Encoder().encode
_decode_trailer = msgspec.msgpack.Decoder(_Trailer).decode


def trailer_frame(trailer: Trailer) -> bytes:
    return TAG + _encode(tuple(trailer))


def read_trailer(frame: bytes) -> Trailer | None:
    """None: no trailer of this product, hence something that an original ignores."""
    if frame[:1] != TAG[:1]:
        return None
    if frame[:2] != TAG:
        raise Bad("trailer: another version")
    if len(frame) > TRAILER_BYTES_MAX:
        raise Bad("trailer: too long")
    try:
        found = _decode_trailer(frame[2:])
    except UNREADABLE:
        raise Bad("trailer: unreadable") from None
    fields = list(msgspec.structs.astuple(found))
    fields[4], fields[6] = _ballot(found.ballot), _ballot(found.epoch)
    return Trailer(*fields)


def _ballot(found: _Ballot) -> Ballot:
    return Ballot(*found) if found.peer else NO_BALLOT


# --- out --------------------------------------------------------------------------------------------------------------


class _Floor(NamedTuple):
    key: bytes
    prefix: bool
    term: Term


_decode_floors: Callable[[bytes], list[_Floor]] = msgspec.msgpack.Decoder(
    Annotated[list[_Floor], msgspec.Meta(max_length=FLOORS_MAX)]
).decode


class _Numbered(NamedTuple):
    key: bytes
    term: Term
    number: Natural


NUMBERED_MAX = 128
"""Keys of one gathered message."""
_decode_numbered: Callable[[bytes], list[_Numbered]] = msgspec.msgpack.Decoder(
    Annotated[list[_Numbered], msgspec.Meta(min_length=1, max_length=NUMBERED_MAX)]
).decode


def peer_frames(to: str, sender: str, message: Message) -> list[bytes]:
    """The message as it is sent. `to`: the url of a peer, or `*`."""
    match message:
        case messages.Question(key, term):
            body = [b"Q", key, integer(term)]
        case messages.Answer(key, term, expire_ms, vote):
            body = [b"A", key, integer(term), integer(expire_ms), flag(vote)]
        case messages.EntryRequest(key):
            body = [b"E", key]
        case messages.Update(key, term, expire_ms, value):
            body = [b"=", key, integer(term), integer(expire_ms), value]
        case messages.Announce(key, term, expire_ms):
            body = [b"!", key, integer(term), integer(expire_ms)]
        case messages.Ping():
            body = [b"."]
        case messages.Pong():
            body = [b"-"]
        case messages.Ack(key):
            body = [b"k", key]
        case messages.Announces(keys):
            body = [b"N", _encode(keys)]
        case messages.Acks(keys):
            body = [b"K", _encode(keys)]
        case messages.FloorQuery(key, prefix, request):
            body = [b"f", key, flag(prefix), integer(request)]
        case messages.FloorAnswer(key, prefix, request, term):
            body = [b"g", key, flag(prefix), integer(request), integer(term)]
        case messages.FloorSet(floor, request):
            body = [b"F", floor.key, flag(floor.prefix), integer(floor.term), integer(request)]
        case messages.FloorAck(floor, request, highest):
            body = [b"G", floor.key, flag(floor.prefix), integer(floor.term), integer(request), integer(highest)]
        case messages.FloorsRequest(after):
            body = [b"r", after]
        case messages.Floors(floors, more):
            body = [b"L", _encode(floors), flag(more)]
        case _:
            assert_never(message)
    frames = [to.encode(), sender.encode(), *body]
    if message.trailer is not None:
        frames.append(trailer_frame(message.trailer))
    return frames


BUNDLE = b"b"
"""Several messages to one target, in one: `[target, sender, "b", [[type, body ..., trailer], ...]]`. Among peers of
this product only. A hundred keys that are fetched at once cost one send for their ANNOUNCEs, and one for their ACKs."""
BUNDLED_MAX = 128
BUNDLED_BYTES_MAX = 256 * 1024
_decode_bundle: Callable[[bytes], list[list[bytes]]] = msgspec.msgpack.Decoder(
    Annotated[
        list[Annotated[list[bytes], msgspec.Meta(min_length=1, max_length=FRAMES_MAX)]],
        msgspec.Meta(min_length=1, max_length=BUNDLED_MAX),
    ]
).decode


def bundle_frames(to: str, sender: str, bodies: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Messages without their target and sender, as one."""
    return [to.encode(), sender.encode(), BUNDLE, TAG + _encode(bodies)]


DOCUMENT = frozenset((b"Q", b"A", b"E", b"=", b"!", b".", b"-"))
"""Types of the original; the others are spoken among peers of this product, and have a trailer."""
BODY = {
    b"Q": 2,
    b"A": 4,
    b"E": 1,
    b"=": 4,
    b"!": 3,
    b".": 0,
    b"-": 0,
    b"k": 1,
    b"N": 1,
    b"K": 1,
    b"f": 3,
    b"g": 4,
    b"F": 4,
    b"G": 5,
    b"r": 1,
    b"L": 2,
}
"""How many frames stand between the type and the trailer."""

# --- in ---------------------------------------------------------------------------------------------------------------


class Reader:
    """Reads what reaches one peer. `peers`: the urls of the others."""

    def __init__(self, me: str, peers: Iterable[str], limits: Limits = LIMITS) -> None:
        self._targets = (me.encode(), ALL.encode())
        self._senders = {url.encode(): url for url in peers if url != me}
        self._key_bytes_max, self._value_bytes_max = limits

    def read_all(self, frames: Sequence[bytes]) -> list[Heard | Dropped]:
        """One message, or all of a bundle."""
        if len(frames) <= HEAD or frames[2] != BUNDLE:
            return [self.read(frames)]
        if frames[0] not in self._targets:
            return [Dropped("target: another peer")]
        if frames[1] not in self._senders:
            return [Dropped("sender: not in the list")]
        packed = frames[HEAD]
        if packed[:2] != TAG or len(packed) > BUNDLED_BYTES_MAX + TRAILER_BYTES_MAX:
            return [Dropped("bundle: unreadable")]
        try:
            bodies = _decode_bundle(packed[2:])
        except UNREADABLE:
            return [Dropped("bundle: unreadable")]
        return [self.read([frames[0], frames[1], *body]) for body in bodies]

    def read(self, frames: Sequence[bytes]) -> Heard | Dropped:
        """A subscription is a prefix, so that the target is compared once more, wholly. The sender is a claim."""
        if not HEAD <= len(frames) <= FRAMES_MAX:
            return Dropped("frames: too few" if len(frames) < HEAD else "frames: too many")
        if frames[0] not in self._targets:
            return Dropped("target: another peer")
        sender = self._senders.get(frames[1])
        if sender is None:
            return Dropped("sender: not in the list")
        kind = frames[2]
        count = BODY.get(kind)
        if count is None:
            return Dropped("type: unknown")
        end = HEAD + count
        if len(frames) < end:
            return Dropped("frames: too few")
        try:
            trailer = read_trailer(frames[end]) if len(frames) > end else None
            if kind in DOCUMENT:
                return Heard(sender, self._document(kind, frames[HEAD:end], trailer))
            if trailer is None:
                return Dropped("trailer: missing")
            return Heard(sender, self._own(kind, frames[HEAD:end], trailer))
        except Bad as bad:
            return Dropped(bad.reason)

    def _document(self, kind: bytes, body: Sequence[bytes], trailer: Trailer | None) -> Message:
        match kind:
            case b"Q":
                return messages.Question(self._key(body[0]), number(body[1]), trailer)
            case b"A":
                term, expire_ms = number(body[1]), number(body[2])
                return messages.Answer(self._key(body[0]), term, expire_ms, read_flag(body[3]), trailer)
            case b"!":
                return messages.Announce(self._key(body[0]), number(body[1]), number(body[2]), trailer)
            case b"=":
                if len(body[3]) > self._value_bytes_max:
                    raise Bad("value: too long")
                return messages.Update(self._key(body[0]), number(body[1]), number(body[2]), body[3], trailer)
            case b"E":
                return messages.EntryRequest(self._key(body[0]), trailer)
            case b".":
                return messages.Ping(trailer)
            case _:
                return messages.Pong(trailer)

    def _own(self, kind: bytes, body: Sequence[bytes], trailer: Trailer) -> Message:
        match kind:
            case b"k":
                return messages.Ack(self._key(body[0]), trailer)
            case b"N":
                return messages.Announces(self._numbered(body[0]), trailer)
            case b"K":
                return messages.Acks(self._numbered(body[0]), trailer)
            case b"f":
                prefix = read_flag(body[1])
                return messages.FloorQuery(self._key(body[0], prefix), prefix, number(body[2]), trailer)
            case b"g":
                prefix = read_flag(body[1])
                key = self._key(body[0], prefix)
                return messages.FloorAnswer(key, prefix, number(body[2]), number(body[3]), trailer)
            case b"F":
                return messages.FloorSet(self._floor(body), number(body[3]), trailer)
            case b"G":
                return messages.FloorAck(self._floor(body), number(body[3]), number(body[4]), trailer)
            case b"r":
                return messages.FloorsRequest(self._key(body[0], empty=True), trailer)
            case _:
                return messages.Floors(self._floors(body[0]), read_flag(body[1]), trailer)

    def _key(self, key: bytes, empty: bool = False) -> bytes:
        """`empty`: allowed, for it is a prefix or the beginning of an order."""
        if not key and not empty:
            raise Bad("key: empty")
        if len(key) > self._key_bytes_max:
            raise Bad("key: too long")
        return key

    def _numbered(self, frame: bytes) -> tuple[messages.Numbered, ...]:
        if len(frame) > BUNDLED_BYTES_MAX:
            raise Bad("keys: too long")
        try:
            found = _decode_numbered(frame)
        except UNREADABLE:
            raise Bad("keys: unreadable") from None
        return tuple(messages.Numbered(self._key(key), term, number) for key, term, number in found)

    def _floor(self, body: Sequence[bytes]) -> Floor:
        prefix = read_flag(body[1])
        return Floor(self._key(body[0], prefix), prefix, number(body[2]))

    def _floors(self, frame: bytes) -> tuple[Floor, ...]:
        if len(frame) > max(self._value_bytes_max, BUNDLED_BYTES_MAX):
            raise Bad("floors: too long")
        try:
            found = _decode_floors(frame)
        except UNREADABLE:
            raise Bad("floors: unreadable") from None
        return tuple(Floor(self._key(key, prefix), prefix, term) for key, prefix, term in found)
