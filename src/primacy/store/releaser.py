"""The releaser: a small process that waits beside a guard and releases one lease, when the guard says so (G5, L4).

    python -m primacy.store.releaser

The agent makes it ready beforehand, as the guard itself has neither a driver nor the time to load one. It is told on
standard input, one line of JSON each:

1. by the agent: {"url", "table", "limit_ms", "name", "holder", "token"}; it connects, and answers "ready";
2. by the guard, once the tree is confirmed gone: {"release": true, "successor": ""}; it looks, releases with the seq
   that it saw, and answers "released" or "refused REASON".

The end of its input without an order means that nothing is to be released: it goes. Nothing else makes it write: a
lease whose work may be alive must never look free.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any, TextIO

from primacy.election.store import Look, ReleaseRow
from primacy.store.batch import perform
from primacy.store.port import LeaseStore
from primacy.store.url import open_store

TRY_S = 10.0
"""Longer than most holds: on a busy machine, or while the store restarts, the first answers may be late."""
PAUSE_S = 0.02
LINE_MAX = 65_536


def release(store: LeaseStore, name: str, holder: str, token: int, successor: str) -> str:
    """`released`, or `refused` and why. A renewal that was under way when the agent died may move the seq meanwhile."""
    end_s = time.monotonic() + TRY_S
    while True:
        (seen,) = perform(store, [Look(name)])
        row = seen.row
        if seen.ok:
            if row is None or (row.holder, row.token) != (holder, token):
                return "refused the row is somebody else's"
            if row.released:  # by an earlier try whose answer was lost
                return "released"
            (answer,) = perform(store, [ReleaseRow(name, holder, token, row.seq, successor)])
            if answer.done:
                return "released"
            reason = answer.reason or "the row was written on another server, or was renewed in this moment"
        else:
            reason = seen.reason or "the store did not answer"
        if time.monotonic() >= end_s:
            return f"refused {reason}"
        time.sleep(PAUSE_S)


def serve(orders: TextIO, answers: TextIO) -> int:
    """One lease, at most one release."""
    first = _line(orders)
    if first is None:
        return 0
    store = open_store(first["url"], table=first["table"], limit_ms=first["limit_ms"], create=False)
    name, holder, token = first["name"], first["holder"], first["token"]
    try:
        perform(store, [Look(name)])  # the connection stands before it is needed; if not, the release tries again
        print("ready", file=answers, flush=True)
        order = _line(orders)
        if order is None or order.get("release") is not True:
            return 0
        said = release(store, name, holder, token, str(order.get("successor", "")))
        print(said, file=answers, flush=True)
        return 0 if said == "released" else 1
    finally:
        store.close()


def _line(orders: TextIO) -> dict[str, Any] | None:
    """The next order; None at the end, or if it is torn: half an order is none."""
    text = orders.readline(LINE_MAX)
    if not text.endswith("\n"):
        return None
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def main() -> None:
    """Deaf to what is meant for the agent's terminal: it ends by its input, and cannot be tricked into more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(serve(sys.stdin, sys.stdout))


if __name__ == "__main__":
    main()
