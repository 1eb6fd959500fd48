"""Ring, rule by rule (RULES B). What it shares with bully is tested there; here, that it also holds with a baton."""

from __future__ import annotations

import pytest

from primacy.election.effects import Effect, Record, Send, Start
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    DeadlinePassed,
    MembersChanged,
    Pause,
    Received,
    Resume,
    Shutdown,
    Started,
    StepDown,
    Unanswered,
    WorkGone,
)
from primacy.election.messages import Baton, BatonTaken, Coordinator, Election, Okay, Origin, Won
from primacy.election.model import Kind, Member, Role, Seat
from primacy.election.ranked.bully import RankRules
from primacy.election.ranked.rank import RankOptions, detect_ms, settle_ms
from primacy.election.ranked.ring import RingStrategy
from primacy.settings.timing import RankTiming
from tests.support.rank_harness import LAN, Cluster, seat

pytestmark = pytest.mark.coverage


def bound_ms(made: Cluster) -> int:
    return settle_ms(LAN, len(made.names))


def cluster(names: str = "a b c d e", kind: type[RingStrategy] = RingStrategy, **more: object) -> Cluster:
    made = Cluster(kind, names, **more)
    made.settle(bound_ms(made))
    made.run(1000)
    made.forget()
    return made


def machine(node: str, names: str = "a b c d", kind: type[RingStrategy] = RingStrategy) -> RingStrategy:
    made = kind(seat(node, list(names.split())), LAN, RankOptions())
    made.step(0, Started())
    return made


def waiting(node: str, names: str = "a b c d") -> RingStrategy:
    """A node that asked and found nobody: it gives higher nodes a head start."""
    made = machine(node, names)
    made.step(made.deadline_ms, DeadlinePassed())
    assert made.role is Role.CANDIDATE
    return made


def started(
    node: str, names: str = "a b c d", kind: type[RingStrategy] = RingStrategy
) -> tuple[RingStrategy, int, Baton]:
    """A node whose baton has just left."""
    made = machine(node, names, kind)
    while True:
        now_ms = made.deadline_ms
        for effect in made.step(now_ms, DeadlinePassed()):
            if isinstance(effect, Send) and isinstance(effect.message, Baton):
                return made, now_ms, effect.message  # type: ignore[return-value]


def sends(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(effect.to, type(effect.message).__name__) for effect in effects if isinstance(effect, Send)]


def codes(effects: list[Effect]) -> list[Code]:
    return [effect.event.code for effect in effects if hasattr(effect, "event")]


# --- a round ----------------------------------------------------------------------------------------------------------


def test_the_baton_goes_up_and_round_and_comes_back_with_the_highest() -> None:
    made = cluster("a b c d")
    assert made.leader() == "d"
    made.crash("d")
    path: list[tuple[str, str, str]] = []
    made.drops = lambda a, b, message: path.append((a, b, message.best)) if isinstance(message, Baton) else False  # type: ignore[return-value]
    made.settle(bound_ms(made))
    assert made.leader() == "c"
    assert {(a, b) for a, b, _ in path if b != "d"} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_each_acknowledges_writes_itself_down_and_passes_on() -> None:
    node = machine("b")
    effects = node.step(5, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    assert sends(effects) == [("a", "BatonTaken"), ("c", "Baton")]
    assert effects[-1].message[1:] == ("a", 7, "b", 2)
    highest = machine("d")
    effects = highest.step(5, Received(Baton(Origin("c"), "b", 7, "c", 2)))
    assert effects[-1].to == "a"
    assert effects[-1].message.best == "d"


def test_the_starter_tells_the_winner_which_announces_itself() -> None:
    starter, now_ms, baton = started("a")
    assert sends(starter.step(now_ms + 1, Received(BatonTaken(Origin("b"), "a", baton.round)))) == []
    effects = starter.step(now_ms + 9, Received(Baton(Origin("d"), "a", baton.round, "d", 4)))
    assert sends(effects) == [("d", "BatonTaken"), ("d", "Won")]
    assert starter.role is Role.CANDIDATE
    winner = machine("d")
    assert winner.step(5, Received(Won(Origin("a"), "a", baton.round))) == [], "it took no part in that round"
    winner.step(6, Received(Baton(Origin("c"), "a", baton.round, "c", 3)))
    effects = winner.step(9, Received(Won(Origin("a"), "a", baton.round)))
    assert any(isinstance(effect, Start) for effect in effects)
    assert sends(winner.step(10, Received(Won(Origin("a"), "a", baton.round)))) == [("a", "Coordinator")]


def test_an_old_win_changes_nothing() -> None:
    node = machine("b")
    node.step(1, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    node.step(2, Received(Coordinator(Origin("d"), 4)))
    assert node.step(3, Received(Won(Origin("a"), "a", 7))) == []
    assert node.leader == "d"
    paused = machine("b")
    paused.step(1, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    paused.step(2, Pause())
    assert paused.step(3, Received(Won(Origin("a"), "a", 7))) == []


def test_a_baton_from_another_list_or_of_an_old_round_is_taken_and_dropped() -> None:
    node = machine("b")
    for starter, best in (("zz", "a"), ("a", "zz"), ("", ""), ("b", "a")):
        assert sends(node.step(5, Received(Baton(Origin("a"), starter, 7, best, 1)))) == [("a", "BatonTaken")]
    assert node.step(6, Received(Baton(Origin("zz"), "a", 7, "a", 1))) == []
    watcher = RingStrategy(seat("x", ["a", "b", Member("x", Kind.OBSERVER)]), LAN, RankOptions())
    watcher.step(0, Started())
    assert sends(watcher.step(1, Received(Baton(Origin("a"), "a", 7, "a", 1)))) == [("a", "BatonTaken")]


def test_repeated_baton_goes_on_only_if_it_knows_a_better_one() -> None:
    node = machine("a")
    assert ("b", "Baton") in sends(node.step(1, Received(Baton(Origin("d"), "c", 7, "c", 2))))
    assert sends(node.step(2, Received(Baton(Origin("d"), "c", 7, "c", 2)))) == [("d", "BatonTaken")]
    assert ("b", "Baton") in sends(node.step(3, Received(Baton(Origin("d"), "c", 7, "d", 2))))


def test_who_cannot_lead_passes_on_without_standing() -> None:
    node = machine("d")
    node.step(1, Pause())
    assert node.step(2, Received(Baton(Origin("c"), "a", 7, "c", 3)))[-1].message.best == "c"
    follower = machine("d")
    follower.step(1, Received(Coordinator(Origin("a"), 1)))
    follower.step(2, Received(Baton(Origin("c"), "b", 7, "c", 3)))
    assert follower.leader == "a", "goes on following until the outcome is announced"


def test_a_starter_that_is_paused_meanwhile_does_not_lead() -> None:
    node, now_ms, baton = started("d", "a b c d")
    node.step(now_ms + 1, Pause())
    effects = node.step(now_ms + 2, Received(Baton(Origin("c"), "d", baton.round, "d", 4)))
    assert sends(effects) == [("c", "BatonTaken")]
    assert node.leader == ""


def test_a_round_that_met_nobody_able_ends_in_the_next() -> None:
    """A node that just stepped down passes the baton on; then all others are gone and nobody stands on it."""
    node, now_ms, baton = started("d")
    node.step(now_ms + 1, Received(Baton(Origin("c"), "d", baton.round, "d", 4)))
    assert node.role is Role.LEADER
    node.step(now_ms + 2, StepDown())
    node.step(now_ms + 3, WorkGone(1))
    node.step(now_ms + 4, Received(Baton(Origin("c"), "a", 7, "", 3)))
    assert node.step(now_ms + 5, Unanswered("a")) == [Record(Event(Code.SKIPPED, 1, "a", "a did not take the baton"))]
    assert node.view(now_ms + 5).waits_for == "its next round"


def test_nobody_else_answers_then_it_leads() -> None:
    made = Cluster(RingStrategy, "a b c", start=False)
    made.start("b")
    made.run(bound_ms(made))
    assert made.leaders() == ["b"]
    assert made.codes().count(Code.SKIPPED) == 2


# --- B1 to B5 with a baton --------------------------------------------------------------------------------------------


class DeafToLowerRules(RankRules):
    def answers_lower_announcement(self, now_ms: int, sender: str) -> bool:
        return False


class DeafToLower(RingStrategy):
    """Without B1."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = DeafToLowerRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "stands"), [(RingStrategy, True), (DeafToLower, False)])
def test_B1_a_lower_announcement_is_answered_with_an_election(kind: type[RingStrategy], stands: bool) -> None:
    node = machine("c", kind=kind)
    node.step(1, Received(Coordinator(Origin("a"), 1)))
    effects = node.step(2, Received(Coordinator(Origin("b"), 2)))
    assert (codes(effects) == [Code.CAMPAIGNS]) is stands


class StubbornRules(RankRules):
    def yields_to(self, rival: str) -> bool:
        return False


class Stubborn(RingStrategy):
    """Without B2."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = StubbornRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "healed"), [(RingStrategy, True), (Stubborn, False)])
def test_B2_islands_that_meet_become_one(kind: type[RingStrategy], healed: bool) -> None:
    made = cluster("a b c d", kind)
    made.cut("a b", "c d")
    made.run(bound_ms(made))
    assert made.leaders() == ["b", "d"]
    made.heal()
    made.run(2 * LAN.heartbeat_ms)
    assert (made.leader() == "d") is healed


def test_B3_who_has_passed_a_baton_on_starts_none() -> None:
    made = cluster("a b c d")
    node = made.machines["b"]
    made.crash("d")
    made.run(10)
    node.step(made.now, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    effects = node._watch.leader_gone(made.now, "does not answer") + node._start_round(made.now)
    assert sends(effects) == []
    assert "since a is there" in node.view(made.now).waits_for


def test_B3_called_during_its_round_it_only_answers() -> None:
    node, now_ms, _ = started("c")
    assert sends(node.step(now_ms + 1, Received(Election(Origin("a"), 1)))) == [("a", "Okay")]
    assert node.step(now_ms + 2, Received(Okay(Origin("d"), 1))) == [], "bully's word"


class PatientRules(RankRules):
    def wait_expired(self, now_ms: int, in_vain: Event | None = None) -> list[Effect]:
        return []


class Patient(RingStrategy):
    """Without B4."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._rules = PatientRules(self._state, self._watch)


@pytest.mark.parametrize(("kind", "led"), [(RingStrategy, "c"), (Patient, "")])
def test_B4_a_winner_that_dies_before_its_announcement(kind: type[RingStrategy], led: str) -> None:
    made = cluster("a b c d e", kind)
    made.crash("e")
    made.drops = lambda a, b, message: isinstance(message, Won | Coordinator) and "d" in (a, b)
    made.run(detect_ms(LAN) + 2 * LAN.heartbeat_ms)
    while not any(machine._state.phase == "wait" for machine in made.machines.values()):
        made.run(1)
    made.crash("d")
    made.drops = lambda a, b, message: False
    made.run(2 * bound_ms(made))
    assert made.leader() == led


def test_B4_the_starter_renews_when_the_winner_is_silent() -> None:
    starter, now_ms, baton = started("a")
    starter.step(now_ms + 9, Received(Baton(Origin("d"), "a", baton.round, "d", 4)))
    effects = starter.step(starter.deadline_ms, DeadlinePassed())
    assert codes(effects) == [Code.WINNER_DEAD, Code.CAMPAIGNS]
    node = waiting("b")
    now_ms = node.deadline_ms
    node.step(now_ms, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    node.step(now_ms, Received(BatonTaken(Origin("c"), "a", 7)))
    assert codes(node.step(node.deadline_ms, DeadlinePassed())) == [Code.BATON_LOST, Code.CAMPAIGNS]


def test_B5_unknown_ids_never_lead() -> None:
    node, now_ms, baton = started("a")
    effects = node.step(now_ms + 1, Received(Baton(Origin("d"), "a", baton.round, "zz", 4)))
    assert node.leader == ""
    assert sends(effects) == [("d", "BatonTaken")]


# --- B6 ---------------------------------------------------------------------------------------------------------------


class Forgetful(RingStrategy):
    """Without B6: a lost baton stays lost."""

    def _renew_baton(self, now_ms: int) -> list[Effect]:
        return []


@pytest.mark.parametrize(("kind", "led"), [(RingStrategy, "b"), (Forgetful, "")])
def test_B6_the_starter_renews_a_baton_that_did_not_come_round(kind: type[RingStrategy], led: str) -> None:
    """The neighbour takes the baton, acknowledges it and dies before it passes it on."""
    made = cluster("a b c", kind)
    made.crash("c")
    taken: list[str] = []

    def loses(a: str, b: str, message: object) -> bool:
        taken.extend(a for _ in range(isinstance(message, BatonTaken)))
        return isinstance(message, Baton) and a == "a"

    made.drops = loses
    while not taken:
        made.run(1)
    made.run(1)
    made.crash(taken[0])
    made.run(bound_ms(made))
    assert made.leaders() == ([led] if led else [])
    assert (Code.BATON_LOST in made.codes()) is bool(led)


def test_B6_patience_grows_until_a_baton_can_find_every_neighbour_dead() -> None:
    made = Cluster(RingStrategy, " ".join(f"n{index:02d}" for index in range(12)))
    made.settle(bound_ms(made))
    made.crash(*(f"n{index:02d}" for index in range(2, 12)))
    made.run(bound_ms(made))
    assert made.leader() == "n01"


# --- B7 ---------------------------------------------------------------------------------------------------------------


class WaitsForDead(RingStrategy):
    """Without B7: nobody is skipped."""

    def _skip_neighbour(self, now_ms: int) -> list[Effect]:
        return []


@pytest.mark.parametrize(("kind", "led"), [(RingStrategy, "c"), (WaitsForDead, "")])
def test_B7_a_silent_neighbour_is_skipped(kind: type[RingStrategy], led: str) -> None:
    made = cluster("a b c d", kind)
    made.crash("b", "d")
    made.run(bound_ms(made))
    assert made.leader() == led
    assert (Code.SKIPPED in made.codes()) is bool(led)


def test_B7_for_this_round_only() -> None:
    node, _, _ = started("c")
    assert sends(node.step(node.deadline_ms, DeadlinePassed())) == [("d", "Baton")], "asked once more"
    skipped = node.step(node.deadline_ms, DeadlinePassed())
    assert codes(skipped) == [Code.SKIPPED]
    assert sends(skipped) == [("a", "Baton")]
    later = node.step(node.deadline_ms, Received(Baton(Origin("a"), "b", 9, "b", 1)))
    assert sends(later) == [("a", "BatonTaken")], "merged into its own"
    node.step(node.deadline_ms, Received(Coordinator(Origin("d"), 5)))
    effects = node.step(node.deadline_ms, Received(Baton(Origin("b"), "a", 10, "b", 1)))
    assert ("d", "Baton") in sends(effects)


def test_B7_a_refused_call_skips_at_once_and_a_dead_starter_ends_the_round_here() -> None:
    node = waiting("a")
    node.step(500, Received(Baton(Origin("d"), "c", 7, "d", 2)))
    assert node.step(501, Unanswered("d")) == []
    assert sends(node.step(502, Unanswered("b"))) == [("c", "Baton")]
    assert sends(node.step(503, Unanswered("c"))) == [("d", "Won")], "c started it; d stands on it"
    assert node.step(504, Received(BatonTaken(Origin("c"), "c", 7))) == []


def test_B7_an_acknowledgement_ends_the_asking() -> None:
    node, now_ms, baton = started("c")
    node.step(now_ms + 1, Received(BatonTaken(Origin("a"), "c", baton.round)))
    assert node._hand is not None, "not from the one that was asked"
    node.step(now_ms + 2, Received(BatonTaken(Origin("d"), "c", baton.round)))
    assert node._hand is None


# --- B8 ---------------------------------------------------------------------------------------------------------------


def test_B8_of_two_batons_the_higher_starters_goes_on() -> None:
    node, now_ms, _ = started("c")
    effects = node.step(now_ms + 1, Received(Baton(Origin("b"), "b", 7, "b", 1)))
    assert codes(effects) == [Code.BATON_MERGED]
    assert sends(effects) == [("b", "BatonTaken")]
    effects = node.step(now_ms + 2, Received(Baton(Origin("b"), "d", 8, "d", 3)))
    assert sends(effects) == [("b", "BatonTaken"), ("d", "Baton")]
    assert "since d is there" in node.view(now_ms + 2).waits_for


def test_B8_a_node_in_between_merges_too() -> None:
    node = machine("a")
    node.step(1, Received(Baton(Origin("d"), "c", 7, "d", 2)))
    assert Code.BATON_MERGED in codes(node.step(2, Received(Baton(Origin("d"), "b", 7, "b", 3))))
    late = node.step(2 + 10_000, Received(Baton(Origin("d"), "b", 8, "b", 3)))
    assert Code.BATON_MERGED not in codes(late), "the higher one's election is long over"


def test_B8_all_notice_at_the_same_instant() -> None:
    made = cluster(" ".join("abcdefgh"))
    made.crash("h")
    made.forget()
    for name in "abcdefg":
        node = made.machines[name]
        node._state.timers.clear()
        effects = node._watch.leader_gone(made.now, "is gone") + node._start_round(made.now)
        for effect in effects:
            made._perform(name, effect)
        node.deadline_ms = min(node._state.timers.values())
        made._push(made.machines[name].deadline_ms, name, DeadlinePassed())
    made.settle(bound_ms(made))
    assert made.leader() == "g"
    assert made.election_messages <= 4 * 8


# --- B9 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("count", [3, 4, 5, 7, 10, 20, 50])
def test_B9_at_most_4n_messages_per_failure(count: int) -> None:
    for seed in range(8 if count < 20 else 3):
        made = cluster(" ".join(f"n{index:02d}" for index in range(count)), seed=seed)
        made.crash(made.leader())
        made.forget()
        while not made.leader():
            made.run(1)
        assert made.election_messages <= 4 * count
        made.forget()
        made.run(2000)
        assert set(made.sent) <= {"HeartbeatRequest", "Alive", "Coordinator"}


# --- scenes -----------------------------------------------------------------------------------------------------------


def test_joining_and_rejoining_above_a_healthy_leader_change_nothing() -> None:
    made = Cluster(RingStrategy, "a b c", start=False)
    made.start("a", bootstrap=True)
    made.run(1000)
    made.start("b")
    made.start("c")
    made.run(3000)
    assert made.leader() == "a"
    made.crash("c")
    made.run(1000)
    made.start("c")
    made.run(3000)
    assert made.leader() == "a"
    made.crash("a")
    made.run(3000)
    assert made.leader() == "c"


def test_pause_step_down_and_shutdown_hand_over() -> None:
    made = cluster("a b c d")
    made.give("d", Pause())
    made.run(2000)
    assert made.leader() == "c"
    made.give("d", Resume())
    made.give("c", StepDown("a"))
    made.run(2000)
    assert made.leader() == "a"
    made.give("a", Shutdown())
    made.run(2000)
    assert made.leaders() == ["d"]


def test_a_changed_list_changes_the_ring() -> None:
    node = machine("b", "a b")
    node.step(1, Received(Baton(Origin("a"), "a", 7, "a", 1)))
    node.step(2, MembersChanged((("b", 0, 0), ("c", 0, 0)), 1))
    assert node._passed == {}
    assert sends(node.step(3, Received(Baton(Origin("c"), "c", 7, "c", 1)))) == [("c", "BatonTaken"), ("c", "Baton")]


def test_a_removed_node_lets_its_baton_go() -> None:
    node, now_ms, _ = started("c")
    node.step(now_ms + 1, MembersChanged((("a", 0, 0), ("d", 0, 0)), 1))
    assert node.step(now_ms + 2, Unanswered("d")) == []
    assert node.deadline_ms is None


def test_long_dead_nodes_are_passed_over() -> None:
    made = cluster("a b c d", options=RankOptions(prune_after_ms=3000))
    made.crash("b")
    made.run(5000)
    assert made.machines["d"].pruned == ("b",)
    made.crash("d")
    made.forget()
    made.settle(bound_ms(made))
    assert made.leader() == "c"
    assert Code.SKIPPED not in [code for _, name, event in made.log for code in [event.code] if event.subject == "b"]


def test_one_way_and_partial_cuts_heal() -> None:
    for bad in "abcd":
        made = cluster("a b c d")
        made.cut(bad, " ".join(name for name in "abcd" if name != bad), one_way=True)
        made.run(5000)
        made.heal()
        made.settle(bound_ms(made))
    made = cluster("a b c d")
    made.cut("b", "d")
    made.run(10_000)
    assert {made.machines[name].leader for name in "acd"} == {"d"}
    made.heal()
    made.settle(bound_ms(made))
