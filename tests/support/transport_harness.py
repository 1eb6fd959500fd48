"""Two nodes that hear each other over either transport, one of every message, and what is put on the wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from primacy.election.messages import (
    Ack,
    Admission,
    Ahead,
    FailsafeAck,
    FailsafeHeartbeat,
    FirstBallot,
    FirstBallotTaken,
    Heartbeat,
    MembersTaken,
    MembersTold,
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
from primacy.election.model import Goal, Kind, Member, MembersId, Register
from primacy.transport import MemoryNet, MemoryTransport, Transport
from primacy.transport.seal import (
    Seal,
)
from primacy.transport.shared_sockets import SharedSockets
from primacy.transport.shared_udp import SharedTransport
from primacy.transport.udp import Address, UdpTransport
from tests.support.ports import free_ports
from tests.support.waiting import wait_until_async

LIMIT_S = 60.0
"""For whatever must come; a name that nobody knows takes long where no name server answers."""
SECRET, OTHER = b"0123456789abcdefghijklmnopqrstuv", b"vutsrqponmlkjihgfedcba9876543210"
CHANCES = 10
"""So many times may be long because of the machine: a sweep of garbage, a stall that counts as work. What is slow in
itself is so more often among thousands."""
BIG = 2**62 - 1
ORIGIN = Origin("node-of-twenty-chars", BIG, BIG, "f" * 32, 2**52)
RELEASE = Release(ORIGIN, BIG, "another-of-twenty-ch")
REGISTER = Register(
    MembersId(BIG, BIG),
    (Member("another-of-twenty-ch", Kind.VOTER, 100, 0, "10.0.0.1:7946"), Member("b", Kind.OBSERVER)),
    (Member("b"),),
    Goal((Member("another-of-twenty-ch"),), "root@b", BIG),
)
EVERY: tuple[Message, ...] = (
    VoteRequest(ORIGIN, BIG, True),
    VoteRequest(ORIGIN, 3, False, RELEASE._replace(origin=ORIGIN._replace(node="b"))),
    VoteReply(ORIGIN, 3, True, True, BIG, 2, 40, 1, 3_000, 2**53 - 1, 9),
    VoteReply(ORIGIN, 3, True, False, BIG, 2),
    Heartbeat(ORIGIN, BIG, BIG, 86_400_000, True),
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
    FailsafeHeartbeat(ORIGIN, 2**53 - 1, BIG),
    FailsafeAck(ORIGIN, 2**53 - 1, BIG, BIG),
    MembersTold(ORIGIN._replace(members=(BIG, BIG)), REGISTER),
    MembersTaken(ORIGIN._replace(members=(BIG, BIG))),
    Admission(ORIGIN._replace(members=(BIG, BIG)), BIG, BIG, REGISTER, 86_400_000, 2**53 - 1, (("b", BIG, BIG),)),
)


def seal_of(node: str = "a", boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,), **more: str) -> Seal:
    return Seal(more.get("cluster", "lab"), more.get("election", "main"), node, boot, secrets)


class Pair:
    """Two nodes that hear each other, over either transport."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.heard: dict[str, list[Message]] = {"a": [], "b": []}
        self.words: dict[str, list[tuple[str, list[Any]]]] = {"a": [], "b": []}
        self.complaints: list[str] = []
        self.net = MemoryNet()
        self.ends: dict[str, Transport] = {}
        self.sockets: list[SharedSockets] = []
        self.ports = dict(zip("ab", free_ports(2), strict=True))

    def make(self, node: str, boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,)) -> Transport:
        other = "b" if node == "a" else "a"
        if self.kind == "memory":
            return MemoryTransport(self.net, node, (other,))
        to = {other: Address("127.0.0.1", self.ports[other])}
        here = Address("127.0.0.1", self.ports[node])
        if self.kind == "shared":
            sockets = SharedSockets(self.complaints.append)
            self.sockets.append(sockets)
            return SharedTransport(sockets, seal_of(node, boot, secrets), here, to, self.complaints.append)
        return UdpTransport(seal_of(node, boot, secrets), here, to, self.complaints.append)

    async def start(self, node: str, boot: int = 1, secrets: tuple[bytes, ...] = (SECRET,)) -> Any:
        self.ends[node] = self.make(node, boot, secrets)
        words = self.words[node]
        await self.ends[node].start(self.heard[node].append, lambda sender, boot, row: words.append((sender, row)))
        return self.ends[node]

    async def until(self, check: Callable[[], Any]) -> None:
        def arrived() -> bool:
            if not check():
                self.net.deliver()
                return False
            return True

        def told() -> object:
            return self.heard, [end.counters for end in self.ends.values()], self.complaints

        await wait_until_async(arrived, "", LIMIT_S, 0.001, told)

    def close(self) -> None:
        for end in self.ends.values():
            end.close()
            end.close()
        for sockets in self.sockets:
            sockets.close()


def play(story: Callable[[Pair], Awaitable[None]], kind: str = "udp") -> None:
    async def whole() -> None:
        pair = Pair(kind)
        try:
            await story(pair)
        finally:
            pair.close()

    asyncio.run(whole())


def heartbeat(node: str, number: int) -> Heartbeat:
    return Heartbeat(Origin(node, 1, 1, "hash", 1), 1, number, 1_000, True)


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
