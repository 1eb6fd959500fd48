"""Keys that nobody has: what the election adds on a healthy cluster, and a crowd that asks for all of them at once.

`cold`: three peers with LMDB and a source that answers at once, so that everything a client waits for is added time.
Beside it the sockets of a peer that send a message back: PUB and SUB each way, in the same loop. No sync is on the path
of an election: the ceiling of terms is stored ahead of time, and the value after the client has it. So none is allowed
for.

`crowd`: 50 clients ask five peers for 200 keys each, all at once. The source takes 2.5 s and is asynchronous. Ideal is
one flight: as long as the source takes, however many ask.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median, quantiles

from tests.support.ports import free_ports

from bench.cache_hits import Serves, python
from bench.report import Row, spread
from primacy.cache.client import Client
from primacy.cache.sockets import PeerSockets
from primacy.cache.wire import LIMITS
from primacy.errors import NotReached

COLD_KEYS = 60
"""In each round."""
COLD_RATIO = 10.0
COLD_P99_MS = 50.0
CLIENTS = 50
CROWD_KEYS = 200
CROWD_PEERS = 5
TAKES_S = 2.5
CROWD_RATIO = 1.3
CROWD_TIMEOUT_MS = 60_000
READY_S = 30.0


def cluster(stack: ExitStack, count: int, folder: Path, log: Path | None = None, takes_s: float = 0.0) -> list[str]:
    """Their addresses for clients, once they run. They end with the stack."""
    ports = free_ports(2 * count)
    where = [(f"tcp://127.0.0.1:{ports[i]}", f"tcp://127.0.0.1:{ports[count + i]}") for i in range(count)]
    for each, (url, api) in enumerate(where):
        kept = str(folder / f"peer-{each}") if log is None else ""
        argv = python(
            kind="peer",
            url=url,
            api=api,
            peers=where,
            source=True,
            takes_s=takes_s,
            log=str(log) if log else "",
            folder=kept,
        )
        stack.callback(Serves(argv, api).end)
    return [api for _, api in where]


async def answered(api: str) -> None:
    """Until this peer gets entries: it and a majority see each other."""
    until_s = time.monotonic() + READY_S
    async with Client(api) as client:
        while True:
            try:
                await client.get(f"ready {api}", timeout_ms=5_000)
                break
            except NotReached:
                if time.monotonic() > until_s:
                    raise


class Pings:
    """A message to and fro between two processes, on the sockets of peers."""

    async def open(self, stack: ExitStack) -> None:
        url, there, api, there_api = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
        stack.callback(Serves(python(kind="pong", url=there, api=there_api, other=url)).end)
        self.sockets = PeerSockets(url, LIMITS)
        self.sockets.open(url, api, [there])
        self.frames = [there.encode(), url.encode(), b"?", b"report:2026-11:by-region", b"\x01" * 6, bytes(60)]
        self.loop = asyncio.get_running_loop()
        self.heard: asyncio.Future[None] = self.loop.create_future()
        self.sockets.watch(self.loop, self._turn)
        until_s = time.monotonic() + READY_S
        while True:
            try:
                await asyncio.wait_for(self.once_ms(), 0.2)
                break
            except TimeoutError:
                if time.monotonic() > until_s:
                    raise SystemExit("bench: the sockets of two peers do not hear each other") from None
        await asyncio.sleep(0.3)  # what was sent before and comes late

    def _turn(self) -> None:
        while self.sockets.from_peers() is not None:
            if not self.heard.done():
                self.heard.set_result(None)

    async def once_ms(self) -> float:
        self.heard = self.loop.create_future()
        before_ns = time.perf_counter_ns()
        self.sockets.to_peers(self.frames)
        self.sockets.look()
        await self.heard
        return (time.perf_counter_ns() - before_ns) / 1e6


async def cold(rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    took: list[float] = []
    pings: list[float] = []
    with ExitStack() as stack:
        apis = cluster(stack, 3, folder)
        for api in apis:
            await answered(api)
        ping = Pings()
        await ping.open(stack)
        async with Client(apis) as client:
            for turn in range(rounds * COLD_KEYS):
                pings.append(await ping.once_ms())
                before_ns = time.perf_counter_ns()
                found = await client.get(f"cold {turn}")
                took.append((time.perf_counter_ns() - before_ns) / 1e6)
                assert found.value == b"value of cold %d" % turn
        await ping.sockets.close()
    p99_ms = quantiles(took, n=100)[98] if len(took) > 1 else took[0]
    rows = [
        Row(
            "cold",
            "three peers, added until the client has it, p50",
            spread(took),
            f"ping-pong {spread(pings)}",
            median(took) / median(pings),
            COLD_RATIO,
        ),
        Row("cold", "the same, p99 in ms", spread(took), "", p99_ms, COLD_P99_MS),
        Row("cold", "the same, p50 in ms", spread(took), "", median(took), 5.0, promise=False),
    ]
    return rows, {"cold_ms": took, "cold_ping_ms": pings}


async def crowd(rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    log = folder / "fetched"
    log.touch()
    makespans: list[float] = []
    with ExitStack() as stack:
        apis = cluster(stack, CROWD_PEERS, folder, log, TAKES_S)
        await asyncio.gather(*(answered(api) for api in apis))
        async with AsyncExitStack() as opened:
            asking = [await opened.enter_async_context(Client(apis)) for _ in range(CLIENTS)]
            await asyncio.gather(*(client.get(f"ready {apis[0]}") for client in asking))
            log.write_text("")
            for turn in range(rounds):
                keys = [f"crowd {turn} {number}" for number in range(CROWD_KEYS)]
                before_s = time.perf_counter()
                found = await asyncio.gather(
                    *(client.get(key, timeout_ms=CROWD_TIMEOUT_MS) for client in asking for key in keys)
                )
                makespans.append(time.perf_counter() - before_s)
                assert [one.value for one in found] == [f"value of {key}".encode() for _ in asking for key in keys]
    fetched = log.read_text().splitlines()
    wanted = rounds * CROWD_KEYS
    asked = f"{CLIENTS} clients, {CROWD_KEYS} keys each, {CROWD_PEERS} peers"
    rows = [
        Row("crowd", f"{asked}: retrievals per key", f"{len(fetched)}", f"{wanted} keys", len(fetched) / wanted, 1.0),
        Row(
            "crowd",
            f"{asked}: until all have all",
            spread(makespans, "s"),
            f"one flight {TAKES_S:g} s",
            median(makespans) / TAKES_S,
            CROWD_RATIO,
        ),
    ]
    return rows, {"crowd_s": makespans, "crowd_fetched": [float(len(fetched))]}


def run(part: str, rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    return asyncio.run(cold(rounds, folder) if part == "cold" else crowd(rounds, folder))
