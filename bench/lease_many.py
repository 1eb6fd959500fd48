"""Many leases in one process, and beside it as many locks of redis-py: processor time and statements a second.

Ours are leases of the library under one renewer, so that renewals share statements, each committed to disk where the
store does that. A lock of redis-py is extended by a request of its own; its server keeps everything in memory here, and
nothing ends the work of a lock that was lost. Both renew equally often.

    python -m bench.lease_many store URL COUNT PROFILE SECONDS      holds them, says so, and then what it cost
    python -m bench.lease_many redis PORT COUNT PROFILE SECONDS
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import free_ports

from bench import processes
from bench.peers import ROOT
from primacy.library.election import Election
from primacy.library.renewer import Renewer, timing_of

LEASES = 1_000
UP_S = 30.0
HOLD_S_MOST = 300.0
"""For all of them to be held: new names are watched for a hold, and taken twenty at a time."""


class Cost(NamedTuple):
    """Per second, with all of them held."""

    cpu_ms: float
    """Of the process that holds them."""
    server_ms: float
    """Of the server; 0 where there is none."""
    statements: float
    """Requests over the line, or calls of the store."""
    renewals: float
    lost: int
    """Leaderships that ended meanwhile."""


def missing() -> str:
    """Why redis-py cannot be measured here, as a sentence; empty if it can."""
    if not shutil.which("redis-server"):
        return "redis-server is not here: make peers"
    return "" if importlib.util.find_spec("redis") else "redis-py is not here: make peers"


def measured(party: str, where: str, count: int, profile: str, span_s: float, server: int = 0) -> Cost:
    """One process of its own; `server`: the process that answers it."""
    argv = [sys.executable, "-m", "bench.lease_many", party, where, str(count), profile, str(span_s)]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != "held":
            raise RuntimeError(f"{party} did not get its {count} leases; its own lines say why")
        before_ns = _cpu_ns(server)
        cost = Cost(**json.loads(holder.stdout.readline()))
        return cost._replace(server_ms=(_cpu_ns(server) - before_ns) / 1e6 / span_s)
    finally:
        processes.end([holder])
        holder.wait(processes.ENDS_S)
        assert holder.stdout is not None
        holder.stdout.close()


def _cpu_ns(server: int) -> int:
    return sum(processes.cpu_ns(pid) for pid in processes.tree(server)) if server else 0


class RedisServer:
    """On a free port of loopback, with nothing on disk."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        argv = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        argv += ["--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def _wait(self) -> None:
        import redis  # noqa: PLC0415 -- a peer, which may not be here

        last_s = time.monotonic() + UP_S
        with redis.Redis(port=self.port) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    if self.process.poll() is not None or time.monotonic() > last_s:
                        raise
                    time.sleep(0.05)

    def end(self) -> None:
        processes.end([self.process])


# --- in the process that holds them -----------------------------------------------------------------------------------


def spent(span_s: float, counted: Callable[[], tuple[int, int, int]], wait: Callable[[], None]) -> str:
    """What passes between two readings. `counted`: statements, renewals, losses so far."""
    print("held", flush=True)
    before, cpu_ns, began_s = counted(), time.process_time_ns(), time.monotonic()
    wait()
    after, cpu_ns, span_s = counted(), time.process_time_ns() - cpu_ns, time.monotonic() - began_s
    statements, renewals, lost = (b - a for a, b in zip(before, after, strict=True))
    return json.dumps(Cost(cpu_ns / 1e6 / span_s, 0.0, statements / span_s, renewals / span_s, lost)._asdict())


class Counted:
    """A store that counts how often it is asked."""

    def __init__(self, store: Any) -> None:
        self.calls = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("look", "take", "renew", "release"):
            return found

        def call(requests: Any) -> Any:
            self.calls += len(requests) if name == "take" else 1  # takes are written one by one
            return found(requests)

        return call


async def hold_leases(url: str, count: int, profile: str, span_s: float) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))  # each election has a timer of its own
    async with Renewer(url, profile=profile) as renewer, contextlib.AsyncExitStack() as stack:
        store = renewer._opened = Counted(renewer._opened)  # type: ignore[assignment]
        elections = [Election(f"many{n:04}", store=renewer) for n in range(count)]
        for election in elections:
            await stack.enter_async_context(election)
        leaderships = await asyncio.gather(*(election.acquire() for election in elections))
        assert all(leaderships)
        await asyncio.sleep(renewer.timing.hold_ms / 1_000)

        def counted() -> tuple[int, int, int]:
            counts = [election._candidacy.counts for election in elections]
            return store.calls, sum(one.renewed for one in counts), sum(one.lost for one in counts)

        said = await asyncio.to_thread(spent, span_s, counted, lambda: time.sleep(span_s))
        print(said, flush=True)
        os._exit(0)  # a thousand releases are not what is measured


def hold_locks(port: int, count: int, profile: str, span_s: float) -> None:
    import redis  # noqa: PLC0415

    timing = timing_of(profile)
    client = redis.Redis(port=port)
    locks = [
        client.lock(f"many{n:04}", timeout=timing.hold_ms / 1_000, thread_local=False, blocking=False)
        for n in range(count)
    ]
    assert all(lock.acquire() for lock in locks)
    done = [0, 0]

    def renew(until_s: float) -> None:
        """Each in its turn, evenly spread over a heartbeat, on one connection."""
        began_s, pause_s = time.monotonic(), timing.heartbeat_ms / 1_000 / count
        n = 0
        while (now_s := time.monotonic()) < until_s:
            due_s = began_s + n * pause_s
            if due_s > now_s:
                time.sleep(due_s - now_s)
            try:
                locks[n % count].reacquire()
                done[0] += 1
            except redis.exceptions.LockError:
                done[1] += 1
                locks[n % count].acquire()
            n += 1

    def counted() -> tuple[int, int, int]:
        return done[0] + done[1], done[0], done[1]  # one request each

    renew(time.monotonic() + timing.hold_ms / 1_000)
    print(spent(span_s, counted, lambda: renew(time.monotonic() + span_s)), flush=True)


def main() -> None:
    party, where, count, profile, span_s = sys.argv[1:]
    if party == "redis":
        hold_locks(int(where), int(count), profile, float(span_s))
    else:
        asyncio.run(asyncio.wait_for(hold_leases(where, int(count), profile, float(span_s)), HOLD_S_MOST))


if __name__ == "__main__":
    main()
