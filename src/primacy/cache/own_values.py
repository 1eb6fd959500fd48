"""Values in mode `own`: which may be given as what, which replaces which, and how a copy is fetched from a peer.

Fresh = expiry ahead, epoch above the floor, and in touch (C12). A value carries the epoch of its call, and only a
higher one replaces it (C8), whatever the expiry. A copy that a peer claims to have and does not send raises `need`
(C6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from primacy.cache.effects import DropValue, Finished, Give, Refuse, SeeOther, Send, SendEntry, StoreEntry
from primacy.cache.inputs import Asked, ValueGone
from primacy.cache.messages import EntryRequest, Update
from primacy.cache.model import NO_BALLOT, Ballot, Meta, SourceSettings, short_key
from primacy.cache.own_state import Entry, KeyState, OwnState
from primacy.cache.waiting import GIVEN_MAX, Waiter

HITS_MAX = 10_000
"""Keys whose hits shortly before their expiry are counted (`refresh_ahead_ms`). Beyond it counting starts anew."""


class Values(OwnState, ABC):
    """Layer of the machine: what is held, given and taken."""

    _hits: dict[bytes, int]

    # --- what the layers above do -------------------------------------------------------------------------------------

    @abstractmethod
    def _try_stand(self, state: KeyState) -> None: ...

    @abstractmethod
    def _satisfied(self, state: KeyState, meta: Meta) -> None:
        """A fresh value came: nothing needs to be fetched for its sake any more."""

    @abstractmethod
    def _free(self, state: KeyState, ballot: Ballot) -> None: ...

    # --- fresh, stale, dead -------------------------------------------------------------------------------------------

    def _stale_ms(self, key: bytes) -> int | None:
        source = self.settings.source_of(key)
        return self.settings.stale_ms if source is None else source.stale_ms

    def _above_floor(self, key: bytes, epoch: Ballot) -> bool:
        return epoch.term > self.floors.of(key)

    def _alive(self, key: bytes, meta: Meta) -> bool:
        """May this copy be given at all?"""
        if meta.expire_ms == 0 or not self._above_floor(key, meta.epoch):
            return False
        if meta.expire_ms > self._wall_ms:
            return True
        stale_ms = self._stale_ms(key)
        return stale_ms is None or self._wall_ms < meta.expire_ms + stale_ms

    def _vouched(self, epoch: Ballot) -> bool:
        """In touch, for values of this epoch (C12)."""
        return self.touch.vouched(self.members, self._now_ms, epoch.term)

    def _fresh(self, key: bytes, meta: Meta) -> bool:
        return meta.expire_ms > self._wall_ms and self._above_floor(key, meta.epoch) and self._vouched(meta.epoch)

    def _reachable(self) -> bool:
        """Can an election be won, as far as this peer knows?"""
        if self.members.majority == 1:
            return True
        return self._lost_ms is None and self._now_ms < self.touch.until_ms(self.members, self._now_ms)

    # --- clients ------------------------------------------------------------------------------------------------------

    def _asked(self, given: Asked) -> None:
        key, meta = given.key, self.metas.get(given.key)
        if not self.members.listed:
            self._out.append(SeeOther(given.request))
            return
        if not 0 < len(key) <= self.settings.key_bytes_max:
            self._out.append(Refuse(given.request, f"the key has {len(key)} bytes"))
            return
        if meta is not None and self._fresh(key, meta):
            self._out.append(Give(given.request, key, meta, False))
            self.counts["hit"] = self.counts.get("hit", 0) + 1
            if self._ahead:
                self._refresh_behind(key, meta, fresh=True)
            return
        if meta is not None and given.after_ms < min(meta.expire_ms, self._wall_ms) and self._alive(key, meta):
            self._out.append(Give(given.request, key, meta, True))
            self.counts["stale"] = self.counts.get("stale", 0) + 1
            self._refresh_behind(key, meta, fresh=False)
            return
        self.counts["miss"] = self.counts.get("miss", 0) + 1
        if not given.fetch:
            self._out.append(SeeOther(given.request, miss=True))
        else:
            self._wait(given)

    def _wait(self, given: Asked) -> None:
        """Nothing here will do: the client waits for a retrieval, if there can be one."""
        known = self.keys.get(given.key)
        if not self._reachable():
            self._out.append(SeeOther(given.request))
            return
        if known is not None and self._now_ms < known.backoff_until_ms:
            self._out.append(Refuse(given.request, known.failure, known.missing))
            return
        joins = known is not None and self.waiting.waits(given.key)
        state = known if joins else self._activate(given.key)
        if state is None:
            self._out.append(SeeOther(given.request))
            return
        after_ms = min(given.after_ms, self._wall_ms)
        self._out += self.waiting.add(
            self._now_ms, given.request, given.key, after_ms, offers=given.offers, until_ms=given.until_ms
        )
        if joins:  # all that can be done for this key is under way: one more who waits costs next to nothing
            state.heard_ms = self._now_ms
        else:
            self._try_stand(state)

    def _refresh_behind(self, key: bytes, meta: Meta, *, fresh: bool) -> None:
        """A copy was given: does it have to be fetched anew behind it?"""
        source = self.settings.source_of(key)
        if source is None or not self._reachable():
            return
        if fresh and not self._hot(key, meta, source):
            return
        state = self._activate(key)
        if state is None or self._now_ms < state.backoff_until_ms:
            return
        if fresh:
            state.need = max(state.need, meta.epoch.term + 1)
        state.wanted = True
        self._try_stand(state)

    def _hot(self, key: bytes, meta: Meta, source: SourceSettings) -> bool:
        """Asked for twice shortly before its expiry (`refresh_ahead_ms`)."""
        if source.refresh_ahead_ms == 0 or meta.expire_ms - self._wall_ms > source.refresh_ahead_ms:
            return False
        if len(self._hits) >= HITS_MAX:
            self._hits.clear()
        short = short_key(key)
        self._hits[short] = self._hits.get(short, 0) + 1
        if self._hits[short] < 2:
            return False
        del self._hits[short]
        return True

    def _gone(self, given: ValueGone) -> None:
        """The storage lost the value. Its epoch stays: what is older must not come back (C8)."""
        meta = self.metas.get(given.key)
        if meta is not None and meta.expire_ms and meta.epoch == given.epoch:
            self._drop_value(given.key, meta)

    def _drop_value(self, key: bytes, meta: Meta) -> None:
        """The value is gone or of no use; its epoch keeps older ones from coming back (C8)."""
        self.metas[key] = bare = meta._replace(expire_ms=0, size=0)
        self._out.append(DropValue(key, bare))

    # --- taking a value -----------------------------------------------------------------------------------------------

    def _replaces(self, state: KeyState | None, key: bytes, epoch: Ballot) -> bool:
        """Only a higher epoch replaces (C8); the same one only where its value was lost."""
        if not self._above_floor(key, epoch):
            return False
        if state is not None and not self._above_promise(state, epoch):
            return False
        meta = self.metas.get(key)
        if meta is None or meta.epoch == NO_BALLOT:
            return epoch.term > self.base_epoch
        if epoch == meta.epoch:
            return meta.expire_ms == 0
        return self._order(key, epoch) > self._order(key, meta.epoch)

    def _above_promise(self, state: KeyState, epoch: Ballot) -> bool:
        """While a promise runs, nothing below the ballot that was acked is taken: a late result loses (C8)."""
        if state.claim is not None and state.claim.called:
            return self._order(state.key, epoch) >= self._order(state.key, state.claim.ballot)
        if state.promise is None or not self._has_promised(state):
            return True
        return self._order(state.key, epoch) >= self._order(state.key, state.promise)

    def _heard_update(self, sender: str, update: Update) -> None:
        trailer = update.trailer
        assert trailer is not None
        key, epoch = update.key, trailer.epoch
        if epoch.term == 0 or len(update.value) > self.settings.value_bytes_max or not update.expire_ms:
            return
        if not 0 < len(key) <= self.settings.key_bytes_max:
            return
        state = self._known(key)
        if self._replaces(state, key, epoch):
            self._take(key, Meta(0, update.expire_ms, epoch, len(update.value), trailer.fetched_ms), update.value)
        self._raise_term(key, max(update.term, epoch.term))
        if state is not None and trailer.ballot == epoch and epoch.peer == sender and epoch.boot == trailer.boot:
            self._free(state, epoch)

    def _take(self, key: bytes, meta: Meta, value: bytes) -> None:
        """This value is the newest one that is known here."""
        term = max(self._term(key), meta.epoch.term)
        self.top_term = max(self.top_term, term)
        meta = meta._replace(term=term)
        self._note(key, meta)
        self._out.append(StoreEntry(key, meta, value))
        if self._is_unusual(meta.epoch):
            self._unusual_term = min(self._unusual_term, meta.epoch.term)
            self._unusual_until_ms = max(self._unusual_until_ms, meta.expire_ms)
            self._still_fresh()
        state = self._known(key)
        if state is None:
            return
        if self._order(key, meta.epoch) > self._order(key, state.promised):
            state.promised = meta.epoch
        state.failures = state.backoff_until_ms = 0
        self._serve(state, meta)
        if state.entry is not None and self._order(key, meta.epoch) >= self._order(key, state.entry.epoch):
            state.entry = None
        for wish in [wish for wish in state.wishes if meta.epoch.term >= wish.need]:
            state.wishes.remove(wish)
            self._out.append(Finished(wish.request, True))
        if self._fresh(key, meta):
            self._satisfied(state, meta)
        else:
            self._try_stand(state)

    def _serve(self, state: KeyState, meta: Meta) -> None:
        """Everybody who waits and whom this value suits gets it: a bounded number now, the others right after what
        peers have said meanwhile."""
        self._serving.pop(state.key, None)
        if not self.waiting.waits(state.key) or not self._alive(state.key, meta):
            return
        fresh = self._fresh(state.key, meta)

        def fits(waiter: Waiter) -> bool:
            """Who wants a fresh one is not given what only touch would make fresh; what expired on its way is given,
            because it was fetched for him."""
            return fresh or waiter.after_ms == 0 or meta.expire_ms <= self._wall_ms

        given = self.waiting.give(state.key, meta, stale=not fresh, fits=fits, most=GIVEN_MAX)
        self._out += given
        if len(given) == GIVEN_MAX and self.waiting.waits(state.key):
            self._serving[state.key] = None

    def _serve_on(self) -> None:
        """More requests of one key get its value, if it still suits them. Whom it does not suit is fetched for."""
        key = next(iter(self._serving))
        state, meta = self._known(key), self.metas.get(key)
        if state is None or meta is None:
            del self._serving[key]
            return
        self._serve(state, meta)
        if key not in self._serving:
            self._try_stand(state)

    # --- copies of peers ----------------------------------------------------------------------------------------------

    def _fetch_copy(self, state: KeyState, peer: str, epoch: Ballot) -> None:
        """A peer says that it has a fresh copy: one ENTRYREQ per key under way (C6, E1)."""
        if state.entry is not None:
            return
        state.entry = Entry(peer, epoch, self._now_ms + self.timing.entry_ms)
        self._out.append(Send(peer, EntryRequest(state.key, self._trailer())))

    def _heard_entry_request(self, sender: str, request: EntryRequest) -> None:
        meta = self.metas.get(request.key)
        if meta is None or not self._alive(request.key, meta):
            return
        trailer = self._trailer(NO_BALLOT, epoch=meta.epoch, fetched_ms=meta.fetched_ms)
        message = Update(request.key, meta.term, meta.expire_ms, b"", trailer)
        self._out.append(SendEntry(sender, message, meta))

    def _entry_passed(self, state: KeyState) -> None:
        """The copy that was claimed did not come: the next question needs a higher epoch (C6)."""
        entry = state.entry
        if entry is not None and self._now_ms >= entry.until_ms:
            state.entry = None
            if entry.epoch != NO_BALLOT:
                state.need = max(state.need, self._unanswered_need(entry))
                self._record("copy-missing", state.key, entry.peer)

    def _unanswered_need(self, entry: Entry) -> int:
        return entry.epoch.term + 1
