"""APScheduler with `primacy.contrib.apscheduler.LedScheduler`: jobs run while this process leads, and then no more."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy import blocking
from primacy.errors import StoreUnusable
from primacy.settings.timing import PROFILES
from tests.support.library_harness import CANARY_HEARTBEAT_MS, HOLD_S, WITHIN_S, Place, place, run, until
from tests.support.programs import Start, need
from tests.support.programs import until as until_said
from tests.support.safety_checks import tokens_grow
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=92)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]

in_a_while = partial(wait_until, what="", within_s=WITHIN_S, every_s=0.005)


@pytest.fixture(autouse=True)
def _packages() -> None:
    need("apscheduler")


def background(place: Place, profile: str = "lab") -> Any:
    """Where no loss is meant, a longer hold: a busy machine must not make one."""
    from apscheduler.schedulers.background import BackgroundScheduler

    from primacy.contrib.apscheduler import LedScheduler

    return LedScheduler(BackgroundScheduler(), "job", store=place.url, profile=profile)


def often(led: Any, function: Callable[[], Any], **options: Any) -> None:
    led.scheduler.add_job(function, "interval", seconds=0.02, **options)


def test_jobs_run_while_this_process_leads_and_stop_with_a_loss(place: Place) -> None:
    led, tokens = background(place), []
    often(led, lambda: tokens.append(led.leadership.token))
    with led:
        in_a_while(lambda: len(tokens) > 3)
        place.table.up = False
        in_a_while(lambda: led._held is None and not led._busy())  # nor is one under way that had begun before
        before = len(tokens)
        time.sleep(0.2)
        assert len(tokens) == before
        with pytest.raises(primacy.LeadershipLost, match="this process does not lead"):
            led.check()
        place.table.up = True
        in_a_while(lambda: len(tokens) > before)
    assert place.row().released
    assert not led.scheduler.running
    tokens_grow([tokens[0], tokens[-1]])


def test_the_lease_is_released_only_when_the_last_job_is_over(place: Place) -> None:
    led, released, begun = background(place, "wan"), [], threading.Event()

    def job() -> None:
        begun.set()
        time.sleep(2 * HOLD_S)
        released.append(place.row().released)
        led.check()

    led.scheduler.add_job(job, "interval", seconds=0.02, max_instances=1)
    with led:
        begun.wait(WITHIN_S)
    assert released == [False]
    assert place.row().released


def test_a_job_that_waits_for_a_thread_does_not_begin_after_a_loss(place: Place) -> None:
    """It was handed to its executor while this process led; another one may lead when the thread is free."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    from primacy.contrib.apscheduler import LedScheduler

    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(1)})
    led = LedScheduler(scheduler, "job", store=place.url, profile="lab")
    begun, may_end, ran = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        may_end.wait(WITHIN_S)

    with led:
        in_a_while(lambda: led._held)
        scheduler.add_job(first)
        begun.wait(WITHIN_S)
        for _ in range(2):
            scheduler.add_job(lambda: ran.append(led._held), misfire_grace_time=None)
        in_a_while(lambda: not scheduler.get_jobs())
        place.table.up = False
        in_a_while(lambda: led._held is None)
        may_end.set()
        in_a_while(lambda: not led._busy())
        place.table.up = True
    assert not ran


def test_coroutine_jobs_are_cancelled_by_a_loss(place: Place) -> None:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    from primacy.contrib.apscheduler import LedScheduler

    async def body() -> None:
        ends: list[str] = []
        led = LedScheduler(AsyncIOScheduler(), "job", store=place.url, profile="lab")

        async def job() -> None:
            try:
                ends.append("begun")
                await asyncio.sleep(WITHIN_S)
            finally:
                ends.append("over")

        often(led, job)
        with pytest.raises(primacy.UsageError, match="started by `async with`"):
            led.__enter__()
        async with led:
            await until(lambda: ends == ["begun"])
            place.table.up = False
            await until(lambda: ends == ["begun", "over"])
            place.table.up = True
            await until(lambda: len(ends) == 3)
        assert ends[-1] == "over"
        assert place.row().released

    run(body)


def test_what_fell_due_before_this_process_led_is_left_out(place: Place) -> None:
    """Whoever led before has run it."""
    ran: list[int] = []
    led, since = background(place, "wan"), datetime.now(UTC) - timedelta(seconds=WITHIN_S - 0.3)
    led.scheduler.add_job(
        lambda: ran.append(1), "interval", seconds=WITHIN_S, start_date=since, misfire_grace_time=WITHIN_S
    )
    lock = blocking.Lock("job", store=place.url, profile="wan")
    with contextlib.ExitStack() as held:
        held.enter_context(lock)
        with led:
            time.sleep(0.6)
            held.close()
            in_a_while(lambda: led._held)
            time.sleep(0.2)
            (job,) = led.scheduler.get_jobs()
            assert job.next_run_time > datetime.now(UTC)
    assert not ran


def test_a_blocking_scheduler_runs_until_it_is_shut_down(place: Place) -> None:
    from apscheduler.schedulers.blocking import BlockingScheduler

    from primacy.contrib.apscheduler import LedScheduler

    led = LedScheduler(BlockingScheduler(), "job", store=place.url, profile="lab")
    runs: list[int] = []
    often(led, lambda: runs.append(1))
    thread = threading.Thread(target=led.run)
    thread.start()
    in_a_while(lambda: runs)
    led.scheduler.shutdown()
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert place.row().released


def test_wrong_calls_and_a_store_of_no_use(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from apscheduler.schedulers.background import BackgroundScheduler

    from primacy.contrib.apscheduler import LedScheduler

    monkeypatch.delenv("PRIMACY_STORE", raising=False)
    with pytest.raises(primacy.UsageError, match="which store\\? say store, such as"):
        LedScheduler(BackgroundScheduler(), "job")
    with pytest.raises(primacy.UsageError, match="profil is no setting"):
        LedScheduler(BackgroundScheduler(), "job", store=place.url, profil="lab")
    with pytest.raises(primacy.UsageError, match="a scheduler of APScheduler 3, not 'x'"):
        LedScheduler("x", "job", store=place.url)
    monkeypatch.setenv("PRIMACY_STORE", f"sqlite:///{tmp_path}/no/such/folder/leases.db")
    led = LedScheduler(BackgroundScheduler(), "job")
    with pytest.raises(StoreUnusable):
        led.run()
    assert "does not campaign any more" in caplog.text


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    found = Start(tmp_path)
    yield found
    found.end()


def test_kill_9_of_the_leader_another_process_runs_the_jobs(start: Start) -> None:
    programs = [start(sys.executable, "apscheduler_leader.py", EVERY_S="0.1") for _ in range(2)]
    ticks = r"ticks under token (\d+)"
    first = until_said(lambda: next((p for p in programs if len(p.says(ticks)) > 3), None), "ticks", *programs)
    (other,) = (program for program in programs if program is not first)
    assert not other.says(ticks), "the first one leads on"
    first.child.kill()
    first.child.wait(WITHIN_S)
    killed = time.monotonic()
    until_said(lambda: other.says(ticks), "the other one's ticks", other)
    assert time.monotonic() - killed < 2 * PROFILES["fast"].hold_ms / 1_000 + 3
    assert int(first.says(ticks)[-1]) < int(other.says(ticks)[0])
