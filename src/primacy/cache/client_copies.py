"""Copies of entries in a client, for a short time. Bounded. Pure: the time is an argument."""

from __future__ import annotations

from primacy.cache.access import Found

COPIES_MAX = 10_000
COPIES_BYTES_MAX = 64 * 1024 * 1024


class Copies:
    """Fresh entries that were had less than `local_ms` ago. A peer that hears of an invalidation tells its clients,
    which drop theirs; if that message is lost, `local_ms` is how long the old value may live on here."""

    def __init__(self, local_ms: int) -> None:
        self.local_ms = local_ms
        self.hits = 0
        self._kept: dict[bytes, tuple[Found, int]] = {}
        self._bytes = 0
        self._dropped_ms = -1

    def get(self, key: bytes, now_ms: int, wall_ms: int) -> Found | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        found, at_ms = kept
        if now_ms - at_ms >= self.local_ms or found.expire_ms <= wall_ms:
            self.drop(key, now_ms)
            return None
        self.hits += 1
        return found._replace(age_ms=found.age_ms + now_ms - at_ms, waited=False)

    def keep(self, key: bytes, found: Found, asked_ms: int, now_ms: int) -> None:
        """`asked_ms`: when it was asked for. What was asked for before something was dropped may be what was."""
        if found.stale or asked_ms <= self._dropped_ms:
            return
        self._forget(key)
        self._kept[key] = found, now_ms
        self._bytes += len(key) + len(found.value)
        while len(self._kept) > COPIES_MAX or self._bytes > COPIES_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def drop(self, key: bytes, now_ms: int, prefix: bool = False) -> None:
        self._dropped_ms = now_ms
        for one in [one for one in self._kept if one.startswith(key)] if prefix else [key]:
            self._forget(one)

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def _forget(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= len(key) + len(kept[0].value)

    def __len__(self) -> int:
        return len(self._kept)
