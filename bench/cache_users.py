"""What a program in Python waits for: one value of 100 bytes, asked for again and again, one request at a time.

redis-py's GET and pymemcache's get beside the clients of this product, and a hit of `@cached` that needs no peer. Wall
time, because a caller waits by the wall: a machine that has other work to do makes all of it slower, and the ratios
less certain.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.ports import free_ports

import primacy
from bench import cache_hits, processes
from bench.cache_hits import VALUE_BYTES
from bench.cache_server import KEY
from bench.report import Row, spread
from primacy.cache.client import Client
from primacy.cache.threads import CacheClient

GETS = 1_000
LOCAL_HITS = 20_000
LOCAL_RATIO = 1 / 20
"""A hit of the decorator without a peer, beside redis-py's GET."""
CLIENT_RATIO = 2.0
"""A get of the cache's client beside redis-py's GET. For people: no promise."""
READY_S = 30.0
SERVERS = {
    "redis": (
        ("redis-server", "--port", "{port}", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"),
        "redis",
    ),
    "memcached": (("memcached", "-p", "{port}", "-l", "127.0.0.1", "-U", "0", "-t", "1"), "pymemcache"),
}


def missing(name: str) -> str:
    """Why it cannot be compared with, or nothing."""
    argv, module = SERVERS[name]
    if shutil.which(argv[0]) is None:
        return f"{argv[0]} is not here: install it with make peers"
    if importlib.util.find_spec(module) is None:
        return f"the Python package {module} is not here: install it with make peers"
    return ""


def started(stack: ExitStack, name: str, folder: Path) -> int:
    """Its port, once it listens. It ends with the stack."""
    (port,) = free_ports(1)
    argv = [word.format(port=port) for word in SERVERS[name][0]]
    if name == "memcached" and os.geteuid() == 0:
        argv += ["-u", "nobody"]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    stack.callback(processes.end, [process])
    until_s = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"bench: {name} does not listen") from None
            time.sleep(0.05)
        else:
            return port


def per_call_us(call: Callable[[], Any], times: int) -> float:
    """Median: a moment in which the machine does something else counts little."""
    took = []
    for _ in range(times):
        before_ns = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - before_ns)
    return median(took) / 1_000


def per_hit_us(call: Callable[[], Any]) -> float:
    """Of calls that are shorter than a look at the clock: the median of batches."""
    took = []
    for _ in range(20):
        call()  # what a copy's end costs is no hit
        before_ns = time.perf_counter_ns()
        for _ in range(LOCAL_HITS // 20):
            call()
        took.append((time.perf_counter_ns() - before_ns) / (LOCAL_HITS // 20))
    return median(took) / 1_000


async def per_get_us(api: str) -> float:
    async with Client(api) as client:
        for _ in range(20):
            assert len((await client.get(KEY)).value) == VALUE_BYTES
        took = []
        for _ in range(GETS):
            before_ns = time.perf_counter_ns()
            await client.get(KEY)
            took.append(time.perf_counter_ns() - before_ns)
    return median(took) / 1_000


def clients(stack: ExitStack, folder: Path, api: str, said: Callable[[str], None]) -> dict[str, Callable[[], float]]:
    """What is measured, by name. Each answers once before it counts."""
    found: dict[str, Callable[[], float]] = {}
    for name in SERVERS:
        if why := missing(name):
            said(f"skipped: {name}: {why}")
            continue
        port = started(stack, name, folder)
        if name == "redis":
            there = importlib.import_module("redis").Redis("127.0.0.1", port)
        else:
            there = importlib.import_module("pymemcache").Client(("127.0.0.1", port))
        stack.callback(there.close)
        there.set(KEY, bytes(VALUE_BYTES))
        assert there.get(KEY) == bytes(VALUE_BYTES)
        found[name] = lambda there=there: per_call_us(lambda: there.get(KEY), GETS)  # type: ignore[misc]
    found["Client.get"] = lambda: asyncio.run(per_get_us(api))
    blocking = stack.enter_context(CacheClient(api))
    blocking.get(KEY)
    found["CacheClient.get"] = lambda: per_call_us(lambda: blocking.get(KEY), GETS)
    called = 0

    @primacy.cached(ttl_ms=3_600_000, name="report", apis=[api], serializer="bytes", local_ms=60_000)
    def report(region: str) -> bytes:
        nonlocal called
        called += 1
        return region.encode() * 10

    assert report("abcdefghij") == report("abcdefghij")
    assert called == 1, "the function was called once, and is not needed any more"
    found["@cached"] = lambda: per_hit_us(lambda: report("abcdefghij"))
    return found


def compared(rounds: int, folder: Path, said: Callable[[str], None]) -> tuple[list[Row], dict[str, list[float]]]:
    server = cache_hits.peer("none")
    took: dict[str, list[float]] = {}
    try:
        with ExitStack() as stack:
            measured = clients(stack, folder, server.api, said)
            for _ in range(rounds):
                for name, measure in measured.items():
                    took.setdefault(name, []).append(measure())
    finally:
        server.end()
    rows = []
    for name, goal in (("@cached", LOCAL_RATIO), ("Client.get", CLIENT_RATIO), ("CacheClient.get", CLIENT_RATIO)):
        for other in [one for one in SERVERS if one in took]:
            ratio = median(a / b for a, b in zip(took[name], took[other], strict=True))
            what = f"{name} beside {other}, a caller waits"
            rows.append(Row("users", what, spread(took[name], "us"), spread(took[other], "us"), ratio, goal, False))
    return rows, {f"users_{name}_us": values for name, values in took.items()}
