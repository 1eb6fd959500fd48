"""Fault plans of trials that once violated a rule: lived again, whatever the draws are by now.

Each file in `data/plans` was written from the seed in its name, on the machines that violated the rule it names.
Replayed on those machines, each of them shows the violation with `streams=0`, event by event as recorded, and with
every number in its `streams`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from primacy.election.messages import Origin, Stale
from primacy.sim.facts import Fact, Kind
from primacy.sim.trials.raft import RaftTrial, trial_of
from primacy.sim.trials.replay import FaultPlan, Replayed, read, record
from primacy.sim.trials.trial import Plan, Trial

pytestmark = pytest.mark.later

PLANS = {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "plans").glob("*.json"))}

EXPECTED_TO_VIOLATE: frozenset[str] = frozenset()
"""Not mended yet. Whoever mends one strikes it off: the test fails when a plan in this list violates nothing."""

MORE_STREAMS = range(101, 105)
"""A mended plan must hold with other draws of the network, too."""


def _violations(plan: FaultPlan, streams: int) -> list[str]:
    return [f"streams {streams}: {violation}" for violation in Replayed(plan, streams).run().violations[:1]]


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_once_violated_a_rule_does_not_any_more(name: str) -> None:
    plan = read(PLANS[name])
    if name in EXPECTED_TO_VIOLATE:
        violated = any(_violations(plan, streams) for streams in (0, *plan.streams))
        assert violated, f"{name} violates nothing any more: strike it off EXPECTED_TO_VIOLATE"
        return
    broken = [told for streams in (0, *plan.streams, *MORE_STREAMS) for told in _violations(plan, streams)]
    assert not broken, "\n".join(broken)


def test_all_named_plans_are_there() -> None:
    assert len(PLANS) == 32
    assert set(PLANS) >= EXPECTED_TO_VIOLATE
    assert all(read(path).acts and len(read(path).streams) == 3 for path in PLANS.values())


# --- what a plan binds ------------------------------------------------------------------------------------------------


def _facts(trial: Trial) -> list[Fact]:
    facts: list[Fact] = []
    trial.world.listeners.append(facts.append)
    trial.run()
    return facts


@pytest.mark.parametrize("seed", range(12))
def test_on_the_machines_that_it_was_recorded_with_a_plan_is_the_recorded_trial(seed: int, tmp_path: Path) -> None:
    plan = Plan("raft", (3, 4, 5, 7)[seed % 4], ("lan", "fast", "wan")[seed % 3], 1.0)
    file = tmp_path / "plan.json"
    record(plan, seed).write(file)
    assert _facts(Replayed(read(file))) == _facts(trial_of(plan, seed))


def _unmarked(trial: Trial) -> list[Fact]:
    """Without the marks of faults: one that ends may be told before or after what follows in the same moment."""
    return [fact for fact in _facts(trial) if fact.kind not in (Kind.FAULT, Kind.CALM)]


@pytest.mark.parametrize(("nodes", "seed"), [(3, 4), (5, 1), (4, 7), (1, 2), (2, 1)])
def test_so_it_is_where_members_change(nodes: int, seed: int, tmp_path: Path) -> None:
    plan = Plan("raft", nodes, ("lab", "lan")[seed % 2], 1.0, members_change=True)
    file = tmp_path / "plan.json"
    record(plan, seed).write(file)
    facts = _unmarked(Replayed(read(file)))
    assert facts == _unmarked(RaftTrial(plan, seed))
    assert any(fact.kind is Kind.REGISTER for fact in facts)


def test_what_is_gone_for_good_is_in_a_plan() -> None:
    plan = Plan("raft", 3, "lab", 1.0, ("members", "force"), draw=False, members_change=True)
    written = record(plan, 3)
    assert {"destroy", "force_members"} <= {act[1] for act in written.acts}
    assert _unmarked(Replayed(written)) == _unmarked(RaftTrial(plan, 3))


def test_a_replay_draws_nothing_about_faults() -> None:
    trial = Replayed(record(Plan("raft", 5, "lan", 1.0), 7))
    before = (trial.chance.getstate(), trial.faults.chance.getstate())
    trial.run()
    assert (trial.chance.getstate(), trial.faults.chance.getstate()) == before


def test_what_is_said_on_one_way_does_not_change_the_draws_of_another() -> None:
    """One message more, and everything else arrives as before."""
    plan = record(Plan("raft", 3, "lan", 1.0, faults=(), draw=False), 3)
    alike, other = (Replayed(plan, 1) for _ in range(2))
    other.world.send(other.world.nodes["n1"], "n2", Stale(Origin("n1"), 0, 0))  # n2 is not up yet
    ways: list[dict[tuple[str, str, str], list[float]]] = [{}, {}]
    for trial, seen in zip((alike, other), ways, strict=True):
        trial.world.watches_messages = lambda _, a, b, message, delay_ms, seen=seen: seen.setdefault(
            (a, b, type(message).__name__), []
        ).append(delay_ms)
        trial.world.run(20_000)
    assert len(ways[0]) > 6
    assert ways[0] == ways[1]


def test_two_machines_with_one_id_draw_apart() -> None:
    world = Replayed(record(Plan("raft", 3, "lan", 1.0), 3), 1).world
    first, second = world.chance_of("n1", "boot 1"), world.chance_of("n1", "boot 1")
    assert first.random() != second.random()
