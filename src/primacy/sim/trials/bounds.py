"""What one trial may take of the machine it runs on: memory, and time of the processor.

Events and messages are bounded inside the world (E2). This is for what happens inside of one event: a machine that
hoards, or that never returns from a step. Both end the trial and nothing else. Where the system knows no such bound,
or in a thread, there is none.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

try:
    import resource
except ImportError:  # a system without such limits
    resource = None  # type: ignore[assignment]

MEMORY_MAX = 512 << 20
"""On top of what the process has when the trial begins. Trials of 50 nodes take less than a tenth of it."""
CPU_S_MAX = 120.0
"""For each simulated hour, and at least for one. The longest trial of the tests takes 2 s for its two minutes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one trial."""

    memory: int = MEMORY_MAX
    cpu_s: float = CPU_S_MAX
    wall_s: float = 10 * CPU_S_MAX
    """After so long a worker is not waited for any more: it may have had a tenth of a core, and still not ended."""

    def for_minutes(self, minutes: float) -> Bounds:
        times = max(1.0, minutes / 60)
        return Bounds(self.memory, self.cpu_s * times, self.wall_s * times)


class OutOfTime(BaseException):
    """The trial took too long. No `except Exception` of a user's strategy keeps it."""


@contextmanager
def bounded(bounds: Bounds) -> Iterator[None]:
    """Raises MemoryError or OutOfTime in what runs in it."""
    with _memory(bounds.memory), _time(bounds.cpu_s):
        yield


@contextmanager
def _memory(most: int) -> Iterator[None]:
    size = _size()
    if resource is None or size is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = size + most
    lower = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *lower]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _size() -> int | None:
    """What this process has of memory, in bytes, as the limit counts it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except OSError:
        return None
    return pages * resource.getpagesize()


@contextmanager
def _time(most_s: float) -> Iterator[None]:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(_: int, __: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, most_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
