"""The guarded work (Q6, Q8, G5, G7 as they concern a lease), giving up in order, the store away, and the view."""

from __future__ import annotations

from itertools import pairwise

import pytest

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
from tests.support.lease_harness import LAN, WALL, Harness, held_by, only, row_of

pytestmark = pytest.mark.coverage

# --- Q6, Q8, G5, G7 as they concern a lease ---------------------------------------------------------------------------


def test_Q6_a_node_whose_run_lock_is_held_takes_nothing() -> None:
    harness = Harness(store=held_by(released=True))
    harness.tell(Started(WALL, lock_held=True))
    with pytest.raises(AssertionError):
        harness.until(Take)
    assert "run lock" in harness.waits()
    harness.tell(RunLock(False))
    harness.until(Start)
    other = Harness(store=held_by(released=True))
    other.tell(Started(WALL))
    other.tell(RunLock(True))
    assert not only(other.answer(), AskStore)


def test_Q6_a_holder_that_cannot_start_its_work_within_the_hold_gives_up() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    start = harness.until(Start)
    began_ms = harness.now
    assert harness.waits() == "its work to start"
    stop = harness.until(Stop)
    assert harness.now == began_ms + LAN.hold_ms
    assert stop.planned
    assert Code.CANNOT_START in harness.codes()
    harness.tell(WorkGone(start.leadership.term))
    gone_ms = harness.now
    harness.until(Take)
    assert harness.now > gone_ms + LAN.wait_ms, "others come first"


def test_Q6_a_holder_whose_start_waits_on_purpose_keeps_the_row() -> None:
    """G8: an approval may take hours. Once it is there, the time to start counts anew."""
    harness = Harness()
    harness.tell(Started(WALL))
    term = harness.until(Start).leadership.term
    harness.tell(WorkDeferred(term, "an approval"))
    with pytest.raises(AssertionError):
        harness.until(Stop, within_ms=600_000)
    assert harness.waits() == "an approval"
    harness.tell(WorkDeferred(term))
    over_ms = harness.now
    assert harness.waits() == "its work to start"
    harness.until(Stop)
    assert harness.now == over_ms + LAN.hold_ms
    assert Code.CANNOT_START in harness.codes()


def test_Q8_a_lost_leadership_is_never_opened_again() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    harness.wake()
    renewal = harness.asked.pop(0)
    while not only(harness.wake(), Stop):
        harness.asked.clear()
    harness.asked.clear()
    late = harness.tell(StoreAnswered(renewal.number, harness.store.perform(renewal.request)))
    assert not only(late, Extend)
    harness.tell(WorkStarted(term))
    assert harness.machine.role is not Role.LEADER
    harness.tell(WorkGone(term))
    start = harness.until(Start)
    assert start.leadership.term > term


def test_G5_the_row_is_released_only_when_the_work_is_gone() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    while not only(harness.wake(), Stop):
        harness.asked.clear()
    for _ in range(20):
        harness.answer() if harness.asked else harness.wake()
    assert not harness.store.rows["job"].released
    assert f"work of token {term} to end" in harness.waits()
    harness.tell(WorkGone(term))
    harness.until(ReleaseRow)
    harness.answer()
    assert Code.RELEASED in harness.codes()
    assert harness.until(Start).leadership.term > term


def test_G5_a_lost_guard_closes_the_leadership_and_the_free_lock_ends_it() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    assert not harness.tell(GuardLost(term + 1))
    effects = harness.tell(GuardLost(term))
    assert only(effects, Stop)
    assert not only(effects, OrderRelease), "nobody is there to order it from"
    harness.tell(RunLock(False))
    assert harness.until(Start).leadership.term > term


def test_G5_a_free_lock_says_nothing_while_a_start_is_under_way() -> None:
    harness = Harness()
    harness.lead()
    harness.tell(RunLock(False))
    harness.tell(StepDown())
    assert harness.waits() == "its work to end, then it releases the lease"


def test_G7_a_row_taken_but_never_worked_under_is_released() -> None:
    """Sound here, and not for raft: the wait stood before the take."""
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.tell(Pause())
    assert not only(harness.answer(), Start)
    harness.answer()
    assert harness.store.rows["job"].released
    harness.tell(Resume())
    assert harness.until(Start).leadership.token > WALL


# --- giving up in order -----------------------------------------------------------------------------------------------


def test_step_down_stops_in_order_renews_meanwhile_and_lets_others_go_first() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    effects = harness.tell(StepDown(reason="maintenance"))
    assert only(effects, Stop) == [Stop(term, "maintenance", planned=True)]
    assert only(effects, OrderRelease) == [OrderRelease(term)]
    assert not harness.tell(StepDown()), "once is enough"
    harness.until(Extend)
    harness.store.release("job", harness.machine.holder, term)
    harness.wake()
    harness.answer()  # the renewal finds the row released: no loss, only the report is missing
    assert len(only(harness.log, Stop)) == 1
    harness.tell(WorkGone(term, released=True))
    gone_ms = harness.now
    assert Code.RELEASED in harness.codes()
    harness.answer()
    assert "the others to take the released lease, at most" in harness.waits()
    harness.until(Start)
    assert harness.now >= gone_ms + 3 * LAN.heartbeat_ms


def test_transfer_names_the_successor_in_the_row_and_the_others_hold_back() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    effects = harness.tell(StepDown("c"))
    assert only(effects, OrderRelease) == [OrderRelease(term, "c")]
    harness.tell(WorkGone(term))
    harness.answer()
    harness.asked.clear()
    assert harness.store.rows["job"].successor == "c"
    b, c = Harness("b", store=harness.store), Harness("c", store=harness.store)
    for other in (b, c):
        other.tell(Started(WALL))
        other.answer()
    assert isinstance(c.asked[0].request, Take)
    assert not b.asked
    assert b.waits() == "c to take the released lease, at most 500 ms"
    b.until(Take)
    assert b.now >= 2 * LAN.heartbeat_ms


def test_transfer_holds_if_the_node_looks_before_the_release_of_its_guard_arrives() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    harness.tell(StepDown("c"))
    harness.tell(WorkGone(term, released=True))
    harness.until(ReleaseRow)  # it looked, and found its row unreleased
    harness.store.release("job", harness.machine.holder, term, "c")
    harness.answer()
    assert harness.store.rows["job"].successor == "c"
    assert harness.codes().count(Code.RELEASED) == 1


def test_a_lease_lost_during_a_planned_stop_is_stopped_at_once_and_not_taken_back_first() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    harness.tell(StepDown("c"))
    harness.asked.clear()
    while True:
        stops = only(harness.wake(), Stop)
        harness.asked.clear()
        if stops:
            break
    assert stops == [Stop(term, "no renewal was proved in time", planned=False)]
    harness.tell(WorkGone(term, released=True))
    gone_ms = harness.now
    harness.store.release("job", harness.machine.holder, term)
    harness.until(Start)
    assert harness.now > gone_ms + LAN.term_at_ms


def test_pause_and_health_step_down_and_keep_from_standing() -> None:
    for bad, good, role, words in (
        (Pause(), Resume(), Role.PAUSED, "an operator: primacy resume"),
        (Health(False, "disk"), Health(True), Role.FOLLOWER, "its health probes to pass (disk)"),
        (Health(False), Health(True), Role.FOLLOWER, "its health probes to pass (unhealthy)"),
    ):
        harness = Harness()
        term = harness.lead().leadership.term
        assert only(harness.tell(bad), Stop)[0].planned
        assert not harness.tell(bad) or not only(harness.tell(bad), Stop)
        harness.tell(WorkGone(term, released=True))
        harness.store.release("job", harness.machine.holder, term)
        with pytest.raises(AssertionError):
            harness.until(Take)
        assert harness.machine.role is role
        assert harness.waits().startswith(words)
        harness.tell(good)
        harness.tell(Health(True))
        harness.until(Start)


def test_an_unhealthy_follower_says_so_once() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.tell(Health(False, "x"))
    harness.tell(Health(False, "x"))
    assert harness.codes().count(Code.UNHEALTHY) == 1


def test_shutdown_hands_over_and_then_asks_nothing_more() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    assert only(harness.tell(Shutdown()), Stop)[0].planned
    harness.asked.clear()
    harness.tell(WorkGone(term))
    harness.answer()
    assert harness.store.rows["job"].released
    assert harness.machine.deadline_ms is None
    assert not harness.tell(DeadlinePassed())
    idle = Harness(store=held_by())
    idle.tell(Started(WALL))
    idle.answer()
    idle.tell(Shutdown())
    assert idle.machine.deadline_ms is None


def test_shutdown_with_a_take_under_way_releases_what_it_took() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.tell(Shutdown())
    harness.answer()
    harness.answer()
    assert harness.store.rows["job"].released
    assert harness.machine.deadline_ms is None


def test_work_that_ends_by_itself_frees_the_lease() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    assert not only(harness.tell(WorkGone(term - 1)), Record), "an older one says nothing of this leadership"
    harness.tell(WorkGone(term))
    harness.answer()
    assert harness.store.rows["job"].released
    assert Code.STEP_DOWN in harness.codes()


def test_L4_a_release_that_a_renewal_overtook_is_repeated_at_once() -> None:
    harness = Harness()
    term = harness.lead().leadership.term
    harness.tell(StepDown())
    harness.wake()
    harness.lose()
    harness.tell(WorkGone(term))
    began_ms = harness.now
    harness.answer(began_ms + 20)
    assert not harness.store.rows["job"].released
    assert isinstance(harness.asked[0].request, ReleaseRow)
    harness.answer()
    assert harness.now == began_ms + 20
    assert harness.store.rows["job"].released


def test_L4_a_release_that_fits_and_yet_does_nothing_waits_for_the_next_look() -> None:
    """A store that behaves like that must not be asked as fast as it answers."""
    harness = Harness()
    term = harness.lead().leadership.term
    harness.asked.clear()
    harness.tell(WorkGone(term))
    row = harness.store.rows["job"]
    harness.answer(answer=StoreAnswer(True, False, row, row.server))
    assert harness.asked == []
    assert harness.machine.deadline_ms is not None
    assert harness.machine.deadline_ms >= harness.now + LAN.heartbeat_ms
    harness.until(ReleaseRow)


# --- the store away, and what people see ------------------------------------------------------------------------------


def test_looks_back_off_with_a_bound_while_the_store_fails_and_it_is_recorded_once() -> None:
    harness = Harness()
    harness.store.stop()
    harness.tell(Started(WALL))
    pauses = []
    for _ in range(12):
        harness.answer()
        before = harness.now
        harness.wake()
        pauses.append(harness.now - before)
    assert pauses[0] <= LAN.heartbeat_ms
    assert max(pauses) <= LAN.wait_ms
    assert max(pauses) > 4 * LAN.heartbeat_ms
    assert harness.codes().count(Code.STORE_FAILED) == 1
    assert "the store to answer (the store refuses connections)" in harness.waits()
    harness.store.restart()
    harness.until(Take)


def test_an_outage_is_told_when_it_begins_once_a_minute_and_when_it_ends() -> None:
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    harness.answer()
    harness.store.stop()
    while harness.now < 200_000:
        harness.answer() if harness.asked else harness.wake()
    told = [effect.event for effect in only(harness.log, Record)]
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
    assert [event.code for event in told].count(Code.CAMPAIGNS) == 1
    harness.store.restart()
    harness.until(Start)
    (back,) = [e.event for e in only(harness.log, Record) if e.event.code is Code.STORE_ANSWERS]
    assert 190_000 < back.value < 210_000
    assert harness.codes().index(Code.STORE_ANSWERS) < harness.codes().index(Code.LEASE_TAKEN)


def test_an_answered_look_does_not_end_an_outage_of_writes_unless_a_write_of_somebody_shows() -> None:
    """A server that reads but does not write would otherwise fail and recover once per try."""
    harness = Harness()
    term = harness.lead().leadership.term
    harness.tell(StepDown())
    harness.wake()
    harness.answer(answer=StoreAnswer(False, reason="read-only"))
    harness.tell(DeadlinePassed(), harness.now + LAN.hold_ms)
    harness.tell(WorkGone(term))
    harness.asked = [asked for asked in harness.asked if isinstance(asked.request, Look)][-1:]
    harness.answer()
    assert harness.machine._ours(harness.machine._sight) is not None
    harness.answer(answer=StoreAnswer(False, reason="read-only"))
    assert (harness.codes().count(Code.STORE_FAILED), harness.codes().count(Code.STORE_ANSWERS)) == (1, 0)
    harness.until(ReleaseRow)
    harness.answer()
    assert harness.codes().count(Code.STORE_ANSWERS) == 1

    other = Harness(store=held_by(released=True))
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
    harness = Harness(store=held_by())
    harness.tell(Started(WALL))
    old = harness.asked.pop(0)
    harness.wake()
    assert harness.now == LAN.hold_ms // 3
    assert Code.STORE_FAILED in harness.codes()
    harness.tell(StoreAnswered(old.number, harness.store.perform(old.request)))
    assert harness.machine._sight is None
    assert not harness.tell(StoreAnswered(999, StoreAnswer(True)))


def test_the_view_speaks_the_users_words() -> None:
    harness = Harness(store=held_by())
    assert harness.machine.role is Role.STARTING
    assert harness.machine.deadline_ms is None
    assert not harness.tell(DeadlinePassed()), "nothing before the start"
    harness.tell(Started(WALL))
    assert harness.waits() == "the first look at the store"
    harness.answer()
    view = harness.machine.view(harness.now)
    assert (view.role, view.leader, view.term, view.token) == (Role.FOLLOWER, "b", WALL, 0)
    assert view.alive == ("a", "b")
    assert view.waits_for == "node b's hold to run out, at most 3062 ms"
    assert harness.machine.leader == "b"
    assert Code.FOLLOWS in harness.codes()
    harness.until(Take)
    assert harness.machine.role is Role.CANDIDATE
    assert harness.machine.view(harness.now).leader == ""
    harness.answer()
    harness.tell(WorkStarted(harness.machine.view(harness.now).term))
    view = harness.machine.view(harness.now)
    assert (view.role, view.leader, view.waits_for) == (Role.LEADER, "a", "")
    assert view.hold_left_ms == LAN.hold_ms
    assert view.token == view.term == harness.store.rows["job"].token


def test_the_view_of_a_row_found_ours_and_of_a_plain_release() -> None:
    harness = Harness()
    harness.tell(Started(WALL))
    harness.until(Take)
    harness.lose()
    harness.until(Renew)
    harness.machine._failures = 0
    assert harness.waits() == "the store to prove its row"
    assert harness.machine.leader == ""
    free = Harness(store=held_by(released=True))
    free.tell(Started(WALL))
    free.answer()
    assert free.waits() == ""


def test_witnesses_and_observers_never_stand() -> None:
    for kind in (Kind.WITNESS, Kind.OBSERVER):
        harness = Harness(membership=Membership.of([Member("a", kind), "b"]))
        harness.tell(Started(WALL))
        with pytest.raises(AssertionError):
            harness.until(Take)
        assert harness.machine.role is Role.OBSERVER
