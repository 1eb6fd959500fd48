"""A node as its control API knows it: what it shows, an agent that remembers what it was told, and a server for it."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import aiohttp.web
import pytest

from primacy.control import KEY_HEADER, ORDER_HEADER, Heard, NodeStatus
from primacy.control.control_server import ControlServer
from primacy.control.eventlog import EventLog
from primacy.control.summary import Summary
from primacy.election.events import Code
from primacy.election.inputs import Input
from primacy.election.model import Role, View
from primacy.node.folder import Folder
from primacy.settings import of_mapping

KEY = "k" * 64
MAY = {KEY_HEADER: KEY, ORDER_HEADER: "1"}
VIEW = View(Role.LEADER, "a", 7, "a", 1_794_700_800_007, 2_410, ("a", "b"), "")
FOLLOWS = VIEW._replace(role=Role.FOLLOWER, leader="b", token=0, hold_left_ms=0)
RUNS = Summary("leader", 8, "b", 1_794_700_800_008, 900, "", "process", "running", 2_000, 5, "weak", "ok", "0", "", ())
NOW_MS = 60_000
LIMIT_S = 30.0
NODES = {"a": {"addr": "h:1"}, "b": {"addr": "h:2"}, "c": {"addr": "h:3"}, "w": {"addr": "h:4", "kind": "witness"}}
SETTINGS = of_mapping({"cluster": {"name": "billing", "secret_file": "s", "manager": {"nodes": NODES}}}, "a")


class Work(NamedTuple):
    kind: str = "process"
    state: str = "running"
    since_ms: int = 4_000
    pid: int = 4711
    containment: str = "strong"
    way: str = "ptrace"


def node_status(view: View = VIEW, work: Work = Work(), *, ending: bool = False) -> NodeStatus:  # noqa: B008
    return NodeStatus(SETTINGS, "a", view, work, {"b": 41}, {"sent": 3}, 5_000, 1_700_000_000_000, ending)


class FakeAgent:
    """The agent's port: shows what it is given, remembers what it is told."""

    def __init__(self, log: EventLog) -> None:
        self.shown = node_status()
        self.told: list[Input] = []
        self.said_at: list[str] = []
        self.complaints: list[str] = []
        self.log = log
        self.answers: Code | None = None
        self.value = 0
        self.breaks = False
        self.cuts: dict[str, str] = {}
        self.passed: list[tuple[str, str, dict[str, Any]]] = []
        self.pass_answer: Callable[[], str] = lambda: ""

    def status(self) -> NodeStatus:
        assert not self.breaks, "a planted bug"
        return self.shown

    async def order(self, given: Input, said_at: str = "") -> None:
        self.told.append(given)
        self.said_at.append(said_at)
        if self.answers is not None:
            self.log.add(1, "a", 7, self.answers, "a refuses to begin a cluster", self.value)

    def complain(self, sentence: str) -> None:
        self.complaints.append(sentence)

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        self.passed.append((to, name, body))
        return self.pass_answer()

    def links(self) -> dict[str, str]:
        return {name: self.cuts.get(name, "none") for name in ("b", "c", "w")}

    def cut(self, node: str, way: str) -> None:
        self.cuts = {**self.cuts, node: way} if node else {}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(str(tmp_path / "state"))
    yield made
    made.close()


class Served(NamedTuple):
    agent: FakeAgent
    log: EventLog
    url: str
    port: int
    http: aiohttp.ClientSession
    server: ControlServer

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.get(self.url + path, **more) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any = None, headers: dict[str, str] = MAY, **more: Any) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body, headers=headers, **more) as answer:
            return answer.status, await answer.json()


Play = Callable[[Served], Awaitable[None]]


@pytest.fixture
def serve(folder: Folder) -> Callable[..., None]:
    """Plays one act against a server."""

    async def whole(play: Play, lab: bool) -> None:
        log = EventLog(folder, lambda _: None)
        agent = FakeAgent(log)
        if lab:
            control = dataclasses.replace(SETTINGS.control, lab=True)
            agent.shown = agent.shown._replace(settings=dataclasses.replace(SETTINGS, control=control))
        made = ControlServer(agent, log, KEY, "127.0.0.1")
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        await made.start(listening)
        try:
            async with aiohttp.ClientSession() as http:
                await asyncio.wait_for(play(Served(agent, log, f"http://127.0.0.1:{port}", port, http, made)), LIMIT_S)
        finally:
            await made.close()
            log.close()
            listening.close()

    return lambda play, lab=False: asyncio.run(whole(play, lab))


def seen(*others: tuple[str, Summary, int], view: Any = FOLLOWS, work: Any = None, **more: Any) -> NodeStatus:
    """What node a knows: of each other node a summary, and how old it is."""
    heard = {name: Heard(summary, 9, NOW_MS - age_ms) for name, summary, age_ms in others}
    base = node_status(view, work or Work(state="stopped", pid=0))
    return base._replace(now_ms=NOW_MS, others=heard, **more)
