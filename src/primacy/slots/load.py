"""A closed loop of requests on many connections, each answer compared byte for byte: `primacy slots bench`.

Each connection has `depth` requests on their way at any time. What is measured is served requests, as a client sees
them; the generator is one Python process, so that a fast server is not its limit alone.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from primacy.errors import NotReached, Refused, SlotRefused
from primacy.slots.client import NotLeading, answered, fault_of
from primacy.slots.where import Where

SAMPLES_MAX = 1_000_000
"""Times of answers that are kept."""


class Load(NamedTuple):
    """What is asked for."""

    address: str
    line: bytes
    """The request, with its end."""
    connections: int
    depth: int
    seconds: float


class Result(NamedTuple):
    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    max_us: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


class Asker(asyncio.Protocol):
    """One connection: a batch of `depth` requests, then the next when all are answered."""

    def __init__(self, load: Load, done: asyncio.Future[None], samples: list[float]) -> None:
        self.batch = load.line * load.depth
        self.depth = load.depth
        self.done = done
        self.samples = samples
        self.requests = 0
        self.wanted = b""
        self.over = False
        self._got = b""
        self._sent_s = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def begin(self) -> None:
        self._sent_s = time.perf_counter()
        self.transport.write(self.batch)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._got.startswith(b"HTTP/"):
            self._fail(Refused("the server speaks HTTP, and this measures the line protocol: measure it with wrk"))
            return
        if self._got.count(b"\n") < self.depth:
            return
        if not self.wanted:
            self.wanted = self._got
            if self._got[:1] != b"v":
                self._fail(Refused(_refusal(self._got.partition(b"\n")[0])))
                return
        if self._got != self.wanted:
            self._fail(Refused(f"the server answered {self._got[:50]!r}, and {self.wanted[:50]!r} before"))
            return
        self._got = b""
        self.requests += self.depth
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(time.perf_counter() - self._sent_s)
        if not self.over:
            self.begin()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.over:
            self._fail(NotReached("the server hung up"))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _refusal(line: bytes) -> str:
    try:
        answered(line)
    except SlotRefused as error:
        return f"{error}; --slot names another one"
    except NotLeading as error:
        return f"this node does not lead ({error}); --addr names the one that does"
    return f"the server answers {line[:20]!r}"


async def measured(load: Load) -> Result:
    """Raises `NotReached`, `Refused`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    samples: list[float] = []
    where = Where.of(load.address)
    askers: list[Asker] = []
    try:
        for _ in range(load.connections):
            _, asker = await loop.create_connection(
                lambda: Asker(load, done, samples), where.host or "localhost", where.port
            )
            askers.append(asker)
    except OSError as error:
        for asker in askers:
            asker.over = True
            asker.transport.abort()
        raise NotReached(
            f"{load.address}: {fault_of(error)}, after {len(askers)} of {load.connections} connections"
        ) from None
    began_s = time.perf_counter()
    for asker in askers:
        asker.begin()
    try:
        await asyncio.wait([done], timeout=load.seconds)
        seconds = time.perf_counter() - began_s
        requests = sum(asker.requests for asker in askers)
        if done.done():
            done.result()
    finally:
        for asker in askers:
            asker.over = True
            asker.transport.abort()
        await asyncio.sleep(0)
    if not requests:
        raise NotReached(f"{load.address}: no answer in {load.seconds} s")
    samples.sort()
    points = [samples[min(len(samples) - 1, int(len(samples) * part))] * 1e6 for part in (0.5, 0.99)]
    return Result(requests, seconds, points[0], points[1], samples[-1] * 1e6)
