"""Real cache peers, each a process, on real sockets: one call per key, whatever happens to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.cache_crowd import Crowd

from primacy.cache.client import Client

SOURCE_S = 0.6
"""Longer than a hold, so that holds are renewed. `make proof` takes the 2.5 s of the document's tests."""


def run(work: Callable[[], Coroutine[Any, Any, None]], within_s: float = 40) -> None:
    asyncio.run(asyncio.wait_for(work(), within_s))


async def all_get(cache: Client, keys: list[str], clients: int) -> list[float]:
    """How long each took, in seconds."""

    async def one(key: str) -> float:
        began_s = time.monotonic()
        found = await cache.get(key)
        assert found.value == b"value of " + key.encode()
        return time.monotonic() - began_s

    return await asyncio.gather(*(one(key) for key in keys for _ in range(clients)))


@pytest.mark.parametrize("count", [3, 5])
def test_one_call_per_key_for_fifty_clients(tmp_path: Path, count: int) -> None:
    async def work() -> None:
        async with Crowd(tmp_path, count, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=15_000) as cache:
            await asyncio.sleep(0.8)
            took = await all_get(cache, ["cold"], 50)
            print(f"{count} peers, one key: {min(took):.3f} to {max(took):.3f} s")
            assert len(crowd.begun("cold")) == 1
            keys = [f"k{each}" for each in range(20)]
            took = await all_get(cache, keys, 10)
            print(f"{count} peers, 20 keys: {min(took):.3f} to {max(took):.3f} s")
            assert sorted(line.key for line in crowd.begun() if line.key != "cold") == sorted(keys)

    run(work)
