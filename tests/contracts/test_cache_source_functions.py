"""Functions as sources of a cache: in workers, and on the peer's own loop. Nothing of a call outlives its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from primacy.cache.effects import Cancel, Extend
from primacy.cache.model import Failure, Fetched
from primacy.cache.source import SourceSpec, target_of
from primacy.cache.source_guard import Instants
from primacy.cache.source_process import FunctionSource, Worker
from primacy.errors import UsageError
from tests.support import cache_functions
from tests.support.canary import Canary
from tests.support.source_harness import BALLOT, HOSTILE, LIMIT_S, Harness, reason, with_harness

pytestmark = pytest.mark.beside(order=485)

CANARY_HEARTBEAT_MS = 200
"""Holds and limits here are of some hundred milliseconds: that a call ends as it was told to, and not for one of them,
is asked of a machine that lets it run."""


# --- in workers -------------------------------------------------------------------------------------------------------


def test_keys_reach_a_function_as_they_are() -> None:
    async def work(harness: Harness) -> None:
        for key in [*HOSTILE, b"a\0b", b"x" * 65_535]:
            assert await harness.get(key) == Fetched(b"<" + key + b">")

    with_harness(work, SourceSpec("call:tests.support.cache_functions:echo"))


def test_what_a_function_may_return() -> None:
    async def work(harness: Harness) -> None:
        expected = {
            b"bytes": Fetched(b"\0\xff"),
            b"text": Fetched("grün".encode()),
            b"array": Fetched(b"x"),
            b"none": Failure("the source has no such entry", missing=True),
            b"fetched": Fetched(b"x", 500),
            b"failure": Failure("not today"),
            b"missing": Failure("never was", missing=True),
            b"number": Failure("the source returned int; bytes, text, Fetched, Failure or None are right"),
            b"just": Fetched(bytes(1_000_000)),
            b"large": Failure("the source gave 3,000,000 bytes or more; cache.value_bytes_max is 1,000,000"),
        }
        for key, result in expected.items():
            assert await harness.get(key) == result
        assert "ttl_ms of 'soon'" in reason(await harness.get(b"wrong ttl"))
        assert "KeyError: b'unknown' (cache_functions.py line" in reason(await harness.get(b"unknown"))

    with_harness(work, SourceSpec("call:tests.support.cache_functions:kinds"), value_bytes_max=1_000_000)


def test_a_bad_function_costs_its_call_and_no_other() -> None:
    async def work(harness: Harness) -> None:
        assert reason(await harness.get(b"raises")).startswith(
            "ValueError: a word in two lines (cache_functions.py line"
        )
        assert reason(await harness.get(b"exits")).startswith("SystemExit: 3")
        assert await harness.get(b"prints") == Fetched(b"said")
        assert await harness.get(b"reads") == Fetched(b"nothing")
        assert "has ended with code 9" in reason(await harness.get(b"dies"))
        assert await harness.get(b"well") == Fetched(b"well")
        assert isinstance(await harness.get(b"writes"), Failure)
        assert await harness.get(b"well") == Fetched(b"well")
        over_at = harness.start(b"deaf", 450, 3_450)
        assert isinstance((await harness.end()).result, Failure)
        assert harness.clock.now_ms() <= over_at
        assert await harness.get(b"well") == Fetched(b"well")

    assert with_harness(work, SourceSpec("call:tests.support.cache_functions:bad")).left == []


def test_workers_are_kept_and_used_again() -> None:
    async def work(harness: Harness) -> None:
        assert len({await harness.get(b"%d" % n) for n in range(20)}) <= 2
        for n in range(6):
            harness.start(b"%d" % n)
        assert len({(await harness.end()).result for _ in range(6)}) >= 2

    with_harness(work, SourceSpec("call:tests.support.cache_functions:process"))


def test_no_second_spare_worker_is_started_while_the_first_is_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer to load than many calls take."""
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.5)\ndef get(key): return key\n")
    started, new = [], FunctionSource._new

    def counted(self: FunctionSource, *until: Instants) -> Worker:
        started.append(until)
        return new(self, *until)

    monkeypatch.setattr(FunctionSource, "_new", counted)
    monkeypatch.syspath_prepend(str(tmp_path))

    async def work(harness: Harness) -> None:
        for n in range(20):
            assert await harness.get(b"%d" % n) == Fetched(b"%d" % n)

    with_harness(work, SourceSpec("call:slow_to_load:get"))
    assert started == [(), ()], "one with the source, one ahead of the next call"


def test_a_function_of_a_class_and_one_that_was_handed_over() -> None:
    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(b"sold a")
        assert await harness.get(b"echo") == Fetched(b"<echo>")

    with_harness(
        work,
        SourceSpec("call:tests.support.cache_functions:Shop.fetch"),
        SourceSpec(cache_functions.echo, prefix=b"echo"),
    )


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("call:tests.no_such_module:f", "ModuleNotFoundError"),
        ("call:tests.support.cache_functions:no_such_function", "AttributeError"),
        ("call:tests.support.cache_functions:ANSWER", "cannot be called"),
        ("call:tests.cache_broken:f", "ZeroDivisionError"),
        ("call:nonsense", "call:package.module:function"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_told_at_the_start(
    source: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache_broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=part):
        with_harness(None, SourceSpec(source.replace("tests.cache_broken", "cache_broken")), folder=str(tmp_path))  # type: ignore[arg-type]


def test_a_function_that_no_worker_could_find_is_refused() -> None:
    def inner(key: bytes) -> bytes:
        return key

    for wrong in (inner, lambda key: key):
        with pytest.raises(UsageError, match="cannot be found by a worker"):
            target_of(wrong)
    assert target_of(cache_functions.echo) == "tests.support.cache_functions:echo"


def test_the_interpreter_of_workers_is_this_one() -> None:
    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(sys.executable.encode())

    with_harness(work, SourceSpec("call:tests.contracts.test_cache_source_functions:executable"))


def executable(key: bytes) -> str:
    return sys.executable


# --- on the loop ------------------------------------------------------------------------------------------------------


def test_an_async_function_runs_on_the_loop() -> None:
    async def work(harness: Harness) -> None:
        for n in range(30):
            harness.start(b"%d" % n)
        assert {(await harness.end()).result for _ in range(30)} == {Fetched(b"<%d>" % n) for n in range(30)}

    with_harness(work, SourceSpec("call:tests.support.cache_functions:aecho"))


def test_C4_a_coroutine_is_not_gone_on_with_after_its_cancel_was_due() -> None:
    """The loop stands still in the middle of a turn: the coroutine's turn is in it, the cancel only in the next."""
    went: list[str] = []
    gates: list[asyncio.Future[None]] = []

    async def fetch(key: bytes) -> bytes:
        gates.append(asyncio.get_running_loop().create_future())
        try:
            await gates[0]
            went.append("gone on")
            return b"late"
        except asyncio.CancelledError:
            went.append("cancelled")
            await asyncio.sleep(0)
            went.append("tidied up")
            raise

    async def work(harness: Harness) -> None:
        harness.start(b"k", cancel_ms=1_500, over_ms=6_000)
        while not gates:
            assert harness.calls.running, "it ended before it began"
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 1.6)
        gates[0].set_result(None)
        found = await harness.end()
        assert isinstance(found.result, Failure)
        assert "not proved anew" in found.result.reason

    assert with_harness(work, SourceSpec(fetch)).left == []
    assert went == ["cancelled", "tidied up"]


def test_an_async_function_that_fails_or_is_cancelled() -> None:
    async def work(harness: Harness) -> None:
        assert reason(await harness.get(b"raises")).startswith("ValueError: no (cache_functions.py")
        for key in (b"sleeps", b"slow to end"):
            over_at = harness.start(key)
            await asyncio.sleep(0.05)
            harness.calls.cancel(Cancel(key, BALLOT, over_at))
            assert (await harness.end()).result == Failure("it was cancelled")

    assert with_harness(work, SourceSpec(cache_functions.abad)).left == []


class Stubborn:
    """A source that ends when it is let go, and not when it is cancelled."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()

    async def fetch(self, key: bytes) -> bytes:
        while not self._stop.is_set():
            with suppress(asyncio.CancelledError):
                await self._stop.wait()
        return b"late"

    def let_go(self) -> None:
        self._stop.set()

    def during(self, work: Callable[[Harness], Awaitable[None]]) -> Callable[[Harness], Awaitable[None]]:
        """Let go at the end, also of a test that fails: the loop waits for it."""

        async def whole(harness: Harness) -> None:
            try:
                await work(harness)
            finally:
                self.let_go()

        return whole


def test_one_that_outlives_its_cancel_ends_the_process() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        with Canary(50) as canary:
            over_at = harness.start(b"a", 300, 450)
            async with asyncio.timeout(LIMIT_S):
                while not harness.left:
                    await asyncio.sleep(0.005)
            late_ms = harness.clock.now_ms() - over_at
        canary.judge(late_ms < 200, f"the process ends {late_ms} ms after the hold")
        assert "key a is not over by the end of its hold" in harness.left[0]
        assert harness.ended.empty()
        source.let_go()
        assert (await harness.end()).result == Failure("the hold was not proved anew in time")

    with_harness(source.during(work), SourceSpec(source.fetch))


def test_one_that_outlives_its_time_limit_ends_the_process_although_its_hold_is_proved() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        harness.start(b"a", 450, 600)
        began = harness.clock.now_ms()
        while not harness.left:
            now = harness.clock.now_ms()
            assert now < began + LIMIT_S * 1_000
            harness.calls.extend(Extend(b"a", BALLOT, now + 450, now + 600))
            await asyncio.sleep(0.05)
        source.let_go()
        assert reason((await harness.end()).result) == "the source took longer than 300 ms"

    with_harness(source.during(work), SourceSpec(source.fetch, timeout_ms=300))


def test_with_alert_it_is_said_and_the_late_end_is_not_told_again() -> None:
    source = Stubborn()

    async def work(harness: Harness) -> None:
        harness.start(b"a", 100, 250)
        assert (await harness.end()).result == Failure("it could not be ended in time")
        assert len(harness.alerts) == 1
        assert "another peer may fetch" in harness.alerts[0]
        assert harness.calls.running == 1, "it still has its place"
        source.let_go()
        async with asyncio.timeout(LIMIT_S):
            while harness.calls.running:
                await asyncio.sleep(0.005)

    assert with_harness(source.during(work), SourceSpec(source.fetch), on_overrun="alert").left == []
