"""How nodes speak: the port `Transport`, and one in memory; who belongs to them: the port `MembershipManager`.

`layout.py` turns messages into bytes and back, `seal.py` makes and checks datagrams, `udp.py` sends and receives them.
Nothing here knows a strategy: a message is carried, never judged. What cannot be trusted is dropped, counted by kind
and never answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from primacy.election.messages import Message, Release
from primacy.transport.link_cuts import LinkCuts

__all__ = [
    "Hear",
    "MembershipManager",
    "MemoryNet",
    "MemoryTransport",
    "Overhear",
    "ReadyDatagram",
    "Transport",
    "Trouble",
    "ignored",
]

Overhear = Callable[[str, int, list[Any]], None]
"""Told each word with its sender and the sender's boot: a row of plain values, which may be of a later version."""
Hear = Callable[[Message], None]
"""Told each message whose seal was good, or which needs none."""
ReadyDatagram = tuple[bytes, str, int]
"""A sealed datagram with the address, in numbers, that it goes to."""


class Trouble(NamedTuple):
    """What stands between this node and another, for people."""

    node: str
    sentence: str
    alert: bool = False
    """Not just silence: something is wrong that could be dangerous."""


def ignored(sender: str, boot: int, row: list[Any]) -> None:
    """Nobody listens to words."""


class Transport(Protocol):
    """Carries messages to other nodes, or loses them."""

    @property
    def counters(self) -> dict[str, int]:
        """How many of each kind: sent, received, and why others were dropped."""
        ...

    @property
    def links(self) -> LinkCuts:
        """What was cut on purpose."""
        ...

    @property
    def troubles(self) -> list[Trouble]:
        """Names that cannot be resolved, other layouts, other secrets, two starts of one id: as it stands now."""
        ...

    async def start(self, hear: Hear, overhear: Overhear = ...) -> None:
        """From here on messages are heard and can be sent. Raises one of ours if that cannot be."""
        ...

    def send(self, to: str, message: Message) -> None:
        """Never waits, and never fails: what cannot be sent is lost."""
        ...

    def tell(self, to: str, row: list[Any], only: int = 0, *, later: bool = False) -> int:
        """A word to another node. Returns the start of it that alone can hear this; 0 if nobody can.

        With `only`, it is told to that start and to no other. With `later` it may wait a moment for a message that
        carries it along; a second one takes its place.
        """
        ...

    def ready_release(self, release: Release) -> list[ReadyDatagram]:
        """The release as datagrams, one for each other node, that whoever is handed them may send later (G4, G6)."""
        ...

    def close(self) -> None:
        """Nothing is heard or sent any more. May be said twice."""
        ...


class MembershipManager(Protocol):
    """Who belongs to a cluster, and how that changes: Ghoti's port of this name. The HTTP manager has one.

    Each change is told to the machine as `MembersChanged`.
    """

    @property
    def nodes(self) -> tuple[tuple[str, str], ...]:
        """Id and address of all that are listed, this node included, in id order."""
        ...

    async def join(self, addr: str) -> None:
        """Joins the cluster of the node there, too. Raises `NotReached`, or `Refused` if the list is a fixed one."""
        ...

    def remove(self, node: str) -> None:
        """Takes a node off the list, on all nodes: for a leader to say. Raises `Refused` if the list is a fixed one."""
        ...


class MemoryNet:
    """A network in memory: what is sent waits until it is delivered."""

    def __init__(self) -> None:
        self.heard_by: dict[str, Hear] = {}
        self.overheard_by: dict[str, Overhear] = {}
        self.waiting: list[tuple[str, Message]] = []
        self.words: list[tuple[str, str, list[Any]]] = []

    def deliver(self) -> None:
        """What was sent by now. What follows from it waits for the next time."""
        waiting, self.waiting = self.waiting, []
        words, self.words = self.words, []
        for to, message in waiting:
            if to in self.heard_by:
                self.heard_by[to](message)
        for to, sender, row in words:
            if to in self.overheard_by:
                self.overheard_by[to](sender, 1, row)


class MemoryTransport:
    """One node's end of a network in memory."""

    def __init__(self, net: MemoryNet, node: str, others: tuple[str, ...]) -> None:
        self.net = net
        self.node = node
        self.others = others
        self.counters: dict[str, int] = {}
        self.links = LinkCuts()
        self.troubles: list[Trouble] = []

    async def start(self, hear: Hear, overhear: Overhear = ignored) -> None:
        def receive(message: Message) -> None:
            if message.origin.node in self.links.deaf_to:
                self._count("cut")
                return
            self._count("received")
            hear(message)

        self.net.heard_by[self.node] = receive
        self.net.overheard_by[self.node] = overhear

    def send(self, to: str, message: Message) -> None:
        if to in self.links.dumb_to:
            self._count("cut")
        elif self.node in self.net.heard_by and to in self.others:
            self._count("sent")
            self.net.waiting.append((to, message))
        else:
            self._count("unsent")

    def tell(self, to: str, row: list[Any], only: int = 0, *, later: bool = False) -> int:  # noqa: ARG002
        if to not in self.net.overheard_by or to not in self.others:
            return 0
        if to in self.links.dumb_to:
            self._count("cut")
            return 1
        self.net.words.append((to, self.node, row))
        return 1

    def ready_release(self, release: Release) -> list[ReadyDatagram]:
        return [(str(release.term).encode(), to, 0) for to in self.others if to not in self.links.dumb_to]

    def close(self) -> None:
        self.net.heard_by.pop(self.node, None)
        self.net.overheard_by.pop(self.node, None)

    def _count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1
