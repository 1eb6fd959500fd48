"""What this node measures of itself, for `/metrics`: how late its timers are, how long the disk takes, who led."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

from primacy.election.events import Code, Event
from primacy.election.model import Ballot
from primacy.node.ballot import Durable, Memory

EVERY_S = 5.0
"""To be woken for this costs as much as a heartbeat does."""
KEPT = 12
"""Looks: a minute of them."""


class Meter:
    """Counts and times. Never decides anything."""

    def __init__(self) -> None:
        self.saves = 0
        self.save_ms = 0.0
        self.save_max_ms = 0.0
        self.leaders = 0
        self._late_ms: deque[float] = deque([0.0], maxlen=KEPT)
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due_s, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._late_ms.append(max(0.0, asyncio.get_running_loop().time() - self._due_s) * 1_000)
        self.start()

    def saved(self, took_ms: float) -> None:
        self.saves += 1
        self.save_ms += took_ms
        self.save_max_ms = max(self.save_max_ms, took_ms)

    def late(self, late_ms: int) -> None:
        """A deadline of the election was attended to so late."""
        self._late_ms.append(float(late_ms))

    def recorded(self, event: Event) -> None:
        if event.code in (Code.ELECTED, Code.FOLLOWS):
            self.leaders += 1

    def readings(self) -> dict[str, float]:
        return {
            "saves": self.saves,
            "save_ms": self.save_ms,
            "save_max_ms": self.save_max_ms,
            "failovers": max(0, self.leaders - 1),
            "late_ms": self._late_ms[-1],
            "late_max_ms": max(self._late_ms),
        }


class MeteredDurable:
    """A durable ballot whose saves are timed."""

    def __init__(self, durable: Durable, meter: Meter) -> None:
        self.durable = durable
        self.meter = meter

    def load(self) -> Memory:
        return self.durable.load()

    def save(self, ballot: Ballot) -> None:
        began_s = monotonic()
        try:
            self.durable.save(ballot)
        finally:
            self.meter.saved((monotonic() - began_s) * 1_000)
