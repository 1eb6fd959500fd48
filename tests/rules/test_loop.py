"""The quick loop: the same promises as asyncio's own, for what is called inside its selector."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from primacy.loop import QuickLoop, timer, unwatch, watch

pytestmark = pytest.mark.real_time

Play = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["quick", "plain"])
def play(request: pytest.FixtureRequest) -> Play:
    """Both kinds of loop keep the same promises."""
    factory = QuickLoop if request.param == "quick" else asyncio.new_event_loop

    def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(scene(), 60)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded())

    return run


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_a_timer_rings_once_at_its_moment_and_not_before(play: Play) -> None:
    async def scene() -> None:
        loop, rang = asyncio.get_running_loop(), asyncio.Event()
        rings: list[float] = []

        def ring() -> None:
            rings.append(loop.time())
            rang.set()

        one, began_s = timer(ring), loop.time()
        one.set(5)
        one.set(0.001)
        one.set(0.03)
        await rang.wait()
        assert rings[0] - began_s >= 0.03
        await asyncio.sleep(0.02)
        assert len(rings) == 1
        one.set(0.001)
        one.clear()
        await asyncio.sleep(0.02)
        assert len(rings) == 1

    play(scene)


def test_a_timer_that_every_turn_of_a_busy_loop_sets_for_now_rings(play: Play) -> None:
    """A machine whose deadline has passed says so after every message. Its timer must not be put off by that."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        rang, turns = asyncio.Event(), 0
        one = timer(rang.set)

        def turn() -> None:
            nonlocal turns
            turns += 1
            one.set(0)
            if not rang.is_set() and turns < 1_000:
                loop.call_soon(turn)

        turn()
        await rang.wait()
        assert turns <= 10

    play(scene)


def test_what_is_asked_of_the_loop_by_a_quick_call_is_done_at_once(
    play: Play, pair: tuple[socket.socket, socket.socket]
) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        soon: asyncio.Future[str] = loop.create_future()
        later: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            said = pair[0].recv(16).decode()
            loop.call_soon(soon.set_result, said)
            loop.call_later(0.001, later.set_result, said)

        watch(loop, pair[0], read)
        loop.call_later(0.01, pair[1].send, b"heartbeat")
        assert await soon == await later == "heartbeat"
        unwatch(loop, pair[0])
        pair[1].send(b"unheard")
        await asyncio.sleep(0.01)
        assert pair[0].recv(16) == b"unheard"

    play(scene)


def test_a_timer_set_by_a_quick_call_rings(play: Play, pair: tuple[socket.socket, socket.socket]) -> None:
    async def scene() -> None:
        loop, rang = asyncio.get_running_loop(), asyncio.Event()
        one = timer(rang.set)

        def read() -> None:
            pair[0].recv(16)
            one.set(0.0)

        watch(loop, pair[0], read)
        pair[1].send(b"heartbeat")
        await rang.wait()
        unwatch(loop, pair[0])

    play(scene)


def test_timers_and_signals_of_the_loop_are_not_kept_waiting_by_a_flood(
    play: Play, pair: tuple[socket.socket, socket.socket]
) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            pair[0].recv(16)
            pair[1].send(b"again")

        watch(loop, pair[0], read)
        pair[1].send(b"heartbeat")
        await asyncio.sleep(0.02)
        await asyncio.to_thread(lambda: None)  # comes back through the loop's own pipe
        unwatch(loop, pair[0])

    play(scene)


def test_a_fault_is_reported_as_that_of_any_callback(play: Play) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[BaseException] = loop.create_future()
        loop.set_exception_handler(lambda _, context: told.set_result(context["exception"]))

        def ring() -> None:
            raise ValueError("a bug of ours")

        timer(ring).set(0.001)
        assert isinstance(await told, ValueError)

    play(scene)


def test_slack_waits_for_company_and_not_longer_than_it_may(pair: tuple[socket.socket, socket.socket]) -> None:
    async def scene() -> None:
        loop, did = asyncio.get_running_loop(), list[str]()
        done = asyncio.Event()

        def read() -> None:
            pair[0].recv(16)
            did.append("heard")

        def ring() -> None:
            did.append("rang")
            done.set()

        watch(loop, pair[0], read)
        lazy = timer(ring)
        lazy.set(0.0, 60.0)
        pair[1].send(b"heartbeat")
        await done.wait()
        assert did == ["rang", "heard"], "what it says can go along with the answer"
        done.clear()
        lazy.set(0.0, 0.03)
        await done.wait()  # although nobody speaks
        unwatch(loop, pair[0])

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(asyncio.wait_for(scene(), 60))
