"""`@cached` and claims against real peers: one computes, all get it, and whoever loses a claim loses nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from primacy.cache.access import Absent, Found
from primacy.cache.askers import cached, close
from primacy.cache.cached import decorated
from primacy.cache.claims import SILENT_MS
from primacy.cache.client import Client
from primacy.cache.client_claims import ClientClaim
from primacy.cache.model import CacheSettings
from primacy.cache.peer import Peer
from primacy.cache.threads import CacheClient, ThreadClaim
from primacy.errors import UsageError
from tests.support.cache_served_peers import LIMIT_S, Served, addresses

pytestmark = pytest.mark.moments(order=140)

FRESH = 1 << 52
CANARY_HEARTBEAT_MS = 100
"""How soon, and how often, is asked of a machine that lets processes run."""


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


class Crowd:
    """Peers without a source, in this process, and a client for each."""

    def __init__(self, count: int) -> None:
        self.where = addresses(count)
        self.peers = [Peer(url, api, self.where) for url, api in self.where]
        self.clients: list[Client] = []

    async def __aenter__(self) -> Crowd:
        for peer in self.peers:
            await peer.start()
        self.clients = [Client([api for _, api in self.where], local_ms=1_000) for _ in self.where]
        for client in self.clients:
            client.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            await client.close()
        for peer in self.peers:
            await peer.stop()


async def claimed(client: Client, key: bytes) -> ClientClaim:
    got = await client.obtain(key, after_ms=FRESH, within_ms=10_000)
    assert isinstance(got, ClientClaim), got
    return got


@pytest.mark.parametrize("count", [1, 3])
def test_one_of_all_who_ask_gets_the_claim_and_the_others_its_result(count: int) -> None:
    async def work() -> None:
        async with Crowd(count) as crowd:
            asks = [
                asyncio.ensure_future(client.obtain(b"k", after_ms=FRESH, within_ms=20_000))
                for client in crowd.clients * 5
            ]
            done, _ = await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
            claim = done.pop().result()
            assert isinstance(claim, ClientClaim)
            assert await claim.deliver(b"value", 60_000)
            found = [got for got in await asyncio.gather(*asks) if got is not claim]
            assert {got.value for got in found if isinstance(got, Found)} == {b"value"}
            assert len(found) == 5 * count - 1
            assert sum(peer.driver.calls.given for peer in crowd.peers) == 1  # type: ignore[attr-defined]

    run(work)


def test_a_claim_that_is_let_go_goes_to_the_next_at_once() -> None:
    async def work() -> None:
        async with Crowd(3) as crowd:
            first = await claimed(crowd.clients[0], b"k")
            second = asyncio.ensure_future(claimed(crowd.clients[1], b"k"))
            await asyncio.sleep(0.3)
            assert not second.done()
            began_s = time.monotonic()
            await first.release()
            got = await second
            assert time.monotonic() - began_s < SILENT_MS / 1_000
            assert await got.deliver(b"second", 60_000)

    run(work)


def test_a_failure_is_told_and_the_next_try_comes_after_a_pause() -> None:
    async def work() -> None:
        async with Crowd(1) as crowd:
            first = await claimed(crowd.clients[0], b"k")
            other = asyncio.ensure_future(crowd.clients[0].obtain(b"k", after_ms=FRESH, within_ms=10_000))
            await asyncio.sleep(0.1)
            await first.give_up("ValueError: nothing there")
            told = await other
            assert isinstance(told, Absent)
            assert "nothing there" in told.text
            began_s = time.monotonic()
            while isinstance(again := await crowd.clients[0].obtain(b"k", after_ms=FRESH, within_ms=10_000), Absent):
                await asyncio.sleep(0.02)
            assert isinstance(again, ClientClaim)
            assert time.monotonic() - began_s > 0.3
            assert await again.deliver(b"v", 60_000)

    run(work)


def test_a_result_that_is_too_large_ends_the_claim_as_a_failure() -> None:
    async def work() -> None:
        where = addresses(1)
        settings = CacheSettings(value_bytes_max=1_000)
        async with Peer(*where[0], where, settings=settings), Client([where[0][1]]) as client:
            claim = await claimed(client, b"k")
            other = asyncio.ensure_future(client.obtain(b"k", after_ms=FRESH, within_ms=10_000))
            await asyncio.sleep(0.1)
            began_s = time.monotonic()
            assert not await claim.deliver(b"x" * 2_000, 60_000)
            told = await other
            assert isinstance(told, Absent)
            assert time.monotonic() - began_s < SILENT_MS / 1_000

    run(work)


def test_a_silent_client_loses_its_claim_and_its_late_result_is_dropped() -> None:
    async def work() -> None:
        async with Crowd(3) as crowd:
            first = await claimed(crowd.clients[0], b"k")
            first._alive.cancel()  # as if the process were frozen
            second = await claimed(crowd.clients[1], b"k")
            assert await second.deliver(b"second", 60_000)
            assert not await first.deliver(b"first", 60_000)
            found = await crowd.clients[2].get(b"k")
            assert found.value == b"second"

    run(work)


def test_a_result_outlives_neither_its_ttl_nor_an_invalidation() -> None:
    async def work() -> None:
        async with Crowd(3) as crowd:
            claim = await claimed(crowd.clients[0], b"k")
            done = await crowd.clients[1].invalidate(b"k")
            assert done.ok
            assert not await claim.deliver(b"old", 60_000)
            again = await claimed(crowd.clients[1], b"k")
            assert await again.deliver(b"new", 100)
            await asyncio.sleep(0.2)
            third = await claimed(crowd.clients[2], b"k")
            await third.release()

    run(work)


def test_an_async_function_is_computed_once_by_all_its_callers() -> None:
    async def work() -> None:
        async with Crowd(3) as crowd:
            calls = 0

            async def slow(number: int) -> list[int]:
                nonlocal calls
                calls += 1
                await asyncio.sleep(0.3)
                return [number]

            apis = [api for _, api in crowd.where]
            face = cached(slow, ttl_ms=60_000, apis=apis, name="slow", local_ms=0)
            assert await asyncio.gather(*(face(7) for _ in range(20))) == [[7]] * 20
            assert calls == 1
            assert face.cache_info().computed == 1
            assert (await face.invalidate(7)).ok
            assert await face(7) == [7]
            assert calls == 2
            await close()

    run(work)


PROGRAM = """
import sys, time
from pathlib import Path
import primacy

@primacy.cached(ttl_ms=60_000, name="slow")
def slow(number: int) -> int:
    with open(sys.argv[1], "a") as file:
        file.write("computed\\n")
    time.sleep(float(sys.argv[2]))
    return number * 2

print(slow(21), flush=True)
"""


def test_a_fleet_of_processes_computes_once(tmp_path: Path) -> None:
    with Served() as served:
        environment = {**os.environ, "PRIMACY_CACHE": ",".join(served.apis)}
        argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "calls"), "1.0"]
        fleet = [subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        assert [one.communicate(timeout=LIMIT_S)[0] for one in fleet] == ["42\n"] * 4
        assert (tmp_path / "calls").read_text() == "computed\n"


def test_a_killed_caller_costs_one_more_computation(tmp_path: Path) -> None:
    with Served() as served:
        environment = {**os.environ, "PRIMACY_CACHE": ",".join(served.apis)}
        calls = tmp_path / "calls"
        first = subprocess.Popen([sys.executable, "-c", PROGRAM, str(calls), "60"], env=environment)
        until_s = time.monotonic() + LIMIT_S
        while not (calls.exists() and calls.read_text()):  # it is there before anything is written into it
            assert time.monotonic() < until_s, "it computes nothing"
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.wait()
        argv = [sys.executable, "-c", PROGRAM, str(calls), "0"]
        second = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        assert second.stdout == "42\n"
        assert calls.read_text() == "computed\n" * 2


def test_without_a_peer_the_function_still_works(tmp_path: Path) -> None:
    environment = {**os.environ, "PRIMACY_CACHE": addresses(1)[0][1]}
    argv = [sys.executable, "-c", PROGRAM.replace("60_000,", "60_000, within_ms=300,"), str(tmp_path / "calls"), "0"]
    told = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert told.stdout == "42\n"


def test_no_peers_named_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIMACY_CACHE", raising=False)
    face = cached(ttl_ms=1_000, name="f")(lambda: 1)
    with pytest.raises(UsageError, match="PRIMACY_CACHE"):
        face()


def test_threads_have_the_same_client() -> None:
    with Served() as served:
        with CacheClient(served.apis) as cache:
            assert cache.get("k", fetch=False) is None
            until_s = time.monotonic() + LIMIT_S
            while not cache.put("k", b"v", 60_000).ok:  # the peers have only just started
                assert time.monotonic() < until_s
            found = cache.get("k")
            assert found is not None
            assert found.value == b"v"
            assert cache.get_many(["k"])["k"].value == b"v"
            assert cache.invalidate("k").ok
            claim = cache.claim("lock", within_ms=5_000)
            assert isinstance(claim, ThreadClaim)
            claim.release()
        with pytest.raises(UsageError, match="with"):
            cache.get("k")


def test_the_words_of_the_decorator_are_those_of_its_parts() -> None:
    own, parts = cached.__kwdefaults__ or {}, decorated.__kwdefaults__ or {}
    assert {name: parts[name] for name in parts.keys() & own.keys()} == {
        name: own[name] for name in parts.keys() & own.keys()
    }
    assert {"stale_ms", "within_ms", "local_ms"} <= parts.keys() & own.keys()
