"""The library's Election in one event loop: every way in which a leadership ends, and when."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

import primacy
from primacy.library.renewer import Renewer
from primacy.settings.timing import PROFILES
from tests.support.library_harness import (
    CANARY_HEARTBEAT_MS,
    HOLD_S,
    LAB,
    WITHIN_S,
    Place,
    fresh_url,
    place,
    run,
    until,
)
from tests.support.safety_checks import tokens_grow

pytestmark = pytest.mark.moments(order=110)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]

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
        tokens_grow(tokens)
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
                    assert LAB.term_at_ms - 2 * LAB.heartbeat_ms <= took_ms < LAB.hold_ms
                    with pytest.raises(primacy.LeadershipLost, match="no renewal was proved in time"):
                        leadership.check()
                    place.table.up = True
                    raise asyncio.CancelledError
        tokens_grow(tokens)
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
                    assert election.counts.late_max_ms >= HOLD_S / 2 * 1_000 - 2 * LAB.heartbeat_ms
                break

    run(body)


def test_a_loop_that_is_blocked_for_two_holds_loses_it_and_is_gone_before_the_next_one_starts(place: Place) -> None:
    async def body() -> None:
        came: list[float] = []

        async def next_one(renewer: Renewer) -> None:
            async with primacy.Election("job", store=renewer, node="b") as election:
                async for leadership in election:
                    async with leadership:
                        came.append(time.monotonic())
                    break

        async with place.election(node="a") as election:
            async for leadership in election:
                async with leadership:
                    rival = asyncio.to_thread(lambda: asyncio.run(other()))

                    async def other() -> None:
                        async with Renewer(place.url, profile="lab") as renewer:
                            await next_one(renewer)

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


def test_the_end_of_the_hold_needs_no_word_from_the_renewer(place: Place) -> None:
    """The timer is the loop's own: it is due on time although the thread that renews does not run at all."""

    async def body() -> None:
        async with Renewer(place.url, profile="lab") as renewer, primacy.Election("job", store=renewer) as election:
            async for leadership in election:
                async with leadership:
                    await asyncio.sleep(3 * LAB.heartbeat_ms / 1_000)  # some renewals
                    renewer.call(time.sleep, 3 * HOLD_S)
                    began = time.monotonic()
                    try:
                        await asyncio.sleep(WITHIN_S)
                    finally:
                        took_ms = (time.monotonic() - began) * 1_000
                        assert took_ms < LAB.hold_ms
                        assert leadership.left_ms() == 0
                break

    run(body)


def test_L9_fresh_names_are_free_at_once() -> None:
    """Three locks that nobody used before, one inside of the other: no wait each."""

    async def body() -> float:
        url, began = fresh_url(), time.monotonic()
        for name in ("one", "two", "three"):
            async with primacy.Lock(name, store=url, within_ms=2_000, profile="lan"):
                pass
        return time.monotonic() - began

    assert run(body) < PROFILES["lan"].hold_ms / 1_000, "not even one hold for all three"


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
