"""The rules of the store lease: observing and taking (L3), releases (L4), news."""

from __future__ import annotations

import pytest

from primacy.election.effects import Start
from primacy.election.events import Code
from primacy.election.inputs import (
    Started,
    StoreNews,
)
from primacy.election.lease.state import LATE_MAX, TICK_MS
from primacy.election.store import Look, ReleaseRow, Renew, StoreAnswer, Take, holder_id
from tests.support.lease_harness import LAN, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage

# --- L3: observing and taking -----------------------------------------------------------------------------------------


def test_L3_the_wait_counts_from_after_the_answer_arrived() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL), at=100)
    assert isinstance(harness.asked[0].request, Look)
    harness.answer(at=400)
    take = harness.until(Take)
    assert harness.now >= 400 + LAN.wait_ms + TICK_MS
    assert harness.now <= 400 + LAN.wait_ms + TICK_MS + LAN.heartbeat_ms
    assert (take.seen, take.server) == (harness.store.rows["job"], "server-1")
    assert (take.row.token, take.row.seq) == (WALL + harness.now - 100, 2)


def test_L3_the_take_leaves_when_the_wait_is_over_and_not_at_the_next_look() -> None:
    """However long the pause between two looks is: a fifth of it by chance is all that is added."""
    for look_ms in (250, 900, 3_000):
        harness = Harness(store=held_by(), look_every_ms=look_ms)
        harness.tell(Started(WALL))
        harness.answer(at=40)
        harness.until(Take)
        assert 40 + LAN.wait_ms < harness.now <= 40 + LAN.wait_ms + 1 + look_ms // 5


def test_L3_one_tick_is_added_as_clocks_are_read_in_whole_milliseconds() -> None:
    """Anchor at 0.9 read as 0, take at 3061.0: only 3060.1 have passed. So the take leaves at 3062 at the earliest."""
    harness = Harness(store=held_by())
    harness.machine._jitter = lambda most_ms: 0  # type: ignore[method-assign]
    harness.tell(Started(WALL), at=0)
    harness.answer()
    harness.until(Take)
    assert harness.now == LAN.wait_ms + TICK_MS


def test_L3_the_holders_own_wait_counts_if_it_is_longer() -> None:
    harness = Harness(store=held_by(wait_ms=9_000))
    harness.tell(Started(WALL))
    harness.until(Take)
    assert 9_000 < harness.now < 9_300
    harness = Harness(store=held_by(wait_ms=10))
    harness.tell(Started(WALL))
    harness.until(Take)
    assert harness.now > LAN.wait_ms


def test_L3_a_changed_row_starts_the_observation_anew() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    while harness.now < 2_500:
        harness.answer() if harness.asked else harness.wake()
    assert harness.store.perform(Renew("job", holder_id("b", 9), WALL, 1, "server-1")).done
    harness.until(Take)
    assert harness.now > 2_500 + LAN.wait_ms


def test_L3_a_take_refused_because_the_row_changed_starts_the_observation_anew() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.store.perform(Renew("job", holder_id("b", 9), WALL, 1, "server-1"))
    refused_ms = harness.now
    assert not only(harness.answer(), Start)
    harness.until(Take)
    assert harness.now > refused_ms + LAN.wait_ms


def test_L3_a_row_that_vanished_starts_the_observation_anew_and_keeps_its_holders_wait() -> None:
    """Removed by hand: the table is no longer settled, and the holder's wait is longer than what the table admits."""
    harness = Harness(store=held_by(wait_ms=15_000))
    harness.tell(Started(WALL))
    harness.answer()
    harness.store.by_hand(("job", None))
    harness.wake()
    gone_ms = harness.now
    harness.answer()
    assert Code.OBSERVATION_RESTARTED in harness.codes()
    harness.until(Take)
    assert harness.now > gone_ms + 15_000


def test_L3_another_server_starts_the_observation_anew() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    while harness.now < 2_000:
        harness.answer() if harness.asked else harness.wake()
    harness.store.fail_over()
    harness.until(Take)
    assert harness.now > 2_000 + LAN.wait_ms
    assert {Code.OTHER_SERVER, Code.OBSERVATION_RESTARTED} <= set(harness.codes())


def test_L3_the_take_compares_the_server() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.store.fail_over()
    assert not only(harness.answer(), Start)
    assert Code.OTHER_SERVER in harness.codes()
    wrong = StoreAnswer(True, True, row_of("a"), "server-9")
    harness.until(Take)
    assert not only(harness.answer(answer=wrong), Start), "an answer by another server proves no take"


def test_L3_looks_that_fail_do_not_delay_the_take() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.answer()
    while not harness.asked or not isinstance(harness.asked[0].request, Take):
        if harness.asked:
            harness.asked.clear()
        harness.wake()
    assert harness.now < 2 * LAN.wait_ms


def test_L3_work_starts_only_if_a_renewal_fits_before_TERM() -> None:
    harness = Harness(answer_ms=2_000)
    harness.tell(Started(WALL))
    harness.until(Take)
    effects = harness.answer(at=harness.now + LAN.term_at_ms - LAN.heartbeat_ms + 1)
    assert not only(effects, Start)
    assert Code.LATE_ACK in harness.codes()
    assert isinstance(harness.asked[0].request, Renew)
    sent_ms = harness.now
    (start,) = only(harness.answer(at=sent_ms + 10), Start)
    assert start.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L3_a_node_whose_store_is_too_slow_leaves_the_row_to_others() -> None:
    harness = Harness(answer_ms=2_000)
    harness.tell(Started(WALL))
    harness.until(Take)
    for _ in range(LATE_MAX):
        harness.answer(at=harness.now + LAN.term_at_ms)
    assert isinstance(harness.asked[0].request, ReleaseRow)
    harness.answer()
    assert harness.store.rows["job"].released
    assert not harness.asked, "it holds back for others"


def test_L3_a_take_without_an_answer_is_found_and_proved_by_a_renewal() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    take = harness.lose()
    taken_ms = harness.now
    start = harness.until(Start)
    assert start.leadership.token == take.row.token
    assert start.leadership.valid_until_ms > taken_ms + LAN.hold_ms
    assert harness.store.rows["job"].seq == 2
    assert Code.ANSWER_LOST in harness.codes()


def test_L3_a_take_found_after_a_fail_over_proves_nothing() -> None:
    """Somebody else may have held the lease in between, by a take that was lost."""
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.store.fail_over()
    failed_ms = harness.now
    harness.until(Start)
    assert harness.now > failed_ms + LAN.wait_ms
    assert harness.store.rows["job"].token > WALL


def test_L3_the_renewal_that_adopts_a_row_must_land_on_the_same_server() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.until(Renew)
    harness.store.fail_over()
    assert not only(harness.answer(), Start)
    proof_elsewhere = StoreAnswer(True, True, harness.store.rows["job"], "server-2")
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.until(Renew)
    assert not only(harness.answer(answer=proof_elsewhere), Start)


# --- L4: releases -----------------------------------------------------------------------------------------------------


def test_L4_a_clean_release_is_taken_at_once() -> None:
    harness = Harness(store=held_by(released=True))
    harness.tell(Started(WALL))
    start = harness.until(Start)
    assert harness.now == 0
    assert start.leadership.token == WALL + 1
    assert Code.RELEASE_APPLIED in harness.codes()


def test_L4_a_release_is_noticed_within_two_looks() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.answer()
    harness.store.release("job", holder_id("b", 9), WALL)
    harness.until(Start)
    assert harness.now <= 2 * LAN.heartbeat_ms


def test_L4_a_release_counts_only_on_the_server_that_it_was_written_on() -> None:
    """b took the released row and works; the take is lost with its server, and the release stands there again."""
    store = held_by(token=5, released=True)
    assert store.perform(Take("job", store.rows["job"], "server-1", row_of("c", 6))).done
    store.fail_over(lost_commits=1)
    assert store.rows["job"].released
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.until(Start)
    assert harness.now > LAN.wait_ms


# --- news: a hint, never a proof --------------------------------------------------------------------------------------


def test_L4_news_of_a_release_brings_the_next_look_forward() -> None:
    store = held_by()
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    harness.answer()
    store.perform(ReleaseRow("job", holder_id("b", 9), WALL, 1))
    assert not harness.asked, "the next look is a heartbeat away"
    harness.tell(StoreNews())
    assert isinstance(harness.asked[0].request, Look)
    harness.answer()
    assert isinstance(harness.asked[0].request, Take)


def test_L4_news_during_a_look_asks_for_another() -> None:
    """Its answer may be older than the news."""
    store = held_by()
    harness = Harness(store=store)
    harness.tell(Started(WALL))
    old = store.perform(harness.asked[0].request)
    harness.tell(StoreNews())
    assert len(harness.asked) == 1, "one request at a time"
    harness.answer(answer=old)
    assert isinstance(harness.asked[0].request, Look)
    harness.answer()
    assert not harness.asked, "and one only"


def test_L3_news_proves_nothing() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    for _ in range(20):
        harness.answer()
        harness.tell(StoreNews(), harness.now + 10)
        assert isinstance(harness.asked[0].request, Look), "the row is held, whatever the news says"
