"""The one sync face: elections, and the clients of slots and of the cache, for threads and scripts.

    with primacy.blocking.Election("reports", store="sqlite:///leases.db") as election:
        for leadership in election:                  # waits its turn, for ever
            with leadership:
                for page in pages:
                    leadership.check()               # raises once it is over; the block swallows that
                    write(page, leadership.token)

Nothing can cancel a thread: the body must ask. The lease is renewed for as long as the thread lives, or as long as the
body calls `check()` or `left_ms()` every `check_within_ms`, if that is given. `on_loss="kill"` ends the whole process
in time if the body has not asked. Everything else is as in `primacy.Election`, on the same renewer and the same
machine.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from primacy.errors import InUse, StoreUnusable, UsageError
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
from primacy.library.election import GRACE_MS, OnLoss
from primacy.library.hold import Hold
from primacy.library.leadership import Leadership
from primacy.library.renewer import renewer_for
from primacy.library.sigterm import SIGTERM
from primacy.slots.threads import SlotsClient

if TYPE_CHECKING:
    from primacy.cache.threads import CacheClient

__all__ = ["CacheClient", "Election", "Leadership", "Lock", "SlotsClient"]

log = logging.getLogger("primacy")


def __getattr__(name: str) -> object:
    """The cache's client needs ZeroMQ, which only its users have."""
    if name != "CacheClient":
        raise AttributeError(f"module 'primacy.blocking' has no attribute {name!r}")
    from primacy.cache import CacheClient  # noqa: PLC0415

    return CacheClient


NEVER = -1
INTERRUPTIONS = (KeyboardInterrupt, SystemExit)
"""What Ctrl-C and SIGTERM raise in the main thread."""
WAKE_S = 1.0
"""Waiting threads look up at least this often, so that Ctrl-C is never kept waiting."""


class Election:
    """A named role that one of many processes has. The arguments are those of `primacy.Election`.

    `on_change` is called in a thread of ours, and must return at once. `check_within_ms`: the body must ask at least
    this often, or its leadership is given up; by default it need not.
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
        check_within_ms: int = 0,
        rest_ms: int = 0,
        table: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        on_sigterm: bool = True,
        lock_at_most_ms: int = 0,
        lock_at_least_ms: int = 0,
    ) -> None:
        check_options(on_loss, on_change)
        check_spans(rest_ms=rest_ms, check_within_ms=check_within_ms)
        check_bounds(lock_at_least_ms, lock_at_most_ms)
        self.name = name
        self._renewer, self._shared = renewer_for(store, profile, table, state_dir)
        self._asked = check_within_ms > 0
        stall_ms = check_within_ms or NEVER
        wishes = Wishes(observer, on_loss == "kill", rest_ms, stall_ms, lock_at_most_ms, lock_at_least_ms)
        self._candidacy = Candidacy(self._renewer, name, node, wishes, self)
        self._observer = observer
        self._on_change = on_change
        self._on_sigterm = on_sigterm
        self._news = threading.Condition()
        self._given: Hold | None = None
        self._held: ThreadLeadership | None = None
        self._waits = False
        self._opened = self._left = False
        self._rival = ""
        self._unusable: StoreUnusable | None = None
        self._vain = self._candidacy.standing
        """How it stood when somebody gave up waiting."""

    def __repr__(self) -> str:
        return repr(self._candidacy)

    def __enter__(self) -> Self:
        if self._opened:
            raise UsageError(f"election {self.name} was entered before; make a new Election for a new block")
        self._opened = True
        self._candidacy.open()
        if self._on_sigterm:
            SIGTERM.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if os.getpid() != self._renewer.pid:
            return  # a forked child: threads and lease are the parent's
        self._end_body(leaving=True)
        try:
            with self._news:
                if self._candidacy.close():
                    self._until_left(2 * self._renewer.limit_ms + GRACE_MS, isinstance(error, INTERRUPTIONS))
        finally:
            if self._on_sigterm:
                SIGTERM.leave()
            if not self._shared:
                self._renewer.close()

    def _until_left(self, limit_ms: int, interrupted: bool) -> None:
        """Where the lease is kept (`lock_at_least_ms`), one Ctrl-C or SIGTERM waits until then. The next one leaves at
        once: the lease is not released, and runs out by itself."""
        kept_ms, told = self._candidacy.kept_ms(), None
        until_s = time.monotonic() + (kept_ms + limit_ms) / 1_000
        while not self._left and (left_s := until_s - time.monotonic()) > 0:
            try:
                self._news.wait(min(left_s, WAKE_S))
            except INTERRUPTIONS as error:
                if interrupted or not kept_ms:
                    raise
                interrupted, told = True, error
        if told is not None:
            raise told

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ThreadLeadership:
        """Waits until this process leads. The leadership before it, if its block is still open, ends here.

        There is no next one once another thread has left the block of the election.
        """
        found = self.acquire()
        if found is None:
            raise StopIteration
        return found

    def acquire(self, within_ms: int | None = None, *, unless_held: bool = False) -> ThreadLeadership | None:
        """Waits until this process leads, at most `within_ms`. `unless_held`: gives up once another is seen to lead."""
        if os.getpid() != self._renewer.pid:
            raise UsageError(f"election {self.name} belongs to the process that this one was forked from")
        check_spans(within_ms=0 if within_ms is None else within_ms)
        self._end_body()
        deadline = None if within_ms is None else time.monotonic() + within_ms / 1_000
        while True:
            hold = self._wait(deadline, unless_held)
            if hold is None:
                return None
            if hold.claim():
                self._held = ThreadLeadership(hold, self)
                self._candidacy.claimed(hold)
                return self._held
            self._candidacy.over(hold)

    @property
    def standing(self) -> Standing:
        """Who is believed to lead, and what this process waits for. For people: decide by a `Leadership` only."""
        return self._candidacy.standing

    @property
    def counts(self) -> ElectionCounts:
        """For metrics."""
        return self._candidacy.counts

    def _wait(self, deadline: float | None, unless_held: bool) -> Hold | None:
        if self._observer:
            raise UsageError(f"this process only watches {self.name}: leave out observer=True to campaign")
        with self._news:
            if self._waits or not self._opened or self._left:
                raise UsageError(f"election {self.name} is used in its own `with` block, by one thread at a time")
            self._waits, self._rival = True, ""
            self._candidacy.stand(True)
            try:
                while self._given is None and not (unless_held and self._rival) and not self._left:
                    if self._unusable is not None:
                        raise self._unusable
                    left_s = WAKE_S if deadline is None else min(WAKE_S, deadline - time.monotonic())
                    if left_s <= 0:
                        break
                    self._news.wait(left_s)
                if unless_held and self._rival and self._given is not None:
                    self._candidacy.over(self._given)
                    self._given = None
                return self._given
            except BaseException:  # such as Ctrl-C, or a store that is of no use
                if self._given is not None:
                    self._candidacy.over(self._given)
                self._candidacy.stand(False)
                raise
            finally:
                self._waits = False
                if self._given is None:
                    self._vain = self.standing
                    self._candidacy.stand(False)
                self._given = None

    def _end_body(self, leaving: bool = False) -> None:
        held = self._held
        if held is not None and held._inside:
            if not leaving:
                raise UsageError(f"the block of the leadership of {self.name} before this is still open")
            held._hold.lose("the block of its election was left")  # another thread is in it
            return
        self._held = None
        if held is not None:
            self._candidacy.over(held._hold)

    # --- told by the renewer, in its thread ---------------------------------------------------------------------------

    def began(self, hold: Hold) -> None:
        with self._news:
            if self._waits and self._given is None:
                self._given = hold
                self._news.notify_all()
                return
        self._candidacy.over(hold)

    def renewed(self, hold: Hold, at_ms: int) -> None:
        """A thread shows that it lives by asking; see `ThreadLeadership`."""

    def lost(self, hold: Hold) -> None:
        """The body learns it when it asks."""

    def rival(self, node: str) -> None:
        with self._news:
            self._rival = node
            self._news.notify_all()

    def changed(self, standing: Standing) -> None:
        if self._on_change is not None:
            try:
                self._on_change(standing)
            except Exception:  # the user's own: it must not end the renewer, and must not be hidden
                log.exception("%s: on_change raised", self.name)

    def unusable(self, error: StoreUnusable) -> None:
        with self._news:
            self._unusable = error
            self._news.notify_all()

    def closed(self) -> None:
        with self._news:
            self._left = True
            self._news.notify_all()


class ThreadLeadership(Leadership):
    """A leadership as a block. Its own `LeadershipLost`, raised by `check()`, ends the block and goes no further."""

    def __init__(self, hold: Hold, election: Election) -> None:
        super().__init__(hold)
        self._election = election
        self._inside = False

    def check(self) -> None:
        self._hold.alive()
        super().check()

    def left_ms(self) -> int:
        self._hold.alive()
        return super().left_ms()

    def __enter__(self) -> Self:
        self._enter()
        self._inside = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self._inside = False
        self._leave()
        self._election._candidacy.over(self._hold)
        return self._owns(error)


class Lock:
    """A lease as a lock, for short critical sections of threads and scripts. See `primacy.Lock`."""

    def __init__(self, name: str, *, store: Any, within_ms: int | None = None, **options: Any) -> None:
        self.name = name
        self._within_ms = within_ms
        self._store = store
        self._options: dict[str, Any] = {"rest_ms": 1, **options}
        inspect.signature(Election).bind(name, store=store, **self._options)
        check_spans(within_ms=0 if within_ms is None else within_ms)
        check_bounds(options.get("lock_at_least_ms", 0), options.get("lock_at_most_ms", 0))
        self._election: Election | None = None
        self._leadership: ThreadLeadership | None = None

    def __enter__(self) -> Leadership:
        if self._election is not None:
            raise UsageError(f"lock {self.name} is held already: a lease is not taken twice by one holder")
        election = self._election = Election(self.name, store=self._store, **self._options).__enter__()
        try:
            found = election.acquire(self._within_ms)
            if found is None:
                raise InUse(waited_in_vain(self.name, self._within_ms, election._vain))
            self._leadership = found.__enter__()
        except BaseException:
            self._election = None
            election.__exit__(None, None, None)
            raise
        return self._leadership

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        election, held = self._election, self._leadership
        assert election is not None
        assert held is not None
        self._election = self._leadership = None
        reason = held._hold.why_over()
        held.__exit__(kind, error, at)
        election.__exit__(kind, error, at)
        if error is None and reason:
            held._hold.check()


def waited_in_vain(name: str, within_ms: int | None, standing: Standing) -> str:
    """Why a lock was not had."""
    waits_for = standing.waits_for or "the store to answer"  # nothing was heard yet
    return f"lock {name} was not had within {within_ms:,} ms: it waits for {waits_for}"
