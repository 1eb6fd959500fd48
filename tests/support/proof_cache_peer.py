"""What a release must show of cache peers and clients as real processes: the counts of `make proof PART=cache`.

python -m tests.support.proof_cache_peer
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from primacy.cache.client import Client
from primacy.errors import NotReached
from tests.processes.test_cache_peer import all_get, begun, quick_reads
from tests.support import cache_fuzz
from tests.support.cache_peers import Crowd

SOURCE_S = 2.5
CLIENTS = 50
KEYS = 200
KILLS = 11
FREEZES = 3
SPLITS = 100
FUZZ_S = "60"
SETTLE_S = 1.0
MANY_MS = 60_000


async def cold_keys(count: int) -> str:
    """50 clients at once on one cold key, then 200 keys: one call per key."""
    with TemporaryDirectory() as folder:
        async with Crowd(Path(folder), count, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=MANY_MS) as cache:
            await asyncio.sleep(SETTLE_S)
            one = await all_get(cache, ["cold"], CLIENTS)
            began_s = time.monotonic()
            await all_get(cache, [f"k{each}" for each in range(KEYS)], CLIENTS)
            took_s = time.monotonic() - began_s
            starts = len(crowd.begun())
            assert starts == KEYS + 1, f"{starts} calls for {KEYS + 1} keys"
            return f"{count} peers: one key after {max(one):.2f} s, {KEYS} keys after {took_s:.2f} s, {starts} calls"


def middle_and_most(spans_s: list[float]) -> str:
    return f"{statistics.median(spans_s):.3f} s at the median, {max(spans_s):.3f} at most"


async def kills() -> str:
    """The second start of the source after its peer was killed."""
    gaps = []
    for _ in range(KILLS):
        with TemporaryDirectory() as folder:
            async with Crowd(Path(folder), 3, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=MANY_MS) as cache:
                await asyncio.sleep(SETTLE_S)
                waits = asyncio.create_task(all_get(cache, ["k"], CLIENTS))
                first = await begun(crowd, "k")
                await asyncio.sleep(1.0)
                killed_s = time.monotonic()
                crowd.kill(crowd.which(first.pid))
                await waits
                starts = crowd.begun("k")
                assert len(starts) == 2, f"{len(starts)} starts"
                assert [line.what for line in crowd.calls("k")].count("end") == 1
                gaps.append(starts[1].at_s - killed_s)
    assert statistics.median(gaps) < 0.7, gaps
    assert max(gaps) < 1.1, gaps
    return f"killed {KILLS} times: second start after {middle_and_most(gaps)}"


async def freezes() -> str:
    """Frozen for 3.5 s: what it brings afterwards loses everywhere."""
    for _ in range(FREEZES):
        with TemporaryDirectory() as folder:
            async with Crowd(Path(folder), 3, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=MANY_MS) as cache:
                await asyncio.sleep(SETTLE_S)
                waits = asyncio.create_task(all_get(cache, ["k"], CLIENTS))
                first = await begun(crowd, "k")
                await asyncio.sleep(0.5)
                crowd.freeze(crowd.which(first.pid))
                await asyncio.sleep(3.5)
                crowd.thaw(crowd.which(first.pid))
                await waits
                await asyncio.sleep(SETTLE_S)
                starts = crowd.begun("k")
                assert len(starts) == 2, f"{len(starts)} starts"
                for api in crowd.apis:
                    async with Client(api) as one:
                        assert (await one.get("k")).value == b"value of k by %d" % starts[1].pid
    return f"frozen {FREEZES} times for 3.5 s: its late result lost on every peer"


async def survivor() -> str:
    """2 of 3 dead, then one back."""
    healed = []
    for _ in range(5):
        with TemporaryDirectory() as folder:
            async with Crowd(Path(folder), 3, 0.05) as crowd, Client(crowd.apis[0]) as one:
                await asyncio.sleep(SETTLE_S)
                await one.get("known")
                crowd.kill(1)
                crowd.kill(2)
                await asyncio.sleep(2.5)
                assert (await one.get("known")).stale
                try:
                    await one.get("unknown", timeout_ms=500)
                except NotReached:
                    pass
                else:
                    raise AssertionError("a minority fetched")
                await crowd.restart(1)
                returned_s = time.monotonic()
                await one.get("unknown")
                healed.append(time.monotonic() - returned_s - 0.05)
    assert statistics.median(healed) < 1.0, healed
    return f"2 of 3 dead, one back: healed after {middle_and_most(healed)}"


async def splits(count: int) -> str:
    """All peers asked at once: one call, and what the election adds."""
    takes_s = 0.3
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            crowd = await stack.enter_async_context(Crowd(Path(folder), count, takes_s))
            clients = [await stack.enter_async_context(Client(api, timeout_ms=MANY_MS)) for api in crowd.apis]
            await asyncio.sleep(SETTLE_S)
            extra = []
            for each in range(SPLITS):
                took = await asyncio.gather(*(all_get(client, [f"k{each}"], 1) for client in clients))
                extra.append(max(one for row in took for one in row) - takes_s)
            assert len(crowd.begun()) == SPLITS
            p99 = sorted(extra)[int(0.99 * len(extra)) - 1]
            assert p99 < 0.4, sorted(extra)[-5:]
            return (
                f"{count} peers asked at once: p50 {statistics.median(extra) * 1_000:.0f} ms, p99 {p99 * 1_000:.0f} ms"
            )


async def minorities(count: int, hurt: tuple[int, ...]) -> str:
    """A minority killed, frozen or cut off: no request fails, and hits stay quick."""
    found = {}
    for how in ("frozen", "cut off", "killed"):
        with TemporaryDirectory() as folder:
            async with Crowd(Path(folder), count, 0.05, proxied=True) as crowd, Client(crowd.apis) as cache:
                await asyncio.sleep(SETTLE_S)
                await all_get(cache, [f"k{each}" for each in range(20)], 1)
                for which in hurt:
                    if how == "frozen":
                        crowd.freeze(which)
                    elif how == "killed":
                        crowd.kill(which)
                if how == "cut off":
                    crowd.cut(*hurt)
                found[how], _ = await quick_reads(cache, how[:3], 10.0)
    assert max(found.values()) < 0.05, found
    figures = ", ".join(f"{how} {p99 * 1_000:.1f} ms" for how, p99 in found.items())
    return f"{len(hurt)} of {count} gone: p99 of hits: {figures}"


PARTS: tuple[Callable[[], Coroutine[Any, Any, str]], ...] = (
    lambda: cold_keys(3),
    lambda: cold_keys(5),
    kills,
    freezes,
    survivor,
    lambda: splits(3),
    lambda: splits(5),
    lambda: minorities(3, (2,)),
    lambda: minorities(5, (1, 3)),
)


def main() -> int:
    for part in PARTS:
        print(asyncio.run(part()), flush=True)
    seed = str(secrets.randbits(32))
    print(f"hostile frames for {FUZZ_S} s, seed {seed}", flush=True)
    return cache_fuzz.main([FUZZ_S, seed])


if __name__ == "__main__":
    sys.exit(main())
