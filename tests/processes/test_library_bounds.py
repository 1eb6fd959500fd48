"""`lock_at_most_ms` and `lock_at_least_ms`: how long a lock is held, however long its work takes."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy import blocking
from primacy.library.sigterm import EXIT_CODE
from primacy.node.clock import SystemClock
from primacy.settings.timing import PROFILES
from tests.support.library_harness import CANARY_HEARTBEAT_MS, HOLD_S, WITHIN_S, Place, place, run
from tests.support.safety_checks import safe, tokens_grow
from tests.support.store_harness import made_new

pytestmark = pytest.mark.moments(order=91)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]

AT_MOST = r"lock_at_most_ms = 300"


def now_ms() -> int:
    return SystemClock().now_ms()


# --- at most ----------------------------------------------------------------------------------------------------------


def test_at_most_cancels_the_body_and_the_lock_is_free_again(place: Place) -> None:
    async def body() -> None:
        began = time.monotonic()
        with pytest.raises(primacy.LeadershipLost, match=AT_MOST):
            async with primacy.Lock("job", store=place.url, profile="wan", lock_at_most_ms=300):
                await asyncio.sleep(WITHIN_S)
        assert 0.3 <= time.monotonic() - began < PROFILES["wan"].hold_ms / 1_000, "released, and no hold waited for"
        assert place.row().released

    run(body)


def test_at_most_a_body_that_is_over_before_has_lost_nothing(place: Place) -> None:
    async def body() -> None:
        async with primacy.Lock("job", store=place.url, profile="lab", lock_at_most_ms=WITHIN_S * 1_000) as held:
            assert held.left_ms() > 0
            await asyncio.sleep(1.2 * HOLD_S)
            held.check()

    run(body)
    assert place.row().released


def test_at_most_singleton_runs_again_and_once_raises(place: Place) -> None:
    async def body() -> None:
        tokens: list[int] = []

        @primacy.singleton("job", store=place.url, profile="lab", lock_at_most_ms=300)
        async def serve() -> str:
            tokens.append(primacy.current().token)
            if len(tokens) == 1:
                await asyncio.sleep(WITHIN_S)
            return "done"

        assert await serve() == "done"
        assert len(tokens) == 2
        tokens_grow(tokens)

        @primacy.once("job", store=place.url, profile="lab", lock_at_most_ms=300)
        async def report() -> None:
            await asyncio.sleep(WITHIN_S)

        with pytest.raises(primacy.LeadershipLost, match=AT_MOST):
            await report()

    run(body)


def test_at_most_nobody_begins_before_the_end_of_the_hold(place: Place) -> None:
    """Nothing can cancel a thread. So nobody else begins before the end of what it was told to be valid."""
    election = blocking.Election("job", store=place.url, profile="lab", lock_at_most_ms=300)
    with election:
        held = next(election)
        with ThreadPoolExecutor() as pool:

            def take() -> int:
                with blocking.Lock("job", store=place.url, profile="lab"):
                    return now_ms()

            taken = pool.submit(take)
            time.sleep(0.35)
            with pytest.raises(primacy.LeadershipLost, match=AT_MOST):
                held.check()
            assert held.left_ms() == 0
            until_ms = held.valid_until_ms
            taken_ms = taken.result(WITHIN_S)
        safe(taken_ms >= until_ms, f"another began {until_ms - taken_ms} ms before the end of the hold")
        assert held.valid_until_ms == until_ms, "nothing is renewed after that"
    assert election.counts.lost == 1


KILLED = """
import sys, time
from primacy import blocking
with blocking.Lock("it", store=sys.argv[1], profile="lab", lock_at_most_ms=200, on_loss="kill"):
    print("leads", flush=True)
    time.sleep(600)
"""


def test_at_most_with_kill_the_kernel_ends_work_that_hangs(tmp_path: Path) -> None:
    store = made_new(f"sqlite:///{tmp_path}/leases.db")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", KILLED, store], capture_output=True, timeout=WITHIN_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert time.monotonic() - began >= 0.2


# --- at least ---------------------------------------------------------------------------------------------------------


def test_at_least_the_lock_stays_taken_after_short_work_also_if_it_raises(place: Place) -> None:
    async def body() -> None:
        for wrong in (False, True):
            began = time.monotonic()
            waiting = None
            try:
                async with primacy.Lock("job", store=place.url, profile="lab", node="a", lock_at_least_ms=700):
                    waiting = asyncio.create_task(taken())
                    if wrong:
                        raise ValueError("mine")
            except ValueError:
                assert wrong
            assert time.monotonic() - began >= 0.7
            assert await waiting - began >= 0.7

    async def taken() -> float:
        async with primacy.Lock("job", store=place.url, profile="lab"):
            return time.monotonic()

    run(body)


def test_at_least_of_an_election_its_own_next_turn_waits_too(place: Place) -> None:
    async def body() -> None:
        starts: list[float] = []
        async with place.election(lock_at_least_ms=700, rest_ms=1) as election:
            async for leadership in election:
                async with leadership:
                    starts.append(time.monotonic())
                    if len(starts) == 1:
                        continue
                break
            assert await election.acquire(10) is None, "kept still"
        assert starts[1] - starts[0] >= 0.7
        assert place.row().released
        assert election.counts.lost == 0

    run(body)


def test_at_least_a_store_that_goes_away_costs_the_result_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "primacy")

    @primacy.once("job", store=place.url, profile="lab", lock_at_least_ms=5_000)
    def report() -> str:
        return "done"

    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        found = pool.submit(report)
        while "the lease is kept for" not in caplog.text:
            time.sleep(0.005)
        place.table.up = False
        while "was to be kept longer, and was lost" not in caplog.text:
            time.sleep(0.005)
        place.table.up = True
        assert found.result(WITHIN_S) == "done"
        assert time.monotonic() - began < 5


def test_at_least_a_body_that_ends_in_the_moment_of_a_loss_keeps_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewer hears of the loss first, and of the end of the body a moment later."""
    began = time.monotonic()
    with blocking.Election("job", store=place.url, profile="lab", lock_at_least_ms=WITHIN_S * 1_000) as election:
        held, now = next(election), election._renewer.now

        def late(function: Any, *arguments: Any) -> None:
            while function == election._candidacy._over and not election.counts.lost:
                time.sleep(0.005)
            now(function, *arguments)

        monkeypatch.setattr(election._renewer, "now", late)
        place.table.up = False
        with held:
            pass
        place.table.up = True
    assert time.monotonic() - began < WITHIN_S / 2, "nobody waits for a lease that is gone"


def test_wrong_bounds_are_told_where_they_stand(place: Place) -> None:

    def decorated(name: str, **options: Any) -> object:
        return primacy.singleton(name, **options)(print)

    for made in (primacy.Election, blocking.Election, primacy.Lock, blocking.Lock, primacy.once, decorated):
        with pytest.raises(
            primacy.UsageError,
            match=r"lock_at_least_ms = 2,000 is longer than lock_at_most_ms = 1,000: lower the first, or raise",
        ):
            made("job", store=place.url, lock_at_least_ms=2_000, lock_at_most_ms=1_000)
        with pytest.raises(primacy.UsageError, match="lock_at_most_ms is a time in whole milliseconds, not '3s'"):
            made("job", store=place.url, lock_at_most_ms="3s")
        with pytest.raises(primacy.UsageError, match=r"lock_at_most_ms is at most .* leave it out for no limit"):
            made("job", store=place.url, lock_at_most_ms=10**400)
    with pytest.raises(primacy.UsageError, match="two names of one option: say lock_at_least_ms only"):
        primacy.once("job", store=place.url, lock_at_least_ms=5, at_least_ms=5)


# --- at least, and the end of the process -----------------------------------------------------------------------------
# In the times of `lan`: of `lab`, a process that stands still for a tenth of a second loses what it is to keep.

THREAD = """
import sys, time, primacy
@primacy.once("it", store=sys.argv[1], profile="lan", lock_at_least_ms=int(sys.argv[2]))
def work():
    print("works", time.monotonic(), flush=True)
    time.sleep(float(sys.argv[3]))
work()
"""
ASYNC = """
import asyncio, sys, time, primacy
@primacy.once("it", store=sys.argv[1], profile="lan", lock_at_least_ms=int(sys.argv[2]))
async def work():
    print("works", time.monotonic(), flush=True)
    await asyncio.sleep(float(sys.argv[3]))
asyncio.run(work())
"""


class Working:
    """A process whose lock is kept, and how long it took for another to have it, since it worked."""

    def __init__(self, folder: Path, program: str, at_least_ms: int, works_s: float) -> None:
        self.store = made_new(f"sqlite:///{folder}/leases.db")
        call = [sys.executable, "-c", program, self.store, str(at_least_ms), str(works_s)]
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def works(self) -> None:
        """It says so, and at which moment of the clock that all processes share."""
        assert self.process.stdout is not None
        word, at = self.process.stdout.readline().split()
        assert word == "works"
        self.began = float(at)

    def free_after_s(self) -> float:
        with blocking.Lock("it", store=self.store, profile="lab", within_ms=WITHIN_S * 1_000):
            return time.monotonic() - self.began

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=WITHIN_S)


@pytest.fixture
def working(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Working]:
    found = Working(tmp_path, *request.param)
    yield found
    found.end()


@pytest.mark.parametrize(
    "working",
    [(THREAD, 1_000, 0), (ASYNC, 1_000, 600), (ASYNC, 1_000, 0)],
    ids=["thread-waits", "async-works", "async-waits"],
    indirect=True,
)
def test_at_least_SIGTERM_waits_until_then(working: Working) -> None:
    working.works()
    time.sleep(0.2)
    working.process.send_signal(signal.SIGTERM)
    assert working.free_after_s() >= 1 - 0.05  # it had the lock a moment before it worked
    assert working.process.wait(WITHIN_S) == EXIT_CODE


@pytest.mark.parametrize(
    ("working", "how"),
    [
        ((THREAD, 60_000, 0), (signal.SIGTERM, signal.SIGTERM)),
        ((THREAD, 60_000, 600), (signal.SIGINT, signal.SIGINT)),
        ((ASYNC, 60_000, 600), (signal.SIGINT, signal.SIGINT)),
        ((ASYNC, 60_000, 0), (signal.SIGKILL,)),
    ],
    ids=["thread-SIGTERM", "thread-Ctrl-C", "async-Ctrl-C", "async-SIGKILL"],
    indirect=["working"],
)
def test_at_least_a_second_signal_or_kill_leaves_the_lease_to_run_out(working: Working, how: tuple[int, ...]) -> None:
    working.works()
    for number in how:
        time.sleep(0.2)
        working.process.send_signal(number)
    assert working.process.wait(WITHIN_S) != 0
    ended = time.monotonic() - working.began
    free = working.free_after_s()
    assert ended < 30, "it did not wait for its minute"
    hold_s = PROFILES["lan"].hold_ms / 1_000
    assert hold_s <= free - ended < 30, "not released, and not kept: it ran out"
