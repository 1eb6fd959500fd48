"""Mode `mixed`, state sourcing: the call, its ANNOUNCEs, its end (10 of the document). Pure.

Originals ack nothing, so nobody can prove that he alone fetches. What can be done about it (weaknesses S1, S4, L1):
each ANNOUNCE goes with a PING, and the call may run for as long after the last one that a majority was heard after as
followers wait for the next; then it is cancelled, and a frozen peer's result is not used. A higher term of another
source ends it, and so does a fresh value. The expiry counts from the start of the call, as the document says.
"""

from __future__ import annotations

from primacy.cache.document_state import FAILURES_MAX, FAR_MS, NO_META, Failed, Forced, Sourcing, State
from primacy.cache.effects import Call, Cancel, Effect, Extend, Finished, Record, Send, StoreEntry
from primacy.cache.messages import Announce, Answer, EntryRequest, Ping, Update
from primacy.cache.model import ALL, NO_BALLOT, Ballot, Failure, Fetched, Meta

LIMIT_MS = 30_000
"""Of a call that a waiting client makes for a key without a source."""
RETRY_MS = 250
"""An ANNOUNCE after which no majority was heard is repeated after this: three may be lost before the call is ended."""


def takes(state: State, key: bytes, expire_ms: int, epoch: Ballot) -> bool:
    """Does a value of this expiry and epoch replace what is here (4)? It must expire later. A fresh value that one of
    this product fetched is not replaced by one of a lower term, nor by one without an epoch: a late result (S4)."""
    meta = state.meta(key)
    if not state.passes(key, epoch):
        return False
    if state.fresh(meta) and meta.epoch != NO_BALLOT:
        if epoch == NO_BALLOT:
            return False
        if epoch.term != meta.epoch.term:
            return epoch.term > meta.epoch.term and expire_ms > state.wall_ms
    return expire_ms > meta.expire_ms


def keep(state: State, key: bytes, meta: Meta, value: bytes) -> list[Effect]:
    """Store the value and give it to who waits for it."""
    state.note(key, meta)
    state.bare.pop(key, None)
    fresh = state.fresh(meta)
    if fresh:
        state.failed.pop(key, None)
    fitting = state.waiting.give(
        key, meta, stale=not fresh, fits=lambda waiter: state.may_give(key, meta, waiter.after_ms)
    )
    return [StoreEntry(key, meta, value), *fitting]


# --- the call ---------------------------------------------------------------------------------------------------------


def begin(
    state: State, key: bytes, ballot: Ballot, proved_ms: int, stale_from: str = "", forced: Forced | None = None
) -> list[Effect]:
    """An election was won whose QUESTION left at `proved_ms`, or there is nobody to ask. `stale_from`: who has a later
    copy than this peer; it is asked for it in a moment."""
    assert key not in state.calls, "one call per key"
    source = state.settings.source_of(key)
    limit_at_ms = state.now_ms + (LIMIT_MS if source is None else source.limit_ms)
    sourcing = Sourcing(ballot, state.wall_ms, limit_at_ms, proved_ms, state.now_ms, 0, 0, 0, stale_from, forced)
    _bound(state, sourcing)
    state.calls[key] = ballot
    effects = _announce(state, key, sourcing, ping=False)
    state.become(key, sourcing)
    called = Call(key, ballot, sourcing.cancel_at_ms, sourcing.over_at_ms, state.waiting.offers(key))
    return [*effects, called, Record("called", key, f"term {ballot.term}")]


def _bound(state: State, sourcing: Sourcing) -> None:
    """The two times of the call: followers wait for so long after an ANNOUNCE, and the limit counts anyway."""
    timing = state.timing
    grace_ms = timing.hold_ms - timing.cancel_at_ms
    end_ms = sourcing.proved_ms + timing.follower_sourcing_ms if state.peers else FAR_MS
    sourcing.cancel_at_ms = min(end_ms - grace_ms, sourcing.limit_at_ms)
    sourcing.over_at_ms = min(end_ms, sourcing.limit_at_ms + grace_ms)


def _announce(state: State, key: bytes, sourcing: Sourcing, ping: bool) -> list[Effect]:
    """`ping`: not with the first, whose votes say who is there; a message from the wire causes one message to each."""
    if not state.peers:
        sourcing.next_ms = FAR_MS
        return []
    sourcing.round_ms = state.now_ms
    sourcing.next_ms = state.now_ms + min(RETRY_MS, state.timing.announce_ms)
    effects: list[Effect] = [announcement(state, ALL, key, sourcing)]
    if ping and state.pinged_ms != state.now_ms:
        state.pinged_ms = state.now_ms
        effects.append(Send(ALL, Ping(state.trailer())))
    return effects


def announcement(state: State, to: str, key: bytes, sourcing: Sourcing) -> Send:
    meta = state.meta(key)
    return Send(to, Announce(key, meta.term, meta.expire_ms, state.trailer(to, ballot=sourcing.ballot)))


def prove(state: State, key: bytes, sourcing: Sourcing) -> list[Effect]:
    """A majority was heard after the last ANNOUNCE left: the call may run on. Its two times never move back."""
    if sourcing.proved_ms == sourcing.round_ms or state.heard_since(sourcing.round_ms) < state.majority:
        return []
    sourcing.proved_ms = sourcing.round_ms
    _bound(state, sourcing)
    return [Extend(key, sourcing.ballot, sourcing.cancel_at_ms, sourcing.over_at_ms)]


def timer(state: State, key: bytes, sourcing: Sourcing) -> list[Effect]:
    """The next ANNOUNCE, or the end of the call's time."""
    effects = prove(state, key, sourcing)
    if state.now_ms >= sourcing.limit_at_ms:
        ended_now = cancel(state, key, sourcing, "it took too long")
        return effects + ended_now + fail(state, key, sourcing, Failure("the source took too long"))
    if cut_off(state, sourcing):
        return effects + cancel(state, key, sourcing, "too few peers are heard") + _told_over(state, key, sourcing)
    if sourcing.stale_from:
        effects.append(Send(sourcing.stale_from, EntryRequest(key, state.trailer(sourcing.stale_from))))
        sourcing.stale_from = ""
    proved = sourcing.proved_ms == sourcing.round_ms
    if proved and state.now_ms < sourcing.round_ms + state.timing.announce_ms:
        sourcing.next_ms = sourcing.round_ms + state.timing.announce_ms
    elif state.now_ms >= sourcing.next_ms:
        effects += _announce(state, key, sourcing, ping=True)
    state.arm(key)
    return effects


def cut_off(state: State, sourcing: Sourcing) -> bool:
    """No majority was heard for as long as followers wait: another peer may be elected."""
    return state.now_ms >= sourcing.cancel_at_ms and sourcing.cancel_at_ms < sourcing.limit_at_ms


def cancel(state: State, key: bytes, sourcing: Sourcing, reason: str = "the call was ended") -> list[Effect]:
    """The call ends. It is no longer ours to use; the key stays closed here until it is confirmed over."""
    grace_ms = state.timing.hold_ms - state.timing.cancel_at_ms
    over_at_ms = max(state.now_ms, min(sourcing.over_at_ms, state.now_ms + grace_ms))
    state.become(key, None)
    effects: list[Effect] = [Cancel(key, sourcing.ballot, over_at_ms), Record("cancelled", key, reason)]
    return effects + unforced(sourcing.forced, reason)


def unforced(forced: Forced | None, reason: str) -> list[Effect]:
    """Who asked for a refresh, or brought a value, is told that it came to nothing."""
    return [] if forced is None else [Finished(forced.request, False, reason)]


# --- its end ----------------------------------------------------------------------------------------------------------


def ended(state: State, key: bytes, ballot: Ballot, result: Fetched | Failure) -> list[Effect]:
    """The call is over. What it brought counts only while the peer is still sourcing under this ballot, in time."""
    if state.calls.get(key) != ballot:
        return []
    del state.calls[key]
    sourcing = state.active.get(key)
    if not isinstance(sourcing, Sourcing) or sourcing.ballot != ballot:
        return []
    prove(state, key, sourcing)  # nothing runs any more that could be extended: only the times count
    if state.now_ms >= sourcing.over_at_ms:
        state.become(key, None)
        late = "the result came after others were free to fetch"
        return [*_told_over(state, key, sourcing), Record("late", key, late), *unforced(sourcing.forced, late)]
    if isinstance(result, Fetched) and len(result.value) > state.settings.value_bytes_max:
        result = Failure(f"the value has {len(result.value)} bytes; {state.settings.value_bytes_max} are allowed")
    if isinstance(result, Failure):
        state.become(key, None)
        if cut_off(state, sourcing):  # ended by who runs it, before our timer: the source is not to blame
            return _told_over(state, key, sourcing) + unforced(sourcing.forced, "too few peers are heard")
        if result.released:
            return _told_over(state, key, sourcing) + unforced(sourcing.forced, result.reason)
        return fail(state, key, sourcing, result)
    ttl_ms = _ttl_ms(state, key, result)
    return use(state, key, sourcing.ballot, sourcing.started_wall_ms, ttl_ms, result.value, sourcing.forced)


def _ttl_ms(state: State, key: bytes, result: Fetched) -> int:
    source = state.settings.source_of(key)
    default_ms = 3_600_000 if source is None else source.ttl_ms
    ttl_ms = max(1, min(default_ms if result.ttl_ms is None else result.ttl_ms, state.settings.ttl_max_ms))
    if source is not None and source.jitter_percent:
        ttl_ms -= state.chance.randint(0, ttl_ms * source.jitter_percent // 100)
    return ttl_ms


def use(
    state: State, key: bytes, ballot: Ballot, started_wall_ms: int, ttl_ms: int, value: bytes, forced: Forced | None
) -> list[Effect]:
    """The value is stored, given to who waits, and sent to everybody (10). The key is idle, the vote free."""
    expire_ms = started_wall_ms + ttl_ms
    effects: list[Effect] = []
    state.become(key, None)
    term = state.meta(key).term
    if takes(state, key, expire_ms, ballot):
        meta = Meta(term, expire_ms, ballot, len(value), started_wall_ms)
        effects += keep(state, key, meta, value)
        if state.peers:
            trailer = state.trailer(ballot=ballot, epoch=ballot, fetched_ms=started_wall_ms)
            effects.append(Send(ALL, Update(key, term, expire_ms, value, trailer)))
        if forced is not None:
            effects.append(Finished(forced.request, True))
    else:
        effects += unforced(forced, "a newer value came in between")
    return [*effects, Record("fetched", key, f"{len(value)} bytes")]


def fail(state: State, key: bytes, sourcing: Sourcing, failure: Failure) -> list[Effect]:
    """The source gave nothing: a pause, doubled each time; who waits hears it now, and our peers may try theirs."""
    before = state.failed.pop(key, None)
    times = 1 if before is None else before.times + 1
    timing = state.timing
    pause_ms = min(timing.backoff_ms << min(times - 1, 16), timing.backoff_max_ms)
    source = state.settings.source_of(key)
    if failure.missing and source is not None and source.negative_ms:
        pause_ms = source.negative_ms
    if len(state.failed) >= FAILURES_MAX:
        del state.failed[next(iter(state.failed))]
    state.failed[key] = Failed(state.now_ms + pause_ms, times, failure.reason, failure.missing)
    effects = _told_over(state, key, sourcing) + unforced(sourcing.forced, failure.reason)
    effects += state.waiting.refuse(key, failure.reason, miss=failure.missing)
    return [*effects, Record("failed", key, failure.reason)]


def _told_over(state: State, key: bytes, sourcing: Sourcing) -> list[Effect]:
    """An ANSWER no to all, with a mark for our own peers. An original that is no candidate ignores it."""
    if not state.peers:
        return []
    meta = state.metas.get(key, NO_META)
    trailer = state.trailer(ballot=sourcing.ballot, ended=True)
    return [Send(ALL, Answer(key, meta.term, meta.expire_ms, False, trailer))]
