"""The cache, keys by peers: what each peer has of each key, and how often a request found a fresh copy. Pure.

A cell is what that peer itself said of that key; a peer that does not answer has no cells that count. `fresh` is said
by the peer, by its own clock and the promise that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primacy.dashboard.known import Model
from primacy.dashboard.rows import NAME_CHARS_MAX, TEXT_CHARS_MAX, list_of, number_of, object_of, text_of

PEERS_MAX = 16
KEYS_MAX = 200
"""Of one answer to a browser; a prefix finds the others."""
KEY_CHARS_MAX = 300
COUNTED = ("hits", "stale", "misses", "waiting", "stampedes_avoided", "fetch_failures")
STATES = ("fresh", "stale", "absent")


class PeerSeen(NamedTuple):
    """One peer, as it was last read."""

    api: str
    said: Mapping[str, Any] | None = None
    """Its state document; None: it never answered."""
    error: str = ""
    """Why it does not answer now."""
    failing_since_unix_ms: int = 0


def answered(peer: PeerSeen, said: object) -> PeerSeen:
    return peer._replace(said=object_of(said), error="", failing_since_unix_ms=0)


def missed(peer: PeerSeen, why: str, wall_ms: int) -> PeerSeen:
    since = peer.failing_since_unix_ms or wall_ms
    return peer._replace(error=why[:TEXT_CHARS_MAX] or "no answer", failing_since_unix_ms=since)


def peers_view(peers: Sequence[PeerSeen]) -> Model:
    """The page's part: each peer with its counters."""
    return {"peers": [_peer(each) for each in peers[:PEERS_MAX]]}


def _peer(peer: PeerSeen) -> Model:
    said = peer.said or {}
    counters = object_of(said.get("counters"))
    in_touch = said.get("in_touch") is True
    level, text = "ok", "in touch"
    if peer.error or peer.said is None:
        level, text = "unknown", "not known: it does not answer" if peer.error else "not known yet"
    elif not in_touch:
        level, text = "warn", "out of touch: it serves its copies as stale, and fetches nothing"
    return {
        "api": peer.api[:NAME_CHARS_MAX],
        "node": text_of(said.get("node"), NAME_CHARS_MAX) or peer.api[:NAME_CHARS_MAX],
        "url": text_of(said.get("url"), NAME_CHARS_MAX),
        "level": level,
        "text": text,
        "error": peer.error,
        "since_unix_ms": peer.failing_since_unix_ms,
        "keys": number_of(said.get("keys")),
        "fetches": number_of(said.get("fetches")),
        "counters": {name: number_of(counters.get(name)) for name in COUNTED},
    }


def keys_view(peers: Sequence[PeerSeen]) -> Model:
    """Keys by peers, from answers that have rows: in the order of the keys. Cells stand in the order of the peers."""
    told = [_rows(peer) for peer in peers[:PEERS_MAX]]
    names = sorted({key for rows in told for key in rows or ()})[:KEYS_MAX]
    more = max((number_of((peer.said or {}).get("more")) for peer in peers if not peer.error), default=0)
    every = {key for rows in told for key in rows or ()}
    return {
        "peers": [peer.api[:NAME_CHARS_MAX] for peer in peers[:PEERS_MAX]],
        "keys": [{"key": key, "cells": [_cell(rows, key, peer) for rows, peer in zip(told, peers, strict=False)]}
                 for key in names],
        "more": more + len(every) - len(names),
    }  # fmt: skip


def _rows(peer: PeerSeen) -> dict[str, Mapping[str, Any]] | None:
    """None: it does not answer, so that nothing is known of any key there."""
    if peer.error or peer.said is None:
        return None
    rows = [object_of(row) for row in list_of(peer.said.get("rows"), KEYS_MAX)]
    return {name: row for row in rows if (name := text_of(row.get("key"), KEY_CHARS_MAX))}


def _cell(rows: Mapping[str, Mapping[str, Any]] | None, key: str, peer: PeerSeen) -> Model:
    if rows is None:
        return {"state": "unknown"}
    row = rows.get(key, {})
    state = text_of(row.get("state"))
    own = text_of((peer.said or {}).get("url"), NAME_CHARS_MAX)
    return {
        "state": state if state in STATES else "absent",
        "sourcing": text_of(row.get("role")) == "sourcing",
        "candidate": text_of(row.get("role")) == "candidate",
        "fetched_here": bool(own) and text_of(row.get("fetched_by"), NAME_CHARS_MAX) == own,
        "left_ms": number_of(row.get("left_ms")),
        "bytes": number_of(row.get("bytes")),
        "waiting": number_of(row.get("waiting")),
    }


def cache_strip(part: Mapping[str, Any]) -> Model:
    """The strip of a page that has nothing but a cache."""
    peers = part["peers"]
    up = [peer for peer in peers if peer["level"] == "ok"]
    level = "ok" if len(up) == len(peers) else "warn" if 2 * len(up) > len(peers) else "bad"
    if not any(peer["level"] != "unknown" for peer in peers):
        level = "unknown"
    text = f"{len(up)} of {len(peers)} peers of the cache in touch"
    return {
        "level": level,
        "alert": "",
        "holder": {"level": level, "text": text, "node": "", "since_unix_ms": 0},
        "margin": {"level": "unknown", "text": ""},
        "change": None,
        "of_many": True,
        "title": f"{len(up)} of {len(peers)} in touch",
    }
