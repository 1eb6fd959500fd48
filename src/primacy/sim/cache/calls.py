"""The sources of one simulated cache peer: calls that are quick, slow, failing or hanging, and how they end.

Two kinds. A *child* is a process: its kernel timer kills it at the hold's end, also while its peer is frozen. A
*coroutine* is frozen with its peer; one that outlives its cancel until `over_at_ms` ends the process (C4). Whether
something of a call runs is told as facts, in true time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from primacy.cache.effects import Call
from primacy.cache.inputs import SourceEnded
from primacy.cache.model import Ballot, Failure, Fetched
from primacy.sim.cache.facts import CallBegan, CallCounts, CallOver, LateExtend

if TYPE_CHECKING:
    from primacy.sim.cache.peer import SimPeer
    from primacy.sim.cache.world import CacheWorld

KILL_MS = 30.0
"""A child that is killed, or a coroutine that is cancelled, is usually gone within this."""
TIMER_MS = 2
"""The kernel's timer may be late by this, on the clock of its machine."""
EXITS_AT_THAW = 0.3
"""A process that wakes up behind the hold of a call may end itself before the call can say anything."""


class Temper(NamedTuple):
    """How sources behave at the moment. Shares are of all calls."""

    quick_ms: float = 100.0
    slow_ms: float = 2_000.0
    slow: float = 0.0
    hangs: float = 0.0
    fails: float = 0.0
    missing: float = 0.0
    stubborn: float = 0.0
    """Outlive their cancel for up to twice the rest of the hold (coroutines)."""
    races: float = 0.0
    """Of the cancelled ones: have their result at that very moment."""
    own_ttl: float = 0.5
    """Results that say their own ttl."""
    ttl_min_ms: int = 200
    ttl_max_ms: int = 4_000


CALM = Temper(own_ttl=0.0)


@dataclass(slots=True)
class SimCall:
    """One call."""

    number: int
    key: bytes
    ballot: Ballot
    child: bool
    cancel_at_ms: int
    over_at_ms: int
    result: Fetched | Failure
    stubborn: bool
    cancelled: bool = False
    fenced: bool = False
    over: bool = False


class SimCalls:
    """Of one process: gone with it."""

    def __init__(self, world: CacheWorld, peer: SimPeer) -> None:
        self.world = world
        self.peer = peer
        self.chance: Random = peer.chance
        self.running: dict[tuple[bytes, Ballot], SimCall] = {}
        self.ended: dict[bytes, SimCall] = {}
        """The last call of each key that is over."""

    # --- what the machine asks for ------------------------------------------------------------------------------------

    def start(self, asked: Call, wall_ms: int) -> None:
        world, temper, chance = self.world, self.world.temper, self.chance
        number = world.new_value()
        ttl_ms = None
        if chance.random() < temper.own_ttl:
            ttl_ms = int(chance.uniform(temper.ttl_min_ms, temper.ttl_max_ms))
        result: Fetched | Failure = Fetched(b"%d" % number, ttl_ms)
        lasts_ms = chance.random() * temper.quick_ms
        drawn = chance.random()
        if drawn < temper.hangs:
            lasts_ms, result = world.limit_ms, Failure("the source did not answer in time")
        elif drawn < temper.hangs + temper.slow:
            lasts_ms = chance.random() * min(temper.slow_ms, world.limit_ms)
        elif drawn < temper.hangs + temper.slow + temper.fails:
            result = Failure("the source says no", missing=chance.random() < temper.missing)
        call = SimCall(
            number,
            asked.key,
            asked.ballot,
            self.peer.children,
            asked.cancel_at_ms,
            asked.over_at_ms,
            result,
            chance.random() < temper.stubborn,
        )
        ttl_told = world.ttl_ms if ttl_ms is None else ttl_ms
        world.tell(CallBegan(world.now, self.peer.url, asked.key, asked.ballot, number, wall_ms, ttl_told))
        self.running[asked.key, asked.ballot] = call
        world.after(lasts_ms, lambda: self._finished(call))
        self._arm(call)

    def extend(self, key: bytes, ballot: Ballot, cancel_at_ms: int, over_at_ms: int) -> None:
        call = self.running.get((key, ballot))
        if call is None:
            return
        if self.peer.clock.local_ms(self.world.now) >= call.cancel_at_ms:
            self.world.tell(LateExtend(self.world.now, self.peer.url, key))
        if not call.cancelled and not call.fenced:
            call.cancel_at_ms = max(call.cancel_at_ms, cancel_at_ms)
            call.over_at_ms = max(call.over_at_ms, over_at_ms)

    def cancel(self, key: bytes, ballot: Ballot) -> None:
        call = self.running.get((key, ballot))
        if call is not None:
            self._cancel(call)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, call: SimCall) -> None:
        """The next moment of this call: its cancel, then its end."""
        world, clock = self.world, self.peer.clock
        at_ms = call.over_at_ms + TIMER_MS if call.cancelled else call.cancel_at_ms
        world.at(max(world.now, clock.true_ms(at_ms)), lambda: self._timer(call))

    def _timer(self, call: SimCall) -> None:
        if call.over:
            return
        local_ms = self.peer.clock.local_ms(self.world.now)
        if call.child and local_ms >= call.over_at_ms:
            self._over(call, Failure("killed at the end of the hold"))
        elif self.peer.frozen:
            if call.child:
                at_ms = self.peer.clock.true_ms(call.over_at_ms)
                self.world.at(max(self.world.now, at_ms), lambda: self._timer(call))
        elif call.cancelled or (local_ms >= call.over_at_ms and self.chance.random() < EXITS_AT_THAW):
            self._overrun(call, local_ms)
        elif local_ms >= call.cancel_at_ms:
            self._cancel(call)
        else:
            self._arm(call)

    def _overrun(self, call: SimCall, local_ms: int) -> None:
        if local_ms >= call.over_at_ms:
            self.world.exits(self.peer, "a call outlived its hold")
        else:
            self._arm(call)

    def _cancel(self, call: SimCall) -> None:
        if call.cancelled or call.over:
            return
        call.cancelled = True
        chance = self.chance
        result: Fetched | Failure = Failure("cancelled")
        if chance.random() < self.world.temper.races and isinstance(call.result, Fetched):
            result = call.result
        rest_ms = max(0, call.over_at_ms - self.peer.clock.local_ms(self.world.now))
        takes_ms = chance.random() * min(KILL_MS, rest_ms)
        if call.stubborn and not call.child:
            takes_ms = chance.random() * 2 * rest_ms
        self.world.after(takes_ms, lambda: self._finished(call, result))
        self._arm(call)

    def _finished(self, call: SimCall, result: Fetched | Failure | None = None) -> None:
        if call.over:
            return
        if self.peer.frozen and not call.child:
            self.peer.on_thaw.append(lambda: self._finished(call, result))
            return
        self._over(call, call.result if result is None else result)

    def _over(self, call: SimCall, result: Fetched | Failure) -> None:
        self._gone(call)
        self.world.give(self.peer, SourceEnded(call.key, call.ballot, result))

    def _gone(self, call: SimCall) -> None:
        call.over = True
        self.ended[call.key] = call
        if self.running.get((call.key, call.ballot)) is call:
            del self.running[call.key, call.ballot]
        late = self.peer.clock.local_ms(self.world.now) > call.over_at_ms + TIMER_MS + 1
        asleep = bool(self.peer.frozen) and not call.child
        self.world.tell(CallOver(self.world.now, call.number, call.fenced or asleep or not late))

    # --- what befalls the process -------------------------------------------------------------------------------------

    def frozen(self) -> None:
        for call in tuple(self.running.values()):
            if not call.child and not call.fenced:
                self.world.tell(CallCounts(self.world.now, call.number, False))

    def timers(self) -> None:
        """After a thaw, those that are due come now."""
        for call in tuple(self.running.values()):
            self._arm(call)

    def thawed(self) -> None:
        """A coroutine whose cancel was due meanwhile is fenced; others run again."""
        local_ms = self.peer.clock.local_ms(self.world.now)
        for call in tuple(self.running.values()):
            if call.child:
                continue
            if call.fenced or local_ms >= call.cancel_at_ms:
                call.fenced = True
            else:
                self.world.tell(CallCounts(self.world.now, call.number, True))

    def died(self) -> None:
        """Coroutines end with their process, and so do children (PDEATHSIG)."""
        for call in tuple(self.running.values()):
            self._gone(call)
