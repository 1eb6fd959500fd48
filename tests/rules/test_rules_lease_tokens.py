"""The rules of tokens (T1, T2) on a lease."""

from __future__ import annotations

import pytest

from primacy.election.effects import Persist, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    PersistFailed,
    Received,
    Started,
    WorkDeferred,
    WorkGone,
)
from primacy.election.messages import FailsafeHeartbeat, Origin
from primacy.election.model import TOKEN_MAX
from primacy.election.store import Prune, ReleaseRow, Take, list_hash
from tests.support.lease_harness import LAN, TRIO, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage


def test_T1_a_take_writes_the_next_token_or_wall_time_whichever_is_higher() -> None:
    for token, wall_ms, expected in ((5, 0, 6), (5, 10, 10), (50, 10, 51)):
        harness = Harness(store=held_by(token=token, released=True))
        harness.tell(Started(wall_ms))
        assert harness.until(Start).leadership.token == expected


def test_T1_a_mad_wall_clock_does_not_use_up_the_tokens() -> None:
    harness = Harness(store=held_by(token=5, released=True))
    harness.tell(Started(2**60))
    assert harness.until(Start).leadership.token == 6


def test_T1_no_take_above_the_largest_token() -> None:
    harness = Harness(store=held_by(token=TOKEN_MAX, released=True))
    harness.tell(Started(WALL))
    with pytest.raises(AssertionError):
        harness.until(Take)
    assert "leaves no higher one" in harness.waits()
    odd = Harness(store=held_by(token=TOKEN_MAX + 5, released=True))
    odd.tell(Started(WALL))
    odd.answer()
    assert odd.machine.token_max == 0


def test_T1_a_token_is_drawn_anew_for_each_take() -> None:
    """A store that goes back between two tries may have lost a take with a token between them."""
    harness = Harness(store=held_by(token=5, released=True))
    harness.tell(Started(WALL))
    first = harness.until(Take)
    harness.asked.clear()
    harness.wake()
    second = harness.until(Take)
    assert first._replace(row=second.row) == second, "it compares the same"
    assert second.row.token == WALL + harness.now > first.row.token
    assert harness.codes().count(Code.CAMPAIGNS) == 1, "and is recorded once"


def test_T1_the_stores_wall_time_lifts_a_token_and_is_carried_forward() -> None:
    for store_wall in (0, 50_000, 2**60):
        harness = Harness(store=held_by(token=5))
        harness.machine._jitter = lambda most_ms: 0  # type: ignore[method-assign]
        harness.tell(Started(10_000 - LAN.wait_ms - 1))
        harness.store.wall_ms = lambda wall_ms=store_wall: wall_ms  # type: ignore[misc]
        harness.answer()
        harness.store.wall_ms = None
        take = harness.until(Take)
        assert harness.now == LAN.wait_ms + 1
        assert take.row.token == (50_000 + harness.now if store_wall == 50_000 else 10_000)


def test_T1_a_take_is_above_the_floor() -> None:
    store = held_by(token=WALL * 2, released=True)
    assert store.perform(Prune("job", store.rows["job"], "server-1", store.genesis)).done
    store.put("job", row_of(token=5, released=True))
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    assert harness.until(Start).leadership.token == WALL * 2 + 1


def test_T2_a_take_is_above_the_largest_token_known() -> None:
    harness = Harness(store=held_by(token=5, released=True), token_max=WALL * 2)
    harness.tell(Started(WALL))
    assert harness.until(Start).leadership.token == WALL * 2 + 1


def test_T2_no_start_below_the_largest_token_known() -> None:
    harness = Harness("b", failsafe=TRIO)
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.machine._take = None  # as if it had been settled
    harness.tell(Received(FailsafeHeartbeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL * 2, 1)))
    assert not only(harness.answer(), Start)
    assert Code.TOKEN_LOW in harness.codes()
    start = harness.until(Start)
    assert start.leadership.token == WALL * 2 + 1


def test_T2_the_largest_token_is_saved_before_the_start_and_after_a_look() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    (saved,) = only(harness.answer(), Persist)
    assert saved.ballot.token_max == WALL
    harness.until(Take)
    effects = [type(effect) for effect in harness.answer()]
    assert effects.index(Persist) < effects.index(Start)


def test_T2_a_token_that_cannot_be_saved_is_not_used() -> None:
    """The start that stood behind it was not done, so that nobody will ever report its end: the row is freed at once,
    and this node does not stand again before its disk has taken the token."""
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Start)
    harness.tell(PersistFailed("full"))
    release = harness.until(ReleaseRow, within_ms=1)
    assert release.successor == "!", "nothing ran"
    assert only(harness.answer(), Persist), "it is tried again"
    assert harness.machine.settled
    harness.tell(PersistFailed("full"))
    for _ in range(20):
        if only(harness.answer() if harness.asked else harness.wake(), Persist):
            harness.tell(PersistFailed("full"))
        assert not any(isinstance(asked.request, Take) for asked in harness.asked)
    assert harness.codes().count(Code.DISK_FAILED) == 1, "recorded once, not at every try"
    assert "cannot be saved (full)" in harness.waits()
    harness.until(Start)
    assert not harness.machine._unsaved


def test_T2_a_start_that_people_must_approve_is_ended_in_order_if_the_disk_fails_meanwhile() -> None:
    """That start was done: only the gate knows that it waits, and must be told."""
    harness = Harness()
    harness.tell(Started(WALL))
    start = harness.until(Start)
    harness.tell(WorkDeferred(start.leadership.term, "an approval"))
    assert only(harness.tell(PersistFailed("full")), Stop)
    harness.tell(WorkGone(start.leadership.term))
    harness.until(ReleaseRow)


def test_T2_a_row_found_ours_is_not_worked_under_before_its_token_is_on_the_disk() -> None:
    """The take's answer was lost, and the look that found it could not save the token either."""
    harness = Harness(store=held_by(token=5, released=True))
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.wake()
    while not only(harness.answer() if harness.asked else harness.wake(), Persist):
        pass
    harness.tell(PersistFailed("full"))
    assert isinstance(harness.until(ReleaseRow), ReleaseRow)
    assert not only(harness.log, Start)


def test_T2_a_failing_disk_does_not_stop_a_running_leader() -> None:
    harness = Harness()
    harness.lead()
    assert not only(harness.tell(PersistFailed("full")), Stop)
