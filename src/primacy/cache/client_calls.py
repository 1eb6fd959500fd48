"""One call of a cache client, over all of its attempts, and what is an answer to it. Decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from primacy.cache.access import named_key
from primacy.cache.client_servers import Server
from primacy.cache.wire_client import CLAIMED, SERVERS, STATUS, Answer, Request
from primacy.errors import NotReached, SourceFailed, Unsure

FIRST_S = 0.5
"""To the first answer of a peer (document)."""
SIGN_S = 2.0
"""After each sign to go on waiting (document; the original waits 2.1 s)."""
CHANGE_S = 3.5
"""To the answer about a change: one that a peer misses takes 2.1 s (C11)."""
PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.5
"""After every peer has refused; doubled from the one to the other."""

Make = Callable[[bytes, int, int], Request]
"""A request from its id, its expiry and the ms that are left."""


class Call:
    """One call, over all of its attempts."""

    __slots__ = ("change", "current", "deadline_s", "due_s", "fresh", "future", "ids", "key", "make", "pause_s",
                 "refused", "server", "since_s", "timer", "why")  # fmt: skip

    def __init__(self, make: Make, deadline_s: float, change: bool, future: asyncio.Future[Answer]) -> None:
        self.make = make
        self.deadline_s = deadline_s
        self.change = change
        self.fresh = False
        self.key = b""
        """What it asks about, if that is one key."""
        self.future = future
        self.current = b""
        """The attempt that is under way."""
        self.since_s = self.due_s = 0.0
        """Of this attempt: since when a sign is waited for, and until when."""
        self.server: Server | None = None
        self.ids: list[bytes] = []
        self.refused: set[Server] = set()
        self.pause_s = PAUSE_MIN_S
        self.timer: asyncio.TimerHandle | None = None
        """Of a pause between two attempts."""
        self.why = "no peer could be reached"

    def asked(self, now_s: float) -> None:
        """A peer was asked: its first sign is waited for, or another peer is asked."""
        self._expect(now_s, CHANGE_S if self.change else FIRST_S)

    def went_on(self, now_s: float) -> None:
        """It gave a sign to go on waiting."""
        self._expect(now_s, CHANGE_S if self.change else SIGN_S)

    def _expect(self, now_s: float, within_s: float) -> None:
        self.since_s = now_s
        self.due_s = min(now_s + within_s, self.deadline_s)


class Dues:
    """When the attempts of a client are due, with one timer for all of them.

    `due` is asked about an attempt: when it is due, or None if it is over; it ends one that is due now. A sign from a
    peer moves what `due` says and costs nothing here: an attempt stands where it was put until its turn comes."""

    def __init__(self, due: Callable[[bytes, float], float | None]) -> None:
        self._due = due
        self._waiting: list[tuple[float, bytes]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = 0.0

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        self._loop = None
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def add(self, at_s: float, name: bytes) -> None:
        heappush(self._waiting, (at_s, name))
        if self._timer is None or at_s < self._at_s:
            self._arm(at_s)

    def _arm(self, at_s: float) -> None:
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.call_at(at_s, self._passed)

    def _passed(self) -> None:
        self._timer = None
        if self._loop is None:
            return
        now_s = self._loop.time()  # one for all: each is looked at once, and then others have their turn
        while self._waiting:
            _, name = heappop(self._waiting)  # first: to end an attempt may begin another
            due_s = self._due(name, now_s)
            if due_s is None:
                continue
            heappush(self._waiting, (due_s, name))
            if self._waiting[0][1] == name:
                self._arm(due_s)
                return


def is_final(call: Call, answer: Answer) -> bool:
    """The answer that the call is about."""
    remark = answer.remark
    match answer.kind:
        case b"=":
            return not (call.fresh and remark is not None and remark.stale)
        case b"#":
            return remark is not None and remark.miss and not remark.error
        case b"d":
            return remark is None or remark.ok
        case kind:
            return kind in (SERVERS, CLAIMED, STATUS)


class Late(Exception):
    """The deadline of a call has passed. Never leaves the client."""


def about(what: str, key: bytes, prefix: bool = False) -> str:
    """A change, for a sentence."""
    every = ("every key that begins with " if key else "every key") if prefix else ""
    return f"{what} of {every}{named_key(key)}"


def late(call: Call, what: str | bytes, within_ms: int) -> NotReached | Unsure:
    """What the caller is told of a call that was not answered in time. `what` was asked: in words, or the key."""
    kind = Unsure if call.change else NotReached
    asked = what if isinstance(what, str) else named_key(what)
    return kind(f"{asked}: no answer within {within_ms:,} ms; {call.why}")


async def plain(work: Any) -> Any:
    """A result or an error of this product, so that one of many does not hide the others."""
    try:
        return await work
    except (NotReached, SourceFailed) as error:
        return error
