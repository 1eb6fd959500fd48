"""Placement machines in a world of lost and late gossip: what is judged when all is calm, and planted defects.

Each mutant is a machine with one planted defect; the checker of its rule must notice it, else it shows nothing. The
seeds that it is shown first are those that were found to show it; others follow.
"""

from __future__ import annotations

import os

import pytest

from primacy.sim.placement.trial import KINDS, Trial
from tests.support.mutants_placement import CAUGHT_BY, FIRST_SEEDS, planted

TRIALS = 24 if os.environ.get("PRIMACY_SIZE") == "quick" else 120
PART = 12
SEEDS_MAX = 120


@pytest.mark.parametrize("first", range(0, TRIALS, PART))
def test_when_all_is_calm_each_election_is_led_where_it_should_be(first: int) -> None:
    for seed in range(first, first + PART):
        assert not Trial(seed).violations(), seed


def test_one_seed_is_one_history() -> None:
    assert Trial(4).run() == Trial(4).run()


def test_every_kind_of_trial_is_drawn() -> None:
    assert {Trial(seed).kind for seed in range(PART)} == set(KINDS)


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_planted_defect_is_noticed(name: str) -> None:
    with planted(name) as make:
        for seed in (FIRST_SEEDS[name], *range(SEEDS_MAX)):
            found = Trial(seed, make).violations()
            if any(each.startswith(CAUGHT_BY[name]) for each in found):
                return
    pytest.fail(f"{name} was not noticed by {CAUGHT_BY[name]}")
