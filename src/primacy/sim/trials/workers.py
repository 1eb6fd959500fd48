"""Trials in several processes, each outcome as soon as it is there, and none lost with its worker.

A worker gets a few seeds at a time and tells each outcome by itself, so that it is known which seed it is at. If it
is killed, or does not answer any more, that seed is told as lost, another worker takes its place and goes on with the
next seed. Workers hear nothing of Ctrl-C (the parent ends them), and they end by themselves if the parent is killed.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from primacy.errors import CannotHere

LOST_MAX = 5
"""So many workers lost one after the other, with no outcome between: it is this machine, not the seeds."""
START_S = 120.0
"""For a worker to be there, on top of what its first trial may take: an interpreter and its imports are no trial."""
SERVER_FOLDER_BYTES_MAX = 70
"""The server listens on a socket in the folder for temporary files; the name of one may have 107 bytes in all."""
AHEAD_MAX = 2_000
"""Outcomes that wait here for an earlier seed, so that one slow trial does not hold up the others for long."""

Done = TypeVar("Done")


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    seeds: list[int] = field(default_factory=list)
    """What it was given and has not told yet; it is at the first one."""
    since_s: float = 0.0
    """When it began with the first one."""
    is_there: bool = False
    """It has said so."""


class Workers(Generic[Done]):
    """`work` must be importable: a function of a module. `lost` says what becomes of a seed whose worker is gone."""

    def __init__(self, jobs: int, work: Callable[[int], Done], lost: Callable[[int, str], Done], wall_s: float) -> None:
        self.jobs = jobs
        self.work = work
        self.lost = lost
        self.wall_s = wall_s
        self._context = _context()
        self._workers: list[_Worker] = []
        self._lost_in_a_row = 0

    def outcomes(self, chunks: Iterator[range]) -> Generator[Done, None, None]:
        """In the order of the seeds."""
        order: deque[int] = deque()
        done: dict[int, Done] = {}
        try:
            for _ in range(self.jobs):
                self._workers.append(self._started())
            while True:
                for worker in self._workers:
                    if not worker.seeds and len(done) < AHEAD_MAX:
                        seeds = list(next(chunks, range(0)))
                        order += seeds
                        _give(worker, seeds)
                if not order:
                    return
                for seed, outcome in self._next():
                    done[seed] = outcome
                while order and order[0] in done:
                    yield done.pop(order.popleft())
        finally:
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()
                worker.pipe.close()

    def _started(self) -> _Worker:
        ours, its = self._context.Pipe()
        process = self._context.Process(target=_work_off, args=(its, self.work), daemon=True)
        with _deaf():
            process.start()
        its.close()
        return _Worker(process, ours)

    def _next(self) -> list[tuple[int, Done]]:
        """What has been told, or lost, since; waits until there is something."""
        busy = [worker for worker in self._workers if worker.seeds]
        left_s = min(map(self._until_s, busy)) - time.monotonic()
        wait([thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)], max(0.0, left_s))
        told: list[tuple[int, Done]] = []
        for worker in busy:
            told += self._heard(worker)
            if not worker.seeds:
                continue
            if not worker.process.is_alive():
                told += self._heard(worker)  # what it said before it died
                told += self._replace(worker, f"its worker was killed, {_how(worker.process.exitcode)}")
            elif time.monotonic() > self._until_s(worker):
                told += self._replace(worker, f"it did not end within {self.wall_s:.0f} s; its worker was killed")
        return told

    def _until_s(self, worker: _Worker) -> float:
        """How long it is waited for."""
        return worker.since_s + self.wall_s + (0.0 if worker.is_there else START_S)

    def _heard(self, worker: _Worker) -> list[tuple[int, Done]]:
        told: list[tuple[int, Done]] = []
        try:
            while worker.seeds and worker.pipe.poll():
                said = worker.pipe.recv()
                worker.since_s = time.monotonic()
                if not worker.is_there:
                    worker.is_there = True
                    continue
                told.append((worker.seeds.pop(0), said))
                self._lost_in_a_row = 0
        except (EOFError, OSError):
            pass  # it died while it spoke: the caller sees that
        return told

    def _replace(self, worker: _Worker, why: str) -> list[tuple[int, Done]]:
        """Another worker goes on behind the seed that this one was at."""
        if not worker.seeds:
            return []
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= LOST_MAX:
            raise CannotHere(
                f"{LOST_MAX} workers in a row were killed from outside, perhaps for lack of memory; "
                f"try fewer than {self.jobs} jobs (--jobs)"
            )
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        seed, *rest = worker.seeds
        fresh = self._started()
        _give(fresh, rest)
        self._workers[self._workers.index(worker)] = fresh
        return [(seed, self.lost(seed, why))]


def _give(worker: _Worker, seeds: list[int]) -> None:
    worker.seeds, worker.since_s = seeds, time.monotonic()
    if seeds:
        with suppress(OSError):  # a dead one is seen by who waits for it, and these are still its seeds
            worker.pipe.send(seeds)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit {code}"
    return signal.Signals(-code).name


# --- in a worker ------------------------------------------------------------------------------------------------------


def _work_off(pipe: Connection, work: Callable[[int], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(None)  # it is there
    while True:
        for seed in pipe.recv():
            pipe.send(work(seed))


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _context() -> Any:
    """Workers from a server that has imported the simulator once; a plain fork would copy running threads. Where there
    is none, or no socket of its can be named, each worker imports it by itself."""
    is_too_long = len(os.fsencode(tempfile.gettempdir())) > SERVER_FOLDER_BYTES_MAX
    if "forkserver" not in mp.get_all_start_methods() or is_too_long:
        return mp.get_context("spawn")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["primacy.sim.trials.batch"])
    return context


class _deaf:
    """While a worker is started, Ctrl-C waits, and the worker inherits the deafness."""

    def __enter__(self) -> None:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
