"""The manager's own server: HTTP by aiohttp, bounded in everything that a stranger could make long or many.

It judges nothing. A request becomes an `Asked`; whoever answers returns a `Reply`, or None to leave it unanswered for a
while and then hang up (a link that was cut on purpose). Connections of nodes are kept for longer than Go's clients
pool them (90 s), since such a client does not repeat a POST that met a closing connection, and takes the silence for
a death. Those that never asked anything are hung up on early, and the oldest quiet ones when there are too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from primacy.connection_limits import silent
from primacy.membership.http_wire import BODY_BYTES_MAX, HEADER, WORDS_BYTES_MAX, Asked, Reply
from primacy.rate_limiter import RateLimiter

IDLE_S = 120.0
"""A connection that has asked something stays; Go's pool keeps it for 90 s."""
FIRST_S = 10.0
"""For the head of a request to come, from its first byte; of a connection's first one, from the connection's begin."""
BODY_S = 5.0
SWEEP_S = 2.0
HANDSHAKE_S = 5.0
CONNECTIONS_MAX = 2_048
"""At one time, or half of the descriptors that this process may have."""
WAITING_MAX = 512
LINE_BYTES_MAX = 8_190
END_S = 0.3
ACCEPT_AGAIN_S = 0.1
SAY_AGAIN_MS = 60_000
"""So often it is said at most that connections cannot be taken."""
TAKEN_MAX = 64
"""Connections that are taken in one turn of the loop."""
MUTE_S = 3.0
"""So long a request stays unanswered whose link was cut: longer than most callers wait."""


Respond = Callable[[Asked], Awaitable[Reply | None]]


class ManagerServer:
    """Serves on a socket that listens already."""

    def __init__(self, answer: Respond, complain: Callable[[str], None]) -> None:
        self.answer = answer
        self.complain = complain
        self.hung_up = 0
        self._runner: web.ServerRunner | None = None
        self._listening: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._not_taken = 0
        """Tries to take a connection that failed since it was said last."""
        self._said = RateLimiter(SAY_AGAIN_MS)
        self._making: set[asyncio.Task[Any]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._since: dict[Any, float] = {}
        """When each connection began, or was last done with a request."""
        self._begun: dict[Any, float] = {}
        """When the first byte of a request came whose head is not whole yet."""
        self._busy: dict[Any, int] = {}
        self._new: dict[Any, None] = {}
        """Connections that have asked nothing yet."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(CONNECTIONS_MAX, max(16, limit // 2)) if limit > 0 else CONNECTIONS_MAX

    @property
    def connections(self) -> int:
        return len(self._since)

    async def open(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        server = web.Server(
            self._handle,
            access_log=None,
            logger=silent("primacy.manager"),
            keepalive_timeout=IDLE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            auto_decompress=False,
            lingering_time=0.5,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=END_S)
        await self._runner.setup()
        listening.setblocking(False)
        self._listening, self._tls = listening, tls
        self._watch()
        self._sweep_later()

    async def close(self) -> None:
        """May be said twice."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._resting is not None:
            self._resting.cancel()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            await asyncio.gather(*self._making, return_exceptions=True)
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for each in tuple(self._since):
            if each.transport is not None:
                each.transport.abort()

    # --- one request --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy[connection] = self._busy.get(connection, 0) + 1
        self._new.pop(connection, None)
        self._begun.pop(connection, None)
        try:
            return await self._answered(request)
        finally:
            left = self._busy.pop(connection, 1) - 1
            if left:
                self._busy[connection] = left
            self._since[connection] = asyncio.get_running_loop().time()

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        most = WORDS_BYTES_MAX if path == "/words" else BODY_BYTES_MAX
        body, too_long = await _body(request, most)
        if body is None:
            return _closing(408)
        asked = Asked(
            request.method,
            path,
            request.headers.get("Authorization"),
            request.headers.get(HEADER),
            body,
            too_long,
            request.remote or "",
        )
        try:
            reply = await self.answer(asked)
        except Exception as error:  # noqa: BLE001  a bug of ours here must not end the node
            self.complain(f"a fault of the manager at {path[:40]}: {type(error).__name__}: {error}")
            return _closing(500)
        if reply is None:
            await asyncio.sleep(MUTE_S)
            if request.transport is not None:
                request.transport.abort()
            return _closing(503)
        headers = {HEADER: reply.said} if reply.said else {}
        if reply.body:
            headers["Content-Type"] = reply.kind
        answer = web.Response(status=reply.status, body=reply.body, headers=headers)
        if not reply.body:
            answer.headers.pop("Content-Type", None)
        if too_long:
            answer.force_close()
        return answer

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Ours, for asyncio's own server leaks a connection that is taken in the moment in which it is closed."""
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        for _ in range(TAKEN_MAX):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is left: a moment's rest, and a quiet connection goes
                if not _is_asked(self._listening):
                    return  # the last descriptor was enough
                self._say_full(loop.time(), error)
                self._make_room(full=True)
                loop.remove_reader(self._listening)
                self._resting = loop.call_later(ACCEPT_AGAIN_S, self._watch)
                return
            connection.setblocking(False)
            task = loop.create_task(self._make(connection))
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    def _say_full(self, now_s: float, error: OSError) -> None:
        """Ten tries in a second must not be ten lines of the log."""
        self._not_taken += 1
        times = "" if self._said.newest is None else f", {self._not_taken} times since it was said last"
        if not self._said.passes(now_s * 1_000):
            return
        self.complain(
            f"the manager cannot take a connection: {error.strerror}{times}; quiet ones are hung up on. If this goes "
            "on, raise the limit of open files (ulimit -n)"
        )
        self._not_taken = 0

    def _watch(self) -> None:
        assert self._listening is not None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def _make(self, connection: socket.socket) -> None:
        limit_s = HANDSHAKE_S if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._taken, connection, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
        except (OSError, TimeoutError):  # it left, or showed no certificate
            connection.close()

    def _taken(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        if len(self._since) >= self._most:
            self._make_room()
        connection: RequestHandler = self._runner.server()
        self._since[connection] = asyncio.get_running_loop().time()
        self._new[connection] = None
        return _Ear(connection, self._heard)

    def _heard(self, connection: RequestHandler) -> None:
        if connection in self._since and connection not in self._busy:
            self._begun.setdefault(connection, asyncio.get_running_loop().time())

    def _make_room(self, *, full: bool = False) -> None:
        """The quietest one goes, one that asked nothing before all others. `full`: the process has no descriptor."""
        self._forget_closed()
        if not full and len(self._since) < self._most:
            return
        quiet = [each for each in self._since if each not in self._busy]
        first = next((each for each in quiet if each in self._new), None)
        victim = first or min(quiet, key=lambda each: self._since[each], default=None)
        if victim is not None:
            self._hang_up(victim)

    def _hang_up(self, connection: Any) -> None:
        self.hung_up += 1
        self._forget(connection)
        if connection.transport is not None:
            connection.transport.abort()

    def _forget_closed(self) -> None:
        server = self._runner.server if self._runner is not None else None
        alive = set(server.connections) if server is not None else set()
        for each in [each for each in self._since if each not in alive and each not in self._busy]:
            if each.transport is None and each in self._new and self._is_young(each):
                continue  # taken in this very turn of the loop, and not made yet
            self._forget(each)

    def _forget(self, connection: Any) -> None:
        for known in (self._since, self._new, self._begun):
            known.pop(connection, None)

    def _is_young(self, connection: Any) -> bool:
        return asyncio.get_running_loop().time() - self._since[connection] < 1.0

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._forget_closed()
        now_s = asyncio.get_running_loop().time()
        for each, since_s in list(self._since.items()):
            if each in self._busy:
                continue
            if each in self._new:
                late = now_s - since_s > FIRST_S
            else:
                late = now_s - since_s > IDLE_S + SWEEP_S or now_s - self._begun.get(each, now_s) > FIRST_S
            if late:
                self._hang_up(each)
        self._sweep_later()


class _Ear(asyncio.Protocol):
    """Passes on what a connection brings, and tells that it brought something: a head that dribbles is not heard of
    before it is whole."""

    def __init__(self, connection: RequestHandler, heard: Callable[[RequestHandler], None]) -> None:
        self.connection = connection
        self.heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.heard(self.connection)
        self.connection.data_received(data)

    def eof_received(self) -> None:
        self.connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()


def _is_asked(listening: socket.socket) -> bool:
    """Somebody waits to be taken: the kernel says that no descriptor is left before it looks."""
    look = select.poll()
    look.register(listening, select.POLLIN)
    return bool(look.poll(0))


async def _body(request: web.BaseRequest, most: int) -> tuple[bytes | None, bool]:
    """The body and whether it is too long; None if it does not come in time."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.content.iter_chunked(1 << 14):
                found += part
                if len(found) > most:
                    return bytes(found[:most]), True
    except TimeoutError:
        return None, False
    except (web.RequestPayloadError, ConnectionError, ValueError):
        return None, False  # it left, or what it sends is no body
    return bytes(found), False


def _closing(status: int) -> web.Response:
    answer = web.Response(status=status)
    with contextlib.suppress(KeyError):
        del answer.headers["Content-Type"]
    answer.force_close()
    return answer
