"""Messages as bytes: one msgpack array per message, `[kind, incarnation, boot, list, base, field, ...]`.

The sender's name is not in it: it stands in the datagram's head, and the seal proves it. Two versions of primacy may
meet: fields that are not known here are ignored when they stand behind the known ones, and fields that have a default
may be missing. What cannot be read that way has another `LAYOUT`, which the datagram's head names, so that it is
refused before it is misunderstood.

Bytes of any kind may be handed in: `unpacked` returns None for what is no message of ours, and never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from primacy.election import messages
from primacy.election.messages import Message, Origin, Release
from primacy.election.model import Goal, Member, MembersId, Register
from primacy.election.model import Kind as MemberKind

LAYOUT = 1
NUMBER_MAX = 2**63 - 1
TEXT_CHARS_MAX = 64
"""The longest text is the hash of a list, 32 characters; a name has at most 20."""
LISTS_MAX = 16
NUMBERS_MAX = 16
"""In one message of a user's own strategy."""
VOTERS_MAX = 100
"""As many as a list may have."""
ADDRESS_CHARS_MAX = 270
"""A host name has at most 253 characters; a port follows."""
PRIORITY_MAX = 2**31
MEMBER_KINDS = (MemberKind.VOTER, MemberKind.WITNESS, MemberKind.OBSERVER)
"""In a register by their place here, which never changes."""
ORIGIN_FIELDS = 5
"""Kind included. Which register of members the sender has stands behind all other fields of a message."""


class Unreadable(ValueError):
    """No message of ours. Never leaves this file."""


def _number(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= NUMBER_MAX:
        raise Unreadable("no number of primacy")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Unreadable("neither true nor false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT_CHARS_MAX:
        raise Unreadable("no text of primacy")
    return value


def _row(value: Any, most: int) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise Unreadable("no row of primacy")
    return value


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(_number(number) for number in _row(value, NUMBERS_MAX))


def _lists(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for pair in _row(value, LISTS_MAX):
        digest, voters = _row(pair, 2)
        found.append((_text(digest), tuple(_text(name) for name in _row(voters, VOTERS_MAX))))
    return tuple(found)


def _evidence(value: Any) -> Release | None:
    """A release that a candidate passes on: of another node, so that its name is in it."""
    if value is None:
        return None
    node, incarnation, boot, config, base, term, successor, *more = _row(value, 16)
    members = _members_id(more[0]) if more and _is_members_id(more[0]) else (0, 0)
    origin = Origin(_text(node), _number(incarnation), _number(boot), _text(config), _number(base), members)
    return Release(origin, _number(term), _text(successor))


def _plain_evidence(release: Release | None) -> list[Any] | None:
    if release is None:
        return None
    origin = release.origin
    return [*origin[:-1], release.term, release.successor, *_plain_id(origin)]


def _members_id(value: Any) -> tuple[int, int]:
    term, version = _row(value, 2)
    return _number(term), _number(version)


def _is_members_id(value: Any) -> bool:
    """Else a later version says something there that is not known here."""
    return type(value) is list and len(value) == 2


def _plain_id(origin: Origin) -> list[Any]:
    """Behind all other fields, where earlier versions ignore it; left out without a register."""
    return [] if origin.members == (0, 0) else [list(origin.members)]


def _seen(value: Any) -> tuple[tuple[str, int, int], ...]:
    rows = [_row(row, 3) for row in _row(value, VOTERS_MAX)]
    return tuple((_text(node), _number(incarnation), _number(boot)) for node, incarnation, boot in rows)


def _rows(value: Any) -> list[Member]:
    """Each node once, as often as it has something else said of it: `[name, kind, priority, address]`."""
    found = []
    for row in _row(value, 3 * VOTERS_MAX):
        name, kind, priority, address = _row(row, 4)
        if type(kind) is not int or type(priority) is not int or type(address) is not str:
            raise Unreadable("no member")
        if not 0 <= kind < len(MEMBER_KINDS) or abs(priority) > PRIORITY_MAX or len(address) > ADDRESS_CHARS_MAX:
            raise Unreadable("no member")
        found.append(Member(_text(name), MEMBER_KINDS[kind], priority, 0, address))
    return found


def _members(rows: list[Member], places: Any) -> tuple[Member, ...]:
    """Those rows: sorted and each node once, as a machine relies on."""
    chosen = [_number(place) for place in _row(places, VOTERS_MAX)]
    if any(place >= len(rows) or place < 0 for place in chosen):
        raise Unreadable("no member")
    found = tuple(rows[place] for place in chosen)
    names = [member.id for member in found]
    if "" in names or names != sorted(set(names)):
        raise Unreadable("no members")
    return found


def _register(value: Any) -> Register:
    if type(value) is not list or len(value) < 5:
        raise Unreadable("no register")
    rows = _rows(value[1])
    goal = None
    if value[4] is not None:
        wanted, by, wall_ms = _row(value[4], 3)
        goal = Goal(_members(rows, wanted), _text(by), _number(wall_ms))
    register = Register(MembersId(*_members_id(value[0])), _members(rows, value[2]), _members(rows, value[3]), goal)
    if not register.voters or any(member.kind is MemberKind.OBSERVER for member in register.prior):
        raise Unreadable("no register")
    return register


def _plain_register(register: Register | None) -> list[Any] | None:
    """Members, those before and the goal name mostly the same nodes, so that each is written once."""
    if register is None:
        return None
    goal = register.goal
    wanted = goal.members if goal is not None else ()
    table = {member: place for place, member in enumerate(sorted({*register.members, *register.prior, *wanted}))}

    def places(members: tuple[Member, ...]) -> list[int]:
        return [table[member] for member in members]

    rows = [[m.id, MEMBER_KINDS.index(m.kind), m.priority, m.address] for m in table]
    said = None if goal is None else [places(wanted), goal.by, goal.wall_ms]
    return [list(register.id), rows, places(register.members), places(register.prior), said]


def _register_or_none(value: Any) -> Register | None:
    """None also for what another version says in that place."""
    return _register(value) if type(value) is list else None


def _texts(value: Any) -> tuple[str, ...]:
    if type(value) is not list:
        raise Unreadable("no list of texts")
    return tuple(_text(one) for one in value)


Read = Callable[[Any], Any]
Word = list[Any]


class Kind(NamedTuple):
    """How one kind of message stands on the wire."""

    number: int
    made: Callable[..., Message]
    reads: tuple[Read, ...]
    """One per field after the origin."""
    needed: int
    """Fields that must be there; the others have defaults."""


def _kind(number: int, made: Any, *reads: Read) -> Kind:
    assert len(made._fields) == len(reads) + 1, made
    return Kind(number, made, reads, len(reads) - len(made._field_defaults))


KINDS: tuple[Kind, ...] = (
    _kind(1, messages.VoteRequest, _number, _flag, _evidence),
    _kind(
        2,
        messages.VoteReply,
        *(_number, _flag, _flag, _number, _number, _number, _number, _number, _number, _number),
    ),
    _kind(3, messages.Heartbeat, _number, _number, _number, _flag),
    _kind(4, messages.Ack, _number, _number, _number),
    _kind(5, messages.Ahead, _number),
    _kind(6, messages.Release, _number, _text),
    _kind(7, messages.Query, _flag, _number),
    _kind(
        8,
        messages.Report,
        *(_number, _flag, _flag, _number, _number, _number, _lists, _number, _flag, _register_or_none, _texts, _flag),
    ),
    _kind(9, messages.FirstBallot, _number, _number),
    _kind(10, messages.FirstBallotTaken, _number),
    _kind(11, messages.Stale, _number, _number),
    _kind(12, messages.Own, _number, _text, _numbers),
    _kind(13, messages.FailsafeHeartbeat, _number, _number),
    _kind(14, messages.FailsafeAck, _number, _number, _number),
    _kind(15, messages.MembersTold, _register),
    _kind(16, messages.MembersTaken),
    _kind(17, messages.Admission, _number, _number, _register, _number, _number, _seen),
)
"""Numbers are never used again for something else."""
ABOUT_BLANK = 2
"""The last fields of a report: of one without memory, left out else."""
ABOUT_MEMBERS = 15
"""From this kind on, nothing but the id of the sender's register has ever stood behind the fields."""
_BY_NUMBER = {kind.number: kind for kind in KINDS}
_NUMBER_OF: dict[Any, int] = {kind.made: kind.number for kind in KINDS}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def packed(message: Message) -> bytes:
    """The message without its sender's name. Raft's, a lease's and those of users' own strategies travel by UDP."""
    number = _NUMBER_OF.get(type(message))
    assert number is not None, f"{type(message).__name__} does not travel by UDP"
    fields: list[Any] = list(message[1:])
    origin = message.origin
    if type(message) is messages.VoteRequest:
        fields[2] = _plain_evidence(message.evidence)
    elif type(message) is messages.Report:
        *fields, register, strangers, listens = fields
        blank = [strangers, listens] if strangers or listens else []
        if register is not None or origin.members != (0, 0) or blank:  # else as earlier versions said it
            fields += [_plain_register(register), *blank]
    elif type(message) is messages.MembersTold:
        fields[0] = _plain_register(message.register)
    elif type(message) is messages.Admission:
        fields[2] = _plain_register(message.register)
    return _encode([number, *origin[1:ORIGIN_FIELDS], *fields, *_plain_id(origin)])


def packed_word(row: Word) -> bytes:
    """What is told beside the election."""
    return _encode(row)


def unpacked_word(payload: bytes) -> Word | None:
    """A row of plain values that starts with its kind; what it means is its reader's to judge."""
    try:
        row = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return row if type(row) is list and row and type(row[0]) is int else None


def unpacked(sender: str, payload: bytes) -> Message | None:
    """The message that `sender` sent, or None."""
    try:
        row = _decode(payload)
        if type(row) is not list or len(row) < ORIGIN_FIELDS:
            return None
        kind = _BY_NUMBER.get(row[0]) if type(row[0]) is int else None
        if kind is None:
            return None
        incarnation, boot, config, base = row[1:ORIGIN_FIELDS]
        origin = Origin(sender, _number(incarnation), _number(boot), _text(config), _number(base))
        end = ORIGIN_FIELDS + len(kind.reads)
        fields = row[ORIGIN_FIELDS:end]
        if len(fields) < kind.needed:
            return None
        if kind.made is messages.Report and len(row) < end:
            end -= ABOUT_BLANK
            fields = row[ORIGIN_FIELDS:end]
        if len(row) > end and (_is_members_id(row[end]) or kind.number >= ABOUT_MEMBERS):
            origin = origin._replace(members=_members_id(row[end]))
        return kind.made(origin, *(read(value) for read, value in zip(kind.reads, fields, strict=False)))
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return None
