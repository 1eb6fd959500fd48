"""What the servers of all protocols have in common: who leads, until when, with which slots, at what time.

It listens from the node's start to its end. While the node leads it has a board and answers; otherwise it says who
leads. A hold is looked at before each answer: a process that was stopped and goes on answers nothing under a hold that
has run out meanwhile.
"""

from __future__ import annotations

import resource
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from primacy.node.clock import Clock
from primacy.settings.schema_work import Slots
from primacy.slots.board import Board
from primacy.slots.kinds import Receiver
from primacy.slots.session import Hall

FOR_EVER_MS = 2**62
"""The end of a hold that nobody has to prove."""
DESCRIPTORS_KEPT = 64
"""For all else that a node opens."""
STALL_S = 10.0
"""A client that takes nothing of what it is owed for so long is dropped."""
HANDSHAKE_S = 5.0


def descriptors() -> int:
    """How many this process may open; the soft limit is lifted to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return soft
    return hard if hard != resource.RLIM_INFINITY else 1_048_576


class Terms(NamedTuple):
    """What a server is told once."""

    slots: Slots
    clock: Clock
    random: Random
    complain: Callable[[str], None]
    """Where a fault of ours becomes a line of the node's log."""
    tls: ssl.SSLContext | None = None


class Host(ABC):
    """The base of all servers."""

    def __init__(self, terms: Terms) -> None:
        self.slots = slots = terms.slots
        self.clock = clock = terms.clock
        self.random = terms.random
        self.complain = terms.complain
        self.tls = terms.tls
        self.most = descriptors() - DESCRIPTORS_KEPT
        """Connections at one time; one more is hung up on."""
        self.offset_ms = clock.wall_ms() - clock.now_ms()
        """Windows of buckets are those of Unix time at the start of the server; later steps do not count."""
        self.hold_until_ms = FOR_EVER_MS
        self.hall = Hall(slots)
        self.address = ""
        """Where it listens."""
        self.leader = ""
        self.leader_address = ""
        """The leader's, for clients; empty if this node leads or it is not known."""
        self.counters = dict.fromkeys(
            ("slots_connections", "slots_hung_up_on", "slots_dropped_slow", "slots_lines_unfinished"), 0
        )

    def lead(self, hold_until_ms: int = FOR_EVER_MS) -> None:
        """With clean slots. `hold_until_ms`: on the node's clock; from then on nothing is answered."""
        self.hold_until_ms = hold_until_ms
        self.leader = self.leader_address = ""
        now_ms = self.clock.now_ms() + self.offset_ms
        self.hall.lead(Board(self.slots, now_ms, self.random, self.everybody))
        self.began()

    def extend(self, hold_until_ms: int) -> None:
        if self.hall.board is not None:
            self.hold_until_ms = hold_until_ms

    def follow(self, leader: str, address: str = "") -> None:
        """This node does not lead. `address`: where the slots of the leader are."""
        led = self.hall.board is not None
        self.leader, self.leader_address = leader, address
        self.hall.follow(leader)
        if led:
            self.ended()

    def now_ms(self) -> int:
        """The slots' time, asked before anything is answered."""
        now_ms = self.clock.now_ms()
        if now_ms >= self.hold_until_ms:
            self.hold_until_ms = FOR_EVER_MS
            self.follow("")
        return now_ms + self.offset_ms

    def figures(self) -> dict[str, int]:
        """For counters and metrics."""
        hall = self.hall
        now = {"slots_open": self.open_now(), "slots_requests": hall.requests}
        return {**self.counters, **now, "slots_logins_refused": hall.logins_refused, "slots_events": hall.events}

    # --- what each protocol does its own way --------------------------------------------------------------------------

    @abstractmethod
    async def start(self, sockets: list[socket.socket]) -> None:
        """On sockets that listen already."""

    @abstractmethod
    async def close(self) -> None:
        """Every client is told, whether this node leads or not."""

    def everybody(self) -> Iterable[Receiver]:
        """Who hears a broadcast without having registered."""
        return ()

    def began(self) -> None:  # noqa: B027  (over HTTP nobody is told)
        """There is a new board."""

    @abstractmethod
    def ended(self) -> None:
        """There is none any more: clients are told."""

    def open_now(self) -> int:
        """Connections, or streams."""
        return 0
