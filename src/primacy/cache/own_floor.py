"""Invalidation in mode `own`: floors, and how everybody learns them (C11, C12).

A floor says that everything of a key (or of every key with a prefix) at or below a term is dead. Its term is above all
that a majority knows of the key, so that no value under way escapes it. It is done when a majority has stored it and
every peer acked it under the same list, or nobody can be in touch any more who does not know it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from primacy.cache.effects import Finished, ForgetFloor, Send, StoreFloor
from primacy.cache.inputs import FloorStored, Invalidate
from primacy.cache.messages import FloorAck, FloorAnswer, FloorQuery, Floors, FloorSet, FloorsRequest, Pong
from primacy.cache.model import TERM_MAX, Floor
from primacy.cache.own_parts import Storing, cursor
from primacy.cache.own_source import REQUEST_MS, TOO_MANY, Sourcing
from primacy.cache.own_state import KeyState
from primacy.settings.timing import stretched

PAGE = 256
"""Floors of one message: with long keys a few dozen kilobytes."""


@dataclass(slots=True)
class Invalidation:
    """One `Invalidate` under way."""

    request: int
    key: bytes
    prefix: bool
    until_ms: int
    next_ms: int
    terms: dict[str, int] = field(default_factory=dict)
    """What each peer knows of the key; the floor is above a majority of them."""
    floor: Floor | None = None
    acked: dict[str, int] = field(default_factory=dict)
    """The term of the floor that each peer has stored, under the same list or a neighbour."""
    same_list: dict[str, int] = field(default_factory=dict)
    """The same, under this very list."""
    raised: dict[str, None] = field(default_factory=dict)
    """For whose sake the floor was raised: once per peer."""
    majority_ms: int | None = None
    refused: bool = False
    """The own disk did not take the floor, which was said."""


class Owed(NamedTuple):
    """A FLOOR that is acked once it is durable."""

    peer: str
    request: int
    boot: int
    floor: Floor


class Reading(NamedTuple):
    """A peer's floors are being read, because its digest differs."""

    number: int
    since: int
    asked_ms: int


class Flooring(Sourcing):
    """Layer of the machine: floors."""

    _invalidations: dict[int, Invalidation]
    _owed: Storing[Owed]
    _readings: dict[str, Reading]
    _request: int

    # --- a floor holds ------------------------------------------------------------------------------------------------

    def _forget_ms(self) -> int:
        """After so long nothing at or below a term can be fresh, or given as stale (C8)."""
        stale_ms = [source.stale_ms for source in self.settings.sources] + [self.settings.stale_ms]
        longest_ms = max((ms for ms in stale_ms if ms is not None), default=0)
        return self.settings.ttl_max_ms + longest_ms + 2 * self.timing.election_ms + 2 * self.timing.skew_max_ms

    def _apply(self, floor: Floor) -> None:
        """It holds from now on, in memory; it becomes durable by and by."""
        if floor.term + self._forget_ms() < self._wall_ms or not self.floors.apply(floor):
            return
        self.top_term = max(self.top_term, floor.term)
        self._store_floor(floor)
        if floor.prefix:
            touched = [state for key, state in self.keys.items() if key.startswith(floor.key)]
        else:
            touched = [state for state in (self.keys.get(floor.key),) if state is not None]
        for state in touched:
            self._dirty[state.key] = None
            self._under_floor(state)
        whole = self.floors.too_many()
        if whole is not None:
            self._apply(whole)

    def _store_floor(self, floor: Floor) -> None:
        if floor not in self._owed:
            self._owed.add(floor)
            self._out.append(StoreFloor(floor))  # also where nobody is told: what it reaches is void from now on

    def _under_floor(self, state: KeyState) -> None:
        """Ballots of this key at or below the floor are dead; who waits is asked for anew (C11)."""
        term = self.floors.of(state.key)
        if state.entry is not None and state.entry.epoch.term <= term:
            state.entry = None
        if state.candidacy is not None and state.candidacy.ballot.term <= term:
            state.candidacy = None
        if state.claim is not None and state.claim.ballot.term <= term:
            self._kill_claim(state)
        self._try_stand(state)

    def _floor_stored(self, given: FloorStored) -> None:
        owed = self._owed.pop(given.floor)
        if not given.ok:
            if not self._tried_before(owed):
                self._record("floor-not-stored", given.floor.key)
            return
        for needless in self.floors.stored(given.floor):
            self._out.append(ForgetFloor(needless))
        for ack in owed:
            self._ack_floor(ack)

    def _tried_before(self, owed: tuple[Owed, ...]) -> bool:
        """Is it only about invalidations of this peer that the disk refused before? That is said once of each."""
        works = [self._invalidations.get(ack.request) if ack.peer == self.me else None for ack in owed]
        before = bool(works) and all(work is not None and work.refused for work in works)
        for work in works:
            if work is not None:
                work.refused = True
        return before

    def _ack_floor(self, owed: Owed) -> None:
        floor = owed.floor
        highest = self._highest(floor)
        if owed.peer == self.me:
            self._floor_acked(self.me, owed.request, floor, highest, same_list=True)
        else:
            message = FloorAck(floor, owed.request, highest, self._trailer(echo=owed.boot))
            self._out.append(Send(owed.peer, message))

    def _highest(self, floor: Floor) -> int:
        """The highest term of an epoch that is held or fetched here, of what the floor is about."""
        if floor.prefix:
            metas = [meta for key, meta in self.metas.items() if key.startswith(floor.key)]
            states = [state for key, state in self.keys.items() if key.startswith(floor.key)]
        else:
            metas = [meta for meta in (self.metas.get(floor.key),) if meta is not None]
            states = [state for state in (self.keys.get(floor.key),) if state is not None]
        fetched = [state.claim.ballot.term for state in states if state.claim is not None and state.claim.called]
        return max([0, *fetched, *(meta.epoch.term for meta in metas if meta.expire_ms)])

    # --- setting one --------------------------------------------------------------------------------------------------

    def _invalidate(self, given: Invalidate) -> None:
        reason = self._unable(given.key or b"*" if given.prefix else given.key)
        if not reason and len(self._invalidations) >= self.settings.requests_max:
            reason = TOO_MANY
        if reason:
            self._out.append(Finished(given.request, False, reason, self.members.others))
            return
        self._request += 1
        until_ms = self._now_ms + REQUEST_MS if given.until_ms is None else given.until_ms
        work = Invalidation(given.request, given.key, given.prefix, until_ms, self._now_ms)
        self._invalidations[self._request] = work
        work.terms[self.me] = self._known_term(given.key, given.prefix)
        self._invalidation_goes_on(self._request, work)

    def _known_term(self, key: bytes, prefix: bool) -> int:
        return max(self.top_term, self.base_term) if prefix else self._term(key)

    def _invalidation_goes_on(self, number: int, work: Invalidation) -> None:
        """Say again what was not answered; go on when enough was."""
        known = [peer for peer in (self.me, *self.members.others) if peer in work.terms]
        if work.floor is None:
            if len(known) >= self.members.majority:
                self._set_floor(number, work, self._floor_term(work))
        elif self._now_ms >= work.next_ms and work.acked.get(self.me, 0) < work.floor.term:
            self._store_own_again(number, work.floor)
        if self._finished(number, work) or self._now_ms < work.next_ms:
            return
        work.next_ms = self._now_ms + self.timing.question_repeat_ms
        for peer in self.members.others:
            if work.floor is None:
                if peer not in work.terms:
                    self._send(peer, FloorQuery(work.key, work.prefix, number, self._trailer()))
            elif work.acked.get(peer, 0) < work.floor.term:
                self._send(peer, FloorSet(work.floor, number, self._trailer()))

    def _store_own_again(self, number: int, floor: Floor) -> None:
        """The own disk is one of those that are told until they have it (C11): it may have refused, and be well now."""
        self._hear_floor(Owed(self.me, number, self.boot, floor))

    def _floor_term(self, work: Invalidation) -> int:
        """Above everything that a majority knows of the key (C11)."""
        return max(max(work.terms.values()) + 1, self._wall_ms)

    def _set_floor(self, number: int, work: Invalidation, term: int) -> None:
        work.floor = Floor(work.key, work.prefix, min(term, TERM_MAX))
        work.majority_ms = None
        work.next_ms = self._now_ms
        self._hear_floor(Owed(self.me, number, self.boot, work.floor))

    def _hear_floor(self, owed: Owed) -> None:
        """Apply it at once; ack it when it, or what covers it, is durable (C11)."""
        self._apply(owed.floor)
        if self._floor_is_durable(owed.floor):
            self._ack_floor(owed)
        else:
            covering = self.floors.covering(owed.floor)
            if self._owed.has_room(covering):
                self._store_floor(covering)
            self._owed.owe(covering, owed, len(owed.floor.key))

    def _floor_is_durable(self, floor: Floor) -> bool:
        return self.floors.is_durable(floor)

    def _floor_acked(self, peer: str, number: int, floor: Floor, highest: int, *, same_list: bool) -> None:
        work = self._invalidations.get(number)
        if work is None or work.floor is None or floor != work.floor:
            return
        if highest > floor.term and peer not in work.raised:
            # Something newer than the floor was held or fetched before the floor came: it may be old all the same.
            work.raised[peer] = None
            self._set_floor(number, work, highest)
            self._invalidation_goes_on(number, work)
            return
        work.acked[peer] = floor.term
        if same_list:
            work.same_list[peer] = floor.term
        stored = [url for url in (self.me, *self.members.others) if work.acked.get(url, 0) >= floor.term]
        if work.majority_ms is None and len(stored) >= self.members.majority:
            work.majority_ms = self._now_ms
        self._finished(number, work)

    def _finished(self, number: int, work: Invalidation) -> bool:
        """Done, or out of time. Its own ack may have ended it already: a floor that is durable is acked at once."""
        if number not in self._invalidations:
            return True
        floor = work.floor
        missing = tuple(peer for peer in self.members.others if floor is None or work.acked.get(peer, 0) < floor.term)
        if self._is_done(work):
            self._record("invalidated", work.key)
            self._end_invalidation(number, Finished(work.request, True, "", missing))
        elif self._now_ms >= work.until_ms:
            reason = "no majority of the peers has stored it in time"
            if work.majority_ms is not None:
                reason = "a majority has stored it; peers that are away may give the old value for a moment"
            self._end_invalidation(number, Finished(work.request, False, reason, missing))
        return number not in self._invalidations

    def _is_done(self, work: Invalidation) -> bool:
        if work.floor is None or work.majority_ms is None:
            return False
        return self._all_acked(work) or self._now_ms >= work.majority_ms + self._untouched_ms()

    def _all_acked(self, work: Invalidation) -> bool:
        """Every peer of the list, under this very list, and nobody can be in touch by an earlier one (C10, C11)."""
        assert work.floor is not None
        term = work.floor.term
        return self._list_is_old() and all(work.same_list.get(peer, 0) >= term for peer in self.members.others)

    @abstractmethod
    def _list_is_old(self) -> bool: ...

    def _untouched_ms(self) -> int:
        """After so long nobody is in touch by a PING that left before (C12). One tick more: clocks are read in whole
        milliseconds."""
        return stretched(self.timing.touch_ms, self.timing.drift_ppm) + 1

    def _end_invalidation(self, number: int, finished: Finished) -> None:
        del self._invalidations[number]
        self._out.append(finished)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _heard_floor_query(self, sender: str, query: FloorQuery) -> None:
        term = self._known_term(query.key, query.prefix)
        trailer = self._trailer(echo=query.trailer.boot)
        self._out.append(Send(sender, FloorAnswer(query.key, query.prefix, query.request, term, trailer)))

    def _heard_floor_answer(self, sender: str, answer: FloorAnswer) -> None:
        work = self._invalidations.get(answer.request)
        if work is None or answer.trailer.echo != self.boot or work.floor is not None:
            return
        work.terms[sender] = answer.term
        self._invalidation_goes_on(answer.request, work)

    def _heard_floor_set(self, sender: str, given: FloorSet) -> None:
        if 0 < given.floor.term <= TERM_MAX:
            self._hear_floor(Owed(sender, given.request, given.trailer.boot, given.floor))

    def _heard_floor_ack(self, sender: str, ack: FloorAck) -> None:
        if ack.trailer.echo == self.boot:
            same_list = ack.trailer.membership == self.members.hash
            self._floor_acked(sender, ack.request, ack.floor, ack.highest, same_list=same_list)

    # --- floors of others ---------------------------------------------------------------------------------------------

    def _heard_pong(self, sender: str, pong: Pong) -> None:
        """It counts once every floor that its sender knows is applied here (C12)."""
        trailer = pong.trailer
        assert trailer is not None
        if trailer.echo != self.boot or self.touch.departed_ms(trailer.number) is None:
            return
        if self._knows_floors(trailer.digest):
            self._count_pong(sender, trailer.number, trailer.since)
            return
        reading = self._readings.get(sender)
        if reading is None or self._now_ms - reading.asked_ms >= self.timing.ping_lost_ms:
            self._readings[sender] = Reading(trailer.number, trailer.since, self._now_ms)
            self._out.append(Send(sender, FloorsRequest(b"", self._trailer(number=trailer.number))))

    def _knows_floors(self, digest: int) -> bool:
        return digest == self.floors.digest

    @abstractmethod
    def _count_pong(self, sender: str, number: int, since: int) -> None: ...

    def _heard_floors_request(self, sender: str, request: FloorsRequest) -> None:
        floors, more = self.floors.page(request.after, PAGE)
        trailer = self._trailer(echo=request.trailer.boot, number=request.trailer.number)
        self._out.append(Send(sender, Floors(floors, more, trailer)))

    def _heard_floors(self, sender: str, page: Floors) -> None:
        reading = self._readings.get(sender)
        trailer = page.trailer
        if reading is None or trailer.echo != self.boot or trailer.number != reading.number:
            return
        for floor in page.floors:
            if 0 < floor.term <= TERM_MAX:
                self._apply(floor)
        if page.more and page.floors:
            self._readings[sender] = reading._replace(asked_ms=self._now_ms)
            after = cursor(page.floors[-1])
            self._out.append(Send(sender, FloorsRequest(after, self._trailer(number=trailer.number))))
            return
        del self._readings[sender]
        self._count_pong(sender, reading.number, reading.since)
