"""The library's Election in one event loop: every way in which a leadership ends, and what people are told meanwhile.

The store is in memory, the times are those of profile `lab` (hold 500 ms). Each election finds its row released, so
that only the tests that are about waiting wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy.agent.candidacy import Standing
from primacy.agent.keeper import Keeper
from primacy.election.store import Look, ReleaseRow, Row, Take
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import open_store
from primacy.store.memory import MemoryStore, MemoryTable, shared

LAB = for_lease(PROFILES["lab"])
CANARY_BEAT_MS = LAB.beat_ms
"""A process that stands still for the rest until TERM loses what it holds, as it must."""
HOLD_S = LAB.hold_ms / 1_000
WITHIN_S = 30


def fresh_url() -> str:
    """Never used before, not even by a test that has imported this module under another name."""
    return f"memory:{uuid.uuid4().hex}"


class Place:
    """A table in memory whose row `job` was released, and elections on it."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self.url = fresh_url()
        self.table: MemoryTable = shared(self.url.partition(":")[2])
        self.store = MemoryStore(self.table)
        self.release("job")

    def release(self, name: str) -> None:
        row = Row("old#1", 5, 1, LAB.hold_ms, LAB.wait_ms, False)
        self.store.take([Take(name, 0, 0, self.table.server, row)])
        self.store.release([ReleaseRow(name, "old#1", 5, 1)])

    def election(self, **options: Any) -> primacy.Election:
        return primacy.Election("job", store=self.url, profile="lab", **options)

    def row(self) -> Row:
        return self.table.rows["job"]


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.table.up = True


def run(body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WITHIN_S):
            return await body()

    return asyncio.run(bounded())


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


# --- the table of endings in docs/library.md --------------------------------------------------------------------------


def test_the_body_ends_and_the_lease_is_released_and_others_have_a_hold_for_their_turn(place: Place) -> None:
    async def body() -> None:
        tokens, times = [], []
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    times.append(time.monotonic())
                    tokens.append(leadership.token)
                    leadership.check()
                    assert 0 < leadership.left_ms() <= LAB.term_at_ms
                    assert not place.row().released
                await until(lambda: place.row().released)
                with pytest.raises(primacy.LeadershipLost, match="its block has ended"):
                    leadership.check()
                assert leadership.left_ms() == 0
                if len(tokens) == 2:
                    break
        assert tokens[0] < tokens[1]
        assert times[1] - times[0] >= HOLD_S

    run(body)


def test_another_process_has_its_turn_within_that_hold(place: Place) -> None:
    async def body() -> None:
        order: list[str] = []

        async def part(node: str) -> None:
            async with place.election(node=node) as election:
                async for leadership in election:
                    async with leadership:
                        order.append(node)
                        await asyncio.sleep(0.02)
                    if len(order) >= 4:
                        break

        await asyncio.gather(part("a"), part("b"))
        assert order[:4] in (["a", "b", "a", "b"], ["b", "a", "b", "a"])

    run(body)


def test_the_body_raises_and_the_error_is_passed_on_after_a_release(place: Place) -> None:
    async def body() -> None:
        with pytest.raises(ValueError, match="mine"):
            async with place.election() as election:
                async for leadership in election:
                    async with leadership:
                        raise ValueError("mine")
        assert place.row().released

    run(body)


@pytest.mark.parametrize("inner", [True, False])
def test_break_releases_and_is_done(place: Place, inner: bool) -> None:
    async def body() -> None:
        async with place.election() as election:
            async for leadership in election:
                if inner:
                    async with leadership:
                        break
                break
            if not inner:
                leadership.check()  # without a block of its own it lasts until the election's block ends
        assert place.row().released
        assert place.row().token == leadership.token

    run(body)


def test_lost_the_inner_block_is_cancelled_at_the_term_point_and_the_loop_goes_on(place: Place) -> None:
    async def body() -> None:
        tokens = []
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    tokens.append(leadership.token)
                    if len(tokens) == 2:
                        break
                    place.table.up = False
                    began = time.monotonic()
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.sleep(WITHIN_S)
                    took_ms = (time.monotonic() - began) * 1_000
                    assert LAB.term_at_ms - 2 * LAB.beat_ms <= took_ms < LAB.hold_ms
                    with pytest.raises(primacy.LeadershipLost, match="no renewal was proved in time"):
                        leadership.check()
                    place.table.up = True
                    raise asyncio.CancelledError
        assert tokens[0] < tokens[1]
        assert election.counts.lost == 1
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(body)


def test_lost_and_noticed_by_check_the_loop_goes_on_too(place: Place) -> None:
    async def body() -> None:
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    if election.counts.won == 2:
                        break
                    place.table.up = False
                    try:
                        while True:  # blocking code that asks
                            leadership.check()
                            time.sleep(0.01)
                    finally:
                        place.table.up = True
            await asyncio.sleep(0)  # no cancellation is left over

    run(body)


def test_lost_without_the_inner_block_leaves_the_outer_one(place: Place) -> None:
    async def body() -> None:
        with pytest.raises(primacy.LeadershipLost, match="no renewal was proved in time") as caught:
            async with place.election() as election:
                async for leadership in election:
                    place.table.up = False
                    await asyncio.sleep(WITHIN_S)
        assert caught.value.token == leadership.token
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(body)


def test_lost_while_the_body_raises_its_error_is_passed_on(place: Place) -> None:
    async def body() -> None:
        with pytest.raises(ValueError, match="mine"):
            async with place.election() as election:
                async for leadership in election:
                    async with leadership:
                        place.table.up = False
                        try:
                            await asyncio.sleep(WITHIN_S)
                        except asyncio.CancelledError:
                            raise ValueError("mine") from None

    run(body)


def test_shutdown_the_lease_is_released_after_the_body_is_over(place: Place) -> None:
    async def body() -> None:
        inside, over = asyncio.Event(), []

        async def work() -> None:
            async with place.election() as election:
                async for leadership in election:
                    async with leadership:
                        inside.set()
                        try:
                            await asyncio.sleep(WITHIN_S)
                        finally:
                            await asyncio.sleep(0.3)  # longer than the TERM point: it is renewed meanwhile
                            leadership.check()
                            over.append(place.row().released)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert over == [False]
        assert place.row().released

    run(body)


def test_shutdown_while_it_waits_leaves_nothing_behind(place: Place) -> None:
    async def body() -> None:
        async def wait(node: str) -> None:
            async with place.election(node=node) as election:
                async for leadership in election:
                    async with leadership:
                        await asyncio.sleep(WITHIN_S)

        first = asyncio.create_task(wait("a"))
        await until(lambda: place.row().holder.startswith("a#"))
        second = asyncio.create_task(wait("b"))
        await asyncio.sleep(0.1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert place.row().released
        assert place.row().holder.startswith("a#")

    run(body)


def test_an_outer_cancellation_is_not_taken_for_a_loss(place: Place) -> None:
    """Both at the same moment: the loss is swallowed, the other is not."""

    async def body() -> None:
        async def work() -> None:
            async with place.election() as election:
                async for leadership in election:
                    async with leadership:
                        place.table.up = False
                        try:
                            await asyncio.sleep(WITHIN_S)
                        except asyncio.CancelledError:
                            task = asyncio.current_task()
                            assert task is not None
                            task.cancel()
                            raise

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_blocked_for_half_a_hold_loses_nothing(place: Place) -> None:
    async def body() -> None:
        async with place.election() as election:
            async for leadership in election:
                async with leadership:
                    for _ in range(4):
                        time.sleep(HOLD_S / 2)
                        leadership.check()
                        await asyncio.sleep(0.01)
                    assert election.counts.lost == 0
                    assert election.counts.late_max_ms >= HOLD_S / 2 * 1_000 - 2 * LAB.beat_ms
                break

    run(body)


def test_a_loop_that_is_blocked_for_two_holds_loses_it_and_is_gone_before_the_next_one_starts(place: Place) -> None:
    async def body() -> None:
        came: list[float] = []

        async def next_one(keeper: Keeper) -> None:
            async with primacy.Election("job", store=keeper, node="b") as election:
                async for leadership in election:
                    async with leadership:
                        came.append(time.monotonic())
                    break

        async with place.election(node="a") as election:
            async for leadership in election:
                async with leadership:
                    rival = asyncio.to_thread(lambda: asyncio.run(other()))

                    async def other() -> None:
                        async with Keeper(place.url, profile="lab") as keeper:
                            await next_one(keeper)

                    waiting = asyncio.create_task(rival)
                    await asyncio.sleep(0.05)
                    time.sleep(2 * HOLD_S)
                    assert not came
                    with pytest.raises(primacy.LeadershipLost, match="did not turn for"):
                        leadership.check()
                    await asyncio.sleep(WITHIN_S)
                gone = time.monotonic()
                break
        await waiting
        assert came[0] > gone - 0.02
        assert election.counts.lost == 1
        assert election.counts.over_late == 0

    run(body)


def test_the_end_of_the_hold_needs_no_word_from_the_keeper(place: Place) -> None:
    """The alarm is the loop's own: it is due on time although the thread that renews does not run at all."""

    async def body() -> None:
        async with Keeper(place.url, profile="lab") as keeper, primacy.Election("job", store=keeper) as election:
            async for leadership in election:
                async with leadership:
                    await asyncio.sleep(3 * LAB.beat_ms / 1_000)  # some renewals
                    keeper.call(time.sleep, 3 * HOLD_S)
                    began = time.monotonic()
                    try:
                        await asyncio.sleep(WITHIN_S)
                    finally:
                        took_ms = (time.monotonic() - began) * 1_000
                        assert took_ms < LAB.hold_ms
                        assert leadership.left_ms() == 0
                break

    run(body)


def test_the_first_use_of_a_name_waits_one_hold_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        began = time.monotonic()
        async with primacy.Election("new", store=fresh_url(), profile="lab", node="a") as election:
            async for leadership in election:
                async with leadership:
                    assert time.monotonic() - began >= HOLD_S
                break

    with caplog.at_level(logging.INFO, "primacy"):
        run(body)
    said = [record.getMessage() for record in caplog.records if "first use" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("new: a waits for one full hold to pass before the first use of this name, at most 5")


def test_while_it_waits_one_line_says_for_whom_and_how_long_at_most(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with place.election(node="a") as first, place.election(node="b") as second:
            async for leadership in first:
                async with leadership:
                    waiting = asyncio.create_task(second.acquire())
                    await asyncio.sleep(2 * HOLD_S)
                    assert second.standing.leader == "a"
                break
            assert await waiting is not None

    with caplog.at_level(logging.INFO, "primacy"):
        run(body)
    said = [record.getMessage() for record in caplog.records if "b waits for" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("job: b waits for node a's hold to run out, at most ")


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


def test_many_elections_share_a_keeper(place: Place) -> None:
    async def body() -> None:
        names = [f"job-{number}" for number in range(40)]
        for name in names:
            place.release(name)
        async with Keeper(place.url, profile="lab") as keeper:
            leading = asyncio.Barrier(len(names))

            async def part(name: str) -> None:
                async with primacy.Election(name, store=keeper) as election:
                    async for leadership in election:
                        async with leadership:
                            await leading.wait()
                            await asyncio.sleep(HOLD_S)
                        break

            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(part(name))
            assert keeper.store.counts.performed > 3 * keeper.store.counts.rounds
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
            asked = election._keeper.store.counts.failed
            await until(lambda: election._keeper.store.counts.failed > asked + 3)
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


def test_a_keeper_that_is_closed_too_early_keeps_nobody_waiting(place: Place) -> None:
    async def body() -> None:
        keeper = Keeper(place.url, profile="lab")
        async with primacy.Election("job", store=keeper) as election:
            leadership = await election.acquire()
            assert leadership is not None
            await asyncio.to_thread(keeper.close)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(WITHIN_S)  # nobody renews it any more
            raise asyncio.CancelledError

    with pytest.raises(primacy.LeadershipLost):
        run(body)


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
        primacy.Election("job", store="redis://host")

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
