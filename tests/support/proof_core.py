"""The proof of the core: many trials of every strategy, size and profile, every mutant with fresh seeds, small worlds.

    python -m tests.support.proof_core [--only trials,mutants,worlds] [--first-seed 10000]

Takes about an hour on two cores and prints a summary that belongs into a release's notes. Exit 1 if anything was
violated, or if a planted defect was missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from primacy.sim.trials.batch import run_batch
from primacy.sim.trials.trial import Plan
from tests.support.mutants import MUTANTS, caught_seeds

FIRST_SEED = 10_000
"""Other seeds than those of `make test`."""
HOLDING, RANKED = ("fast", "lan", "wan"), ("lan",)
TRIALS = {
    "raft": (30_000, (3, 4, 5, 7), HOLDING),
    "lease": (15_000, (3, 4, 5, 7), HOLDING),
    "bully": (5_000, (3, 4, 5, 7, 20), RANKED),
    "ring": (5_000, (3, 4, 5, 7, 20), RANKED),
}
"""How many of each strategy, shared among its sizes and profiles. What a seed draws depends on both."""
MUTANT_SEEDS = 600
STATES = 500_000
"""Distinct states of a search that cannot be complete."""
STATES_ALL = 20_000_000
"""More than any complete search has: it ends by itself, or the proof fails."""
SEARCHES = (
    (("raft", "equal", 2, STATES_ALL), ("raft", "drifting", 2, STATES_ALL)),
    (("lease", "equal", 2, STATES_ALL), ("lease", "drifting", 1, STATES)),
)
"""Small worlds: strategy, clocks, and for how many disturbances the search must be complete. Both lines side by side.

Left out: two disturbances of a lease on drifting clocks, about forty million states. Everything with one is walked,
and of those with two what fits into the number of states.
"""
JOBS = 2


def trials(first_seed: int) -> bool:
    """0 violations; no needless failover under calm conditions is one of the checks."""
    plans = {
        Plan(strategy, nodes, profile): count // (len(sizes) * len(profiles))
        for strategy, (count, sizes, profiles) in TRIALS.items()
        for profile in profiles
        for nodes in sizes
    }
    held = [_clean(plan, range(first_seed, first_seed + count)) for plan, count in plans.items()]
    return all(held)


def _clean(plan: Plan, seeds: range) -> bool:
    summary = run_batch(plan, seeds, JOBS)
    told = summary.as_dict()
    failover = told["failover_ms"]
    print(
        f"{plan.strategy:6} {plan.nodes:2} nodes, {plan.profile}: {told['seeds']} trials from {seeds.start}, "
        f"{told['simulated_s'] / 3600:.1f} h simulated in {told['wall_s']:.0f} s, {told['elections']} elections, "
        f"failover p50 {failover['p50']} p99 {failover['p99']} ms, needless {told['needless_failovers']}, within the "
        f"bound {100 * (told['in_time_share'] or 0):.1f} %, violations {told['violations']}",
        flush=True,
    )
    for found in told["violation_list"][:5]:
        print(f"    {found}", flush=True)
    return not told["violations"] and told["seeds"] == len(seeds)


def _hunted(number: int) -> tuple[str, int, int]:
    """How many of the fresh seeds it took to catch this mutant."""
    mutant = MUTANTS[number]
    tried = range(FIRST_SEED, FIRST_SEED + MUTANT_SEEDS)
    found = caught_seeds(mutant, tried, 1)
    return mutant.key, len(found), (found[0] - FIRST_SEED + 1) if found else MUTANT_SEEDS


def mutants(_: int) -> bool:
    """Every planted defect is found with seeds that nobody chose."""
    missed = 0
    with ProcessPoolExecutor(JOBS) as pool:
        for key, caught, tried in pool.map(_hunted, range(len(MUTANTS))):
            print(f"mutant {key:50} {'caught' if caught else 'MISSED'} after {tried} trials", flush=True)
            missed += not caught
    print(f"mutants: {len(MUTANTS) - missed} of {len(MUTANTS)} caught")
    return not missed


def _searched(strategy: str, clocks: str, complete: int, states: int) -> bool:
    """One small world in a process of its own, for its memory is given back then. False also if it is not complete."""
    asked = {"strategy": strategy, "clocks": clocks, "states": states, "disturbances": 2, "complete": complete}
    options = [f"--{name}={value}" for name, value in asked.items()]
    search = [sys.executable, "-m", "primacy.sim.model.exhaustive", *options]
    done = subprocess.run(search, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    return done.returncode == 0


def _searched_in_turn(searches: tuple[tuple[str, str, int, int], ...]) -> bool:
    results = [_searched(*search) for search in searches]  # all of them, whatever the first says
    return all(results)


def small_worlds(_: int) -> bool:
    """Every order of events in a bounded model: raft and lease, clocks that agree and clocks that drift."""
    with ThreadPoolExecutor(len(SEARCHES)) as pool:
        clean = all(list(pool.map(_searched_in_turn, SEARCHES)))
    hunts = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(JOBS),
        "-p",
        "no:cacheprovider",
        "tests/simulation/test_exhaustive.py",
    ]
    return not subprocess.run(hunts, env={**os.environ, "PRIMACY_SIZE": "proof"}, check=False).returncode and clean


PARTS: dict[str, Callable[[int], bool]] = {"trials": trials, "mutants": mutants, "worlds": small_worlds}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.proof_core", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, with commas between them")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help=f"of the trials ({FIRST_SEED})")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(set(wanted) - PARTS.keys()))}; there are {', '.join(PARTS)}")
    began = time.monotonic()
    results = {name: PARTS[name](options.first_seed) for name in wanted}
    print(f"proof of the core: {results}, {time.monotonic() - began:.0f} s")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
