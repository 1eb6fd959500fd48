"""`@primacy.cached(ttl_ms=...)`: a fleet of processes computes each result once.

    @primacy.cached(ttl_ms=60_000, apis=["tcp://10.0.0.1:6001"])
    def rate(currency: str) -> float: ...

The function runs in its caller's process. A caller whose result is missing asks the peers and offers to compute it; the
peer that is elected for the key hands the retrieval to one waiting caller as a *claim*. The claim is kept alive while
the function runs, and is void when its hold ends: a result that comes later loses. All others wait for that one result.

What this cannot do: a plain function cannot be killed in its caller's process. A caller that is frozen past the hold
goes on computing when it wakes, beside the one that computes by then; its result is dropped (compare rule U1).

The cache is never a reason to fail: where no peer answers, or not in time, the function is called here, and counted
(`cache_info().local`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
import time
import typing
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from primacy.cache.access import WITHIN_MS_MAX, Absent, Done, Found, Why, as_key, check_ms, named_key
from primacy.cache.arguments import function_name, keys_of
from primacy.cache.serializers import Serializer, Unreadable, serializer
from primacy.errors import NotReached, UsageError
from primacy.node.clock import SystemClock
from primacy.settings.schema_cache import TTL_MS_LEAST, TTL_MS_MOST

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LOCAL_MS = 1_000
LOCAL_MAX = 1_024
"""Results kept in the process per function."""
LOCAL_BYTES_MAX = 67_108_864
"""Of their keys and serialized results."""
WITHIN_MS = 30_000
"""How long a caller waits for another's result before it computes its own."""
AGAIN_MS = 200
"""After the failure of another caller, until the next try. The key rests for a while after each failure (C7)."""
AGAIN_MAX = 10
"""So often. Then the function is called here: what it says is for its caller."""
REFRESH_MAX = 4
"""Refreshes behind a stale result at one time, per function. One more is left to a later call."""
PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
"""Types of arguments that are told apart by type and value, and of results that nobody can change."""

log = logging.getLogger("primacy.cache")


class Claim(Protocol):
    """The right to compute one entry, until its hold ends. Kept alive by the client that was given it."""

    async def deliver(self, value: bytes, ttl_ms: int) -> bool:
        """Hand in the result. False: the claim was void, and the result is dropped."""
        ...

    async def give_up(self, reason: str) -> None: ...


class Asker(Protocol):
    """What the decorator needs of a client."""

    async def obtain(self, key: bytes, *, after_ms: int, within_ms: int) -> Found | Absent | Claim:
        """An entry, or the claim to compute it. Raises `NotReached` where no peer answers."""
        ...

    async def invalidate(self, key: bytes) -> Done: ...

    def on_dropped(self, call: Callable[[bytes, bool], None]) -> None:
        """`call(key, prefix)` when a peer says that an entry was invalidated; (b"", True) when some may be unknown."""
        ...


class Runner(Protocol):
    """Runs an asker's coroutines for threads."""

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class Askers(Protocol):
    """Where functions get their client from: one per process for threads, one per event loop for coroutines."""

    def for_threads(self) -> tuple[Asker, Runner]: ...
    def for_loop(self) -> Asker: ...


class CacheInfo(NamedTuple):
    """How calls were answered since the start of this process."""

    local_hits: int
    """From the copy in this process."""
    hits: int
    """By a peer; `stale` are among them."""
    stale: int
    computed: int
    """Here, under a claim."""
    local: int
    """Here, without the cache: no peer answered in time."""
    lost: int
    """Computed under a claim that was void when the result came."""


class _Copy(NamedTuple):
    """A result in this process."""

    until_ms: int
    key: bytes
    value: bytes | None
    result: Any
    """Used if `value` is None: nobody can change it."""
    size: int = 0
    """Bytes of key and serialized result."""


class _Copies:
    """Bounded copies of results, by the arguments of calls. Any thread."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._of: OrderedDict[Any, _Copy] = OrderedDict()
        self._bytes = 0
        self._decode = decode
        self._lock = threading.Lock()
        self.drops = 0
        """How often something was dropped. What was asked for before a drop is not kept after it: it may be what was
        invalidated."""

    def get(self, arguments: Any, now_ms: int) -> _Copy | None:
        found = self._of.get(arguments)
        return found if found is not None and now_ms < found.until_ms else None

    def result(self, copy: _Copy) -> Any:
        return copy.result if copy.value is None else self._decode(copy.value)

    def put(self, arguments: Any, copy: _Copy, drops: int) -> None:
        with self._lock:
            if drops != self.drops:
                return
            self._forget(arguments)
            self._of[arguments] = copy
            self._bytes += copy.size
            while len(self._of) > LOCAL_MAX or self._bytes > LOCAL_BYTES_MAX:
                self._forget(next(iter(self._of)))

    def drop(self, key: bytes, prefix: bool) -> None:
        with self._lock:
            self.drops += 1
            for arguments, copy in list(self._of.items()):
                if copy.key.startswith(key) if prefix else copy.key == key:
                    self._forget(arguments)

    def _forget(self, arguments: Any) -> None:
        copy = self._of.pop(arguments, None)
        self._bytes -= copy.size if copy is not None else 0


class _Asked(NamedTuple):
    """One call that no copy answers."""

    key: bytes
    arguments: Any
    drops: int
    """Of the copies, before a peer was asked."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Options(NamedTuple):
    """What the decorator was told."""

    ttl_ms: int
    stale_ms: int
    local_ms: int
    within_ms: int


class _Function:
    """What the faces for threads and coroutines share."""

    def __init__(
        self,
        function: Callable[..., Any],
        keys: Callable[[tuple[Any, ...], dict[str, Any]], bytes],
        chosen: Serializer,
        options: Options,
        askers: Askers,
    ) -> None:
        self.function, self.keys, self.serializer, self.options, self.askers = function, keys, chosen, options, askers
        self.clock = SystemClock()
        self.copies = _Copies(chosen.decode)
        self.counts = dict.fromkeys(CacheInfo._fields, 0)
        self._listening: weakref.WeakSet[Asker] = weakref.WeakSet()
        """One per event loop: a program may have many, one after the other."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What copies are found by; None: such arguments have no copies."""
        if not self.options.local_ms:
            return None
        for one in args:
            if type(one) not in PLAIN:
                return None
        if not kwargs:
            return (args, *map(type, args))
        for one in kwargs.values():
            if type(one) not in PLAIN:
                return None
        return (args, *map(type, args), *((name, type(one), one) for name, one in kwargs.items()))

    def local(self, arguments: Any) -> _Copy | None:
        if arguments is None:
            return None
        found = self.copies.get(arguments, self.clock.now_ms())
        if found is not None:
            self.counts["local_hits"] += 1
        return found

    def keep(self, asked: _Asked, value: bytes, result: Any, fresh_ms: int) -> None:
        if asked.arguments is None or fresh_ms <= 0:
            return
        until_ms = self.clock.now_ms() + min(fresh_ms, self.options.local_ms)
        changeable = type(result) not in PLAIN
        size = len(asked.key) + len(value)
        copy = _Copy(until_ms, asked.key, value if changeable else None, None if changeable else result, size)
        self.copies.put(asked.arguments, copy, asked.drops)

    def asked(self, arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked:
        return _Asked(self.keys(args, kwargs), arguments, self.copies.drops, args, kwargs)

    def listen(self, asker: Asker) -> None:
        if asker not in self._listening:
            self._listening.add(asker)
            asker.on_dropped(self.copies.drop)

    def after_ms(self) -> int:
        return max(1, self.clock.wall_ms() - self.options.stale_ms)

    def read(self, found: Found, asked: _Asked) -> Any:
        """The result of an entry. Raises `Unreadable`."""
        result = self.serializer.decode(found.value)
        self.counts["hits"] += 1
        self.counts["stale"] += found.stale
        if not found.stale:
            self.keep(asked, found.value, result, found.expire_ms - self.clock.wall_ms())
        return result

    def unreadable(self, key: bytes, error: Unreadable) -> None:
        log.warning("entry %s is no result of this function, it is computed here: %s", named_key(key), error)
        self.counts["local"] += 1

    def again_s(self, absent: Absent, tries: int, until_ms: int) -> float | None:
        """How long to wait before asking once more, for another's call failed and its pause will be over; None: not."""
        left_ms = until_ms - self.clock.now_ms()
        if absent.why is not Why.SOURCE or left_ms <= 0 or tries >= AGAIN_MAX:
            return None
        return min(AGAIN_MS, left_ms) / 1_000

    def info(self) -> CacheInfo:
        return CacheInfo(**self.counts)


# --- threads ----------------------------------------------------------------------------------------------------------


class _Threads(_Function):
    """A plain function: computed in its caller's thread."""

    _pool: ThreadPoolExecutor | None = None
    _refreshing: set[bytes]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = self.arguments(args, kwargs)
        copy = self.local(arguments)
        if copy is not None:
            return self.copies.result(copy)
        asked = self.asked(arguments, args, kwargs)
        asker, runner = self.askers.for_threads()
        self.listen(asker)
        until_ms = self.clock.now_ms() + self.options.within_ms
        for tries in count(1):
            try:
                got = runner.wait(
                    asker.obtain(asked.key, after_ms=self.after_ms(), within_ms=max(0, until_ms - self.clock.now_ms()))
                )
            except NotReached:
                break
            if isinstance(got, Found):
                try:
                    result = self.read(got, asked)
                except Unreadable as error:
                    self.unreadable(asked.key, error)
                    return self.function(*args, **kwargs)
                if got.stale:
                    self._refresh(asked)
                return result
            if not isinstance(got, Absent):
                return self._computed(runner, got, asked)
            again_s = self.again_s(got, tries, until_ms)
            if again_s is None:
                break
            time.sleep(again_s)
        self.counts["local"] += 1
        return self.function(*args, **kwargs)

    def _computed(self, runner: Runner, claim: Claim, asked: _Asked) -> Any:
        self.counts["computed"] += 1
        try:
            result = self.function(*asked.args, **asked.kwargs)
            value = self.serializer.encode(result)
        except BaseException as error:
            runner.wait(claim.give_up(f"{type(error).__name__}: {error}"))
            raise
        if runner.wait(claim.deliver(value, self.options.ttl_ms)):
            self.keep(asked, value, result, self.options.ttl_ms)
        else:
            self.counts["lost"] += 1
        return result

    def _refresh(self, asked: _Asked) -> None:
        """Behind a stale result, in a thread of its own."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(REFRESH_MAX, "primacy-cached")
            self._refreshing = set()
        if asked.key in self._refreshing or len(self._refreshing) >= REFRESH_MAX:
            return
        self._refreshing.add(asked.key)
        self._pool.submit(self._refreshed, asked)

    def _refreshed(self, asked: _Asked) -> None:
        try:
            asker, runner = self.askers.for_threads()
            got = runner.wait(asker.obtain(asked.key, after_ms=self.clock.wall_ms(), within_ms=self.options.within_ms))
            if not isinstance(got, Found | Absent):
                self._computed(runner, got, asked)
        except NotReached as error:
            log.info("%s stays stale: %s", named_key(asked.key), error)
        except Exception:
            log.exception("%s stays stale: its function failed", named_key(asked.key))
        finally:
            self._refreshing.discard(asked.key)


# --- coroutines -------------------------------------------------------------------------------------------------------


class _Coroutines(_Function):
    """A coroutine function: computed in its caller's task."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._refreshing: dict[bytes, asyncio.Task[None]] = {}

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = self.arguments(args, kwargs)
        copy = self.local(arguments)
        if copy is not None:
            return self.copies.result(copy)
        asked = self.asked(arguments, args, kwargs)
        asker = self.askers.for_loop()
        self.listen(asker)
        until_ms = self.clock.now_ms() + self.options.within_ms
        for tries in count(1):
            try:
                left_ms = max(0, until_ms - self.clock.now_ms())
                got = await asker.obtain(asked.key, after_ms=self.after_ms(), within_ms=left_ms)
            except NotReached:
                break
            if isinstance(got, Found):
                try:
                    result = self.read(got, asked)
                except Unreadable as error:
                    self.unreadable(asked.key, error)
                    return await self.function(*args, **kwargs)
                if got.stale:
                    self._refresh(asked)
                return result
            if not isinstance(got, Absent):
                return await self._computed(got, asked)
            again_s = self.again_s(got, tries, until_ms)
            if again_s is None:
                break
            await asyncio.sleep(again_s)
        self.counts["local"] += 1
        return await self.function(*args, **kwargs)

    async def _computed(self, claim: Claim, asked: _Asked) -> Any:
        self.counts["computed"] += 1
        try:
            result = await self.function(*asked.args, **asked.kwargs)
            value = self.serializer.encode(result)
        except BaseException as error:
            await asyncio.shield(claim.give_up(f"{type(error).__name__}: {error}"))
            raise
        if await claim.deliver(value, self.options.ttl_ms):
            self.keep(asked, value, result, self.options.ttl_ms)
        else:
            self.counts["lost"] += 1
        return result

    def _refresh(self, asked: _Asked) -> None:
        if asked.key in self._refreshing or len(self._refreshing) >= REFRESH_MAX:
            return
        task = asyncio.ensure_future(self._refreshed(asked))
        self._refreshing[asked.key] = task
        task.add_done_callback(lambda _: self._refreshing.pop(asked.key, None))

    async def _refreshed(self, asked: _Asked) -> None:
        try:
            got = await self.askers.for_loop().obtain(
                asked.key, after_ms=self.clock.wall_ms(), within_ms=self.options.within_ms
            )
            if not isinstance(got, Found | Absent):
                await self._computed(got, asked)
        except NotReached as error:
            log.info("%s stays stale: %s", named_key(asked.key), error)
        except Exception:
            log.exception("%s stays stale: its function failed", named_key(asked.key))


# --- the decorator ----------------------------------------------------------------------------------------------------


def decorated(
    function: Callable[..., Any],
    askers: Askers,
    *,
    ttl_ms: int,
    stale_ms: int = 0,
    local_ms: int = LOCAL_MS,
    within_ms: int = WITHIN_MS,
    name: str = "",
    key: Callable[..., str | bytes] | None = None,
    serialized_by: str = "json",
    returns: Any = None,
) -> Callable[..., Any]:
    """The function behind the cache. `primacy.cached` has the words for each argument."""
    check_ms("cached: ttl_ms", ttl_ms, TTL_MS_LEAST, TTL_MS_MOST)
    check_ms("cached: stale_ms", stale_ms, 0, TTL_MS_MOST)
    check_ms("cached: local_ms", local_ms, 0, WITHIN_MS_MAX)
    check_ms("cached: within_ms", within_ms, 0, WITHIN_MS_MAX)
    called = name or function_name(function)
    keys = keys_of(function, called) if key is None else _own_keys(key, called)
    chosen = serializer(serialized_by, _result_type(function) if returns is None else returns)
    options = Options(ttl_ms, stale_ms, local_ms, within_ms)
    if inspect.iscoroutinefunction(function):
        inner = _Coroutines(function, keys, chosen, options, askers)

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            return await inner.call(args, kwargs)

        async def invalidate(*args: Any, **kwargs: Any) -> Done:
            inner.copies.drop(keys(args, kwargs), prefix=False)
            return await askers.for_loop().invalidate(keys(args, kwargs))

        return _with_faces(wrapped, inner, invalidate)
    plain = _Threads(function, keys, chosen, options, askers)

    @functools.wraps(function)
    def called_here(*args: Any, **kwargs: Any) -> Any:
        return plain.call(args, kwargs)

    def invalidated(*args: Any, **kwargs: Any) -> Done:
        plain.copies.drop(keys(args, kwargs), prefix=False)
        asker, runner = askers.for_threads()
        return runner.wait(asker.invalidate(keys(args, kwargs)))

    return _with_faces(called_here, plain, invalidated)


def _with_faces(wrapped: Any, inner: _Function, invalidate: Callable[..., Any]) -> Callable[..., Any]:
    wrapped.cache_info = inner.info
    wrapped.cache_key = lambda *args, **kwargs: inner.keys(args, kwargs)
    wrapped.invalidate = invalidate
    return wrapped  # type: ignore[no-any-return]


def _own_keys(key: Callable[..., str | bytes], name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], bytes]:
    def made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        said = key(*args, **kwargs)
        if not isinstance(said, str | bytes) or not said:
            raise UsageError(f"{name}: cached(key=...) returned {said!r}; it must be text or bytes, not empty")
        return name.encode() + b":" + as_key(said)

    return made


def _result_type(function: Callable[..., Any]) -> Any:
    """What the function is annotated to return; anything where it is not, or where the annotation cannot be read."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return Any
    found = hints.get("return", Any)
    return Any if found is type(None) or isinstance(found, TypeVar) else found
