"""Bully from the start to the end of a node: it joins, rejoins and leaves, does not stand, has work, sleeps, hears
one way only.
"""

from __future__ import annotations

import pytest

from primacy.election.effects import Stop
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    MembersChanged,
    Pause,
    Received,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    Unanswered,
    WorkGone,
)
from primacy.election.messages import Alive, Coordinator, Election, Handover, HeartbeatRequest, Origin
from primacy.election.model import Kind, Member, Role
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions, detect_ms
from primacy.settings.timing import RANK_PROFILES
from tests.support.bully_harness import ALL, BOUND_MS, cluster, codes, follower, machine, to
from tests.support.rank_harness import LAN, Cluster, seat

pytestmark = pytest.mark.coverage

# --- joining, rejoining, leaving --------------------------------------------------------------------------------------


def test_joining_above_a_healthy_leader_changes_nothing() -> None:
    made = Cluster(BullyStrategy, "a b c", start=False)
    made.start("a", bootstrap=True)
    made.run(1000)
    made.start("b")
    made.start("c")
    made.run(5000)
    assert made.leader() == "a"
    assert made.codes("a") == [Code.STARTED, Code.ELECTED]


def test_rejoin_is_as_a_follower_and_the_next_election_is_won() -> None:
    made = cluster("a b c d")
    made.crash("d")
    made.run(3000)
    made.start("d")
    made.run(3000)
    assert made.leader() == "c"
    made.crash("c")
    made.run(3000)
    assert made.leader() == "d"


def test_a_leader_that_restarts_at_once_is_noticed_by_the_next_look() -> None:
    made = cluster("a b c")
    made.crash("c")
    made.start("c")
    assert made.settle(1000) < detect_ms(LAN)


def test_all_restart_together() -> None:
    made = cluster("a b c d")
    made.crash(*"abcd")
    for name in "abcd":
        made.start(name, bootstrap=name == "a")
    made.run(3000)
    assert made.leader() != ""


def test_restarted_first_node_asks_before_it_leads() -> None:
    made = Cluster(BullyStrategy, "a b c", start=False)
    made.start("a", bootstrap=True)
    made.run(1000)
    made.start("b")
    made.start("c")
    made.run(1000)
    made.crash("a")
    made.run(2000)
    assert made.leader() == "c"
    made.start("a", bootstrap=True)
    made.run(2000)
    assert made.leader() == "c"
    assert Code.OUTRANKED not in made.codes()


def test_one_node_alone_leads_at_once_unless_it_is_joining() -> None:
    assert machine("a", "a").role is Role.LEADER
    joining = machine("a", "a", joining=True)
    assert joining.role is Role.STARTING
    assert joining.step(9, Resume()) == []


def test_silent_leader_is_noticed_after_the_misses() -> None:
    made = cluster("a b c")
    made.cut("c", "a b")
    began = made.now
    while made.leaders() != ["b", "c"]:
        made.run(1)
    assert made.now - began <= LAN.heartbeat_ms + detect_ms(LAN) + LAN.election_ms
    made.heal()
    made.run(1000)
    assert made.leader() == "c"


def test_refused_heartbeats_are_misses_at_once() -> None:
    node = BullyStrategy(seat("a", ["a", "b"]), RANK_PROFILES["ghoti"], RankOptions())
    node.step(0, Started())
    node.step(1, Received(Coordinator(Origin("b"), 1)))
    assert node.step(2, Unanswered("b")) == [], "nothing was asked yet"
    now_ms = node.deadline_ms
    node.step(now_ms, DeadlinePassed())
    assert Code.LEADER_SILENT in codes(node.step(now_ms + 1, Unanswered("b")))  # type: ignore[operator]
    assert node.step(now_ms + 2, Unanswered("b"))  # type: ignore[operator]


def test_late_or_repeated_answers_do_not_keep_a_leader_alive() -> None:
    node = follower("a", "b", "a b")
    first = node.step(node.deadline_ms, DeadlinePassed())[-1].message.number
    for _ in range(2):
        now_ms = node.deadline_ms
        node.step(now_ms, DeadlinePassed())
        node.step(now_ms, Received(Alive(Origin("b"), first - 5, "b")))
    assert node.role is Role.CANDIDATE


def test_removed_leader_and_removed_self() -> None:
    node = follower("b", "c", "a b c")
    effects = node.step(9, MembersChanged((("a", 0, 0), ("b", 0, 0)), 2))
    assert Code.ELECTED in codes(effects), "the leader has left and nobody is above"
    assert node.step(10, MembersChanged((("a", 0, 0), ("b", 0, 0), ("c", 0, 0)), 1)) == [], "an older list"
    effects = node.step(11, MembersChanged((("a", 0, 0), ("", 0, 0)), 3))
    assert Code.REMOVED in codes(effects)
    assert Stop(4, "removed", False) in effects
    assert (node.deadline_ms, node.leader) == (None, "")
    assert node.step(12, Received(Coordinator(Origin("a"), 9))) == []
    assert to(node.step(13, Received(Election(Origin("a"), 9)))) == [("a", "Unable")]
    node.step(14, MembersChanged((("a", 0, 0), ("b", 0, 0)), 4))
    assert node.role is Role.STARTING, "back on the list: as a newcomer"


def test_a_list_without_the_leader_on_show_ends_that_belief() -> None:
    node = follower("b", "c", "a b c d")
    node.step(9, Received(Election(Origin("a"), 1)))
    assert (node.role, node.leader) == (Role.CANDIDATE, "c")
    node.step(10, MembersChanged((("a", 0, 0), ("b", 0, 0), ("d", 0, 0)), 2))
    assert (node.role, node.leader) == (Role.CANDIDATE, "")
    node.step(11, MembersChanged((("a", 0, 0), ("d", 0, 0)), 3))
    assert node.deadline_ms is None


def test_long_dead_nodes_are_left_out_and_come_back_by_being_heard() -> None:
    made = cluster("a b c d", options=RankOptions(prune_after_ms=5000))
    made.crash("d")
    made.run(2000)
    assert made.leader() == "c"
    assert made.machines["c"].pruned == ()
    made.run(6000)
    assert made.machines["c"].pruned == made.machines["a"].pruned == ("d",)
    assert Code.PRUNED in made.codes("c")
    made.crash("c")
    made.forget()
    made.run(detect_ms(LAN) + LAN.heartbeat_ms + 20)
    assert made.leader() == "b", "nobody waited for d"
    made.start("d")
    made.run(1000)
    assert Code.RETURNED in made.codes("b")
    assert made.machines["b"].pruned == made.machines["a"].pruned == ()


def test_by_default_nobody_is_left_out() -> None:
    made = cluster("a b c")
    made.crash("a")
    made.run(100_000)
    assert made.machines["c"].pruned == ()


# --- who does not lead ------------------------------------------------------------------------------------------------


def test_observers_and_witnesses_follow_and_never_lead() -> None:
    made = Cluster(BullyStrategy, ["a", "b", Member("x", Kind.OBSERVER), Member("y", Kind.WITNESS)])
    made.settle(BOUND_MS)
    assert made.leader() == "b"
    assert made.machines["x"].role is Role.OBSERVER
    made.crash("a", "b")
    made.run(10_000)
    assert made.leaders() == []
    assert "only follows" in made.machines["y"].view(made.now).waits_for
    made.start("a")
    made.run(4000)
    assert made.leader() == "a"


def test_a_paused_leader_stops_first_and_then_hands_over() -> None:
    made = cluster("a b c")
    made.forget()
    effects = made.give("c", Pause())
    assert Stop(1, "paused", True) in effects
    assert made.leaders() == ["c"], "until its work is gone"
    made.run(10)
    assert made.leader() == "b"
    assert made.machines["c"].role is Role.PAUSED
    assert made.sent["Election"] <= 2, "the highest live node was told to elect"
    made.run(3000)
    made.give("c", Resume())
    made.run(3000)
    assert made.leader() == "b", "back, above a healthy leader"


def test_a_paused_node_does_not_stand_and_says_so() -> None:
    made = cluster("a b c")
    made.give("b", Pause())
    assert to(made.give("b", Received(Election(Origin("a"), 3)))) == [("a", "Unable")]
    assert made.machines["b"].view(made.now).waits_for == "an operator: primacy resume", "also while it follows"
    made.crash("c")
    made.run(detect_ms(LAN) + 2 * LAN.heartbeat_ms + LAN.election_ms)
    assert made.leader() == "a"
    made.crash("a")
    made.run(10_000)
    assert made.leaders() == []
    assert "primacy resume" in made.machines["b"].view(made.now).waits_for
    made.give("b", Resume())
    made.run(LAN.election_ms)
    assert made.leader() == "b"


def test_a_candidate_that_is_paused_gives_up() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    assert node.role is Role.CANDIDATE
    node.step(501, Pause())
    assert node.role is Role.PAUSED
    assert node.step(502, Pause()) == []


def test_an_unhealthy_leader_hands_over_and_comes_back_as_a_follower() -> None:
    made = cluster("a b c")
    made.give("c", Health(False, "disk full"))
    made.run(50)
    assert made.leader() == "b"
    assert "disk full" in made.machines["c"]._state.hindrance(made.now)
    made.give("c", Health(True))
    made.run(2000)
    assert made.leader() == "b"


def test_step_down_sits_out_and_a_named_successor_leads_below_others() -> None:
    made = cluster("a b c d")
    made.give("d", StepDown("b"))
    made.run(2000)
    assert made.leader() == "b", "although c ranks higher"
    made.give("b", StepDown("zz"))
    made.run(2000)
    assert made.leader() == "d", "an unknown successor: the highest live node"
    made.give("d", StepDown())
    made.run(2000)
    assert made.leader() == "c"
    assert made.give("a", StepDown()) == []


def test_a_named_successor_that_cannot_lead_leaves_it_to_an_election() -> None:
    made = cluster("a b c")
    made.give("a", Pause())
    made.give("c", StepDown("a"))
    made.run(3000)
    assert made.leader() in ("b", "c")


def test_handover_counts_from_the_followed_leader_only() -> None:
    node = follower("b", "c", "a b c")
    assert node.step(5, Received(Handover(Origin("a"), "b"))) == []
    node.step(6, Received(Handover(Origin("c"), "a")))
    assert node.leader == "a"


def test_alone_after_step_down_it_leads_again() -> None:
    made = cluster("a b")
    made.crash("a")
    made.run(2000)
    made.give("b", StepDown())
    made.run(100)
    assert made.leaders() == []
    made.run(5000)
    assert made.leaders() == ["b"]


def test_shutdown_of_a_leader_tells_the_highest_live_node() -> None:
    made = cluster("a b c d")
    made.forget()
    made.give("d", Shutdown())
    made.run(10)
    assert made.machines["d"].deadline_ms is None
    assert made.leaders() == ["c"]
    assert to(made.give("d", Received(HeartbeatRequest(Origin("a"), 1)))) == [("a", "Alive")]
    assert to(made.give("d", Received(Election(Origin("a"), 1)))) == [("a", "Unable")]
    assert made.give("d", Started()) == []
    made.give("a", Shutdown())
    assert made.machines["a"].view(made.now).waits_for == ""
    assert made.machines["a"].role is Role.FOLLOWER


def test_a_stopping_leader_that_is_outranked_meanwhile_just_ends() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    node.step(node.deadline_ms, DeadlinePassed())
    node.step(800, Shutdown())
    assert node.role is Role.LEADER
    asked = node.step(801, Received(Coordinator(Origin("c"), 9)))[-1].message
    effects = node.step(802, Received(Alive(Origin("c"), asked.number, "c")))
    assert Stop(1, "outranked", False) in effects
    assert node.deadline_ms is None
    assert node.step(803, Shutdown()) == []


# --- work -------------------------------------------------------------------------------------------------------------


def test_work_that_ends_by_itself_gives_the_next_node_a_try() -> None:
    made = cluster("a b c")
    del made.working["c"]
    made.give("c", WorkGone(1))
    made.run(1000)
    assert made.leader() == "b"
    assert Code.WORK_ENDED in made.codes("c")


def test_lost_guard_ends_the_leadership_and_the_lock_decides_when_it_may_stand() -> None:
    node = machine("a", "a")
    effects = node.step(10, GuardLost(1))
    assert Stop(1, "guard-lost", False) in effects
    assert node.step(11, GuardLost(1)) == []
    assert "old work" in node.view(11).waits_for
    node.step(node.deadline_ms, DeadlinePassed())
    assert node.role is Role.FOLLOWER
    now_ms = node.deadline_ms
    assert node.step(now_ms, RunLock(True)) == []
    assert node.step(now_ms, RunLock(False))
    assert node.role is Role.LEADER
    assert node.step(now_ms, RunLock(True)) == []
    assert node.step(now_ms, WorkGone(1)) == [], "of an earlier leadership"


def test_a_run_lock_held_at_the_start_keeps_it_from_leading() -> None:
    node = BullyStrategy(seat("a", ["a"]), LAN, RankOptions())
    node.step(0, Started(lock_held=True))
    assert node.role is Role.STARTING
    node.step(5, RunLock(False))
    assert node.role is Role.LEADER


def test_old_work_that_is_slow_to_die_keeps_a_node_from_standing() -> None:
    node = machine("c", "a b c")
    node.step(600, DeadlinePassed())
    node.step(601, GuardLost(1))
    assert to(node.step(602, Received(Election(Origin("a"), 1)))) == [("a", "Unable")]
    node.step(603, Received(Coordinator(Origin("b"), 5)))
    assert node.leader == "b", "cannot lead itself, so anybody's announcement will do"
    assert node.step(604, WorkGone(1)) == []


# --- majority ---------------------------------------------------------------------------------------------------------


def test_require_majority_leads_in_no_minority() -> None:
    made = cluster("a b c d e", options=RankOptions(require_majority=True))
    assert made.leader() == "e"
    made.cut("d e", "a b c")
    made.run(BOUND_MS)
    assert made.leaders() == ["c"]
    assert Code.MAJORITY_LOST in made.codes("e")
    assert made.working.keys() == {"c"}
    made.run(10_000)
    assert made.leaders() == ["c"]
    made.heal()
    made.run(BOUND_MS)
    assert made.leader() == "e", "it was standing all the time, and is the highest"


def test_require_majority_alone_waits_and_says_so() -> None:
    made = Cluster(BullyStrategy, "a b c", options=RankOptions(require_majority=True), start=False)
    made.start("a")
    words = set()
    for _ in range(100):
        made.run(50)
        words.add(made.machines["a"].view(made.now).waits_for)
    assert made.leaders() == []
    assert {"a majority of the list to answer", "its next round"} <= words
    made.start("b")
    made.settle(BOUND_MS)


# --- sleep and one-way ways -------------------------------------------------------------------------------------------


def test_a_leader_that_slept_stops_its_work_before_anything_else() -> None:
    made = cluster("a b c")
    made.sleep("c")
    made.run(5000)
    assert "b" in made.leaders()
    made.forget()
    made.wake("c")
    first = [effect for _, name, effect in made.effects if name == "c"][:2]
    assert first[1] == Stop(1, "overslept", False)
    made.run(2000)
    assert made.leader() == "b"


def test_a_follower_that_slept_comes_back_as_a_follower() -> None:
    made = cluster("a b c d")
    made.crash("d")
    made.sleep("c")
    made.run(5000)
    assert made.leaders() == ["b"]
    made.wake("c")
    made.run(2000)
    assert made.leader() == "b"


def test_alone_it_may_sleep_as_long_as_it_likes() -> None:
    node = machine("a", "a")
    assert node.step(10**6, DeadlinePassed()) == []
    assert node.role is Role.LEADER


@pytest.mark.parametrize("bad", ["a", "b", "c", "d"])
@pytest.mark.parametrize("hears", [True, False])
def test_one_way_node_makes_no_storm_and_moves_nobody_else(bad: str, hears: bool) -> None:
    made = cluster("a b c d")
    rest = " ".join(name for name in "abcd" if name != bad)
    made.cut(bad, rest, one_way=True) if hears else made.cut(rest, bad, one_way=True)
    made.run(2 * BOUND_MS)
    made.forget()
    made.run(10_000)
    believed = {made.machines[name].leader for name in rest.split()}
    assert len(believed) == 1
    assert believed <= set(rest.split())
    assert [code for code in made.codes(*rest.split()) if code not in (Code.CROSSED, *ALL)] == []
    assert made.election_messages / 40 < 16, "per heartbeat"
    made.heal()
    made.settle(BOUND_MS)


def test_partial_partition_leaves_the_rest_in_peace() -> None:
    """b cannot reach the leader, everybody else can."""
    made = cluster("a b c d")
    made.cut("b", "d")
    made.run(15_000)
    made.forget()
    for _ in range(200):
        made.run(20)
        assert {made.machines[name].leader for name in "acd"} == {"d"}
    made.heal()
    made.settle(BOUND_MS)
    assert made.leader() == "d"
