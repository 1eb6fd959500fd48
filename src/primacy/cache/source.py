"""The sources of a cache peer: which one a key belongs to, and the calls that run (C4).

`Calls` performs the effects `Call`, `Extend` and `Cancel`. Each call ends in exactly one `SourceEnded`, given when
nothing of the call runs any more, and never from inside `start`, `extend` or `cancel`. A call that is not over by the
end of its hold ends the process, or is an alert (`on_overrun`).

    call:module:function     async: on the loop; otherwise in warm worker processes
    http://host/path/{key}   one GET
    cmd:program {key}        a process; what it prints is the value
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from primacy.cache.access import named_key
from primacy.cache.effects import Call, Cancel, Extend
from primacy.cache.inputs import SourceEnded
from primacy.cache.model import Ballot, Failure, Fetched
from primacy.cache.source_async import WAIT_MAX_S, AsyncSource, LoopWatch, async_function, say_and_leave
from primacy.cache.source_guard import Guards, Instants, instants
from primacy.cache.source_http import HttpFetch
from primacy.cache.source_process import CommandSource, Done, Environment, FunctionSource, Running
from primacy.cache.source_worker import is_async
from primacy.errors import UsageError
from primacy.node.clock import Clock
from primacy.settings.accepted import url_of, wrong_source

GUARDS_SPARE = 1
"""Guards that stand ready. One more is started with each command that takes one."""
CLOSE_S = 2.0
ENDS = "the peer ends"
CLOSE_LOOKS = 400
LATE_MS = 30
"""A look at the end of a hold that comes later than this: the process stood still. What it could not do meanwhile, it
gets the time to do now."""
EXCUSE_MS = 100

AsyncFunction = Callable[[bytes], Awaitable[object]]


class SourceSpec(NamedTuple):
    """One source."""

    source: str | Callable[[bytes], object]
    """As in the settings, or a function: async, or one that a worker can import by its name."""
    prefix: bytes = b""
    timeout_ms: int = 30_000
    max_age: bool = False
    """`http:`: the answer says how long it lives."""


class Source(Protocol):
    """One way to fetch entries."""

    def start(self, key: bytes, until: Instants, done: Done) -> Running | Failure: ...


class _Current:
    """One call that has not ended."""

    def __init__(self, call: Call) -> None:
        self.key, self.ballot = call.key, call.ballot
        self.cancel_at_ms, self.over_at_ms = call.cancel_at_ms, call.over_at_ms
        self.running: Running | None = None
        self.limit: asyncio.TimerHandle | None = None
        self.look: asyncio.TimerHandle | None = None
        self.stopped = self.excused = self.overran = False


class Calls:
    """All sources of one peer and all calls that run. Used on one loop."""

    def __init__(
        self,
        sources: Sequence[SourceSpec],
        clock: Clock,
        on_ended: Callable[[SourceEnded], None],
        *,
        calls_max: int = 32,
        value_bytes_max: int = 16 << 20,
        on_overrun: str = "exit",
        on_alert: Callable[[str], None] = lambda _: None,
        leave: Callable[[str], None] = say_and_leave,
        folder: str = "",
    ) -> None:
        """`folder`: of the settings; relative commands and modules are looked for there. `leave` ends the process."""
        self._specs = sorted(sources, key=lambda spec: -len(spec.prefix))
        self._clock, self._on_ended = clock, on_ended
        self._calls_max, self._value_bytes_max = calls_max, value_bytes_max
        self._overrun_exits, self._on_alert, self._leave = on_overrun == "exit", on_alert, leave
        self._environment = Environment.here(folder)
        self._sources: dict[bytes, Source] = {}
        self._https: list[HttpFetch] = []
        self._calls: dict[tuple[bytes, Ballot], _Current] = {}
        self._closing = False

    async def open(self) -> None:
        """Load and prepare every source. Raises `UsageError` if one cannot be used."""
        self._loop = asyncio.get_running_loop()
        self._guards = Guards(GUARDS_SPARE)
        self._watch = LoopWatch(self._blocked, self._clock)
        try:
            for spec in self._specs:
                if spec.prefix in self._sources:
                    raise UsageError(f"two sources have the prefix {spec.prefix!r}")
                self._sources[spec.prefix] = await self._opened(spec)
        except BaseException:
            await self.close()
            raise

    async def _opened(self, spec: SourceSpec) -> Source:
        text = spec.source
        if not isinstance(text, str):
            return await self._of_function(text)
        if wrong := wrong_source(text):
            raise UsageError(f"the source {text}: {wrong}")
        if text.startswith("cmd:"):
            command = CommandSource(text[4:], self._environment, self._guards, self._value_bytes_max)
            await command.open()
            return command
        if text.startswith("call:"):
            return await self._of_target(text[5:])
        fetch = HttpFetch(url_of(text), self._value_bytes_max, spec.max_age)
        await fetch.open()
        self._https.append(fetch)
        return await self._async(fetch)

    async def _async(self, fetch: AsyncFunction) -> Source:
        source = AsyncSource(fetch, self._value_bytes_max, self._clock, self._watch)
        await source.open()
        return source

    async def _of_target(self, target: str) -> Source:
        function = FunctionSource(
            target, self._environment, self._guards, self._value_bytes_max, self._clock, self._calls_max
        )
        if not await function.open():
            return function
        return await self._async(async_function(target, self._environment.folder))

    async def _of_function(self, function: Callable[[bytes], object]) -> Source:
        if is_async(function):
            return await self._async(function)  # type: ignore[arg-type]
        return await self._of_target(target_of(function))

    # --- what the machine asks for

    def covers(self, key: bytes) -> bool:
        """There is a source for this key."""
        return self._spec(key) is not None

    @property
    def running(self) -> int:
        """Calls that have not ended, those that overran included."""
        return len(self._calls)

    @property
    def containment(self) -> str:
        """How processes are bound: `strong` (a pid namespace), `weak`, or empty while none was started."""
        way = self._guards.way
        return "" if way is None else "strong" if way else "weak"

    def start(self, call: Call) -> None:
        """Call the source once."""
        current = _Current(call)
        assert (call.key, call.ballot) not in self._calls, "one call per ballot (C4)"
        self._calls[call.key, call.ballot] = current
        spec = self._spec(call.key)
        found: Running | Failure
        if spec is None:
            found = Failure("no source is set for this key")
        elif self._closing:
            found = Failure(ENDS, released=True)
        elif len(self._calls) > self._calls_max:
            found = Failure("no place is free for one more call")
        elif self._clock.now_ms() >= call.cancel_at_ms:
            found = Failure("the hold was over before the call began")
        else:
            until = instants(call.cancel_at_ms, call.over_at_ms)
            found = self._sources[spec.prefix].start(call.key, until, lambda result: self._ended(current, result))
        if isinstance(found, Failure):
            self._loop.call_soon(self._ended, current, found)
            return
        assert spec is not None
        current.running = found
        late = f"the source took longer than {spec.timeout_ms} ms"
        current.limit = self._loop.call_later(spec.timeout_ms / 1_000, self._stop, current, late)
        self._look(current)

    def extend(self, extend: Extend) -> None:
        """The hold was proved anew. Never back."""
        current = self._calls.get((extend.key, extend.ballot))
        if current is None or current.running is None or current.stopped:
            return
        current.cancel_at_ms = max(current.cancel_at_ms, extend.cancel_at_ms)
        current.over_at_ms = max(current.over_at_ms, extend.over_at_ms)
        current.running.extend(instants(current.cancel_at_ms, current.over_at_ms))

    def cancel(self, cancel: Cancel) -> None:
        """End it now. `SourceEnded` follows when it has."""
        current = self._calls.get((cancel.key, cancel.ballot))
        if current is not None:
            current.over_at_ms = min(current.over_at_ms, cancel.over_at_ms)
            self._stop(current, "it was cancelled")

    async def close(self) -> None:
        """Ends everything that runs, and returns when it has. What cannot be ended is waited for a few seconds."""
        self._closing = True
        for current in list(self._calls.values()):
            self._stop(current, ENDS)
        await self._guards.close(CLOSE_S)
        for _ in range(CLOSE_LOOKS):
            if not self._calls:
                break
            await asyncio.sleep(CLOSE_S / CLOSE_LOOKS)
        self._watch.close()
        for fetch in self._https:
            await fetch.close()

    # --- how calls end

    def _spec(self, key: bytes) -> SourceSpec | None:
        return next((spec for spec in self._specs if key.startswith(spec.prefix)), None)

    def _stop(self, current: _Current, reason: str) -> None:
        current.stopped = True
        if current.running is not None:
            now_ms = self._clock.now_ms()
            current.running.stop(instants(min(now_ms, current.over_at_ms), current.over_at_ms), reason)

    def _look(self, current: _Current) -> None:
        """At the end of the hold, as it is then."""
        left_ms = current.over_at_ms - self._clock.now_ms()
        if left_ms > 0:
            current.look = self._loop.call_later(min(left_ms / 1_000, WAIT_MAX_S), self._look, current)
        elif -left_ms > LATE_MS and not current.excused:
            current.excused = True  # its end may be told already, and stand behind this in the loop
            current.look = self._loop.call_later(EXCUSE_MS / 1_000, self._look, current)
        else:
            self._overran(current)

    def _overran(self, current: _Current) -> None:
        text = (
            f"the call of the source for key {named_key(current.key)} is not over by the end of its hold, although it "
            "was cancelled"
        )
        if self._overrun_exits:
            self._leave(f"{text}; this process ends, so that no other peer fetches at the same time")
            return
        current.overran = True
        self._on_alert(f"{text}; another peer may fetch at the same time (cache.on_overrun is alert)")
        self._on_ended(SourceEnded(current.key, current.ballot, Failure("it could not be ended in time")))

    def _blocked(self, text: str) -> None:
        """From the thread that watches the loop."""
        if self._overrun_exits:
            self._leave(text)
        else:
            self._loop.call_soon_threadsafe(self._on_alert, text)

    def _ended(self, current: _Current, result: Fetched | Failure) -> None:
        for timer in (current.limit, current.look):
            if timer is not None:
                timer.cancel()
        del self._calls[current.key, current.ballot]
        if self._closing and isinstance(result, Failure):
            result = Failure(ENDS, released=True)  # the source is not to blame: another peer may fetch at once
        if not current.overran:
            self._on_ended(SourceEnded(current.key, current.ballot, result))


def target_of(function: Callable[[bytes], object]) -> str:
    """How a worker finds this function. Raises `UsageError` if it cannot."""
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__qualname__", "") or ""
    if not name or "<" in name or not module:
        raise UsageError(
            f"{name or function!r} cannot be found by a worker process; use a function of a module, or an async one"
        )
    if module == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", None)
        if not script:
            raise UsageError(f"{name} was typed in and cannot be found by a worker process; put it into a file")
        return f"{os.path.abspath(script)}:{name}"
    return f"{module}:{name}"
