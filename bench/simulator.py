"""How fast the simulator is beside a bare event loop of the same event rate, and whether history slows it down.

Rounds of both alternate, so that a busy machine slows both; times are those of the processor, not of the wall clock.
"""

from __future__ import annotations

from statistics import median
from time import process_time
from typing import NamedTuple

from bench import bare
from primacy.sim.trials.raft import run_trial, trial_of
from primacy.sim.trials.trial import Plan

PLAN = Plan("raft", 5, "lan")
"""What the bound is stated for: faults and checkers on, as `primacy simulate` runs."""
HEARTBEAT_MS = 250.0
RATIO_LEAST = 0.15
GOAL_PER_S = 1_500
"""Simulated seconds per second and core."""
GROWTH_MOST = 1.5
"""Cost per step in the last tenth of a long trial over that in the first; more than noise would be growth."""


class Speed(NamedTuple):
    """Medians over the rounds."""

    ratio: float
    """Events per second, beside five bare nodes that send heartbeats and acks."""
    ratio_heap: float
    """Beside a heap alone."""
    simulated_per_s: float
    events_per_s: float


class Round(NamedTuple):
    """The same number of events three times."""

    simulated_s: float
    events: int
    took_s: float
    cluster_s: float
    heap_s: float


def speed(rounds: int, trials: int) -> Speed:
    """Alternates: some trials, then as many bare events as they had."""
    _round(0, 1)  # imports and caches are warm
    done = [_round(number * trials, trials) for number in range(rounds)]
    return Speed(
        median(r.cluster_s / r.took_s for r in done),
        median(r.heap_s / r.took_s for r in done),
        median(r.simulated_s / r.took_s for r in done),
        median(r.events / r.took_s for r in done),
    )


def _round(first_seed: int, trials: int) -> Round:
    began = process_time()
    outcomes = [run_trial(PLAN, seed) for seed in range(first_seed, first_seed + trials)]
    tried = process_time()
    events = sum(outcome.events for outcome in outcomes)
    bare.Cluster(PLAN.nodes, HEARTBEAT_MS).run(events)
    beaten = process_time()
    bare.heap(events)
    simulated_s = sum(outcome.simulated_ms for outcome in outcomes) / 1000
    return Round(simulated_s, events, tried - began, beaten - tried, process_time() - beaten)


# --- history ----------------------------------------------------------------------------------------------------------

FAULTS = ("crash-agent", "partition", "lossy", "operator")
"""Of every sort one: elections, restarts, lost and repeated messages go on all the time."""


def growth(minutes: float, trials: int) -> float:
    """Cost per step in the last tenth of a trial over that in the first; the median of several trials."""
    return median(_growth(minutes, seed) for seed in range(trials))


def _growth(minutes: float, seed: int) -> float:
    end_ms = minutes * 60_000
    trial = trial_of(Plan("raft", 5, "lan", minutes, faults=FAULTS, draw=False), seed)
    trial.faults.begin(FAULTS, end_ms)
    costs = []
    for tenth in range(1, 11):
        steps, began = trial.world.count.steps, process_time()
        trial.world.run(end_ms * tenth / 10)
        costs.append((process_time() - began) / max(1, trial.world.count.steps - steps))
    return costs[-1] / costs[0]
