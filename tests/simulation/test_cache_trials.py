"""Trials of the cache: nothing is violated by the machine, and what must be caught is caught."""

from __future__ import annotations

import os

import pytest

from primacy.sim.cache.batch import command
from primacy.sim.cache.faults import CLASSES
from primacy.sim.cache.trial import CachePlan, CacheTrial
from tests.support.cache_bad_machine import EverybodyFetches, FirstFetches, simple
from tests.support.mutants_cache import CACHE_MUTANTS
from tests.support.mutants_cache_trials import MANY, SmallTerms, caught, recorded, run

SEEDS = 12 if os.environ.get("PRIMACY_SIZE") == "quick" else 60


HUNDREDS = CachePlan(peers=5, keys=200)
ONCE_BROKEN = (67, 169, 179, 269)
"""Beyond the first ones: an invalidation that ended twice; terms after two waves of starts without memory."""


@pytest.mark.parametrize("seed", [*range(SEEDS), *ONCE_BROKEN])
def test_nothing_is_violated(seed: int) -> None:
    trial = CacheTrial(CachePlan(), seed)
    violations = trial.run().violations
    assert not violations, f"{command(CachePlan(), seed)}: {violations[0]}"


@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_nothing_is_violated_where_many_keys_are_fetched_at_once(seed: int) -> None:
    outcome = CacheTrial(MANY, seed).run()
    assert not outcome.violations, f"{MANY}, seed {seed}: {outcome.violations[0]}"


@pytest.mark.later
@pytest.mark.parametrize("seed", [0, 6])
def test_nothing_is_violated_with_hundreds_of_keys(seed: int) -> None:
    """Seeds whose trials end soon: peers and their sources crash, are cut off, are late and freeze."""
    outcome = CacheTrial(HUNDREDS, seed).run()
    assert not outcome.violations, f"{HUNDREDS}, seed {seed}: {outcome.violations[0]}"
    assert outcome.starts > 500


# --- the world --------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_history() -> None:
    first, second = (CacheTrial(CachePlan(), 7, simple()).run() for _ in range(2))
    assert first.trace_hash == second.trace_hash
    assert first == second
    assert CacheTrial(CachePlan(), 8, simple()).run().trace_hash != first.trace_hash


def test_a_class_less_leaves_the_draws_of_the_others_as_they_were() -> None:
    """So a failing trial can be made small."""
    alone = CacheTrial(CachePlan(faults=("clock",), draw=False, peers=3), 3, simple()).run().faults["clock"]
    both = CacheTrial(CachePlan(faults=("clock", "wall"), draw=False, peers=3), 3, simple()).run().faults["clock"]
    assert alone == both > 0


def test_every_class_of_faults_strikes() -> None:
    struck: dict[str, int] = {}
    for seed in range(12):
        for name, count in CacheTrial(CachePlan(draw=False), seed, simple()).run().faults.items():
            struck[name] = struck.get(name, 0) + count
    assert set(struck) >= set(CLASSES)


def test_peers_that_all_fetch_are_caught() -> None:
    rules = {rule for seed in range(5) for _, rule, _ in CacheTrial(CachePlan(), seed, everybody()).run().violations}
    assert {"S1", "S4"} <= rules


def test_one_peer_that_fetches_alone_overlaps_nobody() -> None:
    plan = CachePlan(faults=tuple(name for name in CLASSES if name != "reload"))
    for seed in range(10):
        broken = {rule for _, rule, _ in CacheTrial(plan, seed, simple(FirstFetches)).run().violations}
        assert "S1" not in broken


def everybody():
    return simple(EverybodyFetches)


def test_hundreds_of_keys() -> None:
    outcome = CacheTrial(CachePlan(peers=5, keys=300, seconds=3.0, faults=("lossy",)), 1, simple()).run()
    assert outcome.starts > 100


# --- planted defects --------------------------------------------------------------------------------------------------


@pytest.mark.later
@pytest.mark.parametrize("name", [name for name, known in recorded().items() if known])
def test_a_planted_defect_is_caught_at_random(name: str) -> None:
    base, seed, rules = recorded()[name]
    defect = next(mutant.machine for mutant in CACHE_MUTANTS if mutant.name == name)
    assert set(caught(defect, base, seed)) & set(rules), (
        "if the draws changed: python -m tests.support.mutants_cache_trials"
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_base_with_small_terms_breaks_nothing(seed: int) -> None:
    assert not run(SmallTerms, "small terms", seed).violations
