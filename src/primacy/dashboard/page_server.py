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
import time
from collections.abc import Callable
from importlib import resources
from typing import NamedTuple

from aiohttp import web

from primacy.control.audit import DONE, NAMELESS, REFUSED, AuditTrail, asked_of, entry_of, row_of
from primacy.control.client import FoundNode
from primacy.control.history import FOR_EVER_MS
from primacy.control.loopback import LOOPBACK, Handler, LoopbackServer, body_of
from primacy.control.loopback import number_of as whole_number
from primacy.dashboard import PATH
from primacy.dashboard.access import (
    COOKIE,
    NO_PROXY,
    NOBODY,
    OPERATOR,
    SESSION_MS,
    VIEWER,
    Access,
    TrustedProxy,
    Who,
    user_of,
)
from primacy.dashboard.board import AgentBoard, Board, ElectionBoard, NoNodesBoard
from primacy.dashboard.cache import KEY_CHARS_MAX
from primacy.dashboard.cache_reader import CachePort, CacheReader
from primacy.dashboard.clicks import Call, steps_of
from primacy.dashboard.drills import Drills
from primacy.dashboard.hub import WATCHERS_MAX, Hub
from primacy.dashboard.known import Model
from primacy.dashboard.lease_reader import LeaseReader, StoreAt
from primacy.dashboard.rows import AUDITED_MAX, audit_row, number_of, object_of, text_of
from primacy.dashboard.slots_reader import SlotsPort, SlotsReader
from primacy.dashboard.source import ASKS, AddressOf, More, Source, Where, now_ms, wall_ms
from primacy.errors import NotReached, PrimacyError, Refused, UsageError
from primacy.timeline.page import page as whole_file

BOARDS_MAX = 16
"""Elections of an agent that are read at one time; the one that nobody has looked at for longest goes first."""
SLOW_S = 4.0
"""A browser that does not take a frame within this is dropped."""
SEND_BYTES = 262_144
"""The kernel's buffer for one browser, so that a slow one is noticed."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
EMBED = f"{PATH}/embed/status"
"""The strip alone: the only page that another site may show in a frame, if the settings name it."""
AUDIT_S = 2.0
"""How long a node may take to tell its audit trail."""
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
    proxy: TrustedProxy = NO_PROXY
    """Whose word counts on who asks."""
    frame_ancestors: tuple[str, ...] = ()
    """Sites that may show the strip."""
    agent: Where | None = None
    """Of an agent with several elections: where it answers. Then no nodes are named."""
    stores: tuple[StoreAt, ...] = ()
    """Whose leases are shown."""
    slots: SlotsPort | None = None
    """The slots of the node that leads."""
    cache: CachePort | None = None
    """The peers of a cache."""
    no_nodes: bool = False
    """No node is read: the leases are held by programs, the cache is used by them."""
    trail: AuditTrail | None = None
    """Where it is recorded what the page itself was asked; None: it is remembered here. What a node or a lab was asked
    stands there."""
    lab_folder: str = ""
    """Of the lab, for drills."""


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
        self.access = Access(plan.key, loopback=plan.loopback, lab=plan.lab is not None, proxy=plan.proxy)
        self.trail = plan.trail or AuditTrail(None, complain)
        self.source = Source(plan.nodes, plan.lab, plan.address_of, plan.more)
        self.leases = LeaseReader(plan.stores, complain)
        self.leases.is_watched = lambda: self.watching > 0
        self.cache = CacheReader(plan.cache, complain)
        self.cache.is_watched = lambda: self.watching > 0
        self.slots = SlotsReader(plan.slots, self._slots_counters)
        self.main = self._made(plan)
        self.boards: dict[str, ElectionBoard] = {}
        """Of an agent with several elections: those that somebody looks at, by name."""
        self._opening = asyncio.Lock()
        self.drills = Drills(plan.lab_folder if plan.lab is not None else "")
        self.cookie = COOKIE
        self.files = static_files()

    def _made(self, plan: DashboardPlan) -> Board:
        main: Board = ElectionBoard(self.source)
        if plan.agent is not None:
            main = AgentBoard(plan.agent, self.source)
            main.is_watched = lambda: self.watching > 0
        elif plan.no_nodes:
            main = NoNodesBoard()
        main.extras = self._extras
        return main

    def _extras(self) -> Model:
        slots = {"count": len(self.slots.declared)} if self.slots.declared else None
        parts = {"leases": self.leases.part(), "cache": self.cache.part(), "slots": slots}
        return {name: part for name, part in parts.items() if part is not None}

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self.cookie = f"{COOKIE}_{listening.getsockname()[1]}"  # cookies know no ports, and two may be open at once
        await self.leases.start()
        await self.cache.start()
        await self.main.start()
        await super().start(listening, tls)

    async def close(self) -> None:
        boards = (self.main, *self.boards.values())
        for board in boards:
            for watcher in tuple(board.hub.watchers):
                watcher.set()
        await self.drills.close()
        await super().close()
        for board in boards:
            await board.close()
        await self.leases.close()
        await self.cache.close()
        await self.slots.close()

    @property
    def hub(self) -> Hub:
        return self.main.hub

    @property
    def watching(self) -> int:
        return sum(len(board.hub.watchers) for board in (self.main, *self.boards.values()))

    # --- which election -----------------------------------------------------------------------------------------------

    async def _board(self, request: web.Request) -> Board:
        """What is asked about: of an agent with several elections, the one that is named, else all of them."""
        name = request.query.get("election", "")
        if not name or not isinstance(self.main, AgentBoard):
            return self.main
        async with self._opening:
            if name not in self.boards:
                await self._open(name, self.main)
            return self.boards[name]

    async def _open(self, name: str, main: AgentBoard) -> None:
        if name not in main.names:
            raise UsageError(f"election = {name[:80]}: the agent has no such election")
        idle = sorted((board.left_ms, each) for each, board in self.boards.items() if not board.hub.watchers)
        if len(self.boards) >= BOARDS_MAX:
            if not idle:
                raise web.HTTPServiceUnavailable(text=f"{BOARDS_MAX} elections are watched already")
            await self.boards.pop(idle[0][1]).close()

        def where() -> FoundNode | None:
            found = main.where()
            return found._replace(election=name) if found is not None else None

        board = ElectionBoard(Source((where,), None, lambda _: where()), main)
        board.extras = self._extras
        self.boards[name] = board
        await board.start()

    async def _one(self, request: web.Request) -> ElectionBoard:
        board = await self._board(request)
        if not isinstance(board, ElectionBoard):
            raise UsageError("election: which one? This agent has several")
        return board

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self._to_page)
        router.add_get(PATH, self._page)
        router.add_get(f"{PATH}/", self._to_page)
        router.add_get(f"{PATH}/static/{{name:.+}}", self._static)
        router.add_get("/embed/status", self._to_embed)
        router.add_get(EMBED, self._embed)
        router.add_get(f"{PATH}/audit", self._audit)
        router.add_get(f"{PATH}/me", self._me)
        router.add_get(f"{PATH}/stream", self._stream)
        router.add_get(f"{PATH}/node", self._node)
        router.add_get(f"{PATH}/timeline", self._timeline)
        router.add_get(f"{PATH}/incident", self._incident)
        router.add_get(f"{PATH}/slots", self._slots)
        router.add_get(f"{PATH}/cache/keys", self._cache_keys)
        router.add_post(f"{PATH}/cache", self._cache_order)
        router.add_post(f"{PATH}/login", self._login)
        router.add_post(f"{PATH}/logout", self._logout)
        router.add_post(f"{PATH}/order", self._order)
        router.add_get(f"{PATH}/drill", self._drill)
        router.add_get(f"{PATH}/drill/report", self._drill_report)
        router.add_post(f"{PATH}/drill", self._drill_begin)
        router.add_post(f"{PATH}/drill/stop", self._drill_stop)
        router.add_get("/healthz", self.healthz)

    # --- who may ask --------------------------------------------------------------------------------------------------

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await super()._guarded(request, handler)
        if not answer.prepared:
            for name, value in SAFE_HEADERS.items():
                answer.headers.setdefault(name, value)
            answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    def _check(self, request: web.Request) -> None:
        super()._check(request)  # Host, and the header on everything that changes
        origin = request.headers.get("Origin")
        if request.method not in ("GET", "HEAD") and origin is not None:
            schemes: tuple[str, ...] = ("https",) if self.plan.secure else ("http",)
            if self.plan.proxy.is_from(request.remote or ""):
                schemes = ("http", "https")  # TLS may end in front of us
            if origin.lower() not in [f"{scheme}://{request.headers.get('Host', '')}".lower() for scheme in schemes]:
                raise web.HTTPForbidden(text="an order must come from this page")

    def _who(self, request: web.Request) -> Who:
        """Who asks, by the session or by the header of a proxy that is trusted."""
        proxy, user = self.plan.proxy, None
        if proxy.is_from(request.remote or ""):
            user = user_of(request.headers.getall(proxy.header, []))
        return self.access.who(request.cookies.get(self.cookie, ""), now_ms(), user)

    def _must_read(self, request: web.Request) -> None:
        if self._who(request).role == NOBODY:
            raise web.HTTPUnauthorized(text="sign in first, with the control key or the link that the command printed")

    # --- the page -----------------------------------------------------------------------------------------------------

    async def _to_page(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(status=302, headers={"Location": PATH})

    async def _page(self, request: web.Request) -> web.Response:
        return self._sent(request, "index.html")

    async def _to_embed(self, request: web.Request) -> web.Response:
        """The session's cookie is seen below one path only."""
        query = f"?{request.query_string}" if request.query_string else ""
        return web.Response(status=302, headers={"Location": f"{EMBED}{query}"})

    async def _embed(self, request: web.Request) -> web.Response:
        """The strip alone, for a screen on the wall. Nothing can be changed there."""
        answer = self._sent(request, "embed.html")
        if self.plan.frame_ancestors:
            sites = " ".join(self.plan.frame_ancestors)
            answer.headers["Content-Security-Policy"] = CSP.replace(
                "frame-ancestors 'none'", f"frame-ancestors 'self' {sites}"
            )
            answer.headers["Cache-Control"] = "no-store"
        return answer

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
        name, who = request.cookies.get(self.cookie, ""), self._who(request)
        return web.json_response(
            {
                "may_read": who.role != NOBODY,
                "may_change": who.role == OPERATOR,
                "signed_in": self.access.is_in(name, now_ms()),
                "role": who.role,
                "user": who.named,
                "can_sign_in": bool(self.plan.key),
                "lab": self.plan.lab is not None,
            }
        )

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._must_read(request)
        board = await self._board(request)
        hub = board.hub
        if self.watching >= WATCHERS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{WATCHERS_MAX} browsers watch already")
        headers = {**SAFE_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        answer = web.StreamResponse(headers=headers)
        transport = request.transport
        if transport is not None and (raw := transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        news = asyncio.Event()
        hub.watchers.add(news)
        try:
            await board.attend()
            await answer.prepare(request)
            board.show()  # right before the snapshot: what it holds must not come again as news
            seen = hub.seen_by(request.headers.get("Last-Event-ID", ""))
            if seen is None:
                data, seen = hub.snapshot(wall_ms()), hub.number
                await _say(answer, b"retry: 1000\n\n" + data)
            while not self._ending:
                news.clear()
                missed = hub.after(seen)
                if missed is None:
                    break  # fell behind: it comes back by itself
                seen = hub.number
                if missed:
                    await _say(answer, missed)
                    continue
                await news.wait()
        except TimeoutError:
            hub.dropped += 1
            if transport is not None:
                transport.abort()
        except ConnectionError:
            pass  # it left
        finally:
            hub.watchers.discard(news)
            await board.attend()
        return answer

    # --- one node, raw ------------------------------------------------------------------------------------------------

    async def _node(self, request: web.Request) -> web.Response:
        """The state document of a node whose own API is read here, else what was last heard of it."""
        self._must_read(request)
        board, name = await self._one(request), request.query.get("node", "")
        with contextlib.suppress(NotReached, Refused):
            document = await board.source.document(name[:80])
            if document is not None:
                return web.json_response({"from": "itself", "document": document})
        part = board.model.get(f"node:{name[:80]}")
        if part is None:
            raise UsageError(f"node = {name[:80]}: no node of this cluster")
        return web.json_response({"from": "others", "document": part})

    # --- the timeline -------------------------------------------------------------------------------------------------

    async def _timeline(self, request: web.Request) -> web.Response:
        """All that is known here, or a range of what the nodes kept, in the schema of docs/timeline.md."""
        self._must_read(request)
        board, span = await self._one(request), range_of(request)
        text = board.timeline() if span is None else await board.past(*span)
        return web.Response(text=text, content_type="application/json")

    async def _incident(self, request: web.Request) -> web.Response:
        """The same as one file that opens from a disk."""
        self._must_read(request)
        span = range_of(request) or (0, FOR_EVER_MS)
        found = await (await self._one(request)).incident(*span)
        name = f"primacy-incident-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(text=whole_file(found), content_type="text/html", headers=headers)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _login(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        key, code = text_of(body.get("key"), 200), text_of(body.get("code"), 200)
        name = self.access.enter(key=key, code=code, now_ms=now_ms())
        if name is None:
            raise web.HTTPForbidden(text="this is not the control key, or the link was used or is too old")
        how = "with the control key" if key else "with the link that works once"
        await self._record(request, self._who(request).named or NAMELESS, f"sign in {how}", DONE)
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
        body = await body_of(request)
        given = asked_of(text_of(body.get("do"), 40) or "order", {key: body[key] for key in body if key != "do"})
        who = await self._may_change(request, given)
        board = await self._one(request)
        done = steps_of(body, board.scene())
        name = f"{who.name} on the dashboard" if who.name else ASKS
        for call in done.calls:
            if call.where == "lab":
                await self._order_lab(request, name, call, given)
            else:
                await board.source.order_node(call.node, call.path, dict(call.body), name)
        return web.json_response({"ok": True, "said": done.said})

    async def _may_change(self, request: web.Request, given: str) -> Who:
        """Raises for one who is no operator; a viewer who tries is recorded."""
        who = self._who(request)
        if who.role != OPERATOR:
            if who.role == VIEWER and who.named:
                await self._record(request, who.name, given, REFUSED, "a viewer changes nothing")
            why = f"{who.named} is a viewer here; " if who.named else "sign in first: "
            raise web.HTTPForbidden(text=f"{why}changing needs the control key")
        return who

    # --- the slots ----------------------------------------------------------------------------------------------------

    async def _slots(self, request: web.Request) -> web.Response:
        self._must_read(request)
        if not self.slots.declared:
            raise UsageError("there are no slots here")
        return web.json_response(await self.slots.page())

    async def _slots_counters(self) -> tuple[str, dict[str, int]]:
        """Of the node that leads, where its own API is read here. Raises `NotReached`."""
        job = self.main.model.get("job", {})
        node = text_of(job.get("node")) if job.get("level") == "ok" else ""
        if not node:
            raise NotReached("nobody is known to serve the slots")
        document = object_of(await self.source.document(node))
        if not document:
            raise NotReached(f"the counters of {node} are not read from here: its control API is on another machine")
        counters = object_of(document.get("counters"))
        return node, {str(name): number_of(count) for name, count in counters.items()}

    # --- the cache ----------------------------------------------------------------------------------------------------

    async def _cache_keys(self, request: web.Request) -> web.Response:
        self._must_read(request)
        if not self.cache.apis:
            raise UsageError("there is no cache here")
        return web.json_response(await self.cache.keys(request.query.get("prefix", "")[:KEY_CHARS_MAX]))

    async def _cache_order(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        do, key, prefix = body.get("do"), body.get("key"), body.get("prefix", False) is True
        if not self.cache.apis or do not in ("invalidate", "refresh") or not isinstance(key, str) or not key:
            raise UsageError('{"do": "invalidate" or "refresh", "key": "TEXT"}')
        given = asked_of(f"cache {do}", {"key": key, **({"prefix": True} if prefix else {})})
        who = await self._may_change(request, given)
        name = f"{who.name} on the dashboard" if who.name else ASKS
        try:
            said = await self.cache.change(do, key, prefix=prefix)
        except PrimacyError as error:
            await self._record(request, name, given, REFUSED, str(error))
            raise
        await self._record(request, name, given, DONE)
        return web.json_response({"ok": True, "said": said})

    async def _order_lab(self, request: web.Request, name: str, call: Call, given: str) -> None:
        """A lab has events, and no audit trail of its own."""
        try:
            await self.source.order_lab(call.path, dict(call.body), name)
        except PrimacyError as error:
            await self._record(request, name, given, REFUSED, str(error))
            raise
        await self._record(request, name, given, DONE)

    # --- the audit trail ----------------------------------------------------------------------------------------------

    async def _record(self, request: web.Request, who: str, asked: str, outcome: str, why: str = "") -> None:
        where = ("", request.query.get("election", "")[:80] or self.main.model.get("head", {}).get("election", ""))
        self.trail.add(entry_of(wall_ms(), who, request.remote or "", where, asked, outcome, why))
        await asyncio.to_thread(self.trail.flush)

    async def _audit(self, request: web.Request) -> web.Response:
        """What the nodes that are read here, and the page itself, were asked; newest first."""
        self._must_read(request)
        board = await self._board(request)
        told, missed = await board.audits(AUDIT_S)
        own = await asyncio.to_thread(self.trail.last, AUDITED_MAX)
        rows = [*told, *(audit_row(row_of(entry)) for entry in own)]
        rows = sorted(dict.fromkeys(rows), key=lambda row: row.at_unix_ms, reverse=True)[:AUDITED_MAX]
        return web.json_response({"requests": [row._asdict() for row in rows], "missed": sorted(missed)})

    # --- drills -------------------------------------------------------------------------------------------------------

    @property
    def _strategy(self) -> str:
        return self.source.lab.strategy if self.source.lab is not None else "raft"

    async def _drill(self, request: web.Request) -> web.Response:
        self._must_read(request)
        return web.json_response(self.drills.shown(self._strategy))

    async def _drill_begin(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        given = asked_of("drill", body)
        who = await self._may_change(request, given)
        await self.drills.begin(body, self._strategy)
        await self._record(request, who.name or ASKS, given, DONE)
        return web.json_response(self.drills.shown(self._strategy))

    async def _drill_stop(self, request: web.Request) -> web.Response:
        who = await self._may_change(request, "drill stop")
        await self.drills.stop()
        await self._record(request, who.name or ASKS, "drill stop", DONE)
        return web.json_response(self.drills.shown(self._strategy))

    async def _drill_report(self, request: web.Request) -> web.Response:
        """One file that opens from a disk."""
        self._must_read(request)
        name = f"primacy-drill-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(text=self.drills.file(), content_type="text/html", headers=headers)


def range_of(request: web.Request) -> tuple[int, int] | None:
    """From and to, in milliseconds since 1970; None: none is asked for. Raises `UsageError`."""
    query = request.query
    if "from" not in query and "to" not in query:
        return None
    from_ms, to_ms = whole_number(query.get("from", "0"), "from"), whole_number(query.get("to", str(FOR_EVER_MS)), "to")
    if from_ms > to_ms:
        raise UsageError(f"from = {from_ms}: it is after to = {to_ms}")
    return from_ms, to_ms


def static_files() -> dict[str, StaticFile]:
    """All files of the page by name, read once."""
    found: dict[str, StaticFile] = {}
    home, drawing = resources.files("primacy.dashboard") / "static", resources.files("primacy.timeline") / "static"
    for folder, prefix in ((home, ""), (home / "pages", "pages/"), (drawing, "timeline/")):
        for file in folder.iterdir():
            if not file.is_file():
                continue
            data = file.read_bytes()
            kind = "text/javascript" if file.name.endswith(".js") else mimetypes.guess_type(file.name)[0]
            tag = f'"{hashlib.blake2b(data, digest_size=8).hexdigest()}"'
            found[f"{prefix}{file.name}"] = StaticFile(data, kind or "application/octet-stream", tag)
    return found


async def _say(answer: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(SLOW_S):
        await answer.write(data)
