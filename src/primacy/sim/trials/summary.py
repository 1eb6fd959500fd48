"""Many outcomes folded into one summary, in seed order, so that the order in which they were run does not show.

Nothing here grows with the number of trials but by what is told of them: waits are counted per millisecond, and of the
violations the first ones are kept with their seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from primacy.sim.trials.trial import Outcome, Plan

P = TypeVar("P")
SHOWN_MAX = 100
"""Violations kept with their sentence; a broken rule shows in one trial after the other."""


class FoundViolation(NamedTuple):
    """A violation, with the seed that shows it."""

    seed: int
    at_ms: float
    rule: str
    sentence: str


@dataclass
class Tally(Generic[P]):
    """What many trials of one plan came to, whatever it was that ran."""

    plan: P
    first_seed: int = 0
    seeds: int = 0
    simulated_ms: float = 0.0
    wall_s: float = 0.0
    interrupted: bool = False
    starts: int = 0
    sent: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    rare: dict[str, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    """How often somebody waited for so many milliseconds: the work for its next holder, a client in settled calm."""
    violations: int = 0
    found: list[FoundViolation] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    """The first seeds with a violation."""
    _last_hash: str = ""
    _digest: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, outcome: Outcome) -> None:
        """The next trial, in seed order."""
        self.seeds += 1
        self.simulated_ms += outcome.simulated_ms
        self.starts += outcome.starts
        self.sent += outcome.sent
        self.events += outcome.events
        _add_all(self.faults, outcome.faults)
        _add_all(self.rare, outcome.rare)
        for gap_ms in outcome.gaps_ms:
            wait_ms = round(gap_ms)
            self.waits[wait_ms] = self.waits.get(wait_ms, 0) + 1
        self._digest.update(f"{outcome.seed} {outcome.trace_hash}\n".encode())
        self._last_hash = outcome.trace_hash
        if outcome.violations:
            self._violated(outcome)

    def _violated(self, outcome: Outcome) -> None:
        self.violations += len(outcome.violations)
        if len(self.failing) < SHOWN_MAX:
            self.failing.append(outcome.seed)
        room = SHOWN_MAX - len(self.found)
        self.found += [FoundViolation(outcome.seed, *violation) for violation in outcome.violations[:room]]

    @property
    def trace_hash(self) -> str:
        """One hash over every trial: the same for the same plan and seeds, on any machine, with any number of jobs.

        Of one trial alone it is that trial's own, as its page shows it.
        """
        return self._last_hash if self.seeds == 1 else str(self._digest.hexdigest())

    def wait_ms(self, share: float) -> int | None:
        """What this share of the waits did not exceed; None if nobody waited."""
        left = share * sum(self.waits.values())
        for wait_ms in sorted(self.waits):
            left -= self.waits[wait_ms]
            if left <= 0:
                return wait_ms
        return max(self.waits, default=None)

    def head(self) -> dict[str, Any]:
        """What comes first in a document for machines. Times are in the unit that the name ends with."""
        return {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "interrupted": self.interrupted,
            "simulated_s": round(self.simulated_ms / 1000, 3),
            "wall_s": round(self.wall_s, 3),
        }

    def fault_counts(self) -> dict[str, Any]:
        return {"faults": sum(self.faults.values()), "faults_by_class": dict(sorted(self.faults.items()))}

    def tail(self) -> dict[str, Any]:
        """What comes last: each violation, and the hash."""
        return {
            "violation_list": [found._asdict() for found in self.found],
            "failing_seeds": list(self.failing),
            "trace_hash": self.trace_hash,
        }


@dataclass
class Summary(Tally[Plan]):
    """What many trials of one strategy came to."""

    elections: int = 0
    needless: int = 0
    led: int = 0
    """Trials in which it was judged when a leader was there after the calm."""
    led_in_time: int = 0
    """Those of them in which that was within the bound itself."""
    working_ms: float = 0.0
    overlaps: int = 0
    engines: dict[str, int] = field(default_factory=dict)
    """Lease: how many trials were on which kind of store."""

    def add(self, outcome: Outcome) -> None:
        super().add(outcome)
        self.elections += outcome.elections
        self.needless += outcome.needless
        if outcome.within_bound is not None:
            self.led += 1
            self.led_in_time += outcome.within_bound
        self.working_ms += outcome.working_ms
        if outcome.engine:
            _add_all(self.engines, {outcome.engine: 1})
        if outcome.violations:
            self.overlaps += outcome.overlaps

    @property
    def in_time_share(self) -> float | None:
        """Part of the trials that had a leader within the bound after the calm; P1 allows three times the bound."""
        return self.led_in_time / self.led if self.led else None

    @property
    def nodes(self) -> int:
        return len(self.plan.members) or self.plan.nodes

    @property
    def failovers(self) -> int:
        return sum(self.waits.values())

    @property
    def working_share(self) -> float:
        """Part of the simulated time in which the work ran. With one per island, it may exceed 1."""
        return self.working_ms / self.simulated_ms if self.simulated_ms else 0.0

    @property
    def messages_per_node_s(self) -> float:
        return self.sent * 1000 / self.simulated_ms / self.nodes if self.simulated_ms else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For machines. Times are in the unit that the name ends with."""
        return {
            "api": 1,
            "strategy": self.plan.strategy,
            "nodes": self.nodes,
            "profile": self.plan.profile,
            "drift": self.plan.drift,
            "engines": dict(sorted(self.engines.items())),
            **self.head(),
            "elections": self.elections,
            "starts": self.starts,
            **self.fault_counts(),
            "failovers": self.failovers,
            "failover_ms": {"p50": self.wait_ms(0.5), "p99": self.wait_ms(0.99), "max": self.wait_ms(1.0)},
            "needless_failovers": self.needless,
            "in_time_share": None if self.in_time_share is None else round(self.in_time_share, 5),
            "messages_per_node_s": round(self.messages_per_node_s, 3),
            "working_share": round(self.working_share, 5),
            "rare": dict(sorted(self.rare.items())),
            "violations": self.violations,
            "overlaps": self.overlaps,
            **self.tail(),
        }


def _add_all(to: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        to[name] = to.get(name, 0) + count
