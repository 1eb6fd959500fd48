"""Many trials of the cache, on several cores, folded into one summary in seed order; and a failing one made small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from primacy.sim.cache.trial import CachePlan, CacheTrial, run_trial
from primacy.sim.trials.batch import folded, trial_outcomes
from primacy.sim.trials.summary import Tally
from primacy.sim.trials.trial import Outcome, Plan

TRIES_MAX = 60
"""Trials spent on making a failing one small."""


class CacheSummary(Tally[CachePlan]):
    """What many trials of the cache came to."""

    def as_dict(self) -> dict[str, Any]:
        """For machines. Times are in the unit that the name ends with."""
        return {
            "api": 1,
            "strategy": "cache",
            "nodes": self.plan.peers or None,
            "storage": self.plan.storage or None,
            "mode": str(self.plan.mode),
            "drift": self.plan.drift,
            "skew_ms": self.plan.skew_ms,
            **self.head(),
            "calls": self.starts,
            "messages": self.sent,
            "counts": dict(sorted(self.rare.items())),
            **self.fault_counts(),
            "wait_ms": {"p50": self.wait_ms(0.5), "p99": self.wait_ms(0.99), "max": self.wait_ms(1.0)},
            "violations": self.violations,
            **self.tail(),
        }


def batch(
    plan: CachePlan, seeds: range, jobs: int = 1, *, told: Callable[[Outcome], None] | None = None
) -> CacheSummary:
    """Runs all seeds and folds them. Ctrl-C ends it early: the summary then covers what was run, and says so."""
    summary = CacheSummary(plan, seeds.start)
    bounds_of = Plan("cache", minutes=max(1.0, plan.seconds / 60))
    return folded(summary, trial_outcomes(bounds_of, seeds, jobs, partial(run_trial, plan)), told)


def shrink(plan: CachePlan, seed: int, rule: str) -> CachePlan:
    """The same seed with as few fault classes as still break the rule. Each class has its own draws, so that the
    others stay as they were."""
    trial = CacheTrial(plan, seed)
    best = replace(plan, faults=trial.classes, draw=False)
    if not _breaks(best, seed, rule):
        return plan
    tries, smaller = 1, True
    while smaller and tries < TRIES_MAX:
        smaller = False
        for name in best.faults or ():
            fewer = replace(best, faults=tuple(other for other in best.faults or () if other != name))
            tries += 1
            if _breaks(fewer, seed, rule):
                best, smaller = fewer, True
                break
    return best


def _breaks(plan: CachePlan, seed: int, rule: str) -> bool:
    return any(violation.rule == rule for violation in CacheTrial(plan, seed).run().violations)


def command(plan: CachePlan, seed: int) -> str:
    """The command that repeats this trial."""
    default = CachePlan()
    said = ["primacy simulate --strategy cache"]
    if plan.peers:
        said.append(f"--nodes {plan.peers}")
    if plan.storage:
        said.append(f"--storage {plan.storage}")
    if plan.seconds != default.seconds:
        said.append(f"--minutes {plan.seconds / 60!r}")
    if plan.drift != default.drift:
        said.append(f"--drift {plan.drift!r}")
    if not plan.draw:
        said.append(f"--faults {','.join(plan.faults or ()) or 'none'}")
    return " ".join([*said, f"--seed {seed}"])
