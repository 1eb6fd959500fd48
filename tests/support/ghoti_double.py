"""A double of a real node of Ghoti, with all its manners, written from the facts about its wire.

It echoes every join, known or not, to every node but the new one, one after the other in random order and without a
limit; reads no body of an election and begins one every time; asks the nodes above one after the other; declares itself
before it tells anybody; never repeats an announcement; accepts any announcement, also its own id's or a stranger's;
looks at its leader on a ticker, and at nobody if the leader is not listed; checks no method; answers 200 to any path;
keeps nothing on a disk. `pace` shortens its 2 s and 3 s, so that a test need not last as long.

One of a `later` version (0.2 and 0.3) passes on only joins that are news, and answers 404 to a path that it does not
know. Its elections are the same.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

import aiohttp

from primacy.membership.http_server import ManagerServer
from primacy.membership.http_wire import Asked, Reply

HEARTBEAT_S = 2.0
LOOK_LIMIT_S = 2.0
ELECTION_LIMIT_S = 3.0
COORDINATOR_LIMIT_S = 2.0


class Double:
    """One node. `cut` holds the addresses that it cannot reach."""

    def __init__(
        self, node: str, port: int, user: str, password: str, pace: float = 1.0, *, later: bool = False
    ) -> None:
        self.node = node
        self.later = later
        self.port = port
        self.addr = f"127.0.0.1:{port}"
        self.pace = pace
        self.auth = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.leader = ""
        self.peers: dict[str, str] = {}
        self.up = False
        self.cut: set[str] = set()
        self.heard: Counter[str] = Counter()
        self.slow_s = 0.0
        """How long it takes to answer a look."""
        self.deaf = False
        """Hears nobody, as one that is cut off."""
        self.busy = 0
        """Looks and elections of its own that are under way: what comes of them is open yet."""
        self._dead = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: ManagerServer | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def leads(self) -> bool:
        return self.leader == self.node

    # --- start and end ---

    async def start(self, join: str = "") -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        if join:
            status, body = await self._call("POST", join, "/join", {"addr": self.addr, "id": self.node}, None)
            if status != 200:
                await self.kill()
                raise RuntimeError(f"join refused with {status}")
            answer = json.loads(body)
            self.peers |= {node: addr for node, addr in (answer["peers"] or {}).items() if node != self.node}
            self.leader = answer.get("leader", "")
        else:
            self.leader = self.node
        self._server = ManagerServer(self._answer, print)
        await self._server.open(socket.create_server(("127.0.0.1", self.port), backlog=512), None)
        self.up = True
        self._spawn(self._watch())

    async def kill(self) -> None:
        self.up, self._dead = False, True
        while tasks := tuple(self._tasks):  # one that was just ending a call by its limit may take this for that
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.1)
        if self._server is not None:
            await self._server.close()
        if self._session is not None:
            await self._session.close()
        await asyncio.sleep(0.01)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._dead:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what it answers ---

    async def _answer(self, request: Asked) -> Reply | None:
        if self.deaf:
            return None
        path = request.path
        self.heard[path] += 1
        if path == "/heartbeat":
            if self.slow_s:
                await asyncio.sleep(self.slow_s)
            return Reply(200 if self.up else 503)
        if path not in ("/join", "/remove", "/election", "/coordinator"):
            return Reply(404 if self.later else 200)
        if path == "/remove" and not self.leads:
            return Reply(400)
        if request.authorization != self.auth:
            return Reply(400)
        if path == "/election":
            self._spawn(self._elect())
            return Reply(200)
        body = _texts(request.body)
        if body is None:
            return Reply(400)
        if path == "/join":
            return self._joined(body)
        if "id" not in body:
            return Reply(400)
        if path == "/remove":
            self.peers.pop(body["id"], None)
        else:
            self.leader = body["id"]
        return Reply(200)

    def _joined(self, body: dict[str, str]) -> Reply:
        if len(body) != 2 or "addr" not in body or "id" not in body:
            return Reply(400)
        is_news = self.peers.get(body["id"]) != body["addr"]
        self.peers[body["id"]] = body["addr"]
        peers = {**self.peers, self.node: self.addr}
        said = json.dumps({"leader": self.leader, "peers": dict(sorted(peers.items()))}, separators=(",", ":"))
        if is_news or not self.later:
            self._spawn(self._tell_on(body["id"], body["addr"]))
        return Reply(200, f"{said}\n".encode())

    async def _tell_on(self, node: str, addr: str) -> None:
        others = [(name, at) for name, at in self.peers.items() if name not in (node, self.node)]
        random.shuffle(others)
        for _, at in others:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._call("POST", at, "/join", {"addr": addr, "id": node}, None)

    # --- what it does ---

    async def _watch(self) -> None:
        while not self._dead:
            await asyncio.sleep(HEARTBEAT_S * self.pace)
            at = self.peers.get(self.leader)
            if self.leads or not self.leader or at is None:
                continue
            with self._busy():
                await self._look(at)

    async def _look(self, at: str) -> None:
        try:
            status, _ = await self._call("GET", at, "/heartbeat", None, LOOK_LIMIT_S)
        except (aiohttp.ClientError, OSError, TimeoutError):
            status = 0
        if status != 200:
            await self._elect()

    async def _elect(self) -> None:
        with self._busy():
            await self._called()

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    async def _called(self) -> None:
        higher = [at for name, at in self.peers.items() if name.encode() > self.node.encode()]
        random.shuffle(higher)
        answered = False
        for at in higher:
            try:
                status, _ = await self._call("POST", at, "/election", f'{{"id":"{self.node}"}}', ELECTION_LIMIT_S)
                answered |= status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                continue
        if not answered:
            await self._declare()

    async def _declare(self) -> None:
        self.leader = self.node
        others = [at for name, at in self.peers.items() if name != self.node]
        random.shuffle(others)
        for at in others:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._call("POST", at, "/coordinator", f'{{"id":"{self.node}"}}', COORDINATOR_LIMIT_S)

    async def ask(self, method: str, at: str, path: str, body: Any = None) -> int:
        """For a test that asks in its name."""
        status, _ = await self._call(method, at, path, body, 30.0)
        return status

    async def _call(self, method: str, at: str, path: str, body: Any, limit_s: float | None) -> tuple[int, bytes]:
        assert self._session is not None
        limit = limit_s * self.pace if limit_s is not None else None
        if at in self.cut:
            await asyncio.sleep(limit if limit is not None else 3_600)
            raise TimeoutError
        data = body if isinstance(body, str) or body is None else json.dumps(body, separators=(",", ":"))
        headers = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}
        if path != "/heartbeat":
            headers |= {"Authorization": self.auth, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=limit, sock_connect=30)
        async with self._session.request(
            method, f"http://{at}{path}", data=data, headers=headers, timeout=timeout
        ) as answer:
            return answer.status, await answer.read()


def _texts(body: bytes) -> dict[str, str] | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(body.decode("utf-8", "replace").lstrip())
    except ValueError:
        return None
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str | None) for value in found.values()):
        return None
    return {key: value or "" for key, value in found.items()}
