"""The dashboard's HTTP server: the page, its stream, its orders. It stands on the same ground as the control API.

Who may do what is decided in `access`; what is shown in `view`; what a click does in `orders`. Here requests meet them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import mimetypes
import socket
import ssl
from collections.abc import Callable
from importlib import resources
from typing import NamedTuple

from aiohttp import web

from primacy.control.client import FoundNode
from primacy.control.loopback import LOOPBACK, Handler, LoopbackServer, body_of
from primacy.dashboard import PATH
from primacy.dashboard.access import COOKIE, SESSION_MS, Access
from primacy.dashboard.clicks import Scene, steps_of
from primacy.dashboard.hub import WATCHERS_MAX, Hub
from primacy.dashboard.rows import text_of
from primacy.dashboard.source import AddressOf, More, Source, Where, now_ms, wall_ms
from primacy.dashboard.view import Model, view
from primacy.errors import NotReached, Refused, UsageError

TICK_S = 0.2
"""Frames per second at most: five. Between them the page moves by itself."""
IDLE_TICK_S = 1.0
SLOW_S = 4.0
"""A browser that does not take a frame within this is dropped."""
SEND_BYTES = 262_144
"""The kernel's buffer for one browser, so that a slow one is noticed."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def nobody(node: str) -> FoundNode | None:  # noqa: ARG001
    """Orders can be given to nobody."""
    return None


class DashboardPlan(NamedTuple):
    """All that a dashboard needs to know."""

    nodes: tuple[Where, ...] = ()
    """Where the nodes are that are read; one is enough. None in a lab, which reads them all."""
    key: str = ""
    """The control key, for orders; empty: read only."""
    lab: FoundNode | None = None
    """The lab's supervisor."""
    address_of: AddressOf = nobody
    """Where a node takes orders, by its name, and its key."""
    hosts: tuple[str, ...] = ()
    """Names under which it may be asked, besides those of loopback."""
    loopback: bool = True
    """It listens on loopback only: then reading is open."""
    secure: bool = False
    """It is reached by TLS: then the cookie says so."""
    more: More = dict
    """Nodes that come and go on this machine, beside `nodes`."""


class StaticFile(NamedTuple):
    data: bytes
    kind: str
    tag: str


class Dashboard(LoopbackServer):
    """One dashboard on a socket that listens already."""

    def __init__(self, plan: DashboardPlan, complain: Callable[[str], None]) -> None:
        super().__init__("", "", complain)
        self.hosts = {*LOOPBACK, *(host.lower() for host in plan.hosts)}
        self.plan = plan
        self.access = Access(plan.key, loopback=plan.loopback, lab=plan.lab is not None)
        self.source = Source(plan.nodes, plan.lab, plan.address_of, plan.more)
        self.hub = Hub(self.source.record)
        self.model: Model = {}
        self.cookie = COOKIE
        self.files = static_files()
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self.cookie = f"{COOKIE}_{listening.getsockname()[1]}"  # cookies know no ports, and two may be open at once
        await self.source.start()
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        await super().start(listening, tls)

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        for watcher in tuple(self.hub.watchers):
            watcher.set()
        await super().close()
        await self.source.close()

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self._to_page)
        router.add_get(PATH, self._page)
        router.add_get(f"{PATH}/", self._to_page)
        router.add_get(f"{PATH}/static/{{name:.+}}", self._static)
        router.add_get(f"{PATH}/me", self._me)
        router.add_get(f"{PATH}/stream", self._stream)
        router.add_get(f"{PATH}/node", self._node)
        router.add_post(f"{PATH}/login", self._login)
        router.add_post(f"{PATH}/logout", self._logout)
        router.add_post(f"{PATH}/order", self._order)
        router.add_get("/healthz", self.healthz)

    # --- who may ask --------------------------------------------------------------------------------------------------

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await super()._guarded(request, handler)
        if not answer.prepared:
            for name, value in SAFE_HEADERS.items():
                answer.headers[name] = value
            answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    def _check(self, request: web.Request) -> None:
        super()._check(request)  # Host, and the header on everything that changes
        origin = request.headers.get("Origin")
        if request.method not in ("GET", "HEAD") and origin is not None:
            own = f"{'https' if self.plan.secure else 'http'}://{request.headers.get('Host', '')}"
            if origin.lower() != own.lower():
                raise web.HTTPForbidden(text="an order must come from this page")

    def _must_read(self, request: web.Request) -> None:
        if not self.access.may_read(request.cookies.get(self.cookie, ""), now_ms()):
            raise web.HTTPUnauthorized(text="sign in first, with the control key or the link that the command printed")

    # --- the page -----------------------------------------------------------------------------------------------------

    async def _to_page(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(status=302, headers={"Location": PATH})

    async def _page(self, request: web.Request) -> web.Response:
        return self._sent(request, "index.html")

    async def _static(self, request: web.Request) -> web.Response:
        return self._sent(request, request.match_info["name"])

    def _sent(self, request: web.Request, name: str) -> web.Response:
        """From the files that were read at the start: no path of a request ever reaches the disk."""
        file = self.files.get(name)
        if file is None:
            raise web.HTTPNotFound
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.data, content_type=file.kind, charset="utf-8", headers=headers)

    async def _me(self, request: web.Request) -> web.Response:
        """What this browser may do."""
        name = request.cookies.get(self.cookie, "")
        return web.json_response(
            {
                "may_read": self.access.may_read(name, now_ms()),
                "may_change": self.access.may_change(name, now_ms()),
                "signed_in": self.access.is_in(name, now_ms()),
                "can_sign_in": bool(self.plan.key),
                "lab": self.plan.lab is not None,
            }
        )

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Makes a frame, five times a second while somebody watches, and seldom when nobody does."""
        while True:
            self._show()
            await asyncio.sleep(TICK_S)
            waited_s = TICK_S
            while not self.hub.watchers and waited_s < IDLE_TICK_S:
                await asyncio.sleep(TICK_S)
                waited_s += TICK_S

    def _show(self) -> None:
        known = self.source.known()
        self.model = view(known)
        self.hub.publish(self.model, self.source.take_news(), known.now_ms, wall_ms())

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._must_read(request)
        if len(self.hub.watchers) >= WATCHERS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{WATCHERS_MAX} browsers watch already")
        headers = {**SAFE_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        answer = web.StreamResponse(headers=headers)
        transport = request.transport
        if transport is not None and (raw := transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        news = asyncio.Event()
        self.hub.watchers.add(news)
        try:
            await self.source.attend(watched=True)
            await answer.prepare(request)
            self._show()  # right before the snapshot: what it holds must not come again as news
            seen = self.hub.seen_by(request.headers.get("Last-Event-ID", ""))
            if seen is None:
                data, seen = self.hub.snapshot(wall_ms()), self.hub.number
                await _say(answer, b"retry: 1000\n\n" + data)
            while not self._ending:
                news.clear()
                missed = self.hub.after(seen)
                if missed is None:
                    break  # fell behind: it comes back by itself
                seen = self.hub.number
                if missed:
                    await _say(answer, missed)
                    continue
                await news.wait()
        except TimeoutError:
            self.hub.dropped += 1
            if transport is not None:
                transport.abort()
        except ConnectionError:
            pass  # it left
        finally:
            self.hub.watchers.discard(news)
            await self.source.attend(watched=bool(self.hub.watchers))
        return answer

    # --- one node, raw ------------------------------------------------------------------------------------------------

    async def _node(self, request: web.Request) -> web.Response:
        """The state document of a node whose own API is read here, else what was last heard of it."""
        self._must_read(request)
        name = request.query.get("node", "")
        with contextlib.suppress(NotReached, Refused):
            document = await self.source.document(name[:80])
            if document is not None:
                return web.json_response({"from": "itself", "document": document})
        part = self.model.get(f"node:{name[:80]}")
        if part is None:
            raise UsageError(f"node = {name[:80]}: no node of this cluster")
        return web.json_response({"from": "others", "document": part})

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _login(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        key, code = text_of(body.get("key"), 200), text_of(body.get("code"), 200)
        name = self.access.enter(key=key, code=code, now_ms=now_ms())
        if name is None:
            raise web.HTTPForbidden(text="this is not the control key, or the link was used or is too old")
        answer = web.json_response({"ok": True})
        answer.set_cookie(
            self.cookie,
            name,
            path=PATH,
            max_age=SESSION_MS // 1_000,
            httponly=True,
            samesite="Strict",
            secure=self.plan.secure,
        )
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        self.access.leave(request.cookies.get(self.cookie, ""))
        answer = web.json_response({"ok": True})
        answer.del_cookie(self.cookie, path=PATH, httponly=True, samesite="Strict")
        return answer

    async def _order(self, request: web.Request) -> web.Response:
        if not self.access.may_change(request.cookies.get(self.cookie, ""), now_ms()):
            raise web.HTTPForbidden(text="sign in first: changing needs the control key")
        done = steps_of(await body_of(request), self._scene())
        for call in done.calls:
            if call.where == "lab":
                await self.source.order_lab(call.path, dict(call.body))
            else:
                await self.source.order_node(call.node, call.path, dict(call.body))
        return web.json_response({"ok": True, "said": done.said})

    def _scene(self) -> Scene:
        nodes = [self.model[f"node:{name}"] for name in self.model.get("order", [])]
        job = self.model.get("job", {})
        return Scene(
            names=tuple(each["node"] for each in nodes),
            leader=job.get("node") or "",
            lab=self.plan.lab is not None,
            down=tuple(each["node"] for each in nodes if each["there"] == "stopped"),
            frozen=tuple(each["node"] for each in nodes if each["there"] == "frozen"),
        )


def static_files() -> dict[str, StaticFile]:
    """All files of the page by name, read once."""
    found: dict[str, StaticFile] = {}
    home = resources.files("primacy.dashboard") / "static"
    for folder, prefix in ((home, ""), (home / "pages", "pages/")):
        for file in folder.iterdir():
            if not file.is_file():
                continue
            data = file.read_bytes()
            kind = "text/javascript" if file.name.endswith(".js") else mimetypes.guess_type(file.name)[0]
            tag = f'"{hashlib.blake2b(data, digest_size=8).hexdigest()}"'
            found[f"{prefix}{file.name}"] = StaticFile(data, kind or "application/octet-stream", tag)
    return found


async def _say(answer: web.StreamResponse, data: bytes) -> None:
    await asyncio.wait_for(answer.write(data), SLOW_S)
