"""The control API: HTTP/1.1 on loopback, by aiohttp, which is loaded when a node starts and not before.

Who may ask, bounds and streams are those of every server of ours (`loopback.py`); here stands what a node answers. It
shares the event loop with the election, so that nothing here may take long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from primacy.control import API, ORDER_HEADER, AgentPort, NodeStatus, Shown
from primacy.control.asker import with_asker
from primacy.control.audit import (
    DONE,
    NOT_RECORDED,
    PASSED,
    REFUSED,
    SHOWN_MAX,
    UNKNOWN,
    AuditTrail,
    asked_of,
    entry_of,
    last_of,
    row_of,
    who_of,
)
from primacy.control.config import config
from primacy.control.cut_request import cut_of
from primacy.control.disk_thread import DiskThread
from primacy.control.document import acts_as_leader, cluster_document, document, is_ready
from primacy.control.eventlog import EVENTS_MAX, Entry, EventLog
from primacy.control.history import FOR_EVER_MS, History
from primacy.control.history_scan import EVENTS_MAX as HISTORY_MAX
from primacy.control.holds import holds_of
from primacy.control.loopback import LoopbackServer, body_of, number_of, sent_event, wants_stream
from primacy.control.members import document as members
from primacy.control.requests import ORDERS, carry_out, target_of
from primacy.control.when import instant
from primacy.errors import Later, NotReached, PrimacyError, UsageError

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form that every reader of metrics knows."""
RECORDED_S = 2.0
"""How long an answer waits for its line in the audit trail: less than a command waits for the answer."""
HOLDS_S = 1.0
"""How often it is looked who holds, for the history, while something happens: after an event, for so many times."""
HOLDS_TIMES = 10
QUIET_ALONE_S = 5.0
QUIET_S = 15.0
"""How often if nothing does: a node that is idle must not work for its history. If an agent is killed then, the others
know its hold, for they look when they miss it; of a node that is alone only what it wrote last is known."""
HOLDS_MAX = 10
"""Of so many elections at a time: a hundred take turns, so that an agent with many does not work for its history."""
HISTORY_S = 8.0
"""How long an answer waits for the disk. A page gives up after 10 s, and would not hear why."""
HISTORY_READERS_MAX = 8
"""That wait at one time: a disk that hangs must not have all connections wait for it, for orders need one."""


class Asked(NamedTuple):
    """What a request is about: a node, and what happened in its election."""

    port: AgentPort
    events: EventLog


class Recorded:
    """What the audit trail says of a request that was taken."""

    passed_to = ""


class AnswersForNodes(LoopbackServer):
    """What every control API of a node answers, whichever election is asked about."""

    lab = False

    def __init__(self, key: str, host: str, complain: Callable[[str], None]) -> None:
        super().__init__(key, host, complain)
        self._disk = DiskThread("primacy-history")
        self._keeping: asyncio.Task[None] | None = None
        self._happened = asyncio.Event()
        self._readers = 0

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        await super().start(listening, tls)
        self._keeping = asyncio.get_running_loop().create_task(self._keep_history())
        self._keeping.add_done_callback(self._kept)

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        await super().close()
        self._disk.end()

    def _kept(self, task: asyncio.Task[None]) -> None:
        """A fault of this code must not end the node."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.complain(f"the history of the last day is not kept: {type(fault).__name__}: {fault}")

    @abstractmethod
    def all_asked(self) -> list[Asked]:
        """All elections here."""

    async def _keep_history(self) -> None:
        """Events wait to be written; holds are no events, and are looked at here: they are renewed all the time."""
        writing: Future[None] | None = None
        first, times, quiet_s = 0, HOLDS_TIMES, QUIET_ALONE_S
        while True:
            times = HOLDS_TIMES if await self._something_happens(times, quiet_s) else times - 1
            there, quiet_s = self.all_asked(), QUIET_S
            for port, events in [*there[first:], *there[:first]][:HOLDS_MAX]:
                if events.history.files is not None:
                    status = port.status()
                    events.history.hear_holds(holds_of(status))
                    quiet_s = quiet_s if status.others else QUIET_ALONE_S
            first = (first + HOLDS_MAX) % len(there) if len(there) > HOLDS_MAX else 0
            for each in there:
                each.events.history.wakes = self._happened.set
            if writing is not None and writing.done():
                writing.result()  # a fault of this code is told
                writing = None
            if writing is None and (due := [each.events.history for each in there if each.events.history.is_due()]):
                with contextlib.suppress(Later):  # no thread is to be had now
                    writing = self._disk.ask(partial(_write, due))

    async def _something_happens(self, times: int, quiet_s: float) -> bool:
        """Returns when it is time to look again: soon for so many times, and after what happens."""
        if times <= 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(quiet_s):
                    await self._happened.wait()
        if times > 0 or self._happened.is_set():
            await asyncio.sleep(HOLDS_S)  # what belongs together is written together
        happened = self._happened.is_set()
        self._happened.clear()
        return happened

    @abstractmethod
    def asked(self, request: web.Request) -> Asked:
        """Raises `UsageError` if no election here is meant."""

    def shown(self, request: web.Request) -> NodeStatus:
        return self.asked(request).port.status()

    @abstractmethod
    def statuses(self) -> list[NodeStatus]:
        """Of all elections here, for metrics."""

    def routes(self, router: web.UrlDispatcher) -> None:
        public_routes(router, self, self)
        router.add_get("/v1/state", self._state)
        router.add_get("/v1/cluster", self._cluster)
        router.add_get("/v1/members", self._members)
        router.add_get("/v1/config", self._config)
        router.add_get("/v1/events", self._events)
        router.add_get("/v1/history", self._history)
        router.add_get("/v1/audit", self._audit)
        if self.lab:
            router.add_get("/v1/links", self._links)
            router.add_post("/v1/links", self._cut)
        for name in ORDERS:
            router.add_post(f"/v1/{name}", self._order)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(document(self.asked(request).port.status()))

    async def _cluster(self, request: web.Request) -> web.Response:
        return web.json_response(cluster_document(self.asked(request).port.status()))

    async def _members(self, request: web.Request) -> web.Response:
        return web.json_response(members(self.asked(request).port.status()))

    async def _config(self, request: web.Request) -> web.Response:
        return web.json_response(config(self.asked(request).port.status()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        events = self.asked(request).events
        if wants_stream(request):
            return await self.stream(request, events, event_of, "the events of this node")
        if "after" in request.query:
            entries = events.after(number_of(request.query["after"], "after"))
        else:
            entries = events.last(number_of(request.query.get("last", str(EVENTS_MAX)), "last"))
        return web.json_response([row_of_event(entry) for entry in entries])

    async def _history(self, request: web.Request) -> web.Response:
        """A range of the last day, with how things stood before and after it; read and written down in a thread."""
        asked, query = self.asked(request), request.query
        from_ms, to_ms = number_of(query.get("from", "0"), "from"), number_of(query.get("to", str(FOR_EVER_MS)), "to")
        most = min(HISTORY_MAX, number_of(query.get("most", str(HISTORY_MAX)), "most"))
        if from_ms > to_ms:
            raise UsageError(f"from = {from_ms}: it is after to = {to_ms}")
        node, log = asked.port.status().node, asked.events
        beside = () if log.history.files is not None else tuple(log.entries)
        text = await self._read(partial(_history_text, log.history, from_ms, to_ms, most, node, beside))
        return web.Response(body=text, content_type="application/json", charset="utf-8")

    async def _read(self, read: Callable[[], bytes]) -> bytes:
        """One reader after another. Raises `Later`, or `NotReached` if the disk hangs."""
        if self._readers >= HISTORY_READERS_MAX:
            raise Later(f"{self._readers} others wait for the history of this node; ask again")
        self._readers += 1
        try:
            async with asyncio.timeout(HISTORY_S):
                return await asyncio.wrap_future(self._disk.ask(read))
        except TimeoutError:
            raise NotReached(f"the history was not read within {HISTORY_S:.0f} s: the disk is slow, or hangs") from None
        finally:
            self._readers -= 1

    # --- changing -----------------------------------------------------------------------------------------------------

    async def _order(self, request: web.Request) -> web.Response:
        body = with_asker(request, await body_of(request), self.shown(request))
        name = request.path.rpartition("/")[2]
        asked = self.asked(request)
        async with self.recorded(request, name, body, asked) as record:
            target = target_of(name, body, asked.port.status())
            if not target:
                await carry_out(name, body, asked.port, asked.events)
                return web.json_response(document(asked.port.status()))
            said = await asked.port.pass_on(target, name, body)
            record.passed_to = target
        passed = {"passed_to": target, "passed_waits_for": said or None}
        return web.json_response({**document(asked.port.status()), **passed})

    @contextlib.asynccontextmanager
    async def recorded(
        self, request: web.Request, name: str, body: dict[str, Any], *asked: Asked
    ) -> AsyncIterator[Recorded]:
        """What is asked inside is in the audit trail when it is answered, with who asked and what came of it.

        A disk that hangs holds up the answer for a moment only: what was done is done.
        """
        record, outcome, why = Recorded(), UNKNOWN, "it was interrupted"
        try:
            yield record
            outcome, why = (PASSED, f"to node {record.passed_to}") if record.passed_to else (DONE, "")
        except PrimacyError as error:
            outcome, why = REFUSED, str(error)
            raise
        finally:
            if name not in NOT_RECORDED:
                who, origin = who_of(request.headers.get(ORDER_HEADER, "")), request.remote or ""
                statuses = [each.port.status() for each in asked]
                for each, status in zip(asked, statuses, strict=True):
                    where = (status.node, status.settings.election.name)
                    given = asked_of(name, body)
                    each.events.audit.add(entry_of(statuses[0].wall_ms, who, origin, where, given, outcome, why))
                trails = [each.events.audit for each in asked]
                written = asyncio.get_running_loop().run_in_executor(None, _flush, trails)
                written.add_done_callback(self._written)
                await asyncio.wait({written}, timeout=RECORDED_S)

    def _written(self, written: asyncio.Future[None]) -> None:
        """A fault of this code must not end the node; nor may it wait until somebody misses the answer."""
        if not written.cancelled() and (fault := written.exception()) is not None:
            self.complain(f"the audit trail is not kept: {type(fault).__name__}: {fault}")

    async def _audit(self, request: web.Request) -> web.Response:
        """Oldest first."""
        count = min(SHOWN_MAX, number_of(request.query.get("last", "100"), "last"))
        trails = [asked.events.audit for asked in self.audited(request)]
        found = await asyncio.to_thread(last_of, trails, count)
        return web.json_response({"api": API, "requests": [row_of(entry) for entry in found]})

    def audited(self, request: web.Request) -> list[Asked]:
        """Whose audit trails are asked for."""
        return [self.asked(request)]

    async def _links(self, request: web.Request) -> web.Response:
        port = self.asked(request).port
        return web.json_response({"node": port.status().node, "links": port.links()})

    async def _cut(self, request: web.Request) -> web.Response:
        asked, body = self.asked(request), await body_of(request)
        async with self.recorded(request, "links", body, asked):
            cut = cut_of(body, asked.port.status())
            asked.port.cut(cut.node, cut.way)
        return await self._links(request)


class ControlServer(AnswersForNodes):
    """Serves one node on a socket that listens already."""

    def __init__(self, port: AgentPort, events: EventLog, key: str, host: str) -> None:
        super().__init__(key, host, port.complain)
        self.port = port
        self.events = events
        self.lab = port.status().settings.control.lab

    def asked(self, request: web.Request) -> Asked:
        _refuse_other(request, self.port.status())
        return Asked(self.port, self.events)

    def all_asked(self) -> list[Asked]:
        return [Asked(self.port, self.events)]

    def statuses(self) -> list[NodeStatus]:
        return [self.port.status()]


def _flush(trails: list[AuditTrail]) -> None:
    for trail in trails:
        trail.flush()


def _write(histories: list[History]) -> None:
    for history in histories:
        history.write()


def _history_text(history: History, from_ms: int, to_ms: int, most: int, node: str, beside: tuple[Entry, ...]) -> bytes:
    return json.dumps(history.read(from_ms, to_ms, most, node, beside), separators=(",", ":")).encode()


def _refuse_other(request: web.Request, status: NodeStatus) -> None:
    """A node with one election is not asked about another one."""
    named, own = request.query.get("election"), status.settings.election.name
    if named is not None and named != own:
        raise UsageError(f"election = {named[:80]}: the node here is of election {own}")


class Shows(Protocol):
    """Whoever has something to show to anybody."""

    def shown(self, request: web.Request) -> NodeStatus:
        """Of the election that is asked about."""
        ...

    def statuses(self) -> list[NodeStatus]:
        """Of all elections here, for metrics."""
        ...


class OneShown:
    """A node with one election."""

    def __init__(self, port: Shown) -> None:
        self.port = port

    def shown(self, request: web.Request) -> NodeStatus:
        status = self.port.status()
        _refuse_other(request, status)
        return status

    def statuses(self) -> list[NodeStatus]:
        return [self.port.status()]


class PublicServer(LoopbackServer):
    """What anybody may read, anywhere: who leads, that the node answers, and how it is. No orders, no key, no names."""

    def __init__(self, port: Shown, shows: Shows | None = None) -> None:
        """`shows`: of several elections; None: of the one that the port shows."""
        super().__init__("", "", port.complain)
        self.shows = shows or OneShown(port)

    def routes(self, router: web.UrlDispatcher) -> None:
        public_routes(router, self, self.shows)

    def _check(self, request: web.Request) -> None:
        """Nothing here can be changed, and nothing here is secret."""


def public_routes(router: web.UrlDispatcher, server: LoopbackServer, shows: Shows) -> None:
    """The paths that load balancers, monitors and Kubernetes ask."""

    async def leader(request: web.Request) -> web.Response:
        status = shows.shown(request)
        acts = acts_as_leader(status)
        said = {"leads": acts, "node": status.node, "leader": status.view.leader or None}
        return web.json_response(said, status=200 if acts else 503)

    async def ready(request: web.Request) -> web.Response:  # noqa: ARG001
        are_ready = all(map(is_ready, shows.statuses()))
        return web.json_response({"ready": are_ready}, status=200 if are_ready else 503)

    async def metrics(request: web.Request) -> web.Response:  # noqa: ARG001
        exposition = await asyncio.to_thread(_load_exposition)
        return web.Response(body=exposition(shows.statuses()), headers={"Content-Type": METRICS_TYPE})

    router.add_get("/healthz", server.healthz)
    router.add_get("/readyz", ready)
    router.add_get("/leader", leader)
    router.add_route("OPTIONS", "/leader", leader)  # what HAProxy asks if it is told no other method
    router.add_get("/metrics", metrics)


def _load_exposition() -> Callable[[list[NodeStatus]], bytes]:
    from primacy.control.metrics import exposition  # noqa: PLC0415

    return exposition


def row_of_event(entry: Entry) -> dict[str, Any]:
    return {**entry._asdict(), "at": instant(entry.at_unix_ms)}


def event_of(entry: Entry) -> bytes:
    return sent_event(entry.number, entry.code, row_of_event(entry))
