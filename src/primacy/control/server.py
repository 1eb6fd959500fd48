"""The control API: HTTP/1.1 on loopback, by aiohttp, which is loaded when a node starts and not before.

Who may do what: anybody on this machine reads; an order needs the control key and a header that no page of another site
can send; a request whose Host is not a loopback name is refused, so that no name of somebody else's leads here. Bodies,
times and streams are bounded. Every refusal is a document with one sentence.

It shares the event loop with the election, so that nothing here may take long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from primacy.control import KEY_HEADER, ORDER_HEADER, AgentPort
from primacy.control.document import acts_as_leader, document
from primacy.control.eventlog import EVENTS_MAX, Entry, EventLog
from primacy.control.key import is_key
from primacy.control.links import cut_of
from primacy.control.orders import ORDERS, order_of
from primacy.election.events import Code
from primacy.errors import PrimacyError, Refused, UsageError

BODY_BYTES_MAX = 16_384
"""The largest order names 64 nodes of 63 letters."""
READ_S = 5.0
"""For a body to arrive, and, twice this at most, for a connection that asks nothing."""
STREAMS_MAX = 16
"""Readers of the stream of events at one time."""
STREAM_BEAT_S = 15.0
"""A quiet stream says this often that it is there; a reader that left is noticed then."""
END_S = 0.3
"""How long a request in progress may take when the node ends."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlServer:
    """Serves one node on a socket that listens already."""

    def __init__(self, port: AgentPort, events: EventLog, key: str, host: str) -> None:
        self.port = port
        self.events = events
        self.key = key
        self.hosts = {*LOOPBACK, host}
        self._streams: set[asyncio.Event] = set()
        self._ending = False
        self._busy: set[Any] = set()
        self._idle: set[Any] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, listening: socket.socket) -> None:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guarded], client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/leader", self._leader)
        app.router.add_get("/v1/state", self._state)
        app.router.add_get("/v1/events", self._events)
        if self.port.snapshot().settings.control.lab:
            app.router.add_get("/v1/links", self._links)
            app.router.add_post("/v1/links", self._cut)
        for name in ORDERS:
            app.router.add_post(f"/v1/{name}", self._order)
        quiet = logging.Logger("primacy.control")
        quiet.addHandler(logging.NullHandler())  # what a stranger sends is no line of the node's log
        self._runner = web.AppRunner(
            app, handle_signals=False, access_log=None, logger=quiet, keepalive_timeout=READ_S, shutdown_timeout=END_S
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()
        self._sweep_later()

    async def close(self) -> None:
        self._ending = True
        if self._sweep is not None:
            self._sweep.cancel()
        for stream in tuple(self._streams):
            stream.set()
        if self._runner is not None:
            await self._runner.cleanup()

    # --- who may ask --------------------------------------------------------------------------------------------------

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """All errors are one sentence; a bug of ours here must not end the node."""
        self._busy.add(request.protocol)
        try:
            self._check(request)
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            there = ", ".join(sorted(error.allowed_methods))
            sentence = f"{request.method} is not for {request.path[:80]}; there is {there}"
            return _error(405, sentence, {"Allow": there})
        except web.HTTPNotFound:
            return _error(404, f"there is nothing at {request.path[:80]}")
        except web.HTTPRequestEntityTooLarge:
            return _error(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        except web.HTTPException as error:
            return _error(error.status, error.text or error.reason)
        except UsageError as error:
            return _error(400, str(error))
        except PrimacyError as error:
            return _error(409, str(error))
        except TimeoutError:
            return _error(408, f"the body did not arrive within {READ_S:.0f} s")
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001
            self.port.complain(f"a fault of the control API at {request.path[:80]}: {type(error).__name__}: {error}")
            return _error(500, "a fault of primacy itself; the node's log says more")
        finally:
            self._busy.discard(request.protocol)
            self._idle.discard(request.protocol)

    def _check(self, request: web.Request) -> None:
        if _host_of(request.headers.get("Host", "")) not in self.hosts:
            raise web.HTTPForbidden(text="Host is not a name of this machine's loopback; ask at 127.0.0.1")
        if request.method in ("GET", "HEAD"):
            return
        if ORDER_HEADER not in request.headers:
            raise web.HTTPForbidden(text=f"an order needs the header {ORDER_HEADER}: 1")
        if not is_key(request.headers.get(KEY_HEADER, ""), self.key):
            raise web.HTTPForbidden(text=f"an order needs the control key in {KEY_HEADER}; it is in the state folder")

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        """The node answers, which is all that is said here."""
        return web.json_response({"ok": True})

    async def _leader(self, request: web.Request) -> web.Response:  # noqa: ARG002
        shot = self.port.snapshot()
        acts = acts_as_leader(shot)
        said = {"leads": acts, "node": shot.node, "leader": shot.view.leader or None}
        return web.json_response(said, status=200 if acts else 503)

    async def _state(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(document(self.port.snapshot()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._stream(request)
        if "after" in request.query:
            entries = self.events.after(_number(request.query["after"], "after"))
        else:
            entries = self.events.last(_number(request.query.get("last", str(EVENTS_MAX)), "last"))
        return web.json_response([entry._asdict() for entry in entries])

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: from where the reader left off, or from now on."""
        if len(self._streams) >= STREAMS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{STREAMS_MAX} readers have the stream already")
        said = request.headers.get("Last-Event-ID") or request.query.get("after")
        seen = _number(said, "Last-Event-ID") if said is not None else self.events.newest
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        news = asyncio.Event()
        self._streams.add(news)
        self.events.wakers.add(news.set)
        try:
            await answer.prepare(request)
            await self._say(answer, b": the events of this node\n\n")
            while not self._ending:
                news.clear()
                entries = self.events.after(seen)
                if entries:
                    seen = entries[-1].number
                    await self._say(answer, b"".join(map(_event, entries)))
                    continue
                try:
                    await asyncio.wait_for(news.wait(), STREAM_BEAT_S)
                except TimeoutError:
                    await self._say(answer, b": quiet\n\n")
        except (ConnectionError, TimeoutError):
            pass  # the reader has left, or does not read
        finally:
            self._streams.discard(news)
            self.events.wakers.discard(news.set)
        return answer

    @staticmethod
    async def _say(answer: web.StreamResponse, data: bytes) -> None:
        await asyncio.wait_for(answer.write(data), READ_S)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _order(self, request: web.Request) -> web.Response:
        body = _object(await asyncio.wait_for(request.read(), READ_S))
        name = request.path.rpartition("/")[2]
        before = self.events.newest
        self.port.order(order_of(name, body, self.port.snapshot()))
        for entry in self.events.after(before):
            if entry.code == Code.INIT_REFUSED:
                raise Refused(entry.text)
        return web.json_response(document(self.port.snapshot()))

    async def _links(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"node": self.port.snapshot().node, "links": self.port.links()})

    async def _cut(self, request: web.Request) -> web.Response:
        cut = cut_of(_object(await asyncio.wait_for(request.read(), READ_S)), self.port.snapshot())
        self.port.cut(cut.node, cut.way)
        return await self._links(request)

    # --- connections that ask nothing ---------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(READ_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """aiohttp waits for a first request for ever: whoever was idle at two looks is hung up on."""
        server = self._runner.server if self._runner is not None else None
        waiting = {each for each in server.connections if each not in self._busy} if server is not None else set()
        for each in waiting & self._idle:
            each.force_close()
        self._idle = waiting
        self._sweep_later()


def _host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": sentence}, status=status, headers=headers)


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise UsageError(f"{name} = {text[:40]}: a whole number, from 0")
    return int(text)


def _object(data: bytes) -> dict[str, Any]:
    if not data:
        return {}
    body: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(data)
    if not isinstance(body, dict):
        raise UsageError("the body is no JSON object")
    return body


def _event(entry: Entry) -> bytes:
    said = json.dumps(entry._asdict(), ensure_ascii=False)
    return f"id: {entry.number}\nevent: {entry.code}\ndata: {said}\n\n".encode()
