"""A feed for the dashboard's tests: speaks the documents of nodes, lab and chain, and obeys like them.

It invents a cluster of any size with any names, so that load and hostile names can be shown; what it cannot
show, a real lab does. It runs in a thread of its own, and so does the dashboard that reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

from aiohttp import web

from primacy.control import KEY_HEADER, history
from primacy.control.audit import asked_of, entry_of, row_of
from primacy.control.client import FoundNode
from primacy.control.when import instant
from primacy.dashboard.page_server import Dashboard, DashboardPlan
from primacy.dashboard.source import now_ms
from tests.support.dashboard_more import elections, more
from tests.support.ports import free_port

KEY = "5a" * 32
FILE = {
    "cluster": {"name": "billing", "secret_file": "********", "manager": {"type": "static"}},
    "election": {"name": "scheduler", "strategy": "raft", "profile": "fast"},
    "run": {"command": ["/usr/bin/scheduler"]},
}
HOLD_MS = 1_000


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, work: Coroutine[Any, Any, Any], within_s: float = 60) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return done.result(within_s)

    def close(self) -> None:
        self.do(_last_turns())  # in its own thread: a browser's loop may run in the one that we are called from
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


async def _last_turns() -> None:
    """What was accepted a moment ago, or is about to close, does so in the next turns of the loop, and not without."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)


HISTORY_ASKED = {"from": 0, "to": history.FOR_EVER_MS, "most": 6_000}


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Feed:
    """An invented cluster with a lab and a chain around it."""

    def __init__(self, names: list[str], *, lab: bool = False, refuse: str = "") -> None:
        self.names = names
        self.is_lab = lab
        self.leader = names[0]
        self.term = 7
        self.began_ms = wall_ms() - 252_000
        self.down: set[str] = set()
        self.frozen: set[str] = set()
        self.paused: set[str] = set()
        self.reads = 0
        self.late_s = 0.0
        """So long a question about the cluster waits before it is answered."""
        self.strategy = "raft"
        self.at_most_one = True
        self.growing: dict[str, int] = {}
        """Counters, and how much is added to each by every look at a node's document."""
        self.cut: set[tuple[str, str]] = set()
        self.parts: dict[str, str] = {}
        """By node: whom it follows in a divided network; itself, if it leads its part. Others follow the leader."""
        self.extra: dict[str, dict[str, Any]] = {}
        """By node: what its row says instead."""
        self.old: dict[str, tuple[int, dict[str, Any]]] = {}
        """By node: its row as it was heard last, and when; nothing newer has come of it."""
        self.alerts: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.asked_by: list[str] = []
        """Who gave each order, as its header says."""
        self.audited: list[dict[str, Any]] = []
        self.history_folder = ""
        """Where the first node keeps its last day; empty: it is of an earlier version."""
        self.history_until_ms = 0
        """Where that day ends."""
        self.refuse = refuse
        self.signatures: list[dict[str, Any]] = []
        self.doubles: list[str] = []
        self.loop = Loop()
        self.port = free_port()
        self._runner: web.AppRunner | None = None
        self._streams: set[asyncio.Event] = set()
        self._ending = False
        self.now_streaming = self.most_streaming = 0
        self.members: dict[str, Any] | None = None
        """Of raft: their version, and what a change waits for."""

    # --- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> Feed:
        taken = socket.create_server(("127.0.0.1", self.port))
        self._ending = False
        self.loop.do(self._start(taken))
        return self

    async def _start(self, taken: socket.socket) -> None:
        app = web.Application()
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_get("/v1/elections", self._elections)
        app.router.add_get("/v1/state", self._state)
        app.router.add_get("/v1/events", self._events)
        app.router.add_get("/v1/config", self._config)
        app.router.add_get("/v1/audit", self._audit)
        app.router.add_get("/v1/history", self._history)
        app.router.add_get("/v1/lab", self._lab)
        app.router.add_post("/{path:.*}", self._order)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.SockSite(self._runner, taken).start()

    def stop(self) -> None:
        async def end() -> None:
            self._ending = True
            for stream in self._streams:
                stream.set()
            if self._runner is not None:
                await self._runner.cleanup()
                self._runner = None

        self.loop.do(end())

    def close(self) -> None:
        self.stop()
        self.loop.close()

    # --- what happens -------------------------------------------------------------------------------------------------

    def tell(self, node: str, code: str, text: str, *, term: int | None = None, at_ms: int = 0, value: int = 0) -> None:
        number = len(self.events) + 1
        row = {"number": number, "at_unix_ms": at_ms or wall_ms(), "node": node, "code": code, "text": text}
        self.events.append({**row, "term": self.term if term is None else term, "value": value})

        def wake() -> None:
            for stream in self._streams:
                stream.set()

        self.loop.loop.call_soon_threadsafe(wake)

    def story(self) -> None:
        """A life so far: a first leader, its loss, and the one of now."""
        a, b, at = self.names[-1], self.leader, wall_ms() - 260_000
        for name in self.names:
            self.tell(name, "started", f"{name} starts", term=0, at_ms=at - 9_000)
        self.tell(a, "campaigns", f"{a} campaigns (term 6)", term=6, at_ms=at - 8_000)
        self.tell(a, "elected", f"{a} leads (term 6)", term=6, at_ms=at - 7_980)
        self.tell(a, "running", "the command runs: process 4120, run 1", term=6, at_ms=at - 7_950)
        for name in self.names:
            if name != a:
                self.tell(name, "follows", f"{name} follows {a} (term 6)", term=6, at_ms=at - 7_900)
        self.tell(a, "majority-lost", f"{a} lost its majority and stops its work (term 6)", term=6, at_ms=at)
        self.tell(a, "gone", "nothing of the command is left (run 1)", term=6, at_ms=at + 21)
        self.tell(b, "leader-silent", f"{b} no longer hears {a} (term 6)", term=6, at_ms=at + 1_130)
        self.tell(b, "campaigns", f"{b} campaigns (term 7)", at_ms=at + 1_136)
        self.tell(b, "elected", f"{b} leads (term 7)", at_ms=at + 1_149)
        self.tell(b, "running", "the command runs: process 4711, run 1", at_ms=at + 1_171)
        for name in self.names:
            if name != b:
                self.tell(name, "follows", f"{name} follows {b} (term 7)", at_ms=at + 1_260)

    def move_to(self, node: str) -> None:
        """Another leader, in order."""
        old, self.term, self.began_ms = self.leader, self.term + 1, wall_ms()
        self.tell(old, "step-down", f"{old} steps down (term {self.term - 1})", term=self.term - 1)
        self.leader = node
        self.tell(node, "elected", f"{node} leads (term {self.term})")
        self.tell(node, "running", "the command runs: process 4800, run 1")

    def sign(self, node: str, count: int = 1) -> None:
        for _ in range(count):
            number = len(self.signatures) + 1
            made = {"number": number, "height": number, "token": 1_794_700_800_000 + self.term, "run": 1, "node": node}
            self.signatures.append({**made, "signer": "ab" * 8, "made_us": 0, "gap_ms": 200, "at_unix_ms": wall_ms()})

    # --- documents ----------------------------------------------------------------------------------------------------

    def head(self) -> dict[str, Any]:
        said = {"cluster": "billing", "election": "scheduler", "strategy": self.strategy, "mode": "automatic"}
        return {**said, "at_most_one": self.at_most_one}

    def row(self, name: str, of: str) -> dict[str, Any]:
        if name in self.old:
            at_ms, row = self.old[name]
            return {**row, "told_ms": wall_ms() - at_ms, "heard_ms": wall_ms() - at_ms}
        follows = self.parts.get(name, self.leader)
        leads = name == follows and name not in self.down
        workload: dict[str, Any] = {
            "kind": "process",
            "state": "stopped",
            "since": None,
            "pid": None,
            "containment": "strong",
        }
        if leads:
            workload |= {"state": "running", "since": self.began_ms, "pid": 4711}
        gone = name in self.down or name in self.frozen
        row = {
            "node": name,
            "kind": "voter",
            "addr": f"10.0.0.{self.names.index(name) + 1}:7400",
            "heard_ms": 60_000 if gone else 0 if name == of else 41,
            "told_ms": 60_000 if gone else 0 if name == of else 380,
            "role": "leader" if leads else "paused" if name in self.paused else "follower",
            "term": self.term,
            "leader": follows if follows not in self.down else None,
            "token": 1_794_700_800_000 + self.term if leads and self.at_most_one else None,
            "hold_left_ms": HOLD_MS - 60 - wall_ms() % 100 if leads and self.at_most_one else 0,
            "waits_for": "an operator: primacy resume" if name in self.paused else None,
            "workload": workload,
            "health": "ok",
            "version": "0.1.0",
            "boot": "a1",
        }
        return {**row, **self.extra.get(name, {})}

    async def _cluster(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.late_s)
        there = [name for name in self.names if name not in self.down]
        of = there[0] if there else self.names[0]
        head = {"api": 1, **self.head()}
        rows = [self.row(name, of) for name in self.names]
        said = {**head, "seen_from": of, "at": instant(wall_ms()), "nodes": rows, "acting": [self.leader]}
        return web.json_response({**said, "alerts": self.alerts, "members": self.members})

    async def _elections(self, request: web.Request) -> web.Response:
        acts = self.leader not in self.down | self.frozen
        return web.json_response(elections(self.names, self.leader, acts=acts, two=bool(self.doubles)))

    async def _state(self, request: web.Request) -> web.Response:
        row = self.row(self.names[0], self.names[0])
        counters = {"datagrams_in": 18_204, "datagrams_out": 18_177, "replays_dropped": 3, "wrong_seal": 0}
        self.reads += 1
        counters.update({name: more * self.reads for name, more in self.growing.items()})
        return web.json_response({"api": 1, "version": "0.1.0", **row, "counters": counters})

    async def _config(self, request: web.Request) -> web.Response:
        nodes = {name: {"addr": f"10.0.0.{at + 1}:7400"} for at, name in enumerate(self.names) if name.isalnum()}
        cluster = {**FILE["cluster"], "manager": {"type": "static", "nodes": nodes}}  # type: ignore[dict-item]
        election = {**FILE["election"], "strategy": self.strategy}  # type: ignore[dict-item]
        settings = {**FILE, "cluster": cluster, "election": election}
        return web.json_response({"api": 1, "node": self.names[0], "hash": "c0ffee", "settings": settings})

    async def _lab(self, request: web.Request) -> web.Response:
        nodes = []
        for at, name in enumerate(self.names):
            process = "stopped" if name in self.down else "frozen" if name in self.frozen else "running"
            state = {**self.head(), **self.row(name, name)} if process == "running" else None
            nodes.append({"node": name, "process": process, "pid": 4_000 + at, "exit_code": None, "state": state})
        cuts = [list(way) for way in sorted(self.cut)]
        said = {"api": 1, "strategy": self.strategy, "profile": "fast", "nodes": nodes, "cuts": cuts}
        return web.json_response({**said, "chain": self.chain()})

    def chain(self) -> dict[str, Any]:
        counters = {"signatures": len(self.signatures), "double_signatures": len(self.doubles)}
        return {"api": 1, "counters": counters, "alerts": self.doubles, "signatures": self.signatures[-20:]}

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if "text/event-stream" not in request.headers.get("Accept", ""):
            after = int(request.query.get("after", "0"))
            return web.json_response([row for row in self.events[-5_000:] if row["number"] > after])
        seen = int(request.headers.get("Last-Event-ID", "0"))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        news = asyncio.Event()
        self._streams.add(news)
        self.now_streaming += 1
        self.most_streaming = max(self.most_streaming, self.now_streaming)
        try:
            while not self._ending:
                news.clear()
                rows = self.events[seen:]
                seen += len(rows)
                for row in rows:
                    await answer.write(
                        f"id: {row['number']}\nevent: {row['code']}\ndata: {json.dumps(row)}\n\n".encode()
                    )
                if not rows:
                    await news.wait()
        except ConnectionError:
            pass
        finally:
            self._streams.discard(news)
            self.now_streaming -= 1
        return answer

    async def _audit(self, request: web.Request) -> web.Response:
        return web.json_response({"api": 1, "requests": self.audited})

    async def _history(self, request: web.Request) -> web.Response:
        if not self.history_folder:
            return web.json_response({"error": "there is nothing at /v1/history"}, status=404)
        asked = {name: int(request.query.get(name, value)) for name, value in HISTORY_ASKED.items()}
        said = await asyncio.to_thread(history.kept, self.history_folder, *asked.values())
        return web.json_response({**said, "node": self.names[0]})

    # --- orders -------------------------------------------------------------------------------------------------------

    async def _order(self, request: web.Request) -> web.Response:
        if request.headers.get(KEY_HEADER) != KEY or "X-Primacy" not in request.headers:
            return web.json_response({"error": "an order needs the control key"}, status=403)
        body = await request.json()
        if self.refuse:
            return web.json_response({"error": self.refuse}, status=409)
        self.orders.append((request.path, body))
        who = request.headers["X-Primacy"]
        self.asked_by.append(who)
        if not request.path.startswith("/v1/lab/"):
            asked = asked_of(request.path.removeprefix("/v1/"), body)
            made = entry_of(wall_ms(), who, "127.0.0.1", (self.names[0], "scheduler"), asked, "done")
            self.audited.append(row_of(made))
        self._obey(request.path.removeprefix("/v1/"), body)
        return web.json_response({"ok": True})

    def _obey(self, what: str, body: dict[str, Any]) -> None:
        parts = what.split("/")
        if what == "pause":
            self.paused.add(body["node"])
        elif what == "resume":
            self.paused.discard(body["node"])
        elif what == "transfer":
            self.move_to(body["to"])
        elif what == "step-down":
            self.move_to(next(name for name in self.names if name != self.leader))
        elif what == "lab/heal":
            self.cut.clear()
        elif what == "lab/links":
            a, b = body["node"], body["with"]
            self.cut -= {(a, b), (b, a)}
            self.cut |= {(a, b)} if body["cut"] in ("out", "both") else set()
            self.cut |= {(b, a)} if body["cut"] in ("in", "both") else set()
        elif what == "lab/partition":
            pass
        elif len(parts) == 3:
            self._process(parts[1], parts[2])

    def _process(self, node: str, do: str) -> None:
        if do in ("stop", "kill"):
            self.down.add(node)
            if node == self.leader:
                self.move_to(next(name for name in self.names if name not in self.down))
        elif do == "start":
            self.down.discard(node)
        elif do == "freeze":
            self.frozen.add(node)
        elif do == "thaw":
            self.frozen.discard(node)


class Served:
    """A dashboard in a thread, at a port that it keeps over restarts."""

    def __init__(self, plan: DashboardPlan) -> None:
        self.plan = plan
        self.loop = Loop()
        self.port = free_port()
        self.complaints: list[str] = []
        self.board: Dashboard | None = None

    def start(self) -> Served:
        taken = socket.create_server(("127.0.0.1", self.port))

        async def begin() -> Dashboard:
            board = Dashboard(self.plan, self.complaints.append)
            await board.start(taken)
            return board

        self.board = self.loop.do(begin())
        return self

    def stop(self) -> None:
        if self.board is not None:
            self.loop.do(self.board.close())
            self.board = None

    def close(self) -> None:
        self.stop()
        self.loop.close()

    def code(self) -> str:
        assert self.board is not None
        return self.board.access.new_code(now_ms())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/dashboard"


@contextlib.contextmanager
def served_by_agent(feed: Feed) -> Iterator[Served]:
    """A dashboard of an agent with several elections."""
    address = FoundNode("127.0.0.1", feed.port, KEY)
    with served(feed, nodes=(), agent=lambda: address) as one:
        yield one


@contextlib.contextmanager
def served(feed: Feed, **changes: Any) -> Iterator[Served]:
    """A dashboard that reads this feed."""
    address = FoundNode("127.0.0.1", feed.port, KEY)
    nodes = () if feed.is_lab else (lambda: address,)
    plan = DashboardPlan(nodes, KEY, lab=address if feed.is_lab else None, address_of=lambda _: address)._replace(
        **{**more(feed.names), **changes}
    )
    one = Served(plan).start()
    try:
        yield one
    finally:
        one.close()
