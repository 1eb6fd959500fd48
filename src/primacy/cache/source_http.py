"""`http:` sources: one GET per entry. The key stands percent-encoded in a URL template.

2xx is the value; 404 and 410 mean that there is no such entry; everything else is a failure. With `max_age`, the
answer's `Cache-Control` gives the time to live.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from primacy.cache.model import Failure, Fetched
from primacy.cache.source_worker import one_line, too_large
from primacy.settings.accepted import KEY
from primacy.settings.schema_cache import TTL_MS_LEAST

REDIRECTS_MAX = 5
MISSING = (404, 410)
CONNECT_S = 10.0
AGES = ("s-maxage", "max-age")
"""This is a cache for many: what is meant for those counts first."""
NOT_KEPT = ("no-store", "no-cache", "private")


class HttpFetch:
    """One session for all calls. `open` and `close` are the loop's."""

    def __init__(self, template: str, value_bytes_max: int, max_age: bool) -> None:
        self._template, self._max, self._max_age = template, value_bytes_max, max_age
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # calls at once are bounded above
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def __call__(self, key: bytes) -> Fetched | Failure:
        assert self._session is not None
        url = url_for(self._template, key)
        if url is None:
            return Failure("the key would be a step in the path of the URL (. or ..), which servers take out")
        try:
            async with self._session.get(URL(url, encoded=True), max_redirects=REDIRECTS_MAX) as answer:
                if answer.status in MISSING:
                    return Failure(f"the source has no such entry (HTTP {answer.status})", missing=True)
                if not 200 <= answer.status < 300:
                    return Failure(f"the source answered HTTP {answer.status} {one_line(answer.reason or '')}".strip())
                value = await self._body(answer)
                if isinstance(value, Failure):
                    return value
                ttl_ms = ttl_of(answer.headers.get("Cache-Control", ""), answer.headers.get("Age", ""))
                return Fetched(value, ttl_ms if self._max_age else None)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return Failure(one_line(f"the source cannot be reached: {error or type(error).__name__}"))

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes | Failure:
        parts, size = [], 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > self._max:
                return too_large(size, self._max)
            parts.append(part)
        return b"".join(parts)


def url_for(template: str, key: bytes) -> str | None:
    """The URL of this key, every byte of it encoded that could mean something; None if it would leave its place."""
    encoded = quote(key, safe="")
    path = urlsplit(template).path
    if any(part.replace(KEY, encoded) in (".", "..") for part in path.split("/") if KEY in part):
        return None
    return template.replace(KEY, encoded)


def ttl_of(control: str, age: str) -> int | None:
    """What `Cache-Control` says about the time to live, less the age that the answer had already; None: nothing."""
    said: dict[str, str] = {}
    for part in control.lower().split(","):
        name, _, value = part.strip().partition("=")
        said.setdefault(name.strip(), value.strip().strip('"'))
    if any(name in said for name in NOT_KEPT):
        return TTL_MS_LEAST
    for name in AGES:
        if said.get(name, "").isascii() and said.get(name, "").isdigit():
            old = int(age[:10]) if age.strip().isascii() and age.strip().isdigit() else 0
            return max(TTL_MS_LEAST, (int(said[name][:10]) - old) * 1_000)
    return None
