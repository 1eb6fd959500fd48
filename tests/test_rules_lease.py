"""The rules of the store lease (L, T, and Q6, Q8, G5, G7 as far as they concern it), one test each, named by the rule.

Most drive one machine against the simulated store by hand. The lives at the end drive several, with clocks at both
edges of the promised rate, and take out one rule at a time.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lease_universe import ALL, FAILSAFE, LAB, Universe, life
from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Init,
    Input,
    MembersChanged,
    Pause,
    PersistFailed,
    Received,
    Rejoin,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    StoreAnswered,
    Unanswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease import LeaseOptions, LeaseStrategy
from primacy.election.lease_state import LATE_MAX, OUTSTANDING_MAX, TICK_MS, list_hash
from primacy.election.messages import Election, FailsafeAck, FailsafeBeat, Origin
from primacy.election.model import TOKEN_MAX, Kind, Member, Membership, Role, Seat
from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, Take, holder_id, node_of
from primacy.settings.timing import PROFILES
from primacy.sim.store import SimStore

LAN = PROFILES["lan"]
WALL = 1_800_000_000_000


class Desk:
    """One machine and the store, with the clock in the tester's hand."""

    def __init__(
        self, node: str = "a", store: SimStore | None = None, membership: Membership | None = None, **options: Any
    ):
        self.store = store or SimStore()
        self.now = 0
        seat = Seat(node, 7, membership or Membership.of(()), Random(1))
        self.machine = LeaseStrategy(seat, LAN, LeaseOptions("job", **options))
        self.asked: list[AskStore] = []
        self.log: list[Effect] = []

    def tell(self, given: Input, at: int | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        effects = self.machine.step(self.now, given)
        self.asked += [effect for effect in effects if isinstance(effect, AskStore)]
        self.log += effects
        return effects

    def answer(self, at: int | None = None, answer: StoreAnswer | None = None) -> list[Effect]:
        """The oldest request arrives at the store now and is answered now."""
        asked = self.asked.pop(0)
        return self.tell(StoreAnswered(asked.number, answer or self.store.perform(asked.request)), at)

    def lose(self) -> Any:
        """The oldest request is performed, but nobody hears of it."""
        request = self.asked.pop(0).request
        self.store.perform(request)
        return request

    def wake(self) -> list[Effect]:
        """Time passes until the machine wants to be woken."""
        assert self.machine.deadline_ms is not None
        return self.tell(DeadlinePassed(), max(self.now, self.machine.deadline_ms))

    def until(self, wanted: type, within_ms: int = 20_000) -> Any:
        """Answers everything at once until the machine asks for, or does, such a thing."""
        end = self.now + within_ms
        while self.now < end:
            found = [asked.request for asked in self.asked if isinstance(asked.request, wanted)]
            if found:
                return found[0]
            effects = self.answer() if self.asked else self.wake()
            done = [effect for effect in effects if isinstance(effect, wanted)]
            if done:
                return done[0]
        raise AssertionError(f"no {wanted.__name__} within {within_ms} ms")

    def lead(self) -> Start:
        self.tell(Started(WALL))
        start: Start = self.until(Start)
        self.tell(WorkStarted(start.leadership.term))
        return start

    def codes(self) -> list[Code]:
        return [effect.event.code for effect in self.log if isinstance(effect, Record)]

    def waits(self) -> str:
        return self.machine.view(self.now).waits_for


def only(effects: list[Effect], wanted: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, wanted)]


def row_of(node: str = "b", token: int = WALL, seq: int = 1, **more: Any) -> Row:
    full = {"hold_ms": LAN.hold_ms, "wait_ms": LAN.wait_ms, "released": False, "server": "server-1"} | more
    return Row(holder_id(node, 9), token, seq, **full)


def held_by(node: str = "b", **more: Any) -> SimStore:
    store = SimStore()
    store.rows["job"] = row_of(node, **more)
    return store


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
    assert desk.waits() == "waits one full hold before the first use of this name, at most 3062 ms"
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


# --- L7: failsafe -----------------------------------------------------------------------------------------------------

TRIO = ("a", "b", "c")


def ack(beat: FailsafeBeat, node: str, **more: Any) -> Received:
    full = {"token": beat.token, "number": beat.number, "holder_boot": beat.origin.boot} | more
    return Received(FailsafeAck(Origin(node, config=list_hash(TRIO)), **full))


def beats(desk: Desk) -> list[Send]:
    """The store is away; the holder asks the others."""
    for _ in range(4):
        desk.asked.clear()
        sent = only(desk.wake(), Send)
        if sent:
            return sent
    raise AssertionError("no failsafe beat")


def test_L7_the_row_carries_the_lists_hash_and_take_compares_it() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    row = desk.store.rows["job"]
    assert row.members == list_hash(TRIO) != ""
    stranger = Desk("d", store=desk.store)
    stranger.tell(Started(WALL))
    with pytest.raises(AssertionError):
        stranger.until(Take)
    assert "`primacy lease break job`" in stranger.waits()
    assert not desk.store.perform(Take("job", row.token, row.seq, "server-1", row_of("d"), "")).done
    assert desk.store.perform(Take("job", row.token, row.seq, "server-1", row_of("d"), row.members)).done


def test_L7_after_a_release_anybody_may_take_it() -> None:
    desk = Desk("d", store=held_by(members="other", released=True))
    desk.tell(Started(WALL))
    desk.until(Start)
    assert desk.now == 0


def test_L7_a_node_outside_of_the_list_does_not_stand() -> None:
    desk = Desk("d", failsafe=TRIO)
    desk.tell(Started(WALL))
    with pytest.raises(AssertionError):
        desk.until(Take)
    assert desk.machine.role is Role.OBSERVER
    assert desk.waits() == ""


def test_L7_the_hold_counts_from_the_departure_of_the_beat_that_all_acked() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    to_b, to_c = beats(desk)
    assert (to_b.to, to_c.to) == ("b", "c")
    sent_ms = desk.now
    assert not only(desk.tell(ack(to_b.message, "b"), sent_ms + 5), Extend)
    assert not only(desk.tell(ack(to_b.message, "b"), sent_ms + 6), Extend), "one node counts once"
    (extend,) = only(desk.tell(ack(to_c.message, "c"), sent_ms + 30), Extend)
    assert extend.leadership.valid_until_ms == sent_ms + LAN.hold_ms


def test_L7_acks_of_strangers_other_boots_tokens_and_numbers_do_not_count() -> None:
    desk = Desk(failsafe=TRIO)
    desk.lead()
    beat = beats(desk)[0].message
    desk.tell(ack(beat, "b"))
    for wrong in (
        ack(beat, "d"),
        ack(beat, "c", holder_boot=1),
        ack(beat, "c", token=1),
        ack(beat, "c", number=10**6),
        Received(FailsafeAck(Origin("c", config="other"), beat.token, beat.number, beat.origin.boot)),
    ):
        assert not only(desk.tell(wrong), Extend)
    assert only(desk.tell(ack(beat, "c")), Extend)


def test_L7_the_failsafe_keeps_the_leadership_for_the_whole_outage_and_no_longer() -> None:
    desk = Desk(failsafe=TRIO)
    term = desk.lead().leadership.term
    desk.store.stop()
    while desk.now < 30_000:
        effects = desk.answer() if desk.asked else desk.wake()
        for sent in only(effects, Send):
            desk.tell(ack(sent.message, sent.to))
    assert not only(desk.log, Stop)
    desk.store.restart()
    desk.until(Extend)
    assert desk.store.rows["job"].token == term
    desk.store.stop()
    while not only(desk.log, Stop):
        desk.answer() if desk.asked else desk.wake()


def test_L7_an_ack_counts_for_that_node_as_a_changed_row() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    while desk.now < 2_900:
        desk.answer() if desk.asked else desk.wake()
    beat = FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4)
    (sent,) = only(desk.tell(Received(beat)), Send)
    assert (sent.to, sent.message) == ("a", FailsafeAck(Origin("b", boot=7, config=list_hash(TRIO)), WALL, 4, 9))
    acked_ms = desk.now
    desk.until(Take)
    assert desk.now > acked_ms + LAN.wait_ms


def test_L7_no_ack_with_a_take_outstanding_that_may_still_be_written() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    beat = Received(FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    desk.tell(Started(WALL))
    desk.until(Take)
    assert not only(desk.tell(beat), Send)
    desk.asked.clear()
    desk.wake()
    assert not only(desk.tell(beat), Send), "unanswered, it may still be on its way"
    desk.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    desk.until(Take, 1_000) if not desk.asked else None
    desk.answer()
    assert only(desk.tell(beat), Send), "the row has changed, so the take can no longer match"


def test_L7_an_unanswered_take_is_settled_by_a_look_that_shows_another_row() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.asked.clear()
    desk.store.perform(Renew("job", holder_id("a", 9), WALL, 1, "server-1"))
    desk.tell(Pause())
    desk.until(Look)
    desk.answer()
    beat = Received(FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), WALL, 4))
    assert only(desk.tell(beat), Send)


def test_L7_no_ack_for_strangers_older_tokens_or_by_a_holder() -> None:
    desk = Desk("b", store=held_by("a", members=list_hash(TRIO)), failsafe=TRIO)
    desk.tell(Started(WALL))
    desk.answer()
    for origin, token in (
        (Origin("d", boot=9, config=list_hash(TRIO)), WALL),
        (Origin("a", boot=9, config="other"), WALL),
        (Origin("a", boot=9, config=list_hash(TRIO)), WALL - 1),
    ):
        assert not only(desk.tell(Received(FailsafeBeat(origin, token, 4))), Send)
    desk.until(Start)
    beat = FailsafeBeat(Origin("a", boot=9, config=list_hash(TRIO)), TOKEN_MAX, 4)
    assert not only(desk.tell(Received(beat)), Send)


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
    desk = Desk()
    desk.tell(Started(WALL))
    start = desk.until(Start)
    effects = desk.tell(PersistFailed("full"))
    assert only(effects, Stop)
    desk.tell(WorkGone(start.leadership.term))
    desk.until(ReleaseRow)
    assert Code.DISK_FAILED in desk.codes()


def test_T2_a_failing_disk_does_not_stop_a_running_leader() -> None:
    desk = Desk()
    desk.lead()
    assert not only(desk.tell(PersistFailed("full")), Stop)


# --- Q6, Q8, G5, G7 as they concern a lease ---------------------------------------------------------------------------


def test_Q6_a_node_whose_run_lock_is_held_takes_nothing() -> None:
    desk = Desk(store=held_by(released=True))
    desk.tell(Started(WALL, lock_held=True))
    with pytest.raises(AssertionError):
        desk.until(Take)
    assert "run lock" in desk.waits()
    desk.tell(RunLock(False))
    desk.until(Start)
    other = Desk(store=held_by(released=True))
    other.tell(Started(WALL))
    other.tell(RunLock(True))
    assert not only(other.answer(), AskStore)


def test_Q6_a_holder_that_cannot_start_its_work_within_the_hold_gives_up() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    start = desk.until(Start)
    began_ms = desk.now
    assert desk.waits() == "waits for its work to start"
    stop = desk.until(Stop)
    assert desk.now == began_ms + LAN.hold_ms
    assert stop.planned
    assert Code.CANNOT_START in desk.codes()
    desk.tell(WorkGone(start.leadership.term))
    gone_ms = desk.now
    desk.until(Take)
    assert desk.now > gone_ms + LAN.wait_ms, "others come first"


def test_Q8_a_lost_leadership_is_never_opened_again() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    desk.wake()
    renewal = desk.asked.pop(0)
    while not only(desk.wake(), Stop):
        desk.asked.clear()
    desk.asked.clear()
    late = desk.tell(StoreAnswered(renewal.number, desk.store.perform(renewal.request)))
    assert not only(late, Extend)
    desk.tell(WorkStarted(term))
    assert desk.machine.role is not Role.LEADER
    desk.tell(WorkGone(term))
    start = desk.until(Start)
    assert start.leadership.term > term


def test_G5_the_row_is_released_only_when_the_work_is_gone() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    while not only(desk.wake(), Stop):
        desk.asked.clear()
    for _ in range(20):
        desk.answer() if desk.asked else desk.wake()
    assert not desk.store.rows["job"].released
    assert f"work of token {term} to end" in desk.waits()
    desk.tell(WorkGone(term))
    desk.until(ReleaseRow)
    desk.answer()
    assert Code.RELEASED in desk.codes()
    assert desk.until(Start).leadership.term > term


def test_G5_a_lost_guard_closes_the_leadership_and_the_free_lock_ends_it() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    assert not desk.tell(GuardLost(term + 1))
    effects = desk.tell(GuardLost(term))
    assert only(effects, Stop)
    assert not only(effects, OrderRelease), "nobody is there to order it from"
    desk.tell(RunLock(False))
    assert desk.until(Start).leadership.term > term


def test_G5_a_free_lock_says_nothing_while_a_start_is_under_way() -> None:
    desk = Desk()
    desk.lead()
    desk.tell(RunLock(False))
    desk.tell(StepDown())
    assert desk.waits() == "waits for its work to end, then releases the lease"


def test_G7_a_row_taken_but_never_worked_under_is_released() -> None:
    """Sound here, and not for raft: the wait stood before the take."""
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.tell(Pause())
    assert not only(desk.answer(), Start)
    desk.answer()
    assert desk.store.rows["job"].released
    desk.tell(Resume())
    assert desk.until(Start).leadership.token > WALL


# --- giving up in order -----------------------------------------------------------------------------------------------


def test_step_down_stops_in_order_renews_meanwhile_and_lets_others_go_first() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    effects = desk.tell(StepDown(reason="maintenance"))
    assert only(effects, Stop) == [Stop(term, "maintenance", planned=True)]
    assert only(effects, OrderRelease) == [OrderRelease(term)]
    assert not desk.tell(StepDown()), "once is enough"
    desk.until(Extend)
    desk.store.release("job", desk.machine.holder, term)
    desk.wake()
    desk.answer()  # the renewal finds the row released: no loss, only the report is missing
    assert len(only(desk.log, Stop)) == 1
    desk.tell(WorkGone(term, released=True))
    gone_ms = desk.now
    assert Code.RELEASED in desk.codes()
    desk.answer()
    assert "leaves the released lease to the others for" in desk.waits()
    desk.until(Start)
    assert desk.now >= gone_ms + 3 * LAN.beat_ms


def test_transfer_names_the_successor_in_the_row_and_the_others_hold_back() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    effects = desk.tell(StepDown("c"))
    assert only(effects, OrderRelease) == [OrderRelease(term, "c")]
    desk.tell(WorkGone(term))
    desk.answer()
    desk.asked.clear()
    assert desk.store.rows["job"].successor == "c"
    b, c = Desk("b", store=desk.store), Desk("c", store=desk.store)
    for other in (b, c):
        other.tell(Started(WALL))
        other.answer()
    assert isinstance(c.asked[0].request, Take)
    assert not b.asked
    assert b.waits() == "leaves the released lease to c for 500 ms"
    b.until(Take)
    assert b.now >= 2 * LAN.beat_ms


def test_a_lease_lost_during_a_planned_stop_is_stopped_at_once_and_not_taken_back_first() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    desk.tell(StepDown("c"))
    desk.asked.clear()
    while True:
        stops = only(desk.wake(), Stop)
        desk.asked.clear()
        if stops:
            break
    assert stops == [Stop(term, "no renewal was proved in time", planned=False)]
    desk.tell(WorkGone(term, released=True))
    gone_ms = desk.now
    desk.store.release("job", desk.machine.holder, term)
    desk.until(Start)
    assert desk.now > gone_ms + LAN.term_at_ms


def test_pause_and_health_step_down_and_keep_from_standing() -> None:
    for bad, good, role, words in (
        (Pause(), Resume(), Role.PAUSED, "is paused; `primacy resume` ends that"),
        (Health(False, "disk"), Health(True), Role.FOLLOWER, "waits for its health probes to pass (disk)"),
        (Health(False), Health(True), Role.FOLLOWER, "waits for its health probes to pass (unhealthy)"),
    ):
        desk = Desk()
        term = desk.lead().leadership.term
        assert only(desk.tell(bad), Stop)[0].planned
        assert not desk.tell(bad) or not only(desk.tell(bad), Stop)
        desk.tell(WorkGone(term, released=True))
        desk.store.release("job", desk.machine.holder, term)
        with pytest.raises(AssertionError):
            desk.until(Take)
        assert desk.machine.role is role
        assert desk.waits().startswith(words)
        desk.tell(good)
        desk.tell(Health(True))
        desk.until(Start)


def test_an_unhealthy_follower_says_so_once() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.tell(Health(False, "x"))
    desk.tell(Health(False, "x"))
    assert desk.codes().count(Code.UNHEALTHY) == 1


def test_shutdown_hands_over_and_then_asks_nothing_more() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    assert only(desk.tell(Shutdown()), Stop)[0].planned
    desk.asked.clear()
    desk.tell(WorkGone(term))
    desk.answer()
    assert desk.store.rows["job"].released
    assert desk.machine.deadline_ms is None
    assert not desk.tell(DeadlinePassed())
    idle = Desk(store=held_by())
    idle.tell(Started(WALL))
    idle.answer()
    idle.tell(Shutdown())
    assert idle.machine.deadline_ms is None


def test_shutdown_with_a_take_under_way_releases_what_it_took() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.tell(Shutdown())
    desk.answer()
    desk.answer()
    assert desk.store.rows["job"].released
    assert desk.machine.deadline_ms is None


def test_work_that_ends_by_itself_frees_the_lease() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    assert not only(desk.tell(WorkGone(term - 1)), Record), "an older one says nothing of this leadership"
    desk.tell(WorkGone(term))
    desk.answer()
    assert desk.store.rows["job"].released
    assert Code.STEP_DOWN in desk.codes()


def test_a_release_that_missed_a_last_renewal_is_repeated() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    desk.tell(StepDown())
    desk.wake()
    desk.lose()
    desk.tell(WorkGone(term))
    desk.answer()
    assert not desk.store.rows["job"].released
    desk.until(ReleaseRow)
    desk.answer()
    assert desk.store.rows["job"].released


# --- the store away, and what people see ------------------------------------------------------------------------------


def test_looks_back_off_with_a_bound_while_the_store_fails_and_it_is_recorded_once() -> None:
    desk = Desk()
    desk.store.stop()
    desk.tell(Started(WALL))
    pauses = []
    for _ in range(12):
        desk.answer()
        before = desk.now
        desk.wake()
        pauses.append(desk.now - before)
    assert pauses[0] <= LAN.beat_ms
    assert max(pauses) <= LAN.wait_ms
    assert max(pauses) > 4 * LAN.beat_ms
    assert desk.codes().count(Code.STORE_FAILED) == 1
    assert "waits for the store to answer (the store refuses connections)" in desk.waits()
    desk.store.restart()
    desk.until(Take)


def test_an_unanswered_look_is_given_up_and_its_late_answer_ignored() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    old = desk.asked.pop(0)
    desk.wake()
    assert desk.now == LAN.hold_ms // 3
    assert Code.STORE_FAILED in desk.codes()
    desk.tell(StoreAnswered(old.number, desk.store.perform(old.request)))
    assert desk.machine._sight is None
    assert not desk.tell(StoreAnswered(999, StoreAnswer(True)))


def test_the_view_speaks_the_users_words() -> None:
    desk = Desk(store=held_by())
    assert desk.machine.role is Role.STARTING
    assert desk.machine.deadline_ms is None
    assert not desk.tell(DeadlinePassed()), "nothing before the start"
    desk.tell(Started(WALL))
    assert desk.waits() == "waits for the first look at the store"
    desk.answer()
    view = desk.machine.view(desk.now)
    assert (view.role, view.leader, view.term, view.token) == (Role.FOLLOWER, "b", WALL, 0)
    assert view.alive == ("a", "b")
    assert view.waits_for == "waits for node b's hold to run out, at most 3062 ms"
    assert desk.machine.leader == "b"
    assert Code.FOLLOWS in desk.codes()
    desk.until(Take)
    assert desk.machine.role is Role.CANDIDATE
    assert desk.machine.view(desk.now).leader == ""
    desk.answer()
    desk.tell(WorkStarted(desk.machine.view(desk.now).term))
    view = desk.machine.view(desk.now)
    assert (view.role, view.leader, view.waits_for) == (Role.LEADER, "a", "")
    assert view.hold_left_ms == LAN.hold_ms
    assert view.token == view.term == desk.store.rows["job"].token


def test_the_view_of_a_row_found_ours_and_of_a_plain_release() -> None:
    desk = Desk()
    desk.tell(Started(WALL))
    desk.until(Take)
    desk.lose()
    desk.until(Renew)
    desk.machine._failures = 0
    assert desk.waits() == "waits for the store to prove its row"
    assert desk.machine.leader == ""
    free = Desk(store=held_by(released=True))
    free.tell(Started(WALL))
    free.answer()
    assert free.waits() == ""


def test_witnesses_and_observers_never_stand() -> None:
    for kind in (Kind.WITNESS, Kind.OBSERVER):
        desk = Desk(membership=Membership.of([Member("a", kind), "b"]))
        desk.tell(Started(WALL))
        with pytest.raises(AssertionError):
            desk.until(Take)
        assert desk.machine.role is Role.OBSERVER


# --- never raises -----------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-3, 40), st.sampled_from([0, 1, WALL, WALL + 1, TOKEN_MAX, 2**70, -(2**70)]))
NAMES = st.sampled_from(
    ["", "a", "b", "c", "#", "a#7", "b#9", "\udcff", holder_id("a", 7), list_hash(TRIO), "server-1"]
)
ROWS = st.builds(Row, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), NAMES, NAMES, NAMES)
ANSWERS = st.builds(StoreAnswer, st.booleans(), st.booleans(), st.none() | ROWS, NAMES, NAMES)
ORIGINS = st.builds(Origin, NAMES, NUMBERS, NUMBERS, NAMES, NUMBERS)
MESSAGES = st.one_of(
    st.builds(FailsafeBeat, ORIGINS, NUMBERS, NUMBERS),
    st.builds(FailsafeAck, ORIGINS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Election, ORIGINS),
)
INPUTS = st.one_of(
    st.builds(Started, NUMBERS, st.booleans()),
    st.just(DeadlinePassed()),
    st.builds(Received, MESSAGES),
    st.builds(Unanswered, NAMES),
    st.builds(PersistFailed, NAMES),
    st.builds(WorkStarted, NUMBERS),
    st.builds(WorkGone, NUMBERS, st.booleans()),
    st.builds(GuardLost, NUMBERS),
    st.builds(RunLock, st.booleans()),
    st.builds(StepDown, NAMES, NAMES),
    st.sampled_from([Pause(), Resume(), Shutdown(), Init(0), Rejoin(), MembersChanged(())]),
    st.builds(Health, st.booleans(), NAMES),
    st.builds(StoreAnswered, st.integers(0, 30), ANSWERS),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 250, 1_500, 4_000]), st.sampled_from(["raw", "last", "own"]), INPUTS, ANSWERS)
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_step_never_raises_and_time_never_stands_still(script: list[Any], failsafe: bool, single: bool) -> None:
    """Odd values in answers and messages, also as answers to what was asked and as reports of its own work."""
    seat = Seat("a", 7, Membership.of(()), Random(1))
    options = LeaseOptions("job", failsafe=TRIO if failsafe else (), single_machine=single)
    machine = LeaseStrategy(seat, LAN, options)
    now, last, started = 0, 0, 0
    machine.step(0, Started(WALL))
    for span, how, raw, answer in script:
        now += span
        given: Input = raw
        if how == "last":
            given = StoreAnswered(last, answer)
        elif how == "own":
            given = WorkGone(started) if span == 1_500 else WorkStarted(started)
        for effect in machine.step(now, given):
            if isinstance(effect, AskStore):
                last = effect.number
            if isinstance(effect, Start):
                assert effect.leadership.token > started, "a token is started once"
                started = effect.leadership.token
        machine.view(now)
        assert machine.deadline_ms is None or machine.deadline_ms > now


# --- lives ------------------------------------------------------------------------------------------------------------


def test_at_most_one_works_at_any_instant_and_someone_does_afterwards() -> None:
    """Clock rates 0.99 and 1.01, work that uses its hold to the last, every trouble at once."""
    rare: set[str] = set()
    starts = 0
    for seed in range(120):
        universe = life(seed)
        assert universe.overlaps == []
        assert universe.own_token_trouble == 0
        universe.calm()
        universe.run(universe.now + 4_000)
        assert len(universe.working()) == 1
        rare.update(universe.codes)
        starts += universe.starts
    assert starts > 1_000
    wanted = {Code.ANSWER_LOST, Code.OBSERVATION_RESTARTED, Code.OTHER_SERVER, Code.RELEASE_APPLIED, Code.LATE_ACK}
    assert wanted <= rare


def test_at_most_one_works_with_the_failsafe() -> None:
    for seed in range(60):
        universe = life(seed, faults=FAILSAFE, failsafe=True)
        assert universe.overlaps == []


def test_T1_tokens_of_all_only_grow_if_no_commit_is_lost_or_the_wall_clocks_agree() -> None:
    for seed in range(40):
        assert life(seed, lost_max=0).token_trouble == 0
        assert life(seed, wall_spread_ms=0, drift=0.0).token_trouble == 0


def test_a_release_makes_the_handover_quick_and_a_crash_costs_one_wait() -> None:
    universe = Universe(3).run(5_000)
    (worker,) = universe.working()
    node = next(node for node in universe.nodes if node.name == worker)
    universe.give(node, StepDown())
    began = universe.now
    while universe.working() in ([], [worker]):
        universe.run(universe.now + 5)
    assert universe.now - began < 600 + 3 * LAB.beat_ms


class HoldFromAnswer(LeaseStrategy):
    def _counted_from(self, sent_ms: int, now_ms: int) -> int:
        return now_ms


class AnchorAtRequest(LeaseStrategy):
    def _anchor_ms(self, asked_ms: int, now_ms: int) -> int:
        return asked_ms


class NotStretched(LeaseStrategy):
    def _wait_ms(self, old: Any, answer: StoreAnswer) -> int:
        return self.timing.hold_ms


class ChangeUnnoticed(LeaseStrategy):
    def _same_row(self, old: Row | None, new: Row | None) -> bool:
        return (old is None) == (new is None)


class ServerUnnoticed(LeaseStrategy):
    def _same_server(self, old: Any, answer: StoreAnswer) -> bool:
        return True


class EverythingReleased(LeaseStrategy):
    def _at_once(self, sight: Any, row: Row) -> bool:
        return True


class ReleaseOfAnyServer(LeaseStrategy):
    def _at_once(self, sight: Any, row: Row) -> bool:
        return row.released


class FailsafeByOne(LeaseStrategy):
    def _complete(self, acked: tuple[str, ...]) -> bool:
        return True


class AckWithoutRestart(LeaseStrategy):
    def _watch_anew(self) -> None:
        pass


class WithoutSeq(SimStore):
    def _same(self, row: Row, token: int, seq: int) -> bool:
        return row.token == token


class WithoutCompare(SimStore):
    def _same(self, row: Row, token: int, seq: int) -> bool:
        return True


class WithoutServer(SimStore):
    def _same_server(self, server: str) -> bool:
        return True


QUIET = ("cut", "stall")
OTHERS = ("cut", "stall", "fail_over")


@pytest.mark.parametrize(
    ("kind", "store", "faults", "how"),
    [
        pytest.param(HoldFromAnswer, SimStore, QUIET, {}, id="L2-hold-from-answer"),
        pytest.param(AnchorAtRequest, SimStore, QUIET, {}, id="L3-anchor-at-request"),
        pytest.param(NotStretched, SimStore, QUIET, {}, id="L3-wait-not-stretched"),
        pytest.param(ChangeUnnoticed, SimStore, QUIET, {}, id="L3-change-unnoticed"),
        pytest.param(ServerUnnoticed, SimStore, ("cut", "fail_over"), {}, id="L3-server-unnoticed"),
        pytest.param(EverythingReleased, SimStore, QUIET, {}, id="L4-unreleased-taken"),
        pytest.param(ReleaseOfAnyServer, SimStore, ("people", "fail_over"), {}, id="L4-release-of-another-server"),
        pytest.param(FailsafeByOne, SimStore, FAILSAFE, {"failsafe": True}, id="L7-not-all"),
        pytest.param(AckWithoutRestart, SimStore, FAILSAFE, {"failsafe": True}, id="L7-ack-without-restart"),
        pytest.param(LeaseStrategy, WithoutSeq, ALL, {}, id="L1-without-seq"),
        pytest.param(LeaseStrategy, WithoutCompare, ALL, {}, id="L1-without-compare"),
        pytest.param(LeaseStrategy, WithoutServer, OTHERS, {}, id="L3-take-without-server"),
        pytest.param(LeaseStrategy, SimStore, ("people", "fail_over"), {"forgets": True}, id="store-that-forgets"),
        pytest.param(LeaseStrategy, SimStore, QUIET, {"drift": 0.03}, id="clocks-outside-of-the-model"),
    ],
)
def test_a_rule_taken_out_is_caught(kind: type[LeaseStrategy], store: type[SimStore], faults: Any, how: Any) -> None:
    assert any(life(seed, faults=faults, kind=kind, store=store(), **how).overlaps for seed in range(150))


def test_T2_taken_out_is_caught() -> None:
    class Forgetful(LeaseStrategy):
        def _largest_known(self) -> int:
            return 0

    faults = ("cut", "people", "fail_over")
    assert any(life(seed, faults=faults, kind=Forgetful).own_token_trouble for seed in range(100))


def test_Q8_taken_out_is_caught() -> None:
    class Reopens(LeaseStrategy):
        _used_token = property(lambda self: 0, lambda self, value: None)  # type: ignore[assignment]

    assert any(life(seed, kind=Reopens, lost_max=0).token_trouble for seed in range(30))
