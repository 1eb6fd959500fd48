"""The figures of a cache peer: what an operator sees of hits, misses, retrievals and what was spared by them."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from primacy.cache.client import Client
from primacy.cache.peer import Peer
from primacy.cache.shown import document, exposition
from primacy.cli.cache import PeerAnswer, peers_text
from primacy.errors import SourceFailed
from tests.processes.test_cache_peer_inside import addresses, run, until

TAKES_S = 0.2
CLIENTS = 7


async def source(key: bytes) -> bytes:
    await asyncio.sleep(TAKES_S)
    if key == b"bad":
        raise ValueError("boom")
    return b"value of " + key


def figures(peer: Peer) -> dict[str, float]:
    lines = exposition(peer, peer._clock.now_ms()).decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#") and "{" not in line]
    assert all(name.startswith("primacy_cache_") for name, _, _ in rows)
    return {name.removeprefix("primacy_cache_"): float(value) for name, _, value in rows}


def test_retrievals_their_time_and_what_they_spared_are_counted() -> None:
    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api, source=source) as peer, Client(api, timeout_ms=60_000) as cache:
            assert set(figures(peer).values()) <= {0.0, 1.0}
            gets = [asyncio.ensure_future(cache.get("k")) for _ in range(CLIENTS)]
            await until(lambda: peer.counts["waiting"] == CLIENTS)
            await asyncio.gather(*gets, peer.read(b"k", within_ms=60_000))
            first = figures(peer)
            assert first["misses_total"] == CLIENTS + 1
            assert first["stampedes_avoided_total"] == CLIENTS, "all but the one that it was fetched for"
            assert first["fetch_seconds_count"] == 1
            assert TAKES_S * 0.9 <= first["fetch_seconds_sum"] < 60
            await cache.get("k")
            await peer.read(b"k")
            then = figures(peer)
            assert then["hits_total"] == first["hits_total"] + 2
            assert then["misses_total"] == first["misses_total"], "a hit waits for nothing"
            with pytest.raises(SourceFailed):
                await cache.get("bad")
            assert await cache.get("none", fetch=False) is None
            last = figures(peer)
            assert (last["fetch_failures_total"], last["refusals_total"]) == (1, 1)
            assert last["misses_total"] == first["misses_total"] + 2
            assert last["stampedes_avoided_total"] == CLIENTS
            assert not peer.serving._waits
            assert not peer.driver._fetching

    run(work)


@pytest.mark.parametrize("mode", ["own", "mixed"])
def test_the_memory_of_a_key_is_reported(mode: str) -> None:
    """In the state of a peer, in `cache status` and among its figures. What is measured:
    tests/contracts/test_cache_lmdb.py."""

    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api, source=source, mode=mode) as peer:
            empty = document(peer, {"node": "a"}, peer._clock.now_ms(), 0)
            assert empty["memory"] == {"keys_bytes": 0, "per_key_bytes": 0}
            assert ": in touch; 0 keys, 0 hits" in peers_text([PeerAnswer(api, empty, "")])
            await asyncio.gather(*(peer.read(b"key %d" % each, within_ms=60_000) for each in range(20)))
            said = document(peer, {"node": "a"}, peer._clock.now_ms(), 0)
            each = said["memory"]["per_key_bytes"]
            assert said["keys"] == 20
            assert 200 < each < 700
            assert 20 * each <= said["memory"]["keys_bytes"] < 20 * (each + 1)
            assert f": in touch; 20 keys ({each} bytes of memory each), " in peers_text([PeerAnswer(api, said, "")])
            assert figures(peer)["keys_bytes"] == said["memory"]["keys_bytes"]

    run(work)


def sums(peers: list[Peer]) -> dict[str, float]:
    return {name: sum(figures(peer)[name] for peer in peers) for name in figures(peers[0])}


def test_who_waits_at_a_peer_that_does_not_fetch_is_spared_a_call() -> None:
    async def work() -> None:
        ports = addresses(6)
        where = list(zip(ports[::2], ports[1::2], strict=True))
        peers = [Peer(*one, where, source, on_overrun="alert") for one in where]
        for peer in peers:
            await peer.start()
        await until(lambda: all(peer.machine.in_touch(peer._clock.now_ms()) for peer in peers))
        for number in count():  # until one is fetched undisturbed: a machine with much to do may take a hold away
            before = sums(peers)
            await asyncio.gather(*(peer.read(b"k%d" % number, within_ms=60_000) for peer in peers))
            gone = {name: value - before[name] for name, value in sums(peers).items()}
            if (gone["misses_total"], gone["hits_total"], gone["fetch_seconds_count"]) == (3, 3, 1):
                break
        for peer in peers:
            await peer.stop()
        assert gone["stampedes_avoided_total"] == 2

    run(work)
