"""Calls to other nodes: all at once, each with a limit, and no more under way than a bound.

Every answer is read to its end within a bound, so that connections are used again. A connection from the pool may have
been closed by the other side just now: such a call is made once more, on a new one. Redirects are not followed and
proxies not asked, for the credentials go to nobody but the node that is listed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp

from primacy.membership.http_wire import ANSWER_BYTES_MAX, HEADER, Answer, Said, Silent

CALLS_MAX = 256
"""Under way at one time; more are not made. A leader of a hundred nodes has two hundred."""
PER_NODE_MAX = 8
POOLED_S = 30.0
"""Shorter than any real node keeps an idle connection (60 s at the least)."""


class ManagerClient:
    """One node's calls to others."""

    def __init__(self, authorization: str, tls: ssl.SSLContext | None = None) -> None:
        self.authorization = authorization
        self.tls = tls
        self.under_way = 0
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=CALLS_MAX, limit_per_host=PER_NODE_MAX, keepalive_timeout=POOLED_S, ssl=self.tls or True
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self, method: str, addr: str, path: str, body: bytes | None, said: str, limit_s: float
    ) -> Answer | Silent:
        """One exchange. Never raises but when it is cancelled."""
        if self._session is None or self.under_way >= CALLS_MAX:
            return Silent(False, "too many calls are under way")
        headers = {"Authorization": self.authorization, HEADER: said}
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.under_way += 1
        try:
            async with asyncio.timeout(limit_s):
                try:
                    return await self._once(method, addr, path, body, headers)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    return await self._once(method, addr, path, body, headers)
        except TimeoutError:
            return Silent(False, "it does not answer in time")
        except aiohttp.ClientConnectorError as error:
            return Silent(isinstance(error.os_error, ConnectionRefusedError), _why(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Silent(False, _why(error))
        finally:
            self.under_way -= 1

    async def _once(self, method: str, addr: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        assert self._session is not None
        url = f"{'https' if self.tls is not None else 'http'}://{addr}{path}"
        async with self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as answer:
            found = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                found += part
                if len(found) > ANSWER_BYTES_MAX:
                    answer.close()
                    raise ValueError("its answer is too long")
            return Answer(answer.status, Said(answer.headers.get(HEADER)), bytes(found))


def _why(error: Exception) -> str:
    """In a few words, without an address: whoever says it knows which."""
    inner = getattr(error, "os_error", error)
    if isinstance(inner, ConnectionRefusedError):
        return "nobody listens there"
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
