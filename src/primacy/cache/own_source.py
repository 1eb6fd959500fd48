"""Sourcing in mode `own`: claims, holds, calls and their ends (C4, C7), `put` and `refresh`.

The winner of an election has no right yet. It announces by number; the source is called after the first ANNOUNCE that a
majority acked, once per ballot. The hold counts from the departure of the newest such ANNOUNCE: at `cancel_at_ms` after
it the call is cancelled, by `hold_ms` it is confirmed over. A result is used only while the hold stands.

A `put` is an election whose call is the client's own value: it is there at once, so nothing is held for longer than a
round, and it takes the epoch of its ballot like any other.
"""

from __future__ import annotations

from primacy.cache.effects import Call, Cancel, Extend, Finished
from primacy.cache.inputs import Put, Refresh, SourceEnded
from primacy.cache.machine import NOT_LISTED
from primacy.cache.messages import Ack, Acks, Announce, Announces, Answer, Numbered, Update
from primacy.cache.model import ALL, NO_BALLOT, TERM_MAX, Failure, Fetched, Meta
from primacy.cache.own_state import Candidacy, Claim, Gift, KeyState, Wish
from primacy.cache.own_vote import Voting

ALONE_MS = 60_000
"""A list of one peer: the run lock takes the place of acks, so a hold ends only when this process stands still for a
minute. It has an end so that a peer that is added later is never met by a call without one."""
REQUEST_MS = 30_000
"""How long a refresh, a put or an invalidation is tried that names no time."""
PUT_BYTES_MAX = 268_435_456
"""Bytes of all values that wait for their turn: each waits for about a round trip, unless its key is being fetched."""
GATHERED_MAX = 64
GATHERED_BYTES_MAX = 64 * 1024
"""Keys of one message that renews several holds, and the bytes of all of them."""
DOUBLINGS_MAX = 10
"""The back-off is not doubled more often, whatever its longest is."""
TOO_MANY = "too many requests are under way"
NO_SOURCE = "no peer has it, and no source fits this key"


class Sourcing(Voting):
    """Layer of the machine: the peer that fetches."""

    # --- claims -------------------------------------------------------------------------------------------------------

    def _can_fetch(self, state: KeyState) -> bool:
        return self.settings.source_of(state.key) is not None or bool(self.waiting.offers(state.key))

    def _win(self, state: KeyState, candidacy: Candidacy) -> None:
        state.candidacy = None
        gift = state.gifts[0] if state.gifts else None
        state.claim = Claim(candidacy.ballot, candidacy.need, self._now_ms, self._now_ms, gift=gift)
        if gift is None and not self._can_fetch(state):
            self._finish_claim(state)
            self._failed(state, 0, NO_SOURCE, missing=True)
            return
        self._announce(state)

    def _announce(self, state: KeyState) -> None:
        """The next numbered ANNOUNCE leaves."""
        claim = state.claim
        assert claim is not None
        self._number(claim)
        meta = self.metas.get(state.key, Meta())
        trailer = self._trailer(claim.ballot, number=claim.number, need=self._announced_need(claim))
        self._send(ALL, Announce(state.key, claim.ballot.term, meta.expire_ms, trailer))
        if self.members.majority == 1:
            self._prove(state, claim)

    def _number(self, claim: Claim) -> None:
        """One more ANNOUNCE of this claim departs now."""
        claim.number += 1
        claim.departed[claim.number] = self._now_ms
        claim.departed = {n: ms for n, ms in claim.departed.items() if self._now_ms - ms < self.timing.hold_ms}
        claim.next_ms = self._now_ms + self.timing.announce_ms

    def _renew(self) -> None:
        """The hold of a call is to be renewed, and with it all that are due soon: they go out together from then on,
        in one message, and come back in one. Each alone costs so much that a burst of keys would lose its holds."""
        soon_ms = self._now_ms + self.timing.announce_ms // 2
        due = [state for state in map(self.keys.get, self._slots) if state is not None and self._renews(state, soon_ms)]
        assert due, "what is to be renewed has a slot"
        if len(due) == 1:
            self._announce(due[0])
            return
        keys: list[Numbered] = []
        size = 0
        for state in due:
            claim = state.claim
            assert claim is not None
            if len(keys) == GATHERED_MAX or (keys and size + len(state.key) > GATHERED_BYTES_MAX):
                self._send(ALL, Announces(tuple(keys), self._trailer()))
                keys, size = [], 0
            self._number(claim)
            keys.append(Numbered(state.key, claim.ballot.term, claim.number))
            size += len(state.key)
            if self.members.majority == 1:
                self._prove(state, claim)
        self._send(ALL, Announces(tuple(keys), self._trailer()))

    def _renews(self, state: KeyState, soon_ms: int) -> bool:
        """Is the source of this key called, and its hold to be renewed by then?"""
        claim = state.claim
        if claim is None or not claim.called or claim.cancelled:
            return False
        return claim.next_ms <= soon_ms and not self._is_late(claim)

    def _announced_need(self, claim: Claim) -> int:
        """Once the source is called nobody refuses an ack for freshness (C6)."""
        return TERM_MAX if claim.called else claim.need

    def _heard_ack(self, sender: str, ack: Ack) -> None:
        state = self._known(ack.key)
        claim = None if state is None else state.claim
        if state is None or claim is None or ack.trailer.echo != self.boot or ack.trailer.ballot != claim.ballot:
            return
        if not 0 < ack.trailer.number <= claim.number:
            return
        self._acked(state, claim, sender, ack.trailer.number)

    def _heard_acks(self, sender: str, acks: Acks) -> None:
        """As so many ACKs. What is renewed needs no other timer: one that comes early looks again."""
        if not self._counts_acks(acks):
            return
        for key, term, number in acks.keys:
            state = self.keys.get(key)
            claim = None if state is None else state.claim
            if state is None or claim is None or claim.ballot.term != term or not 0 < number <= claim.number:
                continue
            if not claim.called:
                self._dirty[key] = None
            self._acked(state, claim, sender, number)

    def _counts_acks(self, acks: Acks) -> bool:
        """Only for ballots of this boot (C1)."""
        return acks.trailer.echo == self.boot

    def _acked(self, state: KeyState, claim: Claim, sender: str, number: int) -> None:
        claim.no.pop(sender, None)
        claim.acked[sender] = max(claim.acked.get(sender, 0), number)
        self._prove(state, claim)

    def _proved_number(self, claim: Claim) -> int:
        """The newest ANNOUNCE that a majority, this peer included, acked. An ack of a later one counts for it."""
        numbers = sorted((claim.acked.get(peer, 0) for peer in self.members.others), reverse=True)
        needed = self.members.majority - 1
        return claim.number if needed == 0 else numbers[needed - 1]

    def _prove(self, state: KeyState, claim: Claim) -> None:
        """Does what was acked make or prolong a hold? An ack after the cancel changes nothing (C4)."""
        from_ms = self._counted_from_ms(claim)
        if from_ms is None or claim.cancelled or self._now_ms >= from_ms + self.timing.cancel_at_ms:
            return
        if claim.hold_from_ms is None:
            claim.hold_from_ms = from_ms
            self._call(state, claim)
        elif from_ms > claim.hold_from_ms and not self._is_late(claim):
            claim.hold_from_ms = from_ms
            if claim.called:
                self._out.append(Extend(state.key, claim.ballot, *self._times(claim)))

    def _counted_from_ms(self, claim: Claim) -> int | None:
        """Before the ANNOUNCE left, never when its ack came."""
        return claim.departed.get(self._proved_number(claim))

    def _is_late(self, claim: Claim) -> bool:
        """The call was due to be cancelled, whether or not this peer came to it."""
        if self.members.majority == 1 or claim.hold_from_ms is None:
            return False
        return self._now_ms >= claim.hold_from_ms + self.timing.cancel_at_ms

    def _times(self, claim: Claim) -> tuple[int, int]:
        """When the call is cancelled and when it is over."""
        assert claim.hold_from_ms is not None
        alone_ms = ALONE_MS if self.members.majority == 1 else 0
        from_ms = claim.hold_from_ms + alone_ms
        return from_ms + self.timing.cancel_at_ms, from_ms + self.timing.hold_ms

    def _call(self, state: KeyState, claim: Claim) -> None:
        """The first round that a majority acked: call the source, once per ballot."""
        claim.called_wall_ms = self._wall_ms
        if claim.gift is not None:
            gift = claim.gift
            state.gifts.remove(gift)
            if self._fetched(state, claim, Fetched(gift.value, gift.ttl_ms)):
                self._out.append(Finished(gift.request, True))
            else:
                state.gifts.insert(0, gift)
            return
        if not self._wants(state):
            self._finish_claim(state)
            return
        claim.called = True
        self._record("fetch-started", state.key, str(claim.ballot.term))
        self._out.append(Call(state.key, claim.ballot, *self._times(claim), self.waiting.offers(state.key)))

    def _claim_passed(self, state: KeyState) -> None:
        claim = state.claim
        assert claim is not None
        if claim.cancelled:
            return
        if claim.called and self._is_late(claim):
            self._cancel(state, claim)
        elif not claim.called and self._now_ms >= claim.won_ms + self._claim_ms():
            self._finish_claim(state)
            self._come_back(state, claim.no)
        elif self._now_ms >= claim.next_ms:
            if claim.called:
                self._renew()
            else:
                self._announce(state)

    def _claim_ms(self) -> int:
        """A claim that a majority did not ack for so long ends (C4)."""
        return self.timing.election_ms

    def _cancel(self, state: KeyState, claim: Claim) -> None:
        """The hold cannot be kept, or the ballot is dead: end the call, and wait until it is confirmed over."""
        claim.cancelled = True
        self._record("fetch-cancelled", state.key, str(claim.ballot.term))
        self._out.append(Cancel(state.key, claim.ballot, self._times(claim)[1]))

    def _refused_claim(self, state: KeyState, sender: str, answer: Answer) -> None:
        """An ANNOUNCE was refused."""
        claim, trailer = state.claim, answer.trailer
        assert claim is not None
        assert trailer is not None
        if trailer.floor >= claim.ballot.term:
            self._kill_claim(state)
        elif claim.called:
            return
        elif trailer.epoch != NO_BALLOT:
            self._finish_claim(state)
            self._claimed_fresh(state, sender, trailer.epoch)
        else:
            claim.acked.pop(sender, None)
            claim.no[sender] = self._now_ms + min(trailer.wait_ms, self.timing.promise_ms)
            if self.members.size - len(claim.no) < self.members.majority:
                self._finish_claim(state)
                self._come_back(state, claim.no)

    def _kill_claim(self, state: KeyState) -> None:
        """The ballot is at or below a floor: nothing of it may be used any more (C11)."""
        claim = state.claim
        assert claim is not None
        if not claim.called:
            self._finish_claim(state)
            self._try_stand(state)
        elif not claim.cancelled:
            self._cancel(state, claim)

    def _give_up_claim(self, state: KeyState) -> None:
        self._finish_claim(state)

    def _finish_claim(self, state: KeyState, wait_ms: int = 0, missing: bool = False) -> None:
        """The ballot is over and closed for good, and everybody is told, so that promises to it are freed (C4, C7)."""
        claim, state.claim = state.claim, None
        assert claim is not None
        self._close(state, claim.ballot)
        trailer = self._trailer(claim.ballot, ended=True, wait_ms=wait_ms, missing=missing)
        self._send(ALL, Answer(state.key, self._term(state.key), 0, False, trailer))

    # --- results ------------------------------------------------------------------------------------------------------

    def _source_ended(self, given: SourceEnded) -> None:
        state = self._known(given.key)
        claim = None if state is None else state.claim
        if state is None or claim is None or not claim.called or claim.ballot != given.ballot:
            return
        result = given.result
        if isinstance(result, Fetched) and len(result.value) > self.settings.value_bytes_max:
            most = self.settings.value_bytes_max
            result = Failure(f"the value has {len(result.value)} bytes; at most {most} are kept (value_bytes_max)")
        cut_short = isinstance(result, Failure) and self._is_cancel_due(claim)
        if not self._holds(claim) or cut_short or claim.ballot.term <= self.floors.of(state.key):
            self._record("fetch-void", state.key, str(claim.ballot.term))
            self._finish_claim(state)
            self._come_back(state, {})
        elif isinstance(result, Fetched):
            self._fetched(state, claim, result)
        elif result.released:
            self._finish_claim(state)
            self._come_back(state, {})
        else:
            self._call_failed(state, result)

    def _holds(self, claim: Claim) -> bool:
        """A result is used only if the hold stands when it is used (C4)."""
        if claim.hold_from_ms is None or claim.cancelled:
            return False
        return self.members.majority == 1 or self._now_ms < claim.hold_from_ms + self.timing.hold_ms

    def _is_cancel_due(self, claim: Claim) -> bool:
        """Who runs the call cancels it at its time by itself, perhaps before the machine says so. Then it is not the
        source that failed."""
        if claim.hold_from_ms is None or self.members.majority == 1:
            return False
        return self._now_ms >= claim.hold_from_ms + self.timing.cancel_at_ms

    def _fetched(self, state: KeyState, claim: Claim, fetched: Fetched) -> bool:
        """Expiry = start of the call + ttl; the epoch is the ballot of the call (C8). False: a newer one is here."""
        key, ballot = state.key, claim.ballot
        expire_ms = self._expiry_ms(claim, self._ttl_ms(key, fetched))
        meta = Meta(0, expire_ms, ballot, len(fetched.value), claim.called_wall_ms)
        if not self._replaces(state, key, ballot):
            self._finish_claim(state)
            self._come_back(state, {})
            return False
        state.claim = None
        self._close(state, ballot)
        self._record("fetched", key, f"{len(fetched.value)} bytes, epoch {ballot.term}")
        trailer = self._trailer(ballot, epoch=ballot, fetched_ms=claim.called_wall_ms)
        update = Update(key, ballot.term, expire_ms, fetched.value, trailer)
        self._take(key, meta, fetched.value)
        self._send(ALL, update)
        return True

    def _expiry_ms(self, claim: Claim, ttl_ms: int) -> int:
        return claim.called_wall_ms + ttl_ms

    def _ttl_ms(self, key: bytes, fetched: Fetched) -> int:
        source = self.settings.source_of(key)
        if fetched.ttl_ms is not None:
            ttl_ms = fetched.ttl_ms
        elif source is not None:
            ttl_ms = source.ttl_ms - int(source.ttl_ms * source.jitter_percent / 100 * self.chance.random())
        else:
            ttl_ms = self.settings.ttl_max_ms
        return max(1, min(ttl_ms, self.settings.ttl_max_ms))

    def _call_failed(self, state: KeyState, failure: Failure) -> None:
        source = self.settings.source_of(state.key)
        if failure.missing and source is not None and source.negative_ms:
            backoff_ms = source.negative_ms
        else:
            doubled = 1 << min(state.failures, DOUBLINGS_MAX)
            backoff_ms = min(self.timing.backoff_ms * doubled, self.timing.backoff_max_ms)
        self._record("fetch-failed", state.key, failure.reason)
        self._finish_claim(state, wait_ms=backoff_ms, missing=failure.missing)
        self._failed(state, backoff_ms, failure.reason, missing=failure.missing)

    def _failed(self, state: KeyState, backoff_ms: int, reason: str, *, missing: bool = False) -> None:
        """There is no value: who waits is told why, and the key rests (C7)."""
        state.failures += 1
        state.failure, state.missing = reason, missing
        state.backoff_until_ms = self._now_ms + backoff_ms
        state.wanted = False
        self._out += self.waiting.refuse(state.key, reason, miss=missing)
        for wish in state.wishes:
            self._out.append(Finished(wish.request, False, reason))
        state.wishes = []
        self._try_stand(state)

    def _satisfied(self, state: KeyState, meta: Meta) -> None:
        state.wanted = state.wanted and meta.epoch.term < state.need
        state.entry = None
        if state.candidacy is not None and meta.epoch.term >= state.candidacy.need:
            state.candidacy = None
        claim = state.claim
        if claim is not None and not claim.called and meta.epoch.term >= claim.need:
            self._finish_claim(state)
        self._try_stand(state)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _unable(self, key: bytes) -> str:
        """Why a request about this key cannot even begin; empty if it can."""
        if not self.members.listed:
            return NOT_LISTED
        if not 0 < len(key) <= self.settings.key_bytes_max:
            return f"the key has {len(key)} bytes"
        if not self._reachable():
            return "this peer sees no majority of the peers"
        return ""

    def _room_for(self, key: bytes, size: int) -> KeyState | None:
        """The record of this key, if one more refresh or put finds room."""
        self._ordered = {known: None for known in self._ordered if self._orders_of(known) != (0, 0)}
        orders = [self._orders_of(known) for known in self._ordered]
        count, put_bytes = sum(number for number, _ in orders), sum(each for _, each in orders)
        if count >= self.settings.requests_max or put_bytes + size > PUT_BYTES_MAX:
            return None
        state = self._activate(key)
        if state is not None:
            self._ordered[key] = None
        return state

    def _orders_of(self, key: bytes) -> tuple[int, int]:
        """How many refreshes and puts of this key wait, and the bytes of their values."""
        state = self.keys.get(key)
        if state is None:
            return 0, 0
        return len(state.wishes) + len(state.gifts), sum(len(gift.value) for gift in state.gifts)

    def _refresh(self, given: Refresh) -> None:
        """An election with a need above the present epoch; the old value stays fresh meanwhile (C11)."""
        state = None
        reason = self._unable(given.key)
        if not reason:
            state = self._room_for(given.key, 0)
            reason = TOO_MANY
        if state is None:
            self._out.append(Finished(given.request, False, reason))
            return
        until_ms = self._now_ms + REQUEST_MS if given.until_ms is None else given.until_ms
        state.wishes.append(Wish(given.request, self.metas.get(given.key, Meta()).epoch.term + 1, until_ms))
        self._try_stand(state)

    def _put(self, given: Put) -> None:
        """An election whose call is the client's own value."""
        state = None
        reason = self._unable(given.key)
        if not reason and len(given.value) > self.settings.value_bytes_max:
            reason = f"the value has {len(given.value)} bytes"
        if not reason:
            state = self._room_for(given.key, len(given.value))
            reason = TOO_MANY
        if state is None:
            self._out.append(Finished(given.request, False, reason))
            return
        until_ms = self._now_ms + REQUEST_MS if given.until_ms is None else given.until_ms
        state.gifts.append(Gift(given.request, given.value, given.ttl_ms, until_ms))
        self._try_stand(state)

    def _requests_passed(self, state: KeyState) -> None:
        """Refreshes and puts whose time is over."""
        late = [wish.request for wish in state.wishes if self._now_ms >= wish.until_ms]
        late += [gift.request for gift in state.gifts if self._now_ms >= gift.until_ms]
        if not late:
            return
        self._out += [Finished(request, False, "it was not done in time") for request in late]
        state.wishes = [wish for wish in state.wishes if wish.request not in late]
        state.gifts = [gift for gift in state.gifts if gift.request not in late]
        if state.claim is not None and state.claim.gift is not None and state.claim.gift.request in late:
            self._finish_claim(state)
