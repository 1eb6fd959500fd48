"""Clusters of our nodes and doubles of real ones, in one loop: what the scenarios of Ghoti are played with."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.canary_in_loop import canary_in_loop
from tests.support.ghoti_double import Double
from tests.support.managers_in_one_loop import LIMIT_S, PASSWORD, USER, Nodes


def played(scene: Callable[[Mixed], Awaitable[None]], pace: float = 0.15) -> None:
    """One scene in a loop of its own. Sockets of doubles that ended in the middle of a call are swept up quietly."""

    async def whole() -> None:
        async with Mixed(pace) as nodes, canary_in_loop():
            await scene(nodes)

    asyncio.run(whole())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Mixed(Nodes):
    """Ours by `start`, doubles by `double`. Names say who ranks where."""

    def __init__(self, pace: float = 0.15) -> None:
        super().__init__()
        self.pace = pace
        self.doubles: dict[str, Double] = {}

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(each.kill() for each in self.doubles.values()))
        await super().__aexit__()
        await asyncio.sleep(0.05)  # what was closed is closed by now

    async def double(self, name: str, join: str = "", **options: Any) -> Double:
        user, password = options.pop("user", USER), options.pop("password", PASSWORD)
        each = Double(name, self.port(name), user, password, self.pace, **options)
        await each.start(f"127.0.0.1:{self.port(join)}" if join else "")
        self.doubles[name] = each
        return each

    async def kill(self, name: str) -> None:
        if name in self.doubles:
            await self.doubles.pop(name).kill()
        else:
            await super().kill(name)

    def cut(self, left: str, right: str, way: str = "both") -> None:
        super().cut(left, right, way)
        for a in left.split():
            for b in right.split():
                for one, other in ((a, b), (b, a)):
                    if one in self.doubles:
                        self.doubles[one].cut.add(f"127.0.0.1:{self.port(other)}")

    def heal(self) -> None:
        super().heal()
        for each in self.doubles.values():
            each.cut.clear()

    def beliefs(self) -> dict[str, str]:
        ours = {name: node.leader() for name, node in self.up.items()}
        return ours | {name: each.leader for name, each in self.doubles.items()}

    def agreed(self, *names: str) -> str:
        """The one that all of these believe in, itself included, none of ours standing."""
        beliefs = {name: leader for name, leader in self.beliefs().items() if not names or name in names}
        leaders = {name for name, leader in beliefs.items() if name == leader}
        ours = [name for name in self.leaders() if not names or name in names]
        if len(set(beliefs.values())) != 1 or len(leaders) != 1 or set(ours) - leaders:
            return ""
        return leaders.pop()

    async def one_leader(self, *names: str) -> str:
        """Waits until there is one, and all know it."""
        found: str = await self.until(lambda: self.agreed(*names), f"one leader of {names or 'all'}")
        return found

    async def settled(self, for_s: float = 1.5) -> str:
        """One leader, the same for a while: a real node's election that is still under way may change it once more."""
        loop = asyncio.get_running_loop()
        since_s, last = loop.time(), ""

        def holds() -> str:
            nonlocal since_s, last
            now = self.agreed()
            if now != last:
                since_s, last = loop.time(), now
            return now if loop.time() - since_s >= for_s else ""

        found: str = await self.until(holds, f"one leader for {for_s} s")
        return found

    def lists_are_true(self) -> bool:
        """Every double knows every other node that lives, at the address where it is."""
        living = (*self.up, *self.doubles)
        return all(
            each.peers.get(name) == f"127.0.0.1:{self.port(name)}"
            for each in self.doubles.values()
            for name in living
            if name != each.node
        )

    async def calmed(self, for_s: float = 1.0) -> None:
        """Waits until no double was told of a join for a while (this loop had its turns in it), and all lists are true.

        Of three doubles one word may stay under way, which is kept waiting for 15 s and more at every turn.
        """
        loop = asyncio.get_running_loop()
        since_s, turns, last = loop.time(), 0, -1

        def holds() -> bool:
            nonlocal since_s, turns, last
            joins = sum(each.heard["/join"] for each in self.doubles.values())
            if joins != last or not self.lists_are_true():
                since_s, turns, last = loop.time(), 0, joins
            turns += 1
            return loop.time() - since_s >= for_s and turns > 30

        await self.until(holds, "the storm of joins is over", 2 * LIMIT_S)

    def story(self) -> str:
        doubles = {name: (each.leader, dict(each.heard)) for name, each in self.doubles.items()}
        return f"{super().story()}; doubles: {doubles}"
