"""The leases of a store, as they are seen from here: who holds which, whether it is renewed, until when. Pure.

A row says who took it, and counts its renewals; it never says what time it is. So whether a holder lives is known only
by looking twice: a lease is green when its row was seen to change within the hold, by the clock of this reader. Before
that it is unknown, whatever name stands in it. One function decides (`state_of`); the page draws what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primacy.dashboard.known import Model
from primacy.dashboard.rows import TEXT_CHARS_MAX
from primacy.dashboard.strip import GRAVE
from primacy.election.store import heir_of, node_of
from primacy.store.port import Listing

SHOWN_MAX = 500
"""Leases of one store on the page; those in trouble first."""
GAPS_MAX = 8
"""Times between renewals of which the middle one is shown."""
STALE_MS = 5_000
"""A store that has not answered for so long says nothing about now."""
FREE = "free"
UNVOUCHED = (
    "its row is not as its writer leaves it: that was killed as it wrote, or somebody else wrote it, or the store lost "
    "something; the next that asks watches it first"
)
"""Of a row that does not vouch (L5)."""


class LeaseSeen(NamedTuple):
    """One lease, over the looks so far; moments on the clock of this reader."""

    listing: Listing
    first_ms: int
    """Since when this holder, with this token, is watched."""
    changed_ms: int = 0
    """When its row was last seen renewed; 0: not yet."""
    renewals: int = 0
    """As many as were seen."""
    gaps_ms: tuple[int, ...] = ()


class StoreSeen(NamedTuple):
    """A store, as it was last read."""

    label: str
    """Its address without user, password and options."""
    table: str
    leases: Mapping[str, LeaseSeen] = {}
    looked_ms: int = 0
    """The last look that was answered; 0: none."""
    took_ms: int = 0
    looks: int = 0
    failures: int = 0
    error: str = ""
    """Why the last look was not answered."""
    failing_since_unix_ms: int = 0


def looked(store: StoreSeen, listings: Sequence[Listing], now_ms: int, took_ms: int) -> StoreSeen:
    """After a look that was answered."""
    leases = {each.name: _seen(store.leases.get(each.name), each, now_ms) for each in listings}
    return store._replace(
        leases=leases,
        looked_ms=now_ms,
        took_ms=took_ms,
        looks=store.looks + 1,
        error="",
        failing_since_unix_ms=0,
    )


def failed(store: StoreSeen, why: str, wall_ms: int) -> StoreSeen:
    """After a look that was not. What was seen before it counts no more: a renewal may have been missed."""
    since = store.failing_since_unix_ms or wall_ms
    return store._replace(failures=store.failures + 1, error=why[:TEXT_CHARS_MAX], failing_since_unix_ms=since)


def _seen(before: LeaseSeen | None, now: Listing, now_ms: int) -> LeaseSeen:
    if before is None or before.listing.row is None or now.row is None:
        return LeaseSeen(now, now_ms)
    old, new = before.listing.row, now.row
    if (old.holder, old.token, old.released) != (new.holder, new.token, new.released):
        fresh = not new.released  # it was taken between two looks: as good as a renewal
        return LeaseSeen(now, now_ms, now_ms if fresh else 0)
    if new.seq == old.seq:
        return before._replace(listing=now)
    many = max(1, new.seq - old.seq)
    since_ms = before.changed_ms or before.first_ms
    gaps = (*before.gaps_ms, (now_ms - since_ms) // many)[-GAPS_MAX:] if before.changed_ms else ()
    return before._replace(listing=now, changed_ms=now_ms, renewals=before.renewals + many, gaps_ms=gaps)


def state_of(seen: LeaseSeen, store: StoreSeen, now_ms: int) -> tuple[str, str]:
    """Level (ok, warn, bad, unknown, or free) and a sentence. Green: renewed within its hold, as far as looks tell."""
    row, looked_ms = seen.listing.row, store.looked_ms
    if store.error or now_ms - looked_ms > STALE_MS:
        return "unknown", "not known: the store does not answer"
    if row is None:
        return "bad", f"no lease of primacy: {seen.listing.wrong}"[:TEXT_CHARS_MAX]
    if row.is_placeholder:
        return FREE, "nobody has held it yet"
    if row.released:
        heir = heir_of(row)
        return FREE, f"free: {node_of(row.holder)} released it" + (f", to {heir}" if heir else "")
    quiet_ms = looked_ms - (seen.changed_ms or seen.first_ms)
    if not row.vouches:
        return "warn", UNVOUCHED
    if quiet_ms > row.wait_ms:
        return "warn", f"not renewed for {quiet_ms:,} ms: free for the next that asks"
    if quiet_ms > row.hold_ms:
        return "warn", f"not renewed for {quiet_ms:,} ms: its hold is over, and nobody may take it yet"
    if not seen.changed_ms:
        return "unknown", "not known yet whether it is renewed: it is watched for one hold"
    return "ok", "held, and renewed"


def leases_view(stores: Sequence[StoreSeen], now_ms: int, wall_ms: int) -> Model:
    """The page's part."""
    return {"stores": [_store(store, now_ms, wall_ms) for store in stores]}


def _store(store: StoreSeen, now_ms: int, wall_ms: int) -> Model:
    rows = [_row(seen, store, now_ms, wall_ms) for seen in store.leases.values()]
    order = (*reversed(GRAVE[1:]), "ok", FREE)
    rows.sort(key=lambda row: (order.index(row["level"]), row["lease"]))
    stale = bool(store.error) or now_ms - store.looked_ms > STALE_MS
    return {
        "label": store.label,
        "table": store.table,
        "level": "bad" if store.error else "unknown" if stale else "ok",
        "error": store.error,
        "since_unix_ms": store.failing_since_unix_ms,
        "took_ms": store.took_ms,
        "looks": store.looks,
        "failures": store.failures,
        "count": len(rows),
        "rows": rows[:SHOWN_MAX],
    }


def _row(seen: LeaseSeen, store: StoreSeen, now_ms: int, wall_ms: int) -> Model:
    level, text = state_of(seen, store, now_ms)
    row = seen.listing.row
    held = row is not None and not row.released and not row.is_placeholder
    left_ms = seen.changed_ms + row.hold_ms - store.looked_ms if row is not None and seen.changed_ms else 0
    gaps = sorted(seen.gaps_ms)
    return {
        "lease": seen.listing.name,
        "level": level,
        "text": text,
        "holder": node_of(row.holder) if row is not None and held else "",
        "token": row.token if row is not None else 0,
        "hold_ms": row.hold_ms if row is not None else 0,
        "renewed_unix_ms": wall_ms - (now_ms - seen.changed_ms) if seen.changed_ms else 0,
        "renewals": seen.renewals,
        "every_ms": gaps[len(gaps) // 2] if gaps else 0,
        "expires_unix_ms": wall_ms + left_ms - (now_ms - store.looked_ms) if held and left_ms > 0 else 0,
        "written_at": seen.listing.written_at,
    }


def stores_strip(part: Mapping[str, Any]) -> Model:
    """The strip of a page that has nothing but stores."""
    stores = part["stores"]
    levels = [str(row["level"]) for store in stores for row in store["rows"]]
    words = {"ok": "held", "bad": "in trouble", "warn": "not renewed", "unknown": "not known", FREE: "free"}
    counts = [f"{levels.count(level)} {word}" for level, word in words.items() if level in levels]
    grave = [level for level in levels if level != FREE] + ["bad" for store in stores if store["level"] == "bad"]
    # green is for something that is held
    level = max(grave, key=GRAVE.index, default="unknown")
    many = sum(store["count"] for store in stores)
    text = f"{many:,} {'lease' if many == 1 else 'leases'}: {', '.join(counts)}" if many else "No lease in this store"
    lost = [store["label"] for store in stores if store["error"]]
    if lost:
        text = f"Not known: {', '.join(lost)} does not answer"
    return {
        "level": level,
        "alert": "",
        "holder": {"level": level, "text": text, "node": "", "since_unix_ms": 0},
        "margin": {"level": "unknown", "text": ""},
        "change": None,
        "of_many": True,
        "title": "store gone" if lost else f"{levels.count('ok')} held",
    }
