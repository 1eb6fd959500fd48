"""The safety rule Q10, boots and incarnations; and what a node tells of itself."""

from __future__ import annotations

import pytest

from primacy.election.effects import Record, Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    Health,
    MembersChanged,
    Pause,
    Resume,
    Unanswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Ack, Heartbeat, Query, Release, Report, Stale, VoteReply
from primacy.election.model import Role
from tests.support.raft_harness import BASE, Bench, H, P, ballot, origin

pytestmark = pytest.mark.coverage

# --- Q10: boots -------------------------------------------------------------------------------------------------------


def test_Q10_a_lower_incarnation_is_dropped_and_told_so() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5, boot=1), 1, 1, H, True))
    bench.hear(Heartbeat(origin("b", incarnation=4, boot=2), 2, 1, H, True))
    assert [(s.echo, s.incarnation_seen) for s in bench.sent(Stale, "b")] == [(2, 5)]
    assert bench.m.term == 1


def test_Q10_the_highest_incarnation_is_durable() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5), 1, 1, H, True))
    again = Bench(kept=bench.disk, boot=3)
    again.hear(Heartbeat(origin("b", incarnation=4, boot=7), 2, 1, H, True))
    assert again.sent(Stale)


def test_Q10_a_late_word_of_a_boot_that_has_risen_since_is_no_alarm() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5), 1, 1, H, True))
    bench.hear(Heartbeat(origin("b", incarnation=4), 1, 1, H, True))
    assert not bench.sent(Stale)
    assert not bench.sent(Ack)


def test_Q10_releases_and_nodes_without_memory_are_heard_all_the_same() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5, boot=1), 1, 1, H, True))
    bench.hear(Query(origin("b", incarnation=0, boot=2, base=0), memory=False))
    assert bench.sent(Report)[0].incarnation_seen == 5
    bench.hear(Query(origin("b", incarnation=2, boot=2), memory=False))
    assert bench.sent(Report)
    bench.hear(Query(origin("b", incarnation=2, boot=2), memory=True))
    assert not bench.sent(Report)
    bench.hear(Release(origin("b", incarnation=4, boot=9), 1))
    assert bench.events(Code.RELEASE_APPLIED)


def test_Q10_an_equal_incarnation_with_another_boot_mutes_both() -> None:
    bench = Bench()
    bench.now += P
    one, two = origin("b", incarnation=5, boot=1), origin("b", incarnation=5, boot=2)
    bench.ask("b", 1, pre=True, who=one)
    assert bench.sent(VoteReply)
    bench.ask("b", 1, pre=True, who=two)
    assert bench.events(Code.TWO_BOOTS)[0].subject == "b"
    for who in (one, two, one):
        bench.ask("b", 1, pre=True, who=who)
        assert not bench.sent(VoteReply)
    bench.ask("b", 1, pre=True, who=origin("b", incarnation=6, boot=3))
    assert bench.sent(VoteReply), "a later start is heard again"


def test_Q10_an_equal_incarnation_is_recognised_after_a_restart_too() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("b", incarnation=5, boot=1), 1, 1, H, True))
    again = Bench(kept=bench.disk, boot=3)
    again.now += P
    again.ask("b", 2, pre=True, who=origin("b", incarnation=5, boot=2))
    assert not any(reply.granted for reply in again.sent(VoteReply))


def test_Q10_a_node_that_is_an_old_copy_forgets_and_asks() -> None:
    bench = Bench(kept=ballot(term=4, incarnation=2))
    bench.hear(Stale(origin("b"), echo=1, incarnation_seen=9))
    assert bench.m.ballot is not None, "not an answer to this boot"
    bench.hear(Stale(origin("b"), echo=bench.m.seat.boot, incarnation_seen=2))
    assert bench.m.ballot is not None, "not a later start"
    bench.hear(Stale(origin("b"), echo=bench.m.seat.boot, incarnation_seen=9))
    assert bench.events(Code.STALE_INCARNATION)
    assert bench.m.role is Role.RECOVERING
    bench.wake()
    assert bench.receivers() == {"b", "c"}
    bench.report("b", 6, incarnation_seen=9)
    bench.report("c", 5)
    assert bench.m.term == 6
    assert bench.disk is not None
    assert bench.disk.incarnation >= 10


def test_Q10_a_leader_that_is_an_old_copy_stops_its_work() -> None:
    bench = Bench(kept=ballot(incarnation=2))
    term = bench.lead()
    bench.hear(Stale(origin("c"), echo=bench.m.seat.boot, incarnation_seen=9))
    assert bench.did(Stop)[0].term == term
    assert bench.m.role is Role.RECOVERING
    bench.give(WorkGone(term, released=True))
    assert bench.m.role is Role.RECOVERING


def test_Q10_one_whose_id_was_heard_twice_says_what_to_do_and_is_heard_again_after_that() -> None:
    """Its disk was full while the other machine spoke: both counted the same start."""
    bench = Bench(kept=ballot(term=4, incarnation=2))
    bench.hear(Stale(origin("b"), echo=bench.m.seat.boot, incarnation_seen=3))
    assert bench.m.role is Role.RECOVERING
    assert "stop one, restart the other" in bench.m.view(bench.now).waits_for
    again = Bench(kept=bench.disk, boot=8)
    assert again.m.role is Role.RECOVERING, "its ballot may be an old copy"
    again.report("b", 6, incarnation_seen=3)
    again.report("c", 5)
    assert again.m.role is Role.FOLLOWER
    assert again.disk is not None
    assert (again.disk.term, again.disk.void) == (6, False)
    assert again.disk.incarnation > 3


def test_Q10_ones_own_id_spoken_by_another_boot_is_an_alarm() -> None:
    bench = Bench()
    bench.hear(Heartbeat(origin("a", boot=bench.m.seat.boot), 1, 1, H, True))
    assert bench.last == []
    bench.hear(Heartbeat(origin("a", boot=5), 1, 1, H, True))
    assert bench.events(Code.TWO_BOOTS)[0].subject == "a"


def test_Q10_other_times_and_other_clusters_are_not_heard() -> None:
    """Who belongs does not decide it: the register of the sender may be a newer one (R2)."""
    bench = Bench()
    bench.hear(Heartbeat(origin("b", config="list-9"), 1, 1, H, True))
    assert bench.events(Code.OTHER_LIST)
    bench.heartbeat("c", 1)
    bench.hear(Heartbeat(origin("b", base=BASE + 5), 2, 1, H, True))
    assert bench.events(Code.OTHER_CLUSTER)
    assert bench.m.leader == "c"


# --- looking ----------------------------------------------------------------------------------------------------------


def test_view_tells_what_is_waited_for_in_one_sentence() -> None:
    bench = Bench()
    assert bench.m.view(bench.now).waits_for == f"{P} ms of silence to pass before it may vote"
    bench.heartbeat("b", 1)
    assert bench.m.view(bench.now).waits_for == ""
    bench.give(Pause())
    assert bench.m.view(bench.now).waits_for == "an operator: primacy resume"
    bench.give(Resume())
    bench.give(Health(False))
    assert bench.m.view(bench.now).waits_for == "its health to return: a health probe failed"
    leading = Bench()
    leading.win()
    assert leading.m.view(leading.now).waits_for == "the first heartbeat that a majority acks"
    leading.ack("b")
    assert leading.m.view(leading.now).waits_for == "its work to start"
    leading.give(WorkStarted(leading.m.term))
    assert leading.m.view(leading.now).waits_for == ""


def test_view_tells_whom_it_heard_lately_and_its_vote() -> None:
    bench = Bench()
    bench.now += P
    bench.ask("c", 1)
    view = bench.m.view(bench.now)
    assert (view.alive, view.voted_for, view.term) == (("a", "c"), "c", 1)
    assert bench.m.view(bench.now + H + 1).alive == ("a",)
    blank = Bench(blank=True)
    assert (blank.m.view(blank.now).voted_for, blank.m.view(blank.now).term) == ("", 0)


def test_view_of_a_node_beside_its_old_tree_names_the_run_lock() -> None:
    bench = Bench(lock_held=True)
    assert "run lock" in bench.m.view(bench.now).waits_for


def test_view_of_a_candidate_says_that_it_waits_for_a_majority() -> None:
    bench = Bench()
    bench.ask_first()
    assert bench.m.view(bench.now).waits_for


def test_inputs_of_other_strategies_are_ignored() -> None:
    bench = Bench()
    for given in (Unanswered("b"), MembersChanged((("b", 0, 0),))):
        assert bench.give(given) == []


@pytest.mark.parametrize("blank", [False, True])
def test_an_early_wake_up_changes_nothing(blank: bool) -> None:
    bench = Bench(blank=blank)
    bench.wait(1)
    before = bench.m.deadline_ms
    assert bench.give(DeadlinePassed()) == []
    assert bench.m.deadline_ms == before


def test_a_leader_that_is_heard_again_is_followed_again() -> None:
    bench = Bench()
    bench.heartbeat("b", 1)
    bench.ask_first()
    assert bench.events(Code.LEADER_SILENT)[0].subject == "b"
    bench.heartbeat("b", 1, 99)
    assert bench.events(Code.FOLLOWS)
    assert bench.m.role is Role.FOLLOWER


def test_complaints_about_other_nodes_are_told_once_and_are_bounded() -> None:
    bench = Bench()
    for number in range(200):
        for _ in range(2):
            bench.hear(Heartbeat(origin(f"z{number}", boot=number + 1, config="list-9"), 1, 1, H, True))
    told = [e.event.subject for e in bench.all if isinstance(e, Record) and e.event.code is Code.OTHER_LIST]
    assert len(told) == len(set(told)) == 64
