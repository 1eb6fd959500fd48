"""What a peer of mode `own` remembers of one key while something is under way, and the ground that all rules stand on.

A key that is idle has a `Meta` and nothing else. `KeyState` exists from the first QUESTION, ANNOUNCE or waiting client
until nothing was heard of the key for a while. When it goes, the key's term stays, and no ballot at or below it is ever
helped again: so what was promised and what was closed can be forgotten (C2, C4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import NamedTuple

from primacy.cache.effects import Effect, Record, Send, StoreCeiling
from primacy.cache.messages import Message, Trailer
from primacy.cache.model import ALL, NO_BALLOT, TERM_MAX, Ballot, CacheSettings, Meta, PeerAddress, Role, order, rank
from primacy.cache.own_parts import Ceiling, FloorBook, Members, Touch
from primacy.cache.waiting import Waiting

CLOSED_KEPT = 8
"""Ballots of one key that are known to have ended. Beyond it all older ones are closed."""
REFUSALS_KEPT = 10_000
"""Refusals of the last half heartbeat that are remembered, so that none is repeated (E1). Beyond it none is sent."""


DUE_MAX = 128
"""Keys of one look at the time. The others follow at once, after what peers have said meanwhile."""


class Entry(NamedTuple):
    """An ENTRYREQ that is under way."""

    peer: str
    epoch: Ballot
    until_ms: int


class Wish(NamedTuple):
    """A `Refresh` that waits for a value of this term or above."""

    request: int
    need: int
    until_ms: int


class Gift(NamedTuple):
    """A `Put` that waits for its ballot."""

    request: int
    value: bytes
    ttl_ms: int
    until_ms: int


@dataclass(slots=True)
class Candidacy:
    """A QUESTION that left."""

    ballot: Ballot
    need: int
    asked_ms: int
    repeat_ms: int
    yes: dict[str, None] = field(default_factory=dict)
    no: dict[str, int] = field(default_factory=dict)
    """Who refused, and until when its reason lasts."""


@dataclass(slots=True)
class Claim:
    """A ballot that won: announced, perhaps held, perhaps called."""

    ballot: Ballot
    need: int
    won_ms: int
    next_ms: int
    number: int = 0
    departed: dict[int, int] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    no: dict[str, int] = field(default_factory=dict)
    hold_from_ms: int | None = None
    """Departure of the newest ANNOUNCE that a majority acked."""
    called: bool = False
    cancelled: bool = False
    called_wall_ms: int = 0
    gift: Gift | None = None


@dataclass(slots=True)
class KeyState:
    """One key about which something is under way."""

    key: bytes
    closed_term: int
    """No yes and no ack at or below this."""
    heard_ms: int
    promised: Ballot = NO_BALLOT
    """The highest ballot that was voted for or acked, or whose value was taken (C2)."""
    promise: Ballot | None = None
    promise_until_ms: int = 0
    """The one promise (C5)."""
    closed: tuple[Ballot, ...] = ()
    candidacy: Candidacy | None = None
    claim: Claim | None = None
    entry: Entry | None = None
    need: int = 0
    wanted: bool = False
    """A copy that was given is to be fetched anew, although nobody waits."""
    retry_ms: int | None = None
    quiet_until_ms: int = 0
    """It said yes, or lost to a higher ballot: it does not ask before (C3)."""
    backoff_until_ms: int = 0
    failures: int = 0
    failure: str = ""
    missing: bool = False
    """The failure was that the source has no such entry."""
    wishes: list[Wish] = field(default_factory=list)
    gifts: list[Gift] = field(default_factory=list)
    timer_ms: int | None = None
    """The earliest entry of this key among the timers."""


class OwnState:
    """The ground of the machine: what it is, what it knows, what it has to say in this step."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        timing = settings.timing
        self.me = me
        self.settings = settings
        self.timing = timing
        self.chance = chance
        self.members = Members(me, peers)
        self.ceiling = Ceiling(timing.ceiling_ahead_ms, settings.durable)
        self.floors = FloorBook(settings.floors_max, settings.floors_bytes_max)
        self.touch = Touch(timing)
        self.waiting = Waiting(
            timing.keepalive_ms,
            wait_max_ms=settings.wait_max_ms,
            requests_max=settings.waiting_max,
            bytes_max=settings.waiting_bytes_max,
        )
        self.metas: dict[bytes, Meta] = {}
        self.keys: dict[bytes, KeyState] = {}
        self._metas_bytes = self._keys_bytes = 0
        """Of the keys of both. Changed where a key comes or goes."""
        self.boot = 0
        self.base_term = 0
        """Terms of keys of which nothing is remembered: nothing at or below is helped (C2)."""
        self.base_epoch = 0
        """Epochs of keys of which nothing is remembered: nothing at or below is taken (C8)."""
        self.top_term = 0
        """The highest term heard of any key."""
        self.silent_until_ms = 0
        """No yes, no ack, no candidacy before this: the first Ps after the start (C5)."""
        self.counts: dict[str, int] = {}
        """How often what happened, by the names of the events. Closed vocabulary, so bounded."""
        self._now_ms = 0
        self._wall_ms = 0
        self._ping_ms = 0
        """When the next PING leaves."""
        self._lost_ms: int | None = None
        """Since when no majority answers; None: it does, as far as is known."""
        self._ahead = any(source.refresh_ahead_ms for source in settings.sources)
        self._deferred: list[Effect] = []
        """Second messages to one receiver that an input from the wire caused: they leave at the next timer (E1)."""
        self.fresh_until_ms = 0
        """As in `machine.py`: changed by `_still_fresh` alone."""
        self._unusual_term = TERM_MAX
        self._unusual_until_ms = 0
        """The lowest epoch, and the latest expiry in Unix ms, of values for which only some peers vouch (C12)."""
        self._out: list[Effect] = []
        self._timers: list[tuple[int, bytes]] = []
        self._refusals: dict[tuple[str, bytes, str], int] = {}
        self._dirty: dict[bytes, None] = {}
        """Keys that were looked at in this step: their timers and slots are settled at its end."""
        self._ordered: dict[bytes, None] = {}
        """Keys for which a refresh or a put waits."""
        self._slots: dict[bytes, None] = {}
        """Keys for which this peer is a candidate or a source: each has or will have a call."""
        self._starved: dict[bytes, None] = {}
        """Keys that wait for a free slot."""
        self._serving: dict[bytes, None] = {}
        """Keys whose value is being given to more requests than one step may answer."""
        self._uncovered: dict[bytes, None] = {}
        """Keys that wait for the ceiling."""

    # --- saying -------------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: Message) -> None:
        if to != ALL or self.members.others:
            self._out.append(Send(to, message))

    def _record(self, event: str, key: bytes = b"", detail: str = "") -> None:
        self.counts[event] = self.counts.get(event, 0) + 1
        self._out.append(Record(event, key, detail))

    def _trailer(
        self,
        ballot: Ballot = NO_BALLOT,
        *,
        echo: int = 0,
        number: int = 0,
        epoch: Ballot = NO_BALLOT,
        need: int = 0,
        wait_ms: int = 0,
        ended: bool = False,
        since: int = 0,
        wall_ms: int = 0,
        fetched_ms: int = 0,
        floor: int = 0,
        missing: bool = False,
    ) -> Trailer:
        """What every message of mode `own` carries (C1)."""
        members = self.members
        return Trailer(
            members.hash,
            members.previous,
            self.boot,
            echo,
            ballot,
            number,
            epoch,
            need,
            wait_ms,
            ended,
            self.floors.digest,
            since,
            wall_ms,
            fetched_ms,
            floor,
            members.pending,
            missing,
        )

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _order(self, key: bytes, ballot: Ballot) -> tuple[int, int, int]:
        return order(key, ballot)

    def _place(self, key: bytes) -> int:
        """How many peers come before this one in the key's order (C9)."""
        mine = rank(key, self.me)
        return sum(1 for peer in self.members.others if rank(key, peer) > mine)

    def _term(self, key: bytes) -> int:
        """The highest term known of this key."""
        meta = self.metas.get(key)
        return self.base_term if meta is None else max(meta.term, self.base_term)

    def _raise_term(self, key: bytes, term: int) -> None:
        self.top_term = max(self.top_term, term)
        if term > self._term(key):
            self._note(key, self.metas.get(key, Meta())._replace(term=term))

    def _note(self, key: bytes, meta: Meta) -> None:
        """This is what is known of the key from now on."""
        if key not in self.metas:
            self._metas_bytes += len(key)
        self.metas[key] = meta

    def _known(self, key: bytes) -> KeyState | None:
        """The record of this key, if there is one."""
        state = self.keys.get(key)
        if state is not None:
            self._dirty[key] = None
        return state

    def _activate(self, key: bytes) -> KeyState | None:
        """The record of this key, made if need be; None: too many keys are under way, or it is no key."""
        state = self.keys.get(key)
        if state is None:
            most, settings = self.settings.active_bytes_max, self.settings
            room = len(self.keys) < settings.active_max and self._keys_bytes + len(key) <= most
            if not room or not 0 < len(key) <= settings.key_bytes_max:
                self.counts["dropped"] = self.counts.get("dropped", 0) + 1
                return None
            self._keys_bytes += len(key)
            state = self.keys[key] = KeyState(key, self._term(key), self._now_ms)
        state.heard_ms = self._now_ms
        self._dirty[key] = None
        return state

    def role_of(self, state: KeyState | None) -> Role:
        """What this peer does about a key, in the document's words."""
        if state is None:
            return Role.IDLE
        if state.claim is not None:
            return Role.SOURCING
        if state.candidacy is not None:
            return Role.CANDIDATE
        following = state.promise is not None or state.quiet_until_ms > self._now_ms
        return Role.FOLLOWER if following else Role.IDLE

    def _has_promised(self, state: KeyState) -> bool:
        """Does the one promise of this key still run? (C5)"""
        return state.promise is not None and self._now_ms < state.promise_until_ms

    def _close(self, state: KeyState, ballot: Ballot) -> None:
        """This ballot has ended and is never helped again (C4)."""
        if ballot in state.closed:
            return
        if len(state.closed) >= CLOSED_KEPT:
            oldest = min(state.closed, key=lambda known: known.term)
            state.closed_term = max(state.closed_term, oldest.term)
            state.closed = tuple(known for known in state.closed if known.term > state.closed_term)
        state.closed = (*state.closed, ballot)

    # --- the ceiling --------------------------------------------------------------------------------------------------

    def _covered(self, term: int) -> bool:
        """Is the ceiling durable for this term? If not, it is asked for, and what needed it is tried again (C2)."""
        self._lift_ceiling(term)
        return self.ceiling.covers(term)

    def _lift_ceiling(self, term: int) -> None:
        wish = self.ceiling.wish(term, self._wall_ms)
        if wish is not None:
            self._out.append(StoreCeiling(wish))

    # --- the quick way ------------------------------------------------------------------------------------------------

    def _is_unusual(self, epoch: Ballot) -> bool:
        """Was this value fetched before the start of a peer without memory, which does not vouch for it? (C12)"""
        return epoch.term <= self.touch.usual_above

    def _look_for_unusual(self) -> None:
        """A peer without memory was heard: which values are older than its start?"""
        unusual = [m for m in self.metas.values() if m.expire_ms > self._wall_ms and self._is_unusual(m.epoch)]
        self._unusual_term = min((meta.epoch.term for meta in unusual), default=TERM_MAX)
        self._unusual_until_ms = max((meta.expire_ms for meta in unusual), default=0)

    def _still_fresh(self) -> None:
        """Until when everything that is fresh now is so by touch. The oldest value has the fewest who vouch for it."""
        self.fresh_until_ms = self.touch.usual_until_ms
        if not self.members.listed:
            self.fresh_until_ms = 0  # it sends its clients elsewhere, also from what is at hand (C10)
        elif self._wall_ms < self._unusual_until_ms:
            oldest_ms = self.touch.until_ms(self.members, 0, self._unusual_term)
            self.fresh_until_ms = min(self.fresh_until_ms, oldest_ms)

    # --- timers -------------------------------------------------------------------------------------------------------

    def _wake(self, state: KeyState, when_ms: int) -> None:
        """Look at this key no later than then."""
        if state.timer_ms is None or when_ms < state.timer_ms:
            state.timer_ms = when_ms
            heappush(self._timers, (when_ms, state.key))
            if len(self._timers) > 4 * len(self.keys) + 64:
                self._timers = [(known.timer_ms, key) for key, known in self.keys.items() if known.timer_ms is not None]
                heapify(self._timers)

    def _due(self) -> list[KeyState]:
        """Keys whose timer has passed, in order of their timers, bounded: `deadline_ms` says whether there are more."""
        due: list[KeyState] = []
        while self._timers and self._timers[0][0] <= self._now_ms and len(due) < DUE_MAX:
            when_ms, key = heappop(self._timers)
            state = self.keys.get(key)
            if state is not None and state.timer_ms == when_ms:
                state.timer_ms = None
                self._dirty[key] = None
                due.append(state)
        return due
