"""In which order a peer attends to what waits: peers, then its own deadlines, then clients. Real sockets.

While a test waits without giving its loop a turn, messages gather in the sockets of the peer. Then one turn is taken by
hand, and the machine has written down what it was told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from primacy.cache import driver, serving
from primacy.cache import messages as m
from primacy.cache import sockets as cache_sockets
from primacy.cache.effects import Effect, Refuse, StoreFloor
from primacy.cache.inputs import Asked, FloorStored, Input, Received, SourceEnded, TimerPassed, Withdrawn
from primacy.cache.model import Ballot, Failure, Fetched, Floor
from primacy.cache.peer import Peer
from primacy.cache.sockets import ANSWERS_PER_TURN, CLIENTS_LEAST, PEERS_PER_TURN
from primacy.cache.wire import peer_frames
from primacy.cache.wire_client import GetRequest, request_frames
from tests.support.arrivals import arrived
from tests.support.cache_smallest_machine import AloneMachine
from tests.support.ports import free_ports

pytestmark = pytest.mark.real_time

FAR_MS = 1 << 40


@pytest.fixture(autouse=True)
def turns_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bounds a turn here is how much it reads: on a busy machine it would end after one message, by its time."""
    for module in (driver, serving):
        monkeypatch.setattr(module, "TURN_MS", 60_000)
    monkeypatch.setattr(cache_sockets, "AT_ONCE_S", 60.0)


class Noting(AloneMachine):
    """Notes its inputs. Wants `TimerPassed` at `due_ms`."""

    due_ms = FAR_MS
    stores = False
    """Each message of a peer makes it store something, and its deadline is always past."""
    says: list[Effect] = []  # noqa: RUF012 -- replaced, never changed

    @property
    def told(self) -> list[Input]:
        found: list[Input] = self.__dict__.setdefault("_told", [])
        return found

    @property
    def deadline_ms(self) -> int | None:
        return 1 if self.stores else self.due_ms

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[Effect]:
        self.told.append(given)
        if isinstance(given, TimerPassed):
            self.due_ms = FAR_MS
        says, self.says = self.says, []
        if self.stores and isinstance(given, Received):
            says = [*says, StoreFloor(Floor(b"%d" % len(self.told), False, 1))]
        return says


class Placed:
    """A peer, another peer's socket and a client's."""

    def __init__(self, peer: Peer, other: str, bus: zmq.Socket[bytes], client: zmq.Socket[bytes]) -> None:
        assert isinstance(peer.machine, Noting)
        self.peer, self.other, self.bus, self.client, self.machine = peer, other, bus, client, peer.machine

    def says(self, key: bytes) -> None:
        self.bus.send_multipart(peer_frames(self.peer.url, self.other, m.EntryRequest(key)))

    def arrive(self, peers: int, clients: int) -> None:
        """So many messages of each are there, unread."""
        for number in range(peers):
            self.says(b"k%d" % number)
        for number in range(clients):
            ask = GetRequest(b"%d" % number, int(time.time() * 1_000) + 20_000, b"key")
            self.client.send_multipart(request_frames(ask))
        arrived((self.peer.url, self.peer.api, self.other))  # the loop has no turn meanwhile
        self.machine.told.clear()

    def set_due(self) -> None:
        """The machine's deadline has passed."""
        self.machine.due_ms = self.peer._clock.now_ms()
        self.peer.driver._wind()

    def kinds(self) -> list[type]:
        return [type(given) for given in self.machine.told]


@contextmanager
def sockets(bus_at: str, api: str) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """A peer's, a client's, and one that can be read as soon as the client is connected."""
    with zmq.Context() as context, context.socket(zmq.PUB) as bus, context.socket(zmq.DEALER) as client:
        bus.linger = client.linger = 0
        bus.bind(bus_at)
        with client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as events:
            client.connect(api)
            yield bus, client, events
            client.disable_monitor()


def play(scene: Callable[[Placed], None]) -> None:
    async def main() -> None:
        url, api, other, other_api = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
        with sockets(other, api) as (bus, client, is_connected):
            async with Peer(url, api, [(other, other_api)], machine=Noting) as peer:
                placed = Placed(peer, other, bus, client)
                while Received not in placed.kinds():
                    placed.says(b"connected")
                    await asyncio.sleep(0.02)
                while not is_connected.poll(0):  # it tried before there was a peer, and tries again after a while
                    await asyncio.sleep(0.02)
                arrived((url, api, other))
                await asyncio.sleep(0.05)
                scene(placed)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_what_is_due_is_done_before_clients_are_read() -> None:
    def scene(placed: Placed) -> None:
        placed.arrive(2, 5)
        placed.set_due()
        placed.peer.driver.turn()
        assert placed.kinds() == [Received, Received, TimerPassed, *[Asked] * 5]

    play(scene)


def test_peers_are_heard_before_a_deadline_is_judged() -> None:
    """A loop that is late must not conclude from its own lateness that nobody answered."""

    def scene(placed: Placed) -> None:
        placed.arrive(3, 3)
        placed.set_due()
        placed.peer.driver.ring()
        assert placed.kinds() == [Received, Received, Received, TimerPassed]

    play(scene)


def test_what_a_storage_in_memory_answers_begins_no_turn_within_the_turn() -> None:
    """Else turns are taken within turns while messages wait, until the interpreter allows no deeper call."""

    def scene(placed: Placed) -> None:
        one, depths, depth = placed.peer.driver, [], 0
        attend = one._attend

        def counted(clients: bool) -> None:
            nonlocal depth
            depth += 1
            depths.append(depth)
            attend(clients)
            depth -= 1

        one._attend = counted  # type: ignore[method-assign]
        placed.arrive(6 * PEERS_PER_TURN, 0)
        placed.machine.stores = True
        one._wind()
        one.turn()
        placed.machine.stores = False
        assert FloorStored in placed.kinds()
        assert max(depths) == 1

    play(scene)


def test_what_is_told_after_the_end_sets_no_timer() -> None:
    """It would ring with sockets that are closed."""

    async def main() -> None:
        url, api, other, other_api = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
        async with Peer(url, api, [(other, other_api)], machine=Noting) as peer:
            one = peer.driver
        one.tell(Withdrawn(7))
        one.ring()
        one.turn()
        await asyncio.sleep(0.05)
        assert one.failure is None

    asyncio.run(asyncio.wait_for(main(), 120))


def test_behind_unread_messages_of_peers_only_a_few_clients_are_read() -> None:
    """Who asks for a key that another peer is about to fetch would begin an election in vain."""

    def scene(placed: Placed) -> None:
        placed.arrive(2 * PEERS_PER_TURN, 50)
        placed.peer.driver.turn()
        kinds = placed.kinds()
        assert 0 < kinds.count(Received) <= PEERS_PER_TURN
        assert 1 <= kinds.count(Asked) <= CLIENTS_LEAST, "never none: peers that send for ever do not shut clients out"
        for _ in range(1_000):
            if placed.kinds().count(Received) == 2 * PEERS_PER_TURN:
                break
            placed.peer.driver.turn()
        placed.peer.driver.turn()
        assert placed.kinds().count(Asked) == 50

    play(scene)


def test_thousands_are_told_in_portions_with_what_is_due_between_them() -> None:
    """The source of a key failed for which many wait."""

    def scene(placed: Placed) -> None:
        serving = placed.peer.serving
        placed.arrive(0, 900)
        while serving.waiting < 900:
            placed.peer.driver.turn()
        numbers = [given.request for given in placed.machine.told if isinstance(given, Asked)]
        placed.machine.says = [Refuse(number, "no") for number in numbers]
        placed.machine.told.clear()
        placed.peer.driver.tell(SourceEnded(b"key", Ballot(1, "a", 1), Failure("no")))
        assert serving.waiting >= 900 - ANSWERS_PER_TURN
        placed.set_due()
        for turn in range(100):
            placed.peer.driver.turn()
            assert TimerPassed in placed.kinds() or turn == 0
            if not serving.waiting:
                break
        assert serving.waiting == 0
        assert serving.refusals == 900

    play(scene)


def test_what_is_told_after_the_end_touches_no_closed_socket() -> None:
    async def main() -> None:
        url, api, other, other_api = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
        peer = Peer(url, api, [(other, other_api)], machine=Noting)
        await peer.start()
        await peer.stop()
        assert isinstance(peer.machine, Noting)
        peer.driver._due_ms = 1
        peer.driver.tell(Withdrawn(1))
        assert peer.driver.failure is None
        assert peer.machine.told[-1] == Withdrawn(1)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_what_is_due_is_done_between_calls_that_end_together() -> None:
    """A hundred sources end in one round of the loop: holds of the others are renewed meanwhile."""

    def scene(placed: Placed) -> None:
        placed.arrive(1, 1)
        ended = [SourceEnded(b"%d" % number, Ballot(1, "a", 1), Fetched(b"v")) for number in range(3)]
        placed.peer.driver.tell(ended[0])
        placed.set_due()
        placed.peer.driver.tell(ended[1])
        placed.peer.driver.tell(ended[2])
        assert placed.kinds() == [SourceEnded, Received, TimerPassed, SourceEnded, SourceEnded]

    play(scene)
