"""A gate before a web application: requests of a stale holder are refused with 412.

    app = TokenGate(app, mark=Mark("/var/lib/app/reports.fence"))           # ASGI
    application = WsgiTokenGate(application, mark=Mark("…"))                # WSGI

The holder sends its token with every request that changes something: `Primacy-Token: 1794700800007`. The mark is
durable and shared by all workers of the machine; it is raised before the application sees the first request of a newer
holder. Requests that only read (GET, HEAD, OPTIONS) pass without a token.

What it cannot do: a request that was let in before a newer token came may still be at work. Where that matters, use
`fence.sql` inside of the transaction, which orders the two; the token stands in `scope["primacy.token"]` (ASGI) or
`environ["primacy.token"]` (WSGI).

Answers: 412 stale token · 428 no token · 400 not a token · 503 the mark was not to be had. The body is one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, NamedTuple

from primacy.election.model import TOKEN_MAX
from primacy.errors import InUse, StaleToken, Unsafe, UsageError
from primacy.fence.file import Mark

__all__ = ["HEADER", "SAFE", "Mark", "TokenGate", "WsgiTokenGate", "judge"]

log = logging.getLogger("primacy")

HEADER = "Primacy-Token"
SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
DIGITS_MAX = len(str(TOKEN_MAX))

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class Verdict(NamedTuple):
    """What the gate says: let in with this token, or refused with a status and a sentence."""

    token: int
    status: HTTPStatus = HTTPStatus.OK
    sentence: str = ""


def judge(mark: Mark, text: str | None) -> Verdict:
    """The whole check, for servers that are neither ASGI nor WSGI. `text`: the header, None if it is missing."""
    if text is None:
        return Verdict(0, HTTPStatus.PRECONDITION_REQUIRED, f"send the fencing token as {HEADER}")
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        return Verdict(0, HTTPStatus.BAD_REQUEST, f"{HEADER} is a whole number from 1 to {TOKEN_MAX}")
    try:
        mark.admit(int(text))
    except StaleToken as error:
        return Verdict(0, HTTPStatus.PRECONDITION_FAILED, f"stale token {error.token}: {error.mark} was seen; stop")
    except UsageError as error:
        return Verdict(0, HTTPStatus.BAD_REQUEST, str(error))
    except (InUse, Unsafe, OSError) as error:
        log.error("the gate lets nobody in: %s", error)
        return Verdict(0, HTTPStatus.SERVICE_UNAVAILABLE, "the mark of this gate was not to be had; see the log")
    return Verdict(int(text))


def mark_of(mark: Mark | str | os.PathLike[str]) -> Mark:
    """Told where the gate is made, and not to the first who sends a request."""
    if isinstance(mark, Mark):
        return mark
    if isinstance(mark, str | os.PathLike) and os.fspath(mark):
        return Mark(mark)
    raise UsageError(f"a gate needs a Mark, or the file that it is kept in, not {mark!r:.40}")


class TokenGate:
    """ASGI middleware. `mark`: or its file. `safe`: methods that pass without a token; websockets never do."""

    def __init__(self, app: AsgiApp, *, mark: Mark | str | os.PathLike[str], safe: Iterable[str] = SAFE) -> None:
        self.app = app
        self.mark = mark_of(mark)
        self.safe = tuple(safe)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        found = [value for name, value in scope["headers"] if name.lower() == HEADER.lower().encode()]
        if not found and kind == "http" and scope["method"] in self.safe:
            await self.app(scope, receive, send)
            return
        text = b", ".join(found).decode("latin-1") if found else None  # two of them are none
        verdict = await asyncio.to_thread(judge, self.mark, text)
        if verdict.sentence:
            await self._refuse(verdict, kind, send)
            return
        await self.app({**scope, "primacy.token": verdict.token}, receive, send)

    async def _refuse(self, verdict: Verdict, kind: str, send: Send) -> None:
        if kind == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": verdict.sentence[:120]})
            return
        body = f"{verdict.sentence}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": verdict.status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class WsgiTokenGate:
    """WSGI middleware; the same."""

    def __init__(self, app: WsgiApp, *, mark: Mark | str | os.PathLike[str], safe: Iterable[str] = SAFE) -> None:
        self.app = app
        self.mark = mark_of(mark)
        self.safe = tuple(safe)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        text = environ.get(f"HTTP_{HEADER.upper().replace('-', '_')}")
        if text is None and environ.get("REQUEST_METHOD") in self.safe:
            return self.app(environ, start_response)
        verdict = judge(self.mark, text)
        if not verdict.sentence:
            return self.app({**environ, "primacy.token": verdict.token}, start_response)
        body = f"{verdict.sentence}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response(f"{verdict.status.value} {verdict.status.phrase}", headers)
        return [body]
