"""Many elections on a server of few connections: an agent takes as many, whatever it holds, and all are released when
it is killed (G5, L4)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.events import Code
from tests.support.canary import Canary
from tests.support.many_agents import CLUSTER, AgentProcess, Agents
from tests.support.safety_checks import one_at_a_time, safe
from tests.support.servers import Postgres, fresh_of
from tests.support.store_harness import made_new
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=26)

ELECTIONS = 40
NAMES = [f"e{number:02}" for number in range(ELECTIONS)]
MOST = 6
"""Connections of two agents: one asks the store, one releases, of each; and a third while a broken one is replaced."""
STAMP = "every=10"
"""Forty commands of each agent share two processors."""
ALMOST = 0.9
"""So many are taken by a release at least. One whose take was not answered in time is found by a look."""
LOOK_S = 0.1
START_S = 120.0
HEARTBEAT_MS = 250


class Few(Postgres):
    """With fewer connections than elections."""

    CONNECTIONS = 20

    def command(self) -> list[str]:
        return [*super().command(), "-c", f"max_connections={self.CONNECTIONS}"]


class Connections:
    """How many the agents have, looked at again and again."""

    def __init__(self, server: Few) -> None:
        self.server = server
        self.most = 0
        self._over = threading.Event()

    def look(self) -> int:
        return int(self.server.admin("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'")[0][0])

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.most = max(self.most, self.look())

    def are_few(self) -> None:
        assert self.most <= MOST, f"{self.most} connections for {ELECTIONS} leases"

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def events(agent: AgentProcess, election: str) -> list[dict[str, Any]]:
    """What it wrote of itself. A last line may be on its way."""
    lines = (agent.state / CLUSTER / election / "events.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def by_release(agent: AgentProcess, election: str) -> bool:
    """It was elected because the lease was released, and did not wait for the hold."""
    wait_until(lambda: any(one.get("code") == Code.ELECTED for one in events(agent, election)), "its election")
    return any(one.get("code") == Code.RELEASE_APPLIED for one in events(agent, election))


def follows_all(agent: AgentProcess) -> bool:
    found = agent.rows()
    return len(found) == ELECTIONS and all(
        (row.get("role"), row.get("leader")) == ("follower", "a") for row in found.values()
    )


@pytest.fixture
def server() -> Iterator[Few]:
    made = fresh_of(Few)
    assert isinstance(made, Few)
    yield made
    made.remove()


@pytest.fixture
def agents(server: Few, tmp_path: Path) -> Iterator[Agents]:
    """None is started yet."""
    entry = {"store": {"url": made_new(server.url())}, "placement": {"spread": False}}
    made = Agents(tmp_path, dict.fromkeys(NAMES, entry), names="ab", ways=(STAMP,))
    try:
        yield made
    finally:
        made.end()


def test_G5_a_killed_agent_has_its_leases_released_over_few_connections(server: Few, agents: Agents) -> None:
    """A guard needs a processor before its dead-man; without one nobody releases, and the other waits for the hold."""
    connections = Connections(server)
    with connections.watched(), Canary(HEARTBEAT_MS) as canary:
        agents.start("a")
        before = agents.all_run(*NAMES, within_s=START_S)
        connections.are_few()
        agents.start("b")
        b = agents.agents["b"]
        wait_until(lambda: follows_all(b), "b to follow in all", START_S, 0.1, agents.told)
        agents.agents["a"].process.kill()
        after = agents.all_run(*NAMES, other="a", within_s=START_S)
        released = [name for name in NAMES if by_release(b, name)]
    for name in NAMES:
        one_at_a_time(agents.stamps(name))
        safe(after[name].token > before[name].token, f"{name}: {after[name]} after {before[name]}")
    connections.are_few()
    canary.judge(len(released) >= ALMOST * ELECTIONS, f"{len(released)} of {ELECTIONS} leases were released")
