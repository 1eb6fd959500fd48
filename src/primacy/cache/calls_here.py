"""Calls of an asynchronous function in the peer's own loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from primacy.cache.effects import Call, Cancel, Extend
from primacy.cache.inputs import Input, SourceEnded
from primacy.cache.model import Ballot, Failure, Fetched
from primacy.node.clock import Clock

log = logging.getLogger("primacy")


class _Running:
    __slots__ = ("call", "cancel_at_ms", "task", "timer")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.cancel_at_ms = call.cancel_at_ms
        self.task: asyncio.Task[None]
        self.timer: asyncio.TimerHandle


class CallsHere:
    """A coroutine that is cancelled is over when its task is."""

    def __init__(
        self, source: Callable[[bytes], Awaitable[object]] | None, ended: Callable[[Input], None], clock: Clock
    ) -> None:
        self._source = source
        self._ended = ended
        self._clock = clock
        self._running: dict[tuple[bytes, Ballot], _Running] = {}

    def start(self, call: Call) -> None:
        running = _Running(call)
        self._running[call.key, call.ballot] = running
        running.task = asyncio.get_running_loop().create_task(self._perform(running))
        self._wind(running)

    def extend(self, extend: Extend) -> None:
        running = self._running.get((extend.key, extend.ballot))
        if running is not None:
            running.cancel_at_ms = max(running.cancel_at_ms, extend.cancel_at_ms)

    def cancel(self, cancel: Cancel) -> None:
        running = self._running.get((cancel.key, cancel.ballot))
        if running is not None:
            running.task.cancel()

    async def close(self) -> None:
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wind(self, running: _Running) -> None:
        left_ms = running.cancel_at_ms - self._clock.now_ms()
        if left_ms <= 0:
            running.task.cancel()
        else:
            running.timer = asyncio.get_running_loop().call_later(left_ms / 1_000, self._wind, running)

    async def _perform(self, running: _Running) -> None:
        call = running.call
        result: Fetched | Failure = Failure("the call was cancelled")
        try:
            if self._source is None:
                result = Failure("there is no source")
            else:
                value = await self._source(call.key)
                if isinstance(value, bytes):
                    result = Fetched(value)
                else:
                    result = Failure(f"the source returned {type(value).__name__} and no bytes")
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 -- the user's own
            log.warning("the source failed for %r: %r", call.key[:80], error)
            result = Failure(f"{type(error).__name__}: {error}")
        finally:
            running.timer.cancel()
            del self._running[call.key, call.ballot]
        self._ended(SourceEnded(call.key, call.ballot, result))
