"""The machine of a cache peer of mode `own`: all peers of the list are of this product. Pure.

Theory (rules C1 to C12). Per key a peer is idle, follower, candidate or sourcing. Who needs a key that is missing or
stale asks all with a new ballot (term, peer, boot). Yes-votes only order the candidates. The winner announces by
number; a follower's ack is its one promise: for Ps it helps nobody else and does not ask itself. A majority of acks
makes a hold of Hs from the departure of the ANNOUNCE, and Hs on the slowest clock is shorter than Ps on the fastest. So
two holds never overlap, whatever is lost, late, restarted or forgotten: one peer sources a key at any instant.

The ballot of a call is the epoch of its value, and only a higher epoch replaces a value. Terms grow because the peer
that two majorities share remembers: by its ceiling, one durable number, and by wall clocks that only lift. What was
invalidated stays dead by floors, and "fresh" is said only in touch with a majority, whose floors are known.

One way in: `step`. Effects are performed in order. `deadline_ms` says when the next `TimerPassed` is due. The layers,
from the ground up: own_parts.py, own_state.py, own_values.py, own_vote.py, own_source.py, own_floor.py, own_members.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import assert_never

from primacy.cache.effects import Effect, Forget, ForgetFloor, Send, SendEntry
from primacy.cache.inputs import (
    Asked,
    CeilingStored,
    FloorStored,
    Input,
    Invalidate,
    Put,
    Received,
    Refresh,
    Reload,
    SourceEnded,
    Started,
    TimerPassed,
    ValueGone,
    Withdrawn,
)
from primacy.cache.machine import KeyView
from primacy.cache.messages import (
    Ack,
    Acks,
    Announce,
    Announces,
    Answer,
    EntryRequest,
    FloorAck,
    FloorAnswer,
    FloorQuery,
    Floors,
    FloorSet,
    FloorsRequest,
    Message,
    Ping,
    Pong,
    Question,
    Trailer,
    Update,
)
from primacy.cache.model import ALL, NO_BALLOT, TERM_STEP_MAX, CacheSettings, Meta, Mode, PeerAddress
from primacy.cache.own_members import Membering
from primacy.cache.own_parts import Storing
from primacy.cache.own_state import KeyState
from primacy.cache.own_terms import highest_term

COUNTED = (Question, Answer, Announce, Announces, Ack, Acks, FloorQuery, FloorAnswer, FloorSet, FloorAck)
"""What a majority is made of, and what asks for it."""
SWEEP_MS = 1_000
"""Between two looks at what may be forgotten."""
SWEEP_KEYS = 2_000
"""Keys of one look: a hundred thousand are seen within a minute."""


SHED_KEYS = 2_000
"""Keys that are forgotten at once beyond the bound on what is remembered: some milliseconds."""
SPARE = 64
"""Such a part of the bound may be exceeded between two looks: forgetting one at a time would cost a look at all."""
ALL_OF_IT = 1 << 62


class OwnMachine(Membering):
    """One peer. `peers` is the whole list, this one included; `me` its url."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        assert settings.mode is Mode.OWN
        super().__init__(me, peers, settings, chance)
        self.started = False
        self._hits = {}
        self._invalidations = {}
        self._owed = Storing(settings.floors_bytes_max)
        self._readings = {}
        self._request = 0
        self._reports = {}
        self._pending = None
        self._sweep_ms = 0
        self._sweep_at = 0
        self._clock_alert = False
        self._waits_with = {}
        self._old_peers: dict[str, None] = {}
        self._strange: dict[str, None] = {}
        """Peers that said a term that cannot be."""

    # --- the one way in -----------------------------------------------------------------------------------------------

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[Effect]:
        """`now_ms`: this machine's clock, which only grows. `wall_ms`: Unix time, which may jump."""
        self._now_ms = max(self._now_ms, now_ms)
        self._wall_ms = wall_ms
        assert self.started or isinstance(given, Started), "the first input of a boot is Started"
        match given:
            case Received(sender, message):
                self._hear(sender, message)
            case TimerPassed():
                self._passed()
            case Asked():
                self._asked(given)
            case Withdrawn(request):
                self.waiting.withdraw(request)
            case SourceEnded():
                self._source_ended(given)
            case CeilingStored(ceiling, ok):
                self._ceiling_stored(ceiling, ok)
            case FloorStored():
                self._floor_stored(given)
            case ValueGone():
                self._gone(given)
            case Invalidate():
                self._invalidate(given)
            case Refresh():
                self._refresh(given)
            case Put():
                self._put(given)
            case Reload():
                self._reload(given)
            case Started():
                self._start(given)
            case _:
                assert_never(given)
        self._settle()
        if self._too_many(SPARE):
            self._shed()
        if isinstance(given, Received):
            self._one_each()
        out, self._out = self._out, []
        return out

    def _one_each(self) -> None:
        """An input from the wire causes at most one message per receiver now; others leave at the next timer (E1)."""
        told: set[str] = set()
        kept: list[Effect] = []
        for effect in self._out:
            if isinstance(effect, Send | SendEntry):
                receivers = set(self.members.others) if effect.to == ALL else {effect.to}
                if told & receivers:
                    self._deferred.append(effect)
                    continue
                told |= receivers
            kept.append(effect)
        self._out = kept

    @property
    def deadline_ms(self) -> int:
        """When the next `TimerPassed` is due, on this machine's clock. May be early, never late."""
        if self._deferred or self._serving:
            return self._now_ms
        deadline_ms = min(self._ping_ms, self._sweep_ms)
        if self._timers:
            deadline_ms = min(deadline_ms, self._timers[0][0])
        if self.waiting.deadline_ms is not None:
            deadline_ms = min(deadline_ms, self.waiting.deadline_ms)
        for work in self._invalidations.values():
            deadline_ms = min(deadline_ms, work.next_ms)
        return deadline_ms

    def _start(self, given: Started) -> None:
        """What was forgotten is closed: terms by the ceiling or the wall clock, acks by silence for Ps (C2, C5)."""
        self.started = True
        self.boot = given.boot
        self.metas = dict(given.metas)
        self._metas_bytes = sum(map(len, self.metas))
        remembers = given.ceiling is not None and self.settings.durable
        self.base_term = self._first_term(given.ceiling if remembers else None)
        self.top_term = self.base_term
        self.ceiling.stored = given.ceiling or 0
        self.touch.since = 0 if remembers else self._complete_since()
        self.touch.keep(self.members)
        self._look_for_unusual()
        self._still_fresh()
        for floor in given.floors:
            self.floors.apply(floor)
            self.floors.stored(floor)
        self.silent_until_ms = self._now_ms + self.timing.promise_ms
        self._ping_ms = self._now_ms
        self._sweep_ms = self._now_ms + SWEEP_MS
        self._lift_ceiling(self.base_term)
        self._ping()

    def _first_term(self, ceiling: int | None) -> int:
        """No yes and no ack at or below this, whatever the key (C2)."""
        return self._complete_since() if ceiling is None else max(ceiling, self._wall_ms)

    def _complete_since(self) -> int:
        """Without memory of floors this peer vouches only for what is fetched from now on (C12). Others may use terms
        ahead of time: up to their ceilings, if they have restarted, and by as much as wall clocks may differ."""
        return self._wall_ms + self.timing.skew_max_ms + 2 * self.timing.ceiling_ahead_ms

    def _ceiling_stored(self, ceiling: int, ok: bool) -> None:
        """Without a disk terms rest on wall clocks; S1 does not need them (C2)."""
        if not ok:
            self._record("ceiling-not-stored")
        self.ceiling.written(ceiling)
        waiting, self._uncovered = self._uncovered, {}
        for key in waiting:
            state = self._known(key)
            if state is not None:
                self._try_stand(state)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _hear(self, sender: str, message: Message) -> None:
        """Only listed peers with the same list or a neighbour of it are heard (C1, C10)."""
        trailer = message.trailer
        if sender not in self.members.others:
            return
        if trailer is None:
            if sender not in self._old_peers:
                self._old_peers[sender] = None
                self._record("old-peer", b"", sender)
            return
        if not self.members.works_with(trailer) or not self.members.listed:
            self._reports.pop(sender, None)
            self.counts["other-list"] = self.counts.get("other-list", 0) + 1
            return
        if self._counts(trailer):
            self._waits_with.pop(sender, None)
        else:
            self._waits_with[sender] = None
            if isinstance(message, COUNTED):
                return
        if self._is_no_term(highest_term(message)):
            self._refuse_term(sender, highest_term(message))
            return
        match message:
            case Question():
                self._heard_question(sender, message)
            case Answer():
                self._heard_answer(sender, message)
            case Announce():
                self._heard_announce(sender, message)
            case Ack():
                self._heard_ack(sender, message)
            case Announces():
                self._heard_announces(sender, message)
            case Acks():
                self._heard_acks(sender, message)
            case Update():
                self._heard_update(sender, message)
            case EntryRequest():
                self._heard_entry_request(sender, message)
            case Ping():
                self._heard_ping(sender, message)
            case Pong():
                self._reported(sender, trailer)
                self._heard_pong(sender, message)
            case FloorQuery():
                self._heard_floor_query(sender, message)
            case FloorAnswer():
                self._heard_floor_answer(sender, message)
            case FloorSet():
                self._heard_floor_set(sender, message)
            case FloorAck():
                self._heard_floor_ack(sender, message)
            case FloorsRequest():
                self._heard_floors_request(sender, message)
            case Floors():
                self._heard_floors(sender, message)
            case _:
                assert_never(message)

    def _counts(self, trailer: Trailer) -> bool:
        """Who has a list that is only about to be taken, here or there, is told of floors and reports its list. It has
        no vote: while the change waits, others may still have the list before this one, and share no peer with it."""
        return self.members.is_neighbour(trailer)

    def _is_no_term(self, term: int) -> bool:
        """Nobody can have come to this term in an honest way (C2)."""
        return term > max(self.top_term, self._wall_ms) + TERM_STEP_MAX

    def _refuse_term(self, sender: str, term: int) -> None:
        """Said once of each peer: it may be every message."""
        self.counts["term-refused"] = self.counts.get("term-refused", 0) + 1
        if sender not in self._strange:
            self._strange[sender] = None
            self._record("strange-term", b"", f"{sender} says {term}: is its clock wrong, or its storage damaged?")

    # --- time ---------------------------------------------------------------------------------------------------------

    def _passed(self) -> None:
        self._out += self._deferred
        self._deferred = []
        if self._now_ms >= self._ping_ms:
            self._ping()
            self._lift_ceiling(self._wall_ms)
            self._still_fresh()
            self._try_reload()
        for state in self._due():
            self._key_passed(state)
        if self._serving:
            self._serve_on()
        self._out += self.waiting.passed(self._now_ms, lambda key: key not in self.keys)
        for number, work in tuple(self._invalidations.items()):
            if self._now_ms >= work.next_ms:
                self._invalidation_goes_on(number, work)
        if self._now_ms >= self._sweep_ms:
            self._sweep()

    def _key_passed(self, state: KeyState) -> None:
        """Everything of one key that time alone decides."""
        self._requests_passed(state)
        self._entry_passed(state)
        self._promise_passed(state)
        if state.claim is not None:
            self._claim_passed(state)
        elif state.candidacy is not None:
            self._candidate_passed(state)
        self._try_stand(state)

    def _settle(self) -> None:
        """The keys that were looked at: free slots are given on, timers set, what is over is forgotten."""
        while self._dirty:
            key, _ = self._dirty.popitem()
            state = self.keys.get(key)
            if state is None:
                continue
            if state.claim is None and state.candidacy is None and key in self._slots:
                del self._slots[key]
            while self._starved and len(self._slots) < self.settings.calls_max:
                starved = self._known(next(iter(self._starved)))
                del self._starved[next(iter(self._starved))]
                if starved is not None:
                    self._try_stand(starved)
            if self._is_over(state):
                del self.keys[key]
                self._keys_bytes -= len(key)
                self._starved.pop(key, None)
                self._uncovered.pop(key, None)
            else:
                # What is due was just looked at: never the same instant again.
                self._wake(state, max(self._next_ms(state), self._now_ms + 1))

    def _is_over(self, state: KeyState) -> bool:
        """Nothing is under way, and nothing was heard for so long that no ballot of it can still be meant."""
        if state.claim or state.candidacy or state.entry or state.promise or self._wants(state):
            return False
        if state.key in self._serving:
            return False
        return self._now_ms >= max(state.heard_ms + self._linger_ms(), state.backoff_until_ms, state.quiet_until_ms)

    def _linger_ms(self) -> int:
        return self.timing.promise_ms + self.timing.election_ms

    def _next_ms(self, state: KeyState) -> int:
        """When something of this key is due."""
        moments = [wish.until_ms for wish in state.wishes] + [gift.until_ms for gift in state.gifts]
        claim, candidacy = state.claim, state.candidacy
        if claim is not None:
            if not claim.cancelled:
                moments.append(claim.next_ms)
                if claim.hold_from_ms is not None and self.members.majority > 1:
                    moments.append(claim.hold_from_ms + self.timing.cancel_at_ms)
                elif not claim.called:
                    moments.append(claim.won_ms + self._claim_ms())
        elif candidacy is not None:
            moments += [candidacy.repeat_ms, candidacy.asked_ms + self.timing.election_ms]
        elif state.entry is not None:
            moments.append(state.entry.until_ms)
        elif state.retry_ms is not None:
            moments.append(state.retry_ms)
        if state.promise is not None:
            moments.append(state.promise_until_ms)
        linger_ms = max(state.heard_ms + self._linger_ms(), state.backoff_until_ms, state.quiet_until_ms)
        moments.append(max(linger_ms, self._now_ms + self.timing.ping_ms))
        return min(moments)

    def _sweep(self) -> None:
        """Forget what cannot come back (C8): a few keys at a time."""
        self._sweep_ms = self._now_ms + SWEEP_MS
        self._out += [ForgetFloor(floor) for floor in self.floors.older(self._wall_ms - self._forget_ms())]
        keys = list(islice(self.metas, self._sweep_at, self._sweep_at + SWEEP_KEYS))
        self._sweep_at = self._sweep_at + SWEEP_KEYS if len(keys) == SWEEP_KEYS else 0
        if self._sweep_at == 0 and self._wall_ms < self._unusual_until_ms:
            self._look_for_unusual()  # they may have been fetched anew
            self._still_fresh()
        for key in keys:
            meta = self.metas[key]
            if key in self.keys or (meta.expire_ms and self._alive(key, meta)):
                continue
            if self._forgettable(meta):
                self._forget(key)
            elif meta.expire_ms:
                self._drop_value(key, meta)
        self._shed()

    def _too_many(self, spare: int) -> bool:
        """More keys are remembered, or longer ones, than may be; with so many parts of that to spare."""
        most, most_bytes = self.settings.keys_max, self.settings.keys_bytes_max
        return len(self.metas) > most + most // spare or self._metas_bytes > most_bytes + most_bytes // spare

    def _shed(self) -> None:
        """The longest known keys are forgotten, so that the others find room. What is forgotten is judged by the
        highest term and epoch of all that were: it costs retrievals, and lets nothing older come back."""
        if not self._too_many(ALL_OF_IT):
            return
        gone: list[bytes] = []
        count, size = len(self.metas), self._metas_bytes
        for key in self.metas:
            if (count <= self.settings.keys_max and size <= self.settings.keys_bytes_max) or len(gone) >= SHED_KEYS:
                break
            if key not in self.keys:
                gone.append(key)
                count, size = count - 1, size - len(key)
        for key in gone:
            self.base_epoch = max(self.base_epoch, self.metas[key].epoch.term)
            self._forget(key)

    def _forgettable(self, meta: Meta) -> bool:
        if meta.epoch == NO_BALLOT:
            return self._wall_ms > meta.term + self.timing.skew_max_ms
        return self._wall_ms > meta.epoch.term + self._forget_ms()

    def _forget(self, key: bytes) -> None:
        self.base_term = max(self.base_term, self.metas.pop(key).term)
        self._metas_bytes -= len(key)
        self._out.append(Forget(key))

    # --- what is shown ------------------------------------------------------------------------------------------------

    def view(self, now_ms: int, wall_ms: int, key: bytes) -> KeyView:
        """What this peer does about one key. Changes nothing."""
        meta = self.metas.get(key, Meta())
        state = self.keys.get(key)
        source = ""
        if state is not None and state.claim is not None and state.claim.called:
            source = self.me
        elif state is not None and state.promise is not None and now_ms < state.promise_until_ms:
            source = state.promise.peer
        in_time = meta.expire_ms > wall_ms and self._above_floor(key, meta.epoch)
        fresh = in_time and self.touch.vouched(self.members, now_ms, meta.epoch.term)
        return KeyView(key, self.role_of(state), self._term(key), meta, fresh, source, len(self.waiting.of(key)))

    def retire(self) -> None:
        """No further call: who has no free slot does not stand (C4)."""
        self.settings = self.settings._replace(calls_max=0)

    def known_keys(self) -> Iterable[bytes]:
        """Every key of which this peer knows something."""
        return {**dict.fromkeys(self.metas), **dict.fromkeys(self.keys)}

    def in_touch(self, now_ms: int) -> bool:
        """Is a majority known to be there?"""
        return self.members.majority == 1 or now_ms < self.touch.until_ms(self.members, now_ms)
