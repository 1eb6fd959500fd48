"""The events of all nodes in one list, each once, in the order of their time. Bounded. Pure.

Several nodes tell the same event: its own node from its log, others as far as they heard of it. It is known by what it
says, for its number differs from log to log. A node that is met late tells of its past: the oldest of all go, whoever
told them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from primacy.dashboard import EVENTS_MAX
from primacy.dashboard.rows import Row

BEFORE_MAX = 1_000
"""20 nodes with 50 codes."""
FEW = 16
"""So many are put into their places one by one; of more, all are sorted."""
LAB = "lab"
"""What a person did to a lab. It belongs to no term, and is shown in the one in which it was done."""


class Record:
    """The newest events."""

    def __init__(self, most: int = EVENTS_MAX) -> None:
        self.rows: list[Row] = []
        self.most = most
        self.before: dict[tuple[str, str], Row] = {}
        """Of each node and code the last one that is older than the rows: how things stood when they begin."""
        self.dropped_ms = 0
        """Of the newest one that went; 0: none did."""
        self._known: dict[Row, None] = {}
        self._term = 0
        self._known_most = 4 * most
        """Longer than the list, so that a log told anew by a second node brings nothing back."""

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Those that are new and not older than all that are kept, in order of their time."""
        fresh = []
        for told in rows:
            self._term = max(self._term, told.term)
            row = told._replace(term=self._term) if told.code == LAB else told
            if told not in self._known:
                self._known[told] = None
                fresh.append(row)
        while len(self._known) > self._known_most:
            del self._known[next(iter(self._known))]
        fresh.sort(key=_when)
        if len(fresh) <= FEW:
            for row in fresh:
                insort(self.rows, row, key=_when)
        else:
            self.rows[:] = sorted((*self.rows, *fresh), key=_when)
        gone, self.rows[:] = self.rows[: -self.most], self.rows[-self.most :]
        for row in gone:
            self.dropped_ms = max(self.dropped_ms, row.at_unix_ms)
            self.stood(row)
        return fresh if not gone else [row for row in fresh if row.at_unix_ms >= self.rows[0].at_unix_ms]

    def stood(self, row: Row) -> None:
        """Before all rows that are kept."""
        key = (row.node, row.code)
        earlier = self.before.get(key)
        if earlier is None or earlier.at_unix_ms <= row.at_unix_ms:
            self.before.pop(key, None)
            self.before[key] = row
        while len(self.before) > BEFORE_MAX:
            del self.before[next(iter(self.before))]


def _when(row: Row) -> int:
    return row.at_unix_ms
