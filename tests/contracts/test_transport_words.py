"""What goes round all the time is short; words beside the election are carried along, and never heard twice."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from primacy.election.messages import (
    Ack,
    Heartbeat,
    Message,
    Origin,
)
from primacy.transport.seal import (
    Sort,
)
from primacy.transport.short import Lost, Shorthand, mark_of
from primacy.transport.udp import GREETING_S
from tests.support.transport_harness import ORIGIN, Pair, Recorded, heartbeat, play, seal_of, thrown


def ack(node: str, number: int, leader_boot: int) -> Ack:
    return Ack(Origin(node, 1, 1, "hash", 1), 1, number, leader_boot)


def test_what_goes_round_all_the_time_is_short_and_means_the_same() -> None:
    """Whole at first and after every change of the origin; a receiver that missed it asks, and nothing is lost."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        wire, back = Recorded(a), Recorded(b)
        origin = Origin("a", 1, 2**61, "0" * 32, 1_790_000_000_000)
        sent: list[Message] = [Heartbeat(origin, 1, number, 1_000, True) for number in range(1, 9)]
        sent += [Heartbeat(origin._replace(incarnation=2), 1, 9, 1_000, True)] * 4
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
    assert short.unpacked(encode((0x43, mark, 1, 2, 3, True)), 5, 9) == Heartbeat(ORIGIN, 1, 2, 3, True)
    assert short.unpacked(encode((0x44, mark, 1, 2, 0)), 5, 9) == Ack(ORIGIN, 1, 2, 9)
    assert short.unpacked(encode((0x43, mark, 1, 2, 3, True, "later", {})), 5, 9) == Heartbeat(ORIGIN, 1, 2, 3, True)
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
            a.send("b", heartbeat("a", number))
            await pair.until(lambda number=number: len(pair.heard["b"]) == number)
        wire = Recorded(a)
        a.tell("b", [1, "first"], later=True)
        a.tell("b", [1, "second"], later=True)
        assert not wire.datagrams
        a.send("b", heartbeat("a", 5))
        await pair.until(lambda: words == [("a", 11, [1, "second"])])
        assert pair.heard["b"][-1] == heartbeat("a", 5)
        assert len(wire.datagrams) == 1
        a.tell("b", [1, "alone"], later=True)
        await pair.until(lambda: words[-1] == ("a", 11, [1, "alone"]))
        assert len(wire.datagrams) == 2
        a.tell("b", [1, "x" * 400], later=True)
        a.send("b", heartbeat("a", 6))
        await pair.until(lambda: len(words) == 3)
        assert pair.heard["b"][-1] == heartbeat("a", 6)

    play(story)


def test_what_goes_round_all_the_time_takes_the_short_way_with_and_without_a_word() -> None:
    """And what was recorded of it is not heard again there either."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        for number in range(1, 5):
            a.send("b", heartbeat("a", number))
            await pair.until(lambda number=number: len(pair.heard["b"]) == number)
        wire, long_way = Recorded(a), list[bytes]()
        take = b._take

        def taken(data: bytes, *more: Any) -> bool:
            long_way.append(data)
            return bool(take(data, *more))

        b._take = taken
        a.send("b", heartbeat("a", 5))
        a.tell("b", [1, "word"], later=True)
        a.send("b", heartbeat("a", 6))
        await pair.until(lambda: pair.heard["b"][4:] == [heartbeat("a", 5), heartbeat("a", 6)])
        assert pair.words["b"] == [("a", [1, "word"])]
        assert long_way == []
        before = b.counters["received"]
        for data in wire.datagrams:
            a.peers["b"].socket.send(data)
        await pair.until(lambda: b.counters.get("dropped-replay", b.counters.get("replay")) == 2)
        assert (b.counters["received"], len(pair.heard["b"]), len(pair.words["b"])) == (before, 6, 1)
        assert long_way == wire.datagrams

    play(story)


@pytest.mark.parametrize("kind", ["memory", "udp", "shared"])
def test_a_word_reaches_the_other_node_and_no_strategy(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        b.send("a", heartbeat("b", 1))
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
        if kind != "memory":
            assert a.tell("b", [4], only=start + 1) == start, "not told to another start"
            a.tell("b", [5], only=start)
            await pair.until(lambda: pair.words["b"][2:] == [("a", [5])])

    play(story, kind)


def test_A03_A04_no_recorded_word_is_heard_again_neither_in_this_start_nor_in_the_next() -> None:
    """An order that was recorded cannot be given a second time."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        b.send("a", heartbeat("b", 1))
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
        b.send("a", heartbeat("b", 1))
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["a"] and pair.heard["b"])
        for number, payload in enumerate((b"", b"\xc1", b"\x90", b"\x91\xa1x", b"\x81\x01\x02")):
            thrown([seal_of("a", 70 + number).sealed(Sort.WORD, "b", 12, payload)], pair.ports["b"])
        thrown([seal_of("a", 80).sealed(9, "b", 12, b"\x91\x01")], pair.ports["b"])  # type: ignore[arg-type]
        await pair.until(lambda: (b.counters.get("payload"), b.counters.get("unknown")) == (5, 1))
        assert pair.words["b"] == []
        assert len(pair.heard["b"]) == 1

    play(story)
