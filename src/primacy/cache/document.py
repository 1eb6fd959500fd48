"""The machine of mode `mixed`: the document's rules 1 to 10 per key, beside peers of the original. Pure.

Who wins the votes of a majority fetches the key and announces it; followers wait for it; a fresh UPDATE ends it. What
the original does otherwise than its document, and which holes of the document are closed as far as originals can
follow, stands in docs/origins/deviations.md under "HA cache" and in the parts: `document_elect.py` (votes),
`document_source.py` (calls), `document_floor.py` (invalidation), `document_state.py` (what is remembered).

Not excluded here, because originals ack nothing and forget votes: two sources at once. Mode `own` excludes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from primacy.cache import document_elect as elect
from primacy.cache import document_source as source
from primacy.cache.document_floor import Floors
from primacy.cache.document_state import FAR_MS, Campaign, Following, Forced, Sourcing, State
from primacy.cache.effects import Effect, Finished, Give, Membership, Record, Refuse, SeeOther, Send
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
from primacy.cache.machine import NOT_LISTED, KeyView
from primacy.cache.messages import (
    Announce,
    Answer,
    EntryRequest,
    FloorAck,
    FloorAnswer,
    FloorQuery,
    FloorSet,
    Message,
    Ping,
    Pong,
    Question,
    Update,
)
from primacy.cache.model import ALL, CacheSettings, Meta, PeerAddress, Role

FORCED_MS = 2_000
"""How long a refresh or a put without a time of its own goes on asking."""


class DocumentMachine:
    """All keys of one peer."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        self._state = State(me, peers, settings, chance)
        self._floors = Floors(self._state)

    # --- what a driver sees -------------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int | None:
        state = self._state
        moments = (state.timers.next_ms(), state.waiting.deadline_ms, state.ping_ms, self._floors.deadline_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def fresh_until_ms(self) -> int:
        """There is no C12 here: what is fresh stays so until its expiry."""
        return FAR_MS if self._state.listed else 0

    def role(self, key: bytes) -> Role:
        return self._state.role(key)

    def meta(self, key: bytes) -> Meta:
        return self._state.meta(key)

    @property
    def partitioned(self) -> bool:
        return self._state.partitioned

    def view(self, now_ms: int, wall_ms: int, key: bytes) -> KeyView:  # noqa: ARG002 -- the face of both modes
        state = self._state
        meta = state.meta(key)
        match state.active.get(key):
            case Sourcing():
                source_url = state.me
            case Following(peer=peer, sourcing=True):
                source_url = peer
            case _:
                source_url = ""
        fresh = meta.expire_ms > wall_ms
        return KeyView(key, state.role(key), meta.term, meta, fresh, source_url, len(state.waiting.of(key)))

    def retire(self) -> None:
        self._state.settings = self._state.settings._replace(calls_max=0)

    def known_keys(self) -> Iterable[bytes]:
        return {**dict.fromkeys(self._state.metas), **dict.fromkeys(self._state.active)}

    def in_touch(self, now_ms: int) -> bool:  # noqa: ARG002
        return self._state.listed and not self._state.partitioned

    # --- the one way in -----------------------------------------------------------------------------------------------

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[Effect]:
        state = self._state
        state.now_ms = max(state.now_ms, now_ms)
        state.wall_ms = wall_ms
        match given:
            case Received(sender, message):
                return self._received(sender, message)
            case Asked():
                return self._asked(given)
            case TimerPassed():
                return self._passed()
            case SourceEnded():
                return self._source_ended(given)
            case Withdrawn(request):
                state.waiting.withdraw(request)
                return []
            case ValueGone(key, epoch):
                meta = state.meta(key)
                return state.drop(key) if meta.expire_ms and meta.epoch == epoch else []
            case Started():
                return self._started(given)
            case Invalidate():
                return self._floors.invalidate(given)
            case FloorStored():
                return self._floors.stored(given)
            case Refresh() | Put():
                return self._forced(given)
            case Reload():
                return self._reload(given)
            case CeilingStored():
                return []  # terms are not lifted in this mode, so there is no ceiling
        assert_never(given)

    def _started(self, given: Started) -> list[Effect]:
        """Quiet first, for as long as a source goes on without a sign of others: what this peer voted for or followed
        in an earlier boot is forgotten (S3, S4). PINGs tell others that this peer is there (L4)."""
        state = self._state
        state.boot = given.boot
        state.metas = dict(given.metas)
        state.metas_bytes = sum(map(len, state.metas))
        state.bare = {key: None for key, meta in state.metas.items() if meta.expire_ms == 0}
        effects = self._floors.load(given.floors)
        if not state.peers:
            return effects
        state.quiet_until_ms = state.now_ms + state.timing.follower_sourcing_ms
        return effects + self._ping()

    # --- clients ------------------------------------------------------------------------------------------------------

    def _asked(self, given: Asked) -> list[Effect]:
        """2."""
        state = self._state
        request, key = given.request, given.key
        if not state.listed:
            return [SeeOther(request)]
        if not 0 < len(key) <= state.settings.key_bytes_max:
            return [Refuse(request, f"a key has 1 to {state.settings.key_bytes_max} bytes; this one has {len(key)}")]
        meta = state.meta(key)
        after_ms = min(given.after_ms, state.wall_ms)
        if state.may_give(key, meta, after_ms):
            fresh = state.fresh(meta)
            effects: list[Effect] = [Give(request, key, meta, not fresh)]
            return effects if fresh or not given.fetch else effects + elect.wanted(state, key)
        if not given.fetch:
            return [SeeOther(request, miss=True)]
        refusal = self._refusal(request, key)
        if refusal is not None and state.waiting.at_once(state.now_ms, key):
            return [refusal]
        effects = state.waiting.add(state.now_ms, request, key, after_ms, offers=given.offers, until_ms=given.until_ms)
        if request not in state.waiting or refusal is not None:
            return effects
        then = elect.wanted(state, key)
        return effects + then if request in state.waiting else then

    def _refusal(self, request: int, key: bytes) -> Effect | None:
        """Why nothing can be done about the key here and now."""
        state = self._state
        failed = state.failed.get(key)
        if failed is not None and state.now_ms < failed.until_ms and state.idle(key):
            return Refuse(request, failed.reason, failed.missing)
        return SeeOther(request) if state.partitioned else None

    def _forced(self, given: Refresh | Put) -> list[Effect]:
        """An election although the key may be fresh. Our own peers agree to it; an original that has a fresh copy is
        the end of it."""
        state = self._state
        request, key = given.request, given.key
        until_ms = state.now_ms + FORCED_MS if given.until_ms is None else given.until_ms
        forced = Forced(request, until_ms)
        if isinstance(given, Put):
            if len(given.value) > state.settings.value_bytes_max:
                return [Finished(request, False, f"a value has at most {state.settings.value_bytes_max} bytes")]
            forced.value, forced.ttl_ms = given.value, max(1, min(given.ttl_ms, state.settings.ttl_max_ms))
        refusal = self._why_not(key, forced)
        return [Finished(request, False, refusal)] if refusal else elect.campaign(state, key, forced)

    def _why_not(self, key: bytes, forced: Forced) -> str:
        state = self._state
        if not state.listed:
            return NOT_LISTED
        if not 0 < len(key) <= state.settings.key_bytes_max:
            return f"a key has 1 to {state.settings.key_bytes_max} bytes; this one has {len(key)}"
        if key in state.active or key in state.calls:
            return "the key is being fetched: try again"
        if state.partitioned:
            return "too few peers are heard"
        if state.now_ms < state.quiet_until_ms:
            return "this peer has just started: try again in a moment"
        if forced.value is None and state.settings.source_of(key) is None:
            return "this peer has no source for the key"
        if forced.value is None and len(state.calls) >= state.settings.calls_max:
            return "too many calls at once: try again"
        return ""

    # --- peers --------------------------------------------------------------------------------------------------------

    def _received(self, sender: str, message: Message) -> list[Effect]:
        state = self._state
        if sender not in state.peers or not state.listed:
            return []
        state.heard[sender] = state.now_ms
        if message.trailer is not None:
            state.ours[sender] = message.trailer.boot
        return self._regained(sender) + self._message(sender, message)

    def _message(self, sender: str, message: Message) -> list[Effect]:
        state = self._state
        match message:
            case Question():
                return elect.question(state, sender, message)
            case Answer():
                return elect.answered(state, sender, message)
            case EntryRequest():
                return elect.entry_requested(state, sender, message)
            case Update():
                return elect.updated(state, message)
            case Announce():
                return elect.announced(state, sender, message)
            case Ping():
                return [Send(sender, Pong(state.trailer(sender)))]  # 8
            case FloorQuery() | FloorAnswer() | FloorSet() | FloorAck():
                return self._floors.heard(sender, message)
        return []  # PONG has been counted (9); what only mode `own` says is not understood

    def _regained(self, sender: str) -> list[Effect]:
        """9. Any message counts, not only a PONG."""
        state = self._state
        if not state.partitioned:
            return []
        state.regained[sender] = None
        if len(state.regained) + 1 < state.majority:
            return []
        state.partitioned = False
        state.ping_ms = None
        return [Record("regained", b"", f"{len(state.regained) + 1} peers are heard")]

    def _ping(self) -> list[Effect]:
        """Partitioned: until a majority is heard. After a start: while it is quiet."""
        state = self._state
        state.regained.clear()
        state.pinged_ms = state.now_ms
        if state.partitioned:
            state.ping_ms = state.now_ms + state.timing.ping_lost_ms
        elif state.now_ms < state.quiet_until_ms:
            state.ping_ms = state.now_ms + state.timing.follower_ms
        else:
            state.ping_ms = None
            return []
        return [Send(ALL, Ping(state.trailer()))]

    def _reload(self, given: Reload) -> list[Effect]:
        """The list has changed. Elections that run ask again among the new ones."""
        state = self._state
        returns = not state.listed
        state.set_peers(given.peers)
        if not state.listed:
            return [*self._leave(), Membership(given.peers), Finished(given.request, True)]
        for active in state.active.values():
            if isinstance(active, Campaign):
                active.aborted = True
        reason = "while the lists of the peers differ, a key may be fetched twice"
        effects: list[Effect] = [Membership(given.peers), Finished(given.request, True, reason)]
        if returns and state.peers:  # as at a start
            state.quiet_until_ms = state.now_ms + state.timing.follower_sourcing_ms
            effects += self._ping()
        return effects

    def _leave(self) -> list[Effect]:
        """This peer was removed from the list: what is under way here is another's to do."""
        state = self._state
        effects = state.waiting.see_other_all() + self._floors.give_up(NOT_LISTED)
        for key, active in tuple(state.active.items()):
            if isinstance(active, Sourcing):
                effects += source.cancel(state, key, active, NOT_LISTED)
            else:
                effects += source.unforced(active.forced if isinstance(active, Campaign) else None, NOT_LISTED)
                state.become(key, None)
        for key in tuple(state.wake):
            state.become(key, None)
        state.ping_ms = None
        return effects

    # --- time ---------------------------------------------------------------------------------------------------------

    def _passed(self) -> list[Effect]:
        state = self._state
        effects: list[Effect] = []
        if state.ping_ms is not None and state.now_ms >= state.ping_ms:
            effects += self._ping()
        while (key := state.timers.pop(state.now_ms)) is not None:
            match state.active.get(key):
                case Campaign() as asking:
                    effects += elect.campaign_timer(state, key, asking)
                case Sourcing() as sourcing:
                    effects += elect.sourcing_timer(state, key, sourcing)
                case Following():
                    effects += elect.following_timer(state, key)
                case None:
                    effects += elect.woke(state, key)
        effects += self._floors.passed()
        return effects + state.waiting.passed(state.now_ms, state.idle)

    def _source_ended(self, given: SourceEnded) -> list[Effect]:
        state = self._state
        effects = source.ended(state, given.key, given.ballot, given.result)
        return effects + elect.settle(state, given.key) + self._settle_calls()

    def _settle_calls(self) -> list[Effect]:
        """A place among the calls may be free: for the key that was asked for first and is idle."""
        state = self._state
        if len(state.calls) + 1 < state.settings.calls_max:
            return []
        idle = next((key for key in state.waiting.keys() if state.idle(key)), None)  # noqa: SIM118
        return [] if idle is None else elect.wanted(state, idle)
