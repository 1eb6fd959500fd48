"""The events of all nodes in one list, each once, in the order in which they arrived here. Bounded. Pure.

Several nodes tell the same event: its own node from its log, others as far as they heard of it. It is known by what it
says, for its number differs from log to log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from primacy.dashboard import EVENTS_MAX
from primacy.dashboard.rows import Row

LAB = "lab"
"""What a person did to a lab. It belongs to no term, and is shown in the one in which it was done."""


class Record:
    """The newest events."""

    def __init__(self, most: int = EVENTS_MAX) -> None:
        self.rows: deque[Row] = deque(maxlen=most)
        self._known: dict[Row, None] = {}
        self._term = 0
        self._most = 4 * most
        """Longer than the list, so that a log told anew by a second node brings nothing back."""

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Those that are new, in order of their time."""
        fresh = []
        for told in rows:
            self._term = max(self._term, told.term)
            row = told._replace(term=self._term) if told.code == LAB else told
            if told not in self._known:
                self._known[told] = None
                fresh.append(row)
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        fresh.sort(key=lambda row: row.at_unix_ms)
        self.rows.extend(fresh)
        return fresh
