"""The safety rules G as far as the machine goes (start and release), and T (tokens)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from primacy.election.effects import OrderRelease, Start, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    GuardLost,
    Health,
    Init,
    Input,
    Pause,
    RunLock,
    Shutdown,
    StepDown,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Ack, Release, VoteReply, VoteRequest
from primacy.election.model import Role
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from tests.support.mutants_changes import StartsBelowWhatItLearnt
from tests.support.raft_harness import BASE, HEARTBEAT, LAB, Bench, P, ballot, origin

pytestmark = pytest.mark.coverage

# --- G4 and G5: when a release may leave ------------------------------------------------------------------------------


def test_G4_the_release_comes_with_the_first_start_and_only_once() -> None:
    bench = Bench()
    term = bench.win()
    bench.ack("b")
    (start,) = bench.did(Start)
    assert start.release == Release(bench.m.origin, term)
    bench.wake()
    bench.ack("b")
    assert not bench.did(Start)
    bench.give(RunLock(False))
    assert not bench.did(Start)


def test_G5_a_release_is_ordered_with_the_stop_and_binds_oneself_only_when_it_left() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(StepDown("c"))
    assert bench.did(OrderRelease)[0] == OrderRelease(term, "c")
    bench.give(WorkGone(term, released=False))
    assert not bench.events(Code.RELEASE_APPLIED)
    assert bench.m.role is Role.FOLLOWER
    bench.ask("b", term + 1)
    assert bench.sent(VoteReply)[0].retry_ms > 0, "its own heartbeats still bind it"


# --- G6: what a release does ------------------------------------------------------------------------------------------


def test_G6_a_release_frees_a_voter_of_its_promise() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b"), 3))
    assert bench.events(Code.RELEASE_APPLIED)
    bench.ask("c", 4)
    reply = bench.sent(VoteReply)[0]
    assert reply.granted
    assert reply.age_ms == -1


def test_G6_it_clears_nothing_above_its_term() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.heartbeat("c", 4)
    bench.hear(Release(origin("b"), 3))
    assert bench.events(Code.RELEASE_REFUSED)
    bench.ask("b", 5)
    assert not bench.sent(VoteReply)[0].granted


def test_G6_after_a_restart_it_must_cover_the_ballots_term() -> None:
    bench = Bench(kept=ballot(term=5))
    bench.hear(Release(origin("b"), 4))
    assert bench.events(Code.RELEASE_REFUSED)
    bench.hear(Release(origin("b"), 5))
    assert bench.events(Code.RELEASE_APPLIED)
    bench.ask("b", 6)
    assert bench.sent(VoteReply)[0].granted


def test_G6_heartbeats_of_released_terms_are_ignored_afterwards() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b"), 3))
    for number in (2, 3):
        bench.heartbeat("b", 3, number)
        assert bench.last == []
    bench.heartbeat("b", 4)
    assert bench.sent(Ack)


def test_G6_repeating_it_does_no_harm() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b"), 3))
    at = bench.m.deadline_ms
    bench.now += 5
    bench.hear(Release(origin("b"), 3))
    assert bench.last == []
    assert bench.m.deadline_ms == at


def test_G6_it_names_cluster_and_list() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    for who in (origin("b", base=BASE + 1), origin("b", config="other")):
        bench.hear(Release(who, 3))
        assert not bench.events(Code.RELEASE_APPLIED)
        bench.ask("c", 4, evidence=Release(who, 3))
        assert not bench.sent(VoteReply)[0].granted
        bench.now += HEARTBEAT  # the same refusal is said once in a heartbeat (E1)


def test_G6_it_is_not_bound_to_the_senders_boot() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b", incarnation=1, boot=4711), 3))
    assert bench.events(Code.RELEASE_APPLIED)


def test_G6_a_vote_request_may_carry_it_as_evidence() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    bench.ask("c", 4, evidence=Release(origin("b"), 3))
    assert bench.events(Code.RELEASE_APPLIED)
    assert bench.sent(VoteReply)[0].granted


def test_G6_evidence_about_oneself_is_not_believed_while_the_own_work_runs() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wait(LAB.term_at_ms)
    bench.ask("c", term + 1, evidence=Release(bench.m.origin, term))
    assert not bench.events(Code.RELEASE_APPLIED)
    assert not bench.sent(VoteReply)[0].granted


def test_G6_of_two_the_named_one_that_hears_the_release_first_is_answered_when_the_guard_has_spoken() -> None:
    """The guard tells all nodes in the same moment. Among two, a refusal "for the rest of the promise" kept the named
    one waiting until the old leader had won again."""
    bench = Bench("a b")
    term = bench.lead()
    bench.give(StepDown("b"))
    bench.ask("b", term + 1, pre=True, evidence=Release(bench.m.origin, term, "b"))
    assert bench.last == [], "neither yes, for its work may run, nor a refusal that is outdated at once"
    bench.give(WorkGone(term, released=True))
    (reply,) = bench.sent(VoteReply)
    assert reply.granted
    assert reply.asked == term + 1
    assert bench.m.deadline_ms is not None
    assert bench.m.deadline_ms >= bench.now + LAB.spread_ms, "and it leaves the role to the named one meanwhile"


def test_G6_what_came_before_the_guard_spoke_is_heard_in_full_afterwards() -> None:
    """The guard did not say that a release left; the evidence says so, and by now the own work is gone."""
    bench = Bench("a b")
    term = bench.lead()
    bench.give(StepDown("b"))
    bench.ask("b", term + 1, pre=True, evidence=Release(bench.m.origin, term, "b"))
    bench.give(WorkGone(term, released=False))
    assert bench.events(Code.RELEASE_APPLIED)
    assert [reply.granted for reply in bench.sent(VoteReply)] == [True]


def test_G6_what_came_before_the_guard_spoke_is_forgotten_with_the_guard() -> None:
    bench = Bench("a b")
    term = bench.lead()
    bench.give(StepDown("b"))
    bench.ask("b", term + 1, pre=True, evidence=Release(bench.m.origin, term, "b"))
    bench.give(GuardLost(term))
    bench.give(RunLock(False))
    assert not bench.sent(VoteReply)
    assert bench.m.state.early is None


def test_G6_only_questions_wait_for_the_guard_and_only_those_about_the_work_that_runs_here() -> None:
    for pre, who, older in ((False, "a", 0), (True, "b", 0), (True, "a", 1)):
        bench = Bench("a b")
        term = bench.lead()
        bench.give(StepDown("b"))
        release = Release(bench.m.origin if who == "a" else origin("b"), term - older, "b")
        bench.ask("b", term + 1, pre=pre, evidence=release)
        assert [reply.granted for reply in bench.sent(VoteReply)] == [False]


def test_G6_a_candidate_hands_on_the_release_that_freed_it() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    release = Release(origin("b"), 3)
    bench.hear(release)
    bench.wake()
    assert bench.sent(VoteRequest)[0].evidence == release


def test_G6_a_winner_applies_a_release_that_arrives_during_its_delay() -> None:
    bench = Bench(kept=ballot(term=6))
    bench.win(age_ms=0, age_term=6)
    bench.ack("b")
    assert not bench.did(Start)
    bench.hear(Release(origin("c"), 6))
    assert bench.events(Code.RELEASE_APPLIED)
    assert bench.did(Start)[0].covered


def test_G6_a_release_in_the_delay_clears_only_ages_of_its_terms() -> None:
    bench = Bench(kept=ballot(term=6))
    bench.win(age_ms=100, age_term=5)
    bench.ack("b")
    bench.hear(Release(origin("c"), 4))
    assert not bench.did(Start)
    bench.hear(Release(origin("c"), 4))
    assert bench.last == []
    bench.hear(Release(origin("c"), 5))
    assert bench.did(Start)
    bench.hear(Release(origin("c"), 5))
    assert bench.last == []


def test_G6_a_leader_is_not_moved_by_a_release_of_its_own_term() -> None:
    bench = Bench()
    term = bench.lead()
    bench.hear(Release(origin("b"), term))
    assert bench.last == []
    assert bench.m.role is Role.LEADER


@pytest.mark.parametrize(
    ("successor", "slots", "left_ms"), [("", 1, 0), ("a", 0, 0), ("c", 1, LAB.spread_ms), ("w", 1, 0), ("nobody", 1, 0)]
)
def test_G6_the_named_one_stands_at_once_and_the_others_in_turn(successor: str, slots: int, left_ms: int) -> None:
    """They leave it the spread, for it may be late; if it cannot lead, it is not waited for."""
    bench = Bench("a b c w:witness")
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b"), 3, successor))
    assert bench.m.deadline_ms == bench.now + slots * (HEARTBEAT // 5) + left_ms


@pytest.mark.parametrize("late_ms", [0, HEARTBEAT // 5, HEARTBEAT, LAB.spread_ms])
@pytest.mark.parametrize("released", [True, False])
def test_G6_a_named_one_that_is_late_is_waited_for_and_voted_for(late_ms: int, released: bool) -> None:
    """Neither by the next in line nor by the one that released is it overtaken."""
    bench = Bench()
    term = 3
    if released:
        term = bench.lead()
        bench.give(StepDown("c"))
        bench.give(WorkGone(term, released=True))
    else:
        bench.heartbeat("b", term)
        bench.hear(Release(origin("b"), term, "c"))
    assert bench.m.deadline_ms is not None
    assert bench.m.deadline_ms > bench.now + late_ms
    bench.wait(late_ms)
    assert not bench.sent(VoteRequest)
    bench.ask("c", term + 1)
    assert bench.sent(VoteReply)[0].granted


def test_G6_who_released_stands_last() -> None:
    bench = Bench()
    term = bench.lead()
    bench.give(StepDown())
    bench.give(WorkGone(term, released=True))
    assert bench.m.deadline_ms == bench.now + 2 * (HEARTBEAT // 5)


def test_G6_a_release_heard_by_an_observer_frees_it_of_its_leader() -> None:
    bench = Bench("a:observer b c")
    bench.heartbeat("b", 3)
    bench.hear(Release(origin("b"), 3))
    assert bench.m.leader == ""


# --- G7: who has nothing to release -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [StepDown(), Pause(), Health(False), Shutdown()])
def test_G7_a_leader_that_never_ran_resigns_without_a_release(given: Input) -> None:
    bench = Bench()
    bench.win(age_ms=0, age_term=0)
    bench.give(given)
    assert bench.m.state.leader_state is None
    assert not bench.did(OrderRelease)
    assert not bench.did(Stop)


def test_G7_work_that_was_ordered_but_not_seen_running_is_stopped_without_a_release() -> None:
    bench = Bench()
    term = bench.win()
    bench.ack("b")
    bench.give(StepDown())
    assert bench.did(Stop)[0].term == term
    assert not bench.did(OrderRelease)
    bench.now += 10_000
    bench.ask("b", term + 1)
    assert not bench.sent(VoteReply)[0].granted, "nothing is granted until that is confirmed gone (Q6)"
    bench.give(WorkGone(term))
    bench.ask("b", term + 1)
    assert bench.sent(VoteReply)[0].granted


def test_G7_news_of_the_work_of_another_term_changes_nothing() -> None:
    bench = Bench()
    term = bench.win()
    bench.ack("b")
    bench.give(WorkStarted(term - 1))
    bench.give(StepDown())
    assert not bench.did(OrderRelease)
    bench.give(WorkGone(term - 1))
    bench.now += 10_000
    bench.ask("b", term + 1)
    assert not bench.sent(VoteReply)[0].granted


# --- T: tokens --------------------------------------------------------------------------------------------------------


def test_T1_a_token_is_base_plus_term() -> None:
    bench = Bench(kept=ballot(term=41))
    bench.win()
    assert bench.events(Code.ELECTED)[0].value == BASE + 42
    assert bench.m.view(bench.now).token == BASE + 42
    bench.ack("b")
    assert bench.did(Start)[0].leadership.token == BASE + 42


def test_T1_the_base_travels_in_every_message() -> None:
    bench = Bench()
    bench.stand()
    assert {asked.origin.base for asked in bench.sent(VoteRequest)} == {BASE}


def test_T1_the_base_of_a_first_start_is_above_every_known_token() -> None:
    bench = Bench("a", blank=True, options=RaftOptions(token_max=9_000_000))
    bench.give(Init(5))
    assert bench.disk is not None
    assert bench.disk.base == 9_000_001


def test_T2_a_winner_whose_token_is_below_one_that_anybody_knows_does_not_start() -> None:
    bench = Bench()
    term = bench.stand()
    bench.yes("b", term, token_max=BASE + 500)
    assert bench.events(Code.TOKEN_LOW)
    assert bench.m.state.leader_state is None
    assert not bench.did(OrderRelease)
    assert bench.stand() == 501, "the next campaign is above it, and not one term at a time"
    bench.yes("b", 501)
    assert bench.events(Code.ELECTED)[0].value == BASE + 501


def test_T2_a_token_that_no_clock_gives_stops_an_election_but_makes_no_storm() -> None:
    bench = Bench()
    term = bench.stand()
    bench.yes("b", term, token_max=2**53 - 1)
    assert bench.events(Code.TOKEN_LOW)
    assert bench.disk is not None
    assert bench.disk.token_max == BASE + term, "it is not learnt"
    before = bench.now
    assert bench.stand() == term + 1
    assert bench.now >= before + P


def _told_by_a_late_yes(bench: Bench, term: int) -> None:
    bench.yes("c", term, token_max=BASE + 700)


def _told_by_a_late_no(bench: Bench, term: int) -> None:
    bench.no("c", term, at=term, token_max=BASE + 700)


def _told_by_one_that_was_doubted(bench: Bench, term: int) -> None:
    bench.ask("c", 5_000_000, pre=True)
    (asked,) = bench.sent(VoteRequest, "c")
    assert asked.term == term + 1
    bench.no("c", asked.term, pre=True, at=5_000_000, token_max=BASE + 700)


LATE = (_told_by_a_late_yes, _told_by_a_late_no, _told_by_one_that_was_doubted)


def _starts(bench: Bench) -> list[Start]:
    return [effect for effect in bench.all if isinstance(effect, Start)]


def _won_and_told(told: Callable[[Bench, int], None], machine: type[RaftStrategy] = RaftStrategy) -> Bench:
    """A winner that waits out an older leader's hold is told of a larger token meanwhile."""
    bench = Bench(machine=machine)
    term = bench.stand()
    bench.yes("b", term, age_ms=0)
    bench.ack("b")
    told(bench, term)
    assert bench.m.state.leader_state is not None
    assert not bench.did(Start)
    while bench.m.state.leader_state is not None and not _starts(bench):
        bench.wake()
        if bench.m.state.leader_state is not None:
            bench.ack("b")
    return bench


@pytest.mark.parametrize("told", LATE)
def test_T2_no_start_below_a_token_that_was_told_after_the_election(told: Callable[[Bench, int], None]) -> None:
    bench = _won_and_told(told)
    assert not _starts(bench)
    assert bench.m.state.leader_state is None
    assert bench.stand() == 701


def test_T2_who_does_not_look_again_starts_below_it() -> None:
    bench = _won_and_told(_told_by_a_late_yes, StartsBelowWhatItLearnt)
    (start,) = _starts(bench)
    assert start.leadership.token < BASE + 700


def test_T2_the_machines_own_memory_counts_too() -> None:
    bench = Bench(options=RaftOptions(token_max=BASE + 500))
    assert bench.stand() == 501
    bench.yes("b", 501)
    assert bench.events(Code.ELECTED)[0].value == BASE + 501


def test_T2_what_a_voter_has_seen_is_learnt_before_votes_are_asked_for() -> None:
    """So that no term is used up for it, and nobody is far above the others who are not asked."""
    bench = Bench()
    bench.ask_first()
    bench.yes("b", 1, pre=True, token_max=BASE + 5_000_000)
    assert {(asked.term, asked.pre) for asked in bench.sent(VoteRequest)} == {(5_000_001, True)}
    assert bench.disk is not None
    assert (bench.disk.term, bench.disk.token_max) == (0, BASE + 5_000_000)
    bench.yes("b", 5_000_001, pre=True, token_max=BASE + 5_000_000)
    assert {(asked.term, asked.pre) for asked in bench.sent(VoteRequest)} == {(5_000_001, False)}


def test_T2_who_refuses_tells_the_largest_token_that_it_has_seen() -> None:
    seen = BASE + 5_000_000
    asked = Bench(kept=ballot(term=3, token_max=seen))
    asked.now += P
    asked.ask("b", 2)
    assert [(reply.granted, reply.token_max) for reply in asked.sent(VoteReply)] == [(False, seen)]
    asking = Bench()
    asking.ask_first()
    asking.no("b", 1, pre=True, at=5_000_000)
    assert asking.m.term == 0, "a term alone is not believed (Q9)"
    asking.no("b", 1, pre=True, at=5_000_000, token_max=seen)
    assert asking.m.term == 5_000_000


def test_T2_a_vote_counts_as_work_of_the_largest_token_that_was_seen_at_the_start() -> None:
    """A release of raft is none of work that a lease allowed since: it shortens no wait (G6)."""
    bench = Bench(kept=ballot(term=3, token_max=BASE + 700))
    bench.hear(Release(origin("b"), 3))
    bench.now += P
    bench.ask("b", 701)
    assert bench.sent(VoteReply)[0].age_term == 700


def test_T2_each_node_keeps_the_largest_token_seen() -> None:
    bench = Bench()
    bench.heartbeat("b", 30)
    assert bench.disk is not None
    assert bench.disk.token_known == BASE + 30
