"""The port to other nodes, over UDP and in memory: what is sealed arrives, and nothing else is heard (A01-A05, A09)."""

from __future__ import annotations

import asyncio
import socket
from itertools import cycle, pairwise
from typing import Any

import pytest

from primacy.election.messages import (
    Release,
)
from primacy.errors import CannotHere, InUse
from primacy.transport import Transport, seal, shared_sockets, udp
from primacy.transport.layout import packed
from primacy.transport.seal import (
    Sort,
)
from primacy.transport.udp import Address, UdpTransport
from tests.support.transport_harness import (
    ORIGIN,
    OTHER,
    RELEASE,
    SECRET,
    Pair,
    Recorded,
    heartbeat,
    play,
    seal_of,
    thrown,
)

JUNK = 150
"""Fewer than fit into the buffer of a socket."""


@pytest.mark.parametrize("kind", ["memory", "udp", "shared"])
def test_the_contract_of_a_transport(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 1)])
        for number in range(2, 30):
            b.send("a", heartbeat("b", number))
        await pair.until(lambda: len(pair.heard["a"]) == 28)
        assert {message.origin.node for message in pair.heard["a"]} == {"b"}
        a.send("nobody", heartbeat("a", 1))
        assert a.counters["unsent"] == 1
        assert a.counters["sent"] >= 1
        assert b.counters["received"] == 1
        ((data, host, port),) = a.ready_release(Release(ORIGIN._replace(node="a"), 1))
        assert data
        assert host
        assert isinstance(port, int)
        b.close()
        for number in range(5):  # nobody is there: nothing happens
            a.send("b", heartbeat("a", number))
            await asyncio.sleep(0.001)
        a.close()
        a.send("b", heartbeat("a", 9))
        assert len(pair.heard["b"]) == 1

    play(story, kind)


@pytest.mark.parametrize("kind", ["memory", "udp", "shared"])
def test_a_cut_link_is_cut_one_way_or_both_and_mended(kind: str) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        numbers = iter(range(1, 100))

        async def crosses(sender: Transport, receiver: Transport, to: str) -> bool:
            """Whether a message arrives; if not, whether it was counted as cut."""
            number, cuts = next(numbers), (sender.counters.get("cut", 0), receiver.counters.get("cut", 0))
            sender.send(to, message := heartbeat("b" if to == "a" else "a", number))
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


def test_A03_A04_nothing_recorded_is_heard_again_neither_in_this_start_nor_in_the_next() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        wire = Recorded(a)
        for number in range(200):
            a.send("b", heartbeat("a", number))
            await asyncio.sleep(0)
        await pair.until(lambda: heartbeat("a", 199) in pair.heard["b"])
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
        a.send("b", heartbeat("a", 200))
        await pair.until(lambda: pair.heard["b"] == [*heard, heartbeat("a", 200)])

    play(story)


def test_the_first_word_to_a_node_that_started_anew_is_not_lost() -> None:
    """Two followers do not speak for hours; then one asks the other, which was restarted meanwhile, for its vote."""

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 1)])
        b.close()
        b = await pair.start("b", 13)
        a.send("b", heartbeat("a", 2))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 1), heartbeat("a", 2)])
        assert b.counters["other-boot"] == 1

    play(story)


def test_E1_two_machines_behind_one_address_do_not_make_a_message_go_to_and_fro(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each gets what is for the other, and greets. On a way that takes longer than the pause between two greetings,
    nothing but the sender ends it."""
    monkeypatch.setattr(udp, "GREETING_S", 0.0)

    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        copy: Any = pair.make("b", 13)
        copy._loop = b._loop
        under_way: list[tuple[UdpTransport, bytes]] = []
        receivers = cycle((b, copy))
        monkeypatch.setattr(a, "_put", lambda _, data: under_way.append((next(receivers), data)))
        for end in (b, copy):
            monkeypatch.setattr(end, "_put", lambda _, data: under_way.append((a, data)))
        for number in range(4):
            a.send("b", heartbeat("a", number))
            put = 1
            while under_way:
                to, data = under_way.pop(0)
                to._take(data, None, None)
                put += len(under_way)
                assert put < 20, "it goes on"

    play(story)


def test_A01_A09_strangers_are_counted_by_kind_and_never_answered() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["b"])
        good = seal_of("a", 11).sealed(Sort.MESSAGE, "b", 12, packed(heartbeat("a", 2)))
        stranger = seal_of("x", 1).sealed(Sort.MESSAGE, "b", 12, packed(heartbeat("x", 1)))
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


@pytest.mark.parametrize(("kind", "most"), [("udp", udp.ANY_READS_MAX), ("shared", shared_sockets.ANY_READS_MAX)])
def test_F56_a_flood_is_read_in_portions_so_that_a_heartbeat_does_not_wait_for_its_end(kind: str, most: int) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["b"])
        b.send("a", heartbeat("b", 1))
        await pair.until(lambda: pair.heard["a"])  # each has a socket of its own for the other now
        loop, counts, at = asyncio.get_running_loop(), [0], []
        drops = pair.sockets[1].drops if kind == "shared" else b.drops

        def turn() -> None:
            counts.append(drops.counters["foreign"])
            if len(pair.heard["b"]) == 2 and not at:
                at.append(counts[-1])
            if counts[-1] < JUNK:
                loop.call_soon(turn)

        thrown([b"x" * 80] * JUNK, pair.ports["b"])
        a.send("b", heartbeat("a", 2))
        turn()
        await pair.until(lambda: counts[-1] == JUNK and len(pair.heard["b"]) == 2)
        assert max(after - before for before, after in pairwise(counts)) <= most
        assert at[0] <= 2 * most, "it was heard within two turns"

    play(story, kind)


def test_another_secret_is_said_with_the_node_and_the_rotation_goes_through() -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12, (OTHER,))
        a.send("b", heartbeat("a", 1))
        await pair.until(lambda: b.counters.get("seal"))
        assert "what comes from node a has no good seal" in pair.complaints[0]
        b.close()
        b = await pair.start("b", 13, (OTHER, SECRET))
        a.close()
        a = await pair.start("a", 14, (SECRET, OTHER))
        a.send("b", heartbeat("a", 2))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 2)])

    play(story)


def test_two_layouts_in_one_cluster_refuse_each_other_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        a, b = await pair.start("a", 11), await pair.start("b", 12)
        with monkeypatch.context() as tomorrow:
            tomorrow.setattr(seal, "LAYOUT", 2)
            a.send("b", heartbeat("a", 1))
            a.send("b", heartbeat("a", 2))
        await pair.until(lambda: b.counters.get("layout") == 2)
        (said,) = pair.complaints
        assert said.startswith("node a speaks layout 2, and this version of primacy layout 1: they do not hear each")
        assert said.endswith("upgrade this node")
        assert pair.heard["b"] == []
        a.close()
        a = await pair.start("a", 15)  # downgraded
        a.send("b", heartbeat("a", 3))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 3)])

    play(story)


def test_a_port_in_use_an_address_of_another_machine_and_a_name_that_nobody_knows() -> None:
    async def story(pair: Pair) -> None:
        await pair.start("a", 11)
        with pytest.raises(InUse, match="is in use"):
            await pair.make("a", 12).start(pair.heard["a"].append)
        foreign = UdpTransport(seal_of("b"), Address("203.0.113.9", 7400), {}, pair.complaints.append)
        with pytest.raises(CannotHere, match="say `bind` in the file, or --bind"):
            await foreign.start(pair.heard["b"].append)
        unknown = {"a": Address("no-such-name.invalid", 7400)}
        here = Address.of(f"127.0.0.1:{pair.ports['b']}")
        b = pair.ends["b"] = UdpTransport(seal_of("b"), here, unknown, pair.complaints.append)
        await b.start(pair.heard["b"].append)
        b.send("a", heartbeat("b", 1))
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
        pair.ends["a"].send("b", heartbeat("a", 1))
        await pair.until(lambda: pair.heard["b"] == [heartbeat("a", 1)])
        pair.ends["b"].send("a", heartbeat("b", 1))
        await pair.until(lambda: pair.heard["a"] == [heartbeat("b", 1)])
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
