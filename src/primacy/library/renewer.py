"""The renewer: a thread of our own that renews leases while the user's loop or thread is busy.

In it runs a small event loop, which drives one lease machine per election; beside it the renewing thread of the store,
which alone talks to the database. So a user's loop that is blocked costs no renewal, and a database that hangs costs no
deadline.

One renewer serves any number of elections on one connection, whose renewals then share statements (L6). An `Election`
that is given an address makes one for itself.

It must never call the user's code while it holds anything, and does nothing in a forked child: its threads stayed
behind in the parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Self

from primacy.errors import UsageError
from primacy.node.clock import Clock, SystemClock
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES, PROFILES_OF, Timing, for_lease
from primacy.store import StoreThread, limit_of_ms, open_store
from primacy.store.url import TABLE

log = logging.getLogger("primacy")

CLOSE_S = 5.0
"""How long a leaving thread is waited for, beyond what the store may take."""


class Renewer:
    """One connection to a store, and the threads that keep leases there.

    `store`: an address such as `postgresql://host/db` or `sqlite:///leases.db`, or the application's own SQLAlchemy
    engine. `profile`: the times, see `primacy contract`; the same for all users of a lease is best, and different ones
    do no harm. `table`: where the rows are. `create`: make the table if it is missing. `state_dir`: a folder of this
    machine in which the largest token of each election is kept, so that none below it is ever used here (T2).
    """

    def __init__(
        self,
        store: Any,
        *,
        profile: str = DEFAULT_PROFILE,
        table: str = TABLE,
        create: bool = True,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.timing = timing_of(profile)
        self.table = table
        self.state_dir = state_dir
        self.clock: Clock = SystemClock()
        self.limit_ms = limit_of_ms(self.timing.hold_ms)
        self._opened = open_store(store, table=table, limit_ms=self.limit_ms, create=create)
        self._store: StoreThread | None = None
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """What the renewer's thread was asked to call and has not begun: it is woken once for all of them."""
        self._closed = False

    def call(self, function: Callable[..., object], *arguments: Any) -> bool:
        """Has it called in the renewer's thread, soon and in order. False: closed, or we are a forked child."""
        if os.getpid() != self.pid:
            return False
        with self._lock:
            if self._closed:
                return False
            if self._loop is None:
                self._start()
            assert self._loop is not None
            if not self._calls:
                self._loop.call_soon_threadsafe(self._make_calls)
            self._calls.append((function, arguments))
        return True

    def _make_calls(self) -> None:
        """One that fails is reported as by any callback, and costs the others nothing."""
        assert self._loop is not None
        with self._lock:
            calls, self._calls = self._calls, []
        for function, arguments in calls:
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001  (the loop's to report)
                self._loop.call_exception_handler({"message": "what the renewer called failed", "exception": error})

    def now(self, function: Callable[..., object], *arguments: Any) -> None:
        """The same, but at once if this is the renewer's thread: nothing that was asked for later may overtake it."""
        if threading.current_thread() is self._thread:
            function(*arguments)
        else:
            self.call(function, *arguments)

    @property
    def store(self) -> StoreThread:
        """The renewing thread; made with the renewer's own, so that a renewer that nobody uses costs nothing."""
        assert self._store is not None
        return self._store

    def later(self, delay_ms: int, function: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """In the renewer's thread only."""
        assert self._loop is not None
        return self._loop.call_later(delay_ms / 1_000, function, *arguments)

    def close(self) -> None:
        """Ends the threads. What was asked of the store is still asked, but nothing is waited for without a limit."""
        if os.getpid() != self.pid:
            return
        with self._lock:
            closed, self._closed = self._closed, True
            loop, thread, store = self._loop, self._thread, self._store
        if closed or loop is None or thread is None or store is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)
        store.close()

    def close_behind(self, done: Callable[[], None]) -> None:
        """The same without waiting, for an event loop that must go on. `done` is called in another thread."""

        def close() -> None:
            self.close()
            done()

        threading.Thread(target=close, name="primacy-close", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _start(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        self._store = StoreThread(self._opened, self.limit_ms)
        self._thread = threading.Thread(target=self._live, args=(loop,), name="primacy-renewer", daemon=True)
        self._thread.start()

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def renewer_for(
    store: Any, profile: str | None, table: str | None, state_dir: str | os.PathLike[str] | None
) -> tuple[Renewer, bool]:
    """The renewer of an election, and whether it is shared: then its times, table and folder count for all."""
    if not isinstance(store, Renewer):
        return Renewer(store, profile=profile or DEFAULT_PROFILE, table=table or TABLE, state_dir=state_dir), False
    said = {"profile": profile, "table": table, "state_dir": state_dir}
    wrong = [name for name, value in said.items() if value is not None]
    if wrong:
        raise UsageError(f"this election shares a Renewer, whose {' and '.join(wrong)} counts for all: say it there")
    return store, True


def timing_of(profile: str) -> Timing:
    """The times of a profile that fits a lease, as `primacy run` has them."""
    fitting = PROFILES_OF["lease"]
    if profile not in fitting:
        raise UsageError(f"no profile {profile!r} fits a lease; the profiles are {', '.join(fitting)}")
    return for_lease(PROFILES[profile])
