"""What PostgreSQL's notifications say of rows, believed as far as a take can check it.

Every write but a take tells the others what the row is now. Whoever knows the row from a look then knows it without
looking, and may count from the moment at which the notification arrived (L3): it was sent after the renewal was.

But everybody who may connect may send notifications, without any right to the table. A liar could announce a renewal
that is yet to come, so that its watchers would count from too early. Therefore each write draws a random `proof`, which
stands in the row and in the notification, and a take compares it: nobody can announce what is not drawn yet. A look
that contradicts a notification shows the lie; from then on notifications are only a reason to look, as they are where
they say nothing that we understand.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from primacy.election.store import Row, StoreAnswer, Take
from primacy.store.port import HOLDER_MAX, SEQ_MAX, News

log = logging.getLogger("primacy.store")

KNOWN_MAX = 10_000
"""Rows that are remembered between requests; the rest is looked at."""
DIGITS_MAX = 19
"""Of a number in a notification: what the column can hold."""


class Known(NamedTuple):
    """A row, and the proof of its last write."""

    row: Row
    proof: str
    told: bool = False
    """By a notification. An answer of the store replaces it."""


class Hearsay:
    """The rows of one connection to one server."""

    def __init__(self) -> None:
        self.believes = True
        """Nothing that was told has turned out wrong."""
        self._server = ""
        self._known: dict[str, Known] = {}

    def forget(self) -> None:
        """The connection is gone; the next one may lead elsewhere."""
        self._known.clear()

    def answered(self, server: str, names: Sequence[str], found: dict[str, Known]) -> bool:
        """What the store itself says of these rows. False: it contradicts what was told before."""
        if server != self._server:
            self._known.clear()
            self._server = server
        true = True
        for name in names:
            before, now = self._known.pop(name, None), found.get(name)
            if before is not None and before.told and now is not None:
                true = true and not _contradicts(before, now)
            if now is not None:
                self._remember(name, now)
        if not true and self.believes:
            self.believes = False
            log.warning("somebody sends false notifications of leases; from now on each row is looked at")
        return true

    def heard(self, payload: str) -> News | None:
        """What a notification is worth: a row, a reason to look, or nothing."""
        name, _, rest = payload.partition(" ")
        words = rest.split(" ")
        if len(words) != 5 or not all(word.isdigit() and len(word) <= DIGITS_MAX for word in words[:3]):
            return News(name)
        token, seq, released = (int(word) for word in words[:3])
        if seq > SEQ_MAX or len(words[4]) > HOLDER_MAX:
            return News(name)
        known = self._known.get(name)
        if known is None or known.row.token != token or not self.believes:
            return News(name) if released else None  # a renewal by somebody unknown: the next look is soon enough
        row = known.row._replace(seq=seq, released=bool(released), successor=words[4], server=self._server)
        if (row.seq, row.released) <= (known.row.seq, known.row.released):
            return None  # our own write, or an answer was quicker
        self._remember(name, Known(row, words[3], told=True))
        return News(name, StoreAnswer(ok=True, row=row, server=self._server))

    def proof(self, take: Take) -> str | None:
        """What the row that is to be taken must have been written with; None if we know only what the taker saw."""
        known = self._known.get(take.name)
        seen = None if known is None else (known.row.token, known.row.seq)
        return known.proof if known is not None and seen == (take.seen_token, take.seen_seq) else None

    def _remember(self, name: str, known: Known) -> None:
        if len(self._known) >= KNOWN_MAX and name not in self._known:
            del self._known[next(iter(self._known))]
        self._known[name] = known


def _contradicts(told: Known, now: Known) -> bool:
    """A row only ever goes on, with one proof for each step."""
    if told.row.token != now.row.token:
        return False  # taken since; or the store itself went back, which whoever watches notices
    step, since = (told.row.seq, told.row.released), (now.row.seq, now.row.released)
    return since < step or (since == step and told.proof != now.proof)
