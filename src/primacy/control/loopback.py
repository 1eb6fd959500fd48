"""An HTTP server for this machine alone, by aiohttp: a node's control API stands on it, the lab's and the chain's too.

Who may do what: anybody on this machine reads; an order needs the key, if the server has one, and a header that no page
of another site can send; a request whose Host is not a loopback name is refused, so that no name of somebody else's
leads here. A server that is open to others (behind TLS) wants the key from them for reading, too, and their certificate
if it was told whom to trust. Bodies, times and streams are bounded. Every refusal is a document with one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from aiohttp import web

from primacy.connection_limits import HangUp, Idlers, silent
from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.control.key import is_key
from primacy.errors import Later, NotReached, PrimacyError, UsageError

BODY_BYTES_MAX = 16_384
"""The largest order names 64 nodes of 63 letters."""
READ_S = 5.0
"""For a body to arrive, and, twice this at most, for a connection that asks nothing."""
CONNECTIONS_MAX = 64
"""At one time. One more is hung up on: a node needs descriptors for its ballot, its guards and its datagrams."""
HANDSHAKE_S = 5.0
TAKEN_MAX = 16
"""Connections that are taken in one turn of the loop, before any of them can be hung up on."""
WAITING_MAX = 128
"""Connections that wait to be taken."""
STREAMS_MAX = 16
"""Readers of a stream at one time."""
STREAM_HEARTBEAT_S = 15.0
"""A quiet stream says this often that it is there; a reader that left is noticed then."""
END_S = 0.3
"""How long a request in progress may take when the server ends."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LINE_BYTES_MAX = 8_190
"""Of the request line, as most servers have it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Numbered(Protocol):
    """A row of a stream: its number is where a reader goes on."""

    @property
    def number(self) -> int: ...


Row_co = TypeVar("Row_co", bound=Numbered, covariant=True)


class Rows(Protocol[Row_co]):
    """What can be streamed: bounded, numbered, and it wakes those who wait for more."""

    @property
    def newest(self) -> int: ...
    @property
    def wakers(self) -> set[Callable[[], None]]: ...
    def after(self, number: int, /) -> Sequence[Row_co]: ...


OTHER_KEY = (
    "an order needs the control key of this node, and this is another: run this as the user that runs the node, and "
    "name its state folder with --state-dir"
)


class LoopbackServer(ABC):
    """Serves on a socket that listens already. It shares an event loop, so that nothing here may take long."""

    connections_max = CONNECTIONS_MAX
    line_bytes_max = LINE_BYTES_MAX

    def __init__(self, key: str, host: str, complain: Callable[[str], None]) -> None:
        """`key`: empty if orders need none. `host`: what it listens on."""
        self.key = key
        self.hosts = {*LOOPBACK, host}
        self.is_open = not is_loopback(host)
        self.certified = False
        """Others must show a certificate."""
        self.complain = complain
        self._streams: set[asyncio.Event] = set()
        self._ending = False
        self._idlers = Idlers()
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    @abstractmethod
    def routes(self, router: web.UrlDispatcher) -> None:
        """What is at which path."""

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=BODY_BYTES_MAX)
        self.routes(app.router)
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            logger=silent("primacy.control"),
            keepalive_timeout=READ_S,
            shutdown_timeout=END_S,
            max_line_size=self.line_bytes_max,
        )
        await self._runner.setup()
        self.certified = tls is not None and tls.verify_mode is not ssl.CERT_NONE
        self._listener = await asyncio.get_running_loop().create_server(
            self._taken,
            sock=listening,
            ssl=tls,
            backlog=TAKEN_MAX,
            ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
        )
        listening.listen(WAITING_MAX)
        self._idlers.watch(self._runner.server, READ_S)

    def _taken(self) -> asyncio.Protocol:
        """Who speaks on a connection that was taken."""
        assert self._runner is not None
        assert self._runner.server is not None
        return self._runner.server() if len(self._runner.server.connections) < self.connections_max else HangUp()

    async def close(self) -> None:
        self._ending = True
        self._idlers.close()
        for stream in tuple(self._streams):
            stream.set()
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # --- who may ask --------------------------------------------------------------------------------------------------

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """All errors are one sentence; a bug of ours here must not end the node."""
        self._idlers.asks(request.protocol)
        try:
            self._check(request)
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            there = ", ".join(sorted(error.allowed_methods))
            sentence = f"{request.method} is not for {request.path[:80]}; there is {there}"
            return refusal(405, sentence, {"Allow": there})
        except web.HTTPNotFound:
            return refusal(404, f"there is nothing at {request.path[:80]}")
        except web.HTTPRequestEntityTooLarge:
            return refusal(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        except web.HTTPException as error:
            return refusal(error.status, error.text or error.reason)
        except UsageError as error:
            return refusal(400, str(error))
        except NotReached as error:
            return refusal(504, str(error))
        except PrimacyError as error:
            return refusal(409, str(error), again=isinstance(error, Later))
        except TimeoutError:
            return refusal(408, f"the body did not arrive within {READ_S:.0f} s")
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001
            self.complain(f"a fault of the control API at {request.path[:80]}: {type(error).__name__}: {error}")
            return refusal(500, "a fault of primacy itself; the node's log says more")
        finally:
            self._idlers.served(request.protocol)

    def _check(self, request: web.Request) -> None:
        if self.is_open and not is_loopback(request.remote or ""):
            self._check_other(request)
        elif _host_of(request.headers.get("Host", "")) not in self.hosts:
            raise web.HTTPForbidden(text="Host is not a name of this machine's loopback; ask at 127.0.0.1")
        if request.method in ("GET", "HEAD", "OPTIONS") or request.match_info.http_exception is not None:
            return  # no order: it reads, or there is nothing that could be ordered (404, 405)
        if ORDER_HEADER not in request.headers:
            raise web.HTTPForbidden(text=f"an order needs the header {ORDER_HEADER}: 1")
        shown = request.headers.get(KEY_HEADER, "")
        if self.key and not is_key(shown, self.key):
            wanted = f"an order needs the control key in {KEY_HEADER}; it is in the state folder"
            raise web.HTTPForbidden(text=OTHER_KEY if shown else wanted)

    def _check_other(self, request: web.Request) -> None:
        """Somebody on another machine."""
        if self.certified and not (request.transport and request.transport.get_extra_info("peercert")):
            raise web.HTTPForbidden(text="from another machine a certificate is needed, as control.tls.ca says")
        if not is_key(request.headers.get(KEY_HEADER, ""), self.key):
            raise web.HTTPForbidden(text=f"from another machine even reading needs the control key in {KEY_HEADER}")

    # --- what all of them do alike ------------------------------------------------------------------------------------

    async def healthz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        """It answers, which is all that is said here."""
        return web.json_response({"ok": True})

    async def stream(
        self, request: web.Request, rows: Rows[Row_co], shown: Callable[[Row_co], bytes], greeting: str
    ) -> web.StreamResponse:
        """Server-sent events: from where the reader left off, or from now on."""
        if len(self._streams) >= STREAMS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{STREAMS_MAX} readers have the stream already")
        said = request.headers.get("Last-Event-ID") or request.query.get("after")
        seen = number_of(said, "Last-Event-ID") if said is not None else rows.newest
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        news = asyncio.Event()
        self._streams.add(news)
        rows.wakers.add(news.set)
        try:
            await answer.prepare(request)
            await _say(answer, f": {greeting}\n\n".encode())
            while not self._ending:
                news.clear()
                found = rows.after(seen)
                if found:
                    seen = found[-1].number
                    await _say(answer, b"".join(map(shown, found)))
                    continue
                try:
                    async with asyncio.timeout(STREAM_HEARTBEAT_S):
                        await news.wait()
                except TimeoutError:
                    await _say(answer, b": quiet\n\n")
        except (ConnectionError, TimeoutError):
            pass  # the reader has left, or does not read
        finally:
            self._streams.discard(news)
            rows.wakers.discard(news.set)
        return answer


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def wants_stream(request: web.Request) -> bool:
    return "text/event-stream" in request.headers.get("Accept", "")


def refusal(status: int, sentence: str, headers: dict[str, str] | None = None, *, again: bool = False) -> web.Response:
    """`again`: the same request may be taken in a moment."""
    said = {"error": sentence, "again": True} if again else {"error": sentence}
    return web.json_response(said, status=status, headers=headers)


def number_of(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise UsageError(f"{name} = {text[:40]}: a whole number, from 0")
    return int(text)


async def body_of(request: web.Request) -> dict[str, Any]:
    """The JSON object that was sent; nothing is an empty one."""
    async with asyncio.timeout(READ_S):
        data = await request.read()
    if not data:
        return {}
    body: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(data)
    if not isinstance(body, dict):
        raise UsageError("the body is no JSON object")
    return body


def sent_event(number: int, name: str, said: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(said, ensure_ascii=False)}\n\n".encode()


async def _say(answer: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(READ_S):
        await answer.write(data)


def _host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
