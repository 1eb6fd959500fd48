"""From the one file to the parts of a peer: its machine's settings, its sources, its storage."""

from __future__ import annotations

import os

from primacy.cache.model import CacheSettings, Mode, SourceSettings
from primacy.cache.source import SourceSpec
from primacy.cache.storage import MemoryStorage, Storage
from primacy.settings.checks_cache import cache_timing, source_with_defaults
from primacy.settings.schema_cache import Cache, Source

TTL_MAX_MS = 604_800_000
"""What a source may say of a single result at most, unless the file says more: a week."""


def sources_of(cache: Cache) -> tuple[tuple[bytes, Source], ...]:
    """Every source with its prefix, and with everything that it leaves out filled in."""
    given = dict(cache.sources)
    if cache.source:
        given[""] = Source(source=cache.source)
    return tuple((prefix.encode(), source_with_defaults(cache, source)) for prefix, source in sorted(given.items()))


def source_specs(cache: Cache) -> tuple[SourceSpec, ...]:
    """What fetches."""
    return tuple(
        SourceSpec(source.source, prefix, source.timeout_ms or 0, bool(source.max_age))
        for prefix, source in sources_of(cache)
    )


def machine_settings(cache: Cache) -> CacheSettings:
    """What the machine must know. Whether the storage is durable is the peer's to say."""
    sources = tuple(
        SourceSettings(
            prefix=prefix,
            ttl_ms=source.ttl_ms or 0,
            stale_ms=source.stale_ms,
            negative_ms=source.negative_ms or 0,
            jitter_percent=source.jitter_percent or 0,
            limit_ms=source.timeout_ms or 0,
            refresh_ahead_ms=source.refresh_ahead_ms or 0,
        )
        for prefix, source in sources_of(cache)
    )
    return CacheSettings(
        timing=cache_timing(cache),
        mode=Mode(cache.mode),
        sources=sources,
        calls_max=cache.calls_max,
        durable=cache.storage.type == "lmdb",
        stale_ms=cache.stale_ms,
        ttl_max_ms=max(TTL_MAX_MS, cache.ttl_ms, *(source.ttl_ms for source in sources)),
        key_bytes_max=cache.key_bytes_max,
        value_bytes_max=cache.value_bytes_max,
        ttl_ms=cache.ttl_ms,
    )


def storage_of(cache: Cache, state_dir: str) -> Storage:
    """Opened. A relative folder counts from the state folder. Raises `InUse`, `CannotHere` or `StorageFailed`."""
    if cache.storage.type == "memory":
        return MemoryStorage(cache.storage.bytes_max)
    from primacy.cache.lmdb_storage import LmdbStorage  # noqa: PLC0415 -- not needed for memory

    return LmdbStorage(os.path.join(state_dir, cache.storage.dir), cache.storage.bytes_max)
