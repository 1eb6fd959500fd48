"""The cache's part of the file, as the parts of a peer."""

from __future__ import annotations

from pathlib import Path

from primacy import settings
from primacy.cache.configured import machine_settings, source_specs, storage_of
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.model import CacheSettings, Mode, SourceSettings
from primacy.cache.source import SourceSpec
from primacy.cache.storage import MemoryStorage
from primacy.settings.timing_cache import CACHE_PROFILES


def test_a_file_with_several_sources() -> None:
    cache = settings.of_mapping(
        {
            "cache": {
                "source": "cmd:./fetch {key}",
                "ttl_ms": 5_000,
                "stale_ms": 0,
                "negative_ms": 300,
                "timeout_ms": 900,
                "profile": "wan",
                "sources": {"rate:": {"source": "http://h/{key}", "ttl_ms": 100, "max_age": True, "stale_ms": 7}},
            }
        }
    ).cache
    assert source_specs(cache) == (
        SourceSpec("cmd:./fetch {key}", b"", 900, False),
        SourceSpec("http://h/{key}", b"rate:", 900, True),
    )
    made = machine_settings(cache)
    assert made.sources == (
        SourceSettings(b"", 5_000, 0, 300, limit_ms=900),
        SourceSettings(b"rate:", 100, 7, 300, limit_ms=900),
    )
    assert (made.timing, made.mode, made.calls_max, made.stale_ms) == (CACHE_PROFILES["wan"], Mode.OWN, 32, 0)


def test_the_defaults_of_the_file_are_those_of_the_machine() -> None:
    cache = settings.of_mapping({"cache": {"source": "cmd:./fetch {key}"}}).cache
    assert machine_settings(cache) == CacheSettings(sources=(SourceSettings(),), calls_max=32)
    mixed = settings.of_mapping({"cache": {"source": "cmd:./fetch {key}", "mode": "mixed"}}).cache
    assert machine_settings(mixed).timing == CACHE_PROFILES["ha-cache"]


def test_a_longer_time_to_live_than_a_week_is_not_cut() -> None:
    cache = settings.of_mapping({"cache": {"source": "cmd:./fetch {key}", "ttl_ms": 900_000_000}}).cache
    assert machine_settings(cache).ttl_max_ms == 900_000_000


def test_storage_stands_below_the_state_folder(tmp_path: Path) -> None:
    for given, kind in (("memory", MemoryStorage), ("lmdb", LmdbStorage)):
        cache = settings.of_mapping({"cache": {"storage": {"type": given, "bytes_max": 1 << 25}}}).cache
        storage = storage_of(cache, str(tmp_path))
        assert isinstance(storage, kind)
        assert storage.bytes_max == 1 << 25
        storage.close()
    assert (tmp_path / "cache" / "data.mdb").exists()
    elsewhere = settings.of_mapping({"cache": {"storage": {"dir": str(tmp_path / "other")}}}).cache
    storage_of(elsewhere, "/nowhere").close()
    assert (tmp_path / "other" / "data.mdb").exists()
