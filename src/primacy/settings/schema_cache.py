"""Of the one file, the cache. Relations between its settings: `checks_cache.py`; profiles: `timing_cache.py`."""

# ruff: noqa: RUF009  (`setting` returns a `dataclasses.field`, which is what a default may be)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primacy.settings.accepted import (
    ID_CHARS_MAX,
    ID_PATTERN,
    NAME_PATTERN,
    SPAN_MS_MAX,
    wrong_dialled,
    wrong_listen,
    wrong_source,
    wrong_zmq,
)
from primacy.settings.rule import setting

TTL_MS_LEAST = 100
TTL_MS_MOST = 366 * SPAN_MS_MAX
VALUE_BYTES_MOST = 1 << 28
"""What may wait for the disk, or for its turn to be put: a larger value would never be kept."""
DEFAULT_URL, DEFAULT_API = "tcp://127.0.0.1:6000", "tcp://127.0.0.1:6001"
"""Of a peer that no list names."""
PREFIX_PATTERN = r"[^\x00-\x1f\x7f]{1,200}"


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer of the cache."""

    url: str = setting(
        "", "What other peers connect to; it is the peer's identity, byte for byte.", check=wrong_dialled
    )
    api: str = setting("", "What clients connect to.", check=wrong_dialled)
    bind_url: str = setting("", "What this peer binds, if another than `url`: `tcp://*:6000`.", check=wrong_zmq)
    bind_api: str = setting("", "What this peer binds for clients, if another than `api`.", check=wrong_zmq)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where entries are kept."""

    type: str = setting(
        "lmdb", "`memory` forgets terms at a restart and is for trying out.", choices=("lmdb", "memory")
    )
    dir: str = setting("cache", "The folder, below the state folder unless absolute. One peer per folder.")
    bytes_max: int = setting(
        1 << 30,
        "Keys and values together. Above it what expired longest ago is dropped first. The file may take twice as "
        "much. Too small: entries are fetched again although they are fresh.",
        least=1 << 20,
        most=1 << 44,
    )


@dataclass(frozen=True, slots=True)
class Source:
    """What fetches the entries whose keys begin so. What is left out is as in `cache`."""

    source: str = setting("", "As `cache.source`.", check=wrong_source)
    ttl_ms: int | None = setting(None, "As `cache.ttl_ms`.", least=TTL_MS_LEAST, most=TTL_MS_MOST)
    jitter_percent: int | None = setting(None, "As `cache.jitter_percent`.", least=0, most=90)
    stale_ms: int | None = setting(None, "As `cache.stale_ms`.", least=0, most=TTL_MS_MOST)
    negative_ms: int | None = setting(None, "As `cache.negative_ms`.", least=0, most=SPAN_MS_MAX)
    refresh_ahead_ms: int | None = setting(
        None, "As `cache.refresh_ahead_ms`.", least=0, most=TTL_MS_MOST, also=("refresh_ahead",)
    )
    timeout_ms: int | None = setting(None, "As `cache.timeout_ms`.", least=10, most=SPAN_MS_MAX)
    max_age: bool | None = setting(None, "As `cache.max_age`.")


def _span(text: str, least: int = 1) -> Any:
    return setting(None, text, least=least, most=SPAN_MS_MAX)


@dataclass(frozen=True, slots=True)
class CacheOverrides:
    """Single values over the profile, in milliseconds. All peers need the same."""

    announce_ms: int | None = _span(
        "Between two ANNOUNCEs of a peer that fetches. Too large: few lost ones end the call."
    )
    hold_ms: int | None = _span(
        "How long a round of acks gives the right to fetch. Too small: a short stall ends the call. Too large: after a "
        "crash the next peer starts later."
    )
    cancel_at_ms: int | None = _span("When the call is cancelled; what is left of the hold is all it has to end.")
    promise_ms: int | None = _span("How long who acked acks nobody else. More than the hold times the drift ratio.")
    election_ms: int | None = _span("How long answers to a QUESTION count.")
    question_repeat_ms: int | None = _span("Between two QUESTIONs to a peer that has not answered.")
    spread_ms: int | None = _span("Spreads what wakes together, times the place in the key's order.", least=0)
    touch_ms: int | None = _span(
        "How long an answered PING lets copies count as fresh. Too small: a lost PING makes them stale. Too large: "
        "`invalidate` waits longer for a peer that is away."
    )
    ping_ms: int | None = _span("Between two PINGs.")
    ping_lost_ms: int | None = _span("Between two PINGs while a majority does not answer.")
    entry_ms: int | None = _span("How long another peer's copy is waited for before it is fetched from the source.")
    ceiling_ahead_ms: int | None = _span("How far ahead of the terms in use their bound is written to the disk.")
    skew_max_ms: int | None = _span("How far wall clocks of peers may differ.")
    keepalive_ms: int | None = _span("Between two signs of life to a waiting client; it gives up after 2,000.")
    backoff_ms: int | None = _span("The pause after a failed call, doubled each time.")
    backoff_max_ms: int | None = _span("The longest pause after failures.")
    drift_ppm: int | None = setting(
        None,
        "Largest rate error of any clock, in parts per million. Too small: a bad clock breaks the promise.",
        least=100,
        most=200_000,
    )


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache whose entries are fetched once for all peers."""

    mode: str = setting(
        "own",
        "`own`: all peers are of this product. `mixed`: original peers are in the list, with fewer promises.",
        choices=("own", "mixed"),
    )
    peers: dict[str, Peer] = setting(
        dict,
        "The fixed list of peers, the same on all.",
        keys=ID_PATTERN,
        keys_say=f"an id has 1 to {ID_CHARS_MAX} letters, digits, dots, dashes or underscores",
    )
    source: str = setting(
        "",
        "What fetches an entry: `call:package.module:function`, `http://host/path/{key}` or `cmd:program {key}`.",
        check=wrong_source,
    )
    sources: dict[str, Source] = setting(
        dict,
        "Other sources for keys that begin so; the longest prefix that fits counts.",
        keys=PREFIX_PATTERN,
        keys_say="a prefix has 1 to 200 characters that can be printed",
    )
    ttl_ms: int = setting(
        3_600_000,
        "How long an entry is fresh, from the start of its retrieval. Must be much longer than a retrieval takes; too "
        "small: the source is called all the time.",
        least=TTL_MS_LEAST,
        most=TTL_MS_MOST,
    )
    jitter_percent: int = setting(
        0,
        "Up to so much of the time to live is taken off by chance, so that what was fetched together does not expire "
        "together.",
        least=0,
        most=90,
    )
    stale_ms: int | None = setting(
        None,
        "How long after its expiry an entry may still be given, marked as stale, while it is fetched anew or its "
        "source fails. Left out: without limit.",
        least=0,
        most=TTL_MS_MOST,
    )
    negative_ms: int = setting(
        0,
        "How long it is remembered that the source has no such entry. 0: not at all. Too large: a new entry is found "
        "late.",
        least=0,
        most=SPAN_MS_MAX,
    )
    refresh_ahead_ms: int = setting(
        0,
        "An entry that is asked for twice within this before its expiry is fetched anew ahead of it. 0: never. Not in "
        "`mode: mixed`.",
        least=0,
        most=TTL_MS_MOST,
        also=("refresh_ahead",),
    )
    timeout_ms: int = setting(
        30_000,
        "How long one retrieval may take before it is ended and counts as failed. Too small: slow entries are never "
        "fetched. Too large: a source that hangs keeps its callers waiting.",
        least=10,
        most=SPAN_MS_MAX,
    )
    calls_max: int = setting(
        32,
        "Retrievals at once on this peer. Functions that are not async and commands take a process each.",
        least=1,
        most=10_000,
    )
    max_age: bool = setting(
        False, "`http:`: the answer's `Cache-Control: max-age` is the time to live, where it has one."
    )
    on_overrun: str = setting(
        "exit",
        "What happens if a retrieval that was cancelled has not ended by the end of the hold. `exit`: this process "
        "ends, so that no entry is fetched twice at once. `alert`: it is said, and another peer may fetch meanwhile.",
        choices=("exit", "alert"),
    )
    key_bytes_max: int = setting(8_192, "Longer keys are refused.", least=1, most=65_535)
    value_bytes_max: int = setting(
        16 << 20, "Larger values are refused; it counts as a failure of the source.", least=1, most=VALUE_BYTES_MOST
    )
    profile: str = setting(
        "",
        "The set of times that fits your network: `lan` or `wan`; with `mode: mixed` it is `ha-cache`, the times of "
        "the original.",
        pattern=r"[a-z-]+",
        says="a word",
    )
    timing: CacheOverrides = setting(CacheOverrides, "Single values over the profile.")
    http: str = setting(
        "",
        "Where `GET /cache/KEY` is served, `host:port`. Empty: nowhere. Off loopback it needs `control.tls`.",
        check=wrong_listen,
    )
    clients: tuple[str, ...] = setting(
        tuple,
        "Names of clients whose keys (`primacy cache key NAME`) are accepted. Empty: every name's.",
        pattern=NAME_PATTERN,
        says="letters, digits, dots, dashes or underscores, at most 63",
        one_or_more=True,
    )
    storage: Storage = setting(Storage, "Where entries are kept.")
    security: str = setting(
        "",
        "`secret`: a MAC on every message, by the cluster's secret. `curve`: encrypted as well. `none`: anybody who "
        "can connect can read and write. Default: `secret` if there is `cluster.secret_file` or a peer off loopback, "
        "else `none`; with `mode: mixed` it is `none`, because originals know no other.",
        choices=("secret", "curve", "none"),
    )
    allow_open: bool = setting(
        False, "Lets `security: none` bind an address that is not loopback. Only in a network that nobody else is in."
    )
