"""The control API: HTTP/1.1 on loopback, by aiohttp, which is loaded when a node starts and not before.

Who may ask, bounds and streams are those of every server of ours (`loopback.py`); here stands what a node answers. It
shares the event loop with the election, so that nothing here may take long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from primacy.control import AgentPort, NodeStatus, Shown
from primacy.control.cluster import cluster
from primacy.control.config import config
from primacy.control.cut_request import cut_of
from primacy.control.document import acts_as_leader, document
from primacy.control.eventlog import EVENTS_MAX, Entry, EventLog
from primacy.control.loopback import LoopbackServer, body_of, number_of, sent_event, wants_stream
from primacy.control.members import document as members
from primacy.control.requests import ORDERS, carry_out, target_of
from primacy.control.when import instant

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form that every reader of metrics knows."""


class ControlServer(LoopbackServer):
    """Serves one node on a socket that listens already."""

    def __init__(self, port: AgentPort, events: EventLog, key: str, host: str) -> None:
        super().__init__(key, host, port.complain)
        self.port = port
        self.events = events

    def routes(self, router: web.UrlDispatcher) -> None:
        public_routes(router, self, self.port)
        router.add_get("/v1/state", self._state)
        router.add_get("/v1/cluster", self._cluster)
        router.add_get("/v1/members", self._members)
        router.add_get("/v1/config", self._config)
        router.add_get("/v1/events", self._events)
        if self.port.status().settings.control.lab:
            router.add_get("/v1/links", self._links)
            router.add_post("/v1/links", self._cut)
        for name in ORDERS:
            router.add_post(f"/v1/{name}", self._order)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _state(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(document(self.port.status()))

    async def _cluster(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(cluster(self.port.status()))

    async def _members(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(members(self.port.status()))

    async def _config(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(config(self.port.status()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if wants_stream(request):
            return await self.stream(request, self.events, event_of, "the events of this node")
        if "after" in request.query:
            entries = self.events.after(number_of(request.query["after"], "after"))
        else:
            entries = self.events.last(number_of(request.query.get("last", str(EVENTS_MAX)), "last"))
        return web.json_response([row_of_event(entry) for entry in entries])

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _order(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        name = request.path.rpartition("/")[2]
        target = target_of(name, body, self.port.status())
        if not target:
            carry_out(name, body, self.port, self.events)
            return web.json_response(document(self.port.status()))
        said = await self.port.pass_on(target, name, body)
        passed = {"passed_to": target, "passed_waits_for": said or None}
        return web.json_response({**document(self.port.status()), **passed})

    async def _links(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"node": self.port.status().node, "links": self.port.links()})

    async def _cut(self, request: web.Request) -> web.Response:
        cut = cut_of(await body_of(request), self.port.status())
        self.port.cut(cut.node, cut.way)
        return await self._links(request)


class PublicServer(LoopbackServer):
    """What anybody may read, anywhere: who leads, that the node answers, and how it is. No orders, no key, no names."""

    def __init__(self, port: Shown) -> None:
        super().__init__("", "", port.complain)
        self.port = port

    def routes(self, router: web.UrlDispatcher) -> None:
        public_routes(router, self, self.port)

    def _check(self, request: web.Request) -> None:
        """Nothing here can be changed, and nothing here is secret."""


def public_routes(router: web.UrlDispatcher, server: LoopbackServer, port: Shown) -> None:
    """The three paths that load balancers and monitors ask."""

    async def leader(request: web.Request) -> web.Response:  # noqa: ARG001
        status = port.status()
        acts = acts_as_leader(status)
        said = {"leads": acts, "node": status.node, "leader": status.view.leader or None}
        return web.json_response(said, status=200 if acts else 503)

    async def metrics(request: web.Request) -> web.Response:  # noqa: ARG001
        exposition = await asyncio.to_thread(_load_exposition)
        return web.Response(body=exposition(port.status()), headers={"Content-Type": METRICS_TYPE})

    router.add_get("/healthz", server.healthz)
    router.add_get("/leader", leader)
    router.add_get("/metrics", metrics)


def _load_exposition() -> Callable[[NodeStatus], bytes]:
    from primacy.control.metrics import exposition  # noqa: PLC0415

    return exposition


def row_of_event(entry: Entry) -> dict[str, Any]:
    return {**entry._asdict(), "at": instant(entry.at_unix_ms)}


def event_of(entry: Entry) -> bytes:
    return sent_event(entry.number, entry.code, row_of_event(entry))
