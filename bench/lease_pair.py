"""Two holders of a lease in one process, without any work: how long a clean release takes to reach the next one."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from random import Random

from primacy.election.inputs import Input, Started, StepDown, WorkGone, WorkStarted
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.messages import Release
from primacy.election.model import Leadership, Membership, Role, Seat
from primacy.node.ballot import MemoryDurable
from primacy.node.clock import SystemClock
from primacy.node.driver import Driver
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import StoreThread, limit_of_ms, open_store

NAME = "pair"
WITHIN_S = 30.0


class Contender:
    """A machine, its driver and its thread; its work starts and ends at once."""

    def __init__(self, node: str, url: str, profile: str) -> None:
        timing = for_lease(PROFILES[profile])
        limit_ms = limit_of_ms(timing.hold_ms)
        self.clock = SystemClock()
        self.leads = asyncio.Event()
        seat = Seat(node, secrets.randbits(60) | 1, Membership.of(()), Random(secrets.randbits(60)))
        self.machine = LeaseStrategy(seat, timing, LeaseOptions(NAME, look_every_ms=timing.look_ms))
        self.thread = StoreThread(open_store(url, limit_ms=limit_ms), limit_ms)
        loop, home = asyncio.get_running_loop(), threading.get_ident()

        def tell(given: Input) -> None:
            """As an agent does (`agent/stored.py`)."""
            if threading.get_ident() == home:
                self.driver.give(given)
            else:
                loop.call_soon_threadsafe(self.driver.give, given)

        self.port = self.thread.port(NAME, tell, tell)
        self.driver = Driver(self.machine, self.clock, MemoryDurable(), self, lambda _: None, None, self.port)
        self.driver.give(Started(self.clock.wall_ms()))

    def start(self, leadership: Leadership, _release: Release | None, _covered: bool) -> None:
        self.began_ns = time.monotonic_ns()
        self.leads.set()
        self.driver.give(WorkStarted(leadership.term))

    def extend(self, leadership: Leadership) -> None: ...

    def stop(self, term: int, _reason: str, _planned: bool) -> None:
        self.leads.clear()
        self.driver.give(WorkGone(term, False))

    def release(self, term: int, successor: str) -> None: ...

    async def close(self) -> None:
        self.port.close()
        self.driver.close()
        await asyncio.to_thread(self.thread.close)


async def releases_ms(url: str, profile: str, rounds: int) -> list[float]:
    """From the order to step down to the other one's leadership."""
    pair = [Contender(node, url, profile) for node in "ab"]
    took: list[float] = []
    try:
        while len(took) < rounds:
            async with asyncio.timeout(WITHIN_S):
                while not (held := [one for one in pair if one.machine.role is Role.LEADER]):
                    await asyncio.sleep(0.01)
                other = next(one for one in pair if one is not held[0])
                await asyncio.sleep(4 * other.machine.timing.look_ms / 1_000 + 0.1)  # it stands again by then
                if held[0].machine.role is not Role.LEADER or other.leads.is_set():
                    continue  # a busy machine has lost it meanwhile: whom to ask is another question now
                began_ns = time.monotonic_ns()
                held[0].driver.give(StepDown())
                await other.leads.wait()
            took.append((other.began_ns - began_ns) / 1e6)
    finally:
        for one in pair:
            await one.close()
    return took
