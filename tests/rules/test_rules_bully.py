"""Bully, rule by rule (RULES B), and the scenes of Ghoti and Hecaton.

Where the removal of a rule must be noticed, the same scene runs with a mutant that lacks exactly that rule.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from primacy.election.effects import Effect, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    DeadlinePassed,
    MembersChanged,
    Received,
    Started,
    Unanswered,
    WorkGone,
)
from primacy.election.messages import Alive, Coordinator, Election, Handover, HeartbeatRequest, Okay, Origin, Unable
from primacy.election.model import Kind, Member, Role, Seat
from primacy.election.ranked.bully import BullyStrategy, RankRules
from primacy.election.ranked.rank import NO_HOLD_MS, RankOptions
from primacy.settings.timing import RankTiming
from tests.support.bully_harness import BOUND_MS, cluster, codes, follower, machine, to
from tests.support.rank_harness import LAN, Cluster, seat

pytestmark = pytest.mark.coverage

# --- the election itself ----------------------------------------------------------------------------------------------


def test_the_highest_node_leads() -> None:
    assert cluster().leader() == "e"


def test_call_goes_to_all_higher_nodes_at_once_and_ok_makes_one_wait() -> None:
    node = machine("b", "a b c d")
    called = node.step(400, DeadlinePassed()) + node.step(500, DeadlinePassed())
    assert to(called) == [("c", "Election"), ("d", "Election")]
    assert node.role is Role.CANDIDATE
    assert "2 nodes have still to answer" in node.view(500).waits_for
    number = next(effect.message.round for effect in called if isinstance(effect, Send))
    node.step(510, Received(Okay(Origin("d"), number)))
    assert "since d is there" in node.view(510).waits_for
    assert node.step(520, Received(Coordinator(Origin("d"), 1)))
    assert (node.role, node.leader) == (Role.FOLLOWER, "d")


def test_a_call_is_answered_with_okay_and_an_own_election() -> None:
    node = follower("b", "c", "a b c")
    effects = node.step(10, Received(Election(Origin("a"), 5)))
    assert to(effects) == [("a", "Okay"), ("c", "Election")]
    assert node.leader == "c", "kept on show until the outcome"


def test_nobody_answers_then_it_leads_and_tells_all() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    effects = node.step(node.deadline_ms, DeadlinePassed())
    assert to(effects) == [("a", "Coordinator"), ("c", "Coordinator")]
    start = next(effect for effect in effects if isinstance(effect, Start))
    assert start.leadership == ("b", 1, 0, NO_HOLD_MS)
    assert node.view(700).hold_left_ms == node.view(700).token == 0


def test_answers_of_another_round_or_of_nobody_called_do_not_count() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    for message in (Okay(Origin("c"), 3), Okay(Origin("a")), Unable(Origin("a")), Unable(Origin("c"), 9)):
        node.step(501, Received(message))
    assert "1 nodes" in node.view(501).waits_for
    assert any(isinstance(effect, Start) for effect in node.step(502, Received(Unable(Origin("c")))))


def test_a_refused_call_is_as_good_as_silence() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    assert node.step(501, Unanswered("a")) == []
    assert Code.ELECTED in codes(node.step(502, Unanswered("c")))


# --- B1 ---------------------------------------------------------------------------------------------------------------


class DeafToLowerRules(RankRules):
    def answers_lower_announcement(self, now_ms: int, sender: str) -> bool:
        return False


class DeafToLower(BullyStrategy):
    """Without B1: lower ones take over and nobody says a word."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = DeafToLowerRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "answers"), [(BullyStrategy, True), (DeafToLower, False)])
def test_B1_a_lower_announcement_is_answered_with_an_election(kind: type[BullyStrategy], answers: bool) -> None:
    node = kind(seat("c", ["a", "b", "c", "d"]), LAN, RankOptions())
    node.step(0, Started())
    node.step(1, Received(Coordinator(Origin("a"), 1)))
    assert node.leader == "a", "a node that joins takes the leader it finds"
    effects = node.step(2, Received(Coordinator(Origin("b"), 2)))
    assert (("d", "Election") in to(effects)) is answers


@pytest.mark.parametrize(("kind", "healed"), [(BullyStrategy, True), (DeafToLower, False)])
def test_B1_a_node_between_two_leaders_takes_both(kind: type[BullyStrategy], healed: bool) -> None:
    """Leaders a and b cannot hear each other; c, which joined above a, hears both."""
    made = Cluster(kind, "a b c", start=False)
    made.cut("a", "b")
    made.start("a", bootstrap=True)
    made.run(600)
    made.start("c")
    made.run(10)
    made.start("b", bootstrap=True)
    made.run(BOUND_MS)
    assert (made.leader() == "c") is healed
    assert (made.leaders() == ["a", "b"]) is not healed


def test_B1_the_leader_that_it_follows_may_rank_below() -> None:
    node = follower("c", "a", "a b c")
    assert node.step(5, Received(Coordinator(Origin("a"), 3))) == []
    assert node.role is Role.FOLLOWER


def test_B1_its_own_higher_leader_deals_with_the_announcer() -> None:
    node = follower("b", "c", "a b c")
    assert node.step(5, Received(Coordinator(Origin("a"), 9))) == []
    assert node.leader == "c"


def test_B1_while_an_election_runs_a_lower_announcement_is_merged() -> None:
    node = machine("b", "a b c")
    node.step(500, DeadlinePassed())
    assert node.step(501, Received(Coordinator(Origin("a"), 9))) == []
    assert node.role is Role.CANDIDATE


# --- B2 ---------------------------------------------------------------------------------------------------------------


class StubbornRules(RankRules):
    def yields_to(self, rival: str) -> bool:
        return False


class Stubborn(BullyStrategy):
    """Without B2's second half: nobody yields."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = StubbornRules(self._state, self._watch)


class SaysItOnceRules(RankRules):
    def leader_heartbeat(self, now_ms: int) -> list[Effect]:
        return []


class SaysItOnce(BullyStrategy):
    """Without B2's first half: announced once, as in Ghoti."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = SaysItOnceRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "healed"), [(BullyStrategy, True), (Stubborn, False), (SaysItOnce, False)])
def test_B2_of_two_leaders_that_meet_the_lower_yields(kind: type[BullyStrategy], healed: bool) -> None:
    made = cluster("a b c d", kind)
    made.cut("a b", "c d")
    made.run(3000)
    assert made.leaders() == ["b", "d"]
    made.heal()
    made.run(2 * LAN.heartbeat_ms)
    assert (made.leader() == "d") is healed
    if kind is BullyStrategy:
        assert Code.CROSSED in made.codes("b")
        assert Code.OUTRANKED in made.codes("b")
        assert made.working.keys() == {"d"}


def test_B2_the_leader_announces_itself_every_heartbeat() -> None:
    made = cluster("a b c")
    made.run(10 * LAN.heartbeat_ms)
    assert 2 * 10 <= made.sent["Coordinator"] <= 2 * 12


def test_B2_a_leader_yields_only_on_proof() -> None:
    """A late announcement of a dead leader costs one look, not the leadership."""
    made = cluster("a b c")
    made.crash("c")
    made.run(2000)
    assert made.leader() == "b"
    made.forget()
    made.give("b", Received(Coordinator(Origin("c", boot=1), 1)))
    made.give("a", Received(Coordinator(Origin("c", boot=1), 1)))
    made.run(2000)
    assert made.leader() == "b"
    assert made.codes("a") == []
    assert [code for code in made.codes("b") if code is not Code.CROSSED] == []


def test_B2_rivals_are_recorded_once() -> None:
    node = machine("c", "a b c")
    node.step(600, DeadlinePassed())
    assert node.role is Role.LEADER
    seen = [codes(node.step(601 + at, Received(Coordinator(Origin(who), 1)))) for at, who in enumerate("abab")]
    assert seen == [[Code.CROSSED], [Code.CROSSED], [], []]


# --- B3 ---------------------------------------------------------------------------------------------------------------


class RestlessRules(RankRules):
    def election_running(self) -> bool:
        return False


class Restless(BullyStrategy):
    """Without B3: every trigger begins another election."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = RestlessRules(self._state, self._watch)


def failure_messages(made: Cluster) -> int:
    made.crash(made.leader())
    made.forget()
    while not made.leader():
        made.run(1)
    return made.election_messages


def test_B3_one_election_at_a_time() -> None:
    node = follower("b", "c", "a b c d")
    assert ("d", "Election") in to(node.step(10, Received(Election(Origin("a"), 1))))
    assert to(node.step(11, Received(Election(Origin("a"), 2)))) == [("a", "Okay")]
    assert to(node.step(12, Received(Election(Origin(""), 0)))) == [("", "Okay")]


def test_B3_without_merging_the_count_explodes() -> None:
    assert failure_messages(cluster(" ".join("abcdefgh"))) <= 8**2
    assert failure_messages(cluster(" ".join("abcdefgh"), Restless)) > 8**2


class EagerRules(RankRules):
    def is_just_over(self, now_ms: int, caller: str) -> bool:
        return False


class Eager(BullyStrategy):
    """Without the other half of B3: a call just after the outcome begins another election."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = EagerRules(self._state, self._watch)


def test_B3_a_call_just_after_the_outcome_is_merged_into_that_election() -> None:
    node = follower("b", "c", "a b c")
    assert to(node.step(10, Received(Election(Origin("a"), 1)))) == [("a", "Okay"), ("c", "Election")]
    node.step(12, Received(Coordinator(Origin("c", boot=7), 3)))
    assert to(node.step(13, Received(Election(Origin("a"), 2)))) == [("a", "Okay")]
    later_ms = 12 + LAN.heartbeat_ms
    assert to(node.step(later_ms, Received(Election(Origin("a"), 3)))) == [("a", "Okay"), ("c", "Election")]


@pytest.mark.parametrize("caller", ["c", ""])
def test_B3_a_call_of_the_leader_itself_or_of_nobody_known_is_not_merged(caller: str) -> None:
    """It may leave, and calls its heir."""
    node = follower("b", "c", "a b c")
    node.step(10, Received(Election(Origin("a"), 1)))
    node.step(12, Received(Coordinator(Origin("c", boot=7), 3)))
    assert ("c", "Election") in to(node.step(13, Received(Election(Origin(caller), 2))))


def needless_call(kind: type[BullyStrategy], count: int, seed: int) -> int:
    """The first of many calls although the leader lives: how many messages that costs."""
    made = cluster(" ".join(f"n{index:02d}" for index in range(count)), kind, seed=seed)
    made.delay = lambda: made.chance.randint(1, 4)
    leader = made.leader()
    made.give("n01", Received(Election(Origin("n00"), 1)))
    made.run(LAN.heartbeat_ms // 2)
    made.settle(BOUND_MS)
    assert made.leader() == leader
    return made.election_messages


@pytest.mark.parametrize("count", [5, 10, 20])
def test_B9_a_needless_call_costs_at_most_n_squared(count: int) -> None:
    """Calls and their answers, and an announcement of the leader for each call to it."""
    for seed in range(1, 6):
        assert needless_call(BullyStrategy, count, seed) <= count**2


def test_B9_without_merging_a_needless_call_explodes() -> None:
    assert max(needless_call(Eager, 20, seed) for seed in range(1, 6)) > 20**2


# --- B4 ---------------------------------------------------------------------------------------------------------------


class PatientRules(RankRules):
    def wait_expired(self, now_ms: int, in_vain: Event | None = None) -> list[Effect]:
        return []


class Patient(BullyStrategy):
    """Without B4: it waits for the announcement for ever."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = PatientRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "led"), [(BullyStrategy, "c"), (Patient, "")])
def test_B4_a_winner_that_dies_before_its_announcement(kind: type[BullyStrategy], led: str) -> None:
    made = cluster("a b c d e", kind)
    made.crash("e")
    made.drops = lambda a, b, message: isinstance(message, Coordinator) and a == "d"
    while "d" not in made.leaders():
        made.run(1)
    made.crash("d")
    made.run(BOUND_MS)
    assert made.leader() == led
    assert (Code.WINNER_DEAD in made.codes()) is bool(led)


def test_B4_rounds_back_off_up_to_a_bound() -> None:
    """A node above answers every call and never announces itself."""
    made = Cluster(BullyStrategy, "a b")
    made.drops = lambda a, b, message: a == "b" and isinstance(message, Coordinator | Alive)
    made.run(20_000)
    rounds = [at for at, name, event in made.log if name == "a" and event.code is Code.CAMPAIGNS]
    gaps = [later - earlier for earlier, later in pairwise(rounds)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) <= 4 * 500 * 5 // 4 + LAN.election_ms
    assert len(rounds) < 15


# --- B5 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "zz", "b", "w", "o"])
def test_B5_no_empty_unknown_or_unfit_id_becomes_leader(name: str) -> None:
    members = ["a", "b", "c", Member("o", Kind.OBSERVER), Member("w", Kind.WITNESS)]
    for message in (Coordinator(Origin(name), 5), Alive(Origin(name), 0, name), Alive(Origin("c"), 0, name)):
        node = BullyStrategy(seat("b", members), LAN, RankOptions())
        node.step(0, Started())
        node.step(1, Received(message))
        assert node.leader == ""
        follows = BullyStrategy(seat("b", members), LAN, RankOptions())
        follows.step(0, Started())
        follows.step(1, Received(Coordinator(Origin("c"), 1)))
        follows.step(2, Received(Handover(Origin("c"), name)))
        follows.step(3, Received(message))
        assert follows.leader in ("c", "", "b")


def test_B5_a_leader_that_says_it_does_not_lead_is_a_reason_to_elect() -> None:
    for named in ("", "zz", "b", "a"):
        node = follower("b", "c", "a b c")
        effects = node.step(5, Received(Alive(Origin("c"), 0, named)))
        assert Code.LEADER_LEFT in codes(effects)
        assert ("c", "Election") in to(effects)


def test_B5_a_better_one_that_it_names_is_asked_first() -> None:
    node = follower("a", "b", "a b c")
    effects = node.step(5, Received(Alive(Origin("b"), 0, "c")))
    assert to(effects) == [("c", "HeartbeatRequest")]
    number = effects[-1].message.number
    effects = node.step(6, Received(Alive(Origin("c"), number, "b")))
    assert to(effects) == [("b", "Election"), ("c", "Election")], "and if that one does not lead either, it elects"


def test_B5_two_that_follow_each_other_notice() -> None:
    made = cluster("a b c")
    made.machines["c"]._state.resign(Code.GUARD_LOST, "", "")
    del made.working["c"]
    made.machines["c"]._state.follow(made.now, "b")
    made.machines["b"]._state.follow(made.now, "c")
    made.give("c", WorkGone(1))
    made.settle(BOUND_MS)


def test_B5_no_leader_at_the_start_is_a_reason_to_elect() -> None:
    made = Cluster(BullyStrategy, "a b c", start=False)
    made.start("a")
    made.run(2000)
    assert made.leader() == "a"


# --- B9 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("count", [3, 4, 5, 7, 10, 20, 50])
def test_B9_at_most_n_squared_messages_per_failure(count: int) -> None:
    for seed in range(3 if count < 20 else 1):
        made = cluster(" ".join(f"n{index:02d}" for index in range(count)), seed=seed)
        assert failure_messages(made) <= count**2
        made.forget()
        made.run(3000)
        assert set(made.sent) <= {"HeartbeatRequest", "Alive", "Coordinator"}, "and then it is quiet"


def test_B9_also_with_several_dead() -> None:
    made = cluster(" ".join("abcdefghij"))
    made.crash("h", "i")
    assert failure_messages(made) <= 100


# --- B10 --------------------------------------------------------------------------------------------------------------


def test_B10_bare_messages_of_a_real_node_are_enough() -> None:
    """Heartbeats without number, an answer that says nothing, no epoch, an election whose body nobody reads."""
    node = machine("b", "a b z")
    assert to(node.step(1, Received(HeartbeatRequest(Origin(""))))) == [("", "Alive")]
    node.step(2, Received(Coordinator(Origin("z"))))
    assert node.leader == "z"
    look = node.step(node.deadline_ms, DeadlinePassed())
    assert to(look) == [("z", "HeartbeatRequest")]
    now_ms = node.deadline_ms
    for _ in range(5):
        node.step(now_ms, DeadlinePassed())
        node.step(now_ms + 5, Received(Alive(Origin("z"))))  # type: ignore[operator]
        now_ms = node.deadline_ms
    assert node.leader == "z"
    assert to(node.step(now_ms, Received(Election(Origin(""))))) == [("", "Okay"), ("z", "Election")]
    node.step(now_ms + 1, Received(Okay(Origin("z"))))  # type: ignore[operator]
    node.step(now_ms + 2, Received(Coordinator(Origin("z"))))  # type: ignore[operator]
    assert (node.role, node.leader) == (Role.FOLLOWER, "z")
    unavailable = node.step(now_ms + 9, Received(Alive(Origin("z"), able=False)))  # type: ignore[operator]  # its 503
    assert ("z", "Election") in to(unavailable)


def test_B10_a_leader_yields_to_a_real_node() -> None:
    node = machine("b", "a b z")
    node.step(500, DeadlinePassed())
    node.step(node.deadline_ms, DeadlinePassed())
    assert node.role is Role.LEADER
    assert to(node.step(800, Received(Coordinator(Origin("z"))))) == [("z", "HeartbeatRequest")]
    effects = node.step(801, Received(Alive(Origin("z"))))
    assert Stop(1, "outranked", False) in effects
    assert node.leader == "z"


def test_B10_the_answer_to_a_join_names_the_leader() -> None:
    node = machine("c", "c", joining=True)
    assert node.deadline_ms is None
    assert "node to join" in node.view(0).waits_for
    node.step(5, MembersChanged((("a", 0, 0), ("b", 0, 0), ("c", 0, 0))))
    assert node.role is Role.STARTING
    node.step(6, Received(Alive(Origin("b"), 0, "a")))
    assert (node.role, node.leader) == (Role.FOLLOWER, "a")


def test_a_stranger_is_kept_quiet_and_moves_nobody() -> None:
    node = follower("b", "c", "a b c")
    assert to(node.step(5, Received(Election(Origin("zz"), 1)))) == [("zz", "Okay")]
    assert to(node.step(6, Received(HeartbeatRequest(Origin("zz"), 1)))) == [("zz", "Alive")]
    leader = machine("c", "a b c")
    leader.step(600, DeadlinePassed())
    assert to(leader.step(601, Received(Election(Origin("zz"), 1)))) == [("zz", "Okay")]
    assert to(leader.step(602, Received(Election(Origin("a"), 1)))) == [("a", "Okay"), ("a", "Coordinator")]
    assert leader.role is Role.LEADER


def test_two_nodes_with_one_id_are_reported_once() -> None:
    node = machine("b", "a b c")
    own = node._state.origin
    assert node.step(1, Received(Coordinator(own, 1))) == []
    assert node.step(2, Received(Coordinator(own._replace(boot=0), 1))) == []
    assert codes(node.step(3, Received(Coordinator(own._replace(boot=5), 1)))) == [Code.TWO_BOOTS]
    assert node.step(4, Received(Coordinator(own._replace(boot=6), 1))) == []
