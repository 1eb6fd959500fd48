"""Bytes between nodes and between peers and clients: what the code at hand makes of a fixed set of values.

The log has the value and its bytes. A later version is given the same value, under its present names, must make the
same bytes of it, and must read the value back from the bytes that were recorded.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.cache import messages as cache_messages
from primacy.cache import wire, wire_client
from primacy.control import gossip_rows, summary
from primacy.election import messages
from primacy.election.model import Goal, Kind, Member, MembersId, Register
from primacy.transport import layout, seal, short
from tests.behaviour.samples import samples
from tests.behaviour.values import same

BOOT, OTHER_BOOT = 0x1122334455667788, 0x0102030405060708
SECRET = bytes(range(64))
ME, OTHER = "tcp://p1:1", "tcp://p2:1"
UDP = tuple(kind.made for kind in layout.KINDS)
REGISTER = Register(
    MembersId(1_000, 1_077),
    (Member("n1", Kind.VOTER, 2, 0, "h1:1"), Member("n2", Kind.OBSERVER)),
    (Member("n1", Kind.WITNESS),),
    Goal((Member("n1"), Member("n2")), "root@n1", 1_154),
)
"""Not any: sorted, and with a voter."""


class Wire(NamedTuple):
    """One way to write values."""

    values: Callable[[], list[Any]]
    """Only asked when a log is recorded."""
    frames: Callable[[Any], list[bytes]]
    read: Callable[[Any, list[bytes]], Any] | None = None
    """The value and the frames -> what is read from the frames; None: nothing reads it."""


class Datagram(NamedTuple):
    """What is to be sealed."""

    sort: int
    payload: bytes


def _of_all(kinds: typing.Iterable[Any], **fixed: Any) -> list[Any]:
    return [value for kind in kinds for value in samples(kind, **fixed)]


# --- nodes ------------------------------------------------------------------------------------------------------------


def _shortened(message: Any) -> list[bytes]:
    """Whole as often as it must be, then short."""
    talk = short.Shorthand()
    return [talk.packed(message, BOOT) for _ in range(short.WHOLE_TIMES + 1)]


def _read_short(message: Any, frames: list[bytes]) -> Any:
    talk = short.Shorthand()
    talk.learn(OTHER_BOOT, message.origin)
    return talk.unpacked(frames[-1], OTHER_BOOT, BOOT)


def _sealer(node: str, boot: int) -> seal.Seal:
    return seal.Seal("cluster-1", "election-1", node, boot, (SECRET,))


def _datagrams() -> list[Any]:
    return [Datagram(int(sort), b"payload %d" % sort) for sort in seal.Sort]


def _sealed(datagram: Datagram) -> list[bytes]:
    return [_sealer("n1", BOOT).sealed(seal.Sort(datagram.sort), "n2", OTHER_BOOT, datagram.payload)]


def _opened(_: Datagram, frames: list[bytes]) -> Any:
    found = _sealer("n2", OTHER_BOOT).opened(frames[0])
    assert isinstance(found, seal.Opened), found
    return Datagram(int(found.sort), found.payload)


# --- gossip -----------------------------------------------------------------------------------------------------------


def _summaries() -> list[Any]:
    words = [(role, "process", "running", "strong") for role in summary.ROLES]
    words += [
        ("leader", kind, state, how)
        for kind in summary.KINDS
        for state in summary.STATES
        for how in summary.CONTAINMENTS
    ]
    first = samples(
        summary.Summary, role="leader", workload_kind="none", workload_state="running", containment="", config="ab12"
    )[-1]
    return [
        first._replace(role=role, workload_kind=kind, workload_state=state, containment=how)
        for role, kind, state, how in words
    ]


def _told(value: Any) -> list[bytes]:
    match value:
        case summary.Summary():
            row = summary.row_of(value, 77)
        case gossip_rows.GossipEvent():
            row = gossip_rows.event_row(value)
        case gossip_rows.GossipRequest():
            row = gossip_rows.request_row(value)
        case _:
            row = gossip_rows.reply_row(value)
    return [layout.packed_word(row)]


def _heard(value: Any, frames: list[bytes]) -> Any:
    row = layout.unpacked_word(frames[0])
    assert row is not None
    return summary.summary_in(row) if isinstance(value, summary.Summary) else gossip_rows.read(row)


def _gossip() -> list[Any]:
    order = gossip_rows.GossipRequest(12, "transfer", {"to": "n2", "reason": ""})
    return [*_summaries(), *_of_all((gossip_rows.GossipEvent, gossip_rows.GossipReply)), order]


# --- cache ------------------------------------------------------------------------------------------------------------


def _cache_answers() -> list[Any]:
    remark = samples(wire_client.Remark)[-1]
    base = wire_client.Answer(b"id", b"")
    kinds = (b"", b"=", b"#", b"*", b"s", b"!")
    return [base._replace(kind=kind) for kind in kinds] + [
        base._replace(kind=kind, value=b"value", expire_ms=1_234, age_ms=5, servers=("tcp://p1:2",), remark=remark)
        for kind in kinds
    ]


def _cache_read(value: Any, frames: list[bytes]) -> Any:
    if value.trailer is None and frames[2] not in wire.DOCUMENT:
        return value  # only originals say something without a trailer, and not this
    found = wire.Reader(OTHER, [ME]).read(frames)
    assert isinstance(found, wire.Heard), found
    return found.message


WIRES: dict[str, Wire] = {
    "udp": Wire(
        lambda: _of_all(UDP, register=REGISTER),
        lambda value: [layout.packed(value)],
        lambda value, frames: layout.unpacked(value.origin.node, frames[0]),
    ),
    "udp short": Wire(lambda: _of_all((messages.Heartbeat, messages.Ack)), _shortened, _read_short),
    "udp sealed": Wire(_datagrams, _sealed, _opened),
    "gossip": Wire(_gossip, _told, _heard),
    "cache peers": Wire(
        lambda: _of_all(typing.get_args(cache_messages.Message)),
        lambda value: wire.peer_frames(OTHER, ME, value),
        _cache_read,
    ),
    "cache requests": Wire(
        lambda: _of_all(typing.get_args(wire_client.Request)),
        wire_client.request_frames,
        lambda _, frames: wire_client.read_request(frames),
    ),
    "cache answers": Wire(_cache_answers, wire_client.answer_frames),
}


def frames_of(name: str, value: Any) -> list[str]:
    return [frame.hex() for frame in WIRES[name].frames(value)]


def difference(name: str, value: Any, expected: list[str]) -> tuple[object, object] | None:
    """Expected and found, if the code at hand writes or reads it otherwise."""
    found = frames_of(name, value)
    if found != expected:
        return expected, found
    read = WIRES[name].read
    if read is None:
        return None
    again = read(value, [bytes.fromhex(frame) for frame in expected])
    return None if same(value, again) else (f"read: {value!r}", f"read: {again!r}")
