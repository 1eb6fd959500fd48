"""The releaser: a small process that waits beside the guards of an agent, and releases leases on their word (G5, L4).

    python -m primacy.store.releaser

The agent makes it ready beforehand, as a guard has neither a driver nor the time to load one. One serves all leases of
an agent on one store, over one connection: a server must bear as many agents, not as many leases. It is told on
standard input, a pipe into which the agent and its guards write, one line of JSON each:

    {"url", "table", "limit_ms"}                         by the agent: which store
    {"ready": NAME}                                      by the agent, which holds this lease: it connects, says "ready"
    {"release": true, "name", "holder", "token", ...}    by a guard, once the tree is confirmed gone: it looks, releases
                                                         with the seq that it saw, and says "released NAME" or
                                                         "refused NAME REASON". There may be a "successor"

Its input ends when the agent and all of its guards are gone. Then it goes, once all that was said is done. Nothing but
a whole order makes it write: a lease whose work may be alive must never look free.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.election.store import Look, ReleaseRow, StoreAnswer
from primacy.errors import PrimacyError
from primacy.store.batch import perform
from primacy.store.port import LeaseStore
from primacy.store.url import open_store

TRY_S = 10.0
"""Longer than most holds: on a busy machine, or while the store restarts, the first answers may be late."""
PAUSE_MS = 20
LINE_MAX = 65_536
ROUND_MAX = 20
"""Leases that are looked at, and then released, together. Where a store takes them one by one, the first are free long
before the last is looked at."""
CONNECT_TRIES = 2
"""A connection that was kept may be found broken by the first."""


class Wanted(NamedTuple):
    """A release that a guard ordered."""

    name: str
    holder: str
    token: int
    successor: str
    until_s: float


class Releaser:
    """The leases of one agent on one store. `say`: what became of each order."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.store: LeaseStore | None = None
        self.wanted: dict[str, Wanted] = {}
        """By the name of the lease: an agent holds it with one token at a time, and then no row has an earlier one."""
        self.refused = 0
        self._torn = b""
        self._held = ""
        """A lease that is held now, and for which no connection was made yet."""

    @property
    def has_work(self) -> bool:
        return self.store is not None and bool(self.wanted)

    def hear(self, data: bytes) -> None:
        *lines, self._torn = (self._torn + data).split(b"\n")
        for line in lines:
            try:
                self._obey(json.loads(line))
            except ValueError:
                continue  # half an order is none
        if len(self._torn) > LINE_MAX:
            self._torn = b""

    def _obey(self, order: Any) -> None:
        match order:
            case {"release": True, "name": str(name), "holder": str(holder), "token": int(token)}:
                end_s = time.monotonic() + TRY_S
                self.wanted[name] = Wanted(name, holder, token, str(order.get("successor", "")), end_s)
            case {"ready": str(name)}:
                self._held = name
            case {"url": str(url), "table": str(table), "limit_ms": int(limit_ms)} if self.store is None:
                self.store = open_store(url, table=table, limit_ms=limit_ms, create=False)

    def act(self) -> None:
        """Releases first. What cannot be released now is left for the next time."""
        if self.store is None:
            return
        orders = [*self.wanted.values()]
        for at in range(0, len(orders), ROUND_MAX):
            self._release(self.store, orders[at : at + ROUND_MAX])
        if self._held and not self.wanted:
            self._connect(self.store, self._held)
            self._held = ""

    def _connect(self, store: LeaseStore, name: str) -> None:
        """The connection stands before it is needed; if it cannot be made now, the release tries again."""
        for _ in range(CONNECT_TRIES):
            (seen,) = perform(store, [Look(name)])
            if seen.ok:
                break
        self.say("ready")

    def _release(self, store: LeaseStore, orders: list[Wanted]) -> None:
        """A renewal that was under way when the agent died may move the seq between the look and the release."""
        owned: list[tuple[Wanted, ReleaseRow]] = []
        for order, seen in zip(orders, perform(store, [Look(order.name) for order in orders]), strict=True):
            row = seen.row
            if not seen.ok:
                self._failed(order, seen, "the store did not answer")
            elif row is None or (row.holder, row.token) != (order.holder, order.token):
                self._over(order, "the row is somebody else's")
            elif row.released:  # by an earlier try whose answer was lost
                self._over(order)
            else:
                owned.append((order, ReleaseRow(order.name, order.holder, order.token, row.seq, order.successor)))
        for (order, _), answer in zip(owned, perform(store, [request for _, request in owned]), strict=True):
            if answer.done:
                self._over(order)
            else:
                self._failed(order, answer, "the row was written on another server, or was renewed in this moment")

    def _failed(self, order: Wanted, answer: StoreAnswer, otherwise: str) -> None:
        if time.monotonic() >= order.until_s:
            self._over(order, answer.reason or otherwise)

    def _over(self, order: Wanted, refusal: str = "") -> None:
        del self.wanted[order.name]
        self.refused += bool(refusal)
        self.say(f"refused {order.name} {refusal}" if refusal else f"released {order.name}")


def serve(orders: int, say: Callable[[str], None]) -> int:
    """Until there is nobody left who could order anything, and all that was ordered is done."""
    releaser = Releaser(say)
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    goes_on = True
    while goes_on or releaser.has_work:
        if poll.poll(PAUSE_MS if releaser.has_work else None):
            data = os.read(orders, LINE_MAX)
            releaser.hear(data)
            if not data:
                goes_on = False
                poll.unregister(orders)
        releaser.act()
    if releaser.store is not None:
        releaser.store.close()
    return 1 if releaser.refused else 0


def main() -> None:
    """Deaf to what is meant for the agent's terminal: it ends by its input, and cannot be tricked into more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.exit(serve(sys.stdin.fileno(), lambda text: print(text, flush=True)))
    except PrimacyError as error:
        sys.exit(f"leases of a killed agent are not released: {error}")


if __name__ == "__main__":
    main()
