"""A peer inside of a process: what its driver does at the edges, with machines and storages that are made for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from random import Random
from typing import Any

import pytest

from primacy.cache import effects as fx
from primacy.cache.access import Absent, Found, Why
from primacy.cache.client import Client
from primacy.cache.inputs import Asked, Input
from primacy.cache.model import Ballot, CacheSettings, PeerAddress, SourceSettings
from primacy.cache.peer import Peer
from primacy.cache.storage import Evicted, MemoryStorage, Write
from primacy.errors import InUse, StorageFull, UsageError
from tests.support.cache_smallest_machine import AloneMachine
from tests.support.ports import free_ports
from tests.support.waiting import WITHIN_THE_TEST_S, wait_until_async

CANARY_HEARTBEAT_MS = 200
"""What is said about how soon is asked of a machine that lets a process run in time."""


def addresses(count: int) -> list[str]:
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 90))


until = partial(wait_until_async, within_s=WITHIN_THE_TEST_S)


async def fetch(key: bytes) -> bytes:
    return b"value of " + key


class Slow:
    """A source that takes as long as it is left."""

    def __init__(self) -> None:
        self.running = 0

    async def __call__(self, key: bytes) -> bytes:
        self.running += 1
        try:
            await asyncio.sleep(60)
        finally:
            self.running -= 1
        return b""


def test_read_from_inside_and_why_there_is_nothing() -> None:
    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api, source=fetch, machine=AloneMachine) as peer:
            found = await peer.read(b"k")
            assert isinstance(found, Found)
            assert (found.value, found.waited, found.fetcher) == (b"value of k", True, url)
            again = await peer.read(b"k")
            assert isinstance(again, Found)
            assert not again.waited
            missing = await peer.read(b"other", fetch=False)
            assert isinstance(missing, Absent)
            assert missing.why is Why.MISS
            with pytest.raises(UsageError, match="bytes"):
                await peer.read("text")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="key_bytes_max"):
                await peer.read(b"k" * 9_000)
        with pytest.raises(UsageError, match="does not run"):
            await peer.read(b"x")

    run(work)


def test_read_gives_up_in_time_and_withdraws() -> None:
    async def work() -> None:
        url, api = addresses(2)
        source = Slow()
        async with Peer(url, api, source=source, machine=AloneMachine) as peer:
            late = await peer.read(b"k", within_ms=150)
            assert isinstance(late, Absent)
            assert late.why is Why.LATE
            assert peer.counts["waiting"] == 0
            assert len(peer.machine.waiting) == 0  # type: ignore[attr-defined]
            assert source.running == 1
        assert source.running == 0, "stop ends calls, and returns when they are over"

    run(work)


class Broken(AloneMachine):
    """Has a defect that shows with one key."""

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[fx.Effect]:
        assert not (isinstance(given, Asked) and given.key == b"broken"), "a defect"
        return super().step(now_ms, wall_ms, given)


def test_a_defect_ends_the_peer_and_its_calls(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of a machine that raised can be trusted, its holds least of all."""

    async def work() -> None:
        url, api = addresses(2)
        source = Slow()
        peer = Peer(url, api, source=source, machine=Broken)
        await peer.start()
        reads = [asyncio.create_task(peer.read(key, within_ms=200_000)) for key in (b"k", b"broken")]
        with caplog.at_level(logging.CRITICAL), pytest.raises(AssertionError, match="a defect"):
            await asyncio.wait_for(peer.wait_stopped(), 60)
        assert source.running == 0
        for read in reads:
            assert isinstance(await asyncio.wait_for(read, 60), Absent)
        assert "it has a defect" in caplog.text

    run(work)


def test_an_address_that_is_taken_is_refused_and_nothing_stays_open() -> None:
    async def work() -> None:
        url, api, other = addresses(3)
        async with Peer(url, api, source=fetch, machine=AloneMachine):
            with pytest.raises(InUse, match="is taken"):
                await Peer(other, api, source=fetch, machine=AloneMachine).start()
            async with Peer(other, other.replace("127.0.0.1", "127.0.0.2"), source=fetch, machine=AloneMachine):
                pass

    run(work)


@pytest.mark.parametrize(
    ("peers", "text"),
    [
        ([("tcp://127.0.0.1:1", "tcp://127.0.0.1:3")], "different apis"),
        ([("tcp://127.0.0.1:2", "tcp://127.0.0.1:4"), ("tcp://127.0.0.1:2", "tcp://127.0.0.1:5")], "two apis"),
        ([("127.0.0.1:2", "tcp://127.0.0.1:4")], "no address"),
        ([("tcp://127.0.0.1:2",)], "no pair"),
    ],
)
def test_lists_that_cannot_be_are_refused(peers: list[Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Peer("tcp://127.0.0.1:0", "tcp://127.0.0.1:3", peers)


class FullDisk(MemoryStorage):
    """Durable, as it says, and full from some moment on."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.takes_s = 0.0

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        time.sleep(self.takes_s)
        if self.full:
            raise StorageFull("no room is left on the device")
        return super().apply(batch)


def test_a_full_disk_is_gone_on_without() -> None:
    async def work() -> None:
        url, api = addresses(2)
        disk = FullDisk()
        async with Peer(url, api, source=fetch, storage=disk, machine=AloneMachine) as peer:
            await peer.read(b"a")
            disk.full = True
            await peer.read(b"b")
            await until(lambda: peer.counts["write_failures"])
            peer.serving.drop(b"b")
            await asyncio.sleep(0.01)  # what was fetched in the millisecond of the question was waited for
            found = await peer.read(b"b")
            assert isinstance(found, Found)
            assert not found.waited, "from memory"
            disk.full = False
            await peer.read(b"c")
            await until(lambda: disk.read(b"c") is not None)

    run(work)


@pytest.mark.parametrize("mode", ["own", "mixed"])
def test_an_invalidation_that_the_disk_refuses_is_done_once_there_is_room(mode: str) -> None:
    """C11: the own disk is told until it has the floor, like every other peer."""

    async def work() -> None:
        url, api = addresses(2)
        disk = FullDisk()
        async with Peer(url, api, source=fetch, storage=disk, mode=mode) as peer:
            await peer.read(b"a", within_ms=30_000)
            await until(lambda: disk.read(b"a") is not None)
            disk.full = True
            task = asyncio.ensure_future(peer.invalidate(b"a", within_ms=60_000))
            await until(lambda: peer.counts["write_failures"] > 2)
            disk.full = False
            assert (await task).ok
            assert [floor.key for floor in disk.load().floors] == [b"a"]

    run(work)


def test_a_slow_disk_delays_nobody_and_its_values_can_be_read_meanwhile() -> None:
    async def work() -> None:
        url, api = addresses(2)
        disk = FullDisk()
        disk.takes_s = 0.3
        async with Peer(url, api, source=fetch, storage=disk, machine=AloneMachine) as peer, Client(api) as cache:
            await cache.get("warm")
            began_s = time.monotonic()
            for each in range(50):
                assert (await cache.get(f"k{each}")).value == b"value of k%d" % each
                peer.serving.drop(b"k%d" % each)
                assert (await cache.get(f"k{each}")).value == b"value of k%d" % each
            assert time.monotonic() - began_s < 50 * disk.takes_s / 3, (
                "waiting for each write takes three times as long"
            )
            assert peer.counts["batches"] < 20, "what waits becomes one batch"
        assert disk.read(b"k49") is not None, "stop waits for the last batch"

    run(work)


def test_values_at_hand_are_given_only_while_the_machine_vouches_for_them() -> None:
    """C12: out of touch, or expired, the machine decides again."""

    async def work() -> None:
        url, api = addresses(2)
        settings = CacheSettings(sources=(SourceSettings(ttl_ms=2_000),))
        async with Peer(url, api, source=fetch, settings=settings, machine=Counting) as peer, Client(api) as cache:
            machine = peer.machine
            assert isinstance(machine, Counting)
            await cache.get("k")
            asked = machine.asked
            for _ in range(5):
                await cache.get("k")
            assert machine.asked == asked, "no step for a value at hand"
            machine.fresh_until_ms = 0
            await cache.get("k")
            assert machine.asked == asked + 1
            machine.fresh_until_ms = 1 << 60
            await asyncio.sleep(2.05)
            found = await cache.get("k")
            assert machine.asked == asked + 2, "expired"
            assert found.stale

    run(work)


class Counting(AloneMachine):
    """Counts how often it is asked."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        super().__init__(me, peers, settings, chance)
        self.asked = 0

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[fx.Effect]:
        self.asked += isinstance(given, Asked)
        return super().step(now_ms, wall_ms, given)


def test_a_value_that_is_gone_is_asked_for_again() -> None:
    async def work() -> None:
        url, api = addresses(2)
        storage = MemoryStorage()
        async with Peer(url, api, source=fetch, storage=storage, machine=AloneMachine) as peer:
            await peer.read(b"k")
            peer.serving.drop(b"k")
            storage.apply([fx.Forget(b"k")])
            found = await peer.read(b"k")
            assert isinstance(found, Found)
            assert found.waited, "it was fetched anew"
            assert peer.driver.value(b"k", peer.machine.metas[b"k"]._replace(epoch=Ballot(1, "x", 1))) is None  # type: ignore[attr-defined]

    run(work)


@pytest.mark.later
@pytest.mark.parametrize("mode", ["own", "mixed"])
def test_a_peer_that_stops_in_order_leaves_its_retrieval_to_another(mode: str) -> None:
    """Clients that wait at other peers are not told that the source failed: one of those fetches at once."""
    began: list[tuple[str, float]] = []

    def source_of(name: str, takes_s: float) -> Callable[[bytes], Coroutine[Any, Any, bytes]]:
        async def source(key: bytes) -> bytes:
            began.append((name, time.monotonic()))
            await asyncio.sleep(takes_s)
            return b"value of " + key

        return source

    async def work() -> None:
        ports = addresses(6)
        where = [(ports[2 * each], ports[2 * each + 1]) for each in range(3)]
        peers = [Peer(url, api, where, source_of(url, 0.2), mode=mode) for url, api in where]
        slow = Peer(*where[0], where, source_of(where[0][0], 60), mode=mode)
        peers[0] = slow
        for peer in peers:
            await peer.start()
        await until(lambda: all(peer.machine.in_touch(peer._clock.now_ms()) for peer in peers))
        await asyncio.sleep(2.1 if mode == "mixed" else 0.7)  # nobody votes right after a start
        asks = asyncio.ensure_future(slow.read(b"k", within_ms=15_000))
        await until(lambda: began)
        async with Client([where[1][1]], timeout_ms=15_000) as client:
            waits = asyncio.ensure_future(client.get(b"k"))
            await asyncio.sleep(0.3)
            stopped_s = time.monotonic()
            await slow.stop()
            told = await asks
            assert isinstance(told, Absent)
            assert told.why is Why.ELSEWHERE
            found = await waits
            assert found.value == b"value of k"
        assert began[0][0] == where[0][0]
        assert began[1][0] != where[0][0]
        assert began[1][1] - stopped_s < (2.0 if mode == "own" else 5.0)
        for peer in peers[1:]:
            await peer.stop()

    run(work)


def test_a_peer_alone_that_stops_fetches_nothing_anew() -> None:
    async def work() -> None:
        url, api = addresses(2)
        source = Slow()
        peer = Peer(url, api, source=source)
        await peer.start()
        asks = asyncio.ensure_future(peer.read(b"k", within_ms=15_000))
        await until(lambda: source.running)
        await peer.stop()
        assert source.running == 0
        assert isinstance(await asks, Absent)

    run(work)
