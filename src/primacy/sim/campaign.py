"""Many lives of one plan, on several cores, with their outcomes in seed order.

Workers are processes, since a life keeps one core busy. They hear nothing of Ctrl-C (the parent ends them), and they
end by themselves if the parent is killed, so that none is ever left behind. A life that raises is a violation of its
own: a step must never raise, and the seed that shows it is what one wants to know.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from multiprocessing.connection import wait

from primacy.errors import CannotHere
from primacy.sim.checkers import Violation
from primacy.sim.life import Life, Outcome, Plan
from primacy.sim.summary import Summary

CHUNK_MAX = 4
"""Lives per errand: enough that handing over costs nothing, few enough that the progress is smooth."""
AHEAD = 3
"""Errands per worker that are out at a time, so that a slow life does not starve the others."""

Live = Callable[[Plan, int], Outcome]
"""One life of a seed. With more than one job it must be importable: a function of a module."""


def live_or_raised(plan: Plan, seed: int) -> Outcome:
    """One life. What it raises becomes a violation, with the moment and the line."""
    life = Life(plan, seed)
    try:
        return life.live()
    except Exception as error:  # noqa: BLE001  (a bug of ours: the seed that shows it counts, and the other lives go on)
        outcome = life.outcome
        outcome.simulated_ms = life.world.now
        where = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__} in {os.path.basename(where.filename)}:{where.lineno}: {error}"
        outcome.violations.append(Violation(life.world.now, "raised", sentence))
        return outcome


def campaign(
    plan: Plan,
    seeds: range,
    jobs: int = 1,
    *,
    live: Live = live_or_raised,
    told: Callable[[Outcome], None] | None = None,
) -> Summary:
    """Lives all seeds and folds them. Ctrl-C ends it early: the summary then covers what was lived, and says so."""
    summary = Summary(plan, seeds.start)
    began = time.perf_counter()
    try:
        with closing(lives(plan, seeds, jobs, live)) as outcomes:
            for outcome in outcomes:
                summary.add(outcome)
                if told is not None:
                    told(outcome)
    except KeyboardInterrupt:
        summary.interrupted = True
    except BrokenExecutor:
        raise CannotHere(
            f"a worker was killed from outside, perhaps for lack of memory; try fewer than {jobs} jobs (--jobs)"
        ) from None
    summary.wall_s = time.perf_counter() - began
    return summary


def lives(plan: Plan, seeds: range, jobs: int = 1, live: Live = live_or_raised) -> Generator[Outcome, None, None]:
    """The outcomes in seed order. One job lives in this process."""
    jobs = min(jobs, len(seeds))
    if jobs <= 1:
        return (live(plan, seed) for seed in seeds)
    return _in_workers(plan, seeds, jobs, live)


def _in_workers(plan: Plan, seeds: range, jobs: int, live: Live) -> Generator[Outcome, None, None]:
    size = max(1, min(CHUNK_MAX, len(seeds) // (4 * jobs)))
    errands = (seeds[at : at + size] for at in range(0, len(seeds), size))
    others = mp.active_children()
    pool = ProcessPoolExecutor(jobs, mp_context=_context(), initializer=_begin_worker)
    out: deque[Future[list[Outcome]]] = deque()
    done = False
    try:
        with _deaf():
            for errand in islice(errands, AHEAD * jobs):
                out.append(pool.submit(_errand, plan, errand, live))
        while out:
            outcomes = out.popleft().result()
            following = next(errands, None)
            if following is not None:
                out.append(pool.submit(_errand, plan, following, live))
            yield from outcomes
        done = True
    finally:
        if not done:
            for worker in mp.active_children():
                if worker not in others:
                    worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _errand(plan: Plan, seeds: range, live: Live) -> list[Outcome]:
    return [live(plan, seed) for seed in seeds]


def _context() -> mp.context.BaseContext:
    """Workers from a server that has imported the simulator once; a plain fork would copy running threads."""
    if "forkserver" not in mp.get_all_start_methods():
        return mp.get_context("spawn")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class _deaf:
    """While workers are started, Ctrl-C waits, and they inherit the deafness."""

    def __enter__(self) -> None:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
