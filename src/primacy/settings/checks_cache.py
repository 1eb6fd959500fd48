"""Relations between the settings of the cache. Every problem names both settings and both values.

The times are those of RULES C: inside the hold stand ANNOUNCE, the cancel and the room that an end needs; the promise
covers the hold on the slowest clock; a copy counts as fresh for at least a hold. Mode `mixed` has the times of the
original peers and no others, and no security, because originals know none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from primacy.errors import Problem
from primacy.settings.schema_cache import TTL_MS_LEAST, Cache, CacheOverrides, Peer, Source
from primacy.settings.timing_cache import CACHE_PROFILES, PINGS_KEPT, CacheTiming

KILL_MS = 110
"""From the cancel to a confirmed end: the kill of a whole process tree, and a timer that fires late on a busy machine.
The same two numbers as between KILL and the end of an election's hold."""
PEERS_MAX = 32
"""Every peer answers every other one. Nobody asked for more."""
LOST_LEAST = 1
"""ANNOUNCEs that may be lost in a row before the cancel: peers speak over connections that repeat by themselves."""
CLIENT_WAITS_MS = 2_000
"""The document's: after a keep-alive a client waits so long for the next sign."""
ENTRY_BYTES = 128
"""What an entry counts against `storage.bytes_max` beside its key and value."""
CEILING_PINGS = 2
"""The ceiling is looked after with each PING, and written anew when half of what is ahead has passed."""
MIXED_PROFILE = "ha-cache"
OWN_PROFILES = tuple(name for name in CACHE_PROFILES if name != MIXED_PROFILE)
LOOPBACK = re.compile(r"(tcp://)?(localhost|127\.[0-9.]+|\[::1\]):[0-9]+|(ipc|inproc)://.+")


def bound_addresses(peer: Peer) -> tuple[str, str]:
    """What a peer binds: for peers, for clients."""
    return peer.bind_url or peer.url, peer.bind_api or peer.api


def all_loopback(cache: Cache) -> bool:
    """Nothing of the list can be reached from another machine. A cache without a list binds loopback only."""
    return all(LOOPBACK.fullmatch(address) for peer in cache.peers.values() for address in bound_addresses(peer))


def default_security(cache: Cache, secret_file: str) -> str:
    """What counts where the file does not say it."""
    if cache.mode == "mixed":
        return "none"
    return "secret" if secret_file or not all_loopback(cache) else "none"


def cache_timing(cache: Cache) -> CacheTiming:
    """The times that count: the profile's, with `cache.timing` put in. An unknown profile: the default's."""
    timing = CACHE_PROFILES.get(cache.profile, CACHE_PROFILES[OWN_PROFILES[0]])
    given = {name: getattr(cache.timing, name) for name in CacheOverrides.__dataclass_fields__}
    return timing._replace(**{name: value for name, value in given.items() if value is not None})


def cache_problems(cache: Cache, given: Mapping[str, int], secret_file: str, node: str) -> Iterator[Problem]:
    """All of them. `given`: which settings the file has."""
    yield from _peer_problems(cache, node)
    yield from _source_problems(cache)
    yield from _mode_problems(cache, given)
    if cache.mode == "own":
        yield from timing_problems(cache_timing(cache))
    yield from _security_problems(cache, given, secret_file)
    most_bytes = cache.storage.bytes_max - cache.key_bytes_max - ENTRY_BYTES
    if cache.value_bytes_max > most_bytes:
        yield Problem(
            "cache.value_bytes_max",
            str(cache.value_bytes_max),
            f"a value of this size with its key (cache.key_bytes_max = {cache.key_bytes_max}) is more than "
            f"cache.storage.bytes_max = {cache.storage.bytes_max}, and is never kept; set it to at most {most_bytes}",
        )


def _peer_problems(cache: Cache, node: str) -> Iterator[Problem]:
    peers = cache.peers
    if len(peers) > PEERS_MAX:
        yield Problem("cache.peers", str(len(peers)), f"a list has at most {PEERS_MAX} peers")
    for name, peer in peers.items():
        for word in ("url", "api"):
            if not getattr(peer, word):
                yield Problem(f"cache.peers.{name}.{word}", "", "is missing, such as tcp://10.0.0.1:6000")
    seen: dict[str, str] = {}
    for name, peer in peers.items():
        for word in ("url", "api"):
            address, path = getattr(peer, word), f"cache.peers.{name}.{word}"
            if address and address in seen:
                yield Problem(path, address, f"is the address of {seen[address]} too; every one needs its own")
            seen.setdefault(address, path)
        url, api = bound_addresses(peer)
        if url == api and peer.url != peer.api:
            word = "bind_api" if peer.bind_api else "api"
            yield Problem(
                f"cache.peers.{name}.{word}",
                api,
                f"is bound for peers too, by cache.peers.{name}.{'bind_url' if peer.bind_url else 'url'} = {url}; give "
                "it another port",
            )
        for word, address in (("url", url), ("api", api)):
            if cache.http and address == f"tcp://{cache.http}":
                yield Problem("cache.http", cache.http, f"is bound by cache.peers.{name}.{word} = {address}, too")
    if node and peers and node not in peers:
        yield Problem("--node", node[:80], f"is not in cache.peers, which has {', '.join(list(peers)[:8])}")


def _source_problems(cache: Cache) -> Iterator[Problem]:
    yield from _expiry_problems(cache, "cache", Source())
    for prefix, source in cache.sources.items():
        at = f"cache.sources.{prefix}"
        if not source.source:
            yield Problem(f"{at}.source", "", "is missing: what fetches these entries, such as cmd:./fetch {key}")
        if not (source.ttl_ms is source.refresh_ahead_ms is source.jitter_percent is None):
            yield from _expiry_problems(cache, at, source)
        if source.max_age and not source.source.startswith("http"):
            yield Problem(f"{at}.max_age", "true", f"only http: has answers with an age, and {at}.source is another")
    if cache.max_age and not any(text.startswith("http") for text in _texts(cache)):
        yield Problem("cache.max_age", "true", "only http: has answers with an age, and no source of this file is one")


def _expiry_problems(cache: Cache, at: str, source: Source) -> Iterator[Problem]:
    """How long entries of a source live, at least, beside what is done within that time."""
    whole = source_with_defaults(cache, source)
    assert whole.ttl_ms is not None
    assert whole.jitter_percent is not None
    assert whole.refresh_ahead_ms is not None

    def named(word: str) -> str:
        return f"{at if getattr(source, word) is not None else 'cache'}.{word}"

    least_ms = whole.ttl_ms - whole.ttl_ms * whole.jitter_percent // 100
    ttl = f"{named('ttl_ms')} = {whole.ttl_ms}"
    if least_ms < TTL_MS_LEAST:
        yield Problem(
            named("jitter_percent"),
            str(whole.jitter_percent),
            f"leaves {least_ms} ms of {ttl}, where {TTL_MS_LEAST} are the least; take off less, or let entries live "
            "longer",
        )
    elif whole.refresh_ahead_ms >= whole.ttl_ms:
        yield Problem(
            named("refresh_ahead_ms"),
            str(whole.refresh_ahead_ms),
            f"must be below {ttl}, or every entry would be fetched all the time",
        )
    elif whole.refresh_ahead_ms >= least_ms:
        yield Problem(
            named("refresh_ahead_ms"),
            str(whole.refresh_ahead_ms),
            f"must be below what {named('jitter_percent')} = {whole.jitter_percent} leaves of {ttl}, or some entries "
            f"would be fetched all the time; set it below {least_ms}",
        )


def _texts(cache: Cache) -> list[str]:
    return [cache.source, *(source.source for source in cache.sources.values())]


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _mode_problems(cache: Cache, given: Mapping[str, int]) -> Iterator[Problem]:
    if cache.mode == "mixed":
        if cache.profile != MIXED_PROFILE:
            yield Problem(
                "cache.profile",
                cache.profile,
                f"cache.mode = mixed keeps the times of the original peers; leave it out, or say {MIXED_PROFILE}",
            )
        if cache.security != "none":
            yield Problem(
                "cache.security",
                cache.security,
                "cache.mode = mixed has original peers, which know no security; say none, or cache.mode: own",
            )
        for name in CacheOverrides.__dataclass_fields__:
            if f"cache.timing.{name}" in given:
                yield Problem(
                    f"cache.timing.{name}",
                    str(getattr(cache.timing, name)),
                    "cache.mode = mixed keeps the times of the original peers; leave it out",
                )
    elif cache.profile not in OWN_PROFILES:
        wrong = "is for cache.mode = mixed" if cache.profile == MIXED_PROFILE else "there is no such profile"
        yield Problem("cache.profile", cache.profile, f"{wrong}; cache.mode = own has {', '.join(OWN_PROFILES)}")


def timing_problems(timing: CacheTiming, prefix: str = "cache.timing.") -> list[Problem]:
    """Every inequality that the times of mode `own` break."""
    found: list[Problem] = []

    def refuse(name: str, other: str, why: str, remedy: str) -> None:
        value, beside = getattr(timing, name), getattr(timing, other)
        found.append(Problem(f"{prefix}{name}", str(value), f"{why} {prefix}{other} = {beside}; {remedy}"))

    for low, high in (
        ("announce_ms", "cancel_at_ms"),
        ("cancel_at_ms", "hold_ms"),
        ("question_repeat_ms", "election_ms"),
        ("announce_ms", "election_ms"),
        ("spread_ms", "election_ms"),
        ("ping_ms", "touch_ms"),
    ):
        if getattr(timing, low) >= getattr(timing, high):
            refuse(low, high, "must be below", f"set it below {getattr(timing, high)}")
    for low, high in (("ping_lost_ms", "ping_ms"), ("backoff_ms", "backoff_max_ms")):
        if getattr(timing, low) > getattr(timing, high):
            refuse(low, high, "must not be above", f"set it to at most {getattr(timing, high)}")
    if found:
        return found  # the rest would only repeat it
    if timing.hold_ms - timing.cancel_at_ms < KILL_MS:
        why = f"leaves {timing.hold_ms - timing.cancel_at_ms} ms to end a call, where {KILL_MS} are needed, before"
        refuse("cancel_at_ms", "hold_ms", why, f"set it to at most {timing.hold_ms - KILL_MS}")
    if timing.cancel_at_ms < (LOST_LEAST + 1) * timing.announce_ms:
        why = f"does not bear {LOST_LEAST} lost ANNOUNCE before"
        refuse("announce_ms", "cancel_at_ms", why, f"set it to at most {timing.cancel_at_ms // (LOST_LEAST + 1)}")
    if timing.promise_ms <= timing.promise_least_ms:
        why = "is not longer than the hold on the slowest clock, so that two peers could fetch at once:"
        refuse("promise_ms", "hold_ms", why, f"set it to at least {timing.promise_least_ms + 1}")
    if timing.touch_ms < timing.hold_ms:
        why = "lets a copy count as fresh for less than a retrieval may last,"
        refuse("touch_ms", "hold_ms", why, f"set it to at least {timing.hold_ms}")
    if PINGS_KEPT * timing.ping_lost_ms < timing.touch_ms:
        why = f"makes more than {PINGS_KEPT} PINGs leave, so that late answers find theirs forgotten, within"
        refuse("ping_lost_ms", "touch_ms", why, f"set it to at least {-(-timing.touch_ms // PINGS_KEPT)}")
    if timing.ceiling_ahead_ms <= CEILING_PINGS * timing.ping_ms:
        why = "is used up before it is looked at again, so that retrievals wait for the disk:"
        refuse("ceiling_ahead_ms", "ping_ms", why, f"set it above {CEILING_PINGS * timing.ping_ms}")
    if timing.keepalive_ms >= CLIENT_WAITS_MS:
        found.append(
            Problem(
                f"{prefix}keepalive_ms",
                str(timing.keepalive_ms),
                f"a client asks another peer after {CLIENT_WAITS_MS} ms of silence; set it to at most "
                f"{CLIENT_WAITS_MS // 2}",
            )
        )
    return found


def _security_problems(cache: Cache, given: Mapping[str, int], secret_file: str) -> Iterator[Problem]:
    if cache.security in ("secret", "curve") and not secret_file and cache.peers:
        said = "cache.security" in given
        yield Problem(
            "cache.security",
            cache.security if said else "",
            f"{cache.security} needs cluster.secret_file, which is not given; make one with primacy keygen",
        )
    if cache.security == "none" and not cache.allow_open:
        for name, peer in cache.peers.items():
            for word, address in zip(("url", "api"), bound_addresses(peer), strict=True):
                if address and not LOOPBACK.fullmatch(address):
                    yield Problem(
                        f"cache.peers.{name}.{word}",
                        address,
                        "is open to others, and cache.security = none; say cache.security: secret, or "
                        "cache.allow_open: true in a network that nobody else is in",
                    )
    if cache.security == "curve" and cache.peers and not cache.clients and not cache.http:
        yield Problem(
            "cache.clients",
            "",
            "cache.security = curve admits the clients that are named here, and none is; name them, such as [web]",
        )
    if cache.clients and cache.security == "none":
        yield Problem("cache.clients", ", ".join(cache.clients[:4]), "cache.security = none asks nobody for a key")


def source_with_defaults(cache: Cache, source: Source) -> Source:
    """A source of `cache.sources` with what it leaves out filled in from `cache`."""
    return Source(
        source=source.source,
        ttl_ms=_or(source.ttl_ms, cache.ttl_ms),
        jitter_percent=_or(source.jitter_percent, cache.jitter_percent),
        stale_ms=cache.stale_ms if source.stale_ms is None else source.stale_ms,
        negative_ms=_or(source.negative_ms, cache.negative_ms),
        refresh_ahead_ms=_or(source.refresh_ahead_ms, cache.refresh_ahead_ms),
        timeout_ms=_or(source.timeout_ms, cache.timeout_ms),
        max_age=cache.max_age if source.max_age is None else source.max_age,
    )
