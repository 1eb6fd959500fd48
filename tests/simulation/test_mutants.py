"""Every rule that is taken out is noticed: a check that cannot fail would prove nothing."""

from __future__ import annotations

import pytest

from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan
from tests.support.mutants import MUTANTS, SAFETY, Mutant, only, raft, recorded
from tests.support.mutants_raft import Eager, LocklessGuard, NoPromise

pytestmark = pytest.mark.later


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.key)
def test_a_planted_defect_is_caught(mutant: Mutant) -> None:
    seeds = recorded()[mutant.key]
    assert seeds, "no seed is recorded: python -m tests.support.mutants"
    caught = [seed for seed in seeds if mutant.caught(mutant.run(seed))]
    assert caught, (
        f"seeds {seeds} no longer catch it; if the simulator's draws changed: python -m tests.support.mutants"
    )


def test_the_recorded_seeds_are_those_of_the_table() -> None:
    assert list(recorded()) == [mutant.key for mutant in MUTANTS]


@pytest.mark.parametrize("base", [NoPromise, Eager])
@pytest.mark.parametrize("seed", range(30))
def test_the_base_without_promise_is_still_safe(base: type, seed: int) -> None:
    """Q5 alone keeps the promise of at most one; Q4 only spares its waiting."""
    plan = Plan("raft", 3, "lab", 1.0) if seed % 2 else only("freeze", "partition", "clock", "lag", "crash-agent")
    trial = trial_of(plan, seed, raft(base))
    trial.world.conditions.slow_kill = 1.0
    broken = [violation for violation in trial.run().violations if violation.rule in SAFETY]
    assert not broken


@pytest.mark.parametrize("seed", range(30))
def test_the_base_whose_guards_take_no_lock_is_still_safe(seed: int) -> None:
    """Q6 alone keeps a second tree away from one that is still dying; G3 says it once more."""
    trial = trial_of(only("freeze", "crash-agent", "stall", "child", nodes=1 + seed % 3), seed)
    trial.world.guard_class = LocklessGuard
    trial.world.conditions.slow_kill = 1.0
    broken = [violation for violation in trial.run().violations if violation.rule in SAFETY]
    assert not broken
