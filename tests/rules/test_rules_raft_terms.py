"""The safety rules Q6 to Q9: the run lock, losing, closed terms, stickiness.

Each drives one `RaftStrategy` by hand (see `raft_harness.py`). The same rules under many nodes and faults are the
simulator's; boots, members and memory, releases and tokens have files of their own.
"""

from __future__ import annotations

import pytest

from primacy.election.effects import Extend, OrderRelease, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    GuardLost,
    Health,
    Input,
    Pause,
    Resume,
    RunLock,
    Shutdown,
    StepDown,
    WorkDeferred,
    WorkGone,
)
from primacy.election.messages import Ack, Ahead, Heartbeat, MembersTold, VoteReply, VoteRequest
from primacy.election.model import MembersId, Role
from primacy.election.raft.register import first_register
from tests.support.mutants_changes import NotAsked
from tests.support.raft_harness import BASE, HEARTBEAT, LAB, SPREAD, Bench, H, P, ballot, membership, origin

pytestmark = pytest.mark.coverage

D = LAB.wait_ms
JUMP = 1_000_001


# --- Q6: the run lock -------------------------------------------------------------------------------------------------


def test_Q6_a_node_whose_run_lock_is_held_grants_nothing_and_does_not_stand() -> None:
    bench = Bench(lock_held=True)
    bench.wait(3 * P)
    assert not bench.sent(VoteRequest)
    for pre in (True, False):
        bench.ask("b", 1, pre=pre)
        assert not bench.sent(VoteReply)[0].granted
        assert bench.sent(VoteReply)[0].retry_ms > 0
    bench.give(RunLock(False))
    bench.ask("b", 1)
    assert bench.sent(VoteReply)[0].granted


def test_Q6_a_former_leader_grants_nothing_until_its_work_is_confirmed_gone() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wait(3 * P)
    assert bench.m.state.leader_state is None
    bench.ask("b", term + 1)
    assert not bench.sent(VoteReply)[0].granted
    bench.give(WorkGone(term))
    bench.ask("b", term + 1)
    assert bench.sent(VoteReply)[0].granted


def test_Q6_a_winner_that_finds_the_lock_held_does_not_start() -> None:
    bench = Bench()
    bench.win()
    bench.give(RunLock(True))
    bench.ack("b")
    assert not bench.did(Start)
    assert "run lock" in bench.m.view(bench.now).waits_for
    bench.give(RunLock(False))
    assert bench.did(Start)


def test_Q6_pre_votes_won_with_the_lock_held_meanwhile_lead_nowhere() -> None:
    bench = Bench()
    bench.ask_first()
    bench.give(RunLock(True))
    bench.yes("b", 1, pre=True)
    assert not bench.sent(VoteRequest)


def test_Q6_a_leader_that_cannot_start_within_H_resigns_without_a_release() -> None:
    bench = Bench()
    term = bench.win()
    won_ms = bench.now
    bench.ack("b")
    assert bench.did(Start)
    while bench.m.state.leader_state is not None:
        bench.ack("b")
        bench.wake()
    assert won_ms + H <= bench.now <= won_ms + H + HEARTBEAT
    assert bench.events(Code.CANNOT_START)
    assert [(stop.term, stop.planned) for stop in bench.did(Stop)] == [(term, False)]
    assert not bench.did(OrderRelease)
    assert bench.m.view(bench.now).role is Role.FOLLOWER


@pytest.mark.no_cover
def test_Q6_a_start_that_waits_on_purpose_is_no_reason_to_resign_but_a_held_lock_after_it_is() -> None:
    """G8: an approval may take hours. Once it is there, H counts anew."""
    bench = Bench()
    term = bench.win()
    bench.ack("b")
    assert bench.did(Start)
    bench.give(WorkDeferred(term, "an approval"))
    bench.give(WorkDeferred(term - 1))  # of another term: nothing
    until = bench.now + 3_600_000
    while bench.now < until:
        bench.ack("b")
        bench.wake()
        assert bench.m.state.leader_state is not None
    assert bench.m.view(bench.now).waits_for == "an approval"
    bench.ack("b")
    bench.give(WorkDeferred(term))
    over_ms = bench.now
    assert bench.m.view(bench.now).waits_for == "its work to start"
    bench.give(RunLock(True))
    while bench.m.state.leader_state is not None:
        bench.ack("b")
        bench.wake()
    assert over_ms + H <= bench.now <= over_ms + H + HEARTBEAT
    assert bench.events(Code.CANNOT_START)
    assert not bench.did(OrderRelease)


@pytest.mark.parametrize("how", [StepDown(), Pause(), Shutdown(), Health(False, "sick")])
def test_G7_a_leader_whose_start_waits_resigns_without_a_release(how: Input) -> None:
    bench = Bench()
    term = bench.win()
    bench.ack("b")
    bench.give(WorkDeferred(term, "an approval"))
    bench.give(how)
    assert [(stop.term, stop.planned) for stop in bench.did(Stop)] == [(term, False)]
    assert not bench.did(OrderRelease)
    assert bench.m.state.leader_state is None
    bench.ask("b", term + 1)
    assert not bench.sent(VoteReply)[0].granted
    bench.give(WorkGone(term))
    assert bench.m.state.work_term == 0


# --- Q7 and Q8: losing, and closed terms ------------------------------------------------------------------------------


def test_Q7_a_leader_without_a_majority_by_TERM_stops_and_falls_silent() -> None:
    bench = Bench()
    term = bench.lead()
    held_from = bench.held_from()
    bench.wait(held_from + LAB.term_at_ms - bench.now)
    assert bench.events(Code.MAJORITY_LOST)[0].term == term
    assert bench.order()[-2:] == ["Stop", "OrderRelease"]
    assert not bench.did(Stop)[0].planned
    assert bench.m.role is Role.FOLLOWER
    bench.wait(P)
    assert not bench.sent(Heartbeat)


def test_Q7_a_winner_whose_first_heartbeat_nobody_acks_gives_up_at_TERM_too() -> None:
    bench = Bench()
    bench.win()
    won_ms = bench.now
    bench.wait(LAB.term_at_ms)
    assert bench.events(Code.MAJORITY_LOST)
    assert bench.m.state.leader_state is None
    assert bench.did(Stop) == []
    assert (bench.m.deadline_ms or 0) > won_ms + P


def test_Q7_a_stopped_leader_loses_before_it_hears_anything_else() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wake()
    bench.now += 10 * H
    bench.hear(Ack(origin("b"), term, 2, bench.m.seat.boot))
    assert bench.events(Code.MAJORITY_LOST)
    assert not bench.did(Extend)


def test_Q8_no_late_ack_reopens_a_lost_term() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wake()
    bench.wait(LAB.term_at_ms)
    for node in "bc":
        bench.hear(Ack(origin(node), term, 2, bench.m.seat.boot))
        assert bench.last == []
    assert bench.m.role is Role.FOLLOWER


def test_Q8_a_lost_guard_closes_the_term_and_holds_the_lock_until_it_is_found_free() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(GuardLost(term))
    assert bench.events(Code.GUARD_LOST)[0].term == term
    assert not bench.did(OrderRelease)
    assert bench.m.role is Role.FOLLOWER
    bench.wait(2 * P)
    assert not bench.sent(VoteRequest)
    bench.give(RunLock(False))
    assert bench.stand() == term + 1


def test_Q8_a_lost_guard_of_another_term_changes_nothing() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(GuardLost(term + 1))
    assert bench.last == []
    assert bench.m.role is Role.LEADER


def test_Q8_a_guard_lost_after_the_term_was_given_up_leaves_the_lock_held() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wait(LAB.term_at_ms + 1)
    bench.give(GuardLost(term))
    bench.now += 2 * P
    bench.ask("b", term + 1)
    assert not bench.sent(VoteReply)[0].granted


def test_Q8_work_that_ends_for_good_ends_the_term() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(WorkGone(term))
    assert bench.m.state.leader_state is None
    assert not bench.did(Start)
    bench.hear(Ack(origin("c"), term, 1, bench.m.seat.boot))
    assert bench.last == []


def test_Q8_a_planned_stop_closes_the_term_but_heartbeats_go_on() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(StepDown())
    assert bench.order() == ["Stop", "OrderRelease"]
    assert bench.did(Stop)[0].planned
    bench.give(StepDown())
    assert bench.last == [], "once is enough"
    bench.wake()
    assert bench.sent(Heartbeat)
    bench.ack("b")
    assert bench.did(Extend), "the work may end in peace (G9)"
    assert "then it releases the role" in bench.m.view(bench.now).waits_for
    bench.give(WorkGone(term, released=True))
    assert bench.m.state.leader_state is None


def test_Q8_a_planned_stop_that_loses_its_majority_becomes_a_loss() -> None:
    bench = Bench()
    bench.lead()
    bench.give(StepDown())
    bench.wait(LAB.term_at_ms)
    assert bench.events(Code.MAJORITY_LOST)
    assert [stop.planned for stop in bench.did(Stop)] == [False]


# --- Q9: stickiness and terms -----------------------------------------------------------------------------------------


def test_Q9_a_returning_node_asks_first_and_burns_no_term() -> None:
    bench = Bench(kept=ballot(term=3))
    for _ in range(20):
        bench.wake()
        for asked in bench.sent(VoteRequest):
            assert asked.pre
            assert asked.term == 4
    assert bench.m.term == 3
    bench.heartbeat("b", 3)
    assert bench.m.role is Role.FOLLOWER
    assert bench.m.leader == "b"


def test_Q9_a_leader_is_not_deposed_by_a_request_for_a_higher_term() -> None:
    bench = Bench()
    term = bench.lead()
    for pre in (True, False):
        bench.ask("c", term + 5, pre=pre)
        assert not bench.sent(VoteReply)[0].granted
    assert bench.m.role is Role.LEADER
    assert bench.m.term == term


def test_Q9_a_voter_that_is_ahead_says_so() -> None:
    bench = Bench(kept=ballot(term=7))
    bench.heartbeat("b", 3)
    assert [ahead.term for ahead in bench.sent(Ahead, "b")] == [7]


def test_Q9_the_leader_steps_down_in_order_and_stands_again_above() -> None:
    bench = Bench()
    term = bench.lead()
    bench.hear(Ahead(origin("c"), 7))
    assert bench.events(Code.TERM_AHEAD)
    assert bench.order() == ["Stop", "OrderRelease"]
    assert bench.did(OrderRelease)[0].successor == "a"
    bench.hear(Ahead(origin("c"), 8))
    assert bench.last == []
    bench.give(WorkGone(term, released=True))
    assert bench.m.term == 7
    assert bench.m.deadline_ms == bench.now, "it stands at once: it named itself"
    bench.wake()
    assert bench.sent(VoteRequest)[0].term == 8


def test_Q9_a_leader_that_never_ran_resigns_and_takes_the_higher_term() -> None:
    bench = Bench()
    bench.win()
    bench.hear(Ahead(origin("c"), 7))
    assert bench.m.state.leader_state is None
    assert bench.m.term == 7
    assert not bench.did(OrderRelease)


def test_Q9_ahead_counts_only_from_voters_and_only_above() -> None:
    bench = Bench("a b c o:observer")
    bench.win()
    for ahead in (Ahead(origin("o"), 9), Ahead(origin("b"), 1)):
        bench.hear(ahead)
        assert bench.last == []
    assert bench.m.role is Role.LEADER


def test_Q9_a_higher_term_of_a_live_leader_deposes() -> None:
    bench = Bench()
    term = bench.lead()
    bench.heartbeat("b", term + 1)
    assert bench.events(Code.HIGHER_TERM)
    assert bench.order() == ["Stop", "OrderRelease", "Persist", "Send"]
    assert bench.m.leader == "b"


def test_Q9_a_second_leader_of_the_own_term_is_an_alarm() -> None:
    bench = Bench()
    term = bench.lead()
    bench.heartbeat("b", term)
    assert bench.events(Code.TWO_BOOTS)
    assert bench.m.role is Role.LEADER


def test_Q9_jumps_of_more_than_a_million_terms_are_refused_and_reported_once() -> None:
    bench = Bench()
    bench.now += P
    bench.heartbeat("b", JUMP)
    assert bench.events(Code.TERM_JUMP)[0].subject == "b"
    bench.heartbeat("b", JUMP, 2)
    assert bench.last == []
    bench.ask("c", JUMP)
    assert bench.events(Code.TERM_JUMP)
    assert not bench.sent(VoteReply)
    assert bench.m.term == 0
    bench.heartbeat("b", JUMP - 1)
    assert bench.m.term == JUMP - 1


FAR = 2**62


@pytest.mark.parametrize("kind", ["heartbeat", "request"])
def test_Q9_whoever_is_too_far_above_is_asked_and_believed_if_a_token_asks_for_its_term(kind: str) -> None:
    def speak(bench: Bench, term: int, number: int) -> None:
        bench.heartbeat("b", term, number) if kind == "heartbeat" else bench.ask("b", term, pre=True)

    bench = Bench()
    bench.now += P
    speak(bench, JUMP + 7, 1)
    assert [(asked.term, asked.pre) for asked in bench.sent(VoteRequest, "b")] == [(1, True)]
    speak(bench, JUMP + 7, 2)
    assert not bench.sent(VoteRequest), "once per heartbeat (E1)"
    bench.now += HEARTBEAT
    bench.no("b", 1, pre=True, at=JUMP + 7)
    speak(bench, JUMP + 7, 3)
    assert bench.sent(VoteRequest), "its term alone is no reason"
    bench.no("b", 1, pre=True, at=FAR, token_max=BASE + FAR)
    bench.now += HEARTBEAT
    speak(bench, FAR, 4)
    assert bench.sent(VoteRequest), "nor is a token that no clock gives"
    bench.no("b", 1, pre=True, at=JUMP + 7, token_max=BASE + JUMP + 7)
    assert bench.m.term == 0
    speak(bench, JUMP + 7, 5)
    assert not bench.sent(VoteRequest)
    assert bench.m.leader == "b" if kind == "heartbeat" else bench.sent(VoteReply)[0].granted


def test_Q9_who_is_not_asked_would_be_refused_for_ever() -> None:
    bench = Bench(machine=NotAsked)
    bench.now += P
    bench.heartbeat("b", JUMP + 7)
    assert bench.events(Code.TERM_JUMP)
    assert not bench.sent(VoteRequest)


def test_Q9_a_node_that_is_far_behind_is_told_so_also_where_its_members_are_older() -> None:
    """R3 would tell it the members, which it does not believe either: the token comes first, with a refusal (E1)."""
    for term in (JUMP, 2 * JUMP):
        members = first_register(membership("a b c").members)._replace(id=MembersId(term, 2))
        bench = Bench(kept=ballot(term=term, token_max=BASE + term, register=members))
        bench.now += P
        bench.ask("b", 1, pre=True)
        assert [reply.token_max for reply in bench.sent(VoteReply, "b")] == [BASE + term]
        assert not bench.sent(MembersTold)
        bench.ask("c", term - 5, pre=True)
        assert not bench.sent(VoteReply)
        assert bench.sent(MembersTold, "c")


def test_Q9_a_term_that_a_known_token_asks_for_is_no_jump() -> None:
    bench = Bench(kept=ballot(token_max=BASE + 5 * JUMP))
    bench.now += P
    bench.ask("c", 6 * JUMP)
    assert bench.events(Code.TERM_JUMP)
    bench.ask("c", 5 * JUMP + 1)
    assert bench.sent(VoteReply)[0].granted


def test_Q9_a_leader_does_not_follow_a_jump_either() -> None:
    bench = Bench()
    term = bench.lead()
    bench.hear(Ahead(origin("c"), term + JUMP))
    assert bench.events(Code.TERM_JUMP)
    assert bench.m.role is Role.LEADER


def test_Q9_a_candidate_that_is_behind_takes_the_voters_term_and_asks_again_within_the_spread() -> None:
    bench = Bench()
    bench.ask_first()
    bench.no("b", 1, pre=True, at=JUMP + 5)
    assert bench.m.term == 0, "a jump is not believed"
    bench.no("c", 1, pre=True, at=6)
    assert bench.m.term == 6
    assert (bench.m.deadline_ms or 0) <= bench.now + SPREAD
    bench.wake()
    assert bench.sent(VoteRequest)[0].term == 7


def test_Q9_answers_to_other_questions_are_dropped() -> None:
    bench = Bench()
    term = bench.stand()
    bench.yes("b", term + 1)
    bench.yes("b", term, pre=True)
    bench.hear(VoteReply(origin("b"), term, False, True, 4711, 0, 9_999))
    assert bench.m.state.leader_state is None
    bench.yes("b", term)
    assert bench.m.state.leader_state is not None
    bench.yes("c", term)
    assert bench.last == []


def test_Q9_a_lower_priority_waits_one_spread_longer_per_step() -> None:
    at = {}
    for words in ("a:2 b:1 c", "a:1 b:2 c", "a b:1 c:2"):
        bench = Bench(words)
        at[words] = (bench.m.deadline_ms or 0) - bench.now
    assert P <= at["a:2 b:1 c"] < P + SPREAD
    assert at["a:1 b:2 c"] == at["a:2 b:1 c"] + SPREAD
    assert at["a b:1 c:2"] == at["a:2 b:1 c"] + 2 * SPREAD


@pytest.mark.parametrize(
    ("held_back", "let_go"), [(Pause(), Resume()), (Health(False), Health(True)), (Shutdown(), Resume())]
)
def test_Q9_paused_and_unhealthy_nodes_do_not_stand_but_vote(held_back: Pause, let_go: Resume) -> None:
    bench = Bench()
    bench.give(held_back)
    bench.wait(10 * P)
    assert not bench.sent(VoteRequest)
    bench.ask("b", 1, pre=True)
    assert bench.sent(VoteReply)[0].granted
    bench.give(let_go)
    assert (bench.m.deadline_ms or 0) <= bench.now + SPREAD
    assert bench.stand() == 1


def test_Q9_good_health_that_goes_on_changes_nothing() -> None:
    bench = Bench()
    assert bench.give(Health(True)) == []


def test_Q9_a_candidate_that_is_paused_gives_up_its_candidacy() -> None:
    bench = Bench()
    term = bench.stand()
    bench.give(Pause())
    assert bench.m.role is Role.PAUSED
    bench.yes("b", term)
    assert bench.m.state.leader_state is None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (StepDown(), Code.STEP_DOWN),
        (StepDown("c", "transfer"), Code.TRANSFER),
        (Pause(), Code.PAUSED),
        (Health(False, "no answer"), Code.UNHEALTHY),
        (Shutdown(), Code.STOPPING),
    ],
)
def test_Q9_every_planned_end_is_stop_confirm_release_with_its_reason(given: StepDown, code: Code) -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(given)
    assert bench.events(code)[0].term == term
    assert bench.order() == ["Stop", "OrderRelease"]
    bench.give(WorkGone(term, released=True))
    assert bench.events(Code.RELEASED)
    assert bench.events(Code.RELEASE_APPLIED)
