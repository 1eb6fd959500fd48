"""Calls of async functions that are ended before they began: nothing of them is left for Python to complain about."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from primacy.cache.model import Failure, Fetched
from primacy.cache.source_async import AsyncCall, LoopWatch
from primacy.cache.source_guard import instants
from primacy.node.clock import SystemClock

BEGUN: list[str] = []


async def work() -> Fetched | Failure:
    BEGUN.append("begun")
    return Fetched(b"value")


@pytest.mark.parametrize("how", ["stopped at once", "late before it began"])
def test_a_call_that_is_ended_before_it_began_leaves_nothing(how: str) -> None:
    ends: list[Fetched | Failure] = []

    async def main() -> None:
        clock = SystemClock()
        watch = LoopWatch(pytest.fail, clock)
        now_ms = clock.now_ms()
        until = instants(now_ms - 1, now_ms) if how.startswith("late") else instants(now_ms + 60_000, now_ms + 70_000)
        call = AsyncCall(work(), until, ends.append, clock, watch)
        call.stop(until, "it was invalidated")
        while not ends:
            await asyncio.sleep(0)

    BEGUN.clear()
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert len(ends) == 1
    assert isinstance(ends[0], Failure)
    assert BEGUN == []
    assert [str(complaint.message) for complaint in complaints] == []
