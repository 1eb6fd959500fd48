"""Several elections on one port: each hears its own, an older node gets what it always got, several leave in one."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from primacy.election.messages import Message
from primacy.transport.seal import TAG_BYTES
from primacy.transport.shared_sockets import SEVERAL, SEVERAL_BYTES_MAX, SEVERAL_MARK, SharedSockets
from primacy.transport.shared_udp import OFFERS_MAX, SharedTransport
from primacy.transport.udp import Address, UdpTransport
from tests.support.ports import free_ports
from tests.support.transport_harness import OTHER, SECRET, heartbeat, seal_of
from tests.support.waiting import wait_until_async

LIMIT_S = 60.0


class Recorder:
    """A socket that notes what it sends."""

    def __init__(self, inner: socket.socket, sent: list[bytes]) -> None:
        self.inner = inner
        self.sent = sent

    def send(self, data: bytes) -> int:
        self.sent.append(data)
        return self.inner.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Cluster:
    """Nodes a and b; each has several elections on one port, or one of its own as before."""

    def __init__(self) -> None:
        self.ports = dict(zip("ab", free_ports(2), strict=True))
        self.hubs: dict[str, SharedSockets] = {}
        self.ends: dict[tuple[str, str], UdpTransport] = {}
        self.heard: dict[tuple[str, str], list[Message]] = {}
        self.complaints: list[str] = []
        self.boots = iter(range(101, 10_000))

    async def start(self, node: str, *elections: str, secret: bytes = SECRET, alone: bool = False) -> None:
        other = "b" if node == "a" else "a"
        here, there = (Address("127.0.0.1", self.ports[name]) for name in (node, other))
        if not alone and node not in self.hubs:
            self.hubs[node] = SharedSockets(self.complaints.append)
        for election in elections:
            seal = seal_of(node, next(self.boots), (secret,), election=election)
            to = {other: there}
            end = (
                UdpTransport(seal, here, to, self.complaints.append)
                if alone
                else SharedTransport(self.hubs[node], seal, here, to, self.complaints.append)
            )
            self.ends[node, election] = end
            heard = self.heard.setdefault((node, election), [])
            await end.start(heard.append)

    async def arrives(self, sender: str, to: str, election: str, number: int) -> None:
        message = heartbeat(sender, number)
        self.ends[sender, election].send(to, message)
        await self.until(lambda: message in self.heard[to, election])

    async def meet(self, *elections: str) -> None:
        """Both starts know each other in each election, and that several may come in one, if they take that."""
        for number in range(1, 4):
            for election in elections:
                await self.arrives("a", "b", election, number)
                await self.arrives("b", "a", election, number)

    async def until(self, check: Callable[[], Any]) -> None:
        told = (self.heard, [hub.drops.counters for hub in self.hubs.values()], self.complaints)
        await wait_until_async(check, "", LIMIT_S, 0.001, lambda: told)

    def recorded(self, node: str) -> list[bytes]:
        """What that node sends from now on."""
        sent: list[bytes] = []
        hub = self.hubs[node]
        for address, line in hub._lines.items():
            noted: Any = Recorder(line.socket, sent)
            hub._lines[address] = line._replace(socket=noted)
        for (name, _), end in self.ends.items():
            for peer in end.peers.values() if name == node else ():
                peer.socket = Recorder(peer.socket, sent)  # type: ignore[assignment, arg-type]
        return sent

    def close(self) -> None:
        for end in self.ends.values():
            end.close()
        for hub in self.hubs.values():
            hub.close()


def play(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster()
        try:
            await story(cluster)
        finally:
            cluster.close()

    asyncio.run(whole())


def test_each_election_hears_its_own_messages_and_no_others() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y", "z")
        await cluster.start("b", "x", "y", "z")
        for number, election in enumerate("xyz", 1):
            await cluster.arrives("a", "b", election, 10 * number)
            await cluster.arrives("b", "a", election, 100 * number)
        numbers = {key: sorted({message.number for message in heard}) for key, heard in cluster.heard.items()}  # type: ignore[union-attr]
        assert numbers == {
            **{("b", election): [10 * n] for n, election in enumerate("xyz", 1)},
            **{("a", election): [100 * n] for n, election in enumerate("xyz", 1)},
        }

    play(story)


def test_what_several_elections_say_in_one_turn_leaves_in_one_datagram() -> None:
    async def story(cluster: Cluster) -> None:
        names = [f"e{n}" for n in range(12)]
        await cluster.start("a", *names)
        await cluster.start("b", *names)
        await cluster.meet(*names)
        sent = cluster.recorded("a")
        for name in names:
            cluster.ends["a", name].send("b", heartbeat("a", 77))
        await cluster.until(lambda: all(heartbeat("a", 77) in cluster.heard["b", name] for name in names))
        assert len(sent) == 1
        assert sent[0][0] == SEVERAL
        cluster.ends["a", "e3"].send("b", heartbeat("a", 78))
        await cluster.until(lambda: heartbeat("a", 78) in cluster.heard["b", "e3"])
        assert sent[1][0] != SEVERAL, "one alone is what it always was"

    play(story)


def test_several_in_one_are_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        names = [f"e{n}" for n in range(60)]
        await cluster.start("a", *names)
        await cluster.start("b", *names)
        await cluster.meet(*names)
        sent = cluster.recorded("a")
        for name in names:
            cluster.ends["a", name].send("b", heartbeat("a", 77))
        await cluster.until(lambda: all(heartbeat("a", 77) in cluster.heard["b", name] for name in names))
        assert 1 < len(sent) < 12
        assert max(map(len, sent)) <= SEVERAL_BYTES_MAX

    play(story)


def test_an_older_node_never_gets_several_in_one() -> None:
    """It takes part in one of the elections; its share of the others' words is counted, and no more."""

    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", alone=True)
        sent = cluster.recorded("a")
        await cluster.meet("x")
        for number in range(10, 40):
            for election in "xy":
                cluster.ends["a", election].send("b", heartbeat("a", number))
            await asyncio.sleep(0)
        await cluster.until(lambda: heartbeat("a", 39) in cluster.heard["b", "x"])
        assert all(data[0] != SEVERAL for data in sent)
        assert cluster.ends["a", "x"].peers["b"].offers <= OFFERS_MAX
        await cluster.arrives("b", "a", "x", 50)

    play(story)


def test_a_start_that_is_another_one_is_asked_anew() -> None:
    """An agent that became a node of `primacy run` is spoken to as such."""

    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", "y")
        await cluster.meet("x", "y")
        await cluster.until(lambda: cluster.ends["a", "x"].peers["b"].gathers_boot)
        for election in "xy":
            cluster.ends["b", election].close()
        cluster.hubs.pop("b").close()
        await cluster.start("b", "x", alone=True)
        await cluster.arrives("b", "a", "x", 60)
        await cluster.arrives("a", "b", "x", 61)
        peer = cluster.ends["a", "x"].peers["b"]
        assert peer.gathers_boot != peer.boot

    play(story)


def test_one_election_leaves_and_comes_back_while_the_others_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", "y")
        await cluster.meet("x", "y")
        cluster.ends["a", "x"].close()
        await cluster.arrives("a", "b", "y", 50)
        await cluster.arrives("b", "a", "y", 51)
        await cluster.start("a", "x")
        await cluster.arrives("b", "a", "x", 52)
        await cluster.arrives("a", "b", "x", 53)
        assert len(cluster.hubs["a"]._lines) == 1

    play(story)


def test_a_release_of_a_start_that_is_heard_finds_its_election_and_one_of_a_stranger_too() -> None:
    """It names no start of its receiver, and a guard sends it from a port of its own."""

    async def story(cluster: Cluster) -> None:
        from primacy.election.messages import Release

        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", "y")
        release = Release(heartbeat("a", 1).origin, 5)
        ((data, host, port),) = cluster.ends["a", "y"].ready_release(release)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guard:
            guard.sendto(data, (host, port))
        await cluster.until(lambda: release in cluster.heard["b", "y"])
        assert cluster.heard["b", "x"] == []

    play(story)


def test_garbage_is_counted_and_raises_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", "y")
        await cluster.meet("x", "y")
        hub, chance = cluster.hubs["b"], random.Random(3)
        address = ("127.0.0.1", cluster.ports["a"])
        good = cluster.ends["a", "x"].seal.sealed(0, "b", cluster.ends["b", "x"].seal.boot, b"x")  # type: ignore[arg-type]
        before = {key: len(heard) for key, heard in cluster.heard.items()}
        for _ in range(3_000):
            data = bytearray(SEVERAL_MARK + chance.randbytes(chance.randrange(0, 200)))
            if chance.random() < 0.3:
                data = bytearray(SEVERAL_MARK + len(good).to_bytes(2, "big") + good)
                data[chance.randrange(3, len(data))] ^= 1 << chance.randrange(8)
            hub._tries_left = 1_000
            hub.take(bytes(data), address, dialled=chance.random() < 0.5)
        assert {key: len(heard) for key, heard in cluster.heard.items()} == before
        await cluster.arrives("a", "b", "x", 99)

    play(story)


def test_a_node_with_another_secret_is_named_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start("a", "x", "y")
        await cluster.start("b", "x", "y", secret=OTHER)
        for number in range(5):
            cluster.ends["b", "x"].send("a", heartbeat("b", number))
        await cluster.until(lambda: cluster.complaints)
        assert "some of what comes from node b is of no election here" in cluster.complaints[0]
        assert cluster.heard["a", "x"] == []

    play(story)


def test_the_seal_of_one_election_is_none_in_another() -> None:
    data = seal_of("a", 5, election="x").sealed(0, "b", 6, b"payload")  # type: ignore[arg-type]
    for election, fits in (("x", True), ("y", False)):
        assert seal_of("b", 6, election=election).fits(data[:-TAG_BYTES], data[-TAG_BYTES:]) is fits
