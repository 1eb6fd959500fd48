"""Real cache peers, each a process, on real sockets: one call per key, whatever happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from primacy.cache import messages
from primacy.cache.client import Client
from primacy.cache.document import DocumentMachine
from primacy.cache.peer import Peer
from primacy.cache.wire import peer_frames
from primacy.errors import NotReached
from tests.support.cache_peers import Crowd, Line
from tests.support.ports import free_ports
from tests.support.safety_checks import safe
from tests.support.waiting import WITHIN_THE_TEST_S, wait_until_async

pytestmark = pytest.mark.moments(order=150)

CANARY_HEARTBEAT_MS = 60
"""Half of what lies between two ANNOUNCEs. What fails while the machine was late by half of this is void; calls at the
same time (S1) and calls of a minority are judged always (`safe`)."""
SOURCE_S = 0.6
"""Longer than a hold, so that holds are renewed. `make proof` takes the 2.5 s of the document's tests."""


HOLD_S = 0.6


def run(work: Callable[[], Coroutine[Any, Any, None]], within_s: float = 90) -> None:
    asyncio.run(asyncio.wait_for(work(), within_s))


async def all_get(cache: Client, keys: list[str], clients: int) -> list[float]:
    """How long each took, in seconds."""

    async def one(key: str) -> float:
        began_s = time.monotonic()
        found = await cache.get(key)
        assert found.value.startswith(b"value of " + key.encode() + b" by ")
        return time.monotonic() - began_s

    return await asyncio.gather(*(one(key) for key in keys for _ in range(clients)))


@pytest.mark.parametrize("count", [3, 5])
def test_one_call_per_key_for_fifty_clients(tmp_path: Path, count: int) -> None:
    async def work() -> None:
        async with Crowd(tmp_path, count, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=15_000) as cache:
            await asyncio.sleep(0.8)
            took = await all_get(cache, ["cold"], 50)
            print(f"{count} peers, one key: {min(took):.3f} to {max(took):.3f} s")
            assert len(crowd.begun("cold")) == 1
            keys = [f"k{each}" for each in range(20)]
            took = await all_get(cache, keys, 10)
            print(f"{count} peers, 20 keys: {min(took):.3f} to {max(took):.3f} s")
            assert sorted(line.key for line in crowd.begun() if line.key != "cold") == sorted(keys)

    run(work)


def test_a_sourcing_peer_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """At most two starts, one finish, everybody answered, and the second start soon."""

    async def work() -> None:
        async with Crowd(tmp_path, 3, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=15_000) as cache:
            await asyncio.sleep(0.8)
            waits = asyncio.create_task(all_get(cache, ["k"], 50))
            first = await begun(crowd, "k")
            await asyncio.sleep(0.3)
            killed_s = time.monotonic()
            crowd.kill(crowd.which(first.pid))
            took = await waits
            starts = crowd.begun("k")
            after_s = starts[1].at_s - killed_s
            print(f"second start {after_s:.3f} s after the kill; all answered after {max(took):.3f} s")
            assert len(starts) == 2
            assert [line.what for line in crowd.calls("k")].count("end") == 1
            assert after_s < 1.1

    run(work)


def test_a_sourcing_peer_that_is_frozen_is_replaced_and_its_late_result_loses(tmp_path: Path) -> None:
    async def work() -> None:
        async with Crowd(tmp_path, 3, SOURCE_S) as crowd, Client(crowd.apis, timeout_ms=15_000) as cache:
            await asyncio.sleep(0.8)
            waits = asyncio.create_task(all_get(cache, ["k"], 20))
            first = await begun(crowd, "k")
            await asyncio.sleep(0.2)
            crowd.freeze(crowd.which(first.pid))
            await waits
            starts = crowd.begun("k")
            assert len(starts) == 2
            assert starts[1].at_s - first.at_s > 0.6, "not before the hold of the first was over"
            crowd.thaw(crowd.which(first.pid))
            await asyncio.sleep(1.0)
            for api in crowd.apis:
                async with Client(api) as one:
                    assert (await one.get("k")).value == b"value of k by %d" % starts[1].pid
            assert len(crowd.begun("k")) == 2

    run(work)


async def begun(crowd: Crowd, key: str) -> Line:
    """The first call of the source for this key."""
    found = await wait_until_async(lambda: crowd.begun(key), f"a call of the source for {key}")
    return found[0]


def test_two_of_three_dead_serves_what_it_has_and_heals_soon(tmp_path: Path) -> None:
    async def work() -> None:
        async with Crowd(tmp_path, 3, 0.05) as crowd, Client(crowd.apis) as cache:
            await asyncio.sleep(0.8)
            await cache.get("known")
            await asyncio.sleep(0.2)
            crowd.kill(1)
            crowd.kill(2)
            await asyncio.sleep(2.2)  # the survivor has noticed (V)
            async with Client(crowd.apis[0]) as one:
                began_s = time.monotonic()
                found = await one.get("known")
                assert found.value.startswith(b"value of known")
                assert found.stale, "nobody vouches for it"
                assert time.monotonic() - began_s < 0.2
                attempts = one.counts["attempts"]
                with pytest.raises(NotReached):
                    await one.get("unknown", timeout_ms=500)
                assert one.counts["attempts"] - attempts > 2, "it was sent elsewhere at once, each time"
                safe(not crowd.begun("unknown"), "a minority called the source")
                await crowd.restart(1)
                returned_s = time.monotonic()
                found = await one.get("unknown", timeout_ms=5_000)
                healed_s = time.monotonic() - returned_s
                print(f"healed {healed_s:.3f} s after the return")
                assert healed_s < 1.0 + 0.05 + 0.3

    run(work)


def test_all_asked_at_once_there_is_one_call_and_little_delay(tmp_path: Path) -> None:
    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            crowd = await stack.enter_async_context(Crowd(tmp_path, 3, 0.3))
            clients = [await stack.enter_async_context(Client(api, timeout_ms=15_000)) for api in crowd.apis]
            await asyncio.sleep(0.8)
            extra = []
            for each in range(10):
                took = await asyncio.gather(*(all_get(client, [f"k{each}"], 1) for client in clients))
                extra.append(max(one for row in took for one in row) - 0.3)
            print(f"added: {sorted(round(one * 1_000) for one in extra)} ms")
            assert len(crowd.begun()) == 10
            assert max(extra) < 0.4

    run(work)


async def quick_reads(cache: Client, name: str, for_s: float) -> tuple[float, int]:
    """Hits and new keys for a while; none may fail. The 99th percentile of hits that began after the first 500 ms."""
    began_s = time.monotonic()
    hits: list[float] = []

    async def reads(which: int) -> None:
        for each in range(1_000_000):
            at_s = time.monotonic()
            if at_s - began_s > for_s:
                return
            await cache.get(f"k{each % 20}")
            if at_s - began_s > 0.5:
                hits.append(time.monotonic() - at_s)
            if each % 40 == 39:
                await cache.get(f"new-{name}-{which}-{each}")
            await asyncio.sleep(0.005)

    await asyncio.gather(*(reads(which) for which in range(8)))
    return sorted(hits)[int(0.99 * len(hits))], len(hits)


@pytest.mark.parametrize(("count", "hurt"), [(3, (2,)), (5, (1, 3))])
def test_with_a_minority_gone_no_request_fails_and_hits_stay_quick(
    tmp_path: Path, count: int, hurt: tuple[int, ...]
) -> None:
    """Frozen, then cut off, then killed. Who is cut off calls no source."""

    async def work() -> None:
        async with Crowd(tmp_path, count, 0.05, proxied=True) as crowd, Client(crowd.apis) as cache:
            await asyncio.sleep(0.8)
            await all_get(cache, [f"k{each}" for each in range(20)], 1)
            pids = [crowd.processes[which].pid for which in hurt]
            found = {}
            for how in ("frozen", "cut off", "killed"):
                await asyncio.sleep(0.3)
                if how == "cut off":
                    crowd.cut(*hurt)
                for which in hurt:
                    if how == "frozen":
                        crowd.freeze(which)
                    elif how == "killed":
                        crowd.kill(which)
                gone_s = time.monotonic()
                found[how], hits = await quick_reads(cache, how[:3], 1.8)
                print(f"{how} {len(hurt)} of {count}: {hits} hits, p99 {found[how] * 1_000:.1f} ms")
                if how == "cut off":
                    alone = [line for line in crowd.begun() if line.pid in pids and line.at_s > gone_s + HOLD_S]
                    safe(not alone, f"a minority called the source: {alone}")
                    async with Client(crowd.bound_apis[hurt[0]]) as inside:
                        assert (await inside.get("k1")).value.startswith(b"value of k1"), "the cut-off side serves"
                crowd.heal()
                for which in hurt:
                    if how == "frozen":
                        crowd.thaw(which)
            assert max(found.values()) < 0.05, found

    run(work)


async def fetch(key: bytes) -> bytes:
    return key


until = partial(wait_until_async, within_s=WITHIN_THE_TEST_S)


def test_W_S5_W_S8_a_real_peer_obeys_exact_targets_of_listed_senders_only() -> None:
    """Subscriptions are prefixes: what is meant for `...:6000` reaches `...:600`, and changes nothing there."""

    async def work() -> None:
        me, other, api, other_api = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
        context = zmq.Context()
        bus, ear = context.socket(zmq.XPUB), context.socket(zmq.SUB)
        for socket in (bus, ear):
            socket.linger = 0

        def pongs() -> list[list[bytes]]:
            heard = []
            while ear.poll(0):
                heard.append(ear.recv_multipart())
            return [frames[:3] for frames in heard if frames[2] == b"-"]

        try:
            bus.bind(other)
            async with Peer(me, api, [(other, other_api)], fetch, mode="mixed", machine=DocumentMachine) as peer:
                ear.connect(me)
                ear.subscribe(b"")
                wanted = {b"\1*", b"\1" + me.encode()}
                await until(lambda: (bus.poll(0) and wanted.discard(bus.recv())) or not wanted)  # it hears the bus
                await asyncio.sleep(0.4)
                pongs()
                for target, sender in ((me + "0", other), ("*nobody", other), ("*", "tcp://127.0.0.1:9"), (me, me)):
                    bus.send_multipart(peer_frames(target, sender, messages.Ping()))
                await until(lambda: peer.driver.dropped.total() >= 4)
                await asyncio.sleep(0.3)
                assert pongs() == []
                assert peer.driver.dropped["target: another peer"] == 2
                assert peer.driver.dropped["sender: not in the list"] == 2

                def answered() -> bool:
                    """Asked again, for the first answers may come before the ear is heard of."""
                    bus.send_multipart(peer_frames(me, other, messages.Ping()))
                    return [other.encode(), me.encode(), b"-"] in pongs()

                await until(answered)
        finally:
            bus.close()
            ear.close()
            context.term()

    run(work)
