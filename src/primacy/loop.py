"""An event loop of asyncio in which the few things that happen all the time cost little.

An idle node is woken some twenty times a second, for a heartbeat or an ack, and each time does a handful of small
things. Most of what that costs is not the handful: it is the way through asyncio's timers, handles and selectors, which
by then has left every cache. So datagrams and the machines' own deadlines are attended to inside the selector, and the
loop goes back to sleep without having had a turn. Only asyncio's public faces are used: it is the same loop, with a
selector that does a little more than to wait. What is called here must not wait, as with any callback.

With another loop (a test, a user's own) everything works the same way, at that loop's cost.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from math import inf
from time import monotonic
from typing import Any, Protocol, TypeVarTuple, Unpack

EVENTS_MAX = 32
"""Descriptors that are attended to in one go; the others come in the next."""

Call = Callable[[], object]
More = TypeVarTuple("More")


class Timer(Protocol):
    """One moment at which something is called. It may be moved as often as one likes: that costs nothing."""

    def set(self, after_s: float, slack_s: float = 0.0) -> None:
        """Instead of an earlier moment. With slack: when the process is awake anyway, so much later at most."""
        ...

    def clear(self) -> None: ...

    def end(self) -> None:
        """It is never set again."""
        ...


def timer(ring: Call) -> Timer:
    """On the running loop, and not set."""
    loop = asyncio.get_running_loop()
    return loop.timer(ring) if isinstance(loop, QuickLoop) else LoopTimer(loop, ring)


class Watched(Protocol):
    """A socket, of the system or of a library."""

    def fileno(self) -> int: ...


def watch(loop: asyncio.AbstractEventLoop, source: Watched, call: Callable[..., object], *more: Any) -> None:
    """As `add_reader`. Nothing else of the loop may be used for this socket."""
    if isinstance(loop, QuickLoop):
        loop.quick.watch(source.fileno(), call, more)
    else:
        loop.add_reader(source, call, *more)


def unwatch(loop: asyncio.AbstractEventLoop, source: Watched) -> None:
    if isinstance(loop, QuickLoop):
        loop.quick.unwatch(source.fileno())
    else:
        loop.remove_reader(source)


class LoopTimer:
    """On any loop. A timer that goes off before the moment is kept, and looks again then: cheaper than a new one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Call) -> None:
        self._loop = loop
        self._ring = ring
        self._at_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, after_s: float, slack_s: float = 0.0) -> None:  # noqa: ARG002
        self._at_s = self._loop.time() + after_s
        if self._timer is not None and self._timer.when() > self._at_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._at_s, self._look)

    def clear(self) -> None:
        self._at_s = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        self.clear()

    def _look(self) -> None:
        """The moment is compared with the time, not with that of the timer: a busy loop in which each turn sets it anew
        for "now" would put it off for ever."""
        self._timer = None
        if self._loop.time() < self._at_s:
            self._timer = self._loop.call_at(self._at_s, self._look)
        else:
            self._at_s = inf
            self._ring()


class QuickTimer:
    """On a quick loop: two numbers that its selector looks at."""

    __slots__ = ("at_s", "latest_s", "quick", "ring")

    def __init__(self, ring: Call, quick: QuickSelector) -> None:
        self.ring = ring
        self.quick = quick
        self.at_s = self.latest_s = inf

    def set(self, after_s: float, slack_s: float = 0.0) -> None:
        self.at_s = monotonic() + after_s
        self.latest_s = self.at_s + slack_s
        if after_s <= 0:
            self.quick.hurried = True

    def clear(self) -> None:
        self.at_s = self.latest_s = inf

    def end(self) -> None:
        self.clear()
        self.quick.timers = tuple(each for each in self.quick.timers if each is not self)


class QuickSelector(selectors.BaseSelector):
    """What the loop itself watches stands in an inner selector, which is one descriptor of ours among the others."""

    def __init__(self) -> None:
        self.pressed = False
        """The loop was given something to do while it believes to wait."""
        self.hurried = False
        """A timer was set for this very moment."""
        self.broken: Callable[[Exception], None]
        self.timers: tuple[QuickTimer, ...] = ()
        self._inner = selectors.EpollSelector()
        self._plain = self._inner.fileno()
        self._epoll = select.epoll()
        self._epoll.register(self._plain, select.EPOLLIN)
        self._watches: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}

    def watch(self, fd: int, call: Callable[..., object], more: tuple[Any, ...]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._watches[fd] = call, more

    def unwatch(self, fd: int) -> None:
        if self._watches.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Until there is something for the loop, or its time is over. What is ours is done meanwhile.

        In each turn: first what may as well be done now, so that what it says goes along with what follows; then what
        was heard; then what is due, for what was heard may have changed that.
        """
        self.pressed = False
        now_s = monotonic()
        ends_s = inf if timeout is None else now_s + timeout
        while True:
            due_s, soon_s = ends_s, inf
            for each in self.timers:
                if each.latest_s < due_s:  # noqa: PLR1730  (a call costs more)
                    due_s = each.latest_s
                if each.at_s < soon_s:  # noqa: PLR1730
                    soon_s = each.at_s
            wait_s = None if due_s == inf else due_s - now_s if due_s > now_s else 0
            ready = self._epoll.poll(wait_s, EVENTS_MAX)
            now_s = monotonic()
            if soon_s <= now_s:
                for each in self.timers:
                    if each.at_s <= now_s and each.at_s < each.latest_s:
                        self._ring(each)
            plain = False
            for fd, _ in ready:
                if fd == self._plain:
                    plain = True
                elif fd in self._watches:
                    call, more = self._watches[fd]
                    try:
                        call(*more)
                    except Exception as error:  # noqa: BLE001  (the loop's to report, as with any callback)
                        self.broken(error)
            if soon_s <= now_s or self.hurried:
                self.hurried = False
                now_s = monotonic()
                for each in self.timers:
                    if each.at_s <= now_s and each.at_s == each.latest_s:
                        self._ring(each)
            if plain:
                return self._inner.select(0)
            if self.pressed or now_s >= ends_s:
                return []

    def _ring(self, timer: QuickTimer) -> None:
        timer.at_s = timer.latest_s = inf
        try:
            timer.ring()
        except Exception as error:  # noqa: BLE001
            self.broken(error)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._watches.clear()
        self._epoll.close()
        self._inner.close()


class QuickLoop(asyncio.SelectorEventLoop):
    """Says to its selector when something was given to it; all else is asyncio's."""

    def __init__(self) -> None:
        self.quick = QuickSelector()
        self.quick.broken = self._broken
        super().__init__(self.quick)

    def timer(self, ring: Call) -> QuickTimer:
        made = QuickTimer(ring, self.quick)
        self.quick.timers = (*self.quick.timers, made)
        return made

    def call_soon(
        self, callback: Callable[[Unpack[More]], object], *args: *More, context: Context | None = None
    ) -> asyncio.Handle:
        self.quick.pressed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[More]], object], *args: *More, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.quick.pressed = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        self.quick.pressed = True
        super().stop()

    def _broken(self, error: Exception) -> None:
        self.call_exception_handler({"message": "what was called quickly failed", "exception": error})
        self.quick.pressed = True
