"""Other nodes come, go and move while a transport runs: by number and by name, and nobody else is heard for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from primacy.election.messages import Message
from primacy.transport.udp import Address, UdpTransport
from tests.support.ports import free_ports
from tests.support.transport_harness import LIMIT_S, heartbeat, seal_of
from tests.support.waiting import wait_until_async

HERE = "127.0.0.1"


class Nodes:
    """Transports by name, each on a port of its own, and what each of them heard."""

    def __init__(self, *names: str) -> None:
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.heard: dict[str, list[Message]] = {name: [] for name in names}
        self.ends: dict[str, UdpTransport] = {}
        self.complaints: list[str] = []

    def at(self, *names: str, host: str = HERE) -> dict[str, Address]:
        return {name: Address(host, self.ports[name]) for name in names}

    async def start(self, name: str, *others: str, boot: int) -> UdpTransport:
        end = UdpTransport(seal_of(name, boot), self.at(name)[name], self.at(*others), self.complaints.append)
        self.ends[name] = end
        await end.start(self.heard[name].append)
        return end

    async def crosses(self, sender: str, to: str, number: int) -> None:
        """Sent until it is heard: a name is looked up first."""
        message = heartbeat(sender, number)

        def arrived() -> bool:
            self.ends[sender].send(to, message)
            return message in self.heard[to]

        await wait_until_async(arrived, "", LIMIT_S, 0.02, lambda: (self.heard, self.complaints))

    async def is_stranger(self, sender: str, to: str, number: int) -> None:
        end = self.ends[to]
        before = end.counters.get("stranger", 0)

        def dropped() -> bool:
            self.ends[sender].send(to, heartbeat(sender, number))
            return end.counters.get("stranger", 0) > before

        await wait_until_async(dropped, "", LIMIT_S, 0.02, lambda: end.counters)
        assert heartbeat(sender, number) not in self.heard[to]


def play(story: Callable[[Nodes], Awaitable[None]], *names: str) -> None:
    async def whole() -> None:
        nodes = Nodes(*names)
        try:
            await story(nodes)
        finally:
            for end in nodes.ends.values():
                end.close()

    asyncio.run(whole())


def test_a_node_that_was_added_is_heard_and_one_that_was_removed_is_a_stranger() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.start("a", "b", boot=1)
        await nodes.start("b", "a", boot=2)
        await nodes.start("c", "a", boot=3)
        await nodes.crosses("b", "a", 1)
        await nodes.is_stranger("c", "a", 1)
        a.set_peers(nodes.at("b", "c"))
        await nodes.crosses("c", "a", 2)
        await nodes.crosses("a", "c", 3)
        await nodes.crosses("a", "b", 4)
        a.set_peers(nodes.at("c"))
        await nodes.is_stranger("b", "a", 5)
        sent = a.counters["sent"]
        a.send("b", heartbeat("a", 6))
        assert a.counters["sent"] == sent
        await nodes.crosses("c", "a", 7)
        a.set_peers(nodes.at("b", "c"))
        await nodes.crosses("b", "a", 8)

    play(story, "a", "b", "c")


def test_a_node_that_moved_is_heard_at_its_new_address_and_what_it_said_before_stays_said() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.start("a", "b", boot=1)
        b = await nodes.start("b", "a", boot=2)
        await nodes.crosses("b", "a", 1)
        await nodes.crosses("a", "b", 1)
        b.close()
        (nodes.ports["b"],) = free_ports(1)
        b = await nodes.start("b", "a", boot=4)
        a.set_peers(nodes.at("b"))
        peer = a.peers["b"]
        await nodes.crosses("a", "b", 2)
        await nodes.crosses("b", "a", 3)
        assert a.peers["b"] is peer
        a.set_peers(nodes.at("b"))
        assert a.peers["b"].socket is peer.socket, "nothing changed, so nothing is dialled anew"

    play(story, "a", "b")


def test_a_node_that_was_added_by_name_is_looked_up_at_once() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.start("a", boot=1)
        await nodes.start("b", "a", boot=2)
        a.set_peers({"b": Address("no-such-name.invalid", 7400)})
        await wait_until_async(lambda: nodes.complaints, "", LIMIT_S, 0.01)
        assert [trouble.node for trouble in a.troubles] == ["b"]
        a.set_peers(nodes.at("b", host="localhost"))
        assert a.troubles == []
        await nodes.crosses("a", "b", 1)

    play(story, "a", "b")


def test_a_name_that_is_looked_up_while_its_node_is_removed_dials_nobody() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.start("a", boot=1)
        await nodes.start("b", "a", boot=2)
        a.set_peers(nodes.at("b", host="localhost"))
        gone = a.peers["b"]
        a.set_peers({})
        await a._find(gone)
        assert gone.socket is None
        assert a.peers == {}

    play(story, "a", "b")
