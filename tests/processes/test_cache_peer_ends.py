"""A peer inside of a process, at its ends: what is asked before its start, while it stops and afterwards is answered or
refused with a sentence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from primacy.cache.access import Absent, Done, Found, Why
from primacy.cache.peer import Peer, Secured
from primacy.cache.storage import Evicted, MemoryStorage, Write
from primacy.errors import InUse, UsageError
from tests.processes.test_cache_peer_inside import Slow, addresses, fetch, run, until

LONG_MS = 80_000
Ask = Callable[[Peer], Coroutine[Any, Any, object]]
CHANGES: dict[str, Ask] = {
    "invalidate": lambda peer: peer.invalidate(b"k", within_ms=LONG_MS),
    "invalidate by prefix": lambda peer: peer.invalidate(b"", prefix=True, within_ms=LONG_MS),
    "refresh": lambda peer: peer.refresh(b"k", within_ms=LONG_MS),
    "put": lambda peer: peer.put(b"k", b"v", within_ms=LONG_MS),
    "reload": lambda peer: peer.reload([(peer.url, peer.api)], within_ms=LONG_MS),
}
ALL: dict[str, Ask] = {
    **CHANGES,
    "read": lambda peer: peer.read(b"k", within_ms=LONG_MS),
}


class Hanging(MemoryStorage):
    """A disk that takes nothing until it is let."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        assert self.free.wait(60)
        return super().apply(batch)


@pytest.mark.parametrize("how", ["invalidate", "invalidate by prefix", "refresh", "put"])
def test_a_change_that_waits_while_the_peer_is_stopped_is_told_so(how: str) -> None:
    """The disk hangs, so that nothing is done before the peer is stopped."""

    async def work() -> None:
        url, api = addresses(2)
        disk = Hanging()
        async with Peer(url, api, source=fetch, storage=disk) as peer:
            waits = asyncio.ensure_future(CHANGES[how](peer))
            await until(lambda: peer.serving.waiting)
            stops = asyncio.ensure_future(peer.stop())
            done = await waits
            disk.free.set()
            await stops
        assert isinstance(done, Done)
        assert not done.ok
        assert "this peer was stopped before it was done" in done.reason

    run(work)


def test_a_reload_that_waits_while_the_peer_is_stopped_is_told_so() -> None:
    """The others are away, so that nobody reports the list."""

    async def work() -> None:
        ports = addresses(8)
        where = [(ports[2 * each], ports[2 * each + 1]) for each in range(4)]
        async with Peer(*where[0], where[:3], source=fetch) as peer:
            waits = asyncio.ensure_future(peer.reload(where, within_ms=LONG_MS))
            await until(lambda: peer.serving.waiting)
            await peer.stop()
            done = await waits
        assert not done.ok
        assert "this peer was stopped before it was done" in done.reason

    run(work)


@pytest.mark.parametrize("how", ALL)
def test_what_is_asked_outside_of_start_and_stop_is_refused_with_a_sentence(how: str) -> None:
    async def work() -> None:
        url, api = addresses(2)
        peer = Peer(url, api, source=fetch)
        with pytest.raises(UsageError, match="does not run"):
            await ALL[how](peer)
        async with peer:
            assert isinstance(await peer.read(b"k", within_ms=LONG_MS), Found)
        with pytest.raises(UsageError, match="does not run"):  # `k` is still at hand
            await ALL[how](peer)

    run(work)


@pytest.mark.parametrize("how", ALL)
def test_a_peer_whose_start_failed_refuses_with_a_sentence_and_can_be_stopped(how: str) -> None:
    async def work() -> None:
        url, api, other = addresses(3)
        async with Peer(url, api, source=fetch):
            peer = Peer(other, api, source=fetch)
            with pytest.raises(InUse):
                await peer.start()
            with pytest.raises(UsageError, match="does not run"):
                await ALL[how](peer)
            await peer.stop()
            await peer.wait_stopped()

    run(work)


def test_a_peer_that_was_never_started_has_nothing_to_stop() -> None:
    async def work() -> None:
        peer = Peer(*addresses(2), source=fetch)
        await peer.stop()
        with pytest.raises(UsageError, match="does not run"):
            await peer.wait_stopped()
        await peer.start()
        assert isinstance(await peer.read(b"k", within_ms=LONG_MS), Found)
        await peer.stop()

    run(work)


def test_who_stops_a_peer_while_it_starts_stops_it() -> None:
    async def work() -> None:
        peer = Peer(*addresses(2), source=fetch)
        starts = asyncio.ensure_future(peer.start())
        await asyncio.sleep(0)  # it has begun
        await asyncio.gather(peer.stop(), peer.stop())
        assert starts.done()
        await peer.wait_stopped()
        with pytest.raises(UsageError, match="does not run"):
            await peer.read(b"k")

    run(work)


@pytest.mark.parametrize("url", ["foo://10.0.0.9:6000", "tcp://10.0.0.9", "tcp://"])
def test_an_address_that_cannot_be_one_is_refused_before_the_list_changes(url: str) -> None:
    """It would be met when the list is in force, where nothing can be refused any more."""

    async def work() -> None:
        async with Peer(*addresses(2), source=fetch) as peer:
            with pytest.raises(UsageError, match="no address"):
                await peer.reload([(url, "tcp://10.0.0.9:6001")], force=True)
            assert [one.url for one in peer.peers] == [peer.url]
            assert isinstance(await peer.read(b"k", within_ms=LONG_MS), Found)

    run(work)


def test_a_read_that_waits_while_the_peer_is_stopped_is_sent_elsewhere() -> None:
    async def work() -> None:
        source = Slow()
        async with Peer(*addresses(2), source=source) as peer:
            waits = asyncio.ensure_future(peer.read(b"k", within_ms=LONG_MS))
            await until(lambda: source.running)
            await peer.stop()
            told = await waits
        assert isinstance(told, Absent)
        assert told.why is Why.ELSEWHERE

    run(work)


# --- who may reach it -------------------------------------------------------------------------------------------------

URL, API = "tcp://127.0.0.1:6000", "tcp://127.0.0.1:6001"
SEALED = Secured.by("rates", [b"s" * 32])
OPEN = [
    (("tcp://10.0.0.1:6000", API), {}),
    ((URL, "tcp://10.0.0.1:6001"), {}),
    ((URL, API), {"bind_url": "tcp://0.0.0.0:6000"}),
    ((URL, API), {"bind_api": "tcp://*:6001"}),
    ((URL, API), {"bind_api": "tcp://[::]:6001"}),
    ((URL, "tcp://cache.example:6001"), {"secured": Secured(peers=SEALED.peers)}),
    (("tcp://cache.example:6000", API), {"secured": Secured(clients=SEALED.clients)}),
]


@pytest.mark.parametrize(("where", "more"), OPEN)
def test_a_peer_that_others_reach_and_that_asks_nobody_for_a_key_is_refused_unless_told_otherwise(
    where: tuple[str, str], more: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"is open to others, and this peer asks nobody for a key; say secured="):
        Peer(*where, source=fetch, **more)
    Peer(*where, source=fetch, **more, allow_open=True)
    Peer(*where, source=fetch, **{**more, "secured": SEALED})


def test_an_address_that_is_bound_on_this_machine_alone_needs_no_key() -> None:
    Peer("tcp://10.0.0.1:6000", "tcp://10.0.0.1:6001", source=fetch, bind_url=URL, bind_api="tcp://localhost:6001")
    Peer("ipc:///tmp/a", "tcp://[::1]:6001", source=fetch)
