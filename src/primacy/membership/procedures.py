"""What takes several steps of the membership machine: coroutines that are run by hand. Pure.

A join is several calls, pauses and answers in a row, and many of them are under way at once. Each is written as one
coroutine. It waits for a `Signal` (an answer that comes, another one's end) or for a moment, and nothing of asyncio is
in it: `run` goes on with those whose wait is over, in the order in which it ended, and `deadline_ms` is when the next
one waits in vain. The same inputs at the same moments lead to the same effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from math import ceil
from types import coroutine
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
Waits = tuple["Signal[Any]", "int | None"]


class Signal(Generic[T]):
    """Something that happens once, and that procedures wait for."""

    def __init__(self) -> None:
        self.is_set = False
        self.value: T | None = None
        self.waiting: dict[Procedure, None] = {}

    def set(self, value: T) -> None:
        if self.is_set:
            return
        self.is_set, self.value = True, value
        for procedure in tuple(self.waiting):
            procedure.go_on()


class Timer:
    """What is done at a moment, unless it was cancelled before."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then: Callable[[], None] | None = then

    def cancel(self) -> None:
        self.then = None


class Procedure:
    """One coroutine under way. It ends by itself, or is cancelled where it waits."""

    def __init__(
        self, work: Coroutine[Waits, None, Any], name: str, then: Callable[[], None], ready: deque[Procedure]
    ) -> None:
        self.work = work
        self.name = name
        self.then = then
        self.ended: Signal[Any] = Signal()
        self.error: Exception | None = None
        self._ready = ready
        self._signal: Signal[Any] | None = None
        self._timer: Timer | None = None

    def wait(self, signal: Signal[Any], timer: Timer | None) -> None:
        self._signal, self._timer = signal, timer
        signal.waiting[self] = None

    def stop_waiting(self) -> None:
        if self._signal is not None:
            self._signal.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._signal = self._timer = None

    def go_on(self) -> None:
        self.stop_waiting()
        self._ready.append(self)


@coroutine
def _until(signal: Signal[Any], due_ms: int | None) -> Generator[Waits, None, None]:
    yield signal, due_ms


class Procedures:
    """All that are under way in one machine, and its timers."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        """`failed` is told what a procedure raised: always a bug of ours."""
        self.now_ms = 0
        self._failed = failed
        self._ready: deque[Procedure] = deque()
        self._alive: dict[Procedure, None] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._made = 0

    @property
    def now_s(self) -> float:
        return self.now_ms / 1_000

    @property
    def deadline_ms(self) -> int | None:
        while self._timers and self._timers[0][2].then is None:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def under_way(self) -> tuple[Procedure, ...]:
        return tuple(self._alive)

    def spawn(
        self, work: Coroutine[Waits, None, Any], name: str = "", then: Callable[[], None] = lambda: None
    ) -> Procedure:
        """Begins after what is done now. `then` is called when it has ended or was cancelled."""
        procedure = Procedure(work, name, then, self._ready)
        self._alive[procedure] = None
        self._ready.append(procedure)
        return procedure

    def later(self, span_s: float, then: Callable[[], None]) -> Timer:
        return self._at(self.now_ms + ceil(span_s * 1_000), then)

    def _at(self, due_ms: int, then: Callable[[], None]) -> Timer:
        timer = Timer(then)
        self._made += 1
        heappush(self._timers, (due_ms, self._made, timer))
        return timer

    def pass_deadlines(self) -> None:
        while (due_ms := self.deadline_ms) is not None and due_ms <= self.now_ms:
            then = heappop(self._timers)[2].then
            assert then is not None
            then()

    def run(self) -> None:
        while self._ready:
            self._advance(self._ready.popleft())

    def _advance(self, procedure: Procedure) -> None:
        if procedure not in self._alive:
            return  # cancelled when it was about to go on
        try:
            signal, due_ms = procedure.work.send(None)
        except StopIteration as end:
            self._over(procedure, end.value)
        except Exception as error:  # noqa: BLE001  one that fails must not take the others with it
            procedure.error = error
            self._failed(error)
            self._over(procedure, None)
        else:
            procedure.wait(signal, None if due_ms is None else self._at(due_ms, procedure.go_on))

    def _over(self, procedure: Procedure, value: Any) -> None:
        self._alive.pop(procedure, None)
        procedure.then()
        procedure.ended.set(value)

    def cancel(self, procedure: Procedure) -> None:
        """Not the one that runs now."""
        if procedure in self._alive:
            procedure.stop_waiting()
            procedure.work.close()
            self._over(procedure, None)

    # --- what a procedure waits for -----------------------------------------------------------------------------------

    async def wait(self, signal: Signal[T], limit_s: float | None = None) -> T | None:
        """What the signal was set to; None at the limit."""
        if not signal.is_set:
            await _until(signal, None if limit_s is None else self.now_ms + ceil(limit_s * 1_000))
        return signal.value

    async def pause(self, span_s: float) -> None:
        await self.wait(Signal(), span_s)

    async def every(self, *works: Coroutine[Waits, None, T]) -> list[T]:
        """All at the same time; their results in this order."""
        procedures = [self.spawn(work) for work in works]
        for procedure in procedures:
            await self.wait(procedure.ended)
            if procedure.error is not None:
                raise procedure.error
        return [cast(T, procedure.ended.value) for procedure in procedures]


class Gate:
    """At most so many are inside at a time; the others wait in their order."""

    def __init__(self, procedures: Procedures, most: int) -> None:
        self._procedures = procedures
        self._free = most
        self._waiting: deque[Signal[bool]] = deque()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn: Signal[bool] = Signal()
        self._waiting.append(turn)
        try:
            await self._procedures.wait(turn)
        except GeneratorExit:  # cancelled: its place is for the next one
            if turn.is_set:
                self._leave()
            else:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().set(True)
        else:
            self._free += 1
