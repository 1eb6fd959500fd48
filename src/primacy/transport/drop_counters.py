"""Datagrams counted by what became of them; what somebody should look into is said, at most once a minute."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

SAY_AFTER_S = 1.0
SAY_AGAIN_S = 60.0
SAID = ("size", "foreign", "seal", "stranger", "layout", "head", "payload", "replay")
"""Drops that somebody should look into; the others are a network's daily life."""


class DropCounters:
    """The counters of one transport."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self.counters: dict[str, int] = defaultdict(int)
        self.complain = complain
        self._unsaid: dict[str, int] = {}
        self._saying: asyncio.TimerHandle | None = None

    def count(self, what: str) -> None:
        self.counters[what] += 1

    def drop(self, why: str) -> None:
        self.count(why)
        if why in SAID:
            self._unsaid[why] = self._unsaid.get(why, 0) + 1
            if self._saying is None:
                self._saying = asyncio.get_running_loop().call_later(SAY_AFTER_S, self._say)

    def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None

    def _say(self) -> None:
        """Often enough to be seen, and never a line for each."""
        self._saying = None
        if self._unsaid:
            kinds = ", ".join(f"{count} {why}" for why, count in sorted(self._unsaid.items()))
            self._unsaid = {}
            self.complain(f"dropped datagrams: {kinds}")
            self._saying = asyncio.get_running_loop().call_later(SAY_AGAIN_S, self._say)
