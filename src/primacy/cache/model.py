"""Values that the cache's machine, its peers and its checkers share. Pure.

A *ballot* is one attempt of one peer, in one boot, to fetch one key. The *epoch* of a value is the ballot under which
its call was made (C8): only a higher epoch replaces a value. Ballots of one key are ordered by term, then by the rank
of their peer for that key, so that two winners of one term are never equal (C2, C8).
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from primacy.settings.timing_cache import CacheTiming

TERM_MAX = (1 << 53) - 1
"""The original keeps integers in doubles; a larger one is malformed."""
RANKS_KEPT = 4_096
"""Of keys that are being fetched, each with all peers: computed once, and not for each message."""
TERM_STEP_MAX = 31_622_400_000
"""Mode `own`: 366 days in milliseconds. A term that is further ahead of all that is known, and of the wall clock, is a
mistake: no clock that is looked after is wrong by so much, and 2^53 milliseconds are 280,000 years."""
ALL = "*"
"""The target of a message to every peer."""


class Ballot(NamedTuple):
    """One attempt: `boot` tells two starts of one peer apart, which may both use a term."""

    term: int
    peer: str
    boot: int


NO_BALLOT = Ballot(0, "", 0)
"""Below every ballot that a peer can make. The epoch of a value from an original peer."""


@lru_cache(RANKS_KEPT)
def rank(key: bytes, peer: str) -> int:
    """The place of a peer in the order of this key; differs from key to key, equal on every peer."""
    return int.from_bytes(
        blake2b(key, key=blake2b(peer.encode(), digest_size=32).digest(), digest_size=8).digest(), "big"
    )


SHORT_BYTES = 32


def short_key(key: bytes) -> bytes:
    """What stands for a key where it is only compared: bounded, and the key itself where that is no longer."""
    return key if len(key) <= SHORT_BYTES else blake2b(key, digest_size=SHORT_BYTES + 1).digest()


def order(key: bytes, ballot: Ballot) -> tuple[int, int, int]:
    """Ballots of one key compare by this: term, then rank. The boot only makes the order total."""
    return (ballot.term, rank(key, ballot.peer) if ballot.peer else -1, ballot.boot)


class Role(StrEnum):
    """What a peer does about one key. The document's four states."""

    IDLE = "idle"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    SOURCING = "sourcing"


class Mode(StrEnum):
    """Whether every peer of the list is one of this product. A setting, never discovered (C1)."""

    OWN = "own"
    MIXED = "mixed"


class Meta(NamedTuple):
    """What is known of an entry beside its value. Stored after the value; outlives it (C8)."""

    term: int = 0
    """The highest term heard of this key. Only grows (S4)."""
    expire_ms: int = 0
    """Unix ms; 0: there is no value."""
    epoch: Ballot = NO_BALLOT
    """The ballot under which the value was fetched. Stays when the value is evicted."""
    size: int = 0
    """Bytes of the value."""
    fetched_ms: int = 0
    """Unix ms at which the call began, on the fetcher's clock: the age of the value counts from it."""
    voted: str = ""
    """Mode `mixed`: the peer that got the vote of this one in `term`; kept beyond the 300 ms. Empty: none."""


class Floor(NamedTuple):
    """Everything of this key (or of every key with this prefix) with an epoch of a term at or below `term` is dead
    (C11). A floor only rises."""

    key: bytes
    prefix: bool
    term: int


class PeerAddress(NamedTuple):
    """One peer of the list. `url` is its identity, byte for byte."""

    url: str
    api: str


class Failure(NamedTuple):
    """Why a call to the source gave no value. `reason` is one sentence for people."""

    reason: str
    missing: bool = False
    """The source says that there is no such entry. May be remembered for a short time (`negative_ms`)."""
    released: bool = False
    """Nothing failed: the client that had the claim let it go, or lost it. Who waits is not told; another may try at
    once."""


class Fetched(NamedTuple):
    """What a call to the source gave."""

    value: bytes
    ttl_ms: int | None = None
    """The source's own word about this result; None: the setting."""


class SourceSettings(NamedTuple):
    """What holds for the keys of one source: those that begin with `prefix`. The longest prefix that fits counts."""

    prefix: bytes = b""
    """Empty: every key that fits no other source."""
    ttl_ms: int = 3_600_000
    """How long a value is fresh, from the start of its call. Too small: the source is called often."""
    stale_ms: int | None = None
    """How long after its expiry a copy may still be given as stale. None: without limit, as in the document (2.2)."""
    negative_ms: int = 0
    """How long it is remembered that the source has no such entry. 0: not at all, the back-off counts."""
    jitter_percent: int = 0
    """Up to so much of the time to live is taken off by chance, so that what was fetched together does not expire
    together."""
    limit_ms: int = 30_000
    """A call that takes longer is ended, and counts as failed (weakness L1). Too small: slow answers are never used."""
    refresh_ahead_ms: int = 0
    """A value that is asked for again within this before its expiry is fetched anew ahead of it. 0: never."""


class CacheSettings(NamedTuple):
    """What a machine of the cache must know beside its list of peers. Sizes are bounds; what exceeds them is refused,
    dropped and counted, and never an exception."""

    timing: CacheTiming = CacheTiming()
    mode: Mode = Mode.OWN
    sources: tuple[SourceSettings, ...] = ()
    """Empty, or no prefix fits: the key is fetched only by a waiting client that offers to, or brought by `put`."""
    calls_max: int = 256
    """Calls at once, of all keys. Who has no free slot does not stand (C4). Bounds the ANNOUNCEs as well."""
    durable: bool = True
    """The storage survives a restart. False: no ceiling is written, and a start remembers nothing (C2, C12)."""
    stale_ms: int | None = None
    """As in a source, for keys that none fits."""
    ttl_max_ms: int = 604_800_000
    """A longer time to live is cut to this. What is remembered of a dead value is forgotten after it (C8)."""
    key_bytes_max: int = 8_192
    """Longer keys are refused."""
    value_bytes_max: int = 16_777_216
    """Larger values are refused as a failure of the source."""
    keys_max: int = 1_000_000
    """Keys of which something is remembered. Too small: values of others cannot be judged and are fetched anew."""
    active_max: int = 50_000
    """Keys with an election, a promise or a waiting client. More are answered SEEOTHER."""
    waiting_max: int = 20_000
    """Waiting clients. More are answered SEEOTHER."""
    wait_max_ms: int = 60_000
    """A client that names no deadline is answered SEEOTHER after this, because it may be gone."""
    floors_max: int = 10_000
    """Invalidations that are remembered one by one. Beyond it the older half becomes one floor for every key, which
    costs retrievals and forgets nothing (C11)."""
    requests_max: int = 1_000
    """Invalidations, refreshes and puts under way. More are refused."""
    ttl_ms: int = SourceSettings().ttl_ms
    """As in a source, for keys that none fits."""
    keys_bytes_max: int = 268_435_456
    """Bytes of the keys of which something is remembered: a million of 256 bytes. As `keys_max`."""
    active_bytes_max: int = 67_108_864
    """Bytes of the keys of `active_max`. More are answered SEEOTHER."""
    waiting_bytes_max: int = 67_108_864
    """Bytes of the keys that clients wait for, each client counted. More are answered SEEOTHER."""
    floors_bytes_max: int = 16_777_216
    """Bytes of the keys of `floors_max`. Beyond it as there."""

    def source_of(self, key: bytes) -> SourceSettings | None:
        """The source that this key belongs to."""
        fitting = [source for source in self.sources if key.startswith(source.prefix)]
        return max(fitting, key=lambda source: len(source.prefix), default=None)

    def ttl_of(self, key: bytes) -> int:
        """How long a value of this key is fresh if nobody says it."""
        source = self.source_of(key)
        return self.ttl_ms if source is None else source.ttl_ms
