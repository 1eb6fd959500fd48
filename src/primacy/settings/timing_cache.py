"""Times of the cache, in integer milliseconds, and its profiles. The numbers are those of RULES C and of the document.

`lan` is for peers of this product among themselves (mode `own`). `ha-cache` has the document's values; mode `mixed`
implies it, because original peers keep these times and no others.
"""

from __future__ import annotations

from typing import NamedTuple

from primacy.settings.timing import stretched

PINGS_KEPT = 64
"""Departures that are remembered: more than leave within V, so that every PONG that still counts finds its own."""


class CacheTiming(NamedTuple):
    """Times of one cache peer."""

    announce_ms: int = 120
    """b: between two ANNOUNCEs of a sourcing peer. Too large: few lost ones are tolerated before the call is ended."""
    hold_ms: int = 600
    """Hs: after the departure of the newest ANNOUNCE that a majority acked, the call is confirmed over."""
    cancel_at_ms: int = 450
    """The call is cancelled this long after that departure. The rest of the hold is all it has to end."""
    promise_ms: int = 620
    """Ps: after an ack, no other ack, no yes, no candidacy of its own. More than the hold times the drift ratio."""
    election_ms: int = 300
    """E: an ANSWER counts within this after its QUESTION; a claim not acked within it ends."""
    question_repeat_ms: int = 100
    """A QUESTION is repeated to peers that have not answered."""
    spread_ms: int = 10
    """Times the place in the key's order: what wakes together asks one after the other (C9)."""
    touch_ms: int = 2_000
    """V: a peer is in touch while a majority answered a PING that left less than this ago (C12). At least the hold."""
    ping_ms: int = 500
    """Between two PINGs in touch."""
    ping_lost_ms: int = 150
    """Between two PINGs out of touch."""
    entry_ms: int = 100
    """An ENTRYREQ that is not answered within this raises `need` (C6)."""
    ceiling_ahead_ms: int = 10_000
    """The ceiling is written this far ahead of the terms in use (C2)."""
    skew_max_ms: int = 3_000
    """Wall clocks of peers agree within this. A start without memory adds it to every term (C2)."""
    keepalive_ms: int = 1_000
    """Between two signs to a waiting client."""
    backoff_ms: int = 500
    """After a failed call the key is not fetched again for this long; doubled up to `backoff_max_ms`."""
    backoff_max_ms: int = 8_000
    """The longest pause after failures."""
    candidate_min_ms: int = 150
    """Document: an election ends between this ..."""
    candidate_max_ms: int = 300
    """... and this, by chance."""
    follower_ms: int = 300
    """Document: a follower waits this long for its candidate."""
    follower_sourcing_ms: int = 2_000
    """Document: a follower waits this long for the next ANNOUNCE."""
    drift_ppm: int = 10_000
    """Largest rate error of any clock, in parts per million."""

    @property
    def promise_least_ms(self) -> int:
        """The hold on the fastest clock that surely covers it on the slowest. The promise is a tick longer: its clock
        is read in whole milliseconds, so that it may begin almost one earlier than the ack left (C5)."""
        return stretched(self.hold_ms, self.drift_ppm)


CACHE_PROFILES: dict[str, CacheTiming] = {
    "lan": CacheTiming(),
    "wan": CacheTiming(
        announce_ms=400,
        hold_ms=2_000,
        cancel_at_ms=1_500,
        promise_ms=2_060,
        election_ms=1_000,
        question_repeat_ms=350,
        spread_ms=40,
        touch_ms=5_000,
        ping_ms=1_500,
        ping_lost_ms=500,
        entry_ms=400,
    ),
    "ha-cache": CacheTiming(announce_ms=1_000, ping_ms=3_000, ping_lost_ms=3_000),
}
