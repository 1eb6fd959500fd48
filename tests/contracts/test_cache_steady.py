"""Sealed GETs of clients that are known are received without a look at every frame, and nothing gets out of step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from primacy.cache.peer import Peer, Secured
from primacy.cache.security import ClientKey, ClientSeal, PeerSeal, ServerSeal, client_secret, new_boot
from primacy.cache.serving import Serving
from primacy.cache.sockets import PARTS_MAX, SEALED_GET_FRAMES, Frames, router_receiver
from primacy.cache.wire_client import (
    GET,
    VALUE,
    DiscoverRequest,
    GetRequest,
    Options,
    PutRequest,
    Request,
    request_frames,
)
from tests.support.cache_served_peers import addresses

SECRET = b"a secret of 40 bytes for steady clients .."
OPTIONS = Options(10_000)
WITHIN_MS = 60_000
LAST = [b"last"] * 3


class Pair:
    """A ROUTER and one client of it, without a network: what is sent is there."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.router, self.dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        for socket in (self.router, self.dealer):
            socket.set_hwm(0)
            socket.setsockopt(zmq.LINGER, 0)
        self.router.bind("inproc://steady")
        self.dealer.connect("inproc://steady")
        self.steady: set[bytes] = set()
        self._receive = router_receiver(self.router, self.steady)
        (first,) = self.exchanged([[b"first"]])
        self.steady.add(first[0])
        self.identity = first[0]

    def exchanged(self, messages: list[Frames]) -> list[Frames]:
        for frames in messages:
            self.dealer.send_multipart(frames)
        assert self.router.poll(WITHIN_MS)
        found: list[Frames] = []
        while got := self._receive(8):
            found += got
        return found


@contextmanager
def pair() -> Iterator[Pair]:
    context = zmq.Context()
    made = Pair(context)
    try:
        yield made
    finally:
        made.router.close()
        made.dealer.close()
        context.term()


def message(command: bytes, frames: int) -> Frames:
    """As a client sends it: without an identity."""
    return [b"id", command, *(b"%d" % number for number in range(frames))][:frames]


def is_short(frames: Frames) -> bool:
    """A GET with fewer frames than are expected, or something that has nothing behind a command, not even a seal."""
    return len(frames) < 3 or (frames[1] == GET and len(frames) < SEALED_GET_FRAMES - 1)


@pytest.mark.parametrize("command", [GET, b"*", b"p", b""])
def test_a_steady_clients_messages_are_what_it_sent(command: bytes) -> None:
    with pair() as both:
        least = SEALED_GET_FRAMES - 1 if command == GET else 3
        sent = [message(command, frames) for frames in (*range(least, PARTS_MAX + 3), 40)]
        found = both.exchanged([*sent, LAST])
        assert found == [[both.identity, *frames][:PARTS_MAX] for frames in (*sent, LAST)]


@pytest.mark.parametrize("frames", range(1, SEALED_GET_FRAMES - 1))
def test_a_short_message_of_a_steady_client_takes_some_that_follow_along_and_no_more(frames: int) -> None:
    with pair() as both:
        found = both.exchanged([message(GET, frames), *[LAST] * 8])
        assert found[0] != [both.identity, *message(GET, frames)]
        assert found[1:] == [[both.identity, *LAST]] * (len(found) - 1)
        assert len(found) - 1 >= 8 - 3


@pytest.mark.parametrize("frames", range(1, SEALED_GET_FRAMES - 1))
def test_a_short_message_of_a_steady_client_that_nothing_follows_is_dropped(frames: int) -> None:
    with pair() as both:
        assert both.exchanged([message(GET, frames)]) == [[both.identity]]
        assert both.exchanged([LAST]) == [[both.identity, *LAST]]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([GET, b"*"]), st.integers(1, PARTS_MAX + 2)), max_size=12))
def test_whatever_a_steady_client_sends_all_is_in_step_after_it(sent: list[tuple[bytes, int]]) -> None:
    with pair() as both:
        messages = [message(*each) for each in sent]
        found = both.exchanged([*messages, *[LAST] * 4])
        assert found[-1] == [both.identity, *LAST]
        before = next((at for at, frames in enumerate(messages) if is_short(frames)), len(messages))
        assert found[:before] == [[both.identity, *frames][:PARTS_MAX] for frames in messages[:before]]


# --- a peer -----------------------------------------------------------------------------------------------------------


class Asks:
    """A client of raw frames, with its own key."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], api: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(api)
        self.seal = ClientSeal("c", ClientKey("web", client_secret(SECRET, "c", "web")), new_boot())
        self._last = 0

    def frames(self, make: type[Request] = GetRequest, *more: object) -> Frames:
        self._last += 1
        name, wall_ms = b"%d" % self._last, time.time_ns() // 1_000_000
        frames = request_frames(make(name, wall_ms + 20_000, *more))  # type: ignore[arg-type]
        return [*frames, self.seal.sealed(frames, wall_ms)]

    def good(self) -> Frames:
        return self.frames(GetRequest, b"k", 0, OPTIONS)

    async def answer(self) -> Frames:
        async with asyncio.timeout(60):
            while not self.socket.poll(0):
                await asyncio.sleep(0.005)
        frames = self.socket.recv_multipart()
        assert self.seal.is_good(frames[:-1], frames[-1])
        return frames[:-1]

    async def asked(self, frames: Frames) -> Frames:
        self.socket.send_multipart(frames)
        return await self.answer()


async def with_peer(scene: Scene) -> Serving:
    ((url, api),) = addresses(1)
    context = zmq.Context()
    wall_ms = time.time_ns() // 1_000_000
    secured = Secured(PeerSeal("c", new_boot(), (SECRET,)), ServerSeal("c", (SECRET,), wall_ms))
    clients: list[Asks] = []
    try:
        async with Peer(url, api, secured=secured) as peer:
            assert (await peer.put(b"k", b"value", 600_000)).ok
            clients = [Asks(context, api), Asks(context, api)]
            for client in clients:
                for _ in range(2):  # the first tells the peer what the options mean
                    assert (await client.asked(client.good()))[1:3] == [VALUE, b"value"]
            assert len(peer._sockets.steady) == 2
            await scene(peer, *clients)
            return peer.serving
    finally:
        for client in clients:
            client.socket.close()
        context.term()


class Scene:
    """What happens with a peer and two steady clients."""

    async def __call__(self, peer: Peer, one: Asks, two: Asks) -> None:
        raise NotImplementedError


class AllCommands(Scene):
    async def __call__(self, peer: Peer, one: Asks, two: Asks) -> None:
        for _ in range(3):
            assert (await one.asked(one.frames(DiscoverRequest)))[1] == b"*"
            assert (await two.asked(two.good()))[1] == VALUE
            assert (await one.asked(one.frames(PutRequest, b"other", 60_000, b"v", OPTIONS)))[1] == b"d"
            assert (await one.asked(one.good()))[1] == VALUE
        assert not peer.serving.dropped


def test_a_steady_client_asks_for_other_things_as_well() -> None:
    asyncio.run(with_peer(AllCommands()))


class Short(Scene):
    async def __call__(self, peer: Peer, one: Asks, two: Asks) -> None:
        one.socket.send_multipart(one.frames(GetRequest, b"k"))  # no options: two frames less
        async with asyncio.timeout(60):
            while not peer.serving.dropped:
                await asyncio.sleep(0.005)
        assert (await one.asked(one.frames(GetRequest, b"k")))[1] == VALUE, "it is looked at again"
        assert (await two.asked(two.good()))[1] == VALUE
        assert (await one.asked(one.good()))[1] == VALUE


def test_a_steady_client_that_asks_without_options_is_heard_again_when_it_asks_again() -> None:
    serving = asyncio.run(with_peer(Short()))
    assert serving.dropped == {"frames: too few": 1}


class Changed(Scene):
    async def __call__(self, peer: Peer, one: Asks, two: Asks) -> None:
        changed = one.good()
        changed[4] += b"1"
        one.socket.send_multipart(changed)
        asked = one.good()
        assert (await one.asked(asked))[1] == VALUE
        one.socket.send_multipart(asked)
        assert (await one.asked(one.good()))[1] == VALUE


def test_what_a_steady_client_sends_is_judged_as_strictly() -> None:
    serving = asyncio.run(with_peer(Changed()))
    assert serving.dropped == {"seal: bad-seal": 1, "seal: replayed": 1}


def test_steady_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primacy.cache.serving.STEADY_MAX", 3)
    serving = object.__new__(Serving)
    serving._sockets = type("Sockets", (), {"steady": set()})()
    for number in range(20):
        serving._expect(b"%d" % number)
        assert 1 <= len(serving._sockets.steady) <= 3
        assert b"%d" % number in serving._sockets.steady
