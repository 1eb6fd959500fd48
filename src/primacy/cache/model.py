"""Values that the cache's machine, its peers and its checkers share. Pure.

A *ballot* is one attempt of one peer, in one boot, to fetch one key. The *epoch* of a value is the ballot under which
its call was made (C8): only a higher epoch replaces a value. Ballots of one key are ordered by term, then by the rank
of their peer for that key, so that two winners of one term are never equal (C2, C8).
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

TERM_MAX = (1 << 53) - 1
"""The original keeps integers in doubles; a larger one is malformed."""
ALL = "*"
"""The target of a message to every peer."""


class Ballot(NamedTuple):
    """One attempt: `boot` tells two starts of one peer apart, which may both use a term."""

    term: int
    peer: str
    boot: int


NO_BALLOT = Ballot(0, "", 0)
"""Below every ballot that a peer can make. The epoch of a value from an original peer."""


def rank(key: bytes, peer: str) -> int:
    """The place of a peer in the order of this key; differs from key to key, equal on every peer."""
    return int.from_bytes(
        blake2b(key, key=blake2b(peer.encode(), digest_size=32).digest(), digest_size=8).digest(), "big"
    )


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


class Fetched(NamedTuple):
    """What a call to the source gave."""

    value: bytes
    ttl_ms: int | None = None
    """The source's own word about this result; None: the setting."""
