"""Bully and ring in bad conditions, any input at any time, and who ranks above whom."""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primacy.election import inputs, messages
from primacy.election.effects import Effect, Record, Send, Start, Stop
from primacy.election.inputs import Health, MembersChanged, Pause, Resume, Started, StepDown
from primacy.election.messages import Origin
from primacy.election.model import Kind, Member, Membership, Role
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions, natural_key, patience_max_ms, rank_key, settle_ms, wait_ms
from primacy.election.ranked.ranking import Ranking
from primacy.election.ranked.ring import RingStrategy
from primacy.settings.timing import RANK_PROFILES
from tests.support.rank_harness import LAN, Cluster, Machine, seat

pytestmark = pytest.mark.coverage

KINDS = [BullyStrategy, RingStrategy]
QUICK = os.environ.get("PRIMACY_SIZE") == "quick"

# --- rank -------------------------------------------------------------------------------------------------------------


def ordered(order: str, *members: Member) -> list[str]:
    return [member.id for member in sorted(members, key=lambda member: rank_key(member, order))]


def test_rank_by_id_compares_bytes() -> None:
    names = [Member(name) for name in ("node9", "node10", "Z", "é", "a")]
    assert ordered("id", *names) == ["Z", "a", "node10", "node9", "é"]


def test_rank_natural_puts_node10_above_node9() -> None:
    names = [Member(name) for name in ("node10", "node9", "node010", "node", "node9b", "x" + "9" * 9000)]
    assert ordered("natural", *names) == ["node", "node9", "node9b", "node010", "node10", "x" + "9" * 9000]
    assert natural_key("a1b02") == (b"a", (1, "1"), b"b", (1, "2"), b"")


def test_rank_by_start_and_by_priority_breaks_ties_by_id() -> None:
    members = [Member("a", priority=2, started_ms=5), Member("b", priority=2, started_ms=5), Member("c", started_ms=9)]
    assert ordered("started", *members) == ["a", "b", "c"]
    assert ordered("priority", *members) == ["c", "a", "b"]
    with pytest.raises(ValueError, match="one of: id, natural"):
        ordered("age", *members)


@given(st.lists(st.text(alphabet="ab0129\ud800é", max_size=6), unique=True, max_size=8))
def test_rank_is_a_total_order(names: list[str]) -> None:
    for order in ("id", "natural", "started", "priority"):
        keys = sorted(rank_key(Member(name), order) for name in names)
        assert all(one < other for one, other in pairwise(keys))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("order", "first", "second"),
    [("id", "n9", "n2"), ("natural", "n10", "n9"), ("priority", "n1", "n9"), ("started", "n2", "n9")],
)
def test_the_highest_leads_and_the_next_follows_it(kind: type[Machine], order: str, first: str, second: str) -> None:
    members = [
        Member("n9"),
        Member("n10", started_ms=-1),
        Member("n1", priority=5, started_ms=-2),
        Member("n2", started_ms=3),
    ]
    made = Cluster(kind, members, options=RankOptions(rank=order))
    made.settle(settle_ms(LAN, 4))
    assert made.leader() == first
    made.crash(first)
    made.settle(settle_ms(LAN, 4))
    assert made.leader() == second


def test_spans() -> None:
    assert wait_ms(LAN) == 500
    assert wait_ms(RANK_PROFILES["ghoti"]) == 4000, "its 3 s would end just before the announcement"
    assert patience_max_ms(LAN, 50) > patience_max_ms(LAN)
    assert settle_ms(LAN) <= 5000
    assert settle_ms(LAN, 20) < 20_000


def test_ranking_leaves_out_only_others_and_keeps_kinds() -> None:
    members = [Member("a"), Member("b"), Member("w", Kind.WITNESS)]
    ranking = Ranking("a", Membership.of(members), "id", 100)
    ranking.told_pruned("b", ("a", "b", "w", "zz"))
    assert ranking.pruned == ("w",)
    assert ranking.has_majority(0) is False
    ranking.note(5, "b")
    assert ranking.has_majority(105)
    assert ranking.alive(106) == ("a",)
    assert ranking.changed((("a", 0, 0), ("w", 0, 0)), 3)
    assert ranking.leaders == ("a",)
    assert ranking.highest_live(6) == ""
    assert not ranking.changed((), 2)
    assert Ranking("x", Membership.of(members), "id", 100).eligible is False


# --- lives ------------------------------------------------------------------------------------------------------------


def bad_conditions(made: Cluster, chance: Random) -> None:
    """One more thing goes wrong, or gets better."""
    names, up = made.names, sorted(set(made.machines) - set(made.asleep))
    match chance.randrange(10):
        case 0:
            made.loss = chance.choice([0, 0.1, 0.3, 0.6])
        case 1:
            side = chance.randrange(1, len(names))
            shuffled = chance.sample(names, len(names))
            made.cut(" ".join(shuffled[:side]), " ".join(shuffled[side:]))
        case 2:
            made.cut(*chance.sample(names, 2), one_way=True)
        case 3:
            made.heal()
        case 4 if len(up) > 1:
            made.crash(chance.choice(up))
        case 5:
            for name in [name for name in names if name not in made.machines][:1]:
                made.start(name)
        case 6 if up:
            made.sleep(chance.choice(up))
        case 7 if made.asleep:
            made.wake(chance.choice(sorted(made.asleep)))
        case 8:
            slowest = chance.choice([2, 40, 300])
            made.delay = lambda: chance.choice([1, 1, 1, chance.randrange(1, slowest), 5000 if slowest == 300 else 1])
        case 9 if up:
            orders = [Pause(), Resume(), Health(False), Health(True), StepDown(), StepDown(chance.choice(names))]
            made.give(chance.choice(up), chance.choice(orders))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", ["lan", "lab", "ghoti", "hecaton"])
@pytest.mark.parametrize("seed", range(6 if QUICK else 24))
def test_after_any_conditions_one_leader_remains_and_stays(kind: type[Machine], profile: str, seed: int) -> None:
    timing, chance = RANK_PROFILES[profile], Random(f"{profile} {seed}")
    count = (2, 3, 4, 5, 7, 12)[seed % 6]
    made = Cluster(kind, [f"n{index:02d}" for index in range(count)], seed=seed, timing=timing)
    for _ in range(chance.randrange(3, 15)):
        bad_conditions(made, chance)
        made.run(chance.randrange(1, 3 * timing.heartbeat_ms * timing.misses))
    made.loss, made.delay = 0.0, lambda: chance.randrange(1, 5)
    made.heal()
    for name in sorted(made.asleep):
        made.wake(name)
    for name in made.names if seed % 2 else sorted(made.machines):
        if name not in made.machines:
            made.start(name)
        made.give(name, Resume())
        made.give(name, Health(True))
    made.run(5000)  # the latest message of the bad times
    made.settle(settle_ms(timing, count if kind is RingStrategy else 0))
    leader = made.leader()
    made.forget()
    made.run(20 * timing.heartbeat_ms)
    assert made.leader() == leader
    assert made.codes() == []
    assert list(made.working) == [leader]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5 if QUICK else 20))
def test_broken_nodes_leave_a_healthy_core_in_peace(kind: type[Machine], seed: int) -> None:
    """Deaf, mute, cut off, dead or stopped for good: the rest agrees on one of its own and stays with it."""
    chance = Random(seed)
    count = (3, 4, 5, 7, 10)[seed % 5]
    made = Cluster(kind, [f"n{index:02d}" for index in range(count)], seed=seed)
    made.run(chance.randrange(2000))
    core = sorted(chance.sample(made.names, count // 2 + 1))
    for name in [name for name in made.names if name not in core]:
        rest = " ".join(other for other in made.names if other != name)
        match chance.choice(["deaf", "mute", "cut", "dead", "stopped"]):
            case "deaf":
                made.cut(rest, name, one_way=True)
            case "mute":
                made.cut(name, rest, one_way=True)
            case "cut":
                made.cut(name, rest)
            case "dead":
                made.crash(name)
            case "stopped":
                made.sleep(name)
    made.run(2 * settle_ms(LAN, count))
    for _ in range(100):
        made.run(50)
        believed = {made.machines[name].leader for name in core}
        assert len(believed) == 1
        assert believed <= set(core)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_is_one_history(kind: type[Machine]) -> None:
    def history() -> list[Any]:
        made = Cluster(kind, "a b c d e", seed=3)
        chance = Random(3)
        for _ in range(20):
            bad_conditions(made, chance)
            made.run(300)
        return made.effects

    assert history() == history()


# --- anything from the wire -------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d", "o", "", "zz", "n" * 300])
numbers = st.one_of(st.integers(-2, 5), st.sampled_from([2**31, 2**53, 2**70, -(2**70)]))
origins = st.builds(Origin, names, numbers, numbers, st.just(""), numbers)
anything = st.one_of(
    st.builds(messages.Election, origins, numbers),
    st.builds(messages.Okay, origins, numbers),
    st.builds(messages.Unable, origins, numbers),
    st.builds(messages.Coordinator, origins, numbers, st.lists(names, max_size=4).map(tuple)),
    st.builds(messages.HeartbeatRequest, origins, numbers),
    st.builds(messages.Alive, origins, numbers, st.none() | names, numbers, st.booleans()),
    st.builds(messages.Handover, origins, names),
    st.builds(messages.Baton, origins, names, numbers, names, numbers),
    st.builds(messages.BatonTaken, origins, names, numbers),
    st.builds(messages.Won, origins, names, numbers),
    st.builds(messages.Query, origins, st.booleans()),
)
lists = st.lists(st.tuples(names, st.integers(0, 3), st.integers(0, 3)), max_size=5).map(tuple)
things = st.one_of(
    st.builds(inputs.Received, anything),
    st.builds(inputs.Received, anything),
    st.builds(inputs.Received, anything),
    st.just(inputs.DeadlinePassed()),
    st.builds(inputs.Unanswered, names),
    st.builds(inputs.WorkStarted, numbers),
    st.builds(inputs.WorkGone, numbers),
    st.builds(inputs.GuardLost, numbers),
    st.builds(inputs.RunLock, st.booleans()),
    st.builds(inputs.StepDown, names),
    st.sampled_from([Pause(), Resume(), Started(), inputs.PersistFailed(), inputs.Shutdown(), inputs.Rejoin()]),
    st.builds(inputs.Health, st.booleans()),
    st.builds(inputs.MembersChanged, lists, st.integers(0, 9)),
)


class Answering:
    """Answers what a machine asked with its own numbers, so that random lives get beyond their first look."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def __call__(self, effects: list[Effect]) -> list[inputs.Input]:
        answers: list[inputs.Input] = []
        for effect in effects:
            if isinstance(effect, Send) and self.chance.random() < 0.5:
                origin = Origin(effect.to)
                match effect.message:
                    case messages.HeartbeatRequest(_, number):
                        leader = self.chance.choice([None, "", effect.to, "a"])
                        answers.append(inputs.Received(messages.Alive(origin, number, leader, 2)))
                    case messages.Election(_, number):
                        answers.append(
                            inputs.Received(self.chance.choice([messages.Okay, messages.Unable])(origin, number))
                        )
                    case messages.Baton(_, starter, number, best, hops):
                        answers.append(inputs.Received(messages.BatonTaken(origin, starter, number)))
                        answers.append(inputs.Received(messages.Baton(origin, starter, number, best, hops)))
            elif isinstance(effect, Stop):
                answers.append(inputs.WorkGone(effect.term))
        return answers


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 40, 200, 5000]), things), max_size=60),
    st.sampled_from(["a", "b", "d", "o"]),
    st.builds(RankOptions, st.just("natural"), st.booleans(), st.sampled_from([0, 500]), st.booleans(), st.booleans()),
    st.integers(0, 99),
)
def test_no_input_breaks_a_machine(
    kind: type[Machine], trial: list[tuple[int, inputs.Input]], node: str, options: RankOptions, seed: int
) -> None:
    machine = kind(seat(node, ["a", "b", "c", "d", Member("o", Kind.OBSERVER)]), LAN, options)
    answering = Answering(Random(seed))
    now_ms = 0
    started: list[int] = []

    def step(given_now: inputs.Input) -> list[Effect]:
        effects = machine.step(now_ms, given_now)
        assert all(isinstance(effect, Send | Start | Stop | Record) for effect in effects)
        started.extend(effect.leadership.term for effect in effects if isinstance(effect, Start))
        return effects

    step(Started())
    for span_ms, thing in trial:
        now_ms += span_ms
        queue = [thing]
        for _ in range(4):
            queue = answering([effect for given_now in queue for effect in step(given_now)])
        if machine.deadline_ms is not None and isinstance(thing, inputs.DeadlinePassed):
            now_ms = max(now_ms, machine.deadline_ms)
            step(thing)
            assert machine.deadline_ms is None or machine.deadline_ms > now_ms, "no turning on the spot"
        assert machine.deadline_ms is None or type(machine.deadline_ms) is int
        assert (machine.role is Role.LEADER) == (machine.leader == node)
        assert machine.leader == "" or machine._state.ranking.may_lead(machine.leader)
        assert machine.role is not Role.LEADER or started[-1] == machine._state.led
        assert started == sorted(set(started))
        view = machine.view(now_ms)
        assert view.term >= 0
        assert set(view.alive) <= {*machine._state.ranking.place, node}


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_bounded(kind: type[Machine]) -> None:
    made = Cluster(kind, "a b")
    machine = made.machines["a"]
    machine.step(1, MembersChanged(tuple((f"n{index}", 0, 0) for index in range(5000))))
    assert len(machine._state.ranking.place) == 1024
