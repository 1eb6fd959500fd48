"""What a simulated cache peer is made of, what the network is like, and what a message is about."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from primacy.cache.inputs import Input
from primacy.cache.machine import Machine
from primacy.cache.messages import (
    Acks,
    Announces,
    FloorAck,
    FloorAnswer,
    FloorQuery,
    Floors,
    FloorSet,
    FloorsRequest,
    Message,
    Ping,
    Pong,
)
from primacy.cache.model import Meta, PeerAddress
from primacy.sim.cache.calls import SimCalls
from primacy.sim.cache.storage import SimStorage
from primacy.sim.world.clock import Clock


@dataclass(slots=True)
class Conditions:
    """What the network and the processors are like at the moment. Faults change it."""

    delay_min_ms: float = 0.2
    delay_span_ms: float = 1.5
    loss: float = 0.0
    repeat: float = 0.0
    late_ms: float = 1.0
    """Timers come late by up to this."""
    far: float = 0.0
    """Share of the messages that take up to `far_ms` longer, and are overtaken."""
    far_ms: float = 0.0


@dataclass(slots=True)
class Counts:
    """Cheap figures of a trial."""

    sent: int = 0
    steps: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class SimPeer:
    """One peer of the list: its clock and its storage outlive its processes."""

    def __init__(self, url: str, clock: Clock, chance: Random) -> None:
        self.url = url
        self.clock = clock
        self.chance = chance
        self.skew_ms = 0
        """By which its wall clock is off."""
        self.storage: SimStorage
        self.file: tuple[PeerAddress, ...] = ()
        """What the file of settings says: the list of the next start."""
        self.members: tuple[PeerAddress, ...] = ()
        """Whom this process is connected to."""
        self.children = True
        """Its sources are child processes; False: coroutines."""
        self.machine: Machine | None = None
        self.calls: SimCalls
        self.hits: dict[bytes, Meta] = {}
        """What was given as fresh and may be given again without a step (`Machine.fresh_until_ms`)."""
        self.boot = 0
        self.boots = 0
        self.frozen = 0
        self.inbox: deque[Input] = deque()
        self.on_thaw: list[Callable[[], None]] = []
        self.timer_ms: int | None = None
        self.doom = -1
        """Effects until it crashes; -1: it does not."""
        self.disk_told_bad = False
        self.said_term = 0
        """The highest term in which any of its processes has said something."""
        self.budget = 0.0
        self.budget_at_ms = 0.0


def subject_of(message: Message) -> tuple[bytes, bool]:
    """What a message is about: a key, or floors. One input may concern several keys (a floor of a prefix)."""
    match message:
        case FloorQuery(key) | FloorAnswer(key):
            return key, True
        case FloorSet(floor) | FloorAck(floor):
            return floor.key, True
        case FloorsRequest() | Floors():
            return b"", True
        case Ping() | Pong() | Announces() | Acks():
            return b"", False
    return message.key, False
