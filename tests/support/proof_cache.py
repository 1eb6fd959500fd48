"""The proof of the cache: many trials, every planted defect with fresh seeds, the small world to its end, kills of a
writer, many keys, ends of calls over and over.

Prints a summary that belongs into a release's notes. Exit 1 if anything was violated, or if a defect that trials have
caught before was missed. Each part is a function of `PARTS`, so that it can be run alone:
`python -m tests.support.proof_cache trials`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from primacy.sim.cache.batch import batch
from primacy.sim.cache.small import Scope, report, search
from primacy.sim.cache.trial import CachePlan
from tests.support.mutants_cache import CACHE_MUTANTS
from tests.support.mutants_cache_trials import caught, recorded

SEEDS = 250
"""Of each kind: 3 and 5 peers, with storage, without, and both: 2,000 trials with the two kinds of drawn ones."""
KEYS = 200
SEEDS_OF_MANY_KEYS = 50
"""Such a trial takes as long as twenty others."""
FIRST_SEED = 100_000
"""Other seeds than those of `make test`."""
MUTANT_SEEDS = 200
ROUNDS = 5
JOBS = 2
SCOPES = (
    Scope(peers=3, ballots=2, announces=2, restarts=2, disturbances=3, askers=(0, 1)),
    Scope(peers=3, ballots=2, announces=2, restarts=2, disturbances=3, askers=(1, 0)),
    Scope(peers=3, ballots=3, announces=2, restarts=1, disturbances=2, askers=(0, 1)),
    Scope(peers=3, ballots=2, announces=2, restarts=2, disturbances=2, forgets=True),
    Scope(peers=4, ballots=2, announces=1, restarts=1, disturbances=1),
    Scope(peers=2, ballots=2, announces=2, restarts=2, disturbances=4),
)
"""Some of those of the evidence for RULES C, each with so many disturbances as end within minutes."""


def trials() -> bool:
    """0 violations in 2,050 trials, wall clocks up to 1.5 s off the truth."""
    clean, total = True, 0
    plans = [CachePlan(peers=peers, storage=storage) for peers in (3, 5) for storage in ("durable", "memory", "both")]
    for plan in (*plans, CachePlan(), CachePlan(draw=False), CachePlan(peers=5, keys=KEYS)):
        count = SEEDS_OF_MANY_KEYS if plan.keys else SEEDS
        summary = batch(plan, range(FIRST_SEED, FIRST_SEED + count), JOBS)
        total += summary.seeds
        print(
            f"cache, {plan.peers or '3 and 5'} peers, storage {plan.storage or 'drawn'}, "
            f"{plan.keys or '1 to 3'} keys: {summary.seeds} trials, "
            f"{summary.simulated_ms / 3_600_000:.1f} h simulated in {summary.wall_s:.0f} s, {summary.starts} calls, "
            f"{summary.sent} messages, {sum(summary.faults.values())} faults, client waits in settled calm p50 "
            f"{summary.wait_ms(0.5)} p99 {summary.wait_ms(0.99)} max {summary.wait_ms(1.0)} ms, "
            f"violations {summary.violations}",
            flush=True,
        )
        for found in summary.found[:5]:
            print(f"    seed {found.seed}, {found.rule}: {found.sentence}", flush=True)
        clean = clean and not summary.violations and not summary.interrupted
    print(f"trials: {total}")
    return clean


def _hunted(name: str) -> tuple[str, int]:
    """How many fresh seeds it took to catch this defect; 0: it was missed."""
    known = recorded()[name]
    defect = next(mutant.machine for mutant in CACHE_MUTANTS if mutant.name == name)
    for tried, seed in enumerate(range(FIRST_SEED, FIRST_SEED + MUTANT_SEEDS), 1):
        if caught(defect, known[0], seed):
            return name, tried
    return name, 0


def mutants() -> bool:
    """Every defect that trials have caught is found with seeds that nobody chose."""
    names = [name for name, known in recorded().items() if known]
    missed = 0
    with ProcessPoolExecutor(JOBS) as pool:
        for name, tried in pool.map(_hunted, names):
            print(f"mutant {name:30} {f'caught after {tried} trials' if tried else 'MISSED'}", flush=True)
            missed += not tried
    print(f"mutants: {len(names) - missed} of {len(names)} caught")
    return not missed


def small_worlds() -> bool:
    """Every order of events within the scopes."""
    clean = True
    for scope in SCOPES:
        found = search(scope)
        print("\n".join(report(scope, found)), flush=True)
        clean = clean and not found.wrong and found.complete
    return clean


def storage_and_sources() -> bool:
    """Kills of a writer, many keys; ends of calls, several times."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    steps = [
        [*pytest, "tests/contracts/test_cache_lmdb.py"],
        *([[*pytest, "tests/processes/test_cache_source_process.py"]] * ROUNDS),
    ]
    environment = {**os.environ, "PRIMACY_SIZE": "proof"}
    return not any(subprocess.run(step, env=environment, check=False).returncode for step in steps)


def real_peers() -> bool:
    """Must hold, with real processes and sockets."""
    environment = {**os.environ, "PRIMACY_SIZE": "proof"}
    step = [sys.executable, "-m", "tests.support.proof_cache_peer"]
    return not subprocess.run(step, env=environment, check=False).returncode


PARTS: dict[str, Callable[[], bool]] = {
    "storage and sources": storage_and_sources,
    "real peers": real_peers,
    "trials": trials,
    "mutants": mutants,
    "small worlds": small_worlds,
}


def main() -> int:
    began = time.monotonic()
    wanted = sys.argv[1:] or list(PARTS)
    results = {name: PARTS[name]() for name in wanted}
    print(f"proof of the cache: {results}, {time.monotonic() - began:.0f} s")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
