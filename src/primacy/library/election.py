"""The library's `Election`, for asyncio.

    async with primacy.Election("reports", store="postgresql://host/db") as election:
        async for leadership in election:            # waits its turn, for ever
            async with leadership:                   # the body is cancelled in time; the loop goes on
                await build_reports(leadership.token)

What it promises (U1): one *valid* leadership at a time. A process that was stopped goes on with its next line before
anything can cancel it; one *acting* holder needs `primacy run`, `on_loss="kill"`, or a token check at the resource.

Leases are renewed in a thread of our own (`renewer.py`). The end of the hold is a kernel timer that the user's own loop
watches as a descriptor: a busy loop cannot delay its renewal, and after a freeze it is due before any message from
another thread. It is on CLOCK_BOOTTIME, which loops' own timers are not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Literal, Self

from primacy.errors import LeadershipLost, StoreUnusable, UsageError
from primacy.library.candidacy import (
    Candidacy,
    Change,
    ElectionCounts,
    Standing,
    Wishes,
    check_bounds,
    check_options,
    check_spans,
)
from primacy.library.hold import Hold
from primacy.library.leadership import Leadership
from primacy.library.renewer import renewer_for
from primacy.library.sigterm import SIGTERM
from primacy.library.timers import close_timer, make_timer

log = logging.getLogger("primacy")

OnLoss = Literal["cancel", "kill"]
TIMER_BYTES = 8
GRACE_MS = 1_000
"""Beyond what the store may take, for the threads to say that they are done."""


class Election:
    """A named role that one of many processes has.

    `store`: the address of a database, an SQLAlchemy engine, or a `Renewer` that several elections share.
    `profile`: how long a hold is, see `primacy contract`. `node`: this process's name, by default host and process id.
    `on_loss`: `"cancel"` cancels the body; `"kill"` in addition has the kernel kill this process if the body is not
    over in time. `on_change`: called in the loop with a `Standing` when another process leads. `observer`: only watch.
    `stall_ms`: how long the lease is renewed although the loop is blocked, by default one and a half holds.
    `rest_ms`: how long the others go first after a body has ended, by default one hold. `table`: where the rows are.
    `state_dir`: a folder of this machine that keeps the largest token, so that none below it is ever used here.
    `on_sigterm`: whether SIGTERM ends the process in order where nobody else handles it, see `sigterm.py`.
    `lock_at_most_ms`: the longest that one body may run; then its leadership is lost. `lock_at_least_ms`: how long the
    lease is kept from the beginning of a body, however soon that is over; leaving this block waits for it.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Any,
        profile: str | None = None,
        node: str = "",
        on_loss: OnLoss = "cancel",
        on_change: Change | None = None,
        observer: bool = False,
        stall_ms: int = 0,
        rest_ms: int = 0,
        table: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        on_sigterm: bool = True,
        lock_at_most_ms: int = 0,
        lock_at_least_ms: int = 0,
    ) -> None:
        check_options(on_loss, on_change)
        check_spans(rest_ms=rest_ms, stall_ms=stall_ms)
        check_bounds(lock_at_least_ms, lock_at_most_ms)
        self.name = name
        self._renewer, self._shared = renewer_for(store, profile, table, state_dir)
        wishes = Wishes(observer, on_loss == "kill", rest_ms, stall_ms, lock_at_most_ms, lock_at_least_ms)
        self._candidacy = Candidacy(self._renewer, name, node, wishes, _Bridge(self))
        self._observer = observer
        self._on_change = on_change
        self._on_sigterm = on_sigterm
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer = -1
        self._waiter: asyncio.Future[Hold | None] | None = None
        self._gives_way = False
        """Whoever waits wants to hear of another that leads instead."""
        self._held: AsyncLeadership | None = None
        self._done: asyncio.Future[None] | None = None
        self._rival = ""
        self._unusable: StoreUnusable | None = None
        self._vain = self._candidacy.standing
        """How it stood when somebody gave up waiting."""
        self._turned = asyncio.Event()
        """Set whenever something changed that a waiting caller may want to know."""

    def __repr__(self) -> str:
        return repr(self._candidacy)

    # --- the block ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise UsageError(f"election {self.name} was entered before; make a new Election for a new block")
        self._loop = asyncio.get_running_loop()
        self._timer = make_timer()
        self._loop.add_reader(self._timer, self._timer_rang)
        self._candidacy.open()
        if self._on_sigterm:
            SIGTERM.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if os.getpid() != self._renewer.pid:
            return  # a forked child: loop, threads and lease are the parent's
        lost = self._end_body(error, leaving=True)
        assert self._loop is not None
        self._loop.remove_reader(self._timer)
        close_timer(self._timer)
        await self._close(isinstance(error, asyncio.CancelledError))
        if lost is not None:
            raise lost from None

    async def _close(self, cancelled: bool) -> None:
        """Until the lease is released and the connection closed, or was not to be in time. Goes on if this is left."""
        assert self._loop is not None
        loop, limit_ms = self._loop, self._renewer.limit_ms
        self._done = loop.create_future()
        try:
            if self._candidacy.close():
                await self._until_done(self._done, 2 * limit_ms + GRACE_MS, cancelled)
        finally:
            if self._on_sigterm:
                SIGTERM.leave()
            if not self._shared:
                gone: asyncio.Future[None] = loop.create_future()
                self._renewer.close_behind(lambda: post(loop, settle, gone))
                await asyncio.wait([gone], timeout=limit_ms / 1_000)

    async def _until_done(self, done: asyncio.Future[None], limit_ms: int, cancelled: bool) -> None:
        """Where the lease is kept (`lock_at_least_ms`), one cancellation waits until then. The next one leaves at once:
        the lease is not released, and runs out by itself."""
        loop, kept_ms = asyncio.get_running_loop(), self._candidacy.kept_ms()
        until_s, told = loop.time() + (kept_ms + limit_ms) / 1_000, None
        while not done.done() and (left_s := until_s - loop.time()) > 0:
            try:
                await asyncio.wait([done], timeout=left_s)
            except asyncio.CancelledError as error:
                if cancelled or not kept_ms:
                    raise
                cancelled, told = True, error
        if told is not None:
            raise told

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncLeadership:
        """Waits until this process leads. The leadership before it, if it has no block of its own, ends here."""
        found = await self.acquire()
        assert found is not None, "it waits for ever"
        return found

    async def acquire(self, within_ms: int | None = None, *, unless_held: bool = False) -> AsyncLeadership | None:
        """Waits until this process leads, at most `within_ms`. `unless_held`: gives up once another is seen to lead."""
        if os.getpid() != self._renewer.pid:
            raise UsageError(f"election {self.name} belongs to the process that this one was forked from")
        check_spans(within_ms=0 if within_ms is None else within_ms)
        self._end_body(None)
        deadline = None if within_ms is None else asyncio.get_running_loop().time() + within_ms / 1_000
        while True:
            hold = await self._wait(deadline, unless_held)
            if hold is None:
                return None
            held = AsyncLeadership(hold, self)
            if hold.claim(self._timer):
                self._held = held
                self._candidacy.claimed(hold)
                return held
            self._candidacy.over(hold)

    async def _wait(self, deadline: float | None, unless_held: bool) -> Hold | None:
        if self._loop is not asyncio.get_running_loop() or self._done is not None:
            raise UsageError(f"election {self.name} is used inside of its own `async with` block, in one event loop")
        if self._observer:
            raise UsageError(f"this process only watches {self.name}: leave out observer=True to campaign")
        if self._waiter is not None:
            raise UsageError(f"two tasks wait for election {self.name}: each needs an Election of its own")
        if self._unusable is not None:
            raise self._unusable
        waiter: asyncio.Future[Hold | None] = self._loop.create_future()
        self._waiter, self._gives_way, self._rival = waiter, unless_held, ""
        self._candidacy.stand(True)
        try:
            async with asyncio.timeout_at(deadline):
                hold = await waiter
        except (TimeoutError, asyncio.CancelledError, StoreUnusable) as error:
            self._vain = self.standing
            self._candidacy.stand(False)
            settled = waiter.done() and not waiter.cancelled() and waiter.exception() is None
            given = waiter.result() if settled else None
            if given is not None:
                self._candidacy.over(given)
            if isinstance(error, TimeoutError):
                return None
            raise
        finally:
            self._waiter = None
        if hold is None:
            self._candidacy.stand(False)
        return hold

    # --- watching -----------------------------------------------------------------------------------------------------

    @property
    def standing(self) -> Standing:
        """Who is believed to lead, and what this process waits for. For people: decide by a `Leadership` only."""
        return self._candidacy.standing

    @property
    def counts(self) -> ElectionCounts:
        """For metrics; `late_ms` is how long the loop took to turn after the newest renewal."""
        return self._candidacy.counts

    async def watch(self) -> AsyncIterator[Standing]:
        """The standing now, and again whenever another process leads. Changes in quick succession are told as one."""
        told: Standing | None = None
        while self._done is None:
            self._turned.clear()
            if told is None or self.standing[:3] != told[:3]:
                told = self.standing
                yield told
            else:
                await self._turned.wait()

    # --- in the user's loop -------------------------------------------------------------------------------------------

    def _began(self, hold: Hold) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(hold)
        else:
            self._candidacy.over(hold)  # whoever waited has left meanwhile

    def _timer_rang(self) -> None:
        """The TERM point of the hold has come, unless it was moved a moment ago."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, TIMER_BYTES)
        if self._held is not None and self._held._hold.why_over():
            self._lost(self._held._hold)

    def _lost(self, hold: Hold) -> None:
        if self._held is not None and self._held._hold is hold:
            self._held._cancel()

    def _rivalled(self, node: str) -> None:
        self._rival = node
        if self._gives_way and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _gave_up(self, error: StoreUnusable) -> None:
        self._unusable = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _changed(self, standing: Standing) -> None:
        self._turned.set()
        if self._on_change is not None:
            self._on_change(standing)

    def _closed(self) -> None:
        if self._done is not None:
            settle(self._done)
        self._turned.set()

    def _end_body(self, error: BaseException | None, leaving: bool = False) -> LeadershipLost | None:
        """The leadership without a block of its own, if there is one, ends. Says how, if it was lost."""
        held = self._held
        if held is not None and held._entered is not None and not held._hold.ended:
            if not leaving:
                raise UsageError(f"the block of the leadership of {self.name} before this is still open")
            held._hold.lose("the block of its election was left")  # another task is in it
            held._hold.forget_timer()
            held._cancel()
        self._held = None
        if held is None or held._entered is not None:
            return None  # its own block has ended it, or will
        self._candidacy.over(held._hold)
        if held._absorb(error):
            return LeadershipLost(self.name, held.token, held._hold.lost)
        return None


class AsyncLeadership(Leadership):
    """A leadership as a block: cancelled when it is lost, and then left without an error."""

    def __init__(self, hold: Hold, election: Election) -> None:
        super().__init__(hold)
        self._election = election
        self._task = _this_task()
        self._before = self._task.cancelling()
        """How many requests to cancel stood against the task before ours."""
        self._cancelled = False

    async def __aenter__(self) -> Self:
        task = _this_task()
        if self._hold.ended or (task is not self._task and self._cancelled):
            self._hold.check()
        self._enter()
        if task is not self._task:  # handed over: from now on this task is the body
            self._task, self._before = task, task.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool:
        self._leave()
        self._election._candidacy.over(self._hold)
        return self._absorb(error) or self._owns(error)

    def _cancel(self) -> None:
        if not self._cancelled and not self._hold.ended:
            self._cancelled = True
            self._task.cancel(f"the leadership of {self.election} is over: {self._hold.lost}")

    def _absorb(self, error: BaseException | None) -> bool:
        """Takes our own cancellation out of the task, and no other. True if `error` was nothing but that."""
        if not self._cancelled:
            return False
        self._cancelled = False
        others = self._task.uncancel() > self._before
        return isinstance(error, asyncio.CancelledError) and not others


class _Bridge:
    """From the renewer's thread into the user's loop."""

    def __init__(self, election: Election) -> None:
        self._election = election

    def began(self, hold: Hold) -> None:
        self._post(self._election._began, hold)

    def renewed(self, hold: Hold, at_ms: int) -> None:
        self._post(self._election._candidacy.alive, hold, at_ms)

    def lost(self, hold: Hold) -> None:
        self._post(self._election._lost, hold)

    def rival(self, node: str) -> None:
        self._post(self._election._rivalled, node)

    def changed(self, standing: Standing) -> None:
        self._post(self._election._changed, standing)

    def unusable(self, error: StoreUnusable) -> None:
        self._post(self._election._gave_up, error)

    def closed(self) -> None:
        self._post(self._election._closed)

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._election._loop is not None
        post(self._election._loop, function, *arguments)


def post(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Has it called in the loop, from any thread."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:  # that loop is closed: nobody is left to be told, and nothing runs in it any more
        log.debug("the event loop is closed; %s was not called", function)


def settle(future: asyncio.Future[None]) -> None:
    """Done, unless whoever waited has left."""
    if not future.done():
        future.set_result(None)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise UsageError("a leadership belongs to a task: use it in a coroutine that runs in an event loop")
    return task
