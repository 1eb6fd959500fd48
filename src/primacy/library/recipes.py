"""Three common uses of an election, ready made: a lock, a function that one process runs, a function that runs once.

`singleton` and `once` keep the kind of the function: a coroutine function stays one, a plain function stays plain and
runs in the caller's thread, where nothing can cancel it: it asks `primacy.current().check()`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from primacy import blocking
from primacy.election.store import WAIT_MAX_MS
from primacy.errors import InUse, NotReached, UsageError
from primacy.library.candidacy import Standing, check_bounds, check_spans
from primacy.library.election import AsyncLeadership, Election
from primacy.library.leadership import Leadership

P = ParamSpec("P")
R = TypeVar("R")

HOLDS_MAX = 20
"""How many holds `once` waits for a store, beyond the longest wait of a table, before it says that it was not
reached."""


class Lock:
    """A lease as a lock, for short critical sections.

        async with primacy.Lock("invoice-numbers", store=engine) as leadership:
            ...

    Raises `InUse` if it was not had `within_ms` (default: waits for ever), and `LeadershipLost` at the end of a block
    that was cut short or that outlived its lease. Each use opens a connection; share a `Renewer` where that matters.
    With `lock_at_least_ms` leaving the block waits until the lock was held for so long. The other options are those of
    `Election`.
    """

    def __init__(self, name: str, *, store: Any, within_ms: int | None = None, **options: Any) -> None:
        self.name = name
        self._within_ms = within_ms
        self._store = store
        self._options: dict[str, Any] = {"rest_ms": 1, **options}
        inspect.signature(Election).bind(name, store=store, **self._options)
        check_spans(within_ms=0 if within_ms is None else within_ms)
        check_bounds(options.get("lock_at_least_ms", 0), options.get("lock_at_most_ms", 0))
        self._election: Election | None = None
        self._leadership: AsyncLeadership | None = None

    async def __aenter__(self) -> Leadership:
        if self._election is not None:
            raise UsageError(f"lock {self.name} is held already: a lease is not taken twice by one holder")
        election = self._election = await Election(self.name, store=self._store, **self._options).__aenter__()
        try:
            found = await election.acquire(self._within_ms)
            if found is None:
                raise InUse(blocking.waited_in_vain(self.name, self._within_ms, election._vain))
            self._leadership = await found.__aenter__()
        except BaseException:
            self._election = None
            await election.__aexit__(None, None, None)
            raise
        return self._leadership

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        election, held = self._election, self._leadership
        assert election is not None
        assert held is not None
        self._election = self._leadership = None
        reason = held._hold.why_over()
        swallowed = await held.__aexit__(kind, error, at)
        await election.__aexit__(*((None, None, None) if swallowed else (kind, error, at)))
        if swallowed or (error is None and reason):
            raise held._error() from None


class _Kept(Protocol):
    """A decorator that leaves the kind of a function as it is, but for what it returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R]: ...


class _Perhaps(Protocol):
    """The same; nobody knows beforehand whether it will run."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]: ...


def singleton(name: str, *, store: Any, **options: Any) -> _Kept:
    """Of all processes that call the function, one runs it.

        @primacy.singleton("scheduler", store="postgresql://host/db")
        async def schedule() -> None:
            while True:
                ...

    A call waits its turn, for ever. If the leadership is lost the function is cancelled (a plain one learns it from
    `primacy.current().check()`) and the call waits again. When it returns, the call returns; when it raises, so does
    the call; either way the lease is released. The options are those of `Election`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check(function, name, store, options)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait_and_run(*args: Any, **kwargs: Any) -> Any:
                async with Election(name, store=store, **options) as election:
                    async for leadership in election:
                        async with leadership:
                            return await function(*args, **kwargs)
                raise AssertionError("an election has no end")

            return wait_and_run

        @functools.wraps(function)
        def wait_and_run_here(*args: Any, **kwargs: Any) -> Any:
            with blocking.Election(name, store=store, **options) as election:
                for leadership in election:
                    with leadership:
                        return function(*args, **kwargs)
            raise AssertionError("an election has no end")

        return wait_and_run_here

    return cast(_Kept, decorate)


def once(
    name: str, *, store: Any, within_ms: int | None = None, at_least_ms: int | None = None, **options: Any
) -> _Perhaps:
    """For calls that many machines make at the same time, as from cron: whoever comes first runs the function.

        @primacy.once("nightly-report", store="postgresql://host/db", lock_at_least_ms=60_000)
        def report() -> int: ...

    The others return `None`. The lease is kept for at least `lock_at_least_ms` from the beginning of the function,
    whether it returns or raises, and the call returns only then, so that a machine whose clock is late by less than
    that does not run it again. Choose more than your clocks may differ, and less than the time to the next call.
    `at_least_ms` is the same by its older name.

    If the lease is lost while the function runs, or that has run for `lock_at_most_ms`, `LeadershipLost` is raised: the
    function was cancelled, or (a plain one) may have run beside another. If the store is not reached `within_ms`
    (default: twenty holds and 10.5 s), `NotReached` is raised; if it refuses for good, `StoreUnusable`, at once. While
    the store counts as just (re)started, the call waits (L9).
    """
    check_spans(within_ms=0 if within_ms is None else within_ms)
    options = {"rest_ms": 1, **options}
    if at_least_ms is not None:
        if "lock_at_least_ms" in options:
            raise UsageError("at_least_ms and lock_at_least_ms are two names of one option: say lock_at_least_ms only")
        options["lock_at_least_ms"] = at_least_ms
    check_bounds(options.get("lock_at_least_ms", 0), options.get("lock_at_most_ms", 0))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _check(function, name, store, options)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_if_first(*args: Any, **kwargs: Any) -> Any:
                async with Election(name, store=store, **options) as election:
                    leadership = await election.acquire(_patience_ms(within_ms, election), unless_held=True)
                    if leadership is None:
                        return _not_first(name, election._vain, election._rival)
                    return await _run(leadership, lambda: function(*args, **kwargs))

            return run_if_first

        @functools.wraps(function)
        def run_here_if_first(*args: Any, **kwargs: Any) -> Any:
            with blocking.Election(name, store=store, **options) as election:
                leadership = election.acquire(_patience_ms(within_ms, election), unless_held=True)
                if leadership is None:
                    return _not_first(name, election._vain, election._rival)
                return _run_here(leadership, lambda: function(*args, **kwargs))

        return run_here_if_first

    return cast(_Perhaps, decorate)


def _check(function: object, name: str, store: Any, options: dict[str, Any]) -> None:
    """A wrong call is told where it stands, not when the function is called at night."""
    check_bounds(options.get("lock_at_least_ms", 0), options.get("lock_at_most_ms", 0))
    if not callable(function):
        raise UsageError(f"{name}: this decorates a function, not {function!r:.40}")
    face = Election if inspect.iscoroutinefunction(function) else blocking.Election
    inspect.signature(face).bind(name, store=store, **options)


async def _run(leadership: AsyncLeadership, work: Callable[[], Awaitable[Any]]) -> Any:
    async with leadership:
        result = await work()
        leadership.check()
        return result
    raise leadership._error()


def _run_here(leadership: blocking.ThreadLeadership, work: Callable[[], Any]) -> Any:
    with leadership:
        result = work()
        leadership.check()
        return result
    raise leadership._error()


def _patience_ms(within_ms: int | None, election: Election | blocking.Election) -> int:
    """A store that has just (re)started makes everybody wait first (L9); that is no reason to give up."""
    return HOLDS_MAX * election._renewer.timing.hold_ms + WAIT_MAX_MS if within_ms is None else within_ms


def _not_first(name: str, standing: Standing, rival: str) -> None:
    if not rival:
        waits_for = standing.waits_for or "the store to answer"  # nothing was heard yet, not even a refusal
        raise NotReached(f"whether {name} is to run here could not be found out: it waits for {waits_for}")
