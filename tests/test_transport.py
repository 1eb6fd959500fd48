"""Datagrams: what is sealed arrives, and nothing else is heard (A01-A05, A08, A13, A14, A16)."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ports import free_ports

from primacy.cli.new import write_secret
from primacy.election.messages import (
    Ack,
    Ahead,
    Beat,
    FailsafeAck,
    FailsafeBeat,
    FirstBallot,
    FirstBallotTaken,
    Message,
    Origin,
    Own,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.errors import CannotHere, InUse, UsageError
from primacy.transport import MemoryNet, MemoryTransport, Transport, layout, seal
from primacy.transport.layout import packed, unpacked
from primacy.transport.seal import (
    DATAGRAM_BYTES_MAX,
    STARTS_MAX,
    WINDOW,
    Drop,
    Opened,
    Seal,
    Sort,
    Window,
    Windows,
    read_secret,
    read_secrets,
)
from primacy.transport.short import Lost, Shorthand, mark_of
from primacy.transport.udp import GREETING_S, Address, UdpTransport

LIMIT_S = 60.0
"""For whatever must come; a name that nobody knows takes long where no name server answers."""
SECRET, OTHER = b"0123456789abcdefghijklmnopqrstuv", b"vutsrqponmlkjihgfedcba9876543210"
CHANCES = 10
"""So many times may be long because of the machine: a sweep of garbage, a stall that counts as work. What is slow in
itself is so more often among thousands."""
BIG = 2**62 - 1
ORIGIN = Origin("node-of-twenty-chars", BIG, BIG, "f" * 32, 2**52)
RELEASE = Release(ORIGIN, BIG, "another-of-twenty-ch")
EVERY: tuple[Message, ...] = (
    VoteRequest(ORIGIN, BIG, True),
    VoteRequest(ORIGIN, 3, False, RELEASE._replace(origin=ORIGIN._replace(node="b"))),
    VoteReply(ORIGIN, 3, True, True, BIG, 2, 40, 1, 3_000, 2**53 - 1, 9),
    VoteReply(ORIGIN, 3, True, False, BIG, 2),
    Beat(ORIGIN, BIG, BIG, 86_400_000, True),
    Ack(ORIGIN, BIG, BIG, BIG),
    Ahead(ORIGIN, 7),
    RELEASE,
    Query(ORIGIN, False),
    Report(ORIGIN, BIG, True, True, BIG, 86_400_000, 2**53 - 1, (("e" * 32, ("a", "b", "c")), ("d" * 32, ("a",))), 4),
    Report(ORIGIN, 1, False, False, 0, 0, 0),
    FirstBallot(ORIGIN, 2**52, BIG),
    FirstBallotTaken(ORIGIN, 2**52),
    Stale(ORIGIN, BIG, 9),
    Own(ORIGIN, BIG, "w" * 64, (BIG,) * 16),
    Own(ORIGIN, 1),
    FailsafeBeat(ORIGIN, 2**53 - 1, BIG),
    FailsafeAck(ORIGIN, 2**53 - 1, BIG, BIG),
)


def seal_of(node: str = "a", boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,), **more: str) -> Seal:
    return Seal(more.get("cluster", "lab"), more.get("election", "main"), node, boot, secrets)


# --- layout -----------------------------------------------------------------------------------------------------------


def test_every_message_comes_back_as_it_was_and_fits() -> None:
    assert {type(message) for message in EVERY} == {kind.made for kind in layout.KINDS}
    for message in EVERY:
        payload = packed(message)
        assert unpacked(ORIGIN.node, payload) == message
        name = ORIGIN.node
        assert len(seal_of(name).sealed(Sort.MESSAGE, name, BIG, payload)) <= DATAGRAM_BYTES_MAX


def test_fields_of_a_later_version_are_ignored_and_those_with_a_default_may_be_missing() -> None:
    for message in EVERY:
        row = msgspec.msgpack.decode(packed(message))
        assert unpacked(ORIGIN.node, msgspec.msgpack.encode([*row, "new", {"x": [1]}])) == message
        kind = next(kind for kind in layout.KINDS if kind.made is type(message))
        least = layout.ORIGIN_FIELDS + kind.needed
        assert type(unpacked(ORIGIN.node, msgspec.msgpack.encode(row[:least]))) is type(message)
        assert unpacked(ORIGIN.node, msgspec.msgpack.encode(row[: least - 1])) is None


@pytest.mark.parametrize(
    "value", [None, 2**64 - 1, -2, 1.5, float("nan"), "", "x" * 70, b"\xff", [], [[[]]], {}, True, {"a": 1}]
)
def test_a_field_of_another_kind_is_no_message(value: Any) -> None:
    """Every field of every message, replaced: either that is a value that may stand there, or nothing is read."""
    for message in EVERY:
        row = msgspec.msgpack.decode(packed(message))
        for place in range(len(row)):
            changed = [*row[:place], value, *row[place + 1 :]]
            found = unpacked(ORIGIN.node, msgspec.msgpack.encode(changed))
            if found is not None and place:
                assert msgspec.msgpack.decode(packed(found)) == changed, (message, place)


def test_A08_garbage_is_never_read_and_never_raises() -> None:
    chance = random.Random(8)
    whole = [packed(message) for message in EVERY]
    took_s = []
    for turn in range(4_000):
        if turn % 2:
            data = chance.randbytes(chance.randrange(0, 600))
        else:
            parts = bytearray(chance.choice(whole))
            for _ in range(chance.randrange(1, 5)):
                parts[chance.randrange(len(parts))] = chance.randrange(256)
            data = bytes(parts[: chance.randrange(len(parts) + 1)])
        began_s = time.thread_time()
        unpacked("b", data)
        took_s.append(time.thread_time() - began_s)
    for data in (b"", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xa1\xff", b"\x95\x03"):
        assert unpacked("b", data) is None
    assert sorted(took_s)[-CHANCES] < 0.1


# --- seals ------------------------------------------------------------------------------------------------------------


def test_what_was_sealed_for_a_node_is_opened_by_it() -> None:
    data = seal_of("a", 5).sealed(Sort.MESSAGE, "b", 6, b"payload")
    assert seal_of("b", 6).opened(data) == Opened(Sort.MESSAGE, "a", 5, 6, 1, b"payload")


def test_A01_A02_every_flipped_byte_of_every_message_and_every_cut_is_noticed() -> None:
    receiver = seal_of("b")
    for message in EVERY:
        for sort in Sort:
            data = seal_of("a").sealed(sort, "b", 1, packed(message))
            assert isinstance(receiver.opened(data), Opened)
            for place in range(len(data)):
                for mask in (0x01, 0x80, 0xFF):
                    flipped = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
                    assert isinstance(receiver.opened(flipped), Drop)
                assert isinstance(receiver.opened(data[:place]), Drop)
            assert isinstance(receiver.opened(data + b"\0"), Drop)


def test_A05_thrown_back_or_of_another_cluster_election_receiver_or_secret() -> None:
    data = seal_of("a").sealed(Sort.MESSAGE, "b", 1, packed(EVERY[0]))
    for wrong in (
        seal_of("a"),
        seal_of("c"),
        seal_of("b", cluster="lab2"),
        seal_of("b", election="other"),
        seal_of("b", secrets=(OTHER,)),
        seal_of("b", cluster="la", election="bmain"),
    ):
        assert wrong.opened(data) == Drop("seal")


def test_A08_sizes_that_cannot_be() -> None:
    receiver = seal_of("b")
    chance = random.Random(9)
    for size in (0, 1, 20, 45, 513, 65_507):
        assert receiver.opened(chance.randbytes(size)) == Drop("size")
    for _ in range(2_000):
        assert isinstance(receiver.opened(chance.randbytes(chance.randrange(600))), Drop)


def test_a_layout_of_tomorrow_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = seal_of("a"), seal_of("b")
    with monkeypatch.context() as tomorrow:
        tomorrow.setattr(seal, "LAYOUT", 2)
        data = sender.sealed(Sort.MESSAGE, "b", 1, b"what may stand here then")
    assert receiver.opened(data) == Drop("layout", "a", 2)


def test_A03_each_counter_is_new_once_and_only_within_the_window() -> None:
    window = Window()
    assert [window.is_new(n) for n in (1, 2, 2, 5, 3, 3, 5, 1)] == [True, True, False, True, True, False, False, False]
    assert window.is_new(5 + WINDOW)
    assert not window.is_new(5)
    assert window.is_new(6)
    assert window.is_new(10**18)
    assert not window.is_new(7)
    chance = random.Random(3)
    window, heard = Window(), set()
    for _ in range(10_000):
        counter = max(1, window.highest + chance.randrange(-2 * WINDOW, 40))
        fits = counter not in heard and counter > window.highest - WINDOW
        assert window.is_new(counter) is fits
        heard.add(counter)


def test_A03_the_start_that_was_forgotten_is_over() -> None:
    windows = Windows()
    for boot in range(STARTS_MAX + 3):
        assert windows.is_new(boot, 1)
    for boot in range(STARTS_MAX + 3):
        assert not windows.is_new(boot, 1)
    assert windows.is_new(STARTS_MAX, 2)
    assert not windows.is_new(0, 2)


def test_A16_a_secret_is_changed_without_a_moment_in_which_two_nodes_do_not_understand_each_other() -> None:
    steps = ((SECRET,), (SECRET, OTHER), (OTHER, SECRET), (OTHER,))
    for before, after in pairwise(steps):
        for one, two in ((before, before), (before, after), (after, before), (after, after)):
            data = seal_of("a", secrets=one).sealed(Sort.MESSAGE, "b", 1, b"")
            assert isinstance(seal_of("b", secrets=two).opened(data), Opened)
    data = seal_of("a", secrets=steps[0]).sealed(Sort.MESSAGE, "b", 1, b"")
    assert seal_of("b", secrets=steps[-1]).opened(data) == Drop("seal")


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_A13_A14_a_secret_is_long_random_and_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(UsageError, match="primacy keygen"):
        read_secret(str(path))
    write_secret(path)
    assert len(read_secret(str(path))) == 64
    assert read_secrets(str(path)) == (read_secret(str(path)),)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(CannotHere, match=r"others can read it .* chmod 600"):
            read_secret(str(path))
    path.chmod(0o600)
    for weak in (b"", b"short", b"a" * 64, b"0123456789abcdef" * 2, b"abcd" * 20, b"x" * 5_000):
        path.write_bytes(weak)
        with pytest.raises(UsageError, match="keygen") as raised:
            read_secret(str(path))
        assert not weak or weak.decode() not in str(raised.value)
    with pytest.raises(CannotHere, match="no plain file"):
        read_secret(str(tmp_path))


def test_the_other_secret_is_read_beside_the_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path)
    write_secret(tmp_path / "secret.other")
    first, second = read_secrets(str(path))
    assert first != second
    os.chmod(tmp_path / "secret.other", 0o644)
    with pytest.raises(CannotHere, match=r"secret\.other: others can read it"):
        read_secrets(str(path))


# --- the port, both ways ----------------------------------------------------------------------------------------------


class Pair:
    """Two nodes that hear each other, over either transport."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.heard: dict[str, list[Message]] = {"a": [], "b": []}
        self.words: dict[str, list[tuple[str, list[Any]]]] = {"a": [], "b": []}
        self.complaints: list[str] = []
        self.net = MemoryNet()
        self.ends: dict[str, Transport] = {}
        self.ports = dict(zip("ab", free_ports(2), strict=True))

    def make(self, node: str, boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,)) -> Transport:
        other = "b" if node == "a" else "a"
        if self.kind == "memory":
            return MemoryTransport(self.net, node, (other,))
        to = {other: Address("127.0.0.1", self.ports[other])}
        here = Address("127.0.0.1", self.ports[node])
        return UdpTransport(seal_of(node, boot, secrets), here, to, self.complaints.append)

    async def start(self, node: str, boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,)) -> Any:
        self.ends[node] = self.make(node, boot, secrets)
        words = self.words[node]
        await self.ends[node].start(self.heard[node].append, lambda sender, boot, row: words.append((sender, row)))
        return self.ends[node]

    async def until(self, check: Callable[[], Any]) -> None:
        last_s = time.monotonic() + LIMIT_S
        while not check() and time.monotonic() < last_s:
            self.net.deliver()
            await asyncio.sleep(0.001)
        assert check(), (self.heard, [end.counters for end in self.ends.values()], self.complaints)

    def close(self) -> None:
        for end in self.ends.values():
            end.close()
            end.close()


def play(story: Callable[[Pair], Awaitable[None]], kind: str = "udp") -> None:
    async def whole() -> None:
        pair = Pair(kind)
        try:
            await story(pair)
        finally:
            pair.close()

    asyncio.run(whole())


def beat(node: str, number: int) -> Beat:
    return Beat(Origin(node, 1, 1, "hash", 1), 1, number, 1_000, True)


@pytest.mark.parametrize("kind", ["memory", "udp"])
def test_the_contract_of_a_transport(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", beat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 1)])
        for number in range(2, 30):
            b.send("a", beat("b", number))
        await pair.until(lambda: len(pair.heard["a"]) == 28)
        assert {message.origin.node for message in pair.heard["a"]} == {"b"}
        a.send("nobody", beat("a", 1))
        assert a.counters["unsent"] == 1
        assert a.counters["sent"] >= 1
        assert b.counters["received"] == 1
        ((data, host, port),) = a.ready_release(Release(ORIGIN._replace(node="a"), 1))
        assert data
        assert host
        assert isinstance(port, int)
        b.close()
        for number in range(5):  # nobody is there: nothing happens
            a.send("b", beat("a", number))
            await asyncio.sleep(0.001)
        a.close()
        a.send("b", beat("a", 9))
        assert len(pair.heard["b"]) == 1

    play(story, kind)


@pytest.mark.parametrize("kind", ["memory", "udp"])
def test_a_cut_link_is_cut_one_way_or_both_and_mended(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        numbers = iter(range(1, 100))

        async def crosses(sender: Transport, receiver: Transport, to: str) -> bool:
            """Whether a message arrives; if not, whether it was counted as cut."""
            number, cuts = next(numbers), (sender.counters.get("cut", 0), receiver.counters.get("cut", 0))
            sender.send(to, message := beat("b" if to == "a" else "a", number))
            await pair.until(
                lambda: (
                    message in pair.heard[to]
                    or (sender.counters.get("cut", 0), receiver.counters.get("cut", 0)) != cuts
                )
            )
            return message in pair.heard[to]

        assert await crosses(a, b, "b")
        for way, from_a, from_b in (("in", True, False), ("out", False, True), ("both", False, False)):
            a.links.cut("b", way)
            assert a.links.way("b") == way
            assert (await crosses(a, b, "b"), await crosses(b, a, "a")) == (from_a, from_b), way
            ready = a.ready_release(Release(ORIGIN._replace(node="a"), 1))
            assert len(ready) == (1 if from_a else 0), "what the guard is handed is cut as well"
        a.links.cut("b", "none")
        assert (await crosses(a, b, "b"), await crosses(b, a, "a")) == (True, True)
        a.links.cut("b", "both")
        a.links.heal()
        assert a.links.way("b") == "none"

    play(story, kind)


def test_a_release_by_a_guard_does_not_cross_a_cut_link() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        ((data, _, port),) = a.ready_release(Release(ORIGIN._replace(node="a"), 4))
        b.links.cut("a", "in")
        thrown([data], port)
        await pair.until(lambda: b.counters.get("cut") == 1)
        b.links.heal()
        thrown([data], port)
        await pair.until(lambda: len(pair.heard["b"]) == 1)

    play(story)


def test_a_release_is_sent_by_somebody_else_from_another_port_and_as_often_as_one_likes() -> None:
    async def story(pair: Pair) -> None:
        a = await pair.start("a", 11)
        release = Release(ORIGIN._replace(node="a"), 4, "b")
        ready = a.ready_release(release)
        a.close()
        b = await pair.start("b", 99)  # which never heard of a
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guard:
            for _ in range(2):
                for data, host, port in ready:
                    guard.sendto(data, (host, port))
        await pair.until(lambda: pair.heard["b"] == [release, release])
        assert b.counters == {"received": 2}

    play(story)


class Recorded:
    """Notes what one end puts on the wire."""

    def __init__(self, end: UdpTransport) -> None:
        self.datagrams: list[bytes] = []
        put = end._put

        def noted(peer: Any, data: bytes) -> None:
            self.datagrams.append(data)
            put(peer, data)

        end._put = noted  # type: ignore[method-assign]


def thrown(datagrams: list[bytes], port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for data in datagrams:
            out.sendto(data, ("127.0.0.1", port))


def test_A03_A04_nothing_recorded_is_heard_again_neither_in_this_start_nor_in_the_next() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        wire = Recorded(a)
        for number in range(200):
            a.send("b", beat("a", number))
            await asyncio.sleep(0)
        await pair.until(lambda: beat("a", 199) in pair.heard["b"])
        heard = list(pair.heard["b"])
        count = len(wire.datagrams)
        for at in range(0, count, 50):
            thrown(wire.datagrams[at : at + 50], pair.ports["b"])
            await asyncio.sleep(0.01)
        counters = b.counters
        await pair.until(lambda: counters.get("replay", 0) + counters.get("other-boot", 0) >= count)
        assert pair.heard["b"] == heard

        b.close()
        b = await pair.start("b", 13)
        for at in range(0, count, 50):
            thrown(wire.datagrams[at : at + 50], pair.ports["b"])
            await asyncio.sleep(0.01)
        await pair.until(lambda: b.counters.get("other-boot", 0) >= count)
        assert pair.heard["b"] == heard
        await pair.until(lambda: a.peers["b"].boot == 13)  # told by a greeting, to a's own address
        a.send("b", beat("a", 200))
        await pair.until(lambda: pair.heard["b"] == [*heard, beat("a", 200)])

    play(story)


def test_the_first_word_to_a_node_that_started_anew_is_not_lost() -> None:
    """Two followers do not speak for hours; then one asks the other, which was restarted meanwhile, for its vote."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", beat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 1)])
        b.close()
        b = await pair.start("b", 13)
        a.send("b", beat("a", 2))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 1), beat("a", 2)])
        assert b.counters["other-boot"] == 1

    play(story)


def ack(node: str, number: int, leader_boot: int) -> Ack:
    return Ack(Origin(node, 1, 1, "hash", 1), 1, number, leader_boot)


def test_what_goes_round_all_the_time_is_short_and_means_the_same() -> None:
    """Whole at first and after every change of the origin; a receiver that missed it asks, and nothing is lost."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        wire, back = Recorded(a), Recorded(b)
        origin = Origin("a", 1, 2**61, "0" * 32, 1_790_000_000_000)
        sent: list[Message] = [Beat(origin, 1, number, 1_000, True) for number in range(1, 9)]
        sent += [Beat(origin._replace(incarnation=2), 1, 9, 1_000, True)] * 4
        for number, message in enumerate(sent, 1):
            a.send("b", message)
            await pair.until(lambda number=number: len(pair.heard["b"]) == number)
        assert pair.heard["b"] == sent
        whole, short = len(wire.datagrams[1]), len(wire.datagrams[7])
        assert short < 64 < whole
        for leader_boot in (11, 11, 11, 2**61):
            b.send("a", ack("b", 3, leader_boot))
        await pair.until(lambda: pair.heard["a"] == [ack("b", 3, boot) for boot in (11, 11, 11, 2**61)])
        assert len(back.datagrams[-2]) == len(back.datagrams[-1]) - 8

        await asyncio.sleep(2 * GREETING_S)
        b.peers["a"].short._heard.clear()  # a believes that b knows, and it does not
        a.send("b", sent[-1])
        await pair.until(lambda: len(pair.heard["b"]) == len(sent) + 1)
        assert pair.heard["b"][-1] == sent[-1]
        assert b.counters["origin-unknown"] == 1

    play(story)


def test_A08_a_short_message_that_is_none_of_ours_is_dropped() -> None:
    short = Shorthand()
    short.learn(5, ORIGIN)
    mark = mark_of(ORIGIN)
    encode = msgspec.msgpack.encode
    assert short.unpacked(encode((0x43, mark, 1, 2, 3, True)), 5, 9) == Beat(ORIGIN, 1, 2, 3, True)
    assert short.unpacked(encode((0x44, mark, 1, 2, 0)), 5, 9) == Ack(ORIGIN, 1, 2, 9)
    assert short.unpacked(encode((0x43, mark, 1, 2, 3, True, "later", {})), 5, 9) == Beat(ORIGIN, 1, 2, 3, True)
    assert short.unpacked(encode((0x44, mark, 1, 2, 0, "later")), 5, 9) == Ack(ORIGIN, 1, 2, 9)
    assert short.unpacked(encode((0x44, mark, 1, 2, 0)), 6, 9) is Lost.UNKNOWN
    assert short.unpacked(encode((0x44, mark ^ 1, 1, 2, 0)), 5, 9) is Lost.UNKNOWN
    for row in [(0x43, mark, 1, 2, 3), (0x43, mark, 1, 2, 3, 1), (0x44, mark, -1, 2, 0), (0x44, mark, 2**63, 2, 0)]:
        assert short.unpacked(encode(row), 5, 9) is Lost.WRONG, row
    for cut in range(2, 8):
        assert short.unpacked(encode((0x44, mark, 1, 2, 0))[:cut], 5, 9) is Lost.WRONG
    for boot in range(100):
        short.learn(boot, ORIGIN)
    assert len(short._heard) <= 8


def test_a_word_in_no_hurry_is_carried_along_or_goes_alone() -> None:
    async def story(pair: Pair) -> None:
        words: list[tuple[str, int, list[Any]]] = []
        a, b = await pair.start("a", 11), pair.make("b", 12)
        pair.ends["b"] = b
        await b.start(pair.heard["b"].append, lambda *word: words.append(word))
        for number in range(1, 5):
            a.send("b", beat("a", number))
            await pair.until(lambda number=number: len(pair.heard["b"]) == number)
        wire = Recorded(a)
        a.tell("b", [1, "first"], later=True)
        a.tell("b", [1, "second"], later=True)
        assert not wire.datagrams
        a.send("b", beat("a", 5))
        await pair.until(lambda: words == [("a", 11, [1, "second"])])
        assert pair.heard["b"][-1] == beat("a", 5)
        assert len(wire.datagrams) == 1
        a.tell("b", [1, "alone"], later=True)
        await pair.until(lambda: words[-1] == ("a", 11, [1, "alone"]))
        assert len(wire.datagrams) == 2
        a.tell("b", [1, "x" * 400], later=True)
        a.send("b", beat("a", 6))
        await pair.until(lambda: len(words) == 3)
        assert pair.heard["b"][-1] == beat("a", 6)

    play(story)


def test_what_goes_round_all_the_time_takes_the_short_way_with_and_without_a_word() -> None:
    """And what was recorded of it is not heard again there either."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        for number in range(1, 5):
            a.send("b", beat("a", number))
            await pair.until(lambda number=number: len(pair.heard["b"]) == number)
        wire, long_way = Recorded(a), list[bytes]()
        take = b._take

        def taken(data: bytes, *more: Any) -> bool:
            long_way.append(data)
            return bool(take(data, *more))

        b._take = taken
        a.send("b", beat("a", 5))
        a.tell("b", [1, "word"], later=True)
        a.send("b", beat("a", 6))
        await pair.until(lambda: pair.heard["b"][4:] == [beat("a", 5), beat("a", 6)])
        assert pair.words["b"] == [("a", [1, "word"])]
        assert long_way == []
        before = b.counters["received"]
        for data in wire.datagrams:
            a.peers["b"].socket.send(data)
        await pair.until(lambda: b.counters.get("dropped-replay", b.counters.get("replay")) == 2)
        assert (b.counters["received"], len(pair.heard["b"]), len(pair.words["b"])) == (before, 6, 1)
        assert long_way == wire.datagrams

    play(story)


@pytest.mark.parametrize("kind", ["memory", "udp"])
def test_a_word_reaches_the_other_node_and_no_strategy(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", beat("a", 1))
        b.send("a", beat("b", 1))
        await pair.until(lambda: pair.heard["a"] and pair.heard["b"])
        start = a.tell("b", [1, "x", None, {"y": [2]}])
        assert start
        await pair.until(lambda: pair.words["b"] == [("a", [1, "x", None, {"y": [2]}])])
        assert len(pair.heard["b"]) == 1
        assert a.tell("nobody", [1]) == 0
        a.links.cut("b", "out")
        a.tell("b", [2])
        a.links.heal()
        a.tell("b", [3])
        await pair.until(lambda: pair.words["b"][1:] == [("a", [3])])
        if kind == "udp":
            assert a.tell("b", [4], only=start + 1) == start, "not told to another start"
            a.tell("b", [5], only=start)
            await pair.until(lambda: pair.words["b"][2:] == [("a", [5])])

    play(story, kind)


def test_A03_A04_no_recorded_word_is_heard_again_neither_in_this_start_nor_in_the_next() -> None:
    """An order that was recorded cannot be given a second time."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", beat("a", 1))
        b.send("a", beat("b", 1))
        await pair.until(lambda: pair.heard["a"] and pair.heard["b"])
        wire = Recorded(a)
        for number in range(20):
            a.tell("b", [3, number, "pause", "{}"])
        await pair.until(lambda: len(pair.words["b"]) == 20)
        thrown(wire.datagrams, pair.ports["b"])
        await pair.until(lambda: b.counters.get("replay", 0) >= 20)
        b.close()
        b = await pair.start("b", 13)
        thrown(wire.datagrams, pair.ports["b"])
        await pair.until(lambda: b.counters.get("other-boot", 0) >= 20)
        assert len(pair.words["b"]) == 20

    play(story)


def test_a_word_that_cannot_be_read_and_a_sort_of_tomorrow_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        b.send("a", beat("b", 1))
        a.send("b", beat("a", 1))
        await pair.until(lambda: pair.heard["a"] and pair.heard["b"])
        for number, payload in enumerate((b"", b"\xc1", b"\x90", b"\x91\xa1x", b"\x81\x01\x02")):
            thrown([seal_of("a", 70 + number).sealed(Sort.WORD, "b", 12, payload)], pair.ports["b"])
        thrown([seal_of("a", 80).sealed(9, "b", 12, b"\x91\x01")], pair.ports["b"])  # type: ignore[arg-type]
        await pair.until(lambda: (b.counters.get("payload"), b.counters.get("unknown")) == (5, 1))
        assert pair.words["b"] == []
        assert len(pair.heard["b"]) == 1

    play(story)


def test_A01_A09_strangers_are_counted_by_kind_and_never_answered() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", beat("a", 1))
        await pair.until(lambda: pair.heard["b"])
        good = seal_of("a", 11).sealed(Sort.MESSAGE, "b", 12, packed(beat("a", 2)))
        stranger = seal_of("x", 1).sealed(Sort.MESSAGE, "b", 12, packed(beat("x", 1)))
        empty = seal_of("a", 77).sealed(Sort.MESSAGE, "b", 12, b"\xc1")
        hidden = seal_of("a", 78).sealed(Sort.MESSAGE, "b", 12, packed(Release(ORIGIN, 3)))
        junk = [b"", b"GET / HTTP/1.1\r\n" * 4, bytes(2_000), good[:-1] + b"?", stranger, empty, hidden]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.settimeout(0.2)
            for data in junk:
                out.sendto(data, ("127.0.0.1", pair.ports["b"]))
            await pair.until(lambda: b.counters.get("payload") == 2)
            with pytest.raises(TimeoutError):
                out.recv(1)
        counters = {name: b.counters.get(name) for name in ("size", "foreign", "seal", "stranger", "payload")}
        assert counters == {"size": 2, "foreign": 1, "seal": 1, "stranger": 1, "payload": 2}
        assert len(pair.heard["b"]) == 1
        await pair.until(lambda: any("dropped datagrams: 1 foreign" in line for line in pair.complaints))

    play(story)


def test_another_secret_is_said_with_the_node_and_the_rotation_goes_through() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12, (OTHER,))
        a.send("b", beat("a", 1))
        await pair.until(lambda: b.counters.get("seal"))
        assert "what comes from node a has no good seal" in pair.complaints[0]
        b.close()
        b = await pair.start("b", 13, (OTHER, SECRET))
        a.close()
        a = await pair.start("a", 14, (SECRET, OTHER))
        a.send("b", beat("a", 2))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 2)])

    play(story)


def test_two_layouts_in_one_cluster_refuse_each_other_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        with monkeypatch.context() as tomorrow:
            tomorrow.setattr(seal, "LAYOUT", 2)
            a.send("b", beat("a", 1))
            a.send("b", beat("a", 2))
        await pair.until(lambda: b.counters.get("layout") == 2)
        (said,) = pair.complaints
        assert said.startswith("node a speaks layout 2, and this version of primacy layout 1: they do not hear each")
        assert said.endswith("upgrade this node")
        assert pair.heard["b"] == []
        a.close()
        a = await pair.start("a", 15)  # downgraded
        a.send("b", beat("a", 3))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 3)])

    play(story)


def test_a_port_in_use_an_address_of_another_machine_and_a_name_that_nobody_knows() -> None:
    async def story(pair: Pair) -> None:
        await pair.start("a", 11)
        with pytest.raises(InUse, match="is in use"):
            await pair.make("a", 12).start(pair.heard["a"].append)
        foreign = UdpTransport(seal_of("b"), Address("203.0.113.9", 7400), {}, pair.complaints.append)
        with pytest.raises(CannotHere, match="say `bind` as well"):
            await foreign.start(pair.heard["b"].append)
        unknown = {"a": Address("no-such-name.invalid", 7400)}
        here = Address.of(f"127.0.0.1:{pair.ports['b']}")
        b = pair.ends["b"] = UdpTransport(seal_of("b"), here, unknown, pair.complaints.append)
        await b.start(pair.heard["b"].append)
        b.send("a", beat("b", 1))
        await pair.until(lambda: pair.complaints)
        assert pair.complaints == ["node a: its address no-such-name.invalid:7400 cannot be resolved yet"]
        assert b.counters == {"unsent": 1}
        b.peers["a"].dialled = Address("localhost", pair.ports["a"])  # the name is entered
        await pair.until(lambda: b.peers["a"].address is not None)

    play(story)


@pytest.mark.parametrize(("listen", "dialled"), [("0.0.0.0", "127.0.0.1"), ("", "localhost"), ("::1", "::1")])
def test_every_way_to_write_an_address_leads_to_the_other_node(listen: str, dialled: str) -> None:
    if listen == "::1" and not has_ipv6():
        pytest.skip("no IPv6 on this machine")

    async def story(pair: Pair) -> None:
        for node, other in ("ab", "ba"):
            here, there = Address(listen, pair.ports[node]), Address(dialled, pair.ports[other])
            pair.ends[node] = UdpTransport(seal_of(node, ord(node)), here, {other: there}, pair.complaints.append)
            await pair.ends[node].start(pair.heard[node].append)
        await pair.until(lambda: all(end.ready_release(RELEASE) for end in pair.ends.values()))
        pair.ends["a"].send("b", beat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [beat("a", 1)])
        pair.ends["b"].send("a", beat("b", 1))
        await pair.until(lambda: pair.heard["a"] == [beat("b", 1)])
        assert pair.complaints == []

    play(story)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_nobody_else_can_join_the_port() -> None:
    """Our own sockets share it; afterwards it is closed to whoever asks to share it, too."""

    async def story(pair: Pair) -> None:
        await pair.start("a", 11)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                thief.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError, match="in use"):
                thief.bind(("127.0.0.1", pair.ports["a"]))

    play(story)


def test_addresses_as_they_stand_in_the_file() -> None:
    assert Address.of("10.0.0.1:7400") == ("10.0.0.1", 7400)
    assert Address.of("[::1]:7400") == ("::1", 7400)
    assert str(Address.of("[::1]:7400")) == "[::1]:7400"
    assert Address.of(":7400") == ("", 7400)
