"""Many trials of one plan, on several cores, with their outcomes in seed order.

A trial that raises is a violation of its own: a step must never raise, and the seed that shows it is what one wants to
know. So is one that needs more memory or time than any should, or that takes its worker with it: its seed is named,
and the others go on.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from primacy.sim.checkers import Violation
from primacy.sim.trials.bounds import Bounds, OutOfTime, bounded
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.summary import Summary, Tally
from primacy.sim.trials.trial import Outcome, Plan, Trial
from primacy.sim.trials.workers import Workers

CHUNK_MAX = 4
"""Trials per chunk: enough that handing over costs nothing, few enough that the progress is smooth."""

T = TypeVar("T", bound=Tally[Any])
RunTrial = Callable[[Plan, int], Outcome]
"""One trial of a seed. With more than one job it must be importable: a function of a module."""


def run_or_raised(plan: Plan, seed: int) -> Outcome:
    """One trial, within bounds. What it raises becomes a violation, with the moment and the line."""
    return _within(plan, seed, Bounds().for_minutes(plan.minutes), None)


def _within(plan: Plan, seed: int, bounds: Bounds, run_trial: RunTrial | None) -> Outcome:
    trial: Trial | None = None
    try:
        with bounded(bounds):
            if run_trial is not None:
                return run_trial(plan, seed)
            trial = trial_of(plan, seed)
            return trial.run()
    except OutOfTime:
        rule, sentence = "E2", f"it took more than {bounds.cpu_s:g} s of the processor: a step does not end"
    except MemoryError:
        rule, sentence = "E2", f"it needed more than {bounds.memory >> 20} MB of memory"
    except Exception as error:  # noqa: BLE001  (a defect: the seed that shows it counts, and the other trials go on)
        where = traceback.extract_tb(error.__traceback__)[-1]
        file = os.path.basename(where.filename)
        rule, sentence = "raised", f"{type(error).__name__} in {file}:{where.lineno}: {error}"
    outcome = Outcome(seed) if trial is None else trial.outcome
    outcome.simulated_ms = 0.0 if trial is None else trial.world.now
    outcome.violations.append(Violation(outcome.simulated_ms, rule, sentence))
    return outcome


def _lost(seed: int, why: str) -> Outcome:
    return Outcome(seed, violations=[Violation(0.0, "lost", f"nothing is known of this trial: {why}")])


def run_batch(
    plan: Plan,
    seeds: range,
    jobs: int = 1,
    *,
    run_trial: RunTrial = run_or_raised,
    told: Callable[[Outcome], None] | None = None,
    bounds: Bounds | None = None,
) -> Summary:
    """Runs all seeds and folds them. Ctrl-C ends it early: the summary then covers what was run, and says so."""
    return folded(Summary(plan, seeds.start), trial_outcomes(plan, seeds, jobs, run_trial, bounds), told)


def folded(summary: T, outcomes: Generator[Outcome, None, None], told: Callable[[Outcome], None] | None) -> T:
    """The summary with all outcomes, or with those before Ctrl-C."""
    began = time.perf_counter()
    try:
        with closing(outcomes):
            for outcome in outcomes:
                summary.add(outcome)
                if told is not None:
                    told(outcome)
    except KeyboardInterrupt:
        summary.interrupted = True
    summary.wall_s = time.perf_counter() - began
    return summary


def trial_outcomes(
    plan: Plan, seeds: range, jobs: int = 1, run_trial: RunTrial = run_or_raised, bounds: Bounds | None = None
) -> Generator[Outcome, None, None]:
    """The outcomes in seed order. One job runs in this process: then nothing outlives a trial that is killed."""
    jobs = min(jobs, len(seeds))
    bounds = bounds or Bounds().for_minutes(plan.minutes)
    one = None if run_trial is run_or_raised else run_trial
    if jobs <= 1:
        return (_within(plan, seed, bounds, one) for seed in seeds)
    size = max(1, min(CHUNK_MAX, len(seeds) // (4 * jobs)))
    chunks = (seeds[at : at + size] for at in range(0, len(seeds), size))
    return Workers(jobs, partial(_work, plan, bounds, one), _lost, bounds.wall_s).outcomes(chunks)


def _work(plan: Plan, bounds: Bounds, run_trial: RunTrial | None, seed: int) -> Outcome:
    return _within(plan, seed, bounds, run_trial)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
