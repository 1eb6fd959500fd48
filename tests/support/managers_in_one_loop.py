"""Several managers in one process and one loop: for tests about the wire and the list, where processes add nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from primacy.agent.cluster import ManagedCluster
from primacy.election.events import Event
from primacy.election.model import Role
from primacy.settings import of_mapping
from tests.support.canary_in_loop import canary_in_loop
from tests.support.ports import free_ports
from tests.support.waiting import wait_until_async

USER, PASSWORD = "my_user", "my_pass"
LIMIT_S = 120.0
"""For anything that is waited for: far more than twenty nodes need on a busy machine. Only a hang reaches it."""
STEADY = {"profile": "lan"}
"""In a quicker one, a leader that stood still for a quarter of a second has overslept, and another one may lead."""


def mapping(node: str, port: int, join: Any = (), **more: Any) -> dict[str, Any]:
    """A file as Ghoti has it, with the times of a test."""
    manager: dict[str, Any] = {"type": "join_server", "addr": f"127.0.0.1:{port}"}
    if join:
        manager["join"] = [f"127.0.0.1:{each}" if isinstance(each, int) else each for each in join]
    manager |= more.pop("manager", {})
    cluster = {"node": node, "user": USER, "pass": PASSWORD, "manager": manager, **more.pop("cluster", {})}
    election = {"profile": "lan", **more.pop("election", {})}
    return {"cluster": cluster, "election": election, **more}


class Nodes:
    """Managers of one cluster, by name; all end with the test."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.up: dict[str, ManagedCluster] = {}
        self.events: list[tuple[str, Event]] = []
        self.said: list[str] = []
        self.kept: dict[str, Any] = {}

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.kill() for node in self.up.values()))
        await asyncio.sleep(0.02)

    def port(self, name: str) -> int:
        if name not in self.ports:
            self.ports[name] = free_ports(1)[0]
        return self.ports[name]

    def made(self, name: str, join: Any = (), **more: Any) -> ManagedCluster:
        options = {key: more.pop(key) for key in ("led", "remembered") if key in more}
        targets = [self.port(each) if each in self.ports else each for each in join]
        settings = of_mapping(mapping(name, self.port(name), targets, **more))

        def note(events: Any) -> None:
            self.events += [(name, event) for event in events]

        node = ManagedCluster(
            settings,
            complain=self.said.append,
            listener=note,
            keep=lambda kept: self.kept.__setitem__(name, kept),
            **options,
        )
        self.up[name] = node
        return node

    async def start(self, name: str, join: Any = (), **more: Any) -> ManagedCluster:
        node = self.made(name, join, **more)
        await node.start()
        return node

    async def kill(self, name: str) -> None:
        await self.up.pop(name).kill()

    def cut(self, left: str, right: str, way: str = "both") -> None:
        """Both ends drop what goes between them."""
        for a in left.split():
            for b in right.split():
                for one, other in ((a, b), (b, a)):
                    if one in self.up:
                        self.up[one].manager.links.cut(other, way)

    def heal(self) -> None:
        for node in self.up.values():
            node.manager.links.heal()

    def leaders(self, *names: str) -> list[str]:
        return [name for name in names or sorted(self.up) if self.up[name].view().role is Role.LEADER]

    def agreed(self, *names: str) -> str:
        """The one leader that these nodes, or all, agree on; empty if they do not."""
        chosen = names or tuple(sorted(self.up))
        beliefs = {self.up[name].leader() for name in chosen}
        leaders = self.leaders(*chosen)
        return leaders[0] if len(leaders) == 1 and beliefs == set(leaders) else ""

    async def until(self, holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        return await wait_until_async(holds, what, limit_s, told=self.story)

    async def leads(self, name: str, *names: str) -> None:
        await self.until(lambda: self.agreed(*names) == name, f"all follow {name}")

    def story(self) -> str:
        rows = {
            name: (str(node.view().role), node.leader(), sorted(node.manager.member_list.peers))
            for name, node in self.up.items()
        }
        return f"{rows}; {[(name, str(event.code)) for name, event in self.events][-40:]}; {self.said[-5:]}"


def lived(scene: Callable[[Nodes], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with Nodes() as nodes, canary_in_loop():
            await scene(nodes)

    asyncio.run(whole())


async def three(nodes: Nodes, **more: Any) -> None:
    await nodes.start("a", **more)
    await nodes.leads("a")
    await nodes.start("b", ["a"], **more)
    await nodes.start("c", ["a"], **more)
    await knows(nodes, "abc")


async def knows(nodes: Nodes, names: Any) -> None:
    wanted = set(names)
    await nodes.until(
        lambda: all(set(node.manager.member_list.peers) == wanted for node in nodes.up.values()),
        f"all know {sorted(wanted)}",
    )


def quiet(counted: Callable[[], int]) -> Callable[[], bool]:
    """Has not grown for a second."""
    since_s, last = asyncio.get_running_loop().time(), -1

    def is_quiet() -> bool:
        nonlocal since_s, last
        now_s = asyncio.get_running_loop().time()
        if counted() != last:
            since_s, last = now_s, counted()
        return now_s - since_s > 1.0

    return is_quiet
