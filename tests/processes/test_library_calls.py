"""The library's Election: watching, many at once, stores that are away, wrong calls, what is left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy.election.store import Look
from primacy.library.candidacy import Standing
from primacy.library.renewer import Renewer
from primacy.settings.timing import PROFILES
from primacy.store import open_store
from tests.support.library_harness import CANARY_HEARTBEAT_MS, HOLD_S, WITHIN_S, Place, place, run, until
from tests.support.store_harness import made_new

pytestmark = pytest.mark.moments(order=120)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]

# --- watching ---------------------------------------------------------------------------------------------------------


def test_an_observer_watches_and_never_leads(place: Place) -> None:
    async def body() -> None:
        seen: list[Standing] = []
        async with place.election(observer=True, on_change=seen.append, node="eye") as eye:
            with pytest.raises(primacy.UsageError, match="only watches"):
                await anext(eye)
            async with place.election(node="a") as election:
                async for leadership in election:
                    async with leadership:
                        await until(lambda: bool(seen) and seen[-1].leader == "a")
                        assert seen[-1].token == leadership.token
                    break
            await until(lambda: seen[-1].leader == "")
            told = []
            async for standing in eye.watch():
                told.append(standing)
                break
            assert told[0].leader == ""
            assert place.row().holder.startswith("a#")

    run(body)


def test_an_error_in_on_change_reaches_the_loops_own_handler(place: Place) -> None:
    async def body() -> None:
        caught: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context["exception"]))

        def fail(_: Standing) -> None:
            raise ValueError("mine")

        async with place.election(on_change=fail) as election:
            async for leadership in election:
                async with leadership:
                    await until(lambda: bool(caught))
                break
        assert isinstance(caught[0], ValueError)

    run(body)


# --- many, wrong calls, the package -----------------------------------------------------------------------------------


def test_many_elections_share_a_renewer(place: Place) -> None:
    async def body() -> None:
        names = [f"job-{number}" for number in range(40)]
        for name in names:
            place.release(name)
        async with Renewer(place.url, profile="lab") as renewer:
            leading = asyncio.Barrier(len(names))

            async def part(name: str) -> None:
                async with primacy.Election(name, store=renewer) as election:
                    async for leadership in election:
                        async with leadership:
                            await leading.wait()
                            await asyncio.sleep(HOLD_S)
                        break

            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(part(name))
            assert renewer.store.counts.performed > 3 * renewer.store.counts.rounds
        assert all(place.table.rows[name].released for name in names)

    run(body)


def test_a_store_that_is_away_is_waited_for_and_told_of_twice(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """When it begins, and when it ends, however often it is tried."""

    async def body() -> None:
        place.table.up = False
        async with place.election() as election:
            waiting = asyncio.create_task(election.acquire())
            await until(lambda: "the store to answer" in election.standing.waits_for)
            assert "primacy check" not in election.standing.waits_for, "there is no file that it could check"
            asked = election._renewer.store.counts.failed
            await until(lambda: election._renewer.store.counts.failed > asked + 3)
            place.table.up = True
            assert await waiting is not None

    with caplog.at_level(logging.INFO, logger="primacy"):
        run(body)
    told = [record.getMessage() for record in caplog.records if "the store" in record.getMessage()]
    ends = next(number for number, line in enumerate(told) if "gets answers from the store again, after" in line)
    (begins,) = told[:ends]
    assert "gets no answer from the store: " in begins


def test_closing_does_not_wait_for_ever_for_a_store_that_is_away(place: Place) -> None:
    async def body() -> None:
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    place.table.up = False
                    break
        assert not place.row().released

    began = time.monotonic()
    run(body)
    assert time.monotonic() - began < WITHIN_S


def test_a_leadership_that_was_lost_is_not_entered_by_another_task(place: Place) -> None:
    async def body() -> None:
        async def enter(leadership: Any) -> None:
            async with leadership:
                raise AssertionError("it is over")

        async with place.election() as election:
            leadership = await election.acquire()
            assert leadership is not None
            place.table.up = False
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(WITHIN_S)
            with pytest.raises(primacy.LeadershipLost):
                await asyncio.create_task(enter(leadership))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(body)


def test_leaving_the_election_ends_a_block_that_another_task_is_in(place: Place) -> None:
    async def body() -> None:
        inside = asyncio.Event()

        async def work(leadership: Any) -> None:
            async with leadership:
                inside.set()
                try:
                    await asyncio.sleep(WITHIN_S)
                finally:
                    with pytest.raises(primacy.LeadershipLost, match="the block of its election was left"):
                        leadership.check()
            await asyncio.sleep(0)

        async with place.election() as election:
            async for leadership in election:
                task = asyncio.create_task(work(leadership))
                await inside.wait()
                break
        await task
        assert place.row().released

    run(body)


def test_a_renewer_that_is_closed_too_early_keeps_nobody_waiting(place: Place) -> None:
    async def body() -> None:
        renewer = Renewer(place.url, profile="lab")
        async with primacy.Election("job", store=renewer) as election:
            leadership = await election.acquire()
            assert leadership is not None
            await asyncio.to_thread(renewer.close)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(WITHIN_S)  # nobody renews it any more
            raise asyncio.CancelledError

    with pytest.raises(primacy.LeadershipLost):
        run(body)


def test_what_a_renewer_is_to_call_is_called_in_order_and_one_that_fails_costs_the_others_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []
    done = threading.Event()

    def fail() -> None:
        raise ValueError("a callback of the library failed")

    def first(renewer: Renewer) -> None:
        """While it runs, the others are asked for: some of them together, and some from within."""
        for number in range(3):
            renewer.call(called.append, number)
        renewer.call(fail)
        renewer.call(lambda: renewer.call(called.append, 4) and renewer.call(done.set))
        renewer.call(called.append, 3)

    with Renewer(place.url, profile="lab") as renewer:
        renewer.call(first, renewer)
        assert done.wait(WITHIN_S)
    assert called == [0, 1, 2, 3, 4]
    assert "a callback of the library failed" in caplog.text


def test_an_election_that_is_not_entered_costs_nothing(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        place.election()
    assert len(os.listdir("/proc/self/fd")) <= before, "fewer, if the garbage of an earlier test went just now"


def test_an_election_shows_who_it_is_and_not_where(tmp_path: Path) -> None:
    election = primacy.Election("reports", store=f"sqlite:///{tmp_path}/secret.db", node="a")
    assert repr(election) == "<Election reports of node a: starting>"


def test_nothing_is_left_behind(place: Place) -> None:
    async def body() -> None:
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    break

    run(body)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(10):
        run(body)
    end = time.monotonic() + WITHIN_S  # on a busy machine the last thread may take a moment to go
    while len(os.listdir("/proc/self/fd")) > descriptors or threading.active_count() > threads:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_wrong_calls_say_what_would_be_right(place: Place) -> None:
    with pytest.raises(primacy.UsageError, match="'cancel' or 'kill'"):
        place.election(on_loss="explode")
    with pytest.raises(primacy.UsageError, match="no profile 'ghoti' fits a lease"):
        primacy.Election("job", store=place.url, profile="ghoti")
    with pytest.raises(primacy.UsageError, match="a lease's name"):
        primacy.Election("no blanks", store=place.url)
    with pytest.raises(primacy.UsageError, match="a node's name"):
        place.election(node="a#b")
    with pytest.raises(primacy.UsageError, match="is no store"):
        primacy.Election("job", store="mongodb://host")

    async def body() -> None:
        election = place.election()
        with pytest.raises(primacy.UsageError, match="inside of its own"):
            await anext(election)
        async with election:
            async for leadership in election:
                async with leadership:
                    with pytest.raises(primacy.UsageError, match="still open"):
                        await anext(election)
                    with pytest.raises(primacy.UsageError, match="entered once"):
                        await leadership.__aenter__()
                break
            waiting = asyncio.create_task(election.acquire())
            await asyncio.sleep(0)
            with pytest.raises(primacy.UsageError, match="two tasks"):
                await election.acquire()
            waiting.cancel()
        with pytest.raises(primacy.UsageError, match="entered before"):
            await election.__aenter__()

    run(body)
    with pytest.raises(primacy.UsageError, match="no leadership here"):
        primacy.current()


def test_the_row_is_looked_at_while_nobody_waits(place: Place) -> None:
    """So that whoever waits later knows already who holds it, and a new name has been watched for its hold."""

    async def body() -> None:
        async with primacy.Election("new", store=place.url, profile="fast") as election:
            await asyncio.sleep(1.3)  # more than its hold
            assert "new" not in place.table.rows
            began = time.monotonic()
            assert await election.acquire() is not None
            assert time.monotonic() - began < PROFILES["fast"].hold_ms / 1_000

    run(body)
    (answer,) = place.store.look([Look("new")])
    assert answer.row is not None
    assert answer.row.released


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_applications_own_engine_is_a_store(asynchronous: bool, tmp_path: Path) -> None:
    async def body() -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.ext.asyncio import create_async_engine

        url = f"{tmp_path}/app.db"
        made_new(f"sqlite:///{url}")
        engine: Any = (
            create_async_engine(f"sqlite+aiosqlite:///{url}") if asynchronous else create_engine(f"sqlite:///{url}")
        )
        async with primacy.Election("job", store=engine, profile="lab") as election:
            async for leadership in election:
                async with leadership:
                    leadership.check()
                break
        await engine.dispose() if asynchronous else engine.dispose()

    run(body)
    store = open_store(f"sqlite:///{tmp_path}/app.db")
    (answer,) = store.look([Look("job")])
    store.close()
    assert answer.row is not None
    assert answer.row.released
