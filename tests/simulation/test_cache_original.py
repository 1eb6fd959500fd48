"""The doubles of the original HA cache behave as the original was measured to, defects included.

In virtual time. `tests/data/ha_cache_histories.json` has what the original's peers sent in four histories.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.cache_original_client import ClientError, OriginalClient
from tests.support.cache_original_peer import Entry, OriginalPeer, Storage, integer, msgpack_texts
from tests.support.cache_original_world import WALL_MS, Sent, World
from tests.support.virtual_time import now_ms, run

DATA = Path(__file__).parents[1] / "data"
HISTORIES = json.loads((DATA / "ha_cache_histories.json").read_text())
FRAMES = json.loads((DATA / "ha_cache_frames.json").read_text())
NAMES = {
    b"Q": "QUESTION",
    b"A": "ANSWER",
    b"E": "ENTRYREQ",
    b"=": "UPDATE",
    b"!": "ANNOUNCE",
    b".": "PING",
    b"-": "PONG",
}
URLS = [f"tcp://127.0.0.1:{port}" for port in (21000, 21001, 21002, 21003)]


class Drawn(Random):
    """Elections end after these times, in this order."""

    def __init__(self, *times_ms: int) -> None:
        super().__init__(0)
        self._times_ms = list(times_ms)

    def randint(self, a: int, b: int) -> int:
        drawn = self._times_ms.pop(0) if self._times_ms else b
        assert a <= drawn <= b
        return drawn


def number(frame: bytes) -> int:
    return int.from_bytes(frame, "little")


def word(sent: Sent, urls: list[str] = URLS) -> str:
    target, _, kind, *body = sent.frames
    name = NAMES[kind]
    told = f"{name} to {'all' if target == b'*' else urls.index(target.decode())}"
    if name in ("QUESTION", "ANSWER", "UPDATE", "ANNOUNCE"):
        told += f" term {number(body[1])}"
    if name in ("ANSWER", "UPDATE", "ANNOUNCE"):
        told += f" expire {'known' if number(body[2]) else '0'}"
    if name == "ANSWER":
        told += " yes" if body[3] else " no"
    return told


# --- one peer, spoken to by a test ------------------------------------------------------------------------------------


class Probe:
    """One double whose peers and clients are the test."""

    def __init__(self, storage: Storage | None = None, peers: int = 3, chance: Random | None = None) -> None:
        self.world = World(source_ms=lambda key, peer: 2_500.0)
        self.peer = self.world.original(URLS[0], URLS[:peers], storage, chance)
        self.replies: list[list[bytes]] = []
        self.peer._reply = self.replies.append

    def tell(self, sender: int, kind: bytes, *frames: bytes, target: bytes = b"*") -> None:
        self.peer.peer_message([target, URLS[sender].encode(), kind, *frames])

    def ask(self, key: bytes, request: bytes = b"1", after: int | None = None, expires: bytes | None = None) -> None:
        frames = [b"me", request, b"?", integer(WALL_MS + now_ms() + 5_000) if expires is None else expires, key]
        self.peer.client_message(frames if after is None else [*frames, integer(after)])

    async def sent(self, after_ms: float = 5) -> list[str]:
        """What it has sent since the last time, after a moment."""
        await asyncio.sleep(after_ms / 1000)
        told = [word(sent) for sent in self.world.sent]
        self.world.sent.clear()
        return told


Behaviour = Callable[[], Coroutine[Any, Any, None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


@behaviour
async def double_vote_in_one_term() -> None:
    probe = Probe()
    for sender, term, vote in ((1, 0, "yes"), (2, 1, "yes"), (1, 1, "yes"), (2, 1, "no")):
        probe.tell(sender, b"Q", b"dv", integer(term))
        assert await probe.sent() == [f"ANSWER to {sender} term {term} expire 0 {vote}"]


@behaviour
async def vote_lease_is_300ms_not_term() -> None:
    probe = Probe()
    probe.tell(1, b"Q", b"k", integer(5))
    assert await probe.sent(350) == ["ANSWER to 1 term 5 expire 0 yes"]
    probe.tell(2, b"Q", b"k", integer(5))
    assert await probe.sent() == ["ANSWER to 2 term 5 expire 0 yes"]


@behaviour
async def question_while_sourcing() -> None:
    probe = Probe()
    probe.peer.storage.metas[b"k"] = Entry(term=1)
    probe.ask(b"k")
    assert await probe.sent() == ["QUESTION to all term 1"]
    probe.tell(1, b"A", b"k", integer(1), integer(0), b"\x01")
    assert await probe.sent() == ["ANNOUNCE to all term 1 expire 0"]
    probe.tell(2, b"Q", b"k", integer(7))
    assert await probe.sent() == ["ANNOUNCE to 2 term 1 expire 0"]
    assert probe.peer.storage.metas[b"k"].term == 1


@behaviour
async def target_prefix_not_checked() -> None:
    """The network delivers by prefix, as SUB does; the peer does not look again."""
    world = World()
    short = world.original(URLS[0], URLS)
    for target in (URLS[0].encode() + b"7", b"*nobody"):
        world.sent.clear()
        world.peers[URLS[1]] = None
        world.publish(URLS[1], [target, URLS[1].encode(), b"."])
        del world.peers[URLS[1]]
        await asyncio.sleep(0.01)
        assert [word(sent) for sent in world.sent if sent.sender == short.url] == ["PONG to 1"]


@behaviour
async def unknown_sender() -> None:
    probe = Probe()
    probe.peer.peer_message([b"*", b"tcp://127.0.0.1:9", b"."])
    assert await probe.sent() == []


@behaviour
async def trailing_frames() -> None:
    probe = Probe()
    probe.tell(1, b".", b"more")
    probe.tell(1, b"Q", b"k", integer(0), b"more")
    assert await probe.sent() == ["PONG to 1", "ANSWER to 1 term 0 expire 0 yes"]
    probe.tell(1, b"!", b"k", integer(0), integer(0), b"more")
    probe.tell(1, b"=", b"k", integer(0), integer(WALL_MS + 9_000), b"value", b"more")
    await probe.sent()
    probe.tell(1, b"E", b"k", b"more")
    assert await probe.sent() == ["UPDATE to 1 term 0 expire known"]
    probe.peer.client_message([b"me", b"1", b"?", integer(WALL_MS + 9_000), b"k", integer(0), b"more"])
    await probe.sent()
    assert probe.replies == [[b"me", b"1", b"=", b"value", integer(WALL_MS + 9_000)]]


@behaviour
async def question_without_term_frame() -> None:
    probe = Probe()
    probe.tell(1, b"Q", b"k")
    await probe.sent()
    assert len(probe.world.fatal) == 1


@behaviour
async def get_with_expire_ffffffffffffffff() -> None:
    probe = Probe()
    probe.ask(b"k", expires=b"\xff" * 8)
    assert probe.world.fatal == ["an integer above 2^53 - 1"]


@behaviour
async def lost_update() -> None:
    probe = Probe(Storage(100, 100))
    expire = WALL_MS + 9_000_000
    probe.tell(1, b"=", b"k", integer(1), integer(expire), b"fresh")
    await probe.sent(150)
    probe.tell(2, b"Q", b"k", integer(2))
    assert await probe.sent(300) == ["ANSWER to 2 term 2 expire 0 yes"]
    probe.tell(2, b"E", b"k")
    await asyncio.sleep(0.25)
    assert probe.world.sent[-1].frames[2:] == (b"=", b"k", integer(2), integer(0), b"fresh")


@behaviour
async def lower_term_announce_ignored_by_candidate() -> None:
    probe = Probe(chance=Drawn(150, 150))
    probe.peer.storage.metas[b"k"] = Entry(term=5)
    probe.ask(b"k")
    await probe.sent()
    probe.tell(1, b"!", b"k", integer(4), integer(0))
    for sender in (1, 2):
        probe.tell(sender, b"A", b"k", integer(5), integer(0), b"")
    assert await probe.sent(150) == ["QUESTION to all term 6"]
    probe.tell(1, b"!", b"k", integer(6), integer(0))
    await probe.sent()
    assert probe.peer.role(b"k") == "follower"


@behaviour
async def fresh_answer_but_no_update() -> None:
    probe = Probe(chance=Drawn(200, 150, 200, 150, 200, 150))
    probe.ask(b"k")
    assert await probe.sent() == ["QUESTION to all term 0"]
    for term in range(3):
        probe.tell(1, b"A", b"k", integer(term), integer(WALL_MS + 9_000_000), b"")
        probe.tell(2, b"A", b"k", integer(term), integer(0), b"\x01")
        assert await probe.sent(160) == ["ENTRYREQ to 1", f"QUESTION to all term {term + 1}"]


@pytest.mark.parametrize("name", HISTORIES["behaviours"])
def test_behaviour(name: str) -> None:
    run(BEHAVIOURS[name]())


# --- the four histories -----------------------------------------------------------------------------------------------


def captured(name: str, peer: int) -> list[str]:
    """What this peer sent in that history, in order."""
    lines = [re.match(r"(\d+) (\d) (.*)", line) for line in HISTORIES["histories"][name]]
    return [found[3] for found in lines if found and int(found[2]) == peer and not found[3].startswith("source")]


def calls_captured(name: str) -> list[tuple[int, int]]:
    """Peer and milliseconds of each call's start."""
    lines = [re.match(r"(\d+) (\d) source start", line) for line in HISTORIES["histories"][name]]
    return [(int(found[2]), int(found[1])) for found in lines if found]


def compare(name: str, world: World, urls: list[str]) -> None:
    for peer, url in enumerate(urls):
        assert [word(sent) for sent in world.sent if sent.sender == url] == captured(name, peer), f"peer {peer}"
    expected = calls_captured(name)
    assert [urls.index(call.peer) for call in world.calls] == [peer for peer, _ in expected]
    for call, (_, at_ms) in zip(world.calls, expected, strict=True):
        assert abs(call.started_ms - at_ms) < 60


def test_three_peers_one_cold_key_50_clients() -> None:
    async def main() -> None:
        world = World(source_ms=lambda key, peer: 2_500.0)
        urls = URLS[:3]
        for url in urls:
            world.original(url, urls)
        clients = [world.client(urls[i % 3 :] + urls[: i % 3], 60_000) for i in range(50)]
        first = asyncio.create_task(clients[0].get(b"k1"))
        await asyncio.sleep(0.006)
        found = await asyncio.gather(first, *(client.get(b"k1") for client in clients[1:]))
        assert {entry.value for entry in found} == {b"value-of-k1"}
        assert 2_500 <= now_ms() <= 2_550
        compare("three_peers_cold_key_50_clients", world, urls)

    run(main())


def test_split_vote_then_the_sourcing_peer_is_killed() -> None:
    async def main() -> None:
        world = World(source_ms=lambda key, peer: 2_500.0)
        urls = URLS[:3]
        world.delay_ms = lambda sender, receiver: (
            20.0 if now_ms() < 100 or (now_ms() > 3_600 and now_ms() < 3_700) else 1.0
        )
        draws = ((300, 300), (300, 245), (170,))
        for url, drawn in zip(urls, draws, strict=True):
            world.original(url, urls, chance=Drawn(*drawn))
        for url, at_ms in zip(urls, (0, 6, 15), strict=True):
            asyncio.get_running_loop().call_later(at_ms / 1000, ask, world, url)
        await asyncio.sleep(1.235)
        world.silent.add(urls[2])
        await asyncio.sleep(3.658 - 1.235)
        ask(world, urls[0])
        ask(world, urls[1])
        await asyncio.sleep(4)
        compare("split_vote_then_sourcing_peer_killed", world, urls)

    def ask(world: World, url: str) -> None:
        world.peers[url].client_message([b"x", b"1", b"?", integer(WALL_MS + now_ms() + 5_000), b"kk"])

    run(main())


def test_a_stale_copy_on_one_peer() -> None:
    async def main() -> None:
        world = World(source_ms=lambda key, peer: 1_500.0)
        urls = URLS[:3]
        stores = [Storage(), Storage(), Storage(0, 25)]
        stores[0].metas[b"old"] = Entry(3, WALL_MS - 10_000, 3)
        stores[0].values[b"old"] = b"OLD"
        for url, storage in zip(urls, stores, strict=True):
            world.original(url, urls, storage)
        slow = (urls[1], urls[2])
        world.delay_ms = lambda *link: (7.0 if link == slow else 5.0) if now_ms() < 20 else 1.0
        replies: list[list[bytes]] = []
        world.peers[urls[1]]._reply = replies.append
        expires = integer(WALL_MS + 5_000)
        world.peers[urls[0]].client_message([b"x", b"p0", b"?", expires, b"old"])
        world.peers[urls[1]].client_message([b"x", b"stale-ok", b"?", expires, b"old"])
        world.peers[urls[1]].client_message([b"x", b"fresh", b"?", expires, b"old", integer(WALL_MS)])
        await asyncio.sleep(2)
        compare("stale_copy_on_one_peer", world, urls)
        assert [frames[1:4] for frames in replies if len(frames) > 2] == [
            [b"stale-ok", b"=", b"OLD"],
            [b"fresh", b"=", b"value-of-old"],
        ]

    run(main())


def test_four_healthy_peers_two_retrievals_at_once() -> None:
    """S1 and answers without a number: a no of the election before counts as the answer to this one."""

    async def main() -> None:
        world = World(source_ms=lambda key, peer: 700.0)
        for url, drawn in zip(URLS, ((167, 180, 300), (), (300,), ()), strict=True):
            world.original(url, URLS, chance=Drawn(*drawn))

        def delay_ms(sender: str, receiver: str) -> float:
            at_ms = now_ms()
            if receiver == URLS[3] and at_ms < 200:
                due_ms = 167.0 if at_ms < 50 else 169.5 if at_ms < 150 else 180.0
                return due_ms - at_ms + (-0.4 if sender == URLS[2] and at_ms < 150 else 0.0) + (at_ms > 168)
            if sender == URLS[3] and 150 < at_ms < 170:
                return 170.0 - at_ms if receiver == URLS[2] else 0.4
            if (sender, receiver) == (URLS[0], URLS[2]) and 160 < at_ms < 170:
                return 174.0 - at_ms
            return 1.0 if sender == URLS[2] else 1.5

        world.delay_ms = delay_ms
        for url in (URLS[0], URLS[2]):
            world.peers[url].client_message([b"x", b"r4", b"?", integer(WALL_MS + 5_000), b"F"])
        await asyncio.sleep(2)
        compare("four_healthy_peers_two_concurrent_retrievals", world, URLS)
        assert world.overlaps() == [b"F"]

    run(main())


# --- frames -----------------------------------------------------------------------------------------------------------


def test_the_captured_frames_of_a_peer() -> None:
    """Those of `vectors` that one peer sends, byte for byte, with the captured expiry in place of ours."""
    captures = {vector["name"]: [bytes.fromhex(frame) for frame in vector["frames"]] for vector in FRAMES["vectors"]}
    urls = [f"tcp://127.0.0.1:{port}" for port in (23000, 23001, 23002)]

    async def main() -> None:
        world = World(source_ms=lambda key, peer: 100.0)
        peer = world.original(urls[0], urls, chance=Drawn(150, 300))
        peer.apis = ["tcp://127.0.0.1:24000", "tcp://127.0.0.1:24001", "tcp://127.0.0.1:24002"]
        replies: list[list[bytes]] = []
        peer._reply = replies.append

        async def value(key: bytes) -> bytes:
            await asyncio.sleep(0.005)
            return b"value-of-alpha-by-0-call-1"

        peer._source = value
        expire = int.from_bytes(captures["update_broadcast"][5], "little")
        peer._ttl_ms = 0
        peer._now = lambda: expire if peer.role(b"alpha") == "sourcing" else WALL_MS + now_ms()

        def tell(sender: int, *frames: bytes) -> None:
            peer.peer_message([b"*", urls[sender].encode(), *frames])

        peer.client_message([b"me", b"1", b"?", integer(WALL_MS + 5_000), b"alpha"])
        await asyncio.sleep(0.01)
        tell(1, b"A", b"alpha", b"\x00", b"\x00", b"")
        await asyncio.sleep(0.1)
        tell(2, b"A", b"alpha", b"\x00", b"\x00", b"")
        await asyncio.sleep(0.1)
        tell(2, b"A", b"alpha", b"\x01", integer(WALL_MS - 5), b"\x01")
        await asyncio.sleep(0)
        tell(1, b"Q", b"alpha", b"\x01")
        await asyncio.sleep(0.01)
        tell(1, b"Q", b"alpha", b"\x09")
        await asyncio.sleep(0.01)
        tell(1, b"E", b"alpha")
        tell(1, b".")
        tell(1, b"Q", b"beta", b"\x00")
        await asyncio.sleep(0.01)
        peer.client_message([b"me", b"3", b"*", integer(WALL_MS + 5_000)])
        peer._partition()
        await asyncio.sleep(3.1)
        sent = [list(one.frames) for one in world.sent]
        for name, frames in captures.items():
            if name.startswith("client_"):
                if name in ("client_keepalive", "client_value", "client_servers"):
                    assert [b"me", *frames] in replies, name
            else:
                assert frames in sent, name

    run(main())


def test_urls_are_packed_as_the_original_packs_them() -> None:
    packed = next(vector for vector in FRAMES["vectors"] if vector["name"] == "client_servers")["frames"][2]
    assert msgpack_texts([f"tcp://127.0.0.1:{port}" for port in (24000, 24001, 24002)]).hex() == packed


# --- timers -----------------------------------------------------------------------------------------------------------


def test_partitioned_it_is_silent_and_pings_every_three_seconds() -> None:
    async def main() -> None:
        probe = Probe(chance=Drawn(296))
        probe.peer.storage.metas[b"held"] = Entry(0, WALL_MS + 9_000_000)
        probe.peer.storage.values[b"held"] = b"v"
        probe.ask(b"k")
        assert await probe.sent(400) == ["QUESTION to all term 0"] * 3
        probe.ask(b"held", b"2")
        assert await probe.sent(2_890) == []
        assert probe.replies == [[b"me", b"1"], [b"me", b"1", b"#"]]
        assert await probe.sent(3_100) == ["PING to all"] * 2
        probe.tell(1, b"-")
        await probe.sent()
        assert not probe.peer.partitioned

    run(main())


def test_an_announcer_vanishes_keepalive_keepalive_seeother() -> None:
    async def main() -> None:
        probe = Probe()
        times: list[int] = []
        probe.peer._reply = lambda frames: (times.append(now_ms()), probe.replies.append(frames))[0]
        probe.tell(1, b"!", b"k", b"\x00", b"\x00")
        await asyncio.sleep(0.01)
        probe.ask(b"k")
        await asyncio.sleep(3)
        assert probe.replies == [[b"me", b"1"], [b"me", b"1"], [b"me", b"1", b"#"]]
        assert [round(at_ms / 100) for at_ms in times] == [0, 10, 20]

    run(main())


def test_the_times_of_the_client() -> None:
    """Two silent servers, then KEEPALIVE once, then SEEOTHER: measured at 0, 498, 1000, 3104, 3105 ms."""

    async def main() -> None:
        attempts: list[tuple[int, list[bytes]]] = []

        def send(frames: list[bytes]) -> None:
            attempts.append((now_ms(), frames))
            answers = {3: [b""][:0], 4: [b"#"], 5: [b"=", b"v", integer(7)]}
            answer = answers.get(len(attempts))
            if answer is not None:
                asyncio.get_running_loop().call_later(0.001, client.received, [frames[0], *answer])

        client = OriginalClient(send, 60_000, lambda: WALL_MS + now_ms())
        found = await client.get(b"k", WALL_MS)
        assert found.value == b"v"
        assert [at_ms for at_ms, _ in attempts] == [0, 500, 1_000, 3_101, 3_102]
        assert [frames[0] for _, frames in attempts] == [b"1", b"2", b"3", b"4", b"5"]
        assert attempts[0][1] == [b"1", b"?", integer(WALL_MS + 5_000), b"k", integer(WALL_MS)]

    run(main())


def test_the_client_times_out_only_between_attempts() -> None:
    """L2: neither KEEPALIVEs nor SEEOTHERs are ever cut off."""

    async def main() -> None:
        client = OriginalClient(lambda frames: None)
        with pytest.raises(ClientError, match="timeout"):
            await client.get(b"k")
        assert now_ms() == 1_500

        def see_other(frames: list[bytes]) -> None:
            asyncio.get_running_loop().call_later(0.1, client.received, [frames[0], b"#"])

        client._send = see_other
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get(b"k"), 20.05)
        client._send = lambda frames: client.received([frames[0], b"!"])
        with pytest.raises(ClientError, match="unknown type"):
            await client.get(b"k")

    run(main())


def test_a_failing_source_is_called_again_and_again() -> None:
    """Every 2 to 3 s, by which of two timers is first (measured: 2.2, 9 times in 20 s), and the client waits still."""

    async def main() -> None:
        world = World(source_ms=lambda key, peer: 50.0)
        world.fails = lambda key, peer: True
        urls = URLS[:3]
        for url in urls:
            world.original(url, urls)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.client(urls, 5_000).get(b"k"), 20.05)
        assert 6 <= len(world.calls) <= 10

    run(main())


def test_the_double_is_a_peer_for_itself() -> None:
    peer = OriginalPeer(
        "u",
        [("u", "a")],
        publish=lambda frames: None,
        reply=lambda frames: None,
        source=lambda key: asyncio.sleep(0, b""),
        fatal=lambda why: None,
        wall_ms=lambda: 0,
    )
    assert peer.majority == 1
    assert peer.others == []
