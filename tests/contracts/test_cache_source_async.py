"""Calls of async functions: those that are ended before they began, and the thread that watches their loop."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings

import pytest

from primacy.cache.model import Failure, Fetched
from primacy.cache.source_async import FROZEN_MS, LOOKS, AsyncCall, LoopWatch
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


def test_C4_a_process_that_is_late_at_every_look_is_no_excuse_for_a_loop_that_gives_no_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was stopped once is asked again; one that hardly gets a processor would be asked for ever."""
    watch = LoopWatch(pytest.fail, SystemClock())
    watch._loop = asyncio.new_event_loop()  # it never runs
    now_ms, sleeps = [0], iter([2 * FROZEN_MS] * (1 + LOOKS))

    def sleep(_: float) -> None:
        now_ms[0] += next(sleeps)

    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ms[0] * 1_000_000)
    monkeypatch.setattr(time, "sleep", sleep)
    try:
        assert not watch._loop_answers()
    finally:
        monkeypatch.undo()
        watch._loop.close()


def test_a_process_that_stood_still_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = LoopWatch(pytest.fail, SystemClock())
    watch._loop = asyncio.new_event_loop()
    now_ms, sleeps = [0], iter([10 * FROZEN_MS, 1, 1])

    def sleep(_: float) -> None:
        now_ms[0] += next(sleeps)
        if now_ms[0] > 10 * FROZEN_MS + 1:
            watch._sign()

    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ms[0] * 1_000_000)
    monkeypatch.setattr(time, "sleep", sleep)
    try:
        assert watch._loop_answers()
    finally:
        monkeypatch.undo()
        watch._loop.close()
