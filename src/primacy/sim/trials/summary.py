"""Many outcomes folded into one summary, in seed order, so that the order in which they were run does not show.

Nothing here grows with the number of trials but by what is told of them: waits are counted per millisecond, and of the
violations the first ones are kept with their seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from primacy.sim.trials.trial import Outcome, Plan

SHOWN_MAX = 100
"""Violations kept with their sentence; a broken rule shows in one trial after the other."""


class Found(NamedTuple):
    """A violation, with the seed that shows it."""

    seed: int
    at_ms: float
    rule: str
    sentence: str


@dataclass(slots=True)
class Summary:
    """What many trials of one plan came to."""

    plan: Plan
    first_seed: int = 0
    seeds: int = 0
    simulated_ms: float = 0.0
    wall_s: float = 0.0
    interrupted: bool = False
    elections: int = 0
    starts: int = 0
    needless: int = 0
    led: int = 0
    """Trials in which it was judged when a leader was there after the calm."""
    led_in_time: int = 0
    """Those of them in which that was within the bound itself."""
    sent: int = 0
    events: int = 0
    working_ms: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    rare: dict[str, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    """How often the work stood still between two holders for so many milliseconds."""
    violations: int = 0
    overlaps: int = 0
    found: list[Found] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    """The first seeds with a violation."""
    _last_hash: str = ""
    _digest: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, outcome: Outcome) -> None:
        """The next trial, in seed order."""
        self.seeds += 1
        self.simulated_ms += outcome.simulated_ms
        self.elections += outcome.elections
        self.starts += outcome.starts
        self.needless += outcome.needless
        if outcome.within_bound is not None:
            self.led += 1
            self.led_in_time += outcome.within_bound
        self.sent += outcome.sent
        self.events += outcome.events
        self.working_ms += outcome.working_ms
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
        self.overlaps += outcome.overlaps
        if len(self.failing) < SHOWN_MAX:
            self.failing.append(outcome.seed)
        room = SHOWN_MAX - len(self.found)
        self.found += [Found(outcome.seed, *violation) for violation in outcome.violations[:room]]

    # --- figures ------------------------------------------------------------------------------------------------------

    @property
    def trace_hash(self) -> str:
        """One hash over every trial: the same for the same plan and seeds, on any machine, with any number of jobs.

        Of one trial alone it is that trial's own, as its page shows it.
        """
        return self._last_hash if self.seeds == 1 else str(self._digest.hexdigest())

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

    def failover_ms(self, share: float) -> int | None:
        """The wait that this share of the failovers did not exceed; None if there was no failover."""
        left = share * self.failovers
        for wait_ms in sorted(self.waits):
            left -= self.waits[wait_ms]
            if left <= 0:
                return wait_ms
        return max(self.waits, default=None)

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
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "interrupted": self.interrupted,
            "simulated_s": round(self.simulated_ms / 1000, 3),
            "wall_s": round(self.wall_s, 3),
            "elections": self.elections,
            "starts": self.starts,
            "faults": sum(self.faults.values()),
            "faults_by_class": dict(sorted(self.faults.items())),
            "failovers": self.failovers,
            "failover_ms": {"p50": self.failover_ms(0.5), "p99": self.failover_ms(0.99), "max": self.failover_ms(1.0)},
            "needless_failovers": self.needless,
            "in_time_share": None if self.in_time_share is None else round(self.in_time_share, 5),
            "messages_per_node_s": round(self.messages_per_node_s, 3),
            "working_share": round(self.working_share, 5),
            "rare": dict(sorted(self.rare.items())),
            "violations": self.violations,
            "overlaps": self.overlaps,
            "violation_list": [found._asdict() for found in self.found],
            "failing_seeds": list(self.failing),
            "trace_hash": self.trace_hash,
        }


def _add_all(to: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        to[name] = to.get(name, 0) + count
