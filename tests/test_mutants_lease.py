"""Every rule of the lease that is taken out is noticed: a check that cannot fail would prove nothing."""

from __future__ import annotations

import pytest

from mutants_lease import LEASE_MUTANTS, LeaseMutant, recorded


@pytest.mark.parametrize("mutant", LEASE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_rule_taken_out_is_caught(mutant: LeaseMutant) -> None:
    """Where others mask it: of a weakened base that is safe on the same seed."""
    seeds = recorded()[mutant.name]
    assert seeds, "no seed is recorded: python -m tests.mutants_lease"
    caught = [seed for seed in seeds if mutant.is_caught(seed)]
    assert caught, f"seeds {seeds} no longer catch it; if draws changed: python -m tests.mutants_lease"


def test_the_recorded_seeds_are_those_of_the_table() -> None:
    assert list(recorded()) == [mutant.name for mutant in LEASE_MUTANTS]
