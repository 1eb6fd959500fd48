"""Mode `mixed`: who fetches a key. QUESTION, ANSWER, ANNOUNCE, UPDATE and their timeouts (1 to 7). Pure.

The numbers are those of the document. It is left where its own rules let two peers fetch at once, and as far as
originals can follow: a vote is given once per term and outlives its 300 ms (S2, S3); a source takes over a higher term
that it is asked about, and everybody follows a source whatever its term (S1); an ANSWER counts within 300 ms of the
QUESTION (S3); what a peer claims and does not send is not believed twice (L5); any message proves that a peer is there
(L4); who waits does not wait for a follower's timeout and for another client besides (L3).
"""

from __future__ import annotations

from primacy.cache import document_source as source
from primacy.cache.document_state import Active, Campaign, Following, Forced, Sourcing, State, next_term
from primacy.cache.effects import Effect, Record, Send, SendEntry
from primacy.cache.messages import Announce, Answer, EntryRequest, Ping, Question, Trailer, Update
from primacy.cache.model import ALL, NO_BALLOT, Ballot, Meta, order

ROUNDS_MAX = 8
"""Elections in a row that nobody wins, about two seconds: then clients are sent elsewhere. Terms must not grow while a
peer refuses what it cannot send (L5)."""
REQUESTED_MAX = 10_000
"""ENTRYREQs remembered as under way."""


# --- wanting a value --------------------------------------------------------------------------------------------------


def wanted(state: State, key: bytes, at_ms: int = 0) -> list[Effect]:
    """Somebody wants this key, and there is no fresh copy (2.3). Nothing if something is under way already (2.4)."""
    if not state.idle(key):
        return []
    failed = state.failed.get(key)
    if failed is not None and state.now_ms < failed.until_ms:
        return state.waiting.refuse(key, failed.reason, miss=failed.missing)
    cannot = state.settings.source_of(key) is None and not state.waiting.offers(key)
    if cannot or state.partitioned or not state.has_room():
        return state.waiting.see_other(key)
    if len(state.calls) >= state.settings.calls_max:
        return []  # when a call ends it is tried again; the next sign sends who waits elsewhere
    at_ms = max(at_ms, state.quiet_until_ms)
    if at_ms > state.now_ms:
        state.wake[key] = at_ms
        state.arm(key)
        return []
    return campaign(state, key)


def woke(state: State, key: bytes) -> list[Effect]:
    """A campaign that was put off."""
    state.become(key, None)
    return [] if state.fresh(state.meta(key)) else wanted(state, key)


def settle(state: State, key: bytes) -> list[Effect]:
    """The key has become idle. If somebody waits, another campaign begins after a moment by chance, so that those who
    noticed together do not ask together (L3)."""
    if not state.waiting.waits(key) or not state.idle(key):
        return []
    return wanted(state, key, state.now_ms + state.chance.randint(0, state.timing.question_repeat_ms))


def stand_down(state: State, key: bytes, then: Active | None, reason: str) -> list[Effect]:
    """Leaves the present state, which is not sourcing."""
    before = state.active.get(key)
    state.become(key, then)
    return source.unforced(before.forced, reason) if isinstance(before, Campaign) else []


# --- state candidate --------------------------------------------------------------------------------------------------


def campaign(state: State, key: bytes, forced: Forced | None = None) -> list[Effect]:
    """With the present term, as the document has it (an original may be winning in it); with the next one only if the
    vote of this term is used up, or a fresh value is to be replaced."""
    meta = state.meta(key)
    term = meta.term if meta.voted == "" and forced is None else next_term(meta.term)
    if not state.peers:
        alone = Campaign(Ballot(term, state.me, state.boot), state.now_ms, 0, 0, forced=forced)
        return state.adopt(key, term) + _won(state, key, alone)
    return _ask(state, key, term, 1, {}, forced)


def _ask(
    state: State, key: bytes, term: int, rounds: int, claims: dict[str, int], forced: Forced | None
) -> list[Effect]:
    effects = state.adopt(key, term, state.me)
    now_ms = state.now_ms
    ballot = Ballot(term, state.me, state.boot)
    deadline_ms = now_ms + state.draw_election_ms()
    begun = Campaign(
        ballot,
        now_ms,
        deadline_ms,
        now_ms + state.timing.question_repeat_ms,
        rounds,
        agreed={state.me: None},
        claims=claims,
        forced=forced,
    )
    state.become(key, begun)
    return [*effects, Send(ALL, _question(state, ALL, key, begun)), Record("asked", key, f"term {term}")]


def _question(state: State, to: str, key: bytes, asking: Campaign) -> Question:
    need = asking.ballot.term if asking.forced is not None else 0
    return Question(key, asking.ballot.term, state.trailer(to, ballot=asking.ballot, need=need))


def campaign_timer(state: State, key: bytes, asking: Campaign) -> list[Effect]:
    if state.now_ms >= asking.deadline_ms:
        return _timed_out(state, key, asking)
    missing = [url for url in state.peers if url not in asking.answered]
    asking.repeat_ms = state.now_ms + state.timing.question_repeat_ms
    if asking.aborted or not missing:
        asking.repeat_ms = asking.deadline_ms
    state.arm(key)
    if asking.aborted:
        return []
    to = missing if asking.answered else [ALL]
    return [Send(url, _question(state, url, key, asking)) for url in to]


def _timed_out(state: State, key: bytes, asking: Campaign) -> list[Effect]:
    """1.1: without a majority of answers partitioned; disagreed, another election in the next term."""
    if asking.forced is not None and len(asking.agreed) >= state.majority:
        return _won(state, key, asking)
    if not asking.aborted and state.heard_since(asking.started_ms) < state.majority:
        return partition(state, key, asking)
    if asking.fetching:
        asking.claims[asking.fetching] = asking.best[0]
    over = asking.forced is not None and state.now_ms >= asking.forced.until_ms
    if asking.rounds >= ROUNDS_MAX or over:
        effects = stand_down(state, key, None, "no majority agreed")
        return [*effects, *state.waiting.see_other(key), Record("undecided", key, f"{asking.rounds} elections")]
    term = next_term(state.meta(key).term)
    return _ask(state, key, term, asking.rounds + 1, asking.claims, asking.forced)


def answered(state: State, sender: str, message: Answer) -> list[Effect]:
    """7."""
    key = message.key
    asking = state.active.get(key)
    if isinstance(asking, Following) and message.trailer is not None and message.trailer.ended:
        return _over(state, sender, key, asking, message.trailer)
    if not isinstance(asking, Campaign) or sender in asking.answered:
        return []
    if message.trailer is not None and message.trailer.ballot not in (NO_BALLOT, asking.ballot):
        return []  # of another election
    asking.answered[sender] = None
    meta = state.meta(key)
    if asking.aborted:
        return state.adopt(key, message.term)
    fresh = message.expire_ms > state.wall_ms
    if asking.forced is not None:
        if fresh and message.trailer is None:
            return _refused(state, sender, message)
    elif message.expire_ms > max(meta.expire_ms, asking.best[0]) and state.passes(key, _epoch(message.trailer)):
        asking.best = (message.expire_ms, sender)
        if fresh and asking.claims.get(sender) != message.expire_ms:
            return _told_fresh(state, sender, message, asking)
    if message.term > asking.ballot.term:
        asking.aborted = True
        return state.adopt(key, message.term)
    in_time = state.now_ms - asking.started_ms <= state.timing.candidate_max_ms
    if message.term == asking.ballot.term and message.vote and in_time:
        asking.agreed[sender] = None
        complete = asking.forced is None or len(asking.answered) == len(state.peers)
        if len(asking.agreed) >= state.majority and complete:
            return _won(state, key, asking)
    return []


def _epoch(trailer: Trailer | None) -> Ballot:
    return NO_BALLOT if trailer is None else trailer.epoch


def _told_fresh(state: State, sender: str, message: Answer, asking: Campaign) -> list[Effect]:
    """7.1: another peer has a fresh copy."""
    asking.aborted = True
    asking.fetching = sender
    asking.deadline_ms = state.now_ms + state.draw_election_ms()
    asking.repeat_ms = asking.deadline_ms
    state.arm(message.key)
    return [*state.adopt(message.key, message.term), *request_entry(state, message.key, sender)]


def _refused(state: State, sender: str, message: Answer) -> list[Effect]:
    """A fresh value cannot be replaced where an original has it: it would keep its copy, and give it as fresh."""
    reason = f"{sender} is an original and reports the key as fresh: it cannot be told to drop it"
    effects = state.adopt(message.key, message.term) + stand_down(state, message.key, None, reason)
    return effects + settle(state, message.key)


def _won(state: State, key: bytes, asking: Campaign) -> list[Effect]:
    """A majority agreed. What is known now counts, not what was when it asked (S7)."""
    forced = asking.forced
    if forced is None and state.fresh(state.meta(key)):
        state.become(key, None)
        return []
    if forced is not None and forced.value is not None:
        return source.use(state, key, asking.ballot, state.wall_ms, forced.ttl_ms, forced.value, forced)
    if len(state.calls) >= state.settings.calls_max:
        return stand_down(state, key, None, "too many calls at once") + state.waiting.see_other(key)
    expire_ms, peer = asking.best
    stale_from = peer if expire_ms > state.meta(key).expire_ms and forced is None else ""
    return source.begin(state, key, asking.ballot, asking.started_ms, stale_from, forced)


def partition(state: State, key: bytes, asking: Campaign | None) -> list[Effect]:
    """Too few peers are heard. Who waits for this key is sent elsewhere now; PINGs begin at once (L4)."""
    effects = source.unforced(asking.forced, "too few peers are heard") if asking is not None else []
    if asking is not None:
        state.become(key, None)
    effects += state.waiting.see_other(key)
    if state.partitioned:
        return effects
    state.partitioned = True
    state.regained.clear()
    state.ping_ms = state.now_ms + state.timing.ping_lost_ms
    state.pinged_ms = state.now_ms
    return [*effects, Send(ALL, Ping(state.trailer())), Record("partitioned", key, "too few peers are heard")]


# --- what others ask --------------------------------------------------------------------------------------------------


def question(state: State, sender: str, message: Question) -> list[Effect]:
    """3."""
    key = message.key
    active = state.active.get(key)
    if isinstance(active, Sourcing):
        effects = state.adopt(key, message.term, state.me) if message.term > state.meta(key).term else []
        return [*effects, source.announcement(state, sender, key, active)]
    vote = _votes(state, sender, message, active)
    effects = state.adopt(key, message.term, sender if vote else None)
    if vote:
        until_ms = state.now_ms + state.timing.follower_ms
        effects += stand_down(state, key, Following(sender, False, until_ms), f"{sender} is to fetch the key")
    meta = state.meta(key)
    asked = NO_BALLOT if message.trailer is None else message.trailer.ballot
    trailer = state.trailer(sender, ballot=asked, epoch=meta.epoch)
    return [*effects, Send(sender, Answer(key, meta.term, meta.expire_ms, vote, trailer))]


def _votes(state: State, sender: str, message: Question, active: Active | None) -> bool:
    """One vote per term, kept beyond the state follower, also for oneself (S2, S3)."""
    meta = state.meta(message.key)
    need = 0 if message.trailer is None else message.trailer.need
    if state.now_ms < state.quiet_until_ms or message.key in state.calls or message.term < meta.term:
        return False
    if state.fresh(meta) and need <= meta.epoch.term:
        return False
    if isinstance(active, Following) and active.sourcing:
        return False
    if active is None and not state.has_room():
        return False
    return message.term > meta.term or meta.voted == sender or (meta.voted == "" and active is None)


def announced(state: State, sender: str, message: Announce) -> list[Effect]:
    """5."""
    key = message.key
    effects: list[Effect] = []
    if message.expire_ms > state.meta(key).expire_ms:
        effects += request_entry(state, key, sender)
    active = state.active.get(key)
    ballot = NO_BALLOT if message.trailer is None else message.trailer.ballot
    match active:
        case Sourcing():
            if not _outranks(key, message, ballot, active):
                return effects
            effects += source.cancel(state, key, active, f"{sender} fetches it in a higher term")
        case Following(peer=peer, sourcing=True) if peer != sender and message.term < state.meta(key).term:
            return effects
        case None if not state.has_room():
            return effects
    until_ms = state.now_ms + state.timing.follower_sourcing_ms
    effects += stand_down(state, key, Following(sender, True, until_ms, ballot), f"{sender} fetches the key")
    return effects + state.adopt(key, message.term)


def _outranks(key: bytes, message: Announce, ballot: Ballot, active: Sourcing) -> bool:
    """Two sources: the term that was won decides. A peer of this product says which that is."""
    if ballot != NO_BALLOT:
        return order(key, ballot) > order(key, active.ballot)
    return message.term > active.ballot.term


def _over(state: State, sender: str, key: bytes, active: Following, trailer: Trailer) -> list[Effect]:
    """The followed source says that it has ended without a value."""
    if not active.sourcing or active.peer != sender or active.ballot != trailer.ballot:
        return []
    state.become(key, None)
    return settle(state, key)


def sourcing_timer(state: State, key: bytes, sourcing: Sourcing) -> list[Effect]:
    """The next ANNOUNCE; or the end, which of a peer that hears too few others is the partitioned state."""
    effects = source.timer(state, key, sourcing)
    if key not in state.active and source.cut_off(state, sourcing):
        effects += partition(state, key, None)
    return effects


def following_timer(state: State, key: bytes) -> list[Effect]:
    """1.2, and at once a campaign if somebody waits (L3)."""
    state.become(key, None)
    return settle(state, key)


# --- values -----------------------------------------------------------------------------------------------------------


def request_entry(state: State, key: bytes, peer: str) -> list[Effect]:
    """One ENTRYREQ per key and peer under way."""
    asked = state.requested.get(key)
    if asked is not None and asked[0] == peer and state.now_ms < asked[1]:
        return []
    if len(state.requested) >= REQUESTED_MAX:
        state.requested = {k: a for k, a in state.requested.items() if state.now_ms < a[1]}
    if len(state.requested) < REQUESTED_MAX:
        state.requested[key] = (peer, state.now_ms + state.timing.entry_ms)
    return [Send(peer, EntryRequest(key, state.trailer(peer)))]


def entry_requested(state: State, sender: str, message: EntryRequest) -> list[Effect]:
    """6."""
    meta = state.meta(message.key)
    if meta.expire_ms == 0:
        return []
    trailer = state.trailer(sender, epoch=meta.epoch, fetched_ms=meta.fetched_ms)
    return [SendEntry(sender, Update(message.key, meta.term, meta.expire_ms, b"", trailer), meta)]


def updated(state: State, message: Update) -> list[Effect]:
    """4."""
    key = message.key
    epoch = _epoch(message.trailer)
    fetched_ms = 0 if message.trailer is None else message.trailer.fetched_ms
    state.requested.pop(key, None)
    if len(message.value) > state.settings.value_bytes_max:
        return []
    effects = state.adopt(key, message.term)
    if source.takes(state, key, message.expire_ms, epoch):
        meta = state.meta(key)
        meta = Meta(meta.term, message.expire_ms, epoch, len(message.value), fetched_ms, meta.voted)
        effects += source.keep(state, key, meta, message.value)
    if message.expire_ms <= state.wall_ms:
        return effects
    if not state.passes(key, epoch):
        return effects + _cannot_take(state, key)
    effects += state.write(key, state.meta(key)._replace(voted=""))
    active = state.active.get(key)
    if isinstance(active, Sourcing):
        return effects if active.forced is not None else effects + source.cancel(state, key, active, "it is fresh")
    return effects + stand_down(state, key, None, "another value came in between")


def _cannot_take(state: State, key: bytes) -> list[Effect]:
    """A fresh value that was fetched by an original, below a floor: it serves its own clients, and ours go to it."""
    if isinstance(state.active.get(key), Sourcing):
        return []
    return stand_down(state, key, None, "an original has a value that may be older") + state.waiting.see_other(key)
