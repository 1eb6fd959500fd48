"""Nodes that change their strategy, their store and their times, one after the other (M1): no promise is broken."""

from __future__ import annotations

import os

import pytest

from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.trials.batch import run_or_raised
from primacy.sim.trials.changed import ChangedTrial
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.shrink import command
from primacy.sim.trials.trial import Plan
from primacy.sim.world import engines
from tests.support.mutants_changes import MUTANTS, Mutant, Unasked, caught, on_lease

QUICK = os.environ.get("PRIMACY_SIZE", "quick") == "quick"
CHUNK = 10
TRIALS = ((3, 40), (5, 20), (2, 10), (4, 10), (1, 10))
FOUND = ((3, 2592), (3, 1261), (3, 1435), (4, 2123))
"""Trials that broke something once: a first start that was not written down; terms far below the tokens of a lease; a
first ballot under other times that nobody used; a wait that the operator was told to end."""


def _plan(nodes: int) -> Plan:
    return Plan("raft", nodes, "lan", 2.0, changes=True)


def _chunks() -> list[tuple[int, range]]:
    return [
        (nodes, range(first, first + (2 if QUICK else CHUNK)))
        for nodes, count in TRIALS
        for first in range(0, 2 if QUICK else count, CHUNK)
    ]


@pytest.mark.parametrize(("nodes", "seeds"), _chunks(), ids=str)
def test_M1_no_trial_with_changing_files_breaks_a_promise(nodes: int, seeds: range) -> None:
    outcomes = [run_or_raised(_plan(nodes), seed) for seed in seeds]
    broken = [f"seed {outcome.seed}: {violation}" for outcome in outcomes for violation in outcome.violations[:1]]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("nodes", "seed"), FOUND)
def test_M1_what_a_trial_has_found_stays_mended(nodes: int, seed: int) -> None:
    class AsFound(ChangedTrial):
        machines = (RaftStrategy, on_lease(Unasked))
        drawn = staticmethod(engines.drawn_first)

    assert AsFound(_plan(nodes), seed).run().violations == []


@pytest.mark.parametrize(("nodes", "seed"), [(3, 3), (2, 340)])
def test_T2_a_token_that_one_node_has_seen_may_be_millions_above_the_terms(nodes: int, seed: int) -> None:
    """An operator's `lease break` writes a token by the clock, one node sees it half-way to the lease, and all go back
    to raft. In the first of these all have heard of it but did not believe such a term, and elected without end; in the
    second the other one has not, and nobody ever led."""
    assert run_or_raised(_plan(nodes), seed).violations == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_M1_taken_out_is_caught(mutant: Mutant) -> None:
    assert caught(mutant) in mutant.rules


def test_M1_files_are_changed_and_everybody_comes_back() -> None:
    outcomes = [run_or_raised(_plan(3), seed) for seed in range(4)]
    assert all(outcome.faults["changed"] for outcome in outcomes)
    assert all(outcome.starts for outcome in outcomes)
    assert any("changed times reported by all" in outcome.rare for outcome in outcomes)


def test_the_same_seed_is_the_same_trial_and_a_command_runs_it_again() -> None:
    trial = trial_of(_plan(3), 7)
    assert isinstance(trial, ChangedTrial)
    assert trial.run().trace_hash == trial_of(_plan(3), 7).run().trace_hash
    assert command(_plan(3), 7) == "primacy simulate --strategy raft --nodes 3 --changes --seed 7"
