"""Mode `mixed`: `invalidate`, among the peers of this product only (RULES C, `mixed`). Pure.

Originals cannot be told to drop a copy, and their values carry no epoch. So an invalidation asks the peers that are
known to be of this product for the highest term, sets a floor there, and its answer says "ours only". A value without
an epoch never passes a floor: what an original brings of such a key is not taken, and clients are sent to it instead.
Terms are not lifted by the wall clock here, so the floor is the highest known term plus one, and the next election
begins above it. A floor is forgotten when everything that was fetched before it has expired.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from primacy.cache import document_source as source
from primacy.cache.document_state import Campaign, Sourcing, State, next_term
from primacy.cache.effects import Effect, Finished, ForgetFloor, Send, StoreFloor
from primacy.cache.inputs import FloorStored, Invalidate
from primacy.cache.machine import NOT_LISTED
from primacy.cache.messages import FloorAck, FloorAnswer, FloorQuery, FloorSet, Message
from primacy.cache.model import NO_BALLOT, Floor
from primacy.cache.own_parts import Storing

WITHIN_MS = 2_000
"""How long an invalidation without a time of its own goes on telling others."""
EVERY = (b"", True)
"""Of the floor for every key."""


@dataclass(slots=True)
class Invalidation:
    """One `Invalidate` under way."""

    request: int
    key: bytes
    prefix: bool
    until_ms: int
    repeat_ms: int
    asked_until_ms: int
    highest: int
    answered: dict[str, None] = field(default_factory=dict)
    acked: dict[str, None] = field(default_factory=dict)
    floor: Floor | None = None
    stored: bool | None = None
    refused: bool = False
    """The own disk did not take the floor when it was last asked."""


class Floors:
    """Floors and what is under way about them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._running: dict[int, Invalidation] = {}
        self._acks: Storing[tuple[str, int]] = Storing(state.settings.floors_bytes_max)
        """Who is to be told that a floor is durable here."""
        self._forget: dict[tuple[bytes, bool], int] = {}
        """When each floor may be forgotten."""
        self._count = 0

    @property
    def deadline_ms(self) -> int | None:
        moments = [running.repeat_ms for running in self._running.values()]
        if self._forget:
            moments.append(next(iter(self._forget.values())))
        return min(moments, default=None)

    def load(self, floors: tuple[Floor, ...]) -> list[Effect]:
        """What the storage has kept."""
        effects: list[Effect] = []
        for floor in floors:
            effects += self._apply(floor)
        return effects

    # --- an invalidation of this peer ---------------------------------------------------------------------------------

    def invalidate(self, given: Invalidate) -> list[Effect]:
        state = self._state
        if not state.listed:
            return [Finished(given.request, False, NOT_LISTED, state.peers)]
        if len(self._running) >= state.settings.requests_max:
            return [Finished(given.request, False, "too many invalidations are under way", state.peers)]
        self._count += 1
        now_ms = state.now_ms
        until_ms = now_ms + WITHIN_MS if given.until_ms is None else given.until_ms
        asked_until_ms = now_ms + state.timing.election_ms
        highest = self._highest(given.key, given.prefix)
        running = Invalidation(given.request, given.key, given.prefix, until_ms, now_ms, asked_until_ms, highest)
        self._running[self._count] = running
        return self._go_on(self._count, running)

    def give_up(self, reason: str) -> list[Effect]:
        """Nothing of what is under way will be done."""
        running, self._running = self._running, {}
        return [Finished(one.request, False, reason, self._state.peers) for one in running.values()]

    def passed(self) -> list[Effect]:
        """Questions and floors are repeated; old floors are forgotten."""
        now_ms = self._state.now_ms
        effects: list[Effect] = []
        for number, running in list(self._running.items()):
            if now_ms >= running.repeat_ms:
                effects += self._go_on(number, running)
        while self._forget and next(iter(self._forget.values())) <= now_ms:
            key, prefix = next(iter(self._forget))
            del self._forget[key, prefix]
            term = (self._state.wide if prefix else self._state.floors).pop(key)
            effects.append(ForgetFloor(Floor(key, prefix, term)))
        return effects

    def _go_on(self, number: int, running: Invalidation) -> list[Effect]:
        state = self._state
        ours = tuple(url for url in state.peers if url in state.ours)
        running.repeat_ms = state.now_ms + state.timing.question_repeat_ms
        if running.floor is None:
            asked = [url for url in ours if url not in running.answered]
            if asked and state.now_ms < running.asked_until_ms:
                query = FloorQuery(running.key, running.prefix, number, state.trailer())
                return [Send(url, query) for url in asked]
            running.floor = Floor(running.key, running.prefix, next_term(running.highest))
            effects = [*self._apply(running.floor), StoreFloor(running.floor)]
            return effects + self._tell(number, running, ours)
        finished = self._check(number, running)
        if finished:
            return finished
        patience_ms = 0 if running.refused else WITHIN_MS  # a storage that says nothing is waited for, not for ever
        if state.now_ms >= running.until_ms + patience_ms:
            running.stored = False
            return self._finish(number, running)
        again: list[Effect] = [StoreFloor(running.floor)] if running.refused else []
        running.refused = False
        return again + self._tell(number, running, ours)

    def _check(self, number: int, running: Invalidation) -> list[Effect]:
        """Done: durable here, and at every peer of this product, or its time is over."""
        missing = [url for url in self._state.ours if url not in running.acked]
        if running.stored is None or (running.stored and missing and self._state.now_ms < running.until_ms):
            return []
        return self._finish(number, running)

    def _tell(self, number: int, running: Invalidation, ours: tuple[str, ...]) -> list[Effect]:
        assert running.floor is not None
        message = FloorSet(running.floor, number, self._state.trailer())
        return [Send(url, message) for url in ours if url not in running.acked]

    def _finish(self, number: int, running: Invalidation) -> list[Effect]:
        del self._running[number]
        missing = tuple(url for url in self._state.peers if url not in running.acked)
        told = ", ".join([self._state.me, *running.acked])
        reason = f"ours only: {told}"
        if missing:
            reason += f"; not told: {', '.join(missing)} (an original cannot be told, and keeps its copy)"
        if not running.stored:
            reason = f"the floor could not be stored; {reason}"
        return [Finished(running.request, bool(running.stored), reason, missing)]

    # --- messages -----------------------------------------------------------------------------------------------------

    def heard(self, sender: str, message: Message) -> list[Effect]:
        state = self._state
        match message:
            case FloorQuery(key, prefix, request):
                highest = self._highest(key, prefix)
                return [Send(sender, FloorAnswer(key, prefix, request, highest, state.trailer(sender)))]
            case FloorAnswer(key, prefix, request, term):
                running = self._running.get(request)
                if running is None or (running.key, running.prefix) != (key, prefix) or running.floor is not None:
                    return []
                running.answered[sender] = None
                running.highest = max(running.highest, term)
                asked = [url for url in state.ours if url not in running.answered]
                return [] if asked else self._go_on(request, running)
            case FloorSet(floor, request):
                known = self._known(floor)
                self._acks.add(floor)
                if not self._acks.owe(floor, (sender, request), 0) and known:
                    return []  # it is being stored, or too many are
                return [*self._apply(floor), StoreFloor(floor)]
            case FloorAck(floor, request):
                running = self._running.get(request)
                if running is None or running.floor != floor:
                    return []
                running.acked[sender] = None
                return self._check(request, running)
        return []

    def stored(self, given: FloorStored) -> list[Effect]:
        """The floor is durable here, or cannot be."""
        effects: list[Effect] = []
        highest = self._highest(given.floor.key, given.floor.prefix)
        for sender, request in self._acks.pop(given.floor):
            if given.ok:
                ack = FloorAck(given.floor, request, highest, self._state.trailer(sender))
                effects.append(Send(sender, ack))
        for number, running in list(self._running.items()):
            if running.floor == given.floor and running.stored is None:
                running.stored, running.refused = given.ok or None, not given.ok
                effects += self._check(number, running)
        return effects

    # --- what a floor does --------------------------------------------------------------------------------------------

    def _highest(self, key: bytes, prefix: bool) -> int:
        state = self._state
        if not prefix:
            return state.meta(key).term
        own = max((meta.term for known, meta in state.metas.items() if known.startswith(key)), default=0)
        return max(own, state.floor(key))

    def _known(self, floor: Floor) -> bool:
        state = self._state
        return (state.wide if floor.prefix else state.floors).get(floor.key, 0) >= floor.term

    def _apply(self, floor: Floor) -> list[Effect]:
        """Values at or below it are dropped, calls under such a ballot ended, terms begin above it."""
        state = self._state
        if self._known(floor):
            return []
        (state.wide if floor.prefix else state.floors)[floor.key] = floor.term
        keys = [key for key in state.metas if key.startswith(floor.key)] if floor.prefix else [floor.key]
        running = [key for key in (*state.active, *state.calls) if floor.prefix and key.startswith(floor.key)]
        lasting_ms = max((one.ttl_ms for one in state.settings.sources), default=0)
        effects: list[Effect] = []
        for key in dict.fromkeys((*keys, *running)):
            meta = state.meta(key)
            if meta.expire_ms and meta.epoch.term <= floor.term:
                lasting_ms = max(lasting_ms, meta.expire_ms - state.wall_ms)
                effects += state.drop(key)
            effects += state.adopt(key, next_term(floor.term))
            effects += self._end(key, floor)
        self._forget.pop((floor.key, floor.prefix), None)
        self._forget[floor.key, floor.prefix] = state.now_ms + lasting_ms
        self._forget = dict(sorted(self._forget.items(), key=lambda item: item[1]))
        return effects + self._bound()

    def _end(self, key: bytes, floor: Floor) -> list[Effect]:
        active = self._state.active.get(key)
        if isinstance(active, Sourcing) and active.ballot.term <= floor.term:
            return source.cancel(self._state, key, active, "it was invalidated")
        if isinstance(active, Campaign) and active.ballot.term <= floor.term:
            active.aborted = True  # it asks again, above the floor
        return []

    def _bound(self) -> list[Effect]:
        """One too many: the one that would be forgotten first becomes part of a floor for every key. It costs
        retrievals and forgets nothing."""
        state = self._state
        settings = state.settings
        size = sum(len(key) for key, _ in self._forget)
        if len(self._forget) <= settings.floors_max and size <= settings.floors_bytes_max:
            return []
        key, prefix = next(one for one in self._forget if one != EVERY)
        del self._forget[key, prefix]
        term = (state.wide if prefix else state.floors).pop(key)
        every = Floor(*EVERY, max(term, state.wide.get(EVERY[0], 0)))
        return [*self._apply(every), StoreFloor(every), ForgetFloor(Floor(key, prefix, term))]


assert NO_BALLOT.term == 0, "a value without an epoch is below every floor"
