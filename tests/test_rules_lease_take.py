"""The rules of the store lease: observing and taking (L3), releases (L4), news."""

from __future__ import annotations

from lease_desk import LAN, WALL, Desk, held_by, only, row_of
from primacy.election.effects import Start
from primacy.election.events import Code
from primacy.election.inputs import (
    Started,
    StoreNews,
)
from primacy.election.lease_state import LATE_MAX, TICK_MS
from primacy.election.store import Look, ReleaseRow, Renew, StoreAnswer, Take, holder_id

# --- L3: observing and taking -----------------------------------------------------------------------------------------


def test_L3_the_wait_counts_from_after_the_answer_arrived() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL), at=100)
    assert isinstance(desk.asked[0].request, Look)
    desk.answer(at=400)
    take = desk.until(Take)
    assert desk.now >= 400 + LAN.wait_ms + TICK_MS
    assert desk.now <= 400 + LAN.wait_ms + TICK_MS + LAN.beat_ms
    assert (take.seen, take.server) == (desk.store.rows["job"], "server-1")
    assert (take.row.token, take.row.seq) == (WALL + desk.now - 100, 2)


def test_L3_the_take_leaves_when_the_wait_is_over_and_not_at_the_next_look() -> None:
    """However long the pause between two looks is: a fifth of it by chance is all that is added."""
    for look_ms in (250, 900, 3_000):
        desk = Desk(store=held_by(), look_every_ms=look_ms)
        desk.tell(Started(WALL))
        desk.answer(at=40)
        desk.until(Take)
        assert 40 + LAN.wait_ms < desk.now <= 40 + LAN.wait_ms + 1 + look_ms // 5


def test_L3_one_tick_is_added_as_clocks_are_read_in_whole_milliseconds() -> None:
    """Anchor at 0.9 read as 0, take at 3061.0: only 3060.1 have passed. So the take leaves at 3062 at the earliest."""
    desk = Desk(store=held_by())
    desk.machine._jitter = lambda most_ms: 0  # type: ignore[method-assign]
    desk.tell(Started(WALL), at=0)
    desk.answer()
    desk.until(Take)
    assert desk.now == LAN.wait_ms + TICK_MS


def test_L3_the_holders_own_wait_counts_if_it_is_longer() -> None:
    desk = Desk(store=held_by(wait_ms=9_000))
    desk.tell(Started(WALL))
    desk.until(Take)
    assert 9_000 < desk.now < 9_300
    desk = Desk(store=held_by(wait_ms=10))
    desk.tell(Started(WALL))
    desk.until(Take)
    assert desk.now > LAN.wait_ms


def test_L3_a_changed_row_starts_the_observation_anew() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    while desk.now < 2_500:
        desk.answer() if desk.asked else desk.wake()
    assert desk.store.perform(Renew("job", holder_id("b", 9), WALL, 1, "server-1")).done
    desk.until(Take)
    assert desk.now > 2_500 + LAN.wait_ms


def test_L3_a_take_refused_because_the_row_changed_starts_the_observation_anew() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.store.perform(Renew("job", holder_id("b", 9), WALL, 1, "server-1"))
    refused_ms = desk.now
    assert not only(desk.answer(), Start)
    desk.until(Take)
    assert desk.now > refused_ms + LAN.wait_ms


def test_L3_a_row_that_vanished_starts_the_observation_anew_and_keeps_its_holders_wait() -> None:
    """Removed by hand: the table is no longer settled, and the holder's wait is longer than what the table admits."""
    desk = Desk(store=held_by(wait_ms=15_000))
    desk.tell(Started(WALL))
    desk.answer()
    desk.store.by_hand(("job", None))
    desk.wake()
    gone_ms = desk.now
    desk.answer()
    assert Code.OBSERVATION_RESTARTED in desk.codes()
    desk.until(Take)
    assert desk.now > gone_ms + 15_000


def test_L3_another_server_starts_the_observation_anew() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    while desk.now < 2_000:
        desk.answer() if desk.asked else desk.wake()
    desk.store.fail_over()
    desk.until(Take)
    assert desk.now > 2_000 + LAN.wait_ms
    assert {Code.OTHER_SERVER, Code.OBSERVATION_RESTARTED} <= set(desk.codes())


def test_L3_the_take_compares_the_server() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.store.fail_over()
    assert not only(desk.answer(), Start)
    assert Code.OTHER_SERVER in desk.codes()
    wrong = StoreAnswer(True, True, row_of("a"), "server-9")
    desk.until(Take)
    assert not only(desk.answer(answer=wrong), Start), "an answer by another server proves no take"


def test_L3_looks_that_fail_do_not_delay_the_take() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.answer()
    while not desk.asked or not isinstance(desk.asked[0].request, Take):
        if desk.asked:
            desk.asked.clear()
        desk.wake()
    assert desk.now < 2 * LAN.wait_ms


def test_L3_work_starts_only_if_a_renewal_fits_before_TERM() -> None:
    desk = Desk(answer_ms=2_000)
    desk.tell(Started(WALL))
    desk.until(Take)
    effects = desk.answer(at=desk.now + LAN.term_at_ms - LAN.beat_ms + 1)
    assert not only(effects, Start)
    assert Code.LATE_ACK in desk.codes()
    assert isinstance(desk.asked[0].request, Renew)
    sent_ms = desk.now
    (start,) = only(desk.answer(at=sent_ms + 10), Start)
    assert start.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L3_a_node_whose_store_is_too_slow_leaves_the_row_to_others() -> None:
    desk = Desk(answer_ms=2_000)
    desk.tell(Started(WALL))
    desk.until(Take)
    for _ in range(LATE_MAX):
        desk.answer(at=desk.now + LAN.term_at_ms)
    assert isinstance(desk.asked[0].request, ReleaseRow)
    desk.answer()
    assert desk.store.rows["job"].released
    assert not desk.asked, "it holds back for others"


def test_L3_a_take_without_an_answer_is_found_and_proved_by_a_renewal() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    take = desk.lose()
    taken_ms = desk.now
    start = desk.until(Start)
    assert start.leadership.token == take.row.token
    assert start.leadership.valid_until_ms > taken_ms + LAN.hold_ms
    assert desk.store.rows["job"].seq == 2
    assert Code.ANSWER_LOST in desk.codes()


def test_L3_a_take_found_after_a_fail_over_proves_nothing() -> None:
    """Somebody else may have held the lease in between, by a take that was lost."""
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.lose()
    desk.store.fail_over()
    failed_ms = desk.now
    desk.until(Start)
    assert desk.now > failed_ms + LAN.wait_ms
    assert desk.store.rows["job"].token > WALL


def test_L3_the_renewal_that_adopts_a_row_must_land_on_the_same_server() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.lose()
    desk.until(Renew)
    desk.store.fail_over()
    assert not only(desk.answer(), Start)
    proof_elsewhere = StoreAnswer(True, True, desk.store.rows["job"], "server-2")
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.lose()
    desk.until(Renew)
    assert not only(desk.answer(answer=proof_elsewhere), Start)


# --- L4: releases -----------------------------------------------------------------------------------------------------


def test_L4_a_clean_release_is_taken_at_once() -> None:
    desk = Desk(store=held_by(released=True))
    desk.tell(Started(WALL))
    start = desk.until(Start)
    assert desk.now == 0
    assert start.leadership.token == WALL + 1
    assert Code.RELEASE_APPLIED in desk.codes()


def test_L4_a_release_is_noticed_within_two_looks() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.answer()
    desk.store.release("job", holder_id("b", 9), WALL)
    desk.until(Start)
    assert desk.now <= 2 * LAN.beat_ms


def test_L4_a_release_counts_only_on_the_server_that_it_was_written_on() -> None:
    """b took the released row and works; the take is lost with its server, and the release stands there again."""
    store = held_by(token=5, released=True)
    assert store.perform(Take("job", store.rows["job"], "server-1", row_of("c", 6))).done
    store.fail_over(lost_commits=1)
    assert store.rows["job"].released
    desk = Desk(store=store)
    desk.tell(Started(WALL))
    desk.until(Start)
    assert desk.now > LAN.wait_ms


# --- news: a hint, never a proof --------------------------------------------------------------------------------------


def test_L4_news_of_a_release_brings_the_next_look_forward() -> None:
    store = held_by()
    desk = Desk(store=store)
    desk.tell(Started(WALL))
    desk.answer()
    store.perform(ReleaseRow("job", holder_id("b", 9), WALL, 1))
    assert not desk.asked, "the next look is a beat away"
    desk.tell(StoreNews())
    assert isinstance(desk.asked[0].request, Look)
    desk.answer()
    assert isinstance(desk.asked[0].request, Take)


def test_L4_news_during_a_look_asks_for_another() -> None:
    """Its answer may be older than the news."""
    store = held_by()
    desk = Desk(store=store)
    desk.tell(Started(WALL))
    old = store.perform(desk.asked[0].request)
    desk.tell(StoreNews())
    assert len(desk.asked) == 1, "one request at a time"
    desk.answer(answer=old)
    assert isinstance(desk.asked[0].request, Look)
    desk.answer()
    assert not desk.asked, "and one only"


def test_L3_news_proves_nothing() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    for _ in range(20):
        desk.answer()
        desk.tell(StoreNews(), desk.now + 10)
        assert isinstance(desk.asked[0].request, Look), "the row is held, whatever the news says"
