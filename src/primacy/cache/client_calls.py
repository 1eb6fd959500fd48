"""One call of a cache client, over all of its attempts, and what is an answer to it. Decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from primacy.cache.access import named_key
from primacy.cache.client_servers import Server
from primacy.cache.wire_client import CLAIMED, SERVERS, STATUS, Answer, Request
from primacy.errors import NotReached, SourceFailed, Unsure

PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.5
"""After every peer has refused; doubled from the one to the other."""

Make = Callable[[bytes, int, int], Request]
"""A request from its id, its expiry and the ms that are left."""


class Call:
    """One call, over all of its attempts."""

    __slots__ = ("change", "current", "deadline_s", "fresh", "future", "ids", "key", "make", "pause_s", "refused",
                 "server", "timer", "why")  # fmt: skip

    def __init__(self, make: Make, deadline_s: float, change: bool, future: asyncio.Future[Answer]) -> None:
        self.make = make
        self.deadline_s = deadline_s
        self.change = change
        self.fresh = False
        self.key = b""
        """What it asks about, if that is one key."""
        self.future = future
        self.current = b""
        self.server: Server | None = None
        self.ids: list[bytes] = []
        self.refused: set[Server] = set()
        self.pause_s = PAUSE_MIN_S
        self.timer: asyncio.TimerHandle | None = None
        self.why = "no peer could be reached"


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
