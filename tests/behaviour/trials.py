"""The trials that are recorded: fixed seeds, mixed sizes and profiles, one file each."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from primacy.cache.model import Mode
from primacy.settings.timing_cache import CACHE_PROFILES
from primacy.sim.cache.trial import CachePlan, CacheTrial
from primacy.sim.trials.raft import trial_of
from primacy.sim.trials.trial import Outcome, Plan
from tests.behaviour import drawn
from tests.behaviour.recorder import Recorder, recorded
from tests.behaviour.values import dumped

FORMAT = 1
T = TypeVar("T")
SIZES = (3, 4, 5, 7)
PROFILES = ("fast", "lan", "wan")
CACHE_TIMES = tuple(CACHE_PROFILES)
ELECTIONS = ("raft", "lease", "bully", "ring")
CACHES = {"cache-own": Mode.OWN, "cache-mixed": Mode.MIXED}
STRATEGIES = (*ELECTIONS, *CACHES, *drawn.KINDS)
"""Those of the simulator, then those that only draw inputs."""
LENGTH = 1.0
"""Of a trial, as a share of what the simulator has when nobody says anything."""
LEVEL = 6
"""Of compression; the highest is a tenth smaller and twice as slow."""


class Recording(NamedTuple):
    """What one trial came to."""

    strategy: str
    seed: int
    machines: int
    calls: int
    effects: int
    written: int
    """Bytes on the disk."""
    trace_hash: str


def outcome_of(strategy: str, seed: int, length: float = LENGTH) -> str:
    """One trial, as it is. Returns what another history would have another one of."""
    if strategy in drawn.KINDS:
        return drawn.run(strategy, seed, length)
    return _simulated(strategy, seed, length).trace_hash


def _simulated(strategy: str, seed: int, length: float) -> Outcome:
    size = SIZES[seed % len(SIZES)]
    if strategy in CACHES:
        timing = CACHE_PROFILES[CACHE_TIMES[seed % len(CACHE_TIMES)]]
        seconds = CachePlan().seconds * length
        return CacheTrial(CachePlan(peers=size, seconds=seconds, mode=CACHES[strategy], timing=timing), seed).run()
    return trial_of(Plan(strategy, size, PROFILES[seed % len(PROFILES)], Plan().minutes * length), seed).run()


def path_of(folder: Path, strategy: str, seed: int) -> Path:
    return folder / "machines" / f"{strategy}-{seed:04}.jsonl.gz"


def record_trial(folder: Path, strategy: str, seed: int, length: float = LENGTH) -> Recording:
    path = path_of(folder, strategy, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [dumped({"format": FORMAT, "strategy": strategy, "seed": seed})]
    recorder = Recorder(lines.append)
    with recorded(recorder):
        trace_hash = outcome_of(strategy, seed, length)
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), LEVEL, mtime=0))
    sizes = len(recorder.machines), recorder.calls, recorder.effects
    return Recording(strategy, seed, *sizes, path.stat().st_size, trace_hash)


def record_trials(
    folder: Path, trials: int, jobs: int, strategies: Collection[str] = STRATEGIES, length: float = LENGTH
) -> Iterator[Recording]:
    work = [(folder, strategy, seed, length) for seed in range(trials) for strategy in strategies]
    return in_processes(record_trial, work, jobs)


def in_processes(action: Callable[..., T], work: list[tuple[Any, ...]], jobs: int) -> Iterator[T]:
    """In the order of the work. One job stays in this process."""
    if jobs <= 1:
        for one in work:
            yield action(*one)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(action, *zip(*work, strict=True), chunksize=4)
