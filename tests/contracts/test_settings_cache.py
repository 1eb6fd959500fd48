"""The cache's part of the one file: what is accepted, what is filled in, and every relation that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from primacy import settings
from primacy.cache import own_source, storage, writing
from primacy.cache.effects import StoreEntry
from primacy.cache.model import Ballot, Meta
from primacy.errors import SettingsError
from primacy.settings import checks_cache, schema_cache
from primacy.settings.accepted import url_of, wrong_source
from primacy.settings.canonical import canonical
from primacy.settings.checks_cache import cache_timing, source_with_defaults, timing_problems
from primacy.settings.timing_cache import CACHE_PROFILES, CacheTiming

HERE = {"a": {"url": "tcp://127.0.0.1:6000", "api": "tcp://127.0.0.1:6001"}}
AWAY = {
    "a": {"url": "tcp://10.0.0.1:6000", "api": "tcp://10.0.0.1:6001"},
    "b": {"url": "tcp://10.0.0.2:6000", "api": "tcp://10.0.0.2:6001"},
}
SECRET = {"secret_file": "secret"}


def made(cluster: dict[str, Any] | None = None, node: str | None = None, **cache: Any) -> settings.Settings:
    return settings.of_mapping({"cluster": cluster or {}, "cache": cache}, node)


def problems(cluster: dict[str, Any] | None = None, node: str | None = None, **cache: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        made(cluster, node, **cache)
    return "\n".join(str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("cluster", "cache", "profile", "security"),
    [
        ({}, {"source": "cmd:./fetch {key}"}, "lan", "none"),
        ({}, {"peers": HERE}, "lan", "none"),
        (SECRET, {"peers": HERE}, "lan", "secret"),
        (SECRET, {"peers": AWAY}, "lan", "secret"),
        (SECRET, {"peers": AWAY, "security": "curve", "profile": "wan", "clients": ["web"]}, "wan", "curve"),
        (SECRET, {"peers": AWAY, "security": "curve", "http": "127.0.0.1:8080"}, "lan", "curve"),
        ({}, {"peers": AWAY, "mode": "mixed", "allow_open": True}, "ha-cache", "none"),
    ],
)
def test_what_is_left_out_is_filled_in(
    cluster: dict[str, Any], cache: dict[str, Any], profile: str, security: str
) -> None:
    found = made(cluster, **cache)
    assert (found.cache.profile, found.cache.security) == (profile, security)
    again = settings.of_mapping(canonical(found))
    assert again.cache == found.cache


def test_a_file_without_a_cache_says_nothing_about_it() -> None:
    assert "cache" not in canonical(settings.of_mapping({"election": {"strategy": "raft"}}))
    assert cache_timing(settings.of_mapping({}).cache) == CACHE_PROFILES["lan"]


def test_single_times_stand_over_the_profile() -> None:
    found = made(source="cmd:./fetch {key}", profile="wan", timing={"touch_ms": 6_000})
    assert cache_timing(found.cache) == CACHE_PROFILES["wan"]._replace(touch_ms=6_000)


def test_the_host_name_is_a_peers_and_a_strangers_name_is_refused() -> None:
    assert made(node="a", peers=HERE).node == "a"
    assert "--node = z: is not in cache.peers, which has a" in problems(node="z", peers=HERE)


def test_the_shortest_times_to_live_are_those_of_other_caches() -> None:
    assert made(source="cmd:x {key}", ttl_ms=100).cache.ttl_ms == 100
    assert "at least 100" in problems(source="cmd:x {key}", ttl_ms=99)
    assert made(source="cmd:x {key}").cache.stale_ms is None, "without limit, as in the document"


def test_a_source_has_what_it_says_and_the_rest_of_the_cache() -> None:
    found = made(source="cmd:x {key}", ttl_ms=5_000, sources={"rate:": {"source": "http://h/{key}", "max_age": True}})
    one = source_with_defaults(found.cache, found.cache.sources["rate:"])
    assert (one.ttl_ms, one.max_age, one.timeout_ms, one.stale_ms) == (5_000, True, 30_000, None)


@pytest.mark.parametrize(
    "text",
    [
        "call:module:function",
        "call:package.module:Class.method",
        "http://10.0.0.1/rates/{key}",
        "https://api.example.com:8443/v1?key={key}&x=1",
        "http:https://api.example.com/{key}",
        "cmd:./fetch {key}",
        "cmd:/usr/bin/env fetch --id='{key}' 'two words'",
    ],
)
def test_sources_that_are_right(text: str) -> None:
    assert wrong_source(text) == ""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("ftp://h/{key}", "a source is call:package.module:function"),
        ("call:function", "call:package.module:function"),
        ("call:os:system()", "call:package.module:function"),
        ("call:.m:f", "call:package.module:function"),
        ("http:{key}", "no URL with a host"),
        ("http:///x/{key}", "no URL with a host"),
        ("http://{key}/x", "must not choose the host"),
        ("http://h:{key}/x", "no URL with a host"),
        ("http://h/x", "where the key goes"),
        ("http://h/{key}#x", "neither a fragment nor a password"),
        ("http://me:password@h/{key}", "neither a fragment nor a password"),
        ("https://h/a b/{key}", "no URL"),
        ("cmd:", "the program is missing"),
        ("cmd:{key}", "the program is missing"),
        ("cmd:./fetch", "where the key goes"),
        ("cmd:./fetch '{key}", "cannot be split into words"),
    ],
)
def test_sources_that_are_wrong(text: str, part: str) -> None:
    assert part in wrong_source(text)
    assert part in problems(source=text)


def test_a_url_is_its_own_with_or_without_the_word_before_it() -> None:
    assert url_of("http:https://h/{key}") == "https://h/{key}"
    assert url_of("http://h/{key}") == "http://h/{key}"


@pytest.mark.parametrize(
    ("cluster", "cache", "parts"),
    [
        ({}, {"peers": {"a": {"url": "tcp://127.0.0.1:1"}}}, ("cache.peers.a.api", "is missing")),
        (
            {},
            {"peers": {"a": {"url": "tcp://127.0.0.1:1", "api": "tcp://127.0.0.1:1"}}},
            ("cache.peers.a.api = tcp://127.0.0.1:1", "is the address of cache.peers.a.url too"),
        ),
        ({}, {"peers": {"a": {"url": "tcp://*:1", "api": "tcp://h:2"}}}, ("others must be able to connect",)),
        (
            SECRET,
            {"peers": {f"p{n}": {"url": f"tcp://h:{n}", "api": f"tcp://g:{n}"} for n in range(1, 34)}},
            ("cache.peers = 33", "at most 32"),
        ),
        ({}, {"peers": AWAY}, ("cache.security: secret needs cluster.secret_file", "primacy keygen")),
        ({}, {"peers": HERE, "security": "curve"}, ("cache.security = curve: curve needs cluster.secret_file",)),
        (
            SECRET,
            {"peers": AWAY, "security": "none"},
            ("cache.peers.a.url = tcp://10.0.0.1:6000: is open to others, and cache.security = none", "allow_open"),
        ),
        (
            {},
            {"peers": {"a": {**HERE["a"], "bind_api": "tcp://*:6001"}}, "security": "none"},
            ("cache.peers.a.api = tcp://*:6001: is open to others",),
        ),
        ({}, {"peers": AWAY, "mode": "mixed"}, ("is open to others",)),
        (SECRET, {"peers": AWAY, "mode": "mixed", "security": "secret"}, ("cache.mode = mixed has original peers",)),
        ({}, {"peers": HERE, "mode": "mixed", "profile": "lan"}, ("cache.profile = lan: cache.mode = mixed keeps",)),
        (
            {},
            {"peers": HERE, "mode": "mixed", "timing": {"hold_ms": 700}},
            ("cache.timing.hold_ms = 700: cache.mode = mixed keeps the times",),
        ),
        ({}, {"peers": HERE, "profile": "ha-cache"}, ("is for cache.mode = mixed; cache.mode = own has lan, wan",)),
        ({}, {"peers": HERE, "profile": "fast"}, ("there is no such profile; cache.mode = own has lan, wan",)),
        ({}, {"peers": HERE, "clients": ["web"]}, ("cache.clients = web: cache.security = none",)),
        ({}, {"ttl_ms": 1_000, "refresh_ahead": 1_000}, ("cache.refresh_ahead_ms = 1000", "cache.ttl_ms = 1000")),
        (
            {},
            {"ttl_ms": 5_000, "refresh_ahead_ms": 2_000, "sources": {"a": {"source": "cmd:x {key}", "ttl_ms": 500}}},
            ("cache.refresh_ahead_ms = 2000: must be below cache.sources.a.ttl_ms = 500",),
        ),
        ({}, {"sources": {"a": {"ttl_ms": 500}}}, ("cache.sources.a.source: is missing",)),
        ({}, {"sources": {"a": {"source": "cmd:x {key}", "max_age": True}}}, ("cache.sources.a.max_age", "only http:")),
        ({}, {"source": "cmd:x {key}", "max_age": True}, ("cache.max_age = true: only http:",)),
        (
            {},
            {"value_bytes_max": 2 << 20, "storage": {"bytes_max": 1 << 20}},
            ("cache.value_bytes_max = 2097152", "cache.storage.bytes_max = 1048576"),
        ),
        (
            {},
            {"value_bytes_max": (1 << 20) - 8_192, "storage": {"bytes_max": 1 << 20}},
            ("cache.value_bytes_max = 1040384", "cache.key_bytes_max = 8192", "set it to at most 1040256"),
        ),
        ({}, {"value_bytes_max": (1 << 28) + 1}, ("cache.value_bytes_max = 268435457", "at most 268435456")),
        (
            {},
            {"ttl_ms": 1_000, "jitter_percent": 50, "refresh_ahead_ms": 500},
            ("cache.refresh_ahead_ms = 500", "cache.jitter_percent = 50", "cache.ttl_ms = 1000", "set it below 500"),
        ),
        (
            {},
            {"jitter_percent": 50, "sources": {"a": {"source": "cmd:x {key}", "ttl_ms": 150}}},
            ("cache.jitter_percent = 50: leaves 75 ms of cache.sources.a.ttl_ms = 150", "100 are the least"),
        ),
        (
            {},
            {"peers": {"a": {**HERE["a"], "bind_url": "tcp://127.0.0.1:7", "bind_api": "tcp://127.0.0.1:7"}}},
            (
                "cache.peers.a.bind_api = tcp://127.0.0.1:7",
                "cache.peers.a.bind_url = tcp://127.0.0.1:7",
                "another port",
            ),
        ),
        (
            {},
            {"peers": HERE, "http": "127.0.0.1:6001"},
            ("cache.http = 127.0.0.1:6001", "cache.peers.a.api = tcp://127.0.0.1:6001"),
        ),
        (SECRET, {"peers": AWAY, "security": "curve"}, ("cache.clients", "cache.security = curve", "such as [web]")),
        ({}, {"http": "0.0.0.0:8080"}, ("cache.http = 0.0.0.0:8080: is open to others", "control.tls.cert")),
        ({}, {"http": "127.0.0.1:7480"}, ("cache.http = 127.0.0.1:7480: is the same as control.listen",)),
        ({}, {"on_overrun": "ignore"}, ("must be one of exit, alert",)),
    ],
)
def test_relations_that_are_refused(cluster: dict[str, Any], cache: dict[str, Any], parts: tuple[str, ...]) -> None:
    found = problems(cluster, **cache)
    assert all(part in found for part in parts), found


@pytest.mark.parametrize(
    ("over", "parts"),
    [
        ({"announce_ms": 450}, ("announce_ms = 450: must be below cache.timing.cancel_at_ms = 450",)),
        ({"cancel_at_ms": 600}, ("cancel_at_ms = 600: must be below cache.timing.hold_ms = 600",)),
        ({"cancel_at_ms": 500}, ("leaves 100 ms to end a call, where 110 are needed", "at most 490")),
        ({"announce_ms": 226}, ("does not bear 1 lost ANNOUNCE", "at most 225")),
        ({"promise_ms": 612}, ("two peers could fetch at once", "hold_ms = 600", "at least 614")),
        ({"promise_ms": 613}, ("promise_ms = 613", "hold_ms = 600", "at least 614")),
        ({"hold_ms": 640, "promise_ms": 640}, ("set it to at least 654",)),
        ({"drift_ppm": 50_000}, ("promise_ms = 620", "set it to at least 665")),
        ({"touch_ms": 599}, ("touch_ms = 599", "hold_ms = 600", "at least 600")),
        ({"ping_ms": 2_000}, ("ping_ms = 2000: must be below cache.timing.touch_ms = 2000",)),
        ({"ping_lost_ms": 501}, ("ping_lost_ms = 501: must not be above cache.timing.ping_ms = 500",)),
        ({"question_repeat_ms": 300}, ("question_repeat_ms = 300: must be below cache.timing.election_ms = 300",)),
        ({"backoff_ms": 9_000}, ("backoff_ms = 9000: must not be above cache.timing.backoff_max_ms = 8000",)),
        ({"keepalive_ms": 2_000}, ("keepalive_ms = 2000", "2000 ms of silence")),
        ({"election_ms": 120}, ("announce_ms = 120: must be below cache.timing.election_ms = 120",)),
        ({"spread_ms": 300}, ("spread_ms = 300: must be below cache.timing.election_ms = 300",)),
        ({"ping_lost_ms": 31}, ("ping_lost_ms = 31", "touch_ms = 2000", "set it to at least 32")),
        ({"ceiling_ahead_ms": 1_000}, ("ceiling_ahead_ms = 1000", "ping_ms = 500", "set it above 1000")),
    ],
)
def test_times_that_break_a_rule_are_refused(over: dict[str, int], parts: tuple[str, ...]) -> None:
    found = problems(peers=HERE, timing=over)
    assert all(part in found for part in parts), found


@pytest.mark.parametrize("name", ["lan", "wan"])
def test_the_profiles_break_no_rule(name: str) -> None:
    timing = CACHE_PROFILES[name]
    assert timing_problems(timing) == []
    least = timing._replace(promise_ms=timing.promise_least_ms + 1)
    assert timing_problems(least) == []
    assert timing_problems(least._replace(promise_ms=least.promise_ms - 1)) != []


def test_what_the_checks_count_with_is_what_the_peer_has() -> None:
    assert checks_cache.ENTRY_BYTES == storage.ENTRY_BYTES
    for most in (writing.WAITING_BYTES_MAX, own_source.PUT_BYTES_MAX):
        assert most >= schema_cache.VALUE_BYTES_MOST


def test_a_value_of_the_largest_size_that_is_allowed_is_kept() -> None:
    most = (1 << 20) - 8_192 - storage.ENTRY_BYTES
    assert made(value_bytes_max=most, storage={"bytes_max": 1 << 20}).cache.value_bytes_max == most
    kept = storage.MemoryStorage(1 << 20)
    meta = Meta(1, 1, Ballot(1, "tcp://a:1", 1), most)
    assert kept.apply([StoreEntry(b"k" * 8_192, meta, b"v" * most)]) == ()
    assert kept.apply([StoreEntry(b"k" * 8_192, meta, b"v" * (most + 1))]) != ()


def test_the_file_can_say_every_time_of_mode_own() -> None:
    """The document's times of mode `mixed` are not for the file: original peers have no others."""
    from primacy.settings.schema_cache import CacheOverrides

    documents = {"candidate_min_ms", "candidate_max_ms", "follower_ms", "follower_sourcing_ms"}
    assert set(CacheOverrides.__dataclass_fields__) == set(CacheTiming._fields) - documents
