"""The lab's API: like the agent's, on loopback, with a key. It shows all nodes, and does to them what it is told.

It runs in a thread of its own, so that an order that takes its time (a node that ends in order) holds up no reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from aiohttp import web

from primacy.control.eventlog import EVENTS_MAX, EventLog
from primacy.control.loopback import LoopbackServer, body_of, number_of, sent_event, wants_stream
from primacy.control.members import only
from primacy.errors import UsageError
from primacy.lab.cluster import Lab
from primacy.lab.tail import Tail, merged

FRESH_S = 0.1
"""A look at all nodes is shared by all who ask within this time."""
FOLLOW_S = 0.2
"""How often the nodes' events are read."""

Act = Callable[[Lab], None]


class Port(Protocol):
    """What the API needs of the supervisor."""

    def document(self) -> dict[str, Any]:
        """`GET /v1/lab`. Takes milliseconds, and is asked for from any thread."""
        ...

    def submit(self, act: Act, text: str, node: str) -> Future[None]:
        """An order, for the thread that the lab belongs to. `text` is its event."""
        ...

    def complain(self, sentence: str) -> None: ...


class LabServer(LoopbackServer):
    """Serves one lab."""

    def __init__(self, port: Port, tails: dict[str, Tail], events: EventLog, key: str, host: str) -> None:
        super().__init__(key, host, port.complain)
        self.port = port
        self.tails = tails
        self.events = events
        self._looked_s = float("-inf")
        self._look: asyncio.Future[dict[str, Any]] | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/healthz", self.healthz)
        router.add_get("/v1/lab", self._lab)
        router.add_get("/v1/events", self._events)
        router.add_post("/v1/lab/links", self._links)
        router.add_post("/v1/lab/partition", self._partition)
        router.add_post("/v1/lab/heal", self._heal)
        for action in ACTIONS:
            router.add_post(f"/v1/lab/{{node}}/{action}", self._act)

    async def follow(self) -> None:
        """The nodes' events into the one log, until cancelled."""
        while True:
            for row in await asyncio.to_thread(merged, self.tails):
                value = row.get("value", 0)
                self.events.add(row["at_unix_ms"], row["node"], row["term"], row["code"], row["text"], value)
            self.events.flush()
            await asyncio.sleep(FOLLOW_S)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _lab(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(await self._document())

    async def _document(self, *, fresh: bool = False) -> dict[str, Any]:
        now_s = time.monotonic()
        if self._look is None or fresh or (self._look.done() and now_s - self._looked_s > FRESH_S):
            self._looked_s = now_s
            self._look = asyncio.ensure_future(asyncio.to_thread(self.port.document))
        return await asyncio.shield(self._look)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if wants_stream(request):
            return await self.stream(
                request,
                self.events,
                lambda entry: sent_event(entry.number, entry.code, entry._asdict()),
                "the events of all nodes",
            )
        if "after" in request.query:
            entries = self.events.after(number_of(request.query["after"], "after"))
        else:
            entries = self.events.last(number_of(request.query.get("last", str(EVENTS_MAX)), "last"))
        return web.json_response([entry._asdict() for entry in entries])

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _act(self, request: web.Request) -> web.Response:
        """`POST /v1/lab/NODE/ACTION`."""
        node, action = request.match_info["node"], request.path.rpartition("/")[2]
        body = await body_of(request)
        option, what = ACTIONS[action]
        only(body, *([option] if option else []))
        extra = body.get(option, False) if option else False
        if not isinstance(extra, bool):
            raise UsageError(f"{option}: true or false")
        more = {option: True} if extra else {}
        text = f"the lab {what} node {node[:40]}{f' ({option})' if extra else ''}"
        return await self._do(lambda lab: getattr(lab, action)(node, **more), text, node)

    async def _links(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body, "node", "with", "cut")
        node, other, way = (_text(body, name) for name in ("node", "with", "cut"))
        text = f"the lab sets the link of {node} with {other}: cut {way}"
        return await self._do(lambda lab: lab.cut(node, other, way), text, node)

    async def _partition(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body, "shape", "islands")
        if len(body) != 1:
            raise UsageError('say either {"shape": "leader-alone"} or {"islands": [["a"], ["b", "c"]]}')
        if "shape" in body:
            shape = _text(body, "shape")
            return await self._do(lambda lab: lab.partition(shape), f"the lab divides the network: {shape}", "")
        islands = _islands(body["islands"])
        shown = " | ".join(" ".join(island) for island in islands)
        return await self._do(lambda lab: lab.partition(islands=islands), f"the lab divides the network: {shown}", "")

    async def _heal(self, request: web.Request) -> web.Response:
        only(await body_of(request))
        return await self._do(lambda lab: lab.heal(), "the lab mends all links", "")

    async def _do(self, act: Act, text: str, node: str) -> web.Response:
        """The lab after it."""
        await asyncio.wrap_future(self.port.submit(act, text, node))
        return web.json_response(await self._document(fresh=True))


ACTIONS: dict[str, tuple[str, str]] = {
    "start": ("", "starts"),
    "stop": ("", "stops"),
    "restart": ("", "restarts"),
    "kill": ("whole", "kills"),
    "freeze": ("guard", "freezes"),
    "thaw": ("", "thaws"),
}
"""`POST /v1/lab/NODE/NAME`: methods of the lab, the option that each has, and the word for its event."""


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} = {str(value)[:40]}: a word")
    return value[:80]


def _islands(said: Any) -> list[list[str]]:
    right = isinstance(said, list) and all(isinstance(island, list) for island in said)
    if not right or not all(isinstance(name, str) for island in said for name in island):
        raise UsageError('islands: a list of lists of names, [["a"], ["b", "c"]]')
    return [list(island) for island in said]


async def serve(server: LabServer, listening: Any, over: asyncio.Event, ready: Callable[[], None]) -> None:
    """Until `over`."""
    await server.start(listening)
    following = asyncio.create_task(server.follow())
    ready()
    await over.wait()
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    await server.close()
