"""Messages per failover of bully and ring over real HTTP, from 3 to 20 nodes, in the profiles `lan` and `ghoti`.

    python -m bench.manager [--rounds 5] [--nodes 3,5,10,20] [--profiles lan,ghoti] [--json]

All nodes of a cluster are managers of one process, each with its own sockets on loopback and a fixed list. A quiet
cluster has its leader; that one is closed without a word, as the kernel does for a process that is killed, and what the
others say until all of them follow a new one is counted as in `messages.py`: without heartbeats, their answers, and the
repetitions of an announcement. Then it is started anew. The bounds are those of rule B9.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

from tests.support.ports import free_ports

from bench.messages import BOUNDS, ElectionCount
from bench.report import Row, spread, told
from primacy.agent.cluster import ManagedCluster
from primacy.election.messages import Message
from primacy.settings import of_mapping
from primacy.settings.timing import RANK_PROFILES

SIZES = (3, 5, 10, 20)
PROFILES = ("lan", "ghoti")
LOOK_S = 0.005
"""Between two looks at all nodes, in the loop that they run in."""
LIMIT_S = 120.0
"""For a cluster to settle: only a hang reaches it."""
QUIET_HEARTBEATS = 2
"""Before and after each failover: what is still under way belongs to it."""


class Cluster:
    """Nodes of one strategy and profile, all counted together."""

    def __init__(self, strategy: str, profile: str, nodes: int) -> None:
        names = [f"n{number:02}" for number in range(nodes)]
        ports = free_ports(nodes)
        listed = {name: {"addr": f"127.0.0.1:{port}"} for name, port in zip(names, ports, strict=True)}
        self.told: dict[str, Any] = {
            "cluster": {
                "user": "bench_user",
                "pass": "bench_pass",
                "manager": {"type": "static", "nodes": listed},
            },
            "election": {"strategy": strategy, "profile": profile},
        }
        self.names = names
        self.heartbeat_s = RANK_PROFILES[profile].heartbeat_ms / 1_000
        self.counter = ElectionCount()
        self.up: dict[str, ManagedCluster] = {}

    async def start(self, name: str) -> None:
        settings = of_mapping({**self.told, "cluster": {**self.told["cluster"], "node": name}})
        node = ManagedCluster(settings)
        node.manager.send = self._counted(name, node.manager.send)  # type: ignore[method-assign]
        self.up[name] = node
        await node.start()

    def _counted(self, name: str, send: Callable[[str, Message], None]) -> Callable[[str, Message], None]:
        def counted(to: str, message: Message) -> None:
            self.counter(0.0, name, to, message, 0.0)
            send(to, message)

        return counted

    async def settled(self) -> str:
        """The leader, once all that are up follow it."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                leaders = {node.leader() for node in self.up.values()}
                if len(leaders) == 1 and (leader := leaders.pop()) in self.up:
                    return leader
                await asyncio.sleep(LOOK_S)

    async def failover(self) -> tuple[int, float]:
        """Messages, and milliseconds until all follow another one."""
        old = await self.settled()
        await asyncio.sleep(QUIET_HEARTBEATS * self.heartbeat_s)
        loop = asyncio.get_running_loop()
        self.counter.count, began_s = 0, loop.time()
        await self.up.pop(old).kill()
        await self.settled()
        took_ms = (loop.time() - began_s) * 1_000
        await asyncio.sleep(QUIET_HEARTBEATS * self.heartbeat_s)
        count = self.counter.count
        await self.start(old)
        return count, took_ms

    async def end(self) -> None:
        await asyncio.gather(*(node.kill() for node in self.up.values()))


async def failovers(strategy: str, profile: str, nodes: int, rounds: int) -> tuple[list[int], list[float]]:
    cluster = Cluster(strategy, profile, nodes)
    try:
        await asyncio.gather(*(cluster.start(name) for name in cluster.names))
        found = [await cluster.failover() for _ in range(rounds)]
    finally:
        await cluster.end()
    return [count for count, _ in found], [took_ms for _, took_ms in found]


def run(
    sizes: tuple[int, ...], profiles: tuple[str, ...], rounds: int
) -> tuple[list[Row], dict[str, dict[str, list[float]]]]:
    rows: list[Row] = []
    raw: dict[str, dict[str, list[float]]] = {}
    for strategy, bound_of in BOUNDS.items():
        for nodes in sizes:
            bound = bound_of(nodes)
            for profile in profiles:
                what = f"{strategy}, {nodes} nodes, {profile}"
                print(what, file=sys.stderr, flush=True)
                counts, took_ms = asyncio.run(failovers(strategy, profile, nodes, rounds))
                ours = f"{median(counts):.0f} ({min(counts)}..{max(counts)}), {spread(took_ms)}"
                rows.append(Row("messages", what, ours, f"at most {bound}", median(counts) / bound, 1.0))
                raw[what] = {"messages": [float(count) for count in counts], "took_ms": took_ms}
    return rows, raw


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.manager", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="failovers of each cluster (default 5)")
    sizes = ",".join(map(str, SIZES))
    parser.add_argument("--nodes", default=sizes, metavar="N,N", help=f"sizes (default {sizes})")
    parser.add_argument("--profiles", default=",".join(PROFILES), metavar="P,P", help="of bully and ring")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(words)
    profiles = tuple(args.profiles.split(","))
    if unknown := [one for one in profiles if one not in RANK_PROFILES]:
        parser.error(f"there is no profile {unknown[0]!r}; there are {', '.join(RANK_PROFILES)}")
    if args.rounds < 1 or not all(one.isdigit() and 2 <= int(one) <= 100 for one in args.nodes.split(",")):
        parser.error("rounds must be above 0, and sizes between 2 and 100")
    try:
        rows, raw = run(tuple(map(int, args.nodes.split(","))), profiles, args.rounds)
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return told(rows, raw, args.rounds, args.json)


if __name__ == "__main__":
    sys.exit(main())
