"""Processes of a comparison: started with a pipe that is watched, found again with all that stems from them, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.watch import Watch

ENDS_S = 30.0
MIB = 1_048_576


def start(
    watch: Watch, source: str, argv: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Its standard output and error are lines of the watch."""
    ours, theirs = os.pipe()
    try:
        environment = {**os.environ, **(more or {})}
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=folder, env=environment
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    watch.add(source, ours)
    return process


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """All that stems from them as well, by number: first stopped in order from the top, so that nobody starts more."""
    alive = [one for one in processes if one.poll() is None]
    for one in alive:
        for pid in tree(one.pid):
            signal_to(pid, signal.SIGSTOP)
    for one in alive:
        for pid in reversed(tree(one.pid)):
            signal_to(pid, signal.SIGKILL)
    for one in alive:
        one.wait(ENDS_S)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM is an end like any other: what was started is ended."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def deaf() -> None:
    """From here on to the end of this process: no second signal breaks off what a first one began."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def signal_to(pid: int, number: int) -> None:
    """To one process: 0 and negative numbers would mean whole groups, ours among them."""
    assert pid > 1, pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            words = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()
            found.extend(map(int, words))
    return found


def tree(pid: int) -> list[int]:
    """The process and all that stems from it, from the top down."""
    return [pid, *(each for child in children(pid) for each in tree(child))]


def name_of(pid: int) -> str:
    """As the kernel shows it; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def cpu_ns(pid: int) -> int:
    """Processor time of all its threads, to the nanosecond: the scheduler's own account."""
    total = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii").split()[0])
    return total


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / MIB
    return 0.0
