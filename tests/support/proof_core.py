"""The proof of the core: many trials of every strategy and size, every mutant with fresh seeds, the small world.

Takes about half an hour on two cores and prints a summary that belongs into a release's notes. Exit 1 if
anything was violated, or if a planted defect was missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from primacy.sim.trials.batch import run_batch
from primacy.sim.trials.trial import Plan
from tests.support.mutants import MUTANTS, caught_seeds

SEEDS = 500
FIRST_SEED = 10_000
"""Other seeds than those of `make test`."""
SIZES = {"raft": (3, 4, 5, 7), "lease": (3, 4, 5, 7), "bully": (3, 4, 5, 7, 20), "ring": (3, 4, 5, 7, 20)}
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


def trials() -> bool:
    """0 violations in 500 seeds of each strategy and size."""
    clean = True
    for strategy, sizes in SIZES.items():
        for nodes in sizes:
            summary = run_batch(Plan(strategy, nodes), range(FIRST_SEED, FIRST_SEED + SEEDS), JOBS)
            told = summary.as_dict()
            failover = told["failover_ms"]
            print(
                f"{strategy:6} {nodes:2} nodes: {told['seeds']} trials, {told['simulated_s'] / 3600:.1f} h simulated "
                f"in {told['wall_s']:.0f} s, {told['elections']} elections, failover p50 {failover['p50']} "
                f"p99 {failover['p99']} ms, needless {told['needless_failovers']}, within the bound "
                f"{100 * (told['in_time_share'] or 0):.1f} %, violations {told['violations']}",
                flush=True,
            )
            for found in told["violation_list"][:5]:
                print(f"    {found}", flush=True)
            clean = clean and not told["violations"]
    return clean


def _hunted(number: int) -> tuple[str, int, int]:
    """How many of the fresh seeds it took to catch this mutant."""
    mutant = MUTANTS[number]
    tried = range(FIRST_SEED, FIRST_SEED + MUTANT_SEEDS)
    found = caught_seeds(mutant, tried, 1)
    return mutant.key, len(found), (found[0] - FIRST_SEED + 1) if found else MUTANT_SEEDS


def mutants() -> bool:
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


def small_worlds() -> bool:
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


def main() -> int:
    began = time.monotonic()
    results = {"trials": trials(), "mutants": mutants(), "small worlds": small_worlds()}
    print(f"proof of the core: {results}, {time.monotonic() - began:.0f} s")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
