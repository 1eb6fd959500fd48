"""The rules of the store lease (L1 to L4) and of tokens (T), one test each, named by the rule.

They drive one machine against the simulated store by hand. What concerns the holder's work and the failsafe stands in
`test_rules_lease_holder.py`, whole lives and the rules taken out in `test_lease_lives.py`.
"""

from __future__ import annotations

import pytest

from lease_desk import LAN, TRIO, WALL, Desk, held_by, only, row_of
from primacy.election.effects import Extend, OrderRelease, Persist, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    PersistFailed,
    Received,
    RunLock,
    Started,
    StoreAnswered,
    StoreNews,
    WorkDeferred,
    WorkGone,
)
from primacy.election.lease_state import LATE_MAX, OUTSTANDING_MAX, TICK_MS, list_hash
from primacy.election.messages import FailsafeAck, FailsafeBeat, Origin
from primacy.election.model import TOKEN_MAX, Role
from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, Take, holder_id, node_of
from primacy.sim.store import SimStore

# --- L1: the row and its conditions -----------------------------------------------------------------------------------


def test_L1_the_row_says_holder_token_seq_hold_and_wait() -> None:
    desk = Desk()
    start = desk.lead()
    row = desk.store.rows["job"]
    assert row == Row(holder_id("a", 7), start.leadership.token, 1, 3000, 3061, False, server="server-1")
    assert node_of(row.holder) == "a"
    assert node_of("whatever") == "whatever"
    assert holder_id("a", 7) != holder_id("a", 8)


@pytest.mark.parametrize(("token", "seq", "fits"), [(5, 2, True), (5, 1, False), (4, 2, False)])
def test_L1_take_renew_and_release_compare_token_and_seq(token: int, seq: int, fits: bool) -> None:
    for request in (
        Take("job", token, seq, "server-1", row_of("c", 6)),
        Renew("job", holder_id("b", 9), token, seq, "server-1"),
        ReleaseRow("job", holder_id("b", 9), token, seq),
    ):
        store = held_by(token=5, seq=2)
        assert store.perform(request).done is fits
        assert store.commits == fits


def test_L1_a_stranger_and_a_released_row_are_not_renewed() -> None:
    store = held_by(token=5, seq=2)
    assert not store.perform(Renew("job", holder_id("b", 10), 5, 2, "server-1")).done
    assert not store.perform(ReleaseRow("job", holder_id("b", 10), 5, 2)).done
    assert store.perform(ReleaseRow("job", holder_id("b", 9), 5, 2, "c")).row == row_of(
        token=5, seq=2, released=True, successor="c"
    )
    assert not store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-1")).done
    assert not SimStore().perform(Renew("job", "x", 5, 2, "server-1")).done
    assert not SimStore().perform(ReleaseRow("job", "x", 5, 2)).done
    assert not SimStore().perform(Take("job", 5, 2, "server-1", row_of("c", 6))).done


def test_L1_every_write_compares_the_server() -> None:
    store = held_by(token=5, seq=2)
    store.fail_over()
    assert not store.perform(Take("job", 5, 2, "server-1", row_of("c", 6))).done
    assert not store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-1")).done
    assert not store.release("job", holder_id("b", 9), 5).done
    assert store.perform(Renew("job", holder_id("b", 9), 5, 2, "server-2")).done
    assert store.release("job", holder_id("b", 9), 5).done
    assert not store.release("other", holder_id("b", 9), 5).done


def test_the_store_forgets_commits_only_when_told() -> None:
    store = SimStore()
    empty = store.state()
    take = Take("job", 0, 0, "server-1", row_of("c", 6))
    assert store.perform(take).done
    assert store.perform(Renew("job", holder_id("c", 9), 6, 1, "server-1")).row == row_of("c", 6, 2)
    store.stop()
    assert store.perform(Look("job")) == StoreAnswer(False, reason="the store refuses connections")
    store.restart()
    assert store.perform(Look("job")).row == row_of("c", 6, 2)
    store.forget(1)
    assert store.rows["job"] == row_of("c", 6, 1)
    store.forget(5)
    assert store.state() == empty
    store.fail_over()
    assert store.state() != empty


# --- L2: renewing -----------------------------------------------------------------------------------------------------


def test_L2_the_hold_counts_from_before_the_renewal_left() -> None:
    desk = Desk()
    desk.lead()
    desk.wake()
    sent_ms = desk.now
    assert isinstance(desk.asked[0].request, Renew)
    (extend,) = only(desk.answer(at=sent_ms + 400), Extend)
    assert extend.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L2_the_take_counts_as_the_first_renewal() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    sent_ms = desk.now
    (start,) = only(desk.answer(at=sent_ms + 300), Start)
    assert start.leadership.valid_until_ms == sent_ms + LAN.hold_ms


@pytest.mark.parametrize(
    "answer",
    [
        StoreAnswer(False, reason="time-out"),
        StoreAnswer(False, done=True, row=None, server="server-1"),
        StoreAnswer(True, done=False, row=row_of("a"), server="server-1"),
    ],
)
def test_L2_anything_but_one_proved_row_is_not_renewed(answer: StoreAnswer) -> None:
    desk = Desk()
    start = desk.lead()
    if answer.row is not None:
        answer = answer._replace(row=desk.store.rows["job"])
    desk.wake()
    effects = desk.answer(answer=answer)
    assert not only(effects, Extend)
    assert not only(effects, Stop)
    while not only(effects := desk.wake(), Stop):
        desk.asked.clear()
    assert desk.now == start.leadership.valid_until_ms - LAN.hold_ms + LAN.term_at_ms
    assert only(effects, Stop) == [Stop(start.leadership.term, "no renewal was proved in time", planned=False)]


@pytest.mark.parametrize(
    "answer",
    [
        StoreAnswer(True, False, row_of("b", WALL + 10**9), "server-1"),
        StoreAnswer(True, False, row_of("a"), "server-1"),
        StoreAnswer(True, False, None, "server-1"),
    ],
)
def test_L2_a_row_that_is_no_longer_ours_ends_the_leadership_at_once(answer: StoreAnswer) -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    if answer.row is not None and node_of(answer.row.holder) == "a":
        answer = answer._replace(row=desk.store.rows["job"]._replace(released=True))
    desk.wake()
    effects = desk.answer(answer=answer)
    assert only(effects, Stop)[0].planned is False
    assert only(effects, OrderRelease) == [OrderRelease(term)]
    assert Code.LEASE_LOST in desk.codes()
    assert desk.machine.role is Role.FOLLOWER


def test_Time_an_answer_after_TERM_was_due_is_a_loss_even_if_it_says_done() -> None:
    desk = Desk()
    start = desk.lead()
    proved_ms = start.leadership.valid_until_ms - LAN.hold_ms
    desk.wake()
    effects = desk.answer(at=proved_ms + LAN.term_at_ms)
    assert not only(effects, Extend)
    assert only(effects, Stop)
    assert Code.RENEWAL_LATE in desk.codes()


def test_Time_a_late_proof_of_an_old_renewal_extends_nothing() -> None:
    desk = Desk()
    desk.lead()
    desk.wake()
    old = desk.asked.pop(0)
    sent_ms = desk.now
    done = desk.store.perform(old.request)
    desk.wake()
    desk.answer()  # matches nothing, and shows that the old one was written
    assert Code.ANSWER_LOST in desk.codes()
    while desk.now < sent_ms + LAN.term_at_ms:
        desk.answer() if desk.asked else desk.wake()
    before = desk.machine.view(desk.now).hold_left_ms
    effects = desk.tell(StoreAnswered(old.number, done))
    assert not only(effects, Extend)
    assert desk.machine.view(desk.now).hold_left_ms == before
    assert Code.LATE_ACK in desk.codes()


def test_L2_of_overlapping_renewals_each_counts_with_its_own_departure() -> None:
    desk = Desk()
    desk.lead()
    desk.wake()
    first, first_ms = desk.asked.pop(0), desk.now
    desk.wake()
    second = desk.asked.pop(0)
    assert desk.now > first_ms
    assert first.request == second.request
    done, refused = desk.store.perform(first.request), desk.store.perform(second.request)
    assert (done.done, refused.done) == (True, False)
    (extend,) = only(desk.tell(StoreAnswered(first.number, done), desk.now + 20), Extend)
    assert extend.leadership.valid_until_ms == first_ms + LAN.hold_ms
    assert not only(desk.tell(StoreAnswered(second.number, refused)), Extend)
    assert not only(desk.tell(StoreAnswered(second.number, done)), Extend), "each answer counts once"
    desk.until(Extend)


def test_L2_an_older_proof_never_shortens_the_hold() -> None:
    desk = Desk()
    desk.lead()
    desk.wake()
    first = desk.asked.pop(0)
    desk.wake()
    second = desk.asked.pop(0)
    proof = StoreAnswer(True, True, None, "server-1")
    assert only(desk.tell(StoreAnswered(second.number, proof)), Extend)
    assert not only(desk.tell(StoreAnswered(first.number, proof)), Extend)


def test_L2_unanswered_renewals_are_bounded() -> None:
    desk = Desk(failsafe=("a", "b"))
    desk.lead()
    for _ in range(OUTSTANDING_MAX * 4):
        desk.wake()
        desk.tell(Received(FailsafeAck(Origin("b", config=list_hash(("a", "b"))), WALL, 0, 7)))
        for effect in only(desk.log[-20:], Send):
            ack = FailsafeAck(Origin("b", config=list_hash(("a", "b"))), effect.message.token, effect.message.number, 7)
            desk.tell(Received(ack), desk.now + 1)
    lead = desk.machine._lead
    assert lead is not None
    assert len(lead.renewals) == OUTSTANDING_MAX
    assert len(lead.rounds) <= OUTSTANDING_MAX


def test_L2_after_an_error_the_holder_tries_again_within_a_beat() -> None:
    desk = Desk()
    desk.lead()
    desk.wake()
    desk.answer(answer=StoreAnswer(False, reason="refused"))
    assert desk.machine.deadline_ms is not None
    assert desk.machine.deadline_ms - desk.now < LAN.beat_ms
    desk.until(Extend)


def test_L2_a_holder_moves_along_with_a_fail_over_that_kept_its_hold() -> None:
    desk = Desk()
    desk.lead()
    for _ in range(3):
        desk.until(Extend)
    desk.store.fail_over(lost_commits=2)
    desk.until(Extend)
    assert Code.OTHER_SERVER in desk.codes()
    assert desk.store.rows["job"].server == "server-2"
    assert not only(desk.log, Stop)


# --- L3: observing and taking -----------------------------------------------------------------------------------------


def test_L3_the_wait_counts_from_after_the_answer_arrived() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL), at=100)
    assert isinstance(desk.asked[0].request, Look)
    desk.answer(at=400)
    take = desk.until(Take)
    assert desk.now >= 400 + LAN.wait_ms + TICK_MS
    assert desk.now <= 400 + LAN.wait_ms + TICK_MS + LAN.beat_ms
    assert (take.seen_token, take.seen_seq, take.server) == (WALL, 1, "server-1")
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


def test_L3_a_missing_row_is_watched_for_a_whole_wait_before_the_insert() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.answer()
    assert desk.waits() == "one full hold to pass before the first use of this name, at most 3062 ms"
    take = desk.until(Take)
    assert desk.now > LAN.wait_ms
    assert (take.seen_token, take.seen_seq) == (0, 0)


def test_L3_a_row_that_vanished_starts_the_observation_anew_and_keeps_its_holders_wait() -> None:
    desk = Desk(store=held_by(wait_ms=5_000))
    desk.tell(Started(WALL))
    desk.answer()
    del desk.store.rows["job"]
    desk.wake()
    gone_ms = desk.now
    desk.answer()
    assert Code.OBSERVATION_RESTARTED in desk.codes()
    desk.until(Take)
    assert desk.now > gone_ms + 5_000


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


def test_L3_a_repeated_take_keeps_its_token_so_that_either_may_land() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    first = desk.until(Take)
    desk.asked.clear()
    desk.wake()
    second = desk.until(Take)
    assert first == second


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


# --- L4: releases and the single machine ------------------------------------------------------------------------------


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
    assert store.perform(Take("job", 5, 1, "server-1", row_of("c", 6))).done
    store.fail_over(lost_commits=1)
    assert store.rows["job"].released
    desk = Desk(store=store)
    desk.tell(Started(WALL))
    desk.until(Start)
    assert desk.now > LAN.wait_ms


def test_L4_on_one_machine_a_free_run_lock_spares_the_wait() -> None:
    for store in (SimStore(), held_by()):
        desk = Desk(store=store, single_machine=True)
        desk.tell(Started(WALL))
        desk.until(Start)
        assert desk.now == 0


def test_L4_on_one_machine_a_held_run_lock_spares_nothing_until_it_is_free() -> None:
    desk = Desk(store=held_by(), single_machine=True)
    desk.tell(Started(WALL, lock_held=True))
    desk.answer()
    desk.tell(RunLock(False), at=100)
    desk.until(Start)
    assert desk.now < 100 + 2 * LAN.beat_ms


def test_L4_on_one_machine_only_the_first_sighting_spares_the_wait() -> None:
    desk = Desk(store=held_by(), single_machine=True)
    desk.tell(Started(WALL, lock_held=True))
    desk.answer()
    desk.store.perform(Renew("job", holder_id("b", 9), WALL, 1, "server-1"))
    desk.tell(RunLock(False), at=100)
    desk.until(Start)
    assert desk.now > LAN.wait_ms


# --- T: tokens --------------------------------------------------------------------------------------------------------


def test_T1_a_take_writes_the_next_token_or_wall_time_whichever_is_higher() -> None:
    for token, wall_ms, expected in ((5, 0, 6), (5, 10, 10), (50, 10, 51)):
        desk = Desk(store=held_by(token=token, released=True))
        desk.tell(Started(wall_ms))
        assert desk.until(Start).leadership.token == expected


def test_T1_a_mad_wall_clock_does_not_use_up_the_tokens() -> None:
    desk = Desk(store=held_by(token=5, released=True))
    desk.tell(Started(2**60))
    assert desk.until(Start).leadership.token == 6


def test_T1_no_take_above_the_largest_token() -> None:
    desk = Desk(store=held_by(token=TOKEN_MAX, released=True))
    desk.tell(Started(WALL))
    with pytest.raises(AssertionError):
        desk.until(Take)
    assert "leaves no higher one" in desk.waits()
    odd = Desk(store=held_by(token=TOKEN_MAX + 5, released=True))
    odd.tell(Started(WALL))
    odd.answer()
    assert odd.machine.token_max == 0


def test_T2_a_take_is_above_the_largest_token_known() -> None:
    desk = Desk(store=held_by(token=5, released=True), token_max=WALL * 2)
    desk.tell(Started(WALL))
    assert desk.until(Start).leadership.token == WALL * 2 + 1


def test_T2_no_start_below_the_largest_token_known() -> None:
    desk = Desk("b", failsafe=TRIO)
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.machine._take = None  # as if it had been settled
    desk.tell(Received(FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL * 2, 1)))
    assert not only(desk.answer(), Start)
    assert Code.TOKEN_LOW in desk.codes()
    start = desk.until(Start)
    assert start.leadership.token == WALL * 2 + 1


def test_T2_the_largest_token_is_saved_before_the_start_and_after_a_look() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    (saved,) = only(desk.answer(), Persist)
    assert saved.ballot.token_max == WALL
    desk.until(Take)
    effects = [type(effect) for effect in desk.answer()]
    assert effects.index(Persist) < effects.index(Start)


def test_T2_a_token_that_cannot_be_saved_is_not_used() -> None:
    """The start that stood behind it was not done, so that nobody will ever report its end: the row is freed at once,
    and this node does not stand again before its disk has taken the token."""
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Start)
    desk.tell(PersistFailed("full"))
    release = desk.until(ReleaseRow, within_ms=1)
    assert release.successor == "!", "nothing ran"
    assert only(desk.answer(), Persist), "it is tried again"
    assert desk.machine.settled
    desk.tell(PersistFailed("full"))
    for _ in range(20):
        if only(desk.answer() if desk.asked else desk.wake(), Persist):
            desk.tell(PersistFailed("full"))
        assert not any(isinstance(asked.request, Take) for asked in desk.asked)
    assert desk.codes().count(Code.DISK_FAILED) == 1, "recorded once, not at every try"
    assert "cannot be saved (full)" in desk.waits()
    desk.until(Start)
    assert not desk.machine._unsaved


def test_T2_a_start_that_people_must_approve_is_ended_in_order_if_the_disk_fails_meanwhile() -> None:
    """That start was done: only the gate knows that it waits, and must be told."""
    desk = Desk()
    desk.tell(Started(WALL))
    start = desk.until(Start)
    desk.tell(WorkDeferred(start.leadership.term, "an approval"))
    assert only(desk.tell(PersistFailed("full")), Stop)
    desk.tell(WorkGone(start.leadership.term))
    desk.until(ReleaseRow)


def test_T2_a_row_found_ours_is_not_worked_under_before_its_token_is_on_the_disk() -> None:
    """The take's answer was lost, and the look that found it could not save the token either."""
    desk = Desk(store=held_by(token=5, released=True))
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.lose()
    desk.wake()
    while not only(desk.answer() if desk.asked else desk.wake(), Persist):
        pass
    desk.tell(PersistFailed("full"))
    assert isinstance(desk.until(ReleaseRow), ReleaseRow)
    assert not only(desk.log, Start)


def test_T2_a_failing_disk_does_not_stop_a_running_leader() -> None:
    desk = Desk()
    desk.lead()
    assert not only(desk.tell(PersistFailed("full")), Stop)


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
