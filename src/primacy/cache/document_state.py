"""What a peer of mode `mixed` remembers: of every key its meta, of a key under way what it does about it. Pure.

One record per key in memory is the only truth; the storage is written behind it and read at the start only. So nothing
that arrives while something is being stored can be overwritten by it (weaknesses S6 and S7 of the original).

A key without a record is idle. A vote belongs to a term and outlives the state follower: `Meta.voted` (S2, S3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import NamedTuple

from primacy.cache.effects import DropValue, Effect, Forget, StoreMeta
from primacy.cache.messages import Trailer
from primacy.cache.model import NO_BALLOT, TERM_MAX, Ballot, CacheSettings, Meta, PeerAddress, Role
from primacy.cache.waiting import Waiting

NO_META = Meta()
FORGOTTEN_MAX = 64
"""Keys that are forgotten for one that comes: as long as the longest are to the shortest, it still is a bound."""
FAILURES_MAX = 10_000
"""Keys whose last call failed. The oldest is forgotten: its source is asked again a little early."""
FAR_MS = 1 << 62
"""Later than anything."""


def next_term(term: int) -> int:
    """A peer that says the highest number of all must not make us exceed it."""
    return min(term + 1, TERM_MAX)


@dataclass(slots=True)
class Following:
    """State follower: has voted for `peer`, or `peer` announces that it fetches."""

    peer: str
    sourcing: bool
    until_ms: int
    ballot: Ballot = NO_BALLOT
    """Of a sourcing peer of this product: what its end will name."""


@dataclass(slots=True)
class Forced:
    """An election although the key may be fresh: a `Refresh`, or a `Put` that brings the value."""

    request: int
    until_ms: int
    value: bytes | None = None
    ttl_ms: int = 0


@dataclass(slots=True)
class Campaign:
    """State candidate: one election after the other until one is won, lost or given up."""

    ballot: Ballot
    started_ms: int
    """Departure of the first QUESTION of this election: ANSWERs count from it (S3)."""
    deadline_ms: int
    repeat_ms: int
    rounds: int = 1
    answered: dict[str, None] = field(default_factory=dict)
    agreed: dict[str, None] = field(default_factory=dict)
    aborted: bool = False
    best: tuple[int, str] = (0, "")
    """The latest expiry that was told, later than ours, and by whom."""
    fetching: str = ""
    """The peer that said that its copy is fresh, and was asked for it."""
    claims: dict[str, int] = field(default_factory=dict)
    """Fresh copies (their expiry) that peers told of and did not send: not believed again (L5)."""
    forced: Forced | None = None


@dataclass(slots=True)
class Sourcing:
    """State sourcing: the call runs, and ANNOUNCEs leave."""

    ballot: Ballot
    """The term that was won. ANNOUNCEs may carry a higher one (S1)."""
    started_wall_ms: int
    limit_at_ms: int
    proved_ms: int
    """Departure of the newest ANNOUNCE after which a majority was heard: the call may run for a while after it (S4)."""
    round_ms: int
    """Departure of the newest ANNOUNCE."""
    next_ms: int
    cancel_at_ms: int
    over_at_ms: int
    stale_from: str = ""
    """Who has a later copy, although no fresh one, and is still to be asked for it."""
    forced: Forced | None = None


Active = Following | Campaign | Sourcing


class Failed(NamedTuple):
    """The last call of a key gave nothing: no other before `until_ms`."""

    until_ms: int
    times: int
    reason: str
    missing: bool = False
    """The source has no such entry."""


class Timers:
    """The next moment of each key. At most one per key; a later one replaces it."""

    def __init__(self) -> None:
        self._set: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []

    def set(self, key: bytes, due_ms: int | None) -> None:
        if due_ms is None:
            self._set.pop(key, None)
        elif self._set.get(key) != due_ms:
            self._set[key] = due_ms
            heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._set) + 64:
            self._heap = [(due_ms, key) for key, due_ms in self._set.items()]
            heapify(self._heap)

    def next_ms(self) -> int | None:
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: int) -> bytes | None:
        """A key whose moment has come. It has none afterwards."""
        due_ms = self.next_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        key = heappop(self._heap)[1]
        del self._set[key]
        return key


class State:
    """All that the parts of the machine share. `now_ms` and `wall_ms` are those of the present step."""

    def __init__(self, me: str, peers: tuple[PeerAddress, ...], settings: CacheSettings, chance: Random) -> None:
        self.me = me
        self.settings = settings
        self.timing = settings.timing
        self.chance = chance
        self.boot = 0
        self.now_ms = 0
        self.wall_ms = 0
        self.quiet_until_ms = 0
        """No vote, not even for oneself, before this: what was voted for in an earlier boot is over or announces."""
        self.metas: dict[bytes, Meta] = {}
        self.metas_bytes = 0
        """Of their keys. Changed where a key comes or goes."""
        self.bare: dict[bytes, None] = {}
        """Keys of which a term is known and no value, the longest known first."""
        self.active: dict[bytes, Active] = {}
        self.active_bytes = 0
        """Of their keys."""
        self.wake: dict[bytes, int] = {}
        """Idle keys that somebody waits for: when to campaign."""
        self.calls: dict[bytes, Ballot] = {}
        """Calls that run, or are cancelled and not yet over: one per key."""
        self.failed: dict[bytes, Failed] = {}
        self.requested: dict[bytes, tuple[str, int]] = {}
        """ENTRYREQs on their way: to whom, and until when no other is sent."""
        self.floors: dict[bytes, int] = {}
        """Terms at or below which everything of a key is dead (invalidated)."""
        self.wide: dict[bytes, int] = {}
        """The same for every key that begins so."""
        self.timers = Timers()
        self.waiting = Waiting(
            self.timing.keepalive_ms,
            wait_max_ms=settings.wait_max_ms,
            requests_max=settings.waiting_max,
            bytes_max=settings.waiting_bytes_max,
        )
        self.partitioned = False
        self.ping_ms: int | None = None
        """When the next PING is due; None: none is."""
        self.pinged_ms = -FAR_MS
        self.heard: dict[str, int] = {}
        """When each peer was last heard, whatever it said."""
        self.regained: dict[str, None] = {}
        """Partitioned: peers heard since the last PING."""
        self.ours: dict[str, int] = {}
        """Peers that sent a trailer, with their boot: of this product."""
        self.set_peers(peers)

    def set_peers(self, peers: tuple[PeerAddress, ...]) -> None:
        urls = {peer.url for peer in peers}
        self.listed = self.me in urls
        """Who was removed from its own list sends its clients elsewhere and takes part in nothing (C10)."""
        self.peers = tuple(sorted(urls - {self.me}))
        self.majority = (len(self.peers) + 1) // 2 + 1
        for known in (self.heard, self.regained, self.ours):
            for url in [url for url in known if url not in self.peers]:
                del known[url]

    # --- what is known of a key ---------------------------------------------------------------------------------------

    def meta(self, key: bytes) -> Meta:
        """A key below a floor starts above it."""
        known = self.metas.get(key)
        if known is not None:
            return known
        floor = self.floor(key)
        return NO_META if floor == 0 else Meta(term=next_term(floor))

    def fresh(self, meta: Meta) -> bool:
        return meta.expire_ms > self.wall_ms

    def may_give(self, key: bytes, meta: Meta, after_ms: int) -> bool:
        """Is there a copy that expires later than this, and is not older than copies may become?"""
        if meta.expire_ms <= after_ms:
            return False
        source = self.settings.source_of(key)
        stale_ms = self.settings.stale_ms if source is None else source.stale_ms
        return stale_ms is None or self.wall_ms < meta.expire_ms + stale_ms

    def floor(self, key: bytes) -> int:
        """The highest floor that counts for this key; 0: none."""
        own = self.floors.get(key, 0)
        if not self.wide:
            return own
        return max(own, max((term for start, term in self.wide.items() if key.startswith(start)), default=0))

    def passes(self, key: bytes, epoch: Ballot) -> bool:
        """A value of this epoch is not dead. One without an epoch never passes a floor (RULES C, `mixed`)."""
        floor = self.floor(key)
        return floor == 0 or epoch.term > floor

    def write(self, key: bytes, meta: Meta) -> list[Effect]:
        """What is known of the key besides its value has changed."""
        if meta == self.metas.get(key, NO_META):
            return []
        self.note(key, meta)
        return [StoreMeta(key, meta), *self._note_bare(key, meta)]

    def note(self, key: bytes, meta: Meta) -> None:
        """This is what is known of the key from now on."""
        if key not in self.metas:
            self.metas_bytes += len(key)
        self.metas[key] = meta

    def has_room(self) -> bool:
        """One more key may be under way."""
        settings = self.settings
        return len(self.active) < settings.active_max and self.active_bytes < settings.active_bytes_max

    def drop(self, key: bytes) -> list[Effect]:
        """The value is gone, the meta stays."""
        meta = self.meta(key)._replace(expire_ms=0, size=0)
        self.note(key, meta)
        return [DropValue(key, meta), *self._note_bare(key, meta)]

    def _note_bare(self, key: bytes, meta: Meta) -> list[Effect]:
        """Terms without values are bounded: the oldest idle one is forgotten (L7)."""
        if meta.expire_ms:
            self.bare.pop(key, None)
            return []
        self.bare.setdefault(key)
        settings = self.settings
        gone: list[bytes] = []
        count, size = len(self.metas), self.metas_bytes
        for old in self.bare:
            if (count <= settings.keys_max and size <= settings.keys_bytes_max) or len(gone) >= FORGOTTEN_MAX:
                break
            if old != key and old not in self.active and old not in self.calls:
                gone.append(old)
                count, size = count - 1, size - len(old)
        for old in gone:
            del self.bare[old], self.metas[old]
            self.metas_bytes -= len(old)
        return [Forget(old) for old in gone]

    def adopt(self, key: bytes, term: int, voted: str | None = None) -> list[Effect]:
        """A higher term counts from now on, and frees the vote; `voted` is who gets it."""
        meta = self.meta(key)
        if term > meta.term:
            return self.write(key, meta._replace(term=term, voted=voted or ""))
        if voted is not None and voted != meta.voted:
            assert term == meta.term, "a vote belongs to the present term"
            return self.write(key, meta._replace(voted=voted))
        return []

    # --- what is done about it ----------------------------------------------------------------------------------------

    def role(self, key: bytes) -> Role:
        match self.active.get(key):
            case Following():
                return Role.FOLLOWER
            case Campaign():
                return Role.CANDIDATE
            case Sourcing():
                return Role.SOURCING
            case None:
                return Role.IDLE

    def idle(self, key: bytes) -> bool:
        """Nothing is under way that could bring a value, so who waits had better ask elsewhere (1.3)."""
        return key not in self.active and key not in self.wake and key not in self.calls

    def become(self, key: bytes, active: Active | None) -> None:
        """The one place where a state changes. Its timer is set by `arm`."""
        self.wake.pop(key, None)
        if key in self.active:
            self.active_bytes -= len(key)
        if active is None:
            self.active.pop(key, None)
        else:
            self.active_bytes += len(key)
            self.active[key] = active
        self.arm(key)

    def arm(self, key: bytes) -> None:
        match self.active.get(key):
            case Following(until_ms=until_ms):
                due_ms: int | None = until_ms
            case Campaign() as campaign:
                due_ms = min(campaign.deadline_ms, campaign.repeat_ms)
            case Sourcing() as sourcing:
                due_ms = min(sourcing.next_ms, sourcing.cancel_at_ms, self.now_ms if sourcing.stale_from else FAR_MS)
            case None:
                due_ms = self.wake.get(key)
        self.timers.set(key, due_ms)

    # --- peers --------------------------------------------------------------------------------------------------------

    def heard_since(self, since_ms: int) -> int:
        """Peers heard at or after this, oneself included. Any message proves that its sender is there (L4)."""
        return 1 + sum(when_ms >= since_ms for when_ms in self.heard.values())

    def draw_election_ms(self) -> int:
        return self.chance.randint(self.timing.candidate_min_ms, self.timing.candidate_max_ms)

    def trailer(
        self,
        to: str = "",
        *,
        ballot: Ballot = NO_BALLOT,
        epoch: Ballot = NO_BALLOT,
        fetched_ms: int = 0,
        need: int = 0,
        ended: bool = False,
        number: int = 0,
    ) -> Trailer:
        """What peers of this product are told beside the document's frames. Originals ignore it."""
        return Trailer(
            boot=self.boot,
            echo=self.ours.get(to, 0),
            ballot=ballot,
            epoch=epoch,
            fetched_ms=fetched_ms,
            need=need,
            ended=ended,
            number=number,
            wall_ms=self.wall_ms,
        )
