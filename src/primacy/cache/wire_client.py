"""What clients and peers of the cache tell each other, as frames. Pure.

Requests as a DEALER sends them: `[id, command, expiry, key, after, options]`; answers: `[id]` to go on waiting,
`[id, "=", value, expire]`, `[id, "#"]` to ask another peer, `[id, "*", urls]`. These are the original's. Clients of
this product add one frame to a request (`Options`), and only they get one more frame in answers (`Remark`), and answers
of types that an original client does not know. Commands beyond GET and DISCOVER are of this product only; an original
server drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from primacy.cache.model import Ballot
from primacy.cache.wire import (
    FRAMES_MAX,
    LIMITS,
    TAG,
    UNREADABLE,
    URL_CHARS_MAX,
    Bad,
    Dropped,
    Limits,
    Natural,
    Term,
    flag,
    integer,
    number,
    read_flag,
    read_integer,
)

ID_BYTES_MAX = 64
"""The original's ids have at most seven bytes."""
SERVERS_MAX = 1_024
OPTIONS_BYTES_MAX = 1_024
REMARK_BYTES_MAX = 64 * 1024
REASON_CHARS_MAX = 2_000
AGE_BYTES = 6

GET, DISCOVER, INVALIDATE, REFRESH, PUT, CLAIM, STATUS = b"?", b"*", b"x", b"r", b"p", b"c", b"s"
VALUE, SEEOTHER, SERVERS, DONE, CLAIMED, DROPPED_COPY = b"=", b"#", b"*", b"d", b"c", b"x"
COMMANDS = {GET: 4, DISCOVER: 3, INVALIDATE: 6, REFRESH: 5, PUT: 7, CLAIM: 6, STATUS: 6}
"""The frames that a request of each command has at least."""


class Options(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a client of this product adds to a request."""

    within_ms: Term = 0
    """Nobody waits longer than this for the answer; 0: unknown."""
    fetch: bool = True
    """False: what the peer has, or nothing."""
    offers: bool = False
    """The client can fetch the entry itself, if it is given a claim."""
    watches: bool = False
    """The client keeps copies, and wants to be told when one is invalidated."""


class GetRequest(NamedTuple):
    """The entry of this key, if it expires after `after_ms`."""

    id: bytes
    expiry_ms: int
    key: bytes
    after_ms: int = 0
    options: Options | None = None


class DiscoverRequest(NamedTuple):
    """The urls of all peers for clients."""

    id: bytes
    expiry_ms: int


class InvalidateRequest(NamedTuple):
    """Forget this key, or all that begin with it, everywhere."""

    id: bytes
    expiry_ms: int
    key: bytes
    prefix: bool
    options: Options


class RefreshRequest(NamedTuple):
    """Fetch this key anew."""

    id: bytes
    expiry_ms: int
    key: bytes
    options: Options


class PutRequest(NamedTuple):
    """A value that the client brings. `ttl_ms` 0: the peer's own."""

    id: bytes
    expiry_ms: int
    key: bytes
    ttl_ms: int
    value: bytes
    options: Options


class ClaimRequest(NamedTuple):
    """About a claim: its `id` is that of the request that offered to fetch. `state`: `alive`, `value`, `failed`."""

    id: bytes
    expiry_ms: int
    key: bytes
    report: ClaimReport


class ClaimReport(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What becomes of a claim, in the client that has it."""

    term: Term
    peer: Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)]
    boot: Natural
    state: Annotated[str, msgspec.Meta(max_length=16)]
    ttl_ms: Term = 0
    value: bytes = b""
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""

    @property
    def ballot(self) -> Ballot:
        return Ballot(self.term, self.peer, self.boot)


class StatusRequest(NamedTuple):
    """How this peer stands, and its keys that begin with `key`, at most so many."""

    id: bytes
    expiry_ms: int
    key: bytes
    most: int
    options: Options


Request = StatusRequest | GetRequest | DiscoverRequest | InvalidateRequest | RefreshRequest | PutRequest | ClaimRequest


class Remark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a peer adds to an answer, for clients of this product."""

    fetcher: Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)] = ""
    """The url of the peer that fetched the value."""
    stale: bool = False
    """It is not vouched for: expired, or its peer is out of touch."""
    miss: bool = False
    """There is nothing, and nobody was to fetch it; with an error, nobody can: it says why."""
    error: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""
    """Why the source gave no value, or what was asked for was not done."""
    missing: tuple[str, ...] = ()
    """Peers that could not be told."""
    term: Term = 0
    """Of the value's epoch, or of a claim's ballot."""
    boot: Natural = 0
    hold_ms: Term = 0
    """A claim is void this long after it was given, unless it is kept alive."""
    ok: bool = True
    """What was asked for was done."""


class Answer(NamedTuple):
    """One answer of a peer. `kind`: one of the answers above, or empty: go on waiting."""

    id: bytes
    kind: bytes
    value: bytes = b""
    expire_ms: int = 0
    age_ms: int = 0
    servers: tuple[str, ...] = ()
    remark: Remark | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_options = msgspec.msgpack.Decoder(Options).decode
_decode_report = msgspec.msgpack.Decoder(ClaimReport).decode
_decode_remark = msgspec.msgpack.Decoder(Remark).decode
_decode_servers: Callable[[bytes], tuple[str, ...]] = msgspec.msgpack.Decoder(
    Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)], ...],
        msgspec.Meta(max_length=SERVERS_MAX),
    ]
).decode


# --- requests ---------------------------------------------------------------------------------------------------------


def options_frame(options: Options) -> bytes:
    return TAG + _encode(options)


def read_options(frame: bytes) -> Options | None:
    """None: something that an original ignores."""
    if frame[:1] != TAG[:1]:
        return None
    if frame[:2] != TAG:
        raise Bad("options: another version")
    if len(frame) > OPTIONS_BYTES_MAX:
        raise Bad("options: too long")
    try:
        return _decode_options(frame[2:])
    except UNREADABLE:
        raise Bad("options: unreadable") from None


def request_frames(request: Request) -> list[bytes]:
    match request:
        case GetRequest(name, expiry_ms, key, after_ms, options):
            frames = [name, GET, integer(expiry_ms), key]
            if options is not None:
                return [*frames, integer(after_ms), options_frame(options)]
            return [*frames, integer(after_ms)] if after_ms else frames
        case DiscoverRequest(name, expiry_ms):
            return [name, DISCOVER, integer(expiry_ms)]
        case InvalidateRequest(name, expiry_ms, key, prefix, options):
            return [name, INVALIDATE, integer(expiry_ms), key, flag(prefix), options_frame(options)]
        case RefreshRequest(name, expiry_ms, key, options):
            return [name, REFRESH, integer(expiry_ms), key, options_frame(options)]
        case PutRequest(name, expiry_ms, key, ttl_ms, value, options):
            return [name, PUT, integer(expiry_ms), key, integer(ttl_ms), value, options_frame(options)]
        case StatusRequest(name, expiry_ms, key, most, options):
            return [name, STATUS, integer(expiry_ms), key, integer(most), options_frame(options)]
        case ClaimRequest(name, expiry_ms, key, report):
            return [name, CLAIM, integer(expiry_ms), key, report.state.encode(), TAG + _encode(report)]


def read_request(frames: Sequence[bytes], limits: Limits = LIMITS) -> Request | Dropped:
    """Without the identity that the ROUTER puts in front."""
    if not 3 <= len(frames) <= FRAMES_MAX:
        return Dropped("frames: too few" if len(frames) < 3 else "frames: too many")
    name, command = frames[0], frames[1]
    least = COMMANDS.get(command)
    if least is None:
        return Dropped("command: unknown")
    if len(frames) < least:
        return Dropped("frames: too few")
    if len(name) > ID_BYTES_MAX:
        return Dropped("id: too long")
    try:
        expiry_ms = number(frames[2])
        if command == DISCOVER:
            return DiscoverRequest(name, expiry_ms)
        key = frames[3]
        if len(key) > limits.key_bytes_max:
            return Dropped("key: too long")
        if command == GET:
            if not key:
                return Dropped("key: empty")
            after_ms = read_integer(frames[4]) or 0 if len(frames) > 4 else 0
            options = read_options(frames[5]) if len(frames) > 5 else None
            return GetRequest(name, expiry_ms, key, after_ms, options)
        return _own_request(name, command, expiry_ms, frames, limits)
    except Bad as bad:
        return Dropped(bad.reason)


def _own_request(name: bytes, command: bytes, expiry_ms: int, frames: Sequence[bytes], limits: Limits) -> Request:
    key = frames[3]
    prefix = command == INVALIDATE and read_flag(frames[4])
    if not key and not prefix and command != STATUS:
        raise Bad("key: empty")
    if command == CLAIM:
        return ClaimRequest(name, expiry_ms, key, _report(frames[5], limits))
    options = read_options(frames[COMMANDS[command] - 1])
    if options is None:
        raise Bad("options: missing")
    match command:
        case b"x":
            return InvalidateRequest(name, expiry_ms, key, prefix, options)
        case b"s":
            return StatusRequest(name, expiry_ms, key, number(frames[4]), options)
        case b"r":
            return RefreshRequest(name, expiry_ms, key, options)
        case _:
            ttl_ms, value = number(frames[4]), frames[5]
            if len(value) > limits.value_bytes_max:
                raise Bad("value: too long")
            return PutRequest(name, expiry_ms, key, ttl_ms, value, options)


def _report(frame: bytes, limits: Limits) -> ClaimReport:
    if frame[:2] != TAG:
        raise Bad("claim: unreadable")
    if len(frame) > limits.value_bytes_max + REMARK_BYTES_MAX:
        raise Bad("value: too long")
    try:
        report = _decode_report(frame[2:])
    except UNREADABLE:
        raise Bad("claim: unreadable") from None
    if len(report.value) > limits.value_bytes_max:
        raise Bad("value: too long")
    return report


# --- answers ----------------------------------------------------------------------------------------------------------


def remark_frame(remark: Remark, age_ms: int = 0) -> bytes:
    """The age stands in front, so that the rest of it can be kept from answer to answer."""
    return TAG + age_ms.to_bytes(AGE_BYTES, "little") + _encode(remark)


def answer_frames(answer: Answer) -> list[bytes]:
    match answer.kind:
        case b"":
            return [answer.id]
        case b"=":
            frames = [answer.id, VALUE, answer.value, integer(answer.expire_ms)]
        case b"*":
            return [answer.id, SERVERS, _encode(answer.servers)]
        case b"s":
            return [answer.id, STATUS, answer.value]
        case kind:
            frames = [answer.id, kind]
    if answer.remark is not None:
        frames.append(remark_frame(answer.remark, answer.age_ms))
    return frames


def read_answer(frames: Sequence[bytes], limits: Limits = LIMITS) -> Answer | Dropped:
    """As a DEALER gets it."""
    if not 1 <= len(frames) <= FRAMES_MAX:
        return Dropped("frames: too few" if not frames else "frames: too many")
    name = frames[0]
    if len(frames) == 1:
        return Answer(name, b"")
    kind = frames[1]
    try:
        if kind == VALUE:
            if len(frames) < 4:
                return Dropped("frames: too few")
            if len(frames[2]) > limits.value_bytes_max:
                return Dropped("value: too long")
            remark, age_ms = read_remark(frames, 4)
            return Answer(name, VALUE, frames[2], number(frames[3]), age_ms, remark=remark)
        if kind == SERVERS:
            if len(frames) < 3:
                return Dropped("frames: too few")
            return Answer(name, SERVERS, servers=_servers(frames[2]))
        if kind == STATUS and len(frames) > 2:
            return Answer(name, STATUS, frames[2])
        if kind in {SEEOTHER, DONE, CLAIMED}:
            remark, age_ms = read_remark(frames, 2)
            return Answer(name, kind, age_ms=age_ms, remark=remark)
        if kind == DROPPED_COPY and len(frames) > 3:
            return Answer(name, kind, frames[2], expire_ms=int(read_flag(frames[3])))
    except Bad as bad:
        return Dropped(bad.reason)
    return Dropped("answer: unknown")


def read_remark(frames: Sequence[bytes], at: int) -> tuple[Remark | None, int]:
    """The remark and the age, if there is one."""
    if len(frames) <= at or frames[at][:1] != TAG[:1]:
        return None, 0
    frame = frames[at]
    if frame[:2] != TAG or len(frame) > REMARK_BYTES_MAX:
        raise Bad("remark: another version" if frame[:2] != TAG else "remark: too long")
    try:
        found = _decode_remark(frame[2 + AGE_BYTES :])
    except UNREADABLE:
        raise Bad("remark: unreadable") from None
    return found, int.from_bytes(frame[2 : 2 + AGE_BYTES], "little")


def _servers(frame: bytes) -> tuple[str, ...]:
    if len(frame) > REMARK_BYTES_MAX:
        raise Bad("servers: too long")
    try:
        return _decode_servers(frame)
    except UNREADABLE:
        raise Bad("servers: unreadable") from None
