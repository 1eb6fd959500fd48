"""Hits of one turn leave together, and never behind a word that says that they are void."""

from __future__ import annotations

import asyncio
import time

import zmq

from primacy.cache.peer import Peer
from primacy.cache.wire_client import (
    DROPPED_COPY,
    VALUE,
    GetRequest,
    InvalidateRequest,
    Options,
    options_frame,
    request_frames,
)
from tests.support.arrivals import arrived
from tests.support.cache_served_peers import addresses

WATCHES = Options(10_000, watches=True)


async def received(socket: zmq.Socket[bytes], count: int) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            if socket.poll(0):
                found.append(socket.recv_multipart())
            else:
                await asyncio.sleep(0.005)
    return found


def test_a_hit_of_the_same_turn_comes_before_the_word_that_it_is_void() -> None:
    asyncio.run(one_turn())


async def one_turn() -> None:
    ((url, api),) = addresses(1)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        async with Peer(url, api) as peer:
            assert (await peer.put(b"k", b"old", 60_000)).ok
            await peer.read(b"k")
            peer.serving._remember(options_frame(WATCHES), WATCHES)
            socket.connect(api)
            expiry_ms = time.time_ns() // 1_000_000 + 30_000
            for number in range(3):
                socket.send_multipart(request_frames(GetRequest(b"%d" % number, expiry_ms, b"k", 0, WATCHES)))
            socket.send_multipart(request_frames(InvalidateRequest(b"i", expiry_ms, b"k", False, WATCHES)))
            arrived([api])  # all are there when the peer's loop goes on, so that one turn takes them
            found = await received(socket, 4)
    finally:
        socket.close(0)
        context.term()
    assert [frames[1] for frames in found] == [VALUE, VALUE, VALUE, DROPPED_COPY]


def test_a_message_of_any_number_of_frames_ends_where_it_ends() -> None:
    asyncio.run(any_number())


async def any_number() -> None:
    ((url, api),) = addresses(1)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        async with Peer(url, api) as peer:
            assert (await peer.put(b"k", b"value", 60_000)).ok
            socket.connect(api)
            expiry_ms = time.time_ns() // 1_000_000 + 30_000
            asked = request_frames(GetRequest(b"1", expiry_ms, b"k", 0, Options(10_000)))
            counts = (1, 2, 3, 15, 16, 17, 18, 40)
            for count in counts:
                socket.send_multipart([b"%d" % count] * count)
                socket.send_multipart(asked)
            found = await received(socket, len(counts))
            assert peer.serving.dropped.total() == len(counts)
    finally:
        socket.close(0)
        context.term()
    assert [frames[:3] for frames in found] == [[b"1", VALUE, b"value"]] * len(counts)
