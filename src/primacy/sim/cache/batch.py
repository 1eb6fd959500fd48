"""Many trials of the cache, on several cores, folded into one summary in seed order; and a failing one made small."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from primacy.sim.cache.trial import CachePlan, CacheTrial, run_trial
from primacy.sim.trials.batch import trial_outcomes
from primacy.sim.trials.summary import SHOWN_MAX, Found
from primacy.sim.trials.trial import Outcome, Plan

TRIES_MAX = 60
"""Trials spent on making a failing one small."""


@dataclass(slots=True)
class CacheSummary:
    """What many trials of one plan came to."""

    plan: CachePlan
    first_seed: int = 0
    seeds: int = 0
    simulated_ms: float = 0.0
    wall_s: float = 0.0
    interrupted: bool = False
    calls: int = 0
    sent: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    """How often a client waited for so many ms in settled calm."""
    violations: int = 0
    found: list[Found] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    _digest: Any = field(default_factory=lambda: blake2b(digest_size=16))
    _last_hash: str = ""

    def add(self, outcome: Outcome) -> None:
        """The next trial, in seed order."""
        self.seeds += 1
        self.simulated_ms += outcome.simulated_ms
        self.calls += outcome.starts
        self.sent += outcome.sent
        self.events += outcome.events
        for total, part in ((self.faults, outcome.faults), (self.counts, outcome.rare)):
            for name, count in part.items():
                total[name] = total.get(name, 0) + count
        for wait_ms in outcome.gaps_ms:
            self.waits[round(wait_ms)] = self.waits.get(round(wait_ms), 0) + 1
        self._digest.update(f"{outcome.seed} {outcome.trace_hash}\n".encode())
        self._last_hash = outcome.trace_hash
        if outcome.violations:
            self.violations += len(outcome.violations)
            if len(self.failing) < SHOWN_MAX:
                self.failing.append(outcome.seed)
            room = SHOWN_MAX - len(self.found)
            self.found += [Found(outcome.seed, *violation) for violation in outcome.violations[:room]]

    @property
    def trace_hash(self) -> str:
        """The same for the same plan and seeds, on any machine, with any number of jobs."""
        return self._last_hash if self.seeds == 1 else str(self._digest.hexdigest())

    def wait_ms(self, share: float) -> int | None:
        """What this share of the clients in settled calm did not exceed."""
        left = share * sum(self.waits.values())
        for wait_ms in sorted(self.waits):
            left -= self.waits[wait_ms]
            if left <= 0:
                return wait_ms
        return max(self.waits, default=None)

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
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "interrupted": self.interrupted,
            "simulated_s": round(self.simulated_ms / 1000, 3),
            "wall_s": round(self.wall_s, 3),
            "calls": self.calls,
            "messages": self.sent,
            "counts": dict(sorted(self.counts.items())),
            "faults": sum(self.faults.values()),
            "faults_by_class": dict(sorted(self.faults.items())),
            "wait_ms": {"p50": self.wait_ms(0.5), "p99": self.wait_ms(0.99), "max": self.wait_ms(1.0)},
            "violations": self.violations,
            "violation_list": [found._asdict() for found in self.found],
            "failing_seeds": list(self.failing),
            "trace_hash": self.trace_hash,
        }


def batch(
    plan: CachePlan, seeds: range, jobs: int = 1, *, told: Callable[[Outcome], None] | None = None
) -> CacheSummary:
    """Runs all seeds and folds them. Ctrl-C ends it early: the summary then covers what was run, and says so."""
    summary = CacheSummary(plan, seeds.start)
    began = time.perf_counter()
    bounds_of = Plan("cache", minutes=max(1.0, plan.seconds / 60))
    try:
        with closing(trial_outcomes(bounds_of, seeds, jobs, partial(run_trial, plan))) as outcomes:
            for outcome in outcomes:
                summary.add(outcome)
                if told is not None:
                    told(outcome)
    except KeyboardInterrupt:
        summary.interrupted = True
    summary.wall_s = time.perf_counter() - began
    return summary


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
