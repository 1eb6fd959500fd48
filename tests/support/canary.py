"""A canary beside a test of stability: it sleeps one heartbeat at a time and notes how late it wakes.

"Nothing changes" and "soon enough" can only be demanded of a machine that lets a process run when its time has come.
Where the canary woke late by more than half a heartbeat, the case is void: that is noted and the test repeated, three
times in all at most (`void_attempts.py`); then it is skipped, with the figures. A case that fails while the canary was
on time has failed. Safety is never judged this way: no machine is too slow for it, and a `SafetyViolation`
(`safety_checks.py`) fails the test at once, whatever the canary says. What hides between two wakes is a stall of a
heartbeat and a half at most; a bound that is argued more closely wants a canary that wakes more often.

    @beside_a_canary(250)           # the whole body: void if the canary was late, whatever came of it
    CANARY_HEARTBEAT_MS = 250            # in a module: each of its tests is void if it failed while the canary was late
    canary.judge(holds, what)       # one statement: void if it does not hold and the canary was late

Beside every test of real processes sits one more, which writes to the disk as well. A failure while this one was late,
or its disk, is tried again, three times in all at most; the last one counts, for it excuses nothing (`TriedAgain`).
What only sounds like safety is not tried again either.

    python -I -S canary.py HEARTBEAT_MS  # until its standard input ends; prints the largest lateness in ms
    python -I -S canary.py HEARTBEAT_MS FOLDER  # likewise at each line that it reads, since the line before, and how
                                         # long the slowest write to a file of this folder took
"""

from __future__ import annotations

import functools
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

NOTES = "PRIMACY_NOTES"
"""Names the file to which voids and skips are noted, for the summary of the whole run."""
VOIDS: list[str] = []
"""Statements of the test that runs now that were void. The rest of it is judged; then it counts as void."""


class Void(Exception):
    """Says nothing about the product: the machine was late. Repeated, or skipped in the end."""


class TriedAgain(Void):
    """Says little about the product: the machine or its disk was late. Repeated; but the last attempt counts."""


class Canary:
    """A process of its own, for a thread of the test would wait for the test."""

    def __init__(self, heartbeat_ms: float, late_ms: float = 0) -> None:
        """Late is more than half a heartbeat, or than `late_ms`, for a canary that wakes more often than a
        heartbeat."""
        self.heartbeat_ms = heartbeat_ms
        self.late_ms = late_ms or heartbeat_ms / 2
        self.worst_ms = 0.0

    @property
    def was_on_time(self) -> bool:
        return self.worst_ms <= self.late_ms

    def judge(self, holds: bool, what: str) -> None:
        """Once it has ended: this must hold, but on a machine that was late, where the test is void. Never safety."""
        assert holds or not self.was_on_time, f"{what}; the canary was on time, {self.worst_ms:.1f} ms late at most"
        if not holds:
            VOIDS.append(f"{what}; {self.figures()}")

    def figures(self) -> str:
        return f"the canary woke {self.worst_ms:.0f} ms late, {self.late_ms:g} ms at most are on time"

    def __enter__(self) -> Canary:
        command = [sys.executable, "-I", "-S", __file__, str(self.heartbeat_ms)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"here\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        said, _ = self.process.communicate(timeout=60)
        self.worst_ms = float(said)


class StandingCanary:
    """One for all tests of a run. A node waits for its disk before it votes, so this one writes there, too."""

    HEARTBEAT_MS = 100
    """Of the profile `fast`."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(self.HEARTBEAT_MS), tempfile.gettempdir()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"here\n"

    def late(self) -> str:
        """What was late by more than half a heartbeat since this was asked last; empty if nothing was."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        woke_ms, disk_ms = map(float, self.process.stdout.readline().split())
        if max(woke_ms, disk_ms) <= self.HEARTBEAT_MS / 2:
            return ""
        return f"the canary woke {woke_ms:.0f} ms late, its disk took {disk_ms:.0f} ms"

    def end(self) -> None:
        self.process.communicate(timeout=60)


def beside_a_canary(
    heartbeat_ms: float, *, passes_if_late: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the test beside a canary that must be on time for it to count, passed or failed; or failed only."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: object, **named: object) -> None:
            _beside(heartbeat_ms, functools.partial(test, *args, **named), passes_if_late=passes_if_late)

        return run

    return decorated


def excused_if_late(heartbeat_ms: float, test: Callable[[], object]) -> None:
    """For a module whose holds are short: what passed has passed; a failure beside a late canary is void."""
    _beside(heartbeat_ms, test, passes_if_late=True)


def _beside(heartbeat_ms: float, test: Callable[[], object], *, passes_if_late: bool) -> None:
    failure: BaseException | None = None
    with Canary(heartbeat_ms) as canary:
        try:
            test()
        except (Exception, Failed) as fault:  # noqa: BLE001 -- raised again, unless it is excused
            failure = fault
    if failure is not None and (canary.was_on_time or violation_in(failure) is not None):
        raise failure
    if not canary.was_on_time and (failure is not None or not passes_if_late):
        outcome = f"would have failed: {failure!r:.200}" if failure is not None else "would have passed"
        raise Void(f"{canary.figures()} ({outcome})") from failure


def note(line: str) -> None:
    """For the reader of the run: at once, and in the summary at the end."""
    print(line)
    path = os.environ.get(NOTES)
    if path:
        with open(path, "a") as file:
            file.write(line + "\n")


def sit(heartbeat_s: float) -> float:
    """The largest lateness of a wake, in ms. The last wake counts as well, for a test may fail by what has just made it
    late, and end before the canary is up again."""
    worst_s, woke_s = 0.0, time.monotonic()
    while True:
        is_over = select.select([0], [], [], heartbeat_s)[0]
        before_s, woke_s = woke_s, time.monotonic()
        worst_s = max(worst_s, woke_s - before_s - heartbeat_s)
        if is_over:
            return worst_s * 1_000


class Disk:
    """How long the slowest write took, the one under way included."""

    EVERY_S = 1.0

    def __init__(self, folder: str) -> None:
        path = f"{folder}/canary-{os.getpid()}"
        self.file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.unlink(path)
        self.worst_s, self.began_s = 0.0, 0.0
        threading.Thread(target=self.write, daemon=True).start()

    def write(self) -> None:
        while True:
            self.began_s = time.monotonic()
            os.pwrite(self.file, b"x" * 4096, 0)
            os.fdatasync(self.file)
            took_s, self.began_s = time.monotonic() - self.began_s, 0.0
            self.worst_s = max(self.worst_s, took_s)
            time.sleep(self.EVERY_S)

    def slowest_s(self) -> float:
        """Since this was asked last."""
        began_s, worst_s = self.began_s, self.worst_s
        self.worst_s = 0.0
        return max(worst_s, time.monotonic() - began_s if began_s else 0.0)


def stand(heartbeat_s: float, folder: str) -> None:
    """Answers each line with the largest lateness of a wake and of a write since the line before, in ms."""
    disk, worst_s, woke_s = Disk(folder), 0.0, time.monotonic()
    while True:
        asked = select.select([0], [], [], heartbeat_s)[0]
        before_s, woke_s = woke_s, time.monotonic()
        worst_s = max(worst_s, woke_s - before_s - heartbeat_s)
        if asked:
            if not os.read(0, 1):
                return
            os.write(1, f"{worst_s * 1_000} {disk.slowest_s() * 1_000}\n".encode())
            worst_s = 0.0


if __name__ == "__main__":
    os.write(1, b"here\n")
    if len(sys.argv) > 2:
        stand(float(sys.argv[1]) / 1_000, sys.argv[2])
    else:
        print(sit(float(sys.argv[1]) / 1_000))
else:
    import tempfile

    import pytest

    from tests.support.safety_checks import violation_in

    Failed = pytest.fail.Exception
