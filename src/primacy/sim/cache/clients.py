"""Simulated clients of the cache: they ask any peer, wait, ask the next one, and give up at their deadline.

As the real client does it: 500 ms to the first word, 2,000 ms after each keep-alive, one absolute deadline over
everything. Other clients invalidate, refresh and put.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from primacy.cache import inputs
from primacy.cache.effects import Effect, Finished, Give, KeepAlive, Refuse, SeeOther
from primacy.cache.model import PeerAddress
from primacy.sim.cache.facts import Asked, ClientDone, Ordered, PutBrought, Withdrew
from primacy.sim.cache.peer import SimPeer
from primacy.sim.cache.world import Build, CacheWorld

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_WORD_MS = 500.0
NEXT_WORD_MS = 2_000.0
AGAIN_MS = 30.0
"""Between a SEEOTHER and the next attempt, growing with each."""
AGAIN_MAX_MS = 240.0
WITHDRAWS = 0.7
HITS = 0.5
"""Requests that are given what is known to be fresh without a step; the others make one, so that both ways are seen."""


@dataclass(slots=True)
class Request:
    """One request that reached a machine, or is on its way."""

    number: int
    key: bytes
    heard: Callable[[Effect], None]
    until_ms: float = float("inf")
    """True time."""
    boot: int = 0
    wanted: bool = False
    after_ms: int = 0
    """What it asks for, no later than its peer's wall clock at that time."""
    asked: inputs.Asked | None = None


class ClientWorld(CacheWorld):
    """The world with its clients."""

    def __init__(self, seed: str, build: Build) -> None:
        super().__init__(seed, build)
        self.client_chance = Random(f"clients/{seed}")
        self.requests: dict[int, Request] = {}
        self._numbers = 0
        self.gets_done = 0
        self.gets_failed = 0
        self.apis: list[str] = []
        """What clients know: the peers of the present list."""
        self.on_answer = self._answered

    def after_of(self, request: int) -> tuple[bool, int]:
        known = self.requests.get(request)
        return (False, 0) if known is None else (known.wanted, known.after_ms)

    def asked_again(self, request: int) -> list[inputs.Input]:
        known = self.requests.get(request)
        return [] if known is None or known.asked is None else [known.asked]

    def key_of(self, request: int) -> bytes:
        known = self.requests.get(request)
        return b"" if known is None else known.key

    def new_request(self, key: bytes, heard: Callable[[Effect], None], until_ms: float) -> Request:
        self._numbers += 1
        request = self.requests[self._numbers] = Request(self._numbers, key, heard, until_ms)
        return request

    def note_input(self, peer: SimPeer, given: inputs.Input) -> None:
        """What clients want becomes a fact when a machine hears of it."""
        match given:
            case inputs.Asked(number, key, after_ms) if number in self.requests:
                request = self.requests[number]
                if request.asked is None:
                    wall_ms = peer.clock.wall_ms(self.now)
                    request.asked, request.after_ms, request.wanted = given, min(after_ms, wall_ms), after_ms >= wall_ms
                self.tell(Asked(self.now, peer.url, number, key, request.until_ms))
            case inputs.Withdrawn(number):
                self.tell(Withdrew(self.now, peer.url, number))
            case inputs.Invalidate(number, key, prefix):
                self._ordered(peer, number, "invalidate", key, prefix)
            case inputs.Refresh(number, key):
                self._ordered(peer, number, "refresh", key, False)
            case inputs.Put(number, key, value, ttl_ms):
                self.tell(PutBrought(self.now, peer.url, key, int(value), ttl_ms))
                self._ordered(peer, number, "put", key, False)
            case inputs.Reload(number):
                self._ordered(peer, number, "reload", b"", False)
            case _:
                super().note_input(peer, given)

    def _ordered(self, peer: SimPeer, number: int, what: str, key: bytes, prefix: bool) -> None:
        self.tell(Ordered(self.now, peer.url, number, what, key, prefix, self.requests[number].until_ms))

    def way_ms(self) -> float:
        return 0.1 + self.client_chance.random()

    def _answered(self, peer: SimPeer, effect: Effect) -> None:
        assert isinstance(effect, Give | KeepAlive | SeeOther | Refuse | Finished)
        request = self.requests.get(effect.request)
        if request is None:
            return  # an answer to nobody: the checker has heard of it
        if not isinstance(effect, KeepAlive):
            del self.requests[effect.request]
        heard = request.heard
        if request.boot == peer.boot:
            self.after(self.way_ms(), lambda: heard(effect))

    # --- what clients do ----------------------------------------------------------------------------------------------

    def get(self, key: bytes, *, fresh: bool, within_ms: float, first: str, fetch: bool = True) -> Get:
        one = Get(self, key, fresh, within_ms, first, fetch)
        one.attempt()
        return one

    def order(
        self,
        what: str,
        peer: SimPeer,
        key: bytes,
        within_ms: float,
        *,
        prefix: bool = False,
        ttl_ms: int = 1_000,
        heard: Callable[[Effect], None] | None = None,
    ) -> None:
        """An invalidate, refresh or put."""
        until = self.now + within_ms
        request = self.new_request(key, heard or _ignore, until)

        def arrive() -> None:
            if peer.machine is None:
                return
            request.boot = peer.boot
            until_ms = peer.clock.local_ms(until)
            given: inputs.Input
            if what == "invalidate":
                given = inputs.Invalidate(request.number, key, prefix, until_ms)
            elif what == "refresh":
                given = inputs.Refresh(request.number, key, until_ms)
            else:
                given = inputs.Put(request.number, key, b"%d" % self.new_value(), ttl_ms, until_ms)
            self.give(peer, given)

        self.after(self.way_ms(), arrive)

    def reload(self, peer: SimPeer, peers: tuple[PeerAddress, ...], heard: Callable[[Finished], None]) -> None:
        """The operator tells one peer that its file has changed."""

        def told(effect: Effect) -> None:
            if isinstance(effect, Finished):
                heard(effect)

        request = self.new_request(b"", told, float("inf"))
        request.boot = peer.boot
        self.give(peer, inputs.Reload(request.number, peers))


class Get:
    """One `get` of a client, over all its attempts."""

    def __init__(self, world: ClientWorld, key: bytes, fresh: bool, within_ms: float, first: str, fetch: bool) -> None:
        self.world = world
        self.key = key
        self.fresh = fresh
        self.fetch = fetch
        self.asked_ms = world.now
        self.deadline_ms = world.now + within_ms
        self.skew_ms = int(world.client_chance.uniform(-1_500, 1_500))
        self.place = world.apis.index(first) if first in world.apis else 0
        self.attempts = 0
        self.over = False
        self.request: Request | None = None
        self.peer: SimPeer | None = None
        self._words = 0
        world.at(self.deadline_ms, lambda: self._end(-1, "deadline"))

    def attempt(self) -> None:
        world = self.world
        if self.over:
            return
        urls = world.apis
        peer = self.peer = world.peers[urls[(self.place + self.attempts) % len(urls)]]
        self.attempts += 1
        request = self.request = world.new_request(
            self.key, lambda effect: self._heard(request, effect), self.deadline_ms
        )
        world.after(world.way_ms(), lambda: self._arrive(peer, request))
        self._patience(FIRST_WORD_MS)

    def _arrive(self, peer: SimPeer, request: Request) -> None:
        world = self.world
        if peer.machine is None:
            return
        request.boot = peer.boot
        wall_ms = peer.clock.wall_ms(world.now)
        after_ms = wall_ms + self.skew_ms if self.fresh else 0
        until_ms = peer.clock.local_ms(self.deadline_ms)
        if world.client_chance.random() < HITS and world.hit(peer, request.number, self.key, min(after_ms, wall_ms)):
            return
        world.give(peer, inputs.Asked(request.number, self.key, after_ms, self.fetch, False, until_ms))

    def _patience(self, wait_ms: float) -> None:
        """Gives up on this attempt unless there is another word in time."""
        self._words += 1
        words = self._words

        def tired() -> None:
            if not self.over and self._words == words:
                self._leave()
                self.attempt()

        self.world.after(wait_ms, tired)

    def _heard(self, request: Request, effect: Effect) -> None:
        if self.over:
            return
        match effect:
            case Give():
                self._end(1, "given")  # also a late answer to an earlier attempt of the same call
            case Refuse():
                if request is self.request:
                    self._end(-1, "refused")
            case KeepAlive():
                if request is self.request:
                    self._patience(NEXT_WORD_MS)
            case SeeOther(miss=miss):
                if request is self.request:
                    self._elsewhere(miss)

    def _elsewhere(self, miss: bool) -> None:
        if miss:
            self._end(-1, "miss")
            return
        self.request = None
        self._words += 1
        pause_ms = min(AGAIN_MAX_MS, AGAIN_MS * 2 ** min(self.attempts // len(self.world.apis), 8))
        self.world.after(pause_ms * self.world.client_chance.random(), self.attempt)

    def _leave(self) -> None:
        """The peer is told that nobody waits, or not."""
        world, request, peer = self.world, self.request, self.peer
        self.request = None
        if request is None or peer is None or world.client_chance.random() > WITHDRAWS:
            return

        def arrive() -> None:
            if peer.machine is not None and peer.boot == request.boot and request.number in world.requests:
                world.give(peer, inputs.Withdrawn(request.number))

        world.after(world.way_ms(), arrive)

    def _end(self, number: int, outcome: str) -> None:
        if self.over:
            return
        self.over = True
        world = self.world
        if outcome == "given":
            world.gets_done += 1
        else:
            world.gets_failed += 1
            self._leave()
        world.tell(ClientDone(world.now, self.key, self.asked_ms, self.deadline_ms, number, outcome))


def _ignore(_effect: Effect) -> None:
    """Its outcome is a fact already."""
