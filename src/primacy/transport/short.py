"""The two messages that go round all the time, heartbeats and acks, in few bytes: without what their receiver knows
already.

A message begins with its origin, which is the same in all messages of one start, but for rare changes. A sender says it
whole at first and whenever it changes, and then only its mark, four bytes of a hash. The receiver remembers the origin
that goes with a mark, for each start of a sender. One that does not know it (the whole one was lost) answers with a
greeting, and the last message is said again, whole: nothing is ever guessed, and nothing waits.

An ack names the boot of the leader that it is for: nearly always that of its receiver, which stands in the datagram's
head. Then it is left out, too. As in the layout, what a later version says behind the known fields is ignored.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Annotated, Any

import msgspec

from primacy.election.messages import Ack, Heartbeat, Message, Origin
from primacy.transport.layout import NUMBER_MAX, packed

HEARTBEAT, ACK = 0x43, 0x44
"""Kinds of their own, beside those of the layout. Both are one byte in msgpack, the second one of the payload."""
WHOLE_TIMES = 2
"""So often an origin is said whole to a start that may not have heard it."""
STARTS_MAX = 8
"""Starts of one sender that are remembered."""

_made = tuple.__new__
"""A NamedTuple from its fields, without the function that gives them their names."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_heartbeat = msgspec.msgpack.Decoder(tuple[int, _Number, _Number, _Number, _Number, bool]).decode
_ack = msgspec.msgpack.Decoder(tuple[int, _Number, _Number, _Number, _Number]).decode


class Lost(Enum):
    """Why a short message could not be read."""

    UNKNOWN = "its origin was never said whole"
    WRONG = "it is no message of primacy"


def mark_of(origin: Origin) -> int:
    """Without a register of members, the mark that earlier versions know it by."""
    said = origin[:-1] if origin.members == (0, 0) else origin
    return int.from_bytes(hashlib.blake2b(_encode(said), digest_size=4).digest(), "big")


class Shorthand:
    """What one node and we may leave out when we speak to each other."""

    def __init__(self) -> None:
        self._told: Origin | None = None
        self._told_mark = 0
        self._told_boot = 0
        self._whole_left = WHOLE_TIMES
        self._heard: dict[int, tuple[int, Origin]] = {}

    def packed(self, message: Heartbeat | Ack, boot: int) -> bytes:
        """For this start of it; short if that start has heard the origin, as far as we know."""
        origin = message.origin
        if (origin is not self._told and origin != self._told) or boot != self._told_boot:
            self._told, self._told_boot, self._told_mark = origin, boot, mark_of(origin)
            self._whole_left = WHOLE_TIMES
        if self._whole_left or not boot:
            self._whole_left = max(0, self._whole_left - 1)
            return packed(message)
        if isinstance(message, Heartbeat):
            return _encode((HEARTBEAT, self._told_mark, *message[1:]))
        leader_boot = 0 if message.leader_boot == boot else message.leader_boot
        return _encode((ACK, self._told_mark, message.term, message.number, leader_boot))

    def say_whole(self) -> None:
        """It does not know the origin."""
        self._told = None

    def learn(self, boot: int, origin: Origin) -> None:
        """A message of this start said its origin whole."""
        known = self._heard.get(boot)
        if known is not None and known[1] == origin:
            return
        if known is None and len(self._heard) >= STARTS_MAX:
            del self._heard[next(iter(self._heard))]
        self._heard[boot] = mark_of(origin), origin

    def read(self, payload: bytes, boot: int, own_boot: int) -> Message | None:
        """A short message of this start, if all is as always; None says nothing but that `unpacked` must look."""
        known = self._heard.get(boot)
        if known is None or len(payload) < 2:
            return None
        try:
            if payload[1] == HEARTBEAT:
                _, mark, term, number, hold_ms, settled = _heartbeat(payload)
                return _made(Heartbeat, (known[1], term, number, hold_ms, settled)) if mark == known[0] else None
            if payload[1] == ACK:
                _, mark, term, number, leader_boot = _ack(payload)
                return _made(Ack, (known[1], term, number, leader_boot or own_boot)) if mark == known[0] else None
        except msgspec.MsgspecError:
            pass
        return None

    def unpacked(self, payload: bytes, boot: int, own_boot: int) -> Message | Lost:
        """A short message of this start."""
        known_mark, origin = self._heard.get(boot, (-1, None))
        settled: Any = False
        try:
            row = _decode(payload)
            if payload[1] == HEARTBEAT:
                _, mark, term, number, last, settled = row[:6]
            else:
                _, mark, term, number, last = row[:5]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return Lost.WRONG
        if type(settled) is not bool or not all(
            type(each) is int and 0 <= each <= NUMBER_MAX for each in (mark, term, number, last)
        ):
            return Lost.WRONG
        if origin is None or mark != known_mark:
            return Lost.UNKNOWN
        if payload[1] == HEARTBEAT:
            return Heartbeat(origin, term, number, last, settled)
        return Ack(origin, term, number, last or own_boot)


def is_short(payload: bytes) -> bool:
    return len(payload) > 1 and payload[1] in (HEARTBEAT, ACK)
