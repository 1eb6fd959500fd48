"""Drives the machine of one cache peer for real: inputs in, effects performed in their order.

Nothing here decides. What the machine is told stands in one queue, so that what an effect brings about (a value that
is gone, a storage that has written) is told after the step that it belongs to, and never inside of it.

A machine that raises has a defect. Then nothing of it can be trusted, its holds least of all: every call is ended, the
sockets are closed, and the peer says why.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol, assert_never

from primacy.cache import effects as fx
from primacy.cache.effects import Effect
from primacy.cache.inputs import Input, Received, SourceEnded, TimerPassed, ValueGone
from primacy.cache.machine import Machine
from primacy.cache.messages import Message, Update
from primacy.cache.model import Ballot, Fetched, Meta
from primacy.cache.security import PeerSeal
from primacy.cache.serving import Serving
from primacy.cache.sockets import (
    ANSWERS_PER_TURN,
    CLIENTS_LEAST,
    CLIENTS_PER_TURN,
    PEERS_PER_TURN,
    TURN_MS,
    PeerSockets,
)
from primacy.cache.wire import BUNDLED_BYTES_MAX, BUNDLED_MAX, HEAD, Dropped, Heard, Reader, bundle_frames, peer_frames
from primacy.cache.writing import Writer
from primacy.loop import Timer
from primacy.node.clock import Clock

log = logging.getLogger("primacy")

ALONE_BYTES = 8 * 1024
"""A larger message leaves by itself."""
SEAL_REMEDIES = {
    "bad-seal": "it has another secret, or another name of the cluster",
    "unsealed": "it runs with another cache.security, or is an original peer",
    "replayed": "somebody repeats them",
}
WAIT_MAX_MS = 3_600_000
"""A machine that wants nothing is asked again after this."""


class Calls(Protocol):
    """Calls of sources. Each ends in one `SourceEnded`, once nothing of it runs any more."""

    def start(self, call: fx.Call) -> None: ...

    def extend(self, extend: fx.Extend) -> None: ...

    def cancel(self, cancel: fx.Cancel) -> None: ...

    async def close(self) -> None:
        """All calls are ended, and over when this returns."""
        ...


class Driver:
    """One machine, its sockets, its storage, its sources and its clients."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        sockets: PeerSockets,
        reader: Reader,
        *,
        bundles: bool,
        seal: PeerSeal | None = None,
        on_event: Callable[[fx.Record], None] | None = None,
        on_membership: Callable[[fx.Membership], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._sockets = sockets
        self.reader = reader
        self._seal = seal
        self._on_event = on_event
        self._on_membership = on_membership
        self._on_failure = on_failure
        self._inbox: deque[Input] = deque()
        self._running = False
        self._in_turn = False
        self._settling = False
        self._unanswered: deque[fx.KeepAlive | fx.SeeOther | fx.Refuse] = deque()
        """What clients are to be told, beyond what one turn may: thousands that wait for a key whose source failed must
        not keep the loop from renewing holds. Bounded by the requests that wait. What comes too late, because its
        request was answered meanwhile, is not said."""
        self._answers_left = ANSWERS_PER_TURN
        self._due_ms = 0
        """When the machine is to be told that time has passed, as of the end of the last turn."""
        self._bundles = bundles
        self._outgoing: dict[str, tuple[list[list[bytes]], int]] = {}
        self._unheard: dict[tuple[str, str], None] = {}
        self.failure: BaseException | None = None
        self.writer: Writer
        self.calls: Calls
        self.serving: Serving
        self.timer: Timer
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._fetching: dict[tuple[bytes, Ballot], int] = {}
        """When each call that runs was begun. Bounded by the calls at once: each ends in one `SourceEnded`."""
        self.fetches = self.fetch_failures = self.fetch_ms = 0
        """Calls of the source, and claims of clients, that are over; those that gave nothing; how long all took."""

    # --- in -----------------------------------------------------------------------------------------------------------

    def tell(self, given: Input) -> None:
        """The machine is told, now or right after what it is being told. A hundred calls that end in one round of the
        loop are told one after the other: between them, too, what peers said is heard and what is due is done."""
        busy = self._in_turn or self._running or self._settling
        if not busy and self._clock.now_ms() >= self._due_ms > 0:
            self._attend(clients=False)
        self._inbox.append(given)
        if not self._running:
            self._run()

    def turn(self) -> None:
        """Something may have come: peers first, then what is due, then clients. Bounded."""
        self._attend(clients=True)

    def ring(self) -> None:
        """The machine's deadline. What peers have said by then is heard first: a loop that is late must not conclude
        from its own lateness that nobody answered."""
        self._attend(clients=False)
        if not self._sockets.closed:
            self._sockets.look()

    def _attend(self, clients: bool) -> None:
        if self.failure is not None or self._sockets.closed:  # who waits in this process may leave after those
            return
        self._in_turn = True
        try:
            more = self._hear_peers()
            if self._clock.now_ms() >= self._due_ms:  # holds are renewed before clients are read
                self.tell(TimerPassed())
            self._post()
            self._answers_left = ANSWERS_PER_TURN
            while self._unanswered and self._answers_left > 0:
                self._answer(self._unanswered.popleft())
            if clients and self.failure is None:
                # Behind unread words of peers only a few: who asks for a key that another peer is about to fetch
                # would begin an election in vain, and holds that are not renewed are lost.
                self.serving.turn(CLIENTS_LEAST if more else CLIENTS_PER_TURN)
        except Exception as error:  # noqa: BLE001 -- as in `_run`
            self._fail(error)
        finally:
            self._in_turn = False
        self._settle()

    def _hear_peers(self) -> bool:
        """Whether there is more than could be heard in one turn."""
        if not self._sockets.peers_wait():
            return False
        receive, budget, clock = self._sockets.from_peers, PEERS_PER_TURN, self._clock
        until_ms = clock.now_ms() + TURN_MS
        while budget > 0 and self.failure is None and clock.now_ms() <= until_ms:
            frames = receive()
            if frames is None:
                return False
            seal = frames.pop() if self._seal is not None and len(frames) > HEAD else b""
            found = self.reader.read_all(frames)
            budget -= len(found)
            if self._seal is not None:
                found = self._unsealed(found, frames, seal)
            for heard in found:
                if isinstance(heard, Dropped):
                    self.dropped[heard.reason] += 1
                else:
                    self.received[type(heard.message).__name__] += 1
                    self.tell(Received(heard.sender, heard.message))
        return True

    def _unsealed(self, found: list[Heard | Dropped], frames: list[bytes], seal: bytes) -> list[Heard | Dropped]:
        """A good seal is of the sender that all of it names."""
        assert self._seal is not None
        sender = next((heard.sender for heard in found if isinstance(heard, Heard)), None)
        if sender is None:
            return found
        why = self._seal.refused(sender, frames, seal)
        if not why:
            return found
        if (sender, why) not in self._unheard:  # bounded: listed senders, a few reasons
            self._unheard[sender, why] = None
            log.warning("messages of peer %s are dropped (%s): %s", sender, why, SEAL_REMEDIES.get(why, ""))
        return [Dropped(f"seal: {why}")]

    def _run(self) -> None:
        if self.failure is not None:
            self._inbox.clear()
            return
        self._running = True
        try:
            while self._inbox:
                given = self._inbox.popleft()
                if type(given) is SourceEnded:
                    self._fetch_ended(given)
                for effect in self._machine.step(self._clock.now_ms(), self._clock.wall_ms(), given):
                    self._perform(effect)
        except Exception as error:  # noqa: BLE001 -- a defect of the machine: whatever it is, nothing may go on
            self._fail(error)
        finally:
            self._running = False
        if not self._in_turn:
            self._settle()
            self._sockets.look()

    def _fetch_ended(self, given: SourceEnded) -> None:
        began_ms = self._fetching.pop((given.key, given.ballot), None)
        if began_ms is None:
            return
        self.fetches += 1
        self.fetch_ms += self._clock.now_ms() - began_ms
        self.fetch_failures += type(given.result) is not Fetched
        self.serving.fetched_for(given.key)

    def _settle(self) -> None:
        """After a turn, or after what was told outside of one: what waits leaves.

        A storage in memory answers at once. That begins no turn, or turns would be taken within turns for as long as
        messages of peers wait."""
        if self.failure is not None:
            return
        before, self._settling = self._settling, True
        try:
            self.writer.flush()
        finally:
            self._settling = before
        if self._sockets.closed:
            return
        self.serving.hand_out()
        self._post()
        self._wind()
        if self._unanswered:
            self._sockets.ask_turn()

    def _wind(self) -> None:
        deadline_ms = self._machine.deadline_ms
        now_ms = self._clock.now_ms()
        self._due_ms = now_ms + WAIT_MAX_MS if deadline_ms is None else deadline_ms
        self.timer.set(max(0, self._due_ms - now_ms) / 1_000)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._inbox.clear()
        log.critical("this cache peer ends, for it has a defect: %r", error, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    # --- out ----------------------------------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case fx.Send(to, message):
                self._send(to, message)
            case fx.SendEntry():
                self._send_entry(effect)
            case fx.KeepAlive() | fx.SeeOther() | fx.Refuse():
                if self._answers_left > 0:
                    self._answer(effect)
                else:
                    self._unanswered.append(effect)
            case fx.Give():
                self.serving.give(effect)
            case fx.Finished():
                self.serving.finished(effect)
            case fx.StoreEntry(key):
                self.serving.drop(key)
                self.writer.write(effect)
            case fx.StoreMeta(key, meta):
                self.serving.changed(key, meta)
                self.writer.write(effect)
            case fx.DropValue(key) | fx.Forget(key):
                self.serving.drop(key)
                self.writer.write(effect)
            case fx.StoreFloor(floor):
                self.serving.floored(floor)
                self.writer.write(effect)
            case fx.StoreCeiling() | fx.ForgetFloor():
                self.writer.write(effect)
            case fx.Call():
                self._fetching[effect.key, effect.ballot] = self._clock.now_ms()
                self.calls.start(effect)
            case fx.Extend():
                self.calls.extend(effect)
            case fx.Cancel():
                self.calls.cancel(effect)
            case fx.Membership():
                if self._on_membership is not None:
                    self._on_membership(effect)
            case fx.Record(event):
                self.events[event] += 1
                if self._on_event is not None:
                    self._on_event(effect)
            case _:
                assert_never(effect)

    def _answer(self, effect: fx.KeepAlive | fx.SeeOther | fx.Refuse) -> None:
        self._answers_left -= 1
        match effect:
            case fx.KeepAlive(request):
                self.serving.keep_alive(request)
            case fx.SeeOther():
                self.serving.see_other(effect)
            case fx.Refuse():
                self.serving.refuse(effect)

    def _send(self, to: str, message: Message) -> None:
        """Leaves at the end of the turn, with what else goes there; at once if it is large, or if originals hear it."""
        self.sent[type(message).__name__] += 1
        frames = peer_frames(to, self._sockets.me, message)
        size = sum(map(len, frames))
        if not self._bundles or size > ALONE_BYTES:
            self._post()
            self._transmit(frames)
            return
        bodies, total = self._outgoing.get(to, ([], 0))
        if len(bodies) == BUNDLED_MAX or total + size > BUNDLED_BYTES_MAX:
            self._post()
            bodies, total = [], 0
        bodies.append(frames[2:])
        self._outgoing[to] = (bodies, total + size)

    def _post(self) -> None:
        """What is to leave, leaves."""
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, {}
        for to, (bodies, _) in outgoing.items():
            if len(bodies) == 1:
                self._transmit([to.encode(), self._sockets.me.encode(), *bodies[0]])
            else:
                self._transmit(bundle_frames(to, self._sockets.me, bodies))

    def _transmit(self, frames: list[bytes]) -> None:
        if self._seal is not None:
            frames.append(self._seal.sealed(frames))
        self._sockets.to_peers(frames)

    def _send_entry(self, effect: fx.SendEntry) -> None:
        message = effect.message
        assert isinstance(message, Update), "only an UPDATE carries a value"
        value = self.value(message.key, effect.meta)
        if value is None:
            self._inbox.append(ValueGone(message.key, effect.meta.epoch))
        else:
            self._send(effect.to, message._replace(value=value))

    def value(self, key: bytes, meta: Meta) -> bytes | None:
        """The stored value of this meta, if it is still there."""
        return self.writer.read(key, meta.epoch)
