"""The lab's API: like the agent's, on loopback, with a key. It shows all nodes, and does to them what it is told.

It runs in a thread of its own, so that an order that takes its time (a node that ends in order) holds up no reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from primacy.control import ORDER_HEADER
from primacy.control.eventlog import EVENTS_MAX, EventLog
from primacy.control.loopback import LoopbackServer, body_of, number_of, sent_event, wants_stream
from primacy.control.members import only
from primacy.errors import UsageError
from primacy.lab.cluster import Lab
from primacy.lab.network import link_text, shape_text
from primacy.lab.tail import Tail, merged

FRESH_S = 0.05
"""A look at all nodes is shared by all who ask within this time."""
FOLLOW_S = 0.2
"""How often the nodes' events are read."""

WHO_CHARS_MAX = 60
"""Of the header that every order has: who asked, if that is said there."""

FOR_MS_MAX = 3_600_000
"""How long a fault may last that ends by itself."""

Act = Callable[[Lab], None]


class LabOrder(NamedTuple):
    """Something to be done to the lab."""

    act: Act
    text: str
    """Its event."""
    node: str = ""
    of: str = ""
    """What it is done to: a node, the links or the store. The next order for it ends what was to end by itself."""
    for_ms: int = 0
    ending: Act | None = None
    """Done after `for_ms`, whatever became of the one who asked; None: it lasts."""
    ending_text: str = ""


class Port(Protocol):
    """What the API needs of the supervisor."""

    def document(self) -> dict[str, Any]:
        """`GET /v1/lab`. Takes milliseconds, and is asked for from any thread."""
        ...

    def submit(self, order: LabOrder) -> Future[None]:
        """For the thread that the lab belongs to."""
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
        router.add_post("/v1/lab/store", self._store)
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
        ends = ENDINGS.get(action, "")
        only(body, *([option] if option else []), *(["for_ms"] if ends else []))
        extra = body.get(option, False) if option else False
        if not isinstance(extra, bool):
            raise UsageError(f"{option}: true or false")
        more = {option: True} if extra else {}
        text = f"the lab {what} node {node[:40]}{f' ({option})' if extra else ''}"
        order = LabOrder(lambda lab: getattr(lab, action.replace("-", "_"))(node, **more), text, node, f"node {node}")
        if (for_ms := _for_ms(body)) and ends:
            over = f"the lab {ACTIONS[ends][1]} node {node[:40]}, for the time of the fault is over"
            order = order._replace(for_ms=for_ms, ending=lambda lab: getattr(lab, ends)(node), ending_text=over)
        return await self._do(request, order)

    async def _links(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body, "node", "with", "cut", "for_ms")
        node, other, way = (_text(body, name) for name in ("node", "with", "cut"))
        text = link_text(node, other, way)
        return await self._do(request, _of_links(lambda lab: lab.cut(node, other, way), text, body, node))

    async def _partition(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body, "shape", "islands", "for_ms")
        if ("shape" in body) == ("islands" in body):
            raise UsageError('say either {"shape": "leader-alone"} or {"islands": [["a"], ["b", "c"]]}')
        if "shape" in body:
            shape = _text(body, "shape")
            text = f"the lab divides the network: {shape_text(shape)}"
            return await self._do(request, _of_links(lambda lab: lab.partition(shape), text, body))
        islands = _islands(body["islands"])
        shown = " | ".join(" ".join(island) for island in islands)
        text = f"the lab divides the network: {shown}"
        return await self._do(request, _of_links(lambda lab: lab.partition(islands=islands), text, body))

    async def _heal(self, request: web.Request) -> web.Response:
        only(await body_of(request))
        return await self._do(request, LabOrder(lambda lab: lab.heal(), MENDED, of=LINKS))

    async def _store(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        only(body, "away", "for_ms")
        away = body.get("away")
        if not isinstance(away, bool):
            raise UsageError("away: true or false")
        if not away:
            return await self._do(request, LabOrder(lambda lab: lab.give_store(), STORE_BACK, of=STORE))
        order = LabOrder(lambda lab: lab.take_store(), "the lab keeps the store from all nodes", of=STORE)
        if for_ms := _for_ms(body):
            over = f"{STORE_BACK}, for the time of the fault is over"
            order = order._replace(for_ms=for_ms, ending=lambda lab: lab.give_store(), ending_text=over)
        return await self._do(request, order)

    async def _do(self, request: web.Request, order: LabOrder) -> web.Response:
        """The lab after it."""
        who = request.headers.get(ORDER_HEADER, "")[:WHO_CHARS_MAX]
        said = f", asked for by {who}" if who not in ("", "1") and who.isprintable() else ""
        await asyncio.wrap_future(self.port.submit(order._replace(text=order.text + said)))
        return web.json_response(await self._document(fresh=True))


ACTIONS: dict[str, tuple[str, str]] = {
    "start": ("", "starts"),
    "stop": ("", "stops"),
    "restart": ("", "restarts"),
    "kill": ("whole", "kills"),
    "freeze": ("guard", "freezes"),
    "thaw": ("", "thaws"),
    "kill-command": ("", "kills the command of"),
}
"""`POST /v1/lab/NODE/NAME`: methods of the lab, the option that each has, and the word for its event."""


ENDINGS = {"stop": "start", "kill": "start", "freeze": "thaw"}
"""With `for_ms`: what ends the fault, however the one who asked for it ends."""
LINKS, STORE = "links", "store"
MENDED = "the lab mends all links"
STORE_BACK = "the lab gives the store back"


def _of_links(act: Act, text: str, body: dict[str, Any], node: str = "") -> LabOrder:
    order = LabOrder(act, text, node, LINKS)
    if for_ms := _for_ms(body):
        over = f"{MENDED}, for the time of the fault is over"
        order = order._replace(for_ms=for_ms, ending=lambda lab: lab.heal(), ending_text=over)
    return order


def _for_ms(body: dict[str, Any]) -> int:
    """How long a fault lasts; 0: until somebody ends it."""
    value = body.get("for_ms", 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= FOR_MS_MAX:
        raise UsageError(f"for_ms = {str(value)[:40]}: a whole number from 0 to {FOR_MS_MAX}")
    return value


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
