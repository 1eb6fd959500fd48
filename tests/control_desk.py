"""A node as its control API knows it: what it shows, and an agent that remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.control import KEY_HEADER, ORDER_HEADER, Snapshot
from primacy.control.eventlog import EventLog
from primacy.election.events import Code
from primacy.election.inputs import Input
from primacy.election.model import Role, View
from primacy.settings import of_mapping

KEY = "k" * 64
MAY = {KEY_HEADER: KEY, ORDER_HEADER: "1"}
VIEW = View(Role.LEADER, "a", 7, "a", 1_794_700_800_007, 2_410, ("a", "b"), "")
FOLLOWS = VIEW._replace(role=Role.FOLLOWER, leader="b", token=0, hold_left_ms=0)
NODES = {"a": {"addr": "h:1"}, "b": {"addr": "h:2"}, "c": {"addr": "h:3"}, "w": {"addr": "h:4", "kind": "witness"}}
SETTINGS = of_mapping({"cluster": {"name": "billing", "secret_file": "s", "manager": {"nodes": NODES}}}, "a")


class Work(NamedTuple):
    kind: str = "process"
    state: str = "running"
    since_ms: int = 4_000
    pid: int = 4711
    containment: str = "strong"


def shot(view: View = VIEW, work: Work = Work(), *, ending: bool = False) -> Snapshot:  # noqa: B008
    return Snapshot(SETTINGS, "a", view, work, {"b": 41}, {"sent": 3}, 5_000, 1_700_000_000_000, ending)


class FakeAgent:
    """The agent's port: shows what it is given, remembers what it is told."""

    def __init__(self, log: EventLog) -> None:
        self.shown = shot()
        self.told: list[Input] = []
        self.complaints: list[str] = []
        self.log = log
        self.answers: Code | None = None
        self.breaks = False
        self.cuts: dict[str, str] = {}
        self.passed: list[tuple[str, str, dict[str, Any]]] = []
        self.pass_answer: Callable[[], str] = lambda: ""

    def snapshot(self) -> Snapshot:
        assert not self.breaks, "a planted bug"
        return self.shown

    def order(self, given: Input, said_at: str = "") -> None:
        self.told.append(given)
        if self.answers is not None:
            self.log.add(1, "a", 7, self.answers, "a refuses to begin a cluster")

    def complain(self, sentence: str) -> None:
        self.complaints.append(sentence)

    async def pass_on(self, to: str, name: str, body: dict[str, Any]) -> str:
        self.passed.append((to, name, body))
        return self.pass_answer()

    def links(self) -> dict[str, str]:
        return {name: self.cuts.get(name, "none") for name in ("b", "c", "w")}

    def cut(self, node: str, way: str) -> None:
        self.cuts = {**self.cuts, node: way} if node else {}
