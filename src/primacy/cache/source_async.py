"""Sources that run on the peer's own loop: async functions (`call:`) and URLs (`http:`, in `source_http.py`).

A coroutine can be cancelled and can refuse to end; a loop can be blocked by one. Neither can be ended from outside, so
that a call which is not over by the end of its hold ends the whole process (`on_overrun: exit`, C4). A loop that is
blocked cannot see that itself: a thread does.

A process that was stopped and goes on again (SIGSTOP, a suspended machine) is not ended for it: its calls are cancelled
first, and its late results lose by their epoch.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from primacy.cache.model import Failure, Fetched
from primacy.cache.source_guard import Instants
from primacy.cache.source_process import Done, Running
from primacy.cache.source_worker import is_async, load, reason_of, result_of
from primacy.errors import UsageError
from primacy.node.clock import NS_PER_MS, Clock

WAIT_MAX_S = 3_600.0
"""What is far ahead is looked at again after this."""
LOOKS = 4
"""The thread looks so many times before it says that the loop is blocked."""
LOOK_MS = 12
BLOCKED_S = 1.0
"""A loop that is still blocked is told again after this."""
LATE = "the hold was not proved anew in time"
FROZEN_MS = 100
"""A look that comes so late was not delayed by the loop: all of the process stood still."""


class AsyncSource:
    """Anything that is awaited on the loop. `fetch` returns what a plain function may return."""

    def __init__(
        self, fetch: Callable[[bytes], Awaitable[object]], value_bytes_max: int, clock: Clock, watch: LoopWatch
    ) -> None:
        self._fetch, self._max, self._clock, self._watch = fetch, value_bytes_max, clock, watch

    async def open(self) -> None:
        self._watch.start()

    def start(self, key: bytes, until: Instants, done: Done) -> Running | Failure:
        return AsyncCall(self._run(key), until, done, self._clock, self._watch)

    async def _run(self, key: bytes) -> Fetched | Failure:
        try:
            return result_of(await self._fetch(key), self._max)
        except Exception as error:  # noqa: BLE001  (whatever a user's function raises is its failure)
            return Failure(reason_of(error))


def async_function(target: str, folder: str) -> Callable[[bytes], Awaitable[object]]:
    """The async function of `module:name`, loaded here. A process of its own has tried it before.

    Looked for where Python looks, then in the working folder and in that of the settings.
    """
    for place in (os.getcwd(), folder):
        if place not in sys.path:
            sys.path.append(place)
    try:
        found = load(target)
    except Exception as error:
        raise UsageError(f"call:{target} cannot be loaded: {reason_of(error)}") from error
    if not is_async(found):
        raise UsageError(f"call:{target} is not async any more")
    return found


class _Held:
    """Goes on with a coroutine only while its hold stands: each time it would be resumed, the clock is asked first.

    A loop that stood still finds many things due at once, and the cancel is not the first of them. Without this the
    function would go on for a moment, with a retrieval that another peer has begun by then (C4).
    """

    def __init__(self, work: Awaitable[Fetched | Failure], is_late: Callable[[], bool]) -> None:
        self._work, self._is_late = work, is_late

    def __await__(self) -> Generator[Any, Any, Fetched | Failure]:
        steps = self._work.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as ended:
                result: Fetched | Failure = ended.value
                return result
            sent, error = None, None
            try:
                sent = yield waits_for
            except BaseException as thrown:  # noqa: BLE001  (a cancel, or the end of the loop: the coroutine's to handle)
                error = thrown
            else:
                if self._is_late():
                    error = asyncio.CancelledError(LATE)


class AsyncCall:
    """One task. It is cancelled at `cancel_at` unless its hold was proved anew."""

    def __init__(
        self, work: Awaitable[Fetched | Failure], until: Instants, done: Done, clock: Clock, watch: LoopWatch
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._until, self._done, self._clock, self._watch = until, done, clock, watch
        self._why = ""
        self._work = work
        self._task = asyncio.ensure_future(self._held(work))
        self._task.add_done_callback(self._ended)
        self._timer: asyncio.TimerHandle | None = None
        self._watch.add(self, until)
        self._look()

    async def _held(self, work: Awaitable[Fetched | Failure]) -> Fetched | Failure:
        return await _Held(work, self._is_late)

    def _is_late(self) -> bool:
        """The cancel is due, and the loop has not come to it: it stood still, and other things were due before."""
        if self._why or self._clock.now_ms() < self._until.cancel_at:
            return False
        self._why = LATE
        return True

    def extend(self, until: Instants) -> None:
        if not self._why:
            self._until = until
            self._watch.add(self, until)

    def stop(self, until: Instants, reason: str) -> None:
        if not self._why:
            self._why = reason
            self._watch.add(self, until)
            self._task.cancel(reason)

    def _look(self) -> None:
        """At the cancel's time, as it is then: an extension does not set a timer."""
        left_ms = self._until.cancel_at - self._clock.now_ms()
        if left_ms <= 0:
            self.stop(self._until, LATE)
        else:
            self._timer = self._loop.call_later(min(left_ms / 1_000, WAIT_MAX_S), self._look)

    def _ended(self, task: asyncio.Future[Fetched | Failure]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._watch.remove(self)
        if asyncio.iscoroutine(self._work):  # it was never begun where the cancel came at once
            self._work.close()
        if task.cancelled():
            self._done(Failure(self._why or "the source cancelled its own task"))
        elif error := task.exception():
            self._done(Failure(reason_of(error)))
        else:
            self._done(Failure(self._why) if self._why else task.result())


class LoopWatch:
    """A thread that sees a loop which is blocked while a call on it must end.

    Shortly before the end of a hold it asks the loop for a sign. A loop that gives one looks after its calls itself.
    """

    def __init__(self, blocked: Callable[[str], None], clock: Clock) -> None:
        self._blocked, self._clock = blocked, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._change = threading.Condition()
        self._until: dict[AsyncCall, int] = {}
        self._signs = 0
        self._closing = False

    def start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._watch, name="primacy-cache-watch", daemon=True).start()

    def add(self, call: AsyncCall, until: Instants) -> None:
        with self._change:
            first = not self._until
            self._until[call] = max(until.deadman_at, self._until.get(call, 0))
            if first:
                self._change.notify()

    def remove(self, call: AsyncCall) -> None:
        with self._change:
            self._until.pop(call, None)

    def close(self) -> None:
        with self._change:
            self._closing = True
            self._change.notify()

    def _sign(self) -> None:
        self._signs += 1

    def _watch(self) -> None:
        while True:
            with self._change:
                while not self._until and not self._closing:
                    self._change.wait()
                if self._closing:
                    return
                left_ms = min(self._until.values()) - LOOKS * LOOK_MS - self._clock.now_ms()
                if left_ms > 0:
                    self._change.wait(min(left_ms / 1_000, WAIT_MAX_S))
                    continue
            if not self._loop_answers():
                self._blocked(
                    "an async source blocks the loop of this process, or the machine is so busy that the loop does not "
                    "come round, and its call cannot be ended by the end of its hold; use "
                    "a function that is not async for code that waits without await"
                )
                time.sleep(BLOCKED_S)  # with `alert` this process goes on
                continue
            time.sleep(LOOK_MS * LOOKS / 1_000)  # the loop looks after its calls by itself

    def _loop_answers(self) -> bool:
        """It gave a sign within a few looks.

        A look that comes late means that the whole process stood still: then the loop is asked once more. Only once,
        for a process that hardly gets a processor is late at every look, and must not go on past its hold for ever.
        """
        assert self._loop is not None
        for excused in (True, False):
            before = self._signs
            try:
                self._loop.call_soon_threadsafe(self._sign)
            except RuntimeError:
                return True  # closed: nothing runs on it any more
            for _ in range(LOOKS):
                began = time.monotonic_ns()
                time.sleep(LOOK_MS / 1_000)
                if self._signs > before:
                    return True
                if excused and (time.monotonic_ns() - began) / NS_PER_MS > FROZEN_MS:
                    break
            else:
                return False
        return False


def say_and_leave(text: str) -> None:
    """The end of the process, at once: what is stored is safe, and what runs in processes ends with it."""
    sys.stderr.write(f"primacy: {text}\n")
    sys.stderr.flush()
    os._exit(1)
