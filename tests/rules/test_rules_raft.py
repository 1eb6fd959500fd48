"""The safety rules Q1 to Q5: what is durable, who counts, what a hold and a promise are. By the rules' names.

Each drives one `RaftStrategy` by hand (see `raft_harness.py`). The same rules under many nodes and faults are the
simulator's; members and memory, releases and tokens have files of their own.
"""

from __future__ import annotations

import pytest

from primacy.election.effects import Extend, Persist, Send, Start
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    PersistFailed,
    RunLock,
    WorkGone,
)
from primacy.election.messages import Ack, Ahead, Heartbeat, VoteReply, VoteRequest
from primacy.election.model import Leadership, Role
from primacy.election.raft.lead import TICK_MS
from primacy.settings.timing import stretched
from tests.support.raft_harness import BASE, HEARTBEAT, LAB, SPREAD, Bench, H, P, ballot, origin

pytestmark = pytest.mark.coverage

D = LAB.wait_ms
JUMP = 1_000_001


# --- Q1: durable before it leaves -------------------------------------------------------------------------------------


def test_Q1_a_vote_is_durable_before_it_leaves() -> None:
    bench = Bench()
    bench.wait(P)
    bench.ask("b", 5)
    assert bench.order() == ["Persist", "Send"]
    (saved,) = bench.did(Persist)
    assert (saved.ballot.term, saved.ballot.voted_for) == (5, "b")
    assert bench.sent(VoteReply)[0].granted


def test_Q1_own_candidacy_is_durable_before_it_is_told() -> None:
    bench = Bench()
    term = bench.stand()
    assert bench.order() == ["Persist", "Send", "Send"]
    assert bench.disk is not None
    assert (bench.disk.term, bench.disk.voted_for) == (term, "a")


def test_Q1_the_term_of_an_acked_heartbeat_is_durable_before_the_ack() -> None:
    bench = Bench()
    bench.heartbeat("b", 3)
    assert bench.order() == ["Persist", "Send"]
    assert bench.did(Persist)[0].ballot.term == 3
    bench.heartbeat("b", 3, 2)
    assert bench.order() == ["Send"]


def test_Q1_one_vote_per_term() -> None:
    bench = Bench()
    bench.wait(P)
    bench.ask("b", 5)
    bench.ask("c", 5)
    refused = bench.sent(VoteReply)[0]
    assert not refused.granted
    assert refused.retry_ms == 0
    bench.ask("b", 5)
    assert bench.sent(VoteReply)[0].granted, "a repeated question gets the same answer"
    bench.ask("c", 4)
    assert not bench.sent(VoteReply)[0].granted


def test_Q1_one_vote_per_term_across_restarts() -> None:
    first = Bench()
    first.wait(P)
    first.ask("b", 5)
    again = Bench(kept=first.disk, boot=77)
    again.wait(P)
    again.ask("c", 5)
    assert not again.sent(VoteReply)[0].granted
    again.ask("b", 5)
    assert again.sent(VoteReply)[0].granted


def test_Q1_a_pre_vote_needs_no_disk() -> None:
    bench = Bench()
    bench.wait(P)
    bench.ask("b", 5, pre=True)
    assert bench.order() == ["Send"]
    assert bench.m.term == 0


def test_Q1_a_lost_ballot_is_no_vote() -> None:
    bench = Bench()
    bench.wait(P)
    bench.ask("b", 5)
    bench.give(PersistFailed("disk full"))
    assert bench.events(Code.DISK_FAILED)[0].detail == "disk full"
    assert bench.m.term == 0


def test_Q1_who_could_not_save_its_vote_does_not_say_that_it_would_vote() -> None:
    bench = Bench()
    bench.now += P
    bench.ask("b", 5)
    bench.give(PersistFailed("disk full"))
    bench.now += 1
    bench.ask("b", 6, pre=True)
    assert isinstance(bench.last[0], Persist), "the disk is tried again before anything is said"
    bench.give(PersistFailed("disk full"))
    assert not bench.events(Code.DISK_FAILED), "recorded once, not at every try"
    assert "disk" in bench.m.view(bench.now).waits_for
    bench.ask("b", 6, pre=True)
    bench.now += 1
    bench.heartbeat("b", 7)
    assert bench.sent(Ack)
    assert "disk" not in bench.m.view(bench.now).waits_for, "a save that was not refused ends the doubt"


def test_Q1_a_candidacy_that_cannot_be_saved_is_none() -> None:
    bench = Bench()
    bench.stand()
    bench.give(PersistFailed())
    assert bench.m.role is Role.FOLLOWER
    bench.yes("b", 1)
    assert bench.m.state.leader_state is None
    assert (bench.m.deadline_ms or 0) >= bench.now + HEARTBEAT


def test_Q1_a_start_that_cannot_be_counted_is_tried_again_in_silence() -> None:
    bench = Bench()
    bench.give(PersistFailed())
    bench.heartbeat("b", 1)
    assert not bench.did(Send)
    bench.now += HEARTBEAT
    bench.give(DeadlinePassed())
    assert bench.did(Persist)
    bench.heartbeat("b", 1)
    assert bench.sent(Ack)


def test_Q1_a_start_that_cannot_be_counted_raises_no_alarm_about_others() -> None:
    bench = Bench()
    bench.give(PersistFailed())
    bench.heartbeat("b", 1)
    assert bench.events(Code.TWO_BOOTS) == []


def test_Q1_a_leader_keeps_its_role_when_its_disk_is_full() -> None:
    """F31: renewals need no write."""
    bench = Bench()
    bench.lead()
    bench.hear(Ack(origin("c", incarnation=4, boot=9), bench.m.term, 1, bench.m.seat.boot))
    assert bench.did(Persist)
    bench.give(PersistFailed())
    assert bench.m.role is Role.LEADER
    bench.wake()
    bench.ack("b")
    assert bench.did(Extend)


def test_Q1_the_only_voter_saves_its_term_before_its_work_starts() -> None:
    bench = Bench("a", kept=ballot("a"))
    bench.wake()
    assert bench.order() == ["Persist", "Start"]
    bench.give(PersistFailed())
    assert bench.m.state.leader_state is None
    assert bench.m.state.work_term == 0
    assert bench.m.term == 0


# --- Q2: over which set one counts ------------------------------------------------------------------------------------


def test_Q2_a_strict_majority_of_the_whole_list() -> None:
    bench = Bench("a b c d")
    bench.ask_first()
    bench.yes("b", 1, pre=True)
    assert not bench.sent(VoteRequest), "two of four are no majority"
    bench.yes("c", 1, pre=True)
    assert not bench.sent(VoteRequest)[0].pre
    bench.yes("b", 1)
    bench.yes("b", 1)
    assert bench.m.state.leader_state is None, "one voter counts once"
    bench.yes("c", 1)
    assert bench.m.role is Role.LEADER


def test_Q2_witnesses_count_and_observers_never() -> None:
    bench = Bench("a b w:witness o:observer p:observer")
    bench.ask_first()
    assert bench.receivers() == {"b", "w"}
    for node in ("o", "p"):
        bench.yes(node, 1, pre=True)
    assert not bench.sent(VoteRequest)
    bench.yes("w", 1, pre=True)
    bench.yes("w", 1)
    assert bench.m.role is Role.LEADER
    assert bench.receivers() == {"b", "w", "o", "p"}, "heartbeats reach observers, too"
    for node in ("o", "p"):
        bench.ack(node)
    assert not bench.did(Start)
    bench.ack("w")
    assert bench.did(Start)


def test_Q2_an_observer_follows_and_acks_and_never_stands() -> None:
    """Its acks and votes count for nobody: an ack says that it is there, and has the register (R2)."""
    bench = Bench("a:observer b c")
    assert bench.m.role is Role.OBSERVER
    bench.heartbeat("b", 3)
    assert bench.order() == ["Persist", "Send"]
    assert bench.m.leader == "b"
    bench.wait(20 * P)
    assert not bench.sent(VoteRequest)
    bench.heartbeat("c", 1)
    assert not bench.sent(Ahead), "nor does it say that it is ahead: it is admitted anew (R10)"


def test_Q2_a_witness_votes_and_never_stands() -> None:
    bench = Bench("a:witness b c")
    bench.wait(20 * P)
    assert not bench.sent(VoteRequest)
    bench.ask("b", 1)
    assert bench.sent(VoteReply)[0].granted
    bench.heartbeat("b", 1)
    assert bench.sent(Ack)


@pytest.mark.parametrize("words", ["a:witness b c", "a:observer b c"])
def test_Q2_whoever_does_not_stand_still_notices_that_the_leader_is_gone(words: str) -> None:
    bench = Bench(words)
    bench.heartbeat("b", 1)
    bench.wait(20 * P)
    assert bench.m.view(bench.now).leader == ""


# --- Q3: what a hold counts from --------------------------------------------------------------------------------------


def test_Q3_votes_give_no_hold_and_no_start() -> None:
    bench = Bench()
    bench.win()
    assert bench.sent(Heartbeat)
    assert not bench.did(Start)
    assert bench.m.view(bench.now).hold_left_ms == 0


def test_Q3_the_hold_counts_from_before_the_acked_heartbeat_left() -> None:
    bench = Bench()
    bench.win()
    departed = bench.now
    bench.now += 30
    bench.ack("b")
    (start,) = bench.did(Start)
    assert start.leadership.valid_until_ms == departed + H
    assert bench.m.view(bench.now).hold_left_ms == H - 30


def test_Q3_an_ack_names_the_heartbeat_that_it_proves() -> None:
    bench = Bench()
    term = bench.lead()
    departures = []
    for _ in range(3):
        bench.wake()
        departures.append(bench.now)
    number = bench.sent(Heartbeat)[0].number
    bench.ack("b", number - 1)
    assert bench.did(Extend)[0].leadership.valid_until_ms == departures[1] + H
    bench.ack("c", number - 2)
    assert not bench.did(Extend), "an older heartbeat extends nothing"
    bench.ack("c", number)
    assert bench.did(Extend)[0].leadership == Leadership("a", term, BASE + term, departures[2] + H)


def test_Q3_an_ack_of_an_old_heartbeat_that_comes_late_counts_for_nothing() -> None:
    bench = Bench()
    bench.lead()
    bench.wake()
    bench.ack("b", 2)
    bench.ack("b", 1)
    assert bench.events(Code.LATE_ACK)[0].value == 1
    assert not bench.did(Extend)
    bench.ack("b", 2)
    assert bench.last == [], "a repeated one is not even late"


def test_Q3_acks_of_other_terms_boots_and_future_heartbeats_are_dropped() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wake()
    bench.ack("b", 2, term=term + 1)
    assert bench.last == []
    bench.ack("b", 2, boot=1)
    assert bench.last == []
    bench.ack("b", 99)
    assert bench.last == []
    bench.ack("b", 2)
    assert bench.did(Extend)


def test_Q3_in_five_nodes_the_second_best_ack_decides() -> None:
    bench = Bench("a b c d e")
    bench.ask_first()
    for pre in (True, False):
        for node in "bc":
            bench.yes(node, 1, pre=pre)
    first = bench.now
    bench.wake()
    bench.ack("b", 2)
    assert not bench.did(Start)
    bench.ack("c", 1)
    assert bench.did(Start)[0].leadership.valid_until_ms == first + H


def test_Q3_an_ack_that_arrives_after_TERM_was_due_is_a_loss() -> None:
    bench = Bench()
    bench.lead()
    held_from = bench.held_from()
    for _ in range(3):
        bench.wake()
    bench.now = held_from + LAB.term_at_ms
    bench.hear(Ack(origin("b"), bench.m.term, 4, bench.m.seat.boot))
    assert bench.events(Code.MAJORITY_LOST)
    assert not bench.did(Extend)
    assert bench.m.state.leader_state is None


def test_Q3_a_late_timer_does_not_shift_the_heartbeats() -> None:
    bench = Bench()
    bench.lead()
    due = bench.m.deadline_ms or 0
    bench.now = due + 10
    bench.give(DeadlinePassed())
    assert bench.m.deadline_ms == due + HEARTBEAT


# --- Q4: the promise --------------------------------------------------------------------------------------------------


def test_Q4_no_vote_within_P_of_an_acked_heartbeat() -> None:
    bench = Bench()
    bench.now += P
    bench.heartbeat("b", 1)
    for pre in (True, False):
        bench.now += 100
        bench.ask("c", 2, pre=pre)
        assert not bench.sent(VoteReply)[0].granted
    assert bench.sent(VoteReply)[0].retry_ms == P - 200
    assert bench.events(Code.PROMISE_REFUSED)[0].value == P - 200
    bench.now += P - 201
    bench.ask("c", 2)
    assert bench.sent(VoteReply)[0].retry_ms == 1
    bench.now += 1
    bench.ask("c", 2)
    assert bench.sent(VoteReply)[0].granted


@pytest.mark.parametrize("number", [7, 6, 1])
def test_Q4_a_repeated_or_overtaken_heartbeat_renews_nothing(number: int) -> None:
    bench = Bench()
    bench.now += P
    bench.heartbeat("b", 1, number=7)
    stands_at_ms = bench.m.deadline_ms
    bench.now += P - 1
    assert bench.m.again(bench.now, Heartbeat(origin("b"), 1, number, H, True)) is None
    assert not bench.heartbeat("b", 1, number=number)
    assert bench.m.deadline_ms == stands_at_ms
    bench.now += 1
    bench.ask("c", 2)
    reply = bench.sent(VoteReply)[0]
    assert (reply.granted, reply.age_ms) == (True, P)


def test_Q4_on_the_short_way_numbers_count_too() -> None:
    bench = Bench()
    bench.heartbeat("b", 1, number=6)
    bench.heartbeat("b", 1, number=7)
    bench.now += 10
    assert bench.m.again(bench.now, Heartbeat(origin("b"), 1, 9, H, True)) is not None
    stands_at_ms = bench.m.deadline_ms
    bench.now += 10
    for number in (9, 8, 7):
        assert bench.m.again(bench.now, Heartbeat(origin("b"), 1, number, H, True)) is None
        assert not bench.heartbeat("b", 1, number=number)
    assert bench.m.deadline_ms == stands_at_ms


def test_Q4_a_repeated_heartbeat_makes_nobody_follow_again() -> None:
    bench = Bench()
    bench.heartbeat("b", 1, number=7)
    bench.wake()
    assert bench.events(Code.LEADER_SILENT)
    assert not bench.heartbeat("b", 1, number=7)
    assert bench.m.leader == ""
    bench.heartbeat("b", 1, number=8)
    assert bench.m.leader == "b"
    assert bench.sent(Ack)[0].number == 8


def test_Q4_numbers_are_counted_for_each_term_and_each_start_of_a_leader() -> None:
    bench = Bench()
    bench.heartbeat("b", 1, number=7)
    bench.heartbeat("b", 2, number=1)
    assert bench.sent(Ack)[0].number == 1
    bench.hear(Heartbeat(origin("b", incarnation=2, boot=77), 3, 1, H, True))
    assert bench.sent(Ack)[0].leader_boot == 77
    bench.heartbeat("c", 4, number=1)
    assert bench.sent(Ack)[0].term == 4


def test_Q4_a_node_that_does_not_vote_gives_up_a_leader_of_whom_only_repetitions_come() -> None:
    bench = Bench("a:observer b c d")
    bench.heartbeat("b", 1, number=7)
    assert bench.m.leader == "b"
    stands_at_ms = bench.m.deadline_ms
    bench.now += P - 1
    bench.heartbeat("b", 1, number=7)
    assert bench.m.deadline_ms == stands_at_ms


def test_Q4_no_vote_within_P_of_reading_the_ballot() -> None:
    bench = Bench()
    bench.now += P - 1
    bench.ask("b", 1)
    assert bench.sent(VoteReply)[0].retry_ms == 1
    bench.now += 1
    bench.ask("b", 1)
    assert bench.sent(VoteReply)[0].granted


def test_Q4_no_vote_within_P_of_the_own_last_heartbeat() -> None:
    bench = Bench()
    term = bench.lead()
    bench.wait(LAB.term_at_ms)
    assert bench.m.state.leader_state is None
    sent_ms = bench.last_heartbeat_ms
    bench.give(WorkGone(term))
    bench.ask("b", term + 1)
    assert bench.sent(VoteReply)[0].retry_ms == sent_ms + P - bench.now
    bench.now = sent_ms + P
    bench.ask("b", term + 1)
    assert bench.sent(VoteReply)[0].granted


def test_Q4_nobody_stands_within_its_own_promise() -> None:
    for seed in range(20):
        bench = Bench(seed=seed)
        bench.wait(P - 1)
        assert not bench.sent(VoteRequest)


def test_Q4_the_asker_retries_when_it_is_told() -> None:
    bench = Bench()
    bench.ask_first()
    bench.no("b", 1, pre=True, retry_ms=300)
    bench.no("c", 1, pre=True, retry_ms=400)
    assert bench.m.role is Role.FOLLOWER
    assert bench.now + 300 <= (bench.m.deadline_ms or 0) <= bench.now + 300 + SPREAD // 4


def test_Q4_refusals_without_a_time_leave_the_usual_pace() -> None:
    bench = Bench()
    bench.ask_first()
    bench.no("b", 1, pre=True)
    before = bench.m.deadline_ms
    bench.no("c", 1, pre=True)
    assert bench.m.deadline_ms == before


@pytest.mark.parametrize("told", [(0, 0), (0, 700), (700, 900)])
def test_Q4_a_voter_that_said_yes_and_then_no_is_asked_again(told: tuple[int, int]) -> None:
    """Enough would have voted, but the run lock was held; a repeated question is answered anew."""
    bench = Bench()
    bench.ask_first()
    term = bench.sent(VoteRequest)[0].term
    bench.give(RunLock(True))
    bench.yes("b", term, pre=True)
    asked_at = bench.m.deadline_ms
    bench.no("b", term, pre=True, retry_ms=told[0])
    bench.no("c", term, pre=True, retry_ms=told[1])
    assert bench.m.deadline_ms is not None
    soonest_ms = min((ms for ms in told if ms), default=0)
    if soonest_ms:
        assert soonest_ms <= bench.m.deadline_ms - bench.now <= soonest_ms + SPREAD // 4
    else:
        assert bench.m.deadline_ms == asked_at, "nobody said when: the usual pace"


def test_Q4_after_a_split_vote_it_retries_within_the_spread() -> None:
    bench = Bench()
    term = bench.stand()
    bench.no("b", term, at=term)
    bench.no("c", term, at=term)
    assert (bench.m.deadline_ms or 0) - bench.now <= SPREAD * 3 // 2
    bench.wake()
    assert bench.events(Code.SPLIT_VOTE)
    assert bench.sent(VoteRequest)[0].pre
    assert bench.sent(VoteRequest)[0].term == term + 1


# --- Q5: the start delay ----------------------------------------------------------------------------------------------


def test_Q5_a_voter_reports_age_and_term_of_the_newest_heartbeat_it_acked() -> None:
    bench = Bench()
    bench.heartbeat("b", 4)
    bench.now += P + 17
    bench.ask("c", 6)
    reply = bench.sent(VoteReply)[0]
    assert (reply.age_ms, reply.age_term, reply.hold_max_ms) == (P + 17, 4, H)


def test_Q5_a_restarted_voter_reports_the_time_since_it_read_its_ballot() -> None:
    bench = Bench(kept=ballot(term=9, hold_max_ms=777))
    bench.now += P + 5
    bench.ask("b", 10)
    reply = bench.sent(VoteReply)[0]
    assert (reply.age_ms, reply.age_term, reply.hold_max_ms) == (P + 5, 9, 777)


def test_Q5_the_winner_waits_for_what_is_left_of_the_longest_hold() -> None:
    bench = Bench()
    term = bench.win(age_ms=100, age_term=0, hold_max_ms=3_000)
    delay = stretched(3_000, LAB.drift_ppm) + TICK_MS - 100
    assert bench.events(Code.START_DELAY)[0].value == delay
    won_ms = bench.now
    bench.ack("b")
    assert not bench.did(Start)
    assert "until any earlier holder's work is surely over" in bench.m.view(bench.now).waits_for
    while bench.now < won_ms + delay:
        assert not bench.did(Start)
        bench.ack("b")
        bench.wake()
    assert bench.now == won_ms + delay
    assert bench.did(Start)[0].leadership.term == term


def test_Q5_the_candidate_counts_itself_as_a_voter() -> None:
    """It restarted just P ago under a ballot that knows of a longer hold; its only voter reports an old age."""
    bench = Bench(kept=ballot(hold_max_ms=3_000))
    read_ms = bench.now
    bench.win(hold_max_ms=H)
    assert bench.events(Code.START_DELAY)[0].value == stretched(3_000, LAB.drift_ppm) + TICK_MS - (bench.now - read_ms)


def test_Q5_nothing_is_left_to_wait_for_in_a_normal_failover() -> None:
    bench = Bench()
    bench.win(age_ms=P, age_term=0)
    assert not bench.events(Code.START_DELAY)
    assert P >= D + TICK_MS


def test_Q5_heartbeats_of_an_unsettled_leader_do_not_shorten_the_hold_that_is_remembered() -> None:
    bench = Bench(kept=ballot(hold_max_ms=3_000))
    bench.heartbeat("b", 1, 1, settled=False, hold_ms=500)
    assert bench.m.ballot is not None
    assert bench.m.ballot.hold_max_ms == 3_000
    bench.heartbeat("b", 1, 2, settled=True, hold_ms=500)
    assert bench.disk is not None
    assert bench.disk.hold_max_ms == 500
    bench.heartbeat("b", 1, 3, settled=False, hold_ms=9_000)
    assert bench.disk.hold_max_ms == 9_000


def test_Q5_a_heartbeat_says_whether_the_leader_is_settled() -> None:
    bench = Bench()
    bench.win(age_ms=D - 60, age_term=0)
    assert [heartbeat.settled for heartbeat in bench.sent(Heartbeat, "b")] == [False]
    bench.ack("b")
    bench.wait(100)
    assert bench.sent(Heartbeat, "b")[-1].settled
