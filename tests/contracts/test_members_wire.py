"""Registers of members as bytes, on the wire and on the disk: all that can be comes back, nothing else is taken, and
what says nothing of them has the bytes that it had before there were any."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.election.messages import (
    Ack,
    Admission,
    Heartbeat,
    MembersTaken,
    MembersTold,
    Message,
    Origin,
    Release,
    Report,
    VoteRequest,
)
from primacy.election.model import Ballot, Goal, ListRecord, Member, MembersId, Register
from primacy.node import ballot as ballot_file
from primacy.transport import layout
from primacy.transport.seal import DATAGRAM_BYTES_MAX, Sort
from primacy.transport.short import WHOLE_TIMES, Lost, Shorthand, mark_of
from tests.support.members_drawn import numbers, registers
from tests.support.members_harness import members
from tests.support.transport_harness import BIG, seal_of

PLAIN = Origin("a", 3, 4, "list", 5)
NEWER = PLAIN._replace(members=(7, 8))
REGISTER = Register(MembersId(7, 8), members("a b:witness c:2"), members("a b"))


@given(registers, st.tuples(numbers, numbers))
def test_every_register_comes_back_from_the_wire(register: Register, shown: tuple[int, int]) -> None:
    origin = PLAIN._replace(members=shown)
    told: list[Message] = [
        MembersTold(origin, register),
        MembersTaken(origin),
        Admission(origin, 1, 2, register, 3, 4, (("b", 5, 6),)),
        Report(origin, 1, True, True, 2, 3, 4, (("list", ("a",)),), 5, False, register),
        Heartbeat(origin, 1, 2, 3, True),
        VoteRequest(origin, 2, True, Release(origin._replace(node="b"), 1, "c")),
    ]
    for message in told:
        assert layout.unpacked("a", layout.packed(message)) == message


def test_what_says_nothing_of_members_has_the_bytes_of_before() -> None:
    def as_before(number: int, *fields: Any) -> bytes:
        return msgspec.msgpack.encode([number, 3, 4, "list", 5, *fields])

    evidence = ["b", 3, 4, "list", 5, 1, "c"]
    assert layout.packed(Heartbeat(PLAIN, 1, 2, 3, True)) == as_before(3, 1, 2, 3, True)
    assert layout.packed(Ack(PLAIN, 1, 2, 3)) == as_before(4, 1, 2, 3)
    asked = VoteRequest(PLAIN, 2, True, Release(PLAIN._replace(node="b"), 1, "c"))
    assert layout.packed(asked) == as_before(1, 2, True, evidence)
    report = Report(PLAIN, 1, True, True, 2, 3, 4)
    assert layout.packed(report) == as_before(8, 1, True, True, 2, 3, 4, [], 0, False)


@pytest.mark.parametrize("origin", [PLAIN, NEWER])
@pytest.mark.parametrize("register", [None, REGISTER])
@pytest.mark.parametrize("strangers", [(), ("x",), ("x", "y"), ("x", "y", "z")])
@pytest.mark.parametrize("listens", [False, True])
def test_M3_who_was_heard_and_who_still_listens_come_back_from_the_wire(
    origin: Origin, register: Register | None, strangers: tuple[str, ...], listens: bool
) -> None:
    """Beside an id of a register, which is a list of two as well, and without."""
    report = Report(origin, 1, False, False, 0, 3, 4, (), 5, False, register, strangers, listens)
    assert layout.unpacked("a", layout.packed(report)) == report
    row = msgspec.msgpack.decode(layout.packed(report))
    if strangers or listens:
        place = len(row) - 2 - (origin is NEWER)
        for nonsense in ("x", [1], [["x"]], 7):
            assert layout.unpacked("a", msgspec.msgpack.encode([*row[:place], nonsense, *row[place + 1 :]])) is None


def test_an_earlier_version_reads_what_it_knows() -> None:
    row = msgspec.msgpack.decode(layout.packed(Heartbeat(NEWER, 1, 2, 3, True)))
    assert row == [3, 3, 4, "list", 5, 1, 2, 3, True, [7, 8]], "the id stands behind all that was known"


def test_what_a_later_version_says_in_that_place_is_ignored() -> None:
    row = msgspec.msgpack.decode(layout.packed(Heartbeat(PLAIN, 1, 2, 3, True)))
    for more in ("news", [1], [1, 2, 3], None, 7):
        assert layout.unpacked("a", msgspec.msgpack.encode([*row, more])) == Heartbeat(PLAIN, 1, 2, 3, True)


def _changed(place: list[int], value: Any) -> bytes:
    row = msgspec.msgpack.decode(layout.packed(MembersTold(NEWER, REGISTER)))
    inner = row
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return msgspec.msgpack.encode(row)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ([5], None),
        ([5], [1, 2]),
        ([5, 0], [1]),
        ([5, 0], ["x", 1]),
        ([5, 1], []),
        ([5, 1, 0, 0], 5),
        ([5, 1, 0, 0], ""),
        ([5, 1, 0, 1], 3),
        ([5, 1, 0, 1], "voter"),
        ([5, 1, 0, 2], "high"),
        ([5, 1, 0, 3], 7),
        ([5, 1, 0, 3], "h" * 300),
        ([5, 1, 0, 0], "z"),
        ([5, 1, 2, 0], "a"),
        ([5, 2], [0, 9]),
        ([5, 2], [0, -1]),
        ([5, 2], []),
        ([5, 2], [1, 0]),
        ([5, 1, 0, 1], 2),
        ([5, 4], [[], "x"]),
    ],
)
def test_a_register_that_cannot_be_is_no_message(place: list[int], value: Any) -> None:
    assert layout.unpacked("a", _changed(place, value)) is None


def test_the_short_way_says_the_origin_whole_again_when_the_register_changes() -> None:
    talk, other = Shorthand(), Shorthand()
    boot, own = 11, 12
    for _ in range(WHOLE_TIMES):
        other.learn(boot, PLAIN)
        talk.packed(Heartbeat(PLAIN, 1, 2, 3, True), own)
    short = talk.packed(Heartbeat(PLAIN, 1, 3, 3, True), own)
    assert other.unpacked(short, boot, own) == Heartbeat(PLAIN, 1, 3, 3, True)
    whole = talk.packed(Heartbeat(NEWER, 1, 4, 3, True), own)
    assert layout.unpacked("a", whole) == Heartbeat(NEWER, 1, 4, 3, True)
    talk.packed(Heartbeat(NEWER, 1, 5, 3, True), own)
    assert other.unpacked(talk.packed(Heartbeat(NEWER, 1, 6, 3, True), own), boot, own) is Lost.UNKNOWN


def test_the_mark_of_an_origin_without_a_register_is_the_one_of_before() -> None:
    assert mark_of(PLAIN) != mark_of(NEWER)
    assert mark_of(PLAIN) == mark_of(Origin("a", 3, 4, "list", 5, (0, 0)))


def test_five_nodes_in_the_middle_of_a_change_fit_a_datagram() -> None:
    def some(first: int) -> tuple[Member, ...]:
        return tuple(Member(f"node-{n}", address=f"10.0.0.{n}:7946") for n in range(first, first + 5))

    register = Register(MembersId(12, 30), some(1), some(2), Goal(some(1), "root@node-1", 2**41))
    origin = Origin("node-1", 2**41, BIG, "f" * 32, 2**41, (12, 30))
    seen = tuple((member.id, 2**41, BIG) for member in register.members)
    told: list[Message] = [
        MembersTold(origin, register),
        Admission(origin, BIG, 12, register, 3_000, 2**52, seen),
        Report(origin, BIG, True, True, 12, 3_000, 2**52, (), 2**41, False, register),
    ]
    for message in told:
        sealed = seal_of("node-1").sealed(Sort.MESSAGE, "node-2", BIG, layout.packed(message))
        assert len(sealed) <= DATAGRAM_BYTES_MAX


# --- the ballot's file ------------------------------------------------------------------------------------------------

BALLOT = Ballot(5, 7, "", 500, 12, 3, (ListRecord("times", ("a",), True),), register=REGISTER)


def test_a_ballot_without_a_register_has_the_bytes_of_before() -> None:
    body = ballot_file.packed(BALLOT._replace(register=None)).split(b"\n")[1]
    assert "register" not in json.loads(body)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["id", "version"], -1),
        (["id"], None),
        (["members"], []),
        (["members", 0, "kind"], "king"),
        (["members", 0, "id"], "z"),
        (["members", 1, "id"], "a"),
        (["members", 0, "priority"], 1.5),
        (["members", 0, "address"], None),
        (["prior", 0, "kind"], "observer"),
        (["goal"], {"members": []}),
    ],
)
def test_a_register_that_cannot_be_is_no_memory(place: list[Any], value: Any) -> None:
    plain = json.loads(ballot_file.packed(BALLOT).split(b"\n")[1])
    inner = plain["register"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    body = json.dumps(plain, separators=(",", ":")).encode()
    data = f"primacy-ballot 1 {ballot_file._sum(body)}\n".encode() + body + b"\n"
    found = ballot_file.unpacked(data)
    assert found.ballot is None
    assert "no ballot" in found.lost
