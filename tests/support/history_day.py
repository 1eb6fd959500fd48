"""A day of a cluster as a node kept it, invented: 20 nodes with long names, and an hour in which much happened."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from primacy.control.eventlog import Entry
from primacy.control.history import History
from primacy.control.history_scan import Hold
from primacy.node.folder import Folder

HOUR = 3_600_000
DAY = 24 * HOUR
NAMES = [f"scheduler-{at:02}.payments.europe-west.example.org" for at in range(20)]
QUIET_MS = 90_000
"""Between two changes of leader in a quiet time."""
BURST_AGO_MS = 3 * HOUR
BURST_S = 60
BURST_STEP_MS = 15
"""A change of leader has 24 events and takes seven steps: 230 events a second."""
HOLD_MS = 3_000
BASE = 1_794_600_000_000
"""Of the tokens."""


class Day:
    """Writes it as a node does."""

    def __init__(self, folder: str, names: list[str] | None = None) -> None:
        self.folder = folder
        self.names = names or NAMES
        self.now_ms = 0
        self.number = 0
        self.term = 0
        self.files = Folder(folder)
        self.history = History(self.files, print, wall_ms=lambda: self.now_ms)

    def tell(self, node: str, code: str, text: str, value: int = 0) -> None:
        self.number += 1
        self.history.add(Entry(self.number, self.now_ms, node, self.term, code, text, value))

    def change(self, step_ms: int) -> None:
        """One leader after another: its command ends, the next one is elected, and all follow it."""
        old, new = self.names[self.term % len(self.names)], self.names[(self.term + 1) % len(self.names)]
        if self.term:
            self.history.hear_holds([Hold(old, self.now_ms - 1_000, self.now_ms - 1_000 + HOLD_MS, BASE + self.term)])
            self.tell(old, "stopping", f"the command is told to end (run {self.term})", 2_000)
            self.now_ms += step_ms
            self.tell(old, "gone", f"nothing of the command is left (run {self.term})")
            self.now_ms += step_ms
        self.term += 1
        self.tell(new, "campaigns", f"{new} campaigns (term {self.term})")
        self.now_ms += step_ms
        self.tell(new, "elected", f"{new} leads (term {self.term})")
        self.tell(new, "running", f"the command runs: process {4_000 + self.term}, run {self.term}")
        for name in self.names:
            if name != new:
                self.now_ms += step_ms // 4
                self.tell(name, "follows", f"{name} follows {new} (term {self.term})")

    def write(self, until_ms: int) -> None:
        """The day before that moment."""
        self.now_ms = until_ms - DAY + HOUR
        burst_ms = until_ms - BURST_AGO_MS
        while self.now_ms < until_ms - QUIET_MS:
            if burst_ms <= self.now_ms < burst_ms + BURST_S * 1_000:
                self.change(BURST_STEP_MS)
            else:
                self.change(100)
                quiet_ms = self.now_ms + QUIET_MS
                self.now_ms = burst_ms if self.now_ms < burst_ms < quiet_ms else quiet_ms
            if self.term % 20 == 0:
                self.history.write()

    def close(self) -> None:
        self.history.close()
        self.files.close()


def make_day(folder: Path, until_ms: int, names: list[str] | None = None) -> Day:
    day = Day(str(folder), names)
    with closing(day):
        day.write(until_ms)
    return day
