"""`@cached`: who computes, what is kept, and that the cache is never a reason to fail.

The client is a stand-in here; real peers are in test_cache_decorator.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from primacy.cache.access import Absent, Done, Found, Why
from primacy.cache.askers import askers
from primacy.cache.cached import LOCAL_MAX, Asker, Claim, Runner, decorated
from primacy.errors import NotReached, UsageError

LIMIT_S = 20.0


class FakeClaim:
    def __init__(self, cache: FakeCache, key: bytes) -> None:
        self._cache, self._key = cache, key

    async def deliver(self, value: bytes, ttl_ms: int) -> bool:
        if self._cache.void:
            return False
        self._cache.entries[self._key] = (value, int(time.time() * 1_000) + ttl_ms)
        return True

    async def give_up(self, reason: str) -> None:
        self._cache.given_up.append(reason)


class FakeCache:
    """Gives a claim for what is not there. Both an `Asker` and the `Askers` that has it."""

    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[bytes, int]] = {}
        self.asked: list[bytes] = []
        self.given_up: list[str] = []
        self.answers: list[Found | Absent | Exception] = []
        self.void = False
        self.dropped: list[Callable[[bytes, bool], None]] = []
        self.before_answer: Callable[[], None] | None = None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def obtain(self, key: bytes, *, after_ms: int, within_ms: int) -> Found | Absent | Claim:
        assert within_ms >= 0
        self.asked.append(key)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        value, expire_ms = self.entries.get(key, (b"", 0))
        if self.before_answer is not None:
            self.before_answer()
        if expire_ms <= after_ms:
            return FakeClaim(self, key)
        return Found(value, expire_ms, 0, "tcp://a", stale=expire_ms <= time.time() * 1_000)

    async def invalidate(self, key: bytes, *, prefix: bool = False, within_ms: int = 0) -> Done:
        self.entries.pop(key, None)
        self.drop(key, prefix)
        return Done(True)

    def drop(self, key: bytes, prefix: bool = False) -> None:
        for call in self.dropped:
            call(key, prefix)

    def on_dropped(self, call: Callable[[bytes, bool], None]) -> None:
        self.dropped.append(call)

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT_S)

    def for_threads(self) -> tuple[Asker, Runner]:
        return self, self

    def for_loop(self) -> Asker:
        return self


@pytest.fixture
def cache() -> Iterator[FakeCache]:
    made = FakeCache()
    yield made
    made.close()


class Counted:
    """A function of one argument that counts its calls, plain or as a coroutine."""

    def __init__(self, cache: FakeCache, is_async: bool, result: Any = None, **options: Any) -> None:
        self.calls: list[Any] = []
        self.result = result
        self.fails: Exception | None = None

        def plain(a: Any, b: int = 0) -> Any:
            self.calls.append(a)
            if self.fails is not None:
                raise self.fails
            return self.result if self.result is not None else [a, b]

        async def coroutine(a: Any, b: int = 0) -> Any:
            return plain(a, b)

        self.is_async = is_async
        said: dict[str, Any] = {"ttl_ms": 60_000, "name": "f", "local_ms": 0} | options
        self.face: Any = decorated(coroutine if is_async else plain, cache, **said)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_async:
            return self.face(*args, **kwargs)

        async def run() -> Any:
            result = await self.face(*args, **kwargs)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                await task  # refreshes behind it
            return result

        return asyncio.run(run())


both = pytest.mark.parametrize("is_async", [False, True])


@both
def test_a_result_is_computed_once_and_then_given(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async)
    assert [f(1), f(1), f(a=1)] == [[1, 0]] * 3
    assert f.calls == [1]
    assert f.face.cache_info()._asdict() | {"computed": 1, "hits": 2} == f.face.cache_info()._asdict()
    assert f.face.cache_key(1) == b"f(1,0)"


@both
def test_without_a_peer_it_is_computed_here_and_counted(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async)
    cache.answers = [NotReached("no peer answers")]
    assert f(1) == [1, 0]
    cache.answers = [Absent(Why.LATE, "late")]
    assert f(1) == [1, 0]
    assert f.face.cache_info().local == 2
    assert cache.entries == {}


@both
def test_after_the_failure_of_another_it_asks_again(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async)
    cache.answers = [Absent(Why.SOURCE, "ValueError"), Absent(Why.SOURCE, "ValueError")]
    assert f(1) == [1, 0]
    assert f.face.cache_info().computed == 1
    assert len(cache.asked) == 3


@both
def test_a_key_that_is_refused_again_and_again_is_computed_here(
    cache: FakeCache, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primacy.cache.cached.AGAIN_MS", 1)
    f = Counted(cache, is_async)
    cache.answers = [Absent(Why.SOURCE, "the key is too long")] * 100
    assert f(1) == [1, 0]
    assert len(cache.asked) == 10
    assert f.face.cache_info().local == 1


@both
def test_a_failure_is_the_callers_own_and_ends_the_claim(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async)
    f.fails = ValueError("no such currency")
    with pytest.raises(ValueError, match="no such currency"):
        f(1)
    assert cache.given_up == ["ValueError: no such currency"]
    f.fails = None
    assert f(1) == [1, 0]


@both
def test_a_result_that_cannot_be_stored_ends_the_claim(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, result=object())
    with pytest.raises(UsageError, match="serializer='bytes'"):
        f(1)
    assert len(cache.given_up) == 1


@both
def test_a_void_claim_gives_the_result_to_its_caller_alone(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=1_000)
    cache.void = True
    assert f(1) == [1, 0]
    assert f.face.cache_info().lost == 1
    assert f(1) == [1, 0]
    assert len(f.calls) == 2  # no copy of a result that was dropped


@both
def test_stale_is_given_at_once_and_refreshed_behind(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, stale_ms=60_000, local_ms=1_000)
    cache.entries[b"f(1,0)"] = (b'"old"', int(time.time() * 1_000) - 1_000)
    assert f(1) == "old"
    until_s = time.monotonic() + LIMIT_S
    while cache.entries[b"f(1,0)"][0] == b'"old"' and time.monotonic() < until_s:
        time.sleep(0.005)
    assert f(1) == [1, 0]
    assert f.calls == [1]


@both
def test_too_stale_is_computed(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, stale_ms=500)
    cache.entries[b"f(1,0)"] = (b'"old"', int(time.time() * 1_000) - 1_000)
    assert f(1) == [1, 0]


@both
def test_an_entry_of_somebody_else_is_no_result(
    cache: FakeCache, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    f = Counted(cache, is_async)
    cache.entries[b"f(1,0)"] = (b"\xff not json", int(time.time() * 1_000) + 60_000)
    assert f(1) == [1, 0]
    assert f.face.cache_info().local == 1
    assert "entry f(1,0) is no result of this function" in caplog.text


@both
def test_what_stays_stale_is_named_as_it_is_written(
    cache: FakeCache, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    f = Counted(cache, is_async, stale_ms=60_000)
    for why in (NotReached("nobody answers"), None):
        f.fails = ValueError("it fails") if why is None else None
        cache.entries[b"f(1,0)"] = (b'"old"', int(time.time() * 1_000) - 1_000)
        old = Found(b'"old"', cache.entries[b"f(1,0)"][1], 0, "tcp://a", stale=True)
        cache.answers = [old] if why is None else [old, why]
        text = "f(1,0) stays stale: " + (str(why) if why else "its function failed")
        assert f(1) == "old"
        until_s = time.monotonic() + LIMIT_S
        while text not in caplog.messages and time.monotonic() < until_s:
            time.sleep(0.005)
        assert text in caplog.messages


@both
def test_a_copy_in_the_process_is_asked_first_and_belongs_to_nobody(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=60_000)
    f(1).append("changed")
    assert f(1) == [1, 0]
    f(1).append("changed")
    assert f(1) == [1, 0]
    assert len(cache.asked) == 1
    assert f.face.cache_info().local_hits == 3


@both
def test_copies_tell_types_apart(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=60_000)
    assert [f(1), f(True), f(1.0), f("1")] == [[1, 0], [True, 0], [1.0, 0], ["1", 0]]
    assert [type(f(value)[0]) for value in (1, True, 1.0, "1")] == [int, bool, float, str]
    assert len(cache.asked) == 4


@both
def test_an_invalidation_drops_the_copy(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=60_000)
    f(1)
    done = f.face.invalidate(1)
    if is_async:
        done = asyncio.run(done)
    assert done == Done(True)
    f(1)
    assert f.calls == [1, 1]


@both
def test_what_was_asked_for_before_an_invalidation_is_not_kept_after_it(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=60_000)
    f(2)  # so that it listens
    cache.entries[b"f(1,0)"] = (b'"old"', int(time.time() * 1_000) + 60_000)
    cache.before_answer = lambda: cache.drop(b"f(1,0)")
    assert f(1) == "old"
    cache.before_answer = None
    cache.entries[b"f(1,0)"] = (b'"new"', int(time.time() * 1_000) + 60_000)
    assert f(1) == "new"


@both
def test_copies_are_bounded_and_end(cache: FakeCache, is_async: bool) -> None:
    f = Counted(cache, is_async, local_ms=1)
    f(1)
    time.sleep(0.01)
    f(1)
    assert len(cache.asked) == 2
    if not is_async:
        g = Counted(cache, is_async, local_ms=60_000)
        for value in range(LOCAL_MAX + 1):
            g(value)
        before = len(cache.asked)
        g(0)
        assert len(cache.asked) == before + 1


def test_arguments_that_are_no_copies_still_work(cache: FakeCache) -> None:
    f = Counted(cache, False, local_ms=60_000)
    assert f([1, 2]) == [[1, 2], 0]
    assert f([1, 2], b=0) == [[1, 2], 0]
    assert f.calls == [[1, 2]]


def test_a_key_of_ones_own(cache: FakeCache) -> None:
    f = Counted(cache, False, key=lambda a, b=0: f"{a}")
    f(1)
    f(1, 2)
    assert cache.asked == [b"f:1", b"f:1"]
    g = Counted(cache, False, key=lambda a, b=0: "")
    with pytest.raises(UsageError, match="text or bytes"):
        g(1)


@pytest.mark.parametrize(
    "options",
    [{"ttl_ms": 99}, {"ttl_ms": 1.5}, {"ttl_ms": True}, {"stale_ms": -1}, {"local_ms": -1}, {"within_ms": "1"}],
)
def test_wrong_options_are_named(cache: FakeCache, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        Counted(cache, False, **options)


def test_an_annotated_result_comes_back_as_its_type(cache: FakeCache) -> None:
    def pair(a: int) -> tuple[int, int]:
        return (a, a)

    face = decorated(pair, cache, ttl_ms=1_000, name="pair", local_ms=0)
    assert [face(1), face(1)] == [(1, 1), (1, 1)]
    assert face.__name__ == "pair"


def test_addresses_may_be_a_generator() -> None:
    """The check of them uses nothing up."""
    assert askers(each for each in ["tcp://127.0.0.1:6001"]) is askers(["tcp://127.0.0.1:6001"])
