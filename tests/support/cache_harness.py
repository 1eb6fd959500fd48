"""A few cache peers of mode `own` on one table: for tests of single rules, schedules written by hand, and transcripts.

True time is one counter in milliseconds; each peer's clocks are read from it. Every message takes one millisecond, in
order, unless a link is cut or held. Storage answers after a millisecond, a source when its time has passed. Nothing is
random but the machine's own jitter. What happens is written down in lines a reader understands.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import Any

from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.model import ALL, CacheSettings, Failure, Fetched, Floor, Meta, PeerAddress, SourceSettings
from primacy.cache.own import OwnMachine

WALL_MS = 1_700_000_000_000
KEY = b"k"
SETTINGS = CacheSettings(sources=(SourceSettings(ttl_ms=60_000),))


def addresses(names: str) -> tuple[PeerAddress, ...]:
    return tuple(PeerAddress(name, f"api-{name}") for name in names.split())


@dataclass
class Disk:
    """What a restart finds."""

    metas: dict[bytes, Meta] = field(default_factory=dict)
    values: dict[bytes, tuple[Meta, bytes]] = field(default_factory=dict)
    floors: dict[tuple[bytes, bool], Floor] = field(default_factory=dict)
    ceiling: int | None = None
    full: bool = False


@dataclass
class Running:
    """A call of a source."""

    ballot: Any
    started_ms: int
    cancel_at_ms: int
    over_at_ms: int


class Harness:
    """Peers, links, disks, sources and clients."""

    def __init__(
        self,
        names: str = "a b c",
        settings: CacheSettings = SETTINGS,
        machine: type[OwnMachine] = OwnMachine,
        calm: bool = True,
    ) -> None:
        self.names = names.split()
        self.settings = settings
        self.machine = machine
        self.now = 0
        self.queue: list[tuple[int, int, str, int, Any]] = []
        self.number = 0
        self.boots = 0
        self.alive: dict[str, int] = {}
        self.peers: dict[str, OwnMachine] = {}
        self.disks = {name: Disk() for name in self.names}
        self.lists = dict.fromkeys(self.names, names)
        self.skew = dict.fromkeys(self.names, 0)
        self.cuts: set[tuple[str, str]] = set()
        self.held: dict[tuple[str, str, type], list[says.Message]] = {}
        self.holding: set[tuple[str, str, type]] = set()
        self.frozen: set[str] = set()
        self.thawing: dict[str, list[Any]] = {}
        self.running: dict[tuple[str, bytes], Running] = {}
        self.calls: list[tuple[int, str, bytes, Any]] = []
        self.overlaps: list[str] = []
        self.source_ms: int | None = 50
        self.source_fails = ""
        self.source_ttl_ms: int | None = None
        self.fetched = 0
        self.answers: dict[int, tuple[str, Any]] = {}
        self.finished: dict[int, does.Finished] = {}
        self.events: list[tuple[str, str]] = []
        self.sent: list[tuple[int, str, str, says.Message]] = []
        self.lines: list[str] = []
        self.requests = 0
        for name in self.names:
            self.start(name)
        if calm:
            self.run(700)
            self.lines.clear()
            self.sent.clear()

    # --- time ---------------------------------------------------------------------------------------------------------

    def wall(self, name: str) -> int:
        return WALL_MS + self.now + self.skew[name]

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        end = self.now + for_ms
        while True:
            due = [(m.deadline_ms, name) for name, m in self.peers.items() if name not in self.frozen]
            timer_ms, timer_name = min(due, default=(end + 1, ""))
            next_ms = self.queue[0][0] if self.queue else end + 1
            if min(timer_ms, next_ms) > end:
                break
            if next_ms <= timer_ms:
                self.now = max(self.now, next_ms)
                _, _, name, boot, given = heapq.heappop(self.queue)
                if self.alive.get(name) == boot:
                    self.tell(name, given)
            else:
                self.now = max(self.now, timer_ms)
                self.tell(timer_name, told.TimerPassed())
        self.now = end

    def later(self, after_ms: int, name: str, given: Any) -> None:
        self.number += 1
        heapq.heappush(self.queue, (self.now + after_ms, self.number, name, self.alive.get(name, 0), given))

    def tell(self, name: str, given: Any) -> list[does.Effect]:
        if name in self.frozen:
            self.thawing[name].append(given)
            return []
        if isinstance(given, _Ending):
            run = self.running.get((name, given.ended.key))
            if run is None or run.ballot != given.ended.ballot:
                return []
            del self.running[name, given.ended.key]
            given = given.ended
        effects = self.peers[name].step(self.now, self.wall(name), given)
        for effect in effects:
            self._perform(name, effect)
        return effects

    # --- peers --------------------------------------------------------------------------------------------------------

    def start(self, name: str, *, forgets: bool = False, full: bool = False) -> None:
        if forgets:
            self.disks[name] = Disk()
        disk = self.disks[name]
        disk.full = full
        self.boots += 1
        self.alive[name] = self.boots
        self.peers[name] = self.machine(name, addresses(self.lists[name]), self.settings, Random(name))
        floors = tuple(disk.floors.values())
        self.say(f"{name} starts" + (" without memory" if disk.ceiling is None else ""))
        self.tell(name, told.Started(self.boots, dict(disk.metas), floors, disk.ceiling))

    def join(self, name: str, names: str) -> None:
        """A peer that was not there before starts, with this list."""
        self.names.append(name)
        self.disks[name] = Disk()
        self.lists[name] = names
        self.skew[name] = 0
        self.start(name)

    def kill(self, name: str) -> None:
        """Nothing of it goes on: its source is dead as well."""
        self.say(f"{name} is killed")
        self.alive.pop(name)
        self.peers.pop(name)
        self.frozen.discard(name)
        for key in [key for key in self.running if key[0] == name]:
            del self.running[key]

    def freeze(self, name: str) -> None:
        self.say(f"{name} is frozen")
        self.frozen.add(name)
        self.thawing[name] = []

    def thaw(self, name: str) -> None:
        self.say(f"{name} goes on")
        self.frozen.discard(name)
        for given in self.thawing.pop(name):
            self.tell(name, given)

    def cut(self, *groups: str) -> None:
        """Names of different groups do not hear each other."""
        self.say("cut " + " | ".join(groups))
        for one in groups:
            for other in groups:
                if one != other:
                    self.cuts |= {(x, y) for x in one.split() for y in other.split()}

    def heal(self) -> None:
        self.say("all links are whole")
        self.cuts.clear()

    def hold(self, sender: str, receiver: str, kind: type) -> None:
        """Messages of this kind wait on this link until `release`."""
        self.holding.add((sender, receiver, kind))
        self.held.setdefault((sender, receiver, kind), [])

    def release(self, sender: str, receiver: str, kind: type, keep: bool = True) -> None:
        self.holding.discard((sender, receiver, kind))
        for message in self.held.pop((sender, receiver, kind), []):
            if keep:
                self.later(1, receiver, told.Received(sender, message))

    # --- clients ------------------------------------------------------------------------------------------------------

    def ask(self, name: str, key: bytes = KEY, **how: Any) -> int:
        self.requests += 1
        self.say(f"a client asks {name} for {key.decode()}")
        self.tell(name, told.Asked(self.requests, key, **how))
        return self.requests

    def order(self, name: str, kind: type, *args: Any, **how: Any) -> int:
        self.requests += 1
        what = args[0].decode() if isinstance(args[0], bytes) else " ".join(peer.url for peer in args[0])
        self.say(f"{name} is told: {kind.__name__.lower()} {what}")
        self.tell(name, kind(self.requests, *args, **how))
        return self.requests

    def got(self, request: int) -> str:
        """What a client was told: fresh, stale, other, miss, refused, or waits."""
        return self.answers.get(request, ("waits", None))[0]

    def value(self, request: int) -> bytes | None:
        return self.answers.get(request, ("", None))[1]

    # --- effects ------------------------------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        self.lines.append(f"{self.now:6} {line}")

    def _perform(self, name: str, effect: does.Effect) -> None:
        match effect:
            case does.Send(to, message):
                self._send(name, to, message)
            case does.SendEntry(to, message, meta):
                stored = self.disks[name].values.get(message.key)
                if stored is None or stored[0].epoch != meta.epoch:
                    self.later(0, name, told.ValueGone(message.key, meta.epoch))
                else:
                    self._send(name, to, message._replace(value=stored[1]))  # type: ignore[call-arg]
            case does.StoreEntry(key, meta, value):
                self.disks[name].values[key] = (meta, value)
                self.disks[name].metas[key] = meta
            case does.StoreMeta(key, meta) | does.DropValue(key, meta):
                self.disks[name].metas[key] = meta
                if isinstance(effect, does.DropValue):
                    self.disks[name].values.pop(key, None)
            case does.Forget(key):
                self.disks[name].values.pop(key, None)
                self.disks[name].metas.pop(key, None)
            case does.StoreCeiling(ceiling):
                if not self.disks[name].full:
                    self.disks[name].ceiling = ceiling
                self.later(1, name, told.CeilingStored(ceiling, not self.disks[name].full))
            case does.StoreFloor(floor):
                if not self.disks[name].full:
                    self.disks[name].floors[floor.key, floor.prefix] = floor
                self.later(1, name, told.FloorStored(floor, not self.disks[name].full))
            case does.ForgetFloor(floor):
                self.disks[name].floors.pop((floor.key, floor.prefix), None)
            case does.Call() | does.Extend() | does.Cancel():
                self._source(name, effect)
            case does.Membership(peers):
                self.lists[name] = " ".join(peer.url for peer in peers)
            case does.Record(event):
                self.events.append((name, event))
            case _:
                self._answer(name, effect)

    def _answer(self, name: str, effect: does.Effect) -> None:
        match effect:
            case does.Give(request, key, meta, stale):
                stored = self.disks[name].values.get(key)
                if stored is None or stored[0].epoch != meta.epoch:
                    self.later(0, name, told.ValueGone(key, meta.epoch))
                    self.later(0, name, told.Asked(request, key))
                    return
                word = "stale" if stale else "fresh"
                self._close(request, word, stored[1])
                self.say(f"{name} gives {key.decode()}: {stored[1].decode()}, {word}")
            case does.SeeOther(request, miss):
                self._close(request, "miss" if miss else "other", None)
                self.say(f"{name} sends the client elsewhere")
            case does.Refuse(request, reason):
                self._close(request, "refused", reason.encode())
                self.say(f"{name} refuses: {reason}")
            case does.KeepAlive():
                pass
            case does.Finished(request, ok, reason, missing):
                self.finished[request] = effect
                self.say(f"{name} is done: {'ok' if ok else reason}" + (f", without {missing}" if missing else ""))

    def _close(self, request: int, word: str, value: Any) -> None:
        assert request not in self.answers, f"request {request} was answered twice"
        self.answers[request] = (word, value)

    def _send(self, sender: str, to: str, message: says.Message) -> None:
        others = self.peers[sender].members.others
        for receiver in others if to == ALL else (to,):
            self.sent.append((self.now, sender, receiver, message))
            key = (sender, receiver, type(message))
            if (sender, receiver) in self.cuts or receiver not in self.alive:
                continue
            if key in self.holding:
                self.held[key].append(message)
            else:
                self.later(1, receiver, told.Received(sender, message))
        if not isinstance(message, says.Ping | says.Pong):
            self.say(f"{sender} to {'all' if to == ALL else to}: {described(message)}")

    def _source(self, name: str, effect: does.Call | does.Extend | does.Cancel) -> None:
        where = (name, effect.key)
        if isinstance(effect, does.Call):
            for (other, key), run in self.running.items():
                if key == effect.key and other != name and self.now < run.over_at_ms:  # then its kernel timer ends it
                    self.overlaps.append(f"{self.now}: {name} and {other} source {key.decode()}")
            self.running[where] = Running(effect.ballot, self.now, effect.cancel_at_ms, effect.over_at_ms)
            self.calls.append((self.now, name, effect.key, effect.ballot))
            self.say(f"{name} calls the source for {effect.key.decode()}")
            if self.source_ms is not None:
                self._end_later(self.source_ms, name, effect)
        elif isinstance(effect, does.Extend):
            if where in self.running:
                self.running[where].over_at_ms = effect.over_at_ms
        else:
            self.say(f"{name} cancels its call for {effect.key.decode()}")
            if where in self.running:
                self.running.pop(where)
                self.later(1, name, told.SourceEnded(effect.key, effect.ballot, Failure("cancelled")))

    def _end_later(self, after_ms: int, name: str, call: does.Call) -> None:
        self.fetched += 1
        value = f"v{self.fetched}".encode()
        result = Failure(self.source_fails) if self.source_fails else Fetched(value, self.source_ttl_ms)
        self.later(after_ms, name, _Ending(told.SourceEnded(call.key, call.ballot, result)))

    def end_call(self, name: str, key: bytes = KEY, value: bytes = b"v", ttl_ms: int | None = None) -> None:
        """The source of this peer answers now."""
        run = self.running.pop((name, key))
        self.tell(name, told.SourceEnded(key, run.ballot, Fetched(value, ttl_ms)))


@dataclass
class _Ending:
    """A source ends by itself, if its call was not cancelled before."""

    ended: told.SourceEnded


def described(message: says.Message) -> str:
    """A message in words."""
    trailer = message.trailer
    assert trailer is not None
    key = getattr(message, "key", b"").decode()
    term = f"term {trailer.ballot.term - WALL_MS}"
    match message:
        case says.Question():
            need = f", need {trailer.need - WALL_MS}" if WALL_MS < trailer.need < 2 * WALL_MS else ""
            return f"may I fetch {key}? ({term}{need})"
        case says.Answer(vote=True):
            return f"yes ({term})"
        case says.Answer() if trailer.ended:
            return f"my ballot for {key} is over ({term})" + (f", rest {trailer.wait_ms} ms" if trailer.wait_ms else "")
        case says.Answer():
            if trailer.floor:
                return f"no: {term} is at or below the floor {trailer.floor - WALL_MS}"
            if trailer.epoch.term:
                return f"no: I have a fresh copy, epoch {trailer.epoch.term - WALL_MS}"
            return f"no, for {trailer.wait_ms} ms ({term}, known {message.term - WALL_MS})"
        case says.Announce():
            return f"announce {trailer.number} of {key} ({term})"
        case says.Ack():
            return f"ack {trailer.number} ({term})"
        case says.Announces():
            return "announce again: " + ", ".join(one.key.decode() for one in message.keys)
        case says.Acks():
            return "ack again: " + ", ".join(one.key.decode() for one in message.keys)
        case says.Update():
            return f"value of {key}: {message.value.decode()}, epoch {trailer.epoch.term - WALL_MS}"
        case says.EntryRequest():
            return f"send me {key}"
        case says.FloorQuery():
            return f"what is the highest term of {key}?"
        case says.FloorAnswer():
            return f"the highest term of {key} is {message.term - WALL_MS}"
        case says.FloorSet():
            return f"floor of {message.floor.key.decode()}: {message.floor.term - WALL_MS}"
        case says.FloorAck():
            return f"stored floor {message.floor.term - WALL_MS}"
        case says.FloorsRequest():
            return "send me your floors"
        case says.Floors():
            return f"{len(message.floors)} floors"
    return type(message).__name__
