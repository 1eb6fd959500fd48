"""Slots over HTTP: GET reads, POST writes, GET on a signal slot is a stream of server-sent events.

`GET /000`, `POST /000` with the value as body; Basic credentials, or none. A node that does not lead redirects to the
one that does, if it knows where its slots are (307), else says so (503). A stream gets the events of its own slot, if
its reader may read it, and ends when the leadership does; a browser then comes back by itself and is redirected.

Each request is a client of its own: a slot that times out is owned by nobody who could write again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import socket

from aiohttp import web

from primacy.connection_limits import HangUp, Idlers, pass_over_lost, silent
from primacy.slots.board import MISSING, NO_READ, NO_WRITE, VALUE_BYTES_MAX, Board
from primacy.slots.host import HANDSHAKE_S, STALL_S, Host, Terms
from primacy.slots.kinds import Signal
from primacy.slots.session import NO_PASSWORD
from primacy.slots.where import Where

EVENTS_MAX = 128
"""That wait for a reader of a stream; with one more it is dropped."""
QUIET_S = 15.0
"""A stream without events says this often that it is there; a reader that left is noticed then."""
BODY_S = 5.0
IDLE_S = 120.0
"""Between two requests of a connection, and before its first: longer than the 90 s for which clients in Go keep it."""
LINE_BYTES_MAX = 8_190
BACKLOG = 1_024
END_S = 0.3
PARSE = b"001"
WRONG_PATH = "slot must be a 3-digit number (e.g. GET /000)"
TOO_LONG = f"value too long (max {VALUE_BYTES_MAX} characters)"


class HttpServer(Host):
    """Serves `http`."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.streams: dict[Stream, None] = {}
        self._runner: web.ServerRunner | None = None
        self._listeners: list[asyncio.Server] = []
        self._idlers = Idlers()

    async def start(self, sockets: list[socket.socket]) -> None:
        pass_over_lost()
        self.address = str(Where(*sockets[0].getsockname()[:2]))
        server = web.Server(
            self._handle,
            access_log=None,
            logger=silent("primacy.slots"),
            keepalive_timeout=IDLE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            auto_decompress=False,
            lingering_time=0.5,
            handler_cancellation=True,  # the reader of a stream has left
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=END_S)
        await self._runner.setup()
        handshake_s = HANDSHAKE_S if self.tls is not None else None
        for each in sockets:
            self._listeners.append(
                await asyncio.get_running_loop().create_server(
                    self._taken, sock=each, ssl=self.tls, backlog=BACKLOG, ssl_handshake_timeout=handshake_s
                )
            )
        self._idlers.watch(self._runner.server, IDLE_S)

    async def close(self) -> None:
        self.follow("")
        self._idlers.close()
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(0)  # streams see their end, and say it
        if self._runner is not None:
            await self._runner.cleanup()

    def ended(self) -> None:
        for stream in tuple(self.streams):
            stream.end()

    def open_now(self) -> int:
        return len(self.streams)

    # --- connections --------------------------------------------------------------------------------------------------

    def _taken(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        if len(self._runner.server.connections) >= self.most:
            self.counters["slots_hung_up_on"] += 1
            return HangUp()
        self.counters["slots_connections"] += 1
        return self._runner.server()

    # --- one request --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._idlers.asks(request.protocol)
        try:
            return await self._answered(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001  a bug of ours here must not end the node
            self.complain(f"a fault of the slot server at {request.path[:40]}: {type(error).__name__}: {error}")
            return said(500, "a fault of primacy itself; the node's log says more")
        finally:
            self._idlers.served(request.protocol)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """In the order of Ghoti's program: path, credentials, the slot's kind, method, value."""
        number = request.path[1:].encode()
        if len(number) != 3 or not request.path.startswith("/"):
            return said(400, WRONG_PATH)
        name, refused = self._user(request.headers.get("Authorization", ""))
        if refused:
            self.hall.logins_refused += 1
            return said(401, "unauthorized", {"WWW-Authenticate": 'Basic realm="ghoti"'})
        if request.method not in ("GET", "POST"):
            return said(405, "method not allowed")
        value = b""
        if request.method == "POST":
            found = await _value(request)
            if isinstance(found, web.Response):
                return found
            value = found
        if not number.isdigit():
            return of_code(PARSE)
        now_ms = self.now_ms()
        board = self.hall.board
        if board is None:
            return self._elsewhere(request)
        self.hall.requests += 1
        signal = board.signal(number)
        if request.method == "GET" and signal is not None:
            return await self._stream(request, board, number, signal, name)
        letter = b"r" if request.method == "GET" else b"w"
        act = board.table(name).get(letter + number)
        if act is None:
            return of_code(MISSING)
        return of_answer(act(Passer(name), letter + number + value, now_ms))

    def _user(self, header: str) -> tuple[str, bool]:
        """The name; or that the credentials are wrong. What is no Basic header at all is nobody's."""
        kind, _, text = header.partition(" ")
        if kind.lower() != "basic":
            return "", False
        try:
            pair = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            return "", False
        name, colon, password = pair.partition(b":")
        if not colon:
            return "", False
        known = self.hall.passwords.get(name.decode("utf-8", "replace"))  # also on a node that does not lead
        right = hmac.compare_digest(password, known.encode() if known is not None else NO_PASSWORD)
        return (name.decode(), False) if known is not None and right else ("", True)

    def _elsewhere(self, request: web.BaseRequest) -> web.Response:
        if not self.leader_address:
            more = {"X-Primacy-Leader": self.leader} if self.leader.isascii() and self.leader.isprintable() else {}
            return said(503, "not the cluster leader", more)
        scheme = "https" if self.tls is not None else "http"
        return said(307, "not the cluster leader", {"Location": f"{scheme}://{self.leader_address}{request.path}"})

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _stream(
        self, request: web.BaseRequest, board: Board, number: bytes, signal: Signal, user: str
    ) -> web.StreamResponse:
        if not board.may(user, number, "r"):
            return of_code(NO_READ)
        answer = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-cache",
                "Connection": "keep-alive",
                "Access-Control-Allow-Origin": "*",
            }
        )
        await answer.prepare(request)
        stream = Stream(user)
        if self.hall.board is not board:  # it ended while the head was sent
            stream.end()
        self.streams[stream] = None
        signal.register(stream)
        try:
            while await stream.wait(QUIET_S):
                async with asyncio.timeout(STALL_S):
                    await answer.write(stream.take())
                stream.behind = False
            if stream.dropped:
                self.counters["slots_dropped_slow"] += 1
        except TimeoutError:
            self.counters["slots_dropped_slow"] += 1
            stream.dropped = True
        except ConnectionError:
            pass  # the reader has left
        finally:
            signal.deregister(stream)
            del self.streams[stream]
        if stream.dropped and request.transport is not None:
            request.transport.abort()
        answer.force_close()
        return answer


class Passer:
    """A request: it writes, and is told nothing but its answer."""

    def __init__(self, user: str) -> None:
        self.user = user

    def offer(self, event: bytes) -> bool:  # noqa: ARG002
        return False

    def deregistered(self) -> None:
        """It never is registered."""


class Stream:
    """A reader of one signal slot."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.behind = False
        """What was taken for it last is not with the kernel yet."""
        self.dropped = False
        self._events: list[bytes] = []
        self._ended = False
        self._news = asyncio.Event()

    def offer(self, event: bytes) -> bool:
        if self._ended:
            return False
        if len(self._events) >= EVENTS_MAX:
            self.dropped = True
            self.end()
            return False
        self._events.append(b"data: " + event + b"\n")
        self._news.set()
        return not self.behind

    def end(self) -> None:
        self._ended = True
        self._news.set()

    def deregistered(self) -> None:
        """It hears nothing any more: it ends, and its reader may come back."""
        self.dropped = True
        self.end()

    async def wait(self, quiet_s: float) -> bool:
        """Until there is something to say: events, or that it is quiet. False: it is over."""
        if not self._events and not self._ended:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(quiet_s):
                    await self._news.wait()
        return not self.dropped and (bool(self._events) or not self._ended)

    def take(self) -> bytes:
        found, self._events = b"".join(self._events), []
        self.behind = True
        return found or b": keepalive\n\n"


# --- answers ----------------------------------------------------------------------------------------------------------


def said(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """A sentence that is no value."""
    more = {"X-Content-Type-Options": "nosniff", **(headers or {})}
    return web.Response(status=status, text=text + "\n", headers=more)


def of_code(code: bytes) -> web.Response:
    """An error of the line protocol."""
    if code in (NO_WRITE, NO_READ):
        return said(403, "forbidden")
    if code == MISSING:
        return said(404, "slot not configured")
    return said(400, f"error: {code.decode()}")


def of_answer(line: bytes) -> web.Response:
    """An answer of the line protocol: `v000VALUE` or `e000CCC`, with its LF."""
    if line.startswith(b"v"):
        return web.Response(body=line[4:-1], content_type="text/plain", charset="utf-8")
    return of_code(line[4:-1])


async def _value(request: web.BaseRequest) -> bytes | web.Response:
    """At most one byte more than a value has is read; CR and LF at its end are cut off, and inside refused."""
    found = b""
    try:
        async with asyncio.timeout(BODY_S):
            while len(found) <= VALUE_BYTES_MAX and (
                more := await request.content.read(VALUE_BYTES_MAX + 1 - len(found))
            ):
                found += more
    except (TimeoutError, web.RequestPayloadError):
        late = said(408, "the body did not arrive")
        late.force_close()
        return late
    found = found.rstrip(b"\r\n")
    if len(found) > VALUE_BYTES_MAX:
        return said(400, TOO_LONG)
    if b"\n" in found or b"\r" in found:
        return of_code(PARSE)
    return found
