"""A failing trial made small: fault classes, then nodes, then minutes are taken away while the same rule still breaks.

Taking something away changes what the seed draws, so that a smaller plan is tried with a few seeds: any of them that
still breaks the rule is as good as the first. Whatever comes out was run before it is told, and the command that is
printed runs it again byte for byte.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from primacy.sim.checkers import Violation
from primacy.sim.trials.batch import RunTrial, run_or_raised
from primacy.sim.trials.trial import Plan

SEEDS_PER_TRY = 25
"""How many seeds a smaller plan gets: the one that failed, and the next ones."""
TRIALS_MAX = 800
"""Trials spent on shrinking; with two simulated minutes each that is less than a minute."""
MINUTES_LEAST = 1.0
"""Shorter trials leave no time to judge what follows the calm."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing trial that was found."""

    plan: Plan
    seed: int
    violation: Violation
    trials: int
    """How many were run to find it."""


def shrink(
    plan: Plan,
    seed: int,
    rule: str,
    classes: tuple[str, ...],
    *,
    engine: str = "",
    run_trial: RunTrial = run_or_raised,
    trials_max: int = TRIALS_MAX,
    told: Callable[[Shrunk], None] | None = None,
) -> Shrunk | None:
    """The smallest plan found that breaks the rule, or None if the trial cannot be repeated.

    `classes` are those that the failing trial had, and `engine` is its kind of store.
    """
    search = _Search(rule, run_trial, trials_max)
    best = search.fails(plan, seed, 1)
    if best is None:
        return None
    bound = replace(plan, faults=classes, draw=False, engine=engine or plan.engine)
    fixed = search.fails(bound, seed, SEEDS_PER_TRY * 4)
    if fixed is None:
        return replace(best, trials=search.tried)
    best = fixed
    while (smaller := search.smaller(best)) is not None:
        best = smaller
        if told is not None:
            told(best)
    return replace(best, trials=search.tried)


class _Search:
    def __init__(self, rule: str, run_trial: RunTrial, trials_max: int) -> None:
        self.rule = rule
        self.run_trial = run_trial
        self.trials_max = trials_max
        self.tried = 0

    def fails(self, plan: Plan, seed: int, tries: int = SEEDS_PER_TRY) -> Shrunk | None:
        for k in range(seed, seed + tries):
            if self.tried >= self.trials_max:
                return None
            self.tried += 1
            for violation in self.run_trial(plan, k).violations:
                if violation.rule == self.rule:
                    return Shrunk(plan, k, violation, self.tried)
        return None

    def smaller(self, best: Shrunk) -> Shrunk | None:
        """The first smaller plan that still fails."""
        for plan in _smaller_plans(best.plan):
            found = self.fails(plan, best.seed)
            if found is not None:
                return found
        return None


def _smaller_plans(plan: Plan) -> Iterator[Plan]:
    """From the boldest step to the smallest: half of the classes, one of them, fewer nodes, half of the time."""
    classes = plan.faults or ()
    if len(classes) > 2:
        half = len(classes) // 2
        yield replace(plan, faults=classes[:half])
        yield replace(plan, faults=classes[half:])
    for name in classes:
        yield replace(plan, faults=tuple(other for other in classes if other != name))
    if not plan.members:
        yield from (replace(plan, nodes=nodes) for nodes in range(1, plan.nodes))
    if plan.minutes > MINUTES_LEAST:
        yield replace(plan, minutes=max(MINUTES_LEAST, plan.minutes / 2))


def command(plan: Plan, seed: int, config: str = "") -> str:
    """The command that runs it again. `config`: the file that strategy, nodes and times came from."""
    default = Plan()
    said = ["primacy simulate"]
    if config:
        said.append(f"--config {shlex.quote(config)}")
    else:
        said.append(f"--strategy {plan.strategy} --nodes {plan.nodes}")
        if plan.profile != default.profile:
            said.append(f"--profile {plan.profile}")
    if plan.changes:
        said.append("--changes")
    if plan.members_change:
        said.append("--members")
    if plan.engine:
        said.append(f"--engine {plan.engine}")
    if plan.minutes != default.minutes:
        said.append(f"--minutes {plan.minutes!r}")
    if plan.drift != default.drift:
        said.append(f"--drift {plan.drift!r}")
    if not plan.draw:
        said.append(f"--faults {','.join(plan.faults or ()) or 'none'}")
    return " ".join([*said, f"--seed {seed}"])
