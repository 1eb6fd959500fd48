"""The safety rules M: the times are part of the ballot, lost memory, first start, one voter."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.effects import Extend, Persist, Send, Start
from primacy.election.events import Code
from primacy.election.inputs import DeadlinePassed, Init, PersistFailed, Rejoin, RunLock, WorkStarted
from primacy.election.messages import (
    Ahead,
    FirstBallot,
    FirstBallotTaken,
    Heartbeat,
    Query,
    Release,
    Report,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import CLOSED, Leadership, ListRecord, Role
from primacy.election.raft.strategy import RaftOptions
from tests.support.raft_harness import BASE, HEARTBEAT, LIST, Bench, H, P, ballot, boot_of, origin

pytestmark = pytest.mark.coverage

# --- M1: the times are part of the ballot -----------------------------------------------------------------------------


def changed_bench(old: str = "a b c", new: str = "a b c", term: int = 3, **kept: Any) -> Bench:
    """A node that was restarted with other times, and perhaps with other nodes in its file."""
    return Bench(new, kept=ballot(old, term=term, voted_for="b", config="old", **kept))


def test_M1_the_new_configuration_is_durable_as_pending_before_it_is_reported() -> None:
    bench = changed_bench()
    assert bench.m.role is Role.RECOVERING
    assert bench.order()[0] == "Persist"
    assert bench.disk is not None
    assert [(r.hash, r.confirmed) for r in bench.disk.lists] == [("old", True), (LIST, False)]
    assert bench.disk.changed


def test_M1_a_mute_node_neither_votes_nor_acks_nor_stands_nor_takes_a_release() -> None:
    bench = changed_bench()
    bench.wait(3 * P)
    assert not bench.sent(VoteRequest)
    for message in (
        VoteRequest(origin("b"), 9, True),
        VoteRequest(origin("b"), 9, False),
        Heartbeat(origin("b"), 9, 1, H, True),
        Release(origin("b"), 9),
    ):
        assert bench.hear(message) == []
    assert bench.m.term == 3


def test_M1_it_asks_every_voter_of_the_register_whatever_its_file_names_and_repeats_it() -> None:
    bench = changed_bench("a b c d", "a b e")
    assert bench.receivers() == {"b", "c", "d"}
    bench.report("b", 3)
    bench.wake()
    assert bench.receivers() >= {"c", "d"}
    bench.report("c", 3)
    bench.report("d", 3)
    assert bench.m.role is Role.FOLLOWER


def test_M1_it_speaks_again_when_all_have_reported_and_no_vote_is_left_in_the_highest_term() -> None:
    bench = changed_bench()
    bench.report("b", 9, hold_max_ms=3_000, token_max=BASE + 40)
    assert bench.m.role is Role.RECOVERING
    bench.report("c", 5)
    assert bench.events(Code.RECOVERED)[0].term == 9
    saved = bench.disk
    assert saved is not None
    assert (saved.term, saved.voted_for, saved.hold_max_ms, saved.token_max) == (9, CLOSED, 3_000, BASE + 40)
    assert saved.lists == (ListRecord(LIST, ("a", "b", "c"), True),)
    bench.now += P
    bench.ask("b", 9)
    assert not bench.sent(VoteReply)[0].granted


def test_M1_the_end_of_muteness_counts_as_reading_the_ballot() -> None:
    bench = changed_bench()
    bench.now += 10 * P
    bench.report("b", 3)
    bench.report("c", 3)
    bench.now += P - 1
    bench.ask("b", 4)
    assert bench.sent(VoteReply)[0].retry_ms == 1
    bench.now += 11
    bench.ask("b", 4)
    assert (bench.sent(VoteReply)[0].age_ms, bench.sent(VoteReply)[0].age_term) == (P + 10, 3)


def test_M1_reports_of_other_boots_other_lists_and_without_memory_do_not_count() -> None:
    bench = changed_bench()
    bench.report("b", 3)
    bench.report("c", 3, echo=5)
    bench.report("c", 3, config="old")
    bench.report("c", 0, memory=False)
    assert bench.m.role is Role.RECOVERING
    assert "to be reported by c" in bench.m.view(bench.now).waits_for
    assert "primacy rejoin --without" in bench.m.view(bench.now).waits_for
    bench.report("c", 3, who=origin("c", base=BASE + 1))
    assert bench.m.role is Role.RECOVERING, "another cluster"
    bench.report("c", 3)
    assert bench.m.role is Role.FOLLOWER


def test_M1_a_file_without_this_node_removes_it_from_nothing() -> None:
    bench = changed_bench("a b c", "b c")
    assert bench.m.role is Role.RECOVERING
    bench.report("b", 3)
    bench.report("c", 3)
    assert bench.m.role is Role.FOLLOWER
    bench.hear(Query(origin("b"), memory=True))
    assert bench.sent(Report)[0].origin.config == LIST


def test_M1_a_voter_gone_for_good_is_named_and_the_floor_applies() -> None:
    bench = changed_bench()
    bench.report("b", 3)
    bench.give(Rejoin(("c",)))
    assert bench.m.role is Role.FOLLOWER
    assert bench.m.term == 1_003


def test_M1_a_roll_back_is_a_change_like_any_other() -> None:
    first = changed_bench()
    back = Bench("a b c", kept=first.disk, config="old", boot=9)
    assert back.m.role is Role.RECOVERING
    assert back.receivers() == {"b", "c"}
    for node in ("b", "c"):
        assert back.m.role is Role.RECOVERING
        back.report(node, 3, config="old")
    assert back.m.role is Role.FOLLOWER


def test_M1_an_unused_ballot_of_other_times_is_a_change_too() -> None:
    bench = changed_bench(term=0)
    bench.report("b", 5)
    bench.report("c", 5)
    assert bench.m.role is Role.FOLLOWER
    assert bench.m.term == 5


def test_M1_a_muteness_that_cannot_be_ended_on_disk_goes_on() -> None:
    bench = changed_bench()
    bench.report("b", 3)
    bench.report("c", 3)
    bench.give(PersistFailed())
    assert bench.m.role is Role.RECOVERING
    bench.wake()
    assert bench.m.role is Role.FOLLOWER


# --- M2: lost memory --------------------------------------------------------------------------------------------------


def test_M2_a_node_without_memory_is_mute_and_asks() -> None:
    bench = Bench(blank=True)
    assert bench.m.role is Role.RECOVERING
    assert [q.memory for q in bench.sent(Query)] == [False, False]
    bench.hear(Query(origin("b"), memory=True))
    report = bench.sent(Report)[0]
    assert (report.memory, report.used, report.term, report.confirmed) == (False, False, 0, ())
    bench.now += 3 * P
    for message in (VoteRequest(origin("b"), 9, False), Heartbeat(origin("b"), 9, 1, H, True), Ahead(origin("b"), 3)):
        bench.hear(message)
        assert not bench.did(Send)


def test_M2_it_votes_again_only_above_the_highest_term_heard_and_after_P() -> None:
    bench = Bench(blank=True)
    bench.report("b", 7)
    bench.report("c", 4, hold_max_ms=3_000, incarnation_seen=6, token_max=BASE + 9)
    assert bench.m.role is Role.FOLLOWER
    saved = bench.disk
    assert saved is not None
    assert (saved.base, saved.term, saved.voted_for) == (BASE, 7, CLOSED)
    assert saved.incarnation >= 7, "above every start that anybody heard of"
    assert (saved.hold_max_ms, saved.token_max, saved.changed) == (3_000, BASE + 9, True)
    bench.now += P - 1
    bench.ask("b", 8)
    assert bench.sent(VoteReply)[0].retry_ms == 1
    bench.now += 1
    bench.ask("b", 7)
    assert not bench.sent(VoteReply)[0].granted
    bench.ask("b", 8)
    assert bench.sent(VoteReply)[0].granted


def test_M2_every_other_voter_must_answer_from_memory() -> None:
    bench = Bench(blank=True)
    bench.report("b", 7)
    bench.report("c", 0, memory=False)
    assert bench.m.role is Role.RECOVERING
    assert "too few remember" in bench.m.view(bench.now).waits_for
    bench.give(Rejoin(("c",)))
    assert bench.m.term == 1_007


def test_M2_two_first_starts_in_use_are_named_with_what_to_do() -> None:
    """Nobody can tell which of them this node took part in."""
    bench = Bench("a b c d", blank=True)
    two = (("b", BASE + 1), ("c", BASE), ("d", BASE))
    for node, base in two:
        bench.report(node, 1, who=origin(node, base=base))
    assert bench.m.role is Role.RECOVERING
    assert bench.m.view(bench.now).waits_for == (
        "an operator: two first starts are in use, by c, d and by b; "
        "on b: stop the agent, remove its file ballot, start it again"
    )
    bench.report("b", 0, memory=False, who=origin("b", boot=77, base=0))
    assert bench.m.view(bench.now).waits_for == (
        "an operator: too few remember to elect a leader; on c: primacy members force --without a --without b, "
        "then primacy members add for each"
    )
    bench.give(Rejoin(("b",)))
    assert (bench.m.ballot.base, bench.m.term) == (BASE, 1_001)


def test_M2_of_two_first_starts_in_use_by_as_many_nodes_the_larger_tokens_stay() -> None:
    bench = Bench("a b c", blank=True)
    bench.report("b", 1, who=origin("b", base=BASE + 1))
    bench.report("c", 1, who=origin("c", base=BASE))
    assert "on c: stop the agent" in bench.m.view(bench.now).waits_for


def test_M2_of_two_first_starts_in_use_the_one_with_the_largest_token_stays() -> None:
    """Although more nodes used the other: what is removed with a ballot is not known any more, and tokens only grow."""
    bench = Bench("a b c d", blank=True)
    for node, base, token in (("b", BASE + 1, BASE + 9_000), ("c", BASE, BASE), ("d", BASE, BASE + 5)):
        bench.report(node, 1, who=origin(node, base=base), token_max=token)
    assert "by b and by c, d; on c, d: stop the agent" in bench.m.view(bench.now).waits_for


def test_M2_the_first_start_of_a_node_that_is_gone_for_good_does_not_count() -> None:
    bench = Bench("a b c", blank=True)
    bench.report("b", 1, who=origin("b", base=BASE + 1))
    bench.report("c", 1, who=origin("c", base=BASE))
    bench.give(Rejoin(("c",)))
    assert (bench.m.ballot.base, bench.m.term) == (BASE + 1, 1_001)


def test_M2_who_goes_on_without_somebody_is_above_every_token_that_is_known() -> None:
    """T2: who is gone may have led above the tokens of a lease."""
    bench = Bench("a b c", blank=True)
    bench.report("b", 1, token_max=BASE + 5_000)
    bench.give(Rejoin(("c",)))
    assert (bench.m.term, bench.m.ballot.token_max) == (6_000, BASE + 5_000)


def test_M2_the_term_of_an_old_copy_counts_in_its_own_cluster_only() -> None:
    """Its tokens count in every one (T2)."""
    for base, term in ((BASE, 5_000), (BASE - 9_000_000, 1)):
        copy = ballot(term=5_000, void=True, token_max=BASE + 3)._replace(base=base)
        bench = Bench(kept=copy)
        for node in "bc":
            bench.report(node, 1)
        assert bench.m.ballot is not None
        assert (bench.m.ballot.base, bench.m.term) == (BASE, term)
        assert bench.m.ballot.token_max >= BASE + 3


def test_M2_two_bases_are_not_settled_yet() -> None:
    bench = Bench(blank=True)
    bench.report("b", 0, used=False)
    bench.report("c", 0, used=False, who=origin("c", base=BASE + 9))
    assert bench.m.role is Role.RECOVERING


def test_M2_blank_nodes_are_asked_again_for_they_may_get_a_memory() -> None:
    bench = Bench(blank=True)
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    bench.wait(2 * HEARTBEAT)
    assert len(bench.sent(Query)) >= 2


# --- M3: the first start ----------------------------------------------------------------------------------------------


def test_M3_nothing_happens_without_a_word() -> None:
    bench = Bench(blank=True)
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    bench.wait(10 * P)
    assert bench.m.role is Role.RECOVERING
    assert bench.m.view(bench.now).waits_for == "the first start of the cluster: primacy init, once, on one node"


def test_M3_init_asks_all_and_hands_the_first_ballot_to_each_boot_that_is_blank() -> None:
    bench = Bench(blank=True)
    bench.now += P
    bench.give(Init(5_000_000))
    assert bench.receivers() == {"b", "c"}
    bench.report("b", memory=False)
    assert bench.m.role is Role.RECOVERING
    bench.report("c", memory=False, token_max=6_000_000)
    saved = bench.disk
    assert saved is not None
    assert (saved.base, saved.term, saved.voted_for) == (6_000_001, 0, "")
    assert bench.order() == ["Persist", "Send", "Send"]
    for node in ("b", "c"):
        (offer,) = bench.sent(FirstBallot, node)
        assert (offer.base, offer.echo) == (6_000_001, boot_of(node))
    assert bench.m.role is Role.FOLLOWER


def test_M3_only_answers_given_after_the_word_count() -> None:
    bench = Bench(blank=True)
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    bench.give(Init(5_000_000))
    assert bench.m.role is Role.RECOVERING
    bench.wake()
    assert len(bench.sent(Query)) == 2


def test_M3_writing_a_first_ballot_counts_as_reading_one() -> None:
    bench = Bench(blank=True)
    bench.now += 10 * P
    bench.hear(FirstBallot(origin("b", base=BASE), BASE, bench.m.seat.boot))
    assert bench.order() == ["Persist", "Send"]
    assert bench.sent(FirstBallotTaken)[0].base == BASE
    bench.now += P - 1
    bench.ask("c", 1)
    assert bench.sent(VoteReply)[0].retry_ms == 1


def test_M3_a_first_ballot_for_another_boot_list_or_from_a_stranger_is_not_taken() -> None:
    bench = Bench(blank=True)
    boot = bench.m.seat.boot
    for message in (
        FirstBallot(origin("b"), BASE, 99),
        FirstBallot(origin("b", config="other"), BASE, boot),
        FirstBallot(origin("z"), BASE, boot),
    ):
        bench.hear(message)
        assert not bench.did(Persist)
    observer = Bench("a:observer b c", blank=True)
    observer.hear(FirstBallot(origin("b"), BASE, observer.m.seat.boot))
    assert not observer.did(Persist)


def test_M3_an_unused_first_ballot_gives_way_to_a_larger_base_and_to_no_smaller_one() -> None:
    bench = Bench(blank=True)
    boot = bench.m.seat.boot
    bench.hear(FirstBallot(origin("b", base=BASE), BASE, boot))
    bench.hear(FirstBallot(origin("c", base=BASE - 1), BASE - 1, boot))
    assert bench.m.ballot is not None
    assert bench.m.ballot.base == BASE
    assert not bench.sent(FirstBallotTaken)
    bench.hear(FirstBallot(origin("b", base=BASE), BASE, boot))
    assert bench.sent(FirstBallotTaken), "repeating it does no harm"
    bench.hear(FirstBallot(origin("c", base=BASE + 1), BASE + 1, boot))
    assert bench.disk is not None
    assert bench.disk.base == BASE + 1


def test_M3_a_used_ballot_never_gives_way() -> None:
    bench = Bench()
    bench.heartbeat("b", 1)
    bench.hear(FirstBallot(origin("c", base=BASE + 1), BASE + 1, bench.m.seat.boot))
    assert not bench.did(Persist)
    bench.give(Init(9_000_000))
    assert bench.events(Code.INIT_REFUSED)


def test_M3_an_unused_ballot_gives_way_to_a_cluster_that_runs() -> None:
    bench = Bench(blank=True)
    bench.hear(FirstBallot(origin("b", base=BASE), BASE, bench.m.seat.boot))
    bench.hear(Heartbeat(origin("c", base=BASE - 7), 4, 1, H, True))
    assert bench.m.role is Role.RECOVERING
    bench.wake()
    for node in ("b", "c"):
        bench.report(node, 4, who=origin(node, base=BASE - 7))
    assert bench.disk is not None
    assert (bench.disk.base, bench.disk.term) == (BASE - 7, 4)


def test_M3_init_is_refused_when_anybody_remembers() -> None:
    bench = Bench(blank=True)
    bench.give(Init(5_000_000))
    bench.report("b", memory=False)
    bench.report("c", 2)
    assert "node c remembers" in bench.events(Code.INIT_REFUSED)[0].detail
    assert bench.m.role is Role.RECOVERING


def test_M3_init_is_refused_when_anybody_runs_under_another_list() -> None:
    bench = Bench(blank=True)
    bench.give(Init(5_000_000))
    bench.report("b", memory=False, config="other")
    assert "node b runs under another list" in bench.events(Code.INIT_REFUSED)[0].detail


def test_M3_a_first_ballot_that_was_never_used_counts_as_no_memory_for_init() -> None:
    bench = Bench(blank=True)
    bench.now += P
    bench.give(Init(500))
    bench.report("b", 0, used=False)
    bench.report("c", memory=False)
    assert bench.disk is not None
    assert bench.disk.base > BASE


def test_M3_a_voter_is_left_out_by_name() -> None:
    bench = Bench(blank=True)
    bench.now += P
    bench.give(Init(5_000_000, without=("c",)))
    assert bench.receivers() == {"b"}
    bench.report("b", memory=False)
    assert bench.receivers() == {"b"}
    assert bench.m.role is Role.FOLLOWER


def test_M3_an_offer_that_was_not_confirmed_is_repeated_every_heartbeat() -> None:
    bench = Bench(blank=True)
    bench.now += P
    bench.give(Init(5_000_000))
    bench.report("b", memory=False)
    bench.report("c", memory=False)
    assert bench.disk is not None
    base = bench.disk.base
    bench.hear(FirstBallotTaken(origin("b", base=base), base))
    bench.hear(FirstBallotTaken(origin("c", base=base - 1), base - 1))
    bench.now += HEARTBEAT
    assert bench.m.deadline_ms == bench.now
    bench.give(DeadlinePassed())
    assert bench.sent(FirstBallot, "c")
    assert not bench.sent(FirstBallot, "b")


@pytest.mark.parametrize(("node", "others"), [("a", "bc"), ("b", "ac")])
def test_M3_auto_is_done_by_the_lowest_id_after_P_when_all_are_blank(node: str, others: str) -> None:
    bench = Bench(blank=True, node=node, options=RaftOptions(auto=True))
    for other in others:
        bench.report(other, memory=False)
    bench.wait(P - 1)
    assert bench.m.role is Role.RECOVERING
    bench.wait(2 * HEARTBEAT)
    assert (bench.m.role is Role.FOLLOWER) == (node == "a")
    if node == "a":
        assert bench.disk is not None
        assert bench.disk.base >= 1_500_000, "wall time only lifts it"


def test_M3_auto_waits_for_every_listed_voter_and_says_for_whom() -> None:
    bench = Bench(blank=True, options=RaftOptions(auto=True))
    bench.report("b", memory=False)
    bench.wait(20 * P)
    assert bench.m.role is Role.RECOVERING
    assert bench.m.view(bench.now).waits_for == (
        "the first start of the cluster; not heard yet: c "
        "(if it runs already, there: primacy members add a --addr HOST:PORT)"
    )


def test_M3_auto_never_begins_a_cluster_that_is_remembered() -> None:
    bench = Bench(blank=True, options=RaftOptions(auto=True))
    bench.report("b", memory=False)
    bench.report("c", 9)
    bench.wait(3 * P)
    assert bench.m.ballot is None
    assert not bench.events(Code.INIT_REFUSED), "nobody said it, so nobody is refused"


def test_M3_auto_asks_again_while_its_first_ballot_is_unused() -> None:
    bench = Bench(kept=ballot(), options=RaftOptions(auto=True))
    bench.ask_first()
    assert [q.memory for q in bench.sent(Query)] == [True, True]


@pytest.mark.parametrize("lacks", [False, True])
def test_M3_auto_founds_anew_only_for_one_that_says_now_that_it_has_none(lacks: bool) -> None:
    """An answer that crossed the first ballot on its way said the same, and is no reason."""
    bench = Bench(blank=True, options=RaftOptions(auto=True))
    for other in "bc":
        bench.report(other, memory=False)
    bench.wait(P + 2 * HEARTBEAT)
    assert bench.disk is not None
    base = bench.disk.base
    bench.report("c", memory=False)
    bench.ask_first()
    bench.report("b", used=False, who=origin("b", base=base))
    assert bench.disk.base == base
    blank_again = origin(
        "c", incarnation=0, base=0, boot=77
    )  # a later start of c, which was not offered the first ballot
    bench.report("c", memory=not lacks, used=False, who=blank_again if lacks else origin("c", base=base))
    assert (bench.disk.base > base) is lacks


def test_M3_the_first_ballot_that_cannot_be_saved_is_none() -> None:
    bench = Bench(blank=True)
    bench.hear(FirstBallot(origin("b", base=BASE), BASE, bench.m.seat.boot))
    bench.give(PersistFailed())
    assert bench.m.role is Role.RECOVERING
    assert bench.m.ballot is None
    bench.now += P
    bench.hear(Query(origin("c", base=0), memory=False))
    assert not bench.sent(Report)[0].memory


# --- M4: one voter ----------------------------------------------------------------------------------------------------


def test_M4_one_voter_leads_at_once_and_starts_without_a_delay() -> None:
    bench = Bench("a", kept=ballot("a", term=4, hold_max_ms=9_000))
    assert bench.m.deadline_ms == bench.now
    bench.wake()
    assert bench.did(Start)[0].leadership == Leadership("a", 5, BASE + 5, bench.now + H)
    assert not bench.events(Code.START_DELAY)


def test_M4_not_while_its_run_lock_is_held() -> None:
    bench = Bench("a", kept=ballot("a", term=4), lock_held=True)
    bench.wait(10 * P)
    assert not bench.did(Start)
    bench.give(RunLock(False))
    assert bench.m.deadline_ms == bench.now
    bench.wake()
    assert bench.did(Start)


def test_M4_not_if_the_ballot_ever_held_another_list() -> None:
    bench = Bench("a", kept=ballot("a", term=4, changed=True))
    assert (bench.m.deadline_ms or 0) >= bench.now + P


def test_M4_a_single_node_keeps_its_hold_by_its_own_heartbeats() -> None:
    bench = Bench("a", kept=ballot("a"))
    bench.wake()
    bench.give(WorkStarted(1))
    bench.wait(10 * H)
    assert bench.m.role is Role.LEADER
    assert len(bench.did(Extend)) == 10 * H // HEARTBEAT


def test_M4_auto_begins_a_single_node_at_once() -> None:
    bench = Bench("a", blank=True, options=RaftOptions(auto=True))
    assert bench.m.role is Role.FOLLOWER
    assert bench.m.deadline_ms == bench.now
