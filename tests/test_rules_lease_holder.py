"""The guarded work (Q6, Q8, G5, G7 as they concern a lease), giving up in order, the store away, and the view."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lease_desk import LAN, WALL, Desk, held_by, only, row_of
from primacy.election.effects import AskStore, Extend, OrderRelease, Record, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Pause,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    StoreAnswered,
    WorkDeferred,
    WorkGone,
    WorkStarted,
)
from primacy.election.model import Kind, Member, Membership, Role
from primacy.election.store import Look, ReleaseRow, Renew, StoreAnswer, Take

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
    assert desk.waits() == "its work to start"
    stop = desk.until(Stop)
    assert desk.now == began_ms + LAN.hold_ms
    assert stop.planned
    assert Code.CANNOT_START in desk.codes()
    desk.tell(WorkGone(start.leadership.term))
    gone_ms = desk.now
    desk.until(Take)
    assert desk.now > gone_ms + LAN.wait_ms, "others come first"


def test_Q6_a_holder_whose_start_waits_on_purpose_keeps_the_row() -> None:
    """G8: an approval may take hours. Once it is there, the time to start counts anew."""
    desk = Desk()
    desk.tell(Started(WALL))
    term = desk.until(Start).leadership.term
    desk.tell(WorkDeferred(term, "an approval"))
    with pytest.raises(AssertionError):
        desk.until(Stop, within_ms=600_000)
    assert desk.waits() == "an approval"
    desk.tell(WorkDeferred(term))
    over_ms = desk.now
    assert desk.waits() == "its work to start"
    desk.until(Stop)
    assert desk.now == over_ms + LAN.hold_ms
    assert Code.CANNOT_START in desk.codes()


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
    assert desk.waits() == "its work to end, then it releases the lease"


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
    assert "the others to take the released lease, at most" in desk.waits()
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
    assert b.waits() == "c to take the released lease, at most 500 ms"
    b.until(Take)
    assert b.now >= 2 * LAN.beat_ms


def test_transfer_holds_if_the_node_looks_before_the_release_of_its_guard_arrives() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    desk.tell(StepDown("c"))
    desk.tell(WorkGone(term, released=True))
    desk.until(ReleaseRow)  # it looked, and found its row unreleased
    desk.store.release("job", desk.machine.holder, term, "c")
    desk.answer()
    assert desk.store.rows["job"].successor == "c"
    assert desk.codes().count(Code.RELEASED) == 1


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
        (Pause(), Resume(), Role.PAUSED, "an operator: primacy resume"),
        (Health(False, "disk"), Health(True), Role.FOLLOWER, "its health probes to pass (disk)"),
        (Health(False), Health(True), Role.FOLLOWER, "its health probes to pass (unhealthy)"),
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


def test_L4_a_release_that_a_renewal_overtook_is_repeated_at_once() -> None:
    desk = Desk()
    term = desk.lead().leadership.term
    desk.tell(StepDown())
    desk.wake()
    desk.lose()
    desk.tell(WorkGone(term))
    began_ms = desk.now
    desk.answer(began_ms + 20)
    assert not desk.store.rows["job"].released
    assert isinstance(desk.asked[0].request, ReleaseRow)
    desk.answer()
    assert desk.now == began_ms + 20
    assert desk.store.rows["job"].released


def test_L4_a_release_that_fits_and_yet_does_nothing_waits_for_the_next_look() -> None:
    """A store that behaves like that must not be asked as fast as it answers."""
    desk = Desk()
    term = desk.lead().leadership.term
    desk.asked.clear()
    desk.tell(WorkGone(term))
    row = desk.store.rows["job"]
    desk.answer(answer=StoreAnswer(True, False, row, row.server))
    assert desk.asked == []
    assert desk.machine.deadline_ms is not None
    assert desk.machine.deadline_ms >= desk.now + LAN.beat_ms
    desk.until(ReleaseRow)


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
    assert "the store to answer (the store refuses connections)" in desk.waits()
    desk.store.restart()
    desk.until(Take)


def test_an_outage_is_told_when_it_begins_once_a_minute_and_when_it_ends() -> None:
    desk = Desk(store=held_by())
    desk.tell(Started(WALL))
    desk.answer()
    desk.store.stop()
    while desk.now < 200_000:
        desk.answer() if desk.asked else desk.wake()
    told = [effect.event for effect in only(desk.log, Record)]
    failed = [event for event in told if event.code is Code.STORE_FAILED]
    assert len(failed) == 4
    assert [event.detail.endswith(f"; for {event.value // 1_000} s now") for event in failed] == [
        False,
        True,
        True,
        True,
    ]
    assert all(60_000 <= later.value - sooner.value < 70_000 for sooner, later in pairwise(failed))
    assert [event.code for event in told].count(Code.LEADER_SILENT) == 1, "its take is the same one each time"
    assert [event.code for event in told].count(Code.STANDS) == 1
    desk.store.restart()
    desk.until(Start)
    (back,) = [e.event for e in only(desk.log, Record) if e.event.code is Code.STORE_ANSWERS]
    assert 190_000 < back.value < 210_000
    assert desk.codes().index(Code.STORE_ANSWERS) < desk.codes().index(Code.LEASE_TAKEN)


def test_an_answered_look_does_not_end_an_outage_of_writes_unless_a_write_of_somebody_shows() -> None:
    """A server that reads but does not write would otherwise fail and recover once per try."""
    desk = Desk()
    term = desk.lead().leadership.term
    desk.tell(StepDown())
    desk.wake()
    desk.answer(answer=StoreAnswer(False, reason="read-only"))
    desk.tell(DeadlinePassed(), desk.now + LAN.hold_ms)
    desk.tell(WorkGone(term))
    desk.asked = [asked for asked in desk.asked if isinstance(asked.request, Look)][-1:]
    desk.answer()
    assert desk.machine._ours(desk.machine._sight) is not None
    desk.answer(answer=StoreAnswer(False, reason="read-only"))
    assert (desk.codes().count(Code.STORE_FAILED), desk.codes().count(Code.STORE_ANSWERS)) == (1, 0)
    desk.until(ReleaseRow)
    desk.answer()
    assert desk.codes().count(Code.STORE_ANSWERS) == 1

    other = Desk(store=held_by(released=True))
    other.tell(Started(WALL))
    other.answer()
    other.answer(answer=StoreAnswer(False, reason="read-only"))
    other.tell(Pause())
    other.wake()
    other.answer()
    assert other.codes().count(Code.STORE_ANSWERS) == 0, "the take that was not answered may still be written"
    other.store.put("job", row_of("c", token=WALL + 5))
    other.wake()
    other.answer()
    assert other.codes().count(Code.STORE_ANSWERS) == 1


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
    assert desk.waits() == "the first look at the store"
    desk.answer()
    view = desk.machine.view(desk.now)
    assert (view.role, view.leader, view.term, view.token) == (Role.FOLLOWER, "b", WALL, 0)
    assert view.alive == ("a", "b")
    assert view.waits_for == "node b's hold to run out, at most 3062 ms"
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
    assert desk.waits() == "the store to prove its row"
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
