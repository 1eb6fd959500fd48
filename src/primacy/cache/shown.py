"""What a cache peer shows of itself: its state as a document, rows of keys, figures for Prometheus. Reads only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from heapq import nsmallest
from typing import Any

from primacy import __version__
from primacy.cache.access import shown_key
from primacy.cache.key_memory import key_memory
from primacy.cache.machine import Machine
from primacy.cache.peer import Peer

API = 1
"""The version of the documents."""
ROWS_MAX = 10_000
"""Rows of one answer about keys."""


def document(peer: Peer, about: Mapping[str, Any], now_ms: int, up_ms: int) -> dict[str, Any]:
    """How this peer stands. `about`: what its file says of it."""
    memory = key_memory(peer.machine, now_ms)
    return {
        "api": API,
        "version": __version__,
        **about,
        "url": peer.url,
        "clients_at": peer.api,
        "mode": str(peer.settings.mode),
        "peers": [{"url": one.url, "api": one.api, "self": one.url == peer.url} for one in peer.peers],
        "in_touch": peer.machine.in_touch(now_ms),
        "keys": memory.keys,
        "memory": {"keys_bytes": memory.keys_bytes, "per_key_bytes": memory.per_key_bytes},
        "fetches": fetches(peer),
        "calls": {"running": peer.calls.running, "containment": peer.calls.containment},
        "storage": {"durable": peer.storage.durable, "failure": peer.driver.writer.failure},
        "up_ms": up_ms,
        "counters": peer.counts,
        "dropped": dict(peer.driver.dropped + peer.serving.dropped),
        "events": dict(peer.driver.events),
    }


def fetches(peer: Peer) -> int:
    """Calls of the source that gave a value here."""
    return peer.driver.events["fetched"]


def rows(machine: Machine, prefix: bytes, most: int, now_ms: int, wall_ms: int) -> tuple[list[dict[str, Any]], int]:
    """The first keys that begin so, in their order, and how many more there are."""
    found = [key for key in machine.known_keys() if key.startswith(prefix)]
    shown = nsmallest(min(most, ROWS_MAX), found)
    return [row_of(machine, key, now_ms, wall_ms) for key in shown], len(found) - len(shown)


def told(
    peer: Peer, about: Mapping[str, Any], prefix: bytes, most: int, now_ms: int, wall_ms: int, up_ms: int
) -> bytes:
    """The answer to a client that asks how this peer stands."""
    found, more = rows(peer.machine, prefix, most, now_ms, wall_ms) if most else ([], 0)
    return json.dumps({**document(peer, about, now_ms, up_ms), "rows": found, "more": more}).encode()


def row_of(machine: Machine, key: bytes, now_ms: int, wall_ms: int) -> dict[str, Any]:
    """What a peer shows of one key."""
    view = machine.view(now_ms, wall_ms, key)
    meta = view.meta
    return {
        "key": shown_key(key),
        "role": str(view.role),
        "state": "fresh" if view.fresh else "stale" if meta.expire_ms else "absent",
        "term": view.term,
        "bytes": meta.size if meta.expire_ms else 0,
        "expires_ms": meta.expire_ms,
        "left_ms": max(0, meta.expire_ms - wall_ms),
        "age_ms": max(0, wall_ms - meta.fetched_ms) if meta.fetched_ms else None,
        "fetched_by": meta.epoch.peer,
        "fetched_now_by": view.source,
        "waiting": view.waiting,
    }


FIGURES = {
    "hits": "Requests answered with a fresh copy, at once or after a wait for it.",
    "stale": "Requests answered with a stale copy.",
    "misses": "Requests that had to wait for a retrieval, or wanted none and found nothing.",
    "see_others": "Requests sent to another peer.",
    "refusals": "Requests answered with the failure of the source.",
    "stampedes_avoided": "Requests given the value of a retrieval that was made for another request.",
    "fetch_failures": "Calls of the source by this peer that gave no value.",
    "requests_dropped": "Malformed, late or unauthenticated requests.",
    "messages_sent": "Messages to other peers.",
    "messages_received": "Messages from other peers.",
    "messages_dropped": "Malformed or unauthenticated messages.",
    "writes": "Entries and marks written.",
    "write_failures": "Writes that failed.",
}
GAUGES = {"waiting": "Requests that wait for an entry.", "claims": "Retrievals that clients do now."}


def exposition(peer: Peer, now_ms: int) -> bytes:
    """The figures in the format of Prometheus."""
    counts: Counter[str] = Counter(peer.counts)
    lines: list[str] = []

    def say(name: str, kind: str, text: str, value: float) -> None:
        lines.extend((f"# HELP primacy_cache_{name} {text}", f"# TYPE primacy_cache_{name} {kind}"))
        lines.append(
            f"primacy_cache_{name} {value:g}" if not isinstance(value, int) else f"primacy_cache_{name} {value}"
        )

    for name, text in FIGURES.items():
        say(f"{name}_total", "counter", text, counts[name])
    for name, text in GAUGES.items():
        if name in counts:
            say(name, "gauge", text, counts[name])
    lines += [
        "# HELP primacy_cache_fetch_seconds What calls of the source by this peer took, from start to end.",
        "# TYPE primacy_cache_fetch_seconds summary",
        f"primacy_cache_fetch_seconds_sum {counts['fetch_ms'] / 1_000:g}",
        f"primacy_cache_fetch_seconds_count {counts['fetches']}",
    ]
    say("in_touch", "gauge", "1 while a majority of the peers answers.", int(peer.machine.in_touch(now_ms)))
    memory = key_memory(peer.machine, now_ms)
    say("keys", "gauge", "Keys of which something is known.", memory.keys)
    say("keys_bytes", "gauge", "Memory that these keys take next to their values, measured on some.", memory.keys_bytes)
    for name, count in sorted(peer.driver.events.items()):
        lines.append(f'primacy_cache_events_total{{event="{name}"}} {count}')
    return ("\n".join(lines) + "\n").encode()
