"""A source that has no such entry: nothing failed. Every peer says so, by HTTP (404) and to clients, and the source is
asked again only when `negative_ms` has passed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import aiohttp
import pytest

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache.client import Client
from primacy.cache.document import DocumentMachine
from primacy.cache.http import CacheServer
from primacy.cache.model import CacheSettings, Failure, Mode, SourceSettings
from primacy.cache.peer import Peer
from primacy.errors import NoSuchEntry, SourceFailed
from primacy.node.clock import SystemClock
from primacy.settings.timing_cache import CACHE_PROFILES
from tests.processes.test_cache_peer_inside import run, until
from tests.support.cache_harness import WALL_MS, addresses
from tests.support.ports import free_ports

KEY = "k" * 64
SETTINGS = CacheSettings(sources=(SourceSettings(negative_ms=60_000),))


class Source:
    """Has nothing, or fails, by the key; when it is let."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.let = asyncio.Event()

    async def __call__(self, key: bytes) -> bytes | None:
        self.calls.append(key)
        await self.let.wait()
        if key.startswith(b"bad"):
            raise ValueError("boom")
        return None


async def served(stack: AsyncExitStack, peer: Peer) -> str:
    server = CacheServer(peer, SystemClock(), KEY, "127.0.0.1", 4_096, pytest.fail)
    listening = socket.create_server(("127.0.0.1", 0))
    await server.start(listening)
    stack.push_async_callback(server.close)
    return f"http://127.0.0.1:{listening.getsockname()[1]}/cache/"


def with_peers(count: int, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """`work(source, clients, get)`, `get(which, key)` giving status and text."""

    async def main() -> None:
        source = Source()
        ports = [f"tcp://127.0.0.1:{port}" for port in free_ports(2 * count)]
        where = list(zip(ports[::2], ports[1::2], strict=True))
        async with AsyncExitStack() as stack:
            peers = [
                await stack.enter_async_context(Peer(*one, where, source, settings=SETTINGS, on_overrun="alert"))
                for one in where
            ]
            at = [await served(stack, peer) for peer in peers]
            clients = [await stack.enter_async_context(Client(api, timeout_ms=60_000)) for _, api in where]
            session = await stack.enter_async_context(aiohttp.ClientSession())

            async def get(which: int, key: str) -> tuple[int, str]:
                async with session.get(f"{at[which]}{key}?within_ms=60000") as answer:
                    return answer.status, await answer.text()

            await until(lambda: all(peer.machine.in_touch(peer._clock.now_ms()) for peer in peers))
            await work(source, clients, get)

    run(main)


def test_what_the_source_does_not_have_is_404_and_no_failure() -> None:
    async def work(source: Source, clients: list[Client], get: Any) -> None:
        source.let.set()
        status, text = await get(0, "none")
        assert (status, "the source has no such entry" in text) == (404, True)
        with pytest.raises(NoSuchEntry, match="the source has no such entry"):
            await clients[0].get("none")
        assert source.calls == [b"none"], "negative_ms"
        status, text = await get(0, "bad")
        assert (status, "boom" in text) == (502, True)
        with pytest.raises(SourceFailed, match="boom") as failed:
            await clients[0].get("bad")
        assert not isinstance(failed.value, NoSuchEntry)

    with_peers(1, work)


def test_every_peer_says_that_there_is_no_such_entry() -> None:
    """Those who wait at the peers that follow, and those who come while it is remembered."""

    async def work(source: Source, clients: list[Client], get: Any) -> None:
        waits = [asyncio.ensure_future(get(which, "none")) for which in range(3)]
        asks = [asyncio.ensure_future(client.get("none")) for client in clients]
        await until(lambda: source.calls)
        await asyncio.sleep(0.2)  # all of them wait by now; who does not is one who comes later
        source.let.set()
        for status, text in await asyncio.gather(*waits):
            assert (status, "the source has no such entry" in text) == (404, True)
        for found in await asyncio.gather(*asks, return_exceptions=True):
            assert isinstance(found, NoSuchEntry)

    with_peers(3, work)


def test_mode_mixed_says_so_as_well() -> None:
    settings = CacheSettings(CACHE_PROFILES["ha-cache"], Mode.MIXED, (SourceSettings(negative_ms=5_000),))
    machine = DocumentMachine("b", addresses("b"), settings, Random(1))
    machine.step(0, WALL_MS, told.Started(1, {}, (), None))

    def refusals(now_ms: int, given: told.Input) -> list[does.Effect]:
        return [effect for effect in machine.step(now_ms, WALL_MS, given) if isinstance(effect, does.Refuse)]

    called = machine.step(5_000, WALL_MS, told.Asked(1, b"k"))
    (call,) = (effect for effect in called if isinstance(effect, does.Call))
    ended = told.SourceEnded(b"k", call.ballot, Failure("nothing", missing=True))
    assert refusals(5_100, ended) == [does.Refuse(1, "nothing", miss=True)]
    assert refusals(5_200, told.Asked(2, b"k")) == [does.Refuse(2, "nothing", miss=True)]
