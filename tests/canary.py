"""A canary beside a test of stability: it sleeps one beat at a time and notes how late it wakes.

"Nothing changes" can only be demanded of a machine that lets a process run when its time has come. Where the canary
woke late by more than half a beat, the case is void: that is noted and the case repeated, at most three times in all;
then it is skipped, with the figures. A case that fails while the canary was on time has failed. Safety is never judged
this way: no machine is too slow for it. What hides between two wakes is a stall of a beat and a half at most; a bound
that is argued more closely wants a canary that wakes more often.

    @beside_a_canary(250)
    def test_...                    # its body begins anew at every try

    python -I -S canary.py BEAT_MS  # until its standard input ends; prints the largest lateness in ms
"""

from __future__ import annotations

import functools
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

TRIES = 3
NOTES = "PRIMACY_NOTES"
"""Names the file to which voids and skips are noted, for the summary of the whole run."""


class Canary:
    """A process of its own, for a thread of the test would wait for the test."""

    def __init__(self, beat_ms: float) -> None:
        self.beat_ms = beat_ms
        self.worst_ms = 0.0

    @property
    def was_on_time(self) -> bool:
        return self.worst_ms <= self.beat_ms / 2

    def judge(self, holds: bool, what: str) -> None:
        """Once it has ended: this must hold, but on a machine that was late, where that it does not is noted only."""
        assert holds or not self.was_on_time, f"{what}; the canary was on time, {self.worst_ms:.1f} ms late at most"
        if not holds:
            note(f"void: {what}; the canary woke {self.worst_ms:.0f} ms late")

    def __enter__(self) -> Canary:
        command = [sys.executable, "-I", "-S", __file__, str(self.beat_ms)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"here\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        said, _ = self.process.communicate(timeout=60)
        self.worst_ms = float(said)


def beside_a_canary(beat_ms: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the test beside a canary: up to three times, as long as it was void."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: object, **named: object) -> None:
            late = []
            for _ in range(TRIES):
                failure: BaseException | None = None
                with Canary(beat_ms) as canary:
                    try:
                        test(*args, **named)
                    except (Exception, Failed) as fault:  # noqa: BLE001 -- raised again, unless it is excused
                        failure = fault
                if canary.was_on_time:
                    if failure is not None:
                        raise failure
                    return
                late.append(f"{canary.worst_ms:.0f}")
                what = "would have failed" if failure is not None else "would have passed"
                note(f"void: {test.__name__}: the canary woke {late[-1]} ms late ({what})")
            pytest.skip(
                f"void {TRIES} times: the canary woke {', '.join(late)} ms late, and half a beat is {beat_ms / 2:g} ms"
            )

        return run

    return decorated


def excused_if_late(beat_ms: float, test: Callable[..., None], named: dict[str, Any]) -> None:
    """For a module whose holds are short: what passed has passed; a failure beside a late canary is void.

    It is for modules that say `CANARY_BEAT_MS` (see `conftest.py`). Before a further try, every fixture that has
    `begin_anew` is told so.
    """
    late = []
    for _ in range(TRIES):
        with Canary(beat_ms) as canary:
            try:
                test(**named)
                return
            except (Exception, Failed) as fault:  # noqa: BLE001 -- raised again, unless it is excused
                failure: BaseException = fault
        if canary.was_on_time:
            raise failure
        late.append(f"{canary.worst_ms:.0f}")
        note(f"void: {test.__name__}: the canary woke {late[-1]} ms late (would have failed: {failure!r:.200})")
        for fixture in named.values():
            if hasattr(fixture, "begin_anew"):
                fixture.begin_anew()
    pytest.skip(f"failed {TRIES} times beside a canary that woke {', '.join(late)} ms late")


def note(line: str) -> None:
    """For the reader of the run: at once, and in the summary at the end."""
    print(line)
    path = os.environ.get(NOTES)
    if path:
        with open(path, "a") as file:
            file.write(line + "\n")


def sit(beat_s: float) -> float:
    """The largest lateness of a wake, in ms. The last wake counts as well, for a test may fail by what has just made it
    late, and end before the canary is up again."""
    worst_s, woke_s = 0.0, time.monotonic()
    while True:
        is_over = select.select([0], [], [], beat_s)[0]
        before_s, woke_s = woke_s, time.monotonic()
        worst_s = max(worst_s, woke_s - before_s - beat_s)
        if is_over:
            return worst_s * 1_000


if __name__ == "__main__":
    os.write(1, b"here\n")
    print(sit(float(sys.argv[1]) / 1_000))
else:
    import pytest

    Failed = pytest.fail.Exception
