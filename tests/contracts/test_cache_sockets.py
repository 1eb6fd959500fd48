"""The sockets of cache peers and clients: messages go and come whole, whatever happens to connections meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import zmq

from primacy.cache.sockets import PeerSockets, receiver, sender
from primacy.cache.wire import LIMITS
from tests.support.arrivals import arrived
from tests.support.cache_served_peers import addresses
from tests.support.waiting import wait_until

WITHIN_S = 60.0
"""Only a hang reaches it."""


until = partial(wait_until, within_s=WITHIN_S, every_s=0.01)


def opened(url: str, api: str, others: list[str]) -> PeerSockets:
    made = PeerSockets(url, LIMITS)
    made.open(url, api, others)
    return made


def one_leaves(again: int) -> None:
    """A peer that has said something is taken from the list before all of that was read, so many times."""
    (left, left_api), (stays, stays_api), (me, api) = addresses(3)
    reads = opened(me, api, [left, stays])
    leaves, stayed = opened(left, left_api, []), opened(stays, stays_api, [])

    def to_me(sockets: PeerSockets, text: bytes) -> None:
        def heard() -> list[bytes] | None:
            sockets.to_peers([me.encode(), b"sign"])  # until the subscription is there
            time.sleep(0.02)
            return reads.from_peers()

        until(heard)
        arrived((left, stays, me))  # the other signs as well
        while reads.from_peers() is not None:
            pass
        sockets.to_peers([me.encode(), text, b"more", b"end"])
        arrived((left, stays, me))

    for _ in range(again):
        to_me(leaves, b"before")
        until(reads.peers_wait)  # the library has the first frame of it now
        reads.connect([stays])
        assert reads.peers_wait()
        assert reads.from_peers() == [me.encode(), b"before", b"more", b"end"]
        assert reads.from_peers() is None
        assert not reads.peers_wait()
        to_me(stayed, b"after")
        until(reads.peers_wait)
        assert reads.from_peers() == [me.encode(), b"after", b"more", b"end"]
        reads.connect([left, stays])
    for sockets in (reads, leaves, stayed):
        asyncio.run(sockets.close())


@pytest.mark.later
def test_a_peer_that_is_read_half_may_leave_the_list() -> None:
    """In a process of its own: libzmq ends it (`!_more`, fq.cpp) if the rest of a message is gone, or has no more."""
    words = [sys.executable, "-c", "from tests.contracts.test_cache_sockets import one_leaves; one_leaves(3)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


class Meanwhile(list[bytes]):
    """Frames; something happens after the first `at` of them were sent."""

    def __init__(self, frames: list[bytes], at: int, happens: Callable[[], None]) -> None:
        super().__init__(frames)
        self.at, self.happens = at, happens

    def __getitem__(self, which: object) -> object:  # type: ignore[override]
        if which == slice(None, -1):
            return self._slowly()
        if which == -1 and self.at == len(self) - 1:
            self.at = -1
            self.happens()
        return super().__getitem__(which)  # type: ignore[call-overload, index]

    def _slowly(self) -> Iterator[bytes]:
        for number, frame in enumerate(list(self)[:-1]):
            if number == self.at:
                self.happens()
            yield frame


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_request_whose_connection_breaks_within_it_costs_no_other(at: int) -> None:
    ((_, api),) = addresses(1)
    context, there = zmq.Context(), zmq.Context()
    dealer = context.socket(zmq.DEALER)
    for option, value in ((zmq.LINGER, 0), (zmq.IMMEDIATE, 1), (zmq.RECONNECT_IVL, 20)):
        dealer.setsockopt(option, value)
    events = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    dealer.connect(api)
    send = sender(dealer)
    routers = [there.socket(zmq.ROUTER)]
    routers[0].bind(api)
    until(lambda: dealer.getsockopt(zmq.EVENTS) & zmq.POLLOUT)  # type: ignore[operator, arg-type]

    def breaks() -> None:
        routers.pop().close(0)
        assert events.poll(WITHIN_S * 1_000), "the library does not notice"
        time.sleep(0.2)

    try:
        send(Meanwhile([b"a", b"b", b"c", b"d"], at, breaks))  # refused, or dropped by the library without a word
        routers.append(there.socket(zmq.ROUTER))
        until(lambda: bound(routers[0], api))
        until(lambda: dealer.getsockopt(zmq.EVENTS) & zmq.POLLOUT)  # type: ignore[operator, arg-type]
        assert send([b"next", b"one"])
        assert routers[0].poll(WITHIN_S * 1_000), "what counts as sent is lost"
        assert (receiver(routers[0])() or [])[1:] == [b"next", b"one"]
    finally:
        dealer.disable_monitor()
        for socket in (events, dealer, *routers):
            socket.close(0)
        context.term()
        there.term()


def bound(socket: zmq.Socket[bytes], api: str) -> bool:
    try:
        socket.bind(api)
    except zmq.ZMQError:
        return False
    return True


@pytest.mark.later
def test_answers_that_came_before_a_peer_died_are_read() -> None:
    """With the library's own option for peers that are not connected (`IMMEDIATE`) they were lost, and now and then the
    client's process was ended by an assertion."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.cache_client_of_dying_peer", "20"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("20 deaths, 18000 answers, 0 of them not whole, 0 faults"), ran.stdout
