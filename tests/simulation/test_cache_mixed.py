"""Peers of mode `mixed` beside doubles of the original, in virtual time, over frames as on the wire."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.support.cache_mixed_world import MixedPeer
from tests.support.cache_original_client import ClientError, Found
from tests.support.cache_original_peer import OriginalPeer
from tests.support.cache_original_world import World
from tests.support.virtual_time import now_ms, run

URLS = [f"tcp://10.0.0.{host}:6000" for host in range(1, 6)]


def cluster(world: World, kinds: str) -> list[str]:
    """`o`: an original, `m`: one of this product, in the order of the letters."""
    urls = URLS[: len(kinds)]
    for url, kind in zip(urls, kinds, strict=True):
        if kind == "o":
            world.original(url, urls)
        else:
            MixedPeer(world, url, urls)
    return urls


def turned(urls: list[str], start: int) -> list[str]:
    start %= len(urls)
    return urls[start:] + urls[:start]


def sound(world: World) -> None:
    """No rule was broken on the wire by a peer of this product, and no original has died."""
    assert [told for peer in world.peers.values() if isinstance(peer, MixedPeer) for told in peer.doubtful] == []
    assert world.fatal == []


@pytest.mark.parametrize("kinds", ["ooo", "oom", "omm", "mmm", "ooooo", "ooomm", "oommm", "mo", "m"])
def test_50_clients_on_cold_keys_one_retrieval_per_key(kinds: str) -> None:
    async def main() -> None:
        world = World(source_ms=lambda key, peer: 700.0)
        urls = cluster(world, kinds)
        await asyncio.sleep(2.1)
        for number in range(5):
            key = b"key%d" % number
            begun_ms = now_ms()
            clients = [world.client(turned(urls, i), 60_000) for i in range(50)]
            first = asyncio.create_task(clients[0].get(key))
            await asyncio.sleep(0.005)
            found = await asyncio.gather(first, *(client.get(key) for client in clients[1:]))
            assert {entry.value for entry in found} == {b"value-of-" + key}
            assert now_ms() - begun_ms < 1_500
            await asyncio.sleep(0.1)
        assert len(world.calls) == 5
        for url in urls:
            peer = world.peers[url]
            metas = peer.metas if isinstance(peer, MixedPeer) else peer.storage.metas
            expiries = [meta.expire_ms if isinstance(peer, MixedPeer) else meta.expire for meta in metas.values()]
            assert len(expiries) == 5, "a fresh entry reaches every peer"
            assert min(expiries) > world.wall_ms()
        sound(world)

    run(main())


@pytest.mark.parametrize("kinds", ["oom", "omm", "mmm", "ooomm"])
@pytest.mark.parametrize("victim", ["o", "m"])
def test_the_sourcing_peer_is_killed(kinds: str, victim: str) -> None:
    """At most two starts, one end, every client answered."""

    async def main() -> None:
        world = World(source_ms=lambda key, peer: 2_500.0)
        urls = cluster(world, kinds)
        await asyncio.sleep(2.1)
        at = kinds.find(victim)
        first = asyncio.create_task(world.client(urls[at:] + urls[:at], 60_000).get(b"k"))
        await asyncio.sleep(0.005)
        waiting = [asyncio.create_task(world.client(turned(urls, i), 60_000).get(b"k")) for i in range(20)]
        await asyncio.sleep(1)
        assert [call.peer for call in world.calls] == [urls[at]]
        world.silent.add(urls[at])
        found = await asyncio.gather(first, *waiting)
        assert len(found) == 21
        assert sum(call.ok for call in world.calls if call.peer != urls[at]) == 1
        assert len(world.calls) == 2
        sound(world)

    if victim in kinds:
        run(main())


def test_an_original_client_is_answered_at_once_by_a_peer_that_is_alone() -> None:
    """Two of three dead: what it has is given, for the rest SEEOTHER at once; the original is silent for both."""

    async def main() -> None:
        world = World()
        urls = cluster(world, "moo")
        await asyncio.sleep(2.1)
        held = await world.client(urls[:1], 60_000).get(b"held")
        world.silent.update(urls[1:])
        began_ms = now_ms()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.client(urls[:1], 5_000).get(b"cold"), 1)
        ours = world.peers[urls[0]]
        assert ours.machine.partitioned
        assert await world.client(urls[:1], 5_000).get(b"held", world.wall_ms()) == held
        assert now_ms() - began_ms < 1_100
        assert len([call for call in world.calls if call.key == b"cold"]) == 0, "the cut-off side never sources"
        world.silent.clear()
        await asyncio.sleep(3.1)
        assert not ours.machine.partitioned
        assert (await world.client(urls[:1], 5_000).get(b"cold")).value == b"value-of-cold"
        sound(world)

    run(main())


def test_W_S1_the_captured_double_retrieval_does_not_happen_with_one_of_ours() -> None:
    """The same delays as in the captured history of four originals. Peer 0, which fetched as well, is one of ours: it
    hears the lower ANNOUNCE and follows. Then peer 2 is one of ours: it announces in the higher term."""
    for ours, doubled in (("none", True), ("0", False), ("2", False)):

        async def main(ours: str = ours, doubled: bool = doubled) -> None:
            world = World(source_ms=lambda key, peer: 700.0)
            urls = URLS[:4]
            for number, url in enumerate(urls):
                if str(number) in ours:
                    MixedPeer(world, url, urls)
                else:
                    world.original(url, urls, chance=Least(167 if number == 0 else 300))
            await asyncio.sleep(2.1)
            begun_ms = now_ms()

            def delay_ms(sender: str, receiver: str) -> float:
                at_ms = now_ms() - begun_ms
                if receiver == urls[3] and at_ms < 200:
                    due_ms = 167.0 if at_ms < 50 else 169.5 if at_ms < 150 else 180.0
                    return due_ms - at_ms + (-0.4 if sender == urls[2] and at_ms < 150 else 0.0) + (at_ms > 168)
                if sender == urls[3] and 150 < at_ms < 170:
                    return 170.0 - at_ms if receiver == urls[2] else 0.4
                if (sender, receiver) == (urls[0], urls[2]) and 160 < at_ms < 170:
                    return 174.0 - at_ms
                return 1.0 if sender == urls[2] else 1.5

            world.delay_ms = delay_ms
            clients = [world.client([urls[number]], 9_000).get(b"F") for number in (0, 2)]
            await asyncio.gather(*clients)
            await asyncio.sleep(2.1)
            assert (world.overlaps() == [b"F"]) == doubled, ours
            sound(world)

        run(main())


class Least(Random):
    """Elections of one length."""

    def __init__(self, election_ms: int) -> None:
        super().__init__(0)
        self._election_ms = election_ms

    def randint(self, a: int, b: int) -> int:
        return self._election_ms


# --- by chance --------------------------------------------------------------------------------------------------------


async def trial(seed: int, kinds: str) -> World:
    """Keys asked for at random, at random peers, while links are slow or cut, peers die and come back, and sources are
    slow or fail. Then all is well: every client must be answered, and every key be had."""
    chance = Random(seed)
    world = World(seed, source_ms=lambda key, peer: chance.choice((20.0, 300.0, 1_500.0)))
    urls = cluster(world, kinds)
    cut: set[tuple[str, str]] = set()
    slow_ms = chance.choice((2.0, 20.0, 150.0))
    world.delay_ms = lambda *link: None if link in cut else chance.uniform(0.2, slow_ms)
    failing = chance.random() * 0.3
    world.fails = lambda key, peer: chance.random() < failing
    await asyncio.sleep(2.1)
    waiting: list[asyncio.Task[Found]] = []
    for _ in range(100):
        match chance.randrange(8):
            case 0:
                cut = {(a, b) for a in urls for b in urls if chance.random() < 0.2}
            case 1 if len(world.silent) == 0:
                world.silent.add(chance.choice(urls))
            case 2:
                world.silent.clear()
            case 3:
                await restart(world, chance.choice(urls), urls)
            case _:
                start = chance.randrange(len(urls))
                client = world.client(urls[start:] + urls[:start], 120_000)
                waiting.append(asyncio.create_task(client.get(b"key%d" % chance.randrange(6))))
        await asyncio.sleep(chance.choice((0.01, 0.05, 0.05, 0.3, 0.3, 1.0, 61.0)))
    cut.clear()
    world.silent.clear()
    slow_ms = 2.0
    world.fails = lambda key, peer: False
    done, late = await asyncio.wait(waiting, timeout=30)
    assert not late, f"{len(late)} of {len(waiting)} clients wait 30 s after everything is well"
    for task in done:
        assert task.exception() is None or isinstance(task.exception(), ClientError)
    for number in range(6):
        found = await asyncio.wait_for(world.client(urls, 60_000).get(b"key%d" % number, world.wall_ms()), 20)
        assert found.value == b"value-of-key%d" % number
    return world


async def restart(world: World, url: str, urls: list[str]) -> None:
    """One of ours keeps what it stored; so does an original."""
    peer = world.peers[url]
    if isinstance(peer, MixedPeer):
        MixedPeer(world, url, urls, peer.kill())
    else:
        assert isinstance(peer, OriginalPeer)
        world.original(url, urls, peer.storage)


@pytest.mark.parametrize("kinds", ["oom", "omm", "mmm", "oommm"])
@pytest.mark.parametrize("seed", range(3))
def test_random_trials(kinds: str, seed: int) -> None:
    async def main() -> None:
        sound(await trial(seed, kinds))

    run(main())
