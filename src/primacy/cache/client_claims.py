"""A claim in the client that was given it: kept alive, then delivered, given up or let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from primacy.cache.access import Done, check_ttl
from primacy.cache.claims import ALIVE, ALIVE_MS, FAILED, RELEASED, SILENT_MS, VALUE
from primacy.cache.wire_client import REASON_CHARS_MAX, ClaimReport
from primacy.errors import UsageError

ANSWER_S = SILENT_MS / 1_000
"""For the answer to a report. The peer that does not say so within this has ended, or has taken the claim back."""


class ClientClaim:
    """The right to compute one entry, as long as its peer says so."""

    def __init__(
        self, key: bytes, ballot: tuple[int, str, int], say: Callable[[ClaimReport], None], over: Callable[[], None]
    ) -> None:
        """`say` sends a report to the peer; `over` is called once, when nothing more is said or heard."""
        self.key = key
        self._ballot = ballot
        self._say, self._over = say, over
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Done] = loop.create_future()
        self._alive = loop.create_task(self._live())

    def heard(self, done: Done) -> None:
        """The peer's answer to a report, or that the claim is void."""
        if not self._answer.done():
            self._answer.set_result(done)

    async def deliver(self, value: bytes, ttl_ms: int) -> bool:
        """Hand in the result. False: the claim was void, and the result is dropped."""
        check_ttl(ttl_ms)
        if not isinstance(value, bytes):
            raise UsageError(f"a value is bytes, and this is {type(value).__name__}: encode it first")
        done = await self._reported(VALUE, ttl_ms=ttl_ms, value=value)
        if (
            not done.ok
        ):  # perhaps it was too large: then the claim still stands, and nobody else should compute the same
            self._report(FAILED, reason=done.reason[:REASON_CHARS_MAX])
        return done.ok

    async def give_up(self, reason: str) -> None:
        """The function failed: who waits for it is told, and the next try comes after a pause."""
        await self._reported(FAILED, reason=reason[:REASON_CHARS_MAX])

    async def release(self) -> None:
        """Nothing failed, and there is no value: the next who waits may have it at once."""
        await self._reported(RELEASED)

    async def _reported(self, state: str, ttl_ms: int = 0, value: bytes = b"", reason: str = "") -> Done:
        if not self._answer.done():
            self._report(state, ttl_ms, value, reason)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            return Done(False, "the peer did not answer")
        finally:
            self.end()

    def end(self) -> None:
        """Nothing more is said. A peer that was told nothing takes the claim back after a silence."""
        if not self._alive.done():
            self._alive.cancel()
        self._over()

    def _report(self, state: str, ttl_ms: int = 0, value: bytes = b"", reason: str = "") -> None:
        self._say(ClaimReport(*self._ballot, state, ttl_ms, value, reason))

    async def _live(self) -> None:
        while not self._answer.done():
            self._report(ALIVE)
            await asyncio.sleep(ALIVE_MS / 1_000)
