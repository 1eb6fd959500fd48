"""Lives of clusters: no violation in thousands, the same history for the same seed, and nothing rare left untried."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from primacy.sim.trials.batch import run_or_raised
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan, Trial

SIZE = os.environ.get("PRIMACY_SIZE", "quick")
SHARE = {"quick": 20, "test": 1, "proof": 1}[SIZE]
"""The quick size has a twentieth of the trials, and two of each plan at least."""
CHUNK = 20
"""Lives per test: enough to keep two workers busy evenly."""

TRIALS: tuple[tuple[Plan, int], ...] = (
    (Plan("raft", 3), 240),
    (Plan("raft", 4), 140),
    (Plan("raft", 5), 240),
    (Plan("raft", 7), 100),
    (Plan("raft", 1, "lab", 1.0), 40),
    (Plan("raft", 2, "lab", 1.0), 40),
    (Plan("raft", 2, "lan", 2.0, faults=("crash-agent", "one-way", "partition", "duplicate"), draw=False), 40),
    (Plan("raft", 3, "lab", 1.0), 100),
    (Plan("raft", 5, "lab", 1.0), 60),
    (Plan("raft", 5, "lan", 2.0, faults=()), 40),
    (Plan("lease", 5, "lan", 2.0, faults=()), 40),
    (Plan("bully", 5, "lan", 2.0, faults=()), 40),
    (Plan("ring", 5, "lan", 2.0, faults=()), 40),
    (Plan("raft", 3, "lab", 1.0, deferred=0.7), 60),
    (Plan("raft", 5, "lab", 1.0, deferred=0.3), 20),
    (Plan("lease", 3, "lab", 1.0, deferred=0.7), 40),
    (Plan("lease", 3), 200),
    (Plan("lease", 4), 100),
    (Plan("lease", 5), 100),
    (Plan("lease", 7), 60),
    (Plan("lease", 3, "lab", 1.0), 60),
    (Plan("bully", 3), 140),
    (Plan("bully", 4), 80),
    (Plan("bully", 5), 80),
    (Plan("bully", 7), 60),
    (Plan("bully", 20, "lan", 1.0), 20),
    (Plan("ring", 3), 140),
    (Plan("ring", 4), 80),
    (Plan("ring", 5), 80),
    (Plan("ring", 7), 60),
    (Plan("ring", 20, "lan", 1.0), 20),
)


def _chunks() -> list[tuple[Plan, range]]:
    chunks = []
    for plan, count in TRIALS:
        trials = max(2, count // SHARE)
        chunks += [(plan, range(first, min(first + CHUNK, trials))) for first in range(0, trials, CHUNK)]
    return chunks


def _name(chunk: object) -> str:
    if isinstance(chunk, Plan):
        return f"{chunk.strategy}-{chunk.nodes}-{chunk.profile}"
    return f"{chunk.start}-{chunk.stop - 1}" if isinstance(chunk, range) else str(chunk)


def test_there_are_two_thousand_trials() -> None:
    assert sum(count for _, count in TRIALS) >= 2_000


@pytest.mark.parametrize(("plan", "seeds"), _chunks(), ids=_name)
def test_no_trial_breaks_a_promise(plan: Plan, seeds: range) -> None:
    broken = []
    for seed in seeds:
        outcome = run_or_raised(plan, seed)
        broken += [f"seed {seed}: {violation}" for violation in outcome.violations[:1]]
    assert not broken, "\n".join(broken)


RARE = {
    "raft": (
        "winner with a start delay",
        "voter refused within its promise",
        "release shortened a failover",
        "release refused: a newer term was acked",
        "two boots of one id",
        "ack of an old heartbeat came late",
        "higher term deposed a leader",
        "voter ahead made the leader step down",
        "split vote",
        "lost memory healed",
        "changed times made a node recover",
        "change of members done",
        "members forced by an operator",
        "ballot could not be saved",
    ),
    "lease": (
        "store answer lost after the write",
        "observation restarted by another server",
        "release shortened a failover",
    ),
    "bully": ("crossed coordinators", "winner dead before its announcement"),
    "ring": ("baton lost", "winner dead before its announcement"),
}


@pytest.mark.later
@pytest.mark.parametrize("strategy", RARE)
def test_rare_situations_are_not_left_to_chance(strategy: str) -> None:
    """One that never comes would mean that the lives prove less than they seem to."""
    missing = set(RARE[strategy])
    for seed in range(1_000, 1_400 if strategy == "raft" else 1_120):
        rare = run_or_raised(Plan(strategy, 3 if seed % 4 else 5), seed).rare
        missing -= {name for name, count in rare.items() if count}
        if not missing:
            break
    assert not missing, f"never seen: {sorted(missing)}"


def test_lost_memory_is_not_always_healed() -> None:
    """Two voters without memory wait for an operator (R9): the lives must meet that, too."""
    plan = Plan("raft", 5, "lan", 2.0, ("memory", "partition", "one-way", "swizzle"), draw=False)
    assert any(run_or_raised(plan, seed).rare.get("members renewed by an operator") for seed in range(60))


HISTORY = """
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Plan
for strategy in ("raft", "lease", "bully", "ring"):
    for seed in (3, 4):
        print(strategy, seed, trial_of(Plan(strategy, 5, "lab", 1.0), seed).run().trace_hash)
"""


@pytest.mark.later
def test_one_seed_is_one_history_under_any_hash_seed() -> None:
    told = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", HISTORY], env=environment, check=True, capture_output=True, text=True
        )
        told.add(done.stdout)
    assert len(told) == 1


def test_other_seeds_are_other_histories() -> None:
    hashes = {trial_of(Plan("raft", 3, "lab", 1.0), seed).run().trace_hash for seed in range(5)}
    assert len(hashes) == 5


# --- the control: checkers that could not fail would show nothing -----------------------------------------------------

CONTROL_SEEDS = 100
TOO_FAST, ALLOWED = 0.03, 0.01


def _overlapping(strategy: str, drift: float, seeds: range, enough: int) -> list[int]:
    """The first seeds with two at work at once."""
    found: list[int] = []
    for seed in seeds:
        if len(found) < enough and run_or_raised(Plan(strategy, 5, drift=drift), seed).overlaps:
            found.append(seed)
    return found


@pytest.mark.parametrize("strategy", ["raft", "lease"])
def test_F28_clocks_beyond_the_allowance_make_overlaps_and_clocks_within_it_make_none(strategy: str) -> None:
    """The same seeds, with the same blows aimed at the same moments: only the clocks differ."""
    enough = {"quick": 1, "test": 3, "proof": CONTROL_SEEDS}[SIZE]
    found = _overlapping(strategy, TOO_FAST, range(CONTROL_SEEDS), enough)
    assert len(found) >= min(enough, 8)
    seeds = range(CONTROL_SEEDS) if SIZE == "proof" else found
    classes = ("aimed", "clock", "extremes", "freeze", "lag")
    for seed in seeds:
        for plan in (Plan(strategy, 5, drift=ALLOWED), Plan(strategy, 5, drift=ALLOWED, faults=classes, draw=False)):
            assert not run_or_raised(plan, seed).violations, seed


def test_F28_extremes_are_drawn_within_the_allowance_too() -> None:
    drawn = [run_or_raised(Plan("raft", 3, "lan", 1.0), seed).faults.get("extremes", 0) for seed in range(20)]
    assert sum(1 for count in drawn if count) >= 3


# --- beyond what is promised: where a rule holds all the same, and where physics ends ---------------------------------

LONE = Plan("raft", 3, "lan", 2.0, ("memory", "partition", "members", "duplicate"), draw=False)
FORGETFUL = Plan("raft", 3, "lan", 2.0, ("clock", "crash-agent", "freeze", "memory", "partition"), draw=False)


def _rules(plan: Plan, seeds: range) -> list[set[str]]:
    return [{violation.rule for violation in run_or_raised(plan, seed).violations} for seed in seeds]


def test_F37_a_single_voter_that_is_doubled_is_beyond_any_rule() -> None:
    """It is expected, and found: nobody hears both machines. Where it only forgets, nothing is violated (R9)."""
    seeds = range(30)
    beyond = _rules(replace(LONE, beyond=("lone",)), seeds)
    assert any("I1" in rules for rules in beyond)
    assert any("I4" in rules for rules in beyond)
    forgets = replace(LONE, beyond=("lone",), faults=("memory", "partition", "members"))
    assert not any(_rules(forgets, seeds))
    assert not any(_rules(LONE, seeds))


def test_F37_if_all_forget_there_is_still_one_at_work_at_a_time() -> None:
    """Only what tokens there were is lost with the memories, and wall clocks may not exceed it (T1)."""
    seeds = range(4 if SIZE == "quick" else 40)
    plan = replace(FORGETFUL, beyond=("forgetful",))
    assert not [rules for rules in _rules(plan, seeds) if rules - {"I4"}]
    lost = [run_or_raised(plan, seed).faults.get("memory", 0) for seed in seeds]
    assert max(lost) >= 3


# --- what is judged after the calm, and where nothing goes wrong ------------------------------------------------------


def _grow_slow(trial: Trial) -> None:
    """From a moment on every message takes longer than a hold."""

    def slow() -> None:
        trial.world.conditions.delay_min_ms = 2 * trial.unit_ms

    trial.world.at(20_000, slow)


def test_a_leader_that_is_lost_although_nothing_is_wrong_is_a_violation() -> None:
    """P5: a network that is too slow for its times, which no fault excuses."""
    trial = trial_of(Plan("raft", 3, "lan", 1.0, faults=()), 3)
    _grow_slow(trial)
    assert "P5" in [violation.rule for violation in trial.run().violations]


def test_a_leader_that_is_lost_during_faults_is_counted_and_not_judged() -> None:
    trial = trial_of(Plan("raft", 3, "lan", 1.0), 3)
    _grow_slow(trial)
    trial.outcome.classes = ("lossy",)
    trial.world.run(30_000)
    assert trial.outcome.needless > 0
    assert "P5" not in [violation.rule for violation in trial.outcome.violations]


def test_a_message_that_was_held_back_is_trouble_when_it_arrives() -> None:
    """P5: else a node that follows the late heartbeat of a leader that has resigned is held against it."""
    trial = trial_of(Plan("raft", 3, "lan", 1.0, faults=()), 3)
    trial.outcome.classes = ("hold-back",)
    trial.world.run(10 * trial.unit_ms)
    assert trial._is_quiet_for("n1")
    trial.faults.acts.hold_back("n2")
    trial.world.run(trial.world.now + trial.unit_ms)
    assert trial._is_quiet_for("n1"), "for nothing of it has arrived"
    trial.faults.acts.let_go("n2", [trial.unit_ms])
    for units in (1, 2, 3):
        assert not trial._is_quiet_for("n1"), units
        trial.world.run(trial.world.now + trial.unit_ms)
    trial.world.run(trial.world.now + 2 * trial.unit_ms)
    assert trial._is_quiet_for("n1")


def test_each_trial_says_whether_its_leader_came_within_the_bound_itself() -> None:
    outcome = run_or_raised(Plan("raft", 3, "lan", 1.0, faults=()), 3)
    assert outcome.within_bound is True
    trial = trial_of(Plan("raft", 3, "lan", 1.0), 3)
    trial.liveness.bound_ms = 0.5 * trial.liveness.bound_ms
    trial.liveness.calm_ms, trial.liveness.leader_after_ms = 0.0, 1.2 * trial.liveness.bound_ms
    trial._judge_liveness()
    assert trial.outcome.within_bound is False
