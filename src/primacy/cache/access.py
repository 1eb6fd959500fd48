"""What a reader of the cache gets, whichever way it asked: inside the process, by HTTP, by a client. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, TypeGuard

from primacy.errors import UsageError
from primacy.settings.schema_cache import TTL_MS_LEAST, TTL_MS_MOST

WITHIN_MS_MAX = 86_400_000
"""A call waits at most a day: a larger number is a mistake, and peers would not understand every such number."""
INSTANT_MS_MAX = (1 << 53) - 1
"""What fits the wire."""
KEY_CHARS_NAMED = 80
"""Of a key in a sentence."""


class Found(NamedTuple):
    """An entry."""

    value: bytes
    expire_ms: int
    """Unix ms."""
    age_ms: int
    """Since its call to the source began."""
    fetcher: str
    """The url of the peer that fetched it; empty: an original peer did."""
    stale: bool
    """Nobody vouches that it is current: expired, or this peer is out of touch."""
    waited: bool = False
    """It was not there when it was asked for."""


class Why(StrEnum):
    """Why there is no entry. Closed."""

    MISS = "miss"
    """There is none, and nobody was to fetch it, or nobody can: no source serves this key, or it has no such entry."""
    LATE = "late"
    """Not within the time given."""
    SOURCE = "source"
    """The source failed; the text says how."""
    ELSEWHERE = "elsewhere"
    """This peer cannot get it now; another may."""


class Absent(NamedTuple):
    """No entry, and why, in one sentence."""

    why: Why
    text: str


class Done(NamedTuple):
    """The outcome of an invalidation or a refresh. `missing`: peers that could not be told."""

    ok: bool
    reason: str = ""
    missing: tuple[str, ...] = ()


class CacheAccess(Protocol):
    """A peer, as seen by what serves it to others."""

    async def read(
        self, key: bytes, *, after_ms: int = 0, within_ms: int = 2_000, fetch: bool = True
    ) -> Found | Absent: ...

    async def invalidate(self, key: bytes, *, prefix: bool = False, within_ms: int = 5_000) -> Done: ...


def check_ttl(ttl_ms: int) -> None:
    """Refuses what is no time to live. 0: the peers' own."""
    if not _is_whole(ttl_ms) or (ttl_ms != 0 and not TTL_MS_LEAST <= ttl_ms <= TTL_MS_MOST):
        raise UsageError(
            f"ttl_ms = {str(ttl_ms)[:40]}: whole milliseconds from {TTL_MS_LEAST} to {TTL_MS_MOST}, or 0 for the "
            "peers' own"
        )


def check_ms(name: str, value: object, least: int, most: int, more: str = "") -> None:
    """Refuses what is no such time, with its name, its value and what would do."""
    if not _is_whole(value) or not least <= value <= most:
        raise UsageError(f"{name} = {str(value)[:40]}: whole milliseconds from {least} to {most}{more}")


def check_after(name: str, value: object) -> None:
    """Refuses what is no instant in Unix milliseconds."""
    if not _is_whole(value) or not 0 <= value <= INSTANT_MS_MAX:
        raise UsageError(
            f"{name} = {str(value)[:40]}: Unix time in whole milliseconds, such as int(time.time() * 1000)"
        )


def as_key(key: object, empty: bool = False) -> bytes:
    """A key as bytes. Texts are UTF-8, as in the original's client."""
    if isinstance(key, str):
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the key {key[:80]!r} is no text that UTF-8 can write; say it as bytes") from None
    if not isinstance(key, bytes):
        raise UsageError(f"a key is text or bytes, and this is {type(key).__name__}")
    if not key and not empty:
        raise UsageError("the key is empty")
    return key


def shown_key(key: bytes) -> str:
    """A key as text: as it is where it is text that can be printed, else with its bytes escaped."""
    text = key.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def named_key(key: bytes) -> str:
    """A key in a sentence: the beginning of a long one."""
    text = shown_key(key[: 5 * KEY_CHARS_NAMED])  # a character has at most four bytes
    return text if len(text) <= KEY_CHARS_NAMED else text[:KEY_CHARS_NAMED] + "..."


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
