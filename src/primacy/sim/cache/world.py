"""A world for cache peers: true time, clocks that drift, wall clocks that differ, a network, storages and sources.

Machines are performed as the driver performs them: one input, an ordered list of effects, a crash possible between any
two. Storage, sources and clients answer later. Everything is drawn from the seed and ordered by (time, sequence
number), so that one seed is one history. What happens is told as facts (`facts.py`); the world judges nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any

from primacy.cache import inputs
from primacy.cache.effects import (
    Call,
    Cancel,
    DropValue,
    Effect,
    Extend,
    Finished,
    Forget,
    ForgetFloor,
    Give,
    KeepAlive,
    Membership,
    Record,
    Refuse,
    SeeOther,
    Send,
    SendEntry,
    StoreCeiling,
    StoreEntry,
    StoreFloor,
    StoreMeta,
)
from primacy.cache.inputs import CeilingStored, FloorStored, Input, Received, TimerPassed, ValueGone
from primacy.cache.machine import Machine
from primacy.cache.messages import (
    Ack,
    Acks,
    Answer,
    FloorAck,
    Message,
    Question,
    Update,
)
from primacy.cache.model import ALL, Ballot, PeerAddress
from primacy.sim.cache.calls import SimCalls, Temper
from primacy.sim.cache.facts import (
    Acked,
    BadOrder,
    Down,
    Echoed,
    Ended,
    Fact,
    Floored,
    Frozen,
    Given,
    MetaStored,
    Missed,
    Up,
    ValueDropped,
    ValueStored,
    Word,
)
from primacy.sim.cache.peer import Conditions, Counts, SimPeer, subject_of
from primacy.sim.cache.storage import SimStorage, covers
from primacy.sim.world.clock import Clock

INBOX_MAX = 1_000
"""What a frozen process finds afterwards: ZeroMQ's default high-water mark."""
EVENTS_MAX = 3_000_000
WALL0_MS = 1_700_000_000_000
"""Unix time at which every trial begins."""


class Overrun(Exception):
    """More events, or more messages of one peer, than a trial can have: something goes round in it (E2)."""


Build = Callable[[SimPeer, tuple[PeerAddress, ...], Random], Machine]
"""Builds the machine of a peer at each start: the peer, the list in its file, and chance."""


class CacheWorld:
    """The world of one trial."""

    def __init__(self, seed: str, build: Build) -> None:
        self.chance = Random(seed)
        self.build = build
        self.now = 0.0
        self.conditions = Conditions()
        self.temper = self.usual_temper = Temper()
        self.limit_ms = 2_500.0
        """A source that has not answered by then has failed."""
        self.ttl_ms = 1_000
        self.skew_ms = 1_500
        """Wall clocks are off by at most this."""
        self.promise_ms = 620
        self.wipes = 0.25
        """Crashes between two effects that take the disk with them."""
        self.peers: dict[str, SimPeer] = {}
        self.cut: set[tuple[str, str]] = set()
        """Ways on which nothing arrives: (from, to)."""
        self.listeners: list[Callable[[Fact], None]] = []
        self.on_answer: Callable[[SimPeer, Effect], None] = _nobody
        """Where answers to clients go."""
        self.on_exit: Callable[[SimPeer], None] = _nobody_exits
        self.log: Callable[[float, str, str], None] | None = None
        self.count = Counts()
        self.pace_per_s = float("inf")
        self.pace_at_once = float("inf")
        self.events_max = EVENTS_MAX
        self.values = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._digest = blake2b(digest_size=8)

    # --- time ---------------------------------------------------------------------------------------------------------

    def at(self, at_ms: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ms, action)

    def run(self, until_ms: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now, _, action = heappop(heap)
            self.count.events += 1
            if self.count.events > self.events_max:
                raise Overrun(f"{self.count.events:,} events, more than a trial can have")
            action()
        self.now = max(self.now, until_ms)

    # --- telling ------------------------------------------------------------------------------------------------------

    def tell(self, fact: Fact) -> None:
        self._digest.update(repr(fact).encode())
        if self.log is not None:
            self.log(self.now, "", _plain(fact))
        for listener in self.listeners:
            listener(fact)

    @property
    def trace_hash(self) -> str:
        """Of all facts with their moments, and of how much was sent: another history has another one."""
        digest = self._digest.copy()
        digest.update(f"{self.count.sent}/{self.count.steps}/{self.count.events}".encode())
        return digest.hexdigest()

    def new_value(self) -> int:
        self.values += 1
        return self.values

    # --- processes ----------------------------------------------------------------------------------------------------

    def add(self, url: str, clock: Clock, durable: bool) -> SimPeer:
        peer = SimPeer(url, clock, Random(self.chance.getrandbits(64)))
        peer.storage = SimStorage(durable, Random(self.chance.getrandbits(64)), self.after)
        self.peers[url] = peer
        return peer

    def start(self, peer: SimPeer) -> None:
        if peer.machine is not None or not peer.file:
            return
        peer.boots += 1
        peer.boot = self.chance.getrandbits(62) | 1
        peer.members = peer.file
        peer.machine = self.build(peer, peer.file, Random(self.chance.getrandbits(64)))
        peer.calls = SimCalls(self, peer)
        peer.inbox.clear()
        peer.on_thaw.clear()
        peer.hits.clear()
        peer.timer_ms, peer.doom, peer.frozen = None, -1, 0
        peer.disk_told_bad = False
        kept = peer.storage.view
        values = tuple((key, kept.metas[key]) for key in sorted(kept.values))
        ceiling = kept.ceiling if peer.storage.durable else None
        forgot = peer.said_term > (ceiling or 0)
        self.tell(Up(self.now, peer.url, peer.boot, values, forgot, peer.clock.wall_ms(self.now), ceiling))
        self.give(peer, peer.storage.started(peer.boot))

    def crash(self, peer: SimPeer, *, wipe: bool = False) -> None:
        """The process ends at once; with `wipe`, its disk is lost."""
        if peer.machine is not None:
            peer.machine = None
            peer.calls.died()
            peer.inbox.clear()
            peer.on_thaw.clear()
            peer.storage.crash()
            self.tell(Down(self.now, peer.url, peer.boot))
        if wipe:
            peer.storage.wipe()

    def exits(self, peer: SimPeer, why: str) -> None:
        """The process ends itself (C4)."""
        self.count.faults["overrun"] = self.count.faults.get("overrun", 0) + 1
        if self.log is not None:
            self.log(self.now, peer.url, f"exits: {why}")
        self.crash(peer)
        self.on_exit(peer)

    def freeze(self, peer: SimPeer) -> Callable[[], None]:
        """No step until it is told to go on. Returns how to end it."""
        boot = peer.boot
        if peer.machine is None:
            return lambda: None
        peer.frozen += 1
        if peer.frozen == 1:
            self.tell(Frozen(self.now, peer.url, True))
            peer.calls.frozen()

        def thaw() -> None:
            if peer.boot == boot and peer.machine is not None and peer.frozen:
                peer.frozen -= 1
                if not peer.frozen:
                    self._thaw(peer)

        return thaw

    def _thaw(self, peer: SimPeer) -> None:
        """Timers, messages and coroutines that waited: in any order."""
        self.tell(Frozen(self.now, peer.url, False))
        peer.calls.thawed()
        parts: list[Callable[[SimPeer], None]] = [self._drain, _timers, self._due, self._woken]
        peer.chance.shuffle(parts)
        boot = peer.boot
        for part in parts:
            if peer.machine is not None and peer.boot == boot:
                part(peer)
        self._arm(peer)

    def _woken(self, peer: SimPeer) -> None:
        waiting, peer.on_thaw = peer.on_thaw, []
        for action in waiting:
            action()

    def _drain(self, peer: SimPeer) -> None:
        waiting, peer.inbox = peer.inbox, deque()
        for given in waiting:
            self.give(peer, given)

    def _due(self, peer: SimPeer) -> None:
        machine = peer.machine
        if machine is None or machine.deadline_ms is None:
            return
        if machine.deadline_ms <= peer.clock.local_ms(self.now):
            self.give(peer, TimerPassed())

    # --- steps --------------------------------------------------------------------------------------------------------

    def give(self, peer: SimPeer, given: Input) -> None:
        """One input to one machine, now; a frozen process finds it later."""
        if peer.machine is None:
            return
        if peer.frozen:
            if len(peer.inbox) < INBOX_MAX or type(given) not in (Received, inputs.Asked):
                peer.inbox.append(given)
            return
        waiting: deque[Input] = deque((given,))
        boot = peer.boot
        while waiting and peer.machine is not None and peer.boot == boot:
            one = waiting.popleft()
            self.note_input(peer, one)
            wall_ms = peer.clock.wall_ms(self.now)
            effects = peer.machine.step(peer.clock.local_ms(self.now), wall_ms, one)
            self.count.steps += 1
            if self.log is not None and type(one) is not TimerPassed:
                self.log(self.now, peer.url, f"<- {_plain(one)}")
            if effects:
                waiting.extend(self._perform(peer, one, effects, wall_ms))
        self._arm(peer)

    def note_input(self, peer: SimPeer, given: Input) -> None:
        """Before a machine hears of it."""
        if type(given) is CeilingStored:
            peer.disk_told_bad = not given.ok

    def _arm(self, peer: SimPeer) -> None:
        machine = peer.machine
        if machine is None or peer.frozen:
            return
        deadline_ms = machine.deadline_ms
        if deadline_ms is None or (peer.timer_ms is not None and peer.timer_ms <= deadline_ms):
            return
        peer.timer_ms = deadline_ms
        boot = peer.boot
        at_ms = max(self.now, peer.clock.true_ms(deadline_ms)) + peer.chance.random() * self.conditions.late_ms
        self.at(at_ms, lambda: self._timer(peer, boot, deadline_ms))

    def rearm(self, peer: SimPeer) -> None:
        """After a change of its clock's rate."""
        peer.timer_ms = None
        self._arm(peer)

    def _timer(self, peer: SimPeer, boot: int, deadline_ms: int) -> None:
        machine = peer.machine
        if machine is None or peer.boot != boot or peer.timer_ms != deadline_ms:
            return
        peer.timer_ms = None
        if peer.frozen:
            return  # it is armed again at the thaw
        wanted_ms = machine.deadline_ms
        if wanted_ms is not None and wanted_ms <= peer.clock.local_ms(self.now):
            self.give(peer, TimerPassed())
        else:
            self._arm(peer)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, peer: SimPeer, given: Input, effects: list[Effect], wall_ms: int) -> list[Input]:
        """In order; a crash may fall between any two. Returns what the machine is told at once."""
        back: list[Input] = []
        echoes: dict[tuple[str, bytes, bool], int] | None = {} if type(given) is Received else None
        boot = peer.boot
        for effect in effects:
            if peer.doom >= 0:
                if peer.doom == 0:
                    self.crash(peer, wipe=peer.chance.random() < self.wipes)
                    self.on_exit(peer)
                    return []
                peer.doom -= 1
            if self.log is not None:
                self.log(self.now, peer.url, f"   {_plain(effect)}")
            match effect:
                case Send(to, message):
                    self._send(peer, to, message, echoes)
                case SendEntry(to, message, meta):
                    found = peer.storage.read(message.key) if isinstance(message, Update) else None
                    if isinstance(message, Update) and found is not None and found[0] == meta.epoch:
                        self._send(peer, to, message._replace(value=found[1]), echoes)
                    elif isinstance(message, Update):
                        back.append(ValueGone(message.key, meta.epoch))
                case Give():
                    back += self._hand_over(peer, effect, wall_ms)
                case KeepAlive() | SeeOther() | Refuse() | Finished():
                    self._word(peer, effect)
                case Call():
                    peer.calls.start(effect, wall_ms)
                case Extend(key, ballot, cancel_at_ms, over_at_ms):
                    peer.calls.extend(key, ballot, cancel_at_ms, over_at_ms)
                case Cancel(key, ballot):
                    peer.calls.cancel(key, ballot)
                case Membership(members):
                    peer.members = members
                case Record():
                    pass
                case _:
                    self._write(peer, effect, wall_ms)
            if peer.machine is None or peer.boot != boot:
                return []
        if echoes and max(echoes.values()) > 1 and type(given) is Received:
            self.tell(Echoed(self.now, peer.url, type(given.message).__name__, max(echoes.values())))
        return back

    def _write(
        self,
        peer: SimPeer,
        effect: StoreEntry | StoreMeta | DropValue | Forget | StoreCeiling | StoreFloor | ForgetFloor,
        wall_ms: int,
    ) -> None:
        url = peer.url
        self._no_hit(peer, effect)
        match effect:
            case StoreEntry(key, meta, value):
                call = peer.calls.ended.get(key)
                mine = call is not None and b"%d" % call.number == value
                late_ms = peer.clock.local_ms(self.now) - call.over_at_ms if call is not None and mine else 0
                self.tell(ValueStored(self.now, url, key, meta, int(value or b"0"), wall_ms, late_ms))
            case StoreMeta(key, meta):
                self.tell(MetaStored(self.now, url, key, meta))
            case DropValue(key) | Forget(key):
                if peer.storage.read(key) is not None:
                    floors = tuple(peer.storage.view.floors.values())
                    meta = peer.storage.view.metas[key]
                    self.tell(ValueDropped(self.now, url, key, meta, wall_ms, floors))
            case StoreFloor(floor):
                self.tell(Floored(self.now, url, floor))
        boot = peer.boot

        def tell(given: CeilingStored | FloorStored) -> None:
            def later() -> None:
                if peer.boot == boot:
                    self.give(peer, given)

            self.after(0.0, later)

        peer.storage.write(effect, tell)

    def _no_hit(self, peer: SimPeer, effect: Effect) -> None:
        match effect:
            case StoreEntry(key) | DropValue(key) | Forget(key):
                peer.hits.pop(key, None)
            case StoreFloor(floor):
                for key in [key for key in peer.hits if covers(floor, key)]:
                    del peer.hits[key]

    def hit(self, peer: SimPeer, request: int, key: bytes, after_ms: int) -> bool:
        """A value that is known to be fresh is given without a step, as the driver does it."""
        machine, meta, found = peer.machine, peer.hits.get(key), peer.storage.read(key)
        if machine is None or peer.frozen or meta is None or found is None or found[0] != meta.epoch:
            return False
        wall_ms = peer.clock.wall_ms(self.now)
        if peer.clock.local_ms(self.now) >= machine.fresh_until_ms or meta.expire_ms <= max(wall_ms, after_ms):
            return False
        self.tell(Given(self.now, peer.url, request, key, meta, int(found[1] or b"0"), True, True, after_ms, wall_ms))
        self.on_answer(peer, Give(request, key, meta, False))
        return True

    def _hand_over(self, peer: SimPeer, given: Give, wall_ms: int) -> list[Input]:
        found = peer.storage.read(given.key)
        if found is None or found[0] != given.meta.epoch:
            return [ValueGone(given.key, given.meta.epoch), *self.asked_again(given.request)]
        number = int(found[1] or b"0")
        if not given.stale:
            peer.hits[given.key] = given.meta
        asked = self.after_of(given.request)
        self.tell(
            Given(self.now, peer.url, given.request, given.key, given.meta, number, not given.stale, *asked, wall_ms)
        )
        self.on_answer(peer, given)
        return []

    def after_of(self, request: int) -> tuple[bool, int]:  # noqa: ARG002
        """Whether this client asked for a fresh value, and the expiry that it asked for; the clients know."""
        return False, 0

    def _word(self, peer: SimPeer, effect: KeepAlive | SeeOther | Refuse | Finished) -> None:
        ok, missing = (effect.ok, effect.missing) if isinstance(effect, Finished) else (False, ())
        self.tell(Word(self.now, peer.url, effect.request, type(effect).__name__, ok, missing))
        if isinstance(effect, SeeOther) and effect.miss:
            key = self.key_of(effect.request)
            meta = peer.storage.view.metas.get(key)
            if meta is not None and peer.storage.read(key) is not None:
                self.tell(Missed(self.now, peer.url, key, meta))
        self.on_answer(peer, effect)

    def asked_again(self, request: int) -> list[Input]:  # noqa: ARG002
        """The request of a value that could not be read."""
        return []

    def key_of(self, request: int) -> bytes:  # noqa: ARG002
        return b""

    # --- the network --------------------------------------------------------------------------------------------------

    def _send(
        self, peer: SimPeer, to: str, message: Message, echoes: dict[tuple[str, bytes, bool], int] | None
    ) -> None:
        self._check_order(peer, to, message)
        receivers = [url for url in self.peers if url != peer.url] if to == ALL else [to]
        self._spend(peer, len(receivers))
        for url in receivers:
            if echoes is not None:
                subject = (url, *subject_of(message))
                echoes[subject] = echoes.get(subject, 0) + 1
            if url in self.peers:
                self._one(peer.url, self.peers[url], message)

    def _spend(self, peer: SimPeer, messages: int) -> None:
        """Messages of one peer are bounded by rate and burst (E2)."""
        self.count.sent += messages
        passed_s = (self.now - peer.budget_at_ms) / 1_000
        peer.budget = max(0.0, peer.budget - passed_s * self.pace_per_s if passed_s else peer.budget) + messages
        peer.budget_at_ms = self.now
        if peer.budget > self.pace_at_once:
            pace = f"{self.pace_per_s:.0f} a second and {self.pace_at_once:.0f} at once"
            raise Overrun(f"{peer.url} sends more messages than {pace}")

    def _one(self, sender: str, to: SimPeer, message: Message) -> None:
        conditions, chance = self.conditions, self.chance
        if (sender, to.url) in self.cut:
            return
        if conditions.loss and chance.random() < conditions.loss:
            return
        copies = 2 if conditions.repeat and chance.random() < conditions.repeat else 1
        for _ in range(copies):
            delay_ms = conditions.delay_min_ms + chance.random() * conditions.delay_span_ms
            if conditions.far and chance.random() < conditions.far:
                delay_ms += chance.random() * conditions.far_ms
            self.after(delay_ms, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: str, to: SimPeer, message: Message) -> None:
        if to.machine is not None and any(sender == address.url for address in to.members):
            self.give(to, Received(sender, message))

    def _check_order(self, peer: SimPeer, to: str, message: Message) -> None:
        """What a message relies on is durable before it leaves (C2, C11), if the storage works."""
        match message:
            case Ack(key, trailer):
                promise_ms = self.promise_ms / 1.01
                self.tell(Acked(self.now, peer.url, key, trailer.ballot, promise_ms))
                self._check_ceiling(peer, trailer.ballot.term, "an ack")
            case Acks(keys, trailer):
                for key, term, _ in keys:
                    ballot = Ballot(term, to, trailer.echo)
                    self.tell(Acked(self.now, peer.url, key, ballot, self.promise_ms / 1.01))
                    self._check_ceiling(peer, term, "an ack")
            case Answer(vote=True, trailer=trailer) if trailer is not None:
                self._check_ceiling(peer, trailer.ballot.term, "a yes")
            case Question(trailer=trailer) if trailer is not None:
                self._check_ceiling(peer, trailer.ballot.term, "a question")
            case FloorAck(floor=floor):
                if peer.storage.durable and not peer.storage.has_floor(floor):
                    self.tell(
                        BadOrder(self.now, peer.url, f"a floor of term {floor.term} was acked before it was kept")
                    )
            case Answer(key, trailer=trailer) if trailer is not None and trailer.ended:
                self.tell(Ended(self.now, peer.url, key, trailer.ballot))
            case Update(key, trailer=trailer) if trailer is not None and trailer.ballot.peer == peer.url:
                self.tell(Ended(self.now, peer.url, key, trailer.ballot))

    def _check_ceiling(self, peer: SimPeer, term: int, what: str) -> None:
        peer.said_term = max(peer.said_term, term)
        if not peer.storage.durable or peer.disk_told_bad:
            return
        ceiling = peer.storage.disk.ceiling
        if ceiling is None or ceiling < term:
            self.tell(
                BadOrder(self.now, peer.url, f"{what} in term {term} left before the ceiling was kept ({ceiling})")
            )


def _timers(peer: SimPeer) -> None:
    peer.calls.timers()


def _nobody(_peer: SimPeer, _effect: Effect) -> None:
    """Nobody asked."""


def _nobody_exits(_peer: SimPeer) -> None:
    """Nobody starts it again."""


def _plain(thing: Any) -> str:
    return repr(thing)
