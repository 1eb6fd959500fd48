"""The client of the cache against one real peer, and against scripted ones: attempts, health, discovery, deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from primacy.cache.access import Found
from primacy.cache.client import Client
from primacy.cache.client_copies import Copies
from primacy.cache.client_servers import PUTS_MAX, Server
from primacy.cache.peer import Peer
from primacy.cache.wire_client import Remark, remark_frame
from primacy.errors import NotReached, SourceFailed, Unsure, UsageError
from tests.support.cache_smallest_machine import AloneMachine
from tests.support.ports import free_ports
from tests.support.waiting import WITHIN_THE_TEST_S, wait_until_async

pytestmark = pytest.mark.moments(order=100)

CANARY_HEARTBEAT_MS = 100
"""Attempts, limits and pauses are in hundreds of milliseconds: asked of a machine that lets a process run in time."""
LIMIT_S = 60.0
"""For whatever must come: only a hang reaches it."""


def addresses(count: int) -> list[str]:
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


until = partial(wait_until_async, within_s=WITHIN_THE_TEST_S)


class Source:
    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s, self.calls = takes_s, 0

    async def __call__(self, key: bytes) -> bytes:
        self.calls += 1
        which = self.calls
        await asyncio.sleep(self.takes_s)
        if key.startswith(b"bad"):
            raise ValueError("nothing of that name")
        return b"value of " + key + b" %d" % which


class Scripted:
    """A server that answers as it is told: `act(request frames) -> answers`, without the id."""

    def __init__(self, api: str, act: Callable[[list[bytes]], list[list[bytes]]]) -> None:
        self.api, self.act = api, act
        self.requests: list[tuple[float, list[bytes]]] = []
        self._began_s = time.monotonic()

    async def __aenter__(self) -> Scripted:
        self._context = zmq.asyncio.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.bind(self.api)
        self._task = asyncio.create_task(self._serve())
        return self

    async def _serve(self) -> None:
        while True:
            identity, *request = await self._router.recv_multipart()
            self.requests.append(((time.monotonic() - self._began_s) * 1_000, request))
            for answer in self.act(request):
                await self._router.send_multipart([identity, request[0], *answer])

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._router.close()
        self._context.term()

    def gets(self) -> list[float]:
        return [at_ms for at_ms, request in self.requests if request[1] == b"?"]


def silent(request: list[bytes]) -> list[list[bytes]]:
    return []


def value(request: list[bytes]) -> list[list[bytes]]:
    return [[b"=", b"v", (int(time.time() * 1_000) + 60_000).to_bytes(6, "little")]]


def see_other(request: list[bytes]) -> list[list[bytes]]:
    return [[b"#"]] if request[1] == b"?" else []


def test_get_many_invalidate_refresh_and_put_by_a_real_peer() -> None:
    async def work() -> None:
        url, api = addresses(2)
        source = Source(0.05)
        async with Peer(url, api, source=source, machine=AloneMachine) as peer, Client(api) as cache:
            first = await cache.get("a")
            assert first.value == b"value of a 1"
            assert first.fetcher == url
            assert not first.stale
            assert first.waited
            again = await cache.get(b"a", fresh=True)
            assert (again.value, source.calls) == (b"value of a 1", 1)
            assert again.age_ms >= 50
            many = await cache.get_many(["a", "b", b"c"])
            assert [found.value for found in many.values()] == [b"value of a 1", b"value of b 2", b"value of c 3"]
            assert (await cache.get("d", fetch=False)) is None
            assert (await cache.invalidate("a")).ok
            assert (await cache.get("a")).value == b"value of a 4"
            assert (await cache.put("e", b"brought", 1_000)).ok
            assert (await cache.get("e")).value == b"brought"
            with pytest.raises(SourceFailed, match="nothing of that name"):
                await cache.get("bad")
            assert peer.counts["requests_dropped"] == 0

    run(work)


def test_a_client_finds_what_it_has_put_although_the_other_peers_have_not_heard_of_it() -> None:
    """Each peer is alone here, so that the others never hear of it. An invalidation ends that."""

    async def work() -> None:
        where = [addresses(2) for _ in range(3)]
        async with contextlib.AsyncExitStack() as peers:
            for url, api in where:
                await peers.enter_async_context(Peer(url, api, machine=AloneMachine))
            async with Client([api for _, api in where], discovery_ms=0) as cache:
                for number in range(20):
                    assert (await cache.put(f"k{number}", b"v", 60_000)).ok
                    found = await cache.get(f"k{number}", fetch=False)
                    assert found is not None, number
                    assert found.value == b"v"
                other = [await cache.get("unknown", fetch=False) for _ in range(6)]
                assert other == [None] * 6
                assert cache._servers._puts
                await cache.invalidate("k0")
                assert not cache._servers._puts

    run(work)


def test_the_peers_that_took_puts_are_remembered_for_so_many_keys_only() -> None:
    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api, machine=AloneMachine), Client([api], discovery_ms=0) as cache:
            (server,) = cache._servers.all
            for number in range(PUTS_MAX + 5):
                cache._servers.has_put(b"%d" % number, server, 0.0)
            assert len(cache._servers._puts) == PUTS_MAX
            assert b"4" not in cache._servers._puts

    run(work)


def test_clients_at_once_share_one_call() -> None:
    async def work() -> None:
        url, api = addresses(2)
        source = Source(0.3)
        async with Peer(url, api, source=source, machine=AloneMachine), Client(api) as cache:
            found = await asyncio.gather(*(cache.get("k") for _ in range(50)))
            assert {one.value for one in found} == {b"value of k 1"}
            assert source.calls == 1

    run(work)


def test_two_silent_then_signs_then_see_other_as_the_document_says() -> None:
    """500 ms to the first answer, 2,000 after a sign."""

    async def work() -> None:
        apis = addresses(2)
        answers = iter([[[]], [[b"#"]], value([])])  # a sign; SEEOTHER; the value

        async with (
            Scripted(apis[0], silent) as first,
            Scripted(apis[1], lambda request: next(answers) if request[1] == b"?" else []) as second,
            Client(apis, timeout_ms=8_000) as cache,
        ):
            await asyncio.sleep(0.2)
            began_s = time.monotonic()
            found = await cache.get("k")
            took_ms = (time.monotonic() - began_s) * 1_000
            assert found.value == b"v"
            start = min(first.gets() + second.gets())
            times = sorted(round(at - start) for at in first.gets() + second.gets())
            assert abs(times[1] - 500) < 150, times
            assert abs(times[2] - 2_500) < 250, times
            assert took_ms < 3_500, times

    run(work)


def test_a_late_answer_of_the_same_call_counts() -> None:
    async def work() -> None:
        apis = addresses(2)
        held: list[asyncio.Task[None]] = []

        async with Scripted(apis[0], silent) as slow, Scripted(apis[1], silent), Client(apis) as cache:

            async def later(request: list[bytes]) -> None:
                await asyncio.sleep(0.8)
                await slow._router.send_multipart([slow.identity, request[0], *value(request)[0]])  # type: ignore[attr-defined]

            def act(request: list[bytes]) -> list[list[bytes]]:
                if request[1] == b"?" and not held:
                    held.append(asyncio.create_task(later(request)))
                return []

            slow.act = act
            slow.identity = b""  # type: ignore[attr-defined]

            async def serve() -> None:
                while True:
                    slow.identity, *request = await slow._router.recv_multipart()  # type: ignore[attr-defined]
                    slow.act(request)

            slow._task.cancel()
            slow._task = asyncio.create_task(serve())
            await asyncio.sleep(0.2)
            cache._servers._next = 0
            began_s = time.monotonic()
            assert (await cache.get("k")).value == b"v"
            assert 0.7 < time.monotonic() - began_s < 1.0

    run(work)


def test_a_silent_server_is_asked_nothing_until_it_answers() -> None:
    async def work() -> None:
        apis = addresses(3)
        async with (
            Scripted(apis[0], silent) as dead,
            Scripted(apis[1], value),
            Scripted(apis[2], value),
            Client(apis) as cache,
        ):
            await asyncio.sleep(0.2)
            await asyncio.gather(*(cache.get(f"k{each}") for each in range(6)))
            assert cache.silent == (apis[0],)
            before = len(dead.gets())
            began_s = time.monotonic()
            for each in range(100):
                await cache.get(f"l{each}")
            assert time.monotonic() - began_s < 2
            assert len(dead.gets()) == before, "no call was spent on it"
            dead.act = lambda request: value(request) if request[1] == b"?" else [[b"*", msgspec.msgpack.encode(apis)]]
            await until(lambda: cache.silent == ())  # it answered a small question
            for each in range(9):
                await cache.get(f"m{each}")
            assert len(dead.gets()) > before

    run(work)


def answering(api: str, ended: threading.Event) -> threading.Thread:
    """A server in a thread, which goes on while the loop does not."""

    def serve() -> None:
        context = zmq.Context()
        router = context.socket(zmq.ROUTER)
        router.linger = 0
        router.bind(api)
        while not ended.is_set():
            if router.poll(20):
                identity, *request = router.recv_multipart()
                router.send_multipart([identity, request[0], *value(request)[0]])
        router.close()
        context.term()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_client_that_was_late_itself_blames_nobody() -> None:
    """A loop that did not run for a second has many answers to read. No peer is asked twice for that."""

    async def work() -> None:
        [api] = addresses(1)
        ended = threading.Event()
        thread = answering(api, ended)
        try:
            async with Client(api) as cache:
                await cache.get("warm")
                gets = [asyncio.create_task(cache.get(f"k{each}")) for each in range(900)]
                await asyncio.sleep(0)  # they are sent
                time.sleep(1.0)
                await asyncio.gather(*gets)
                assert cache.counts["attempts"] == 901
                assert cache.silent == ()
        finally:
            ended.set()
            thread.join()

    run(work)


def test_a_server_that_is_not_there_costs_nothing() -> None:
    async def work() -> None:
        apis = addresses(3)
        async with Scripted(apis[1], value), Client(apis) as cache:
            await asyncio.sleep(0.2)
            began_s = time.monotonic()
            for each in range(50):
                await cache.get(f"k{each}")
            assert time.monotonic() - began_s < 1.0

    run(work)


def test_errors_show_keys_as_people_write_them() -> None:
    """No b'', whatever was asked; what is no text that can be printed is escaped, and a long key is cut."""

    async def work() -> None:
        (api,) = addresses(1)
        async with Client(api, timeout_ms=20) as cache:

            async def said(call: Callable[..., Coroutine[Any, Any, Any]], key: str | bytes, **more: Any) -> str:
                with pytest.raises((NotReached, Unsure)) as caught:
                    await call(key, **more)
                text = str(caught.value)
                assert "b'" not in text
                return text.partition(": no answer within 20 ms")[0]

            assert await said(cache.get, "x") == "x"
            assert await said(cache.get, b"x") == "x"
            assert await said(cache.get, "preis für Öl") == "preis für Öl"
            assert await said(cache.get, "a'b\"c") == "a'b\"c"
            assert await said(cache.get, b"a\x00\xff\n") == r"a\x00\xff\n"
            assert await said(cache.get, "é" * 1_000) == "é" * 80 + "..."
            assert await said(cache.get, b"\xff" * 1_000) == (r"\xff" * 20) + "..."
            assert await said(cache.obtain, "x", within_ms=20) == "x"
            assert await said(cache.refresh, "x") == "the refresh of x"
            assert await said(cache.put, "x", value=b"1") == "the put of x"
            assert await said(cache.invalidate, "x") == "the invalidation of x"
            assert await said(cache.invalidate, "x", prefix=True) == "the invalidation of every key that begins with x"
            assert await said(cache.invalidate, "", prefix=True) == "the invalidation of every key"

    run(work)


def test_W_L2_refusals_without_end_do_not_outlive_the_deadline() -> None:
    async def work() -> None:
        apis = addresses(2)
        async with Scripted(apis[0], see_other) as one, Scripted(apis[1], see_other) as two, Client(apis) as cache:
            began_s = time.monotonic()
            with pytest.raises(NotReached, match="no answer within 1,000 ms"):
                await cache.get("k", timeout_ms=1_000)
            assert 0.9 < time.monotonic() - began_s < 1.4
            assert len(one.gets()) + len(two.gets()) < 30, "there are pauses between the rounds"

    run(work)


def test_W_L2_signs_without_end_do_not_outlive_the_deadline() -> None:
    async def work() -> None:
        [api] = addresses(1)
        async with Scripted(api, lambda request: [[]]) as server, Client(api) as cache:
            began_s = time.monotonic()
            with pytest.raises(NotReached, match="went on waiting"):
                await cache.get("k", timeout_ms=800)
            assert 0.7 < time.monotonic() - began_s < 1.2
            assert len(server.gets()) == 1

    run(work)


def test_W_L2_a_source_error_reaches_the_client_at_once() -> None:
    async def work() -> None:
        [api] = addresses(1)
        frame = remark_frame(Remark(error="the source said no"))
        async with Scripted(api, lambda request: [[b"#", frame]]), Client(api) as cache:
            began_s = time.monotonic()
            with pytest.raises(SourceFailed, match="the source said no"):
                await cache.get("k")
            assert time.monotonic() - began_s < 0.5

    run(work)


def test_a_change_that_nobody_answers_is_unsure() -> None:
    async def work() -> None:
        [api] = addresses(1)
        async with Scripted(api, silent), Client(api) as cache:
            with pytest.raises(Unsure):
                await cache.invalidate("k", timeout_ms=300)

    run(work)


def test_discovery_replaces_the_list() -> None:
    async def work() -> None:
        apis = addresses(3)
        listed = msgspec.msgpack.encode(apis[1:])

        def act(request: list[bytes]) -> list[list[bytes]]:
            return [[b"*", listed]] if request[1] == b"*" else value(request)

        async with (
            Scripted(apis[0], act),
            Scripted(apis[1], act),
            Scripted(apis[2], act) as third,
            Client(apis[0], discovery_ms=-1) as cache,
        ):
            await until(lambda: cache.apis == tuple(apis[1:]))
            for each in range(4):
                assert (await cache.get(f"k{each}")).value == b"v"
            assert third.gets()

    run(work)


def test_W_L8_a_client_that_is_closed_during_discovery_does_not_come_back() -> None:
    async def work() -> None:
        [api] = addresses(1)
        async with Scripted(api, silent) as server:
            cache = Client(api, discovery_ms=1_000)
            cache.open()
            await until(lambda: server.requests)  # a discovery is under way
            await cache.close()
            before = len(server.requests)
            await asyncio.sleep(1.5)
            assert len(server.requests) == before
            with pytest.raises(UsageError):
                await cache.get("k")

    run(work)


def test_a_full_queue_and_a_peer_that_dies_end_no_process() -> None:
    """In a process of its own, because libzmq would end it."""
    [api] = addresses(1)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cache_client_flooded", api],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-500:]


def test_closing_ends_calls_that_wait() -> None:
    async def work() -> None:
        [api] = addresses(1)
        async with Scripted(api, silent):
            cache = Client(api)
            cache.open()
            waits = asyncio.create_task(cache.get("k"))
            await asyncio.sleep(0.1)
            await cache.close()
            with pytest.raises(NotReached, match="closed"):
                await waits

    run(work)


def test_copies_are_bounded_in_time_and_dropped_by_a_push() -> None:
    async def work() -> None:
        url, api = addresses(2)
        source = Source()
        async with (
            Peer(url, api, source=source, machine=AloneMachine) as peer,
            Client(api, local_ms=1_000) as cache,
            Client(api) as other,
        ):
            began_s = time.monotonic()
            await cache.get("k")
            assert (await cache.get("k")).value == b"value of k 1"
            assert cache._copies.hits == 1
            assert (await other.invalidate("k")).ok
            await until(lambda: not len(cache._copies))
            assert time.monotonic() - began_s < 1.0, "not because its time is over"
            assert (await cache.get("k")).value == b"value of k 2", "the peer told its clients"
            assert peer.counts["hits"] >= 1
            await asyncio.sleep(1.05)
            await cache.get("k")
            assert cache._copies.hits == 1, "a copy lives for local_ms"

    run(work)


def test_copies_that_were_asked_for_before_a_push_are_not_kept() -> None:
    copies = Copies(1_000)
    found = Found(b"v", 10**15, 0, "", False)
    copies.drop(b"k", 50)
    copies.keep(b"k", found, 50, 60)
    assert copies.get(b"k", 61, 0) is None
    copies.keep(b"k", found, 62, 63)
    assert copies.get(b"k", 100, 0) == found._replace(age_ms=37)
    assert copies.get(b"k", 1_063, 0) is None
    for each in range(20_000):
        copies.keep(b"%d" % each, found, 5_000, 5_001)
    assert len(copies) == 10_000


def test_a_connection_that_broke_stays_broken_however_often_it_is_made_anew() -> None:
    """What was on its way to the process that is gone must not reach the next one."""
    kinds = (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED)
    made, broke = (kind.to_bytes(2, sys.byteorder) for kind in kinds)
    events = [made, broke, made, broke, made]
    server = Server.__new__(Server)
    server._connected = server.broken = False
    server._event_state = lambda _: zmq.POLLIN if events else 0  # type: ignore[assignment,misc]
    server._read_event = lambda: [events.pop(0)]
    server.look_at_events()
    assert server.broken
    assert not server._connected
