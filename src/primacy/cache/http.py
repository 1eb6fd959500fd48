"""The cache by HTTP: `GET`, `HEAD` and `DELETE /cache/KEY`, for curl, nginx and every language.

Answers say how they came about: `X-Cache` is HIT (fresh, was here), STALE (nobody vouches for it; a refresh is under
way) or MISS (fetched for this request). `Age`, `Cache-Control` and `ETag` are what caches in between need; a request
with the entity tag in `If-None-Match` gets 304. No entry: 404 with `fetch=0`, where no source serves the key, and where
the source has no such entry; 502 where the source failed, 504 where `within_ms` passed, 503 where this peer cannot get
it. 400 where the request makes no sense, 405 for other methods.

Who may ask is decided as for the control API: anybody on this machine reads; from another machine the key is needed.
DELETE needs the key everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from urllib.parse import unquote_to_bytes

from aiohttp import web

from primacy.cache.access import Absent, CacheAccess, Found, Why
from primacy.control.loopback import LINE_BYTES_MAX, LoopbackServer, refusal
from primacy.errors import UsageError
from primacy.node.clock import Clock

PATH = "/cache/"
CONNECTIONS_MAX = 1_024
"""At one time: each may wait for a retrieval."""
WITHIN_MS = 2_000
WITHIN_MS_MAX = 600_000
INVALIDATE_MS = 5_000
STATUS = {Why.MISS: 404, Why.SOURCE: 502, Why.ELSEWHERE: 503, Why.LATE: 504}
YES, NO = ("1", "true", "yes"), ("0", "false", "no")
ETAG_BYTES = 12
MAX_AGE_S = 31_536_000
"""A year: what HTTP calls for ever."""
ENCODED = 3
"""Characters that one byte of a key may take in a path."""
MALFORMED = re.compile("%(?![0-9A-Fa-f]{2})")
TAG = re.compile(r'(?:W/)?("[^"]*")')


class CacheServer(LoopbackServer):
    """Serves one peer's entries."""

    connections_max = CONNECTIONS_MAX

    def __init__(
        self, cache: CacheAccess, clock: Clock, key: str, host: str, key_bytes_max: int, complain: Callable[[str], None]
    ) -> None:
        super().__init__(key, host, complain)
        self._cache = cache
        self._clock = clock
        self._key_bytes_max = key_bytes_max
        self.line_bytes_max = LINE_BYTES_MAX + ENCODED * key_bytes_max

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get(PATH + "{key:.*}", self._get, allow_head=True)
        router.add_delete(PATH + "{key:.*}", self._delete)
        router.add_get("/healthz", self.healthz)

    async def _get(self, request: web.Request) -> web.Response:
        key = self._key(request)
        fetch = _flag(request, "fetch", True)
        within_ms = _span(request, "within_ms", WITHIN_MS)
        after_ms = self._clock.wall_ms() if _flag(request, "fresh", False) else 0
        found = await self._cache.read(key, after_ms=after_ms, within_ms=within_ms, fetch=fetch)
        if isinstance(found, Absent):
            return refusal(STATUS[found.why], found.text, {"X-Cache": "MISS", "Cache-Control": "no-store"})
        return _entry(request, found, self._clock.wall_ms())

    async def _delete(self, request: web.Request) -> web.Response:
        prefix = _flag(request, "prefix", False)
        key = self._key(request, empty=prefix)
        done = await self._cache.invalidate(key, prefix=prefix, within_ms=_span(request, "within_ms", INVALIDATE_MS))
        if not done.ok:
            return refusal(503, done.reason)
        return web.json_response({"invalidated": True, "not_told": list(done.missing), "detail": done.reason})

    def _key(self, request: web.Request, empty: bool = False) -> bytes:
        """The bytes of the key: the path behind /cache/, percent-decoded. Slashes belong to it."""
        raw = request.raw_path.partition("?")[0].partition("#")[0]
        if not raw.startswith(PATH):  # an absolute address in the request line, or a path with dots
            raise UsageError(f"the path is {PATH}KEY, with the key percent-encoded")
        if wrong := MALFORMED.search(raw):
            said = raw[wrong.start() : wrong.start() + ENCODED]
            raise UsageError(f"{said} in the path: behind % stand two hexadecimal digits; % itself is %25")
        key = unquote_to_bytes(raw[len(PATH) :])
        if not key and not empty:
            raise UsageError(f"the key is empty; the path is {PATH}KEY")
        if len(key) > self._key_bytes_max:
            raise UsageError(f"the key has {len(key)} bytes; cache.key_bytes_max = {self._key_bytes_max}")
        return key


def _entry(request: web.Request, found: Found, wall_ms: int) -> web.Response:
    tag = f'"{blake2b(found.value, digest_size=ETAG_BYTES).hexdigest()}"'
    left_s = min(MAX_AGE_S, max(0, found.expire_ms - wall_ms) // 1_000)
    age_s = max(0, found.age_ms) // 1_000
    headers = {
        # max-age counts from the response's making, which `Age` says is in the past
        "Age": str(age_s),
        "Cache-Control": "max-age=0, must-revalidate" if found.stale else f"max-age={left_s + age_s}",
        "ETag": tag,
        "X-Cache": "STALE" if found.stale else "MISS" if found.waited else "HIT",
    }
    if found.fetcher:
        headers["X-Cache-Fetcher"] = found.fetcher
    if _matches(request.headers.getall("If-None-Match", ()), tag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.value, content_type="application/octet-stream", headers=headers)


def _matches(lines: Sequence[str], tag: str) -> bool:
    """`If-None-Match`: tags, in one line or several, compared weakly; or a star alone, which means whatever is here."""
    header = ", ".join(lines)
    return header.strip() == "*" or tag in TAG.findall(header)


def _said(request: web.Request, name: str) -> str | None:
    """What the query says of this name, once at most."""
    said = request.query.getall(name, [])
    if len(said) > 1:
        raise UsageError(f"{name} is said {len(said)} times; say it once")
    return said[0] if said else None


def _flag(request: web.Request, name: str, default: bool) -> bool:
    said = _said(request, name)
    if said is None:
        return default
    if said.lower() not in YES + NO:
        raise UsageError(f"{name} = {said[:40]}: 0 or 1")
    return said.lower() in YES


def _span(request: web.Request, name: str, default: int) -> int:
    said = _said(request, name)
    if said is None:
        return default
    if not said.isascii() or not said.isdigit() or len(said) > len(str(WITHIN_MS_MAX)) or int(said) > WITHIN_MS_MAX:
        raise UsageError(f"{name} = {said[:40]}: whole milliseconds from 0 to {WITHIN_MS_MAX}")
    return int(said)
