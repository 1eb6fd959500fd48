"""Twenty real nodes that start and join at once: one leader for all, and words in proportion to the nodes per join.

Twenty interpreters need a quarter of a minute of processor time to start, and nobody answers in time meanwhile.
Before nodes slowed down together (`http_pace.py`) and gathered their news, this never ended there: each took the others
for dead, led, and announced it, and its events, to all.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from primacy.membership.machine import WORDS_EACH_S
from primacy.settings.timing import RANK_PROFILES
from tests.processes.test_manager_process import PROOF, Crowd, crowd
from tests.support.canary import beside_a_canary
from tests.support.managers_in_one_loop import Nodes, knows, lived, quiet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.alone(order=80)

NODES = 20
PROFILE = "lan"
WITHIN_S = 300.0
"""Far more than twenty interpreters need on a machine that is ten times slower; only a hang reaches it."""
LOOK_S = 0.3
"""Between two looks at all twenty, which are work for them, too."""
JOINS_PER_NODE = 5
"""Words about one join to each node, on average, at most. It is taken in at two addresses, and each tells all others
(2); it tells the second what it learned at the first (1); and what is on its way to the leader while others look there
may be told once more, and once again when its stamp was lifted by the second (2). Were each word passed on by whoever
hears it, as real nodes of Ghoti do, it would be one for each *pair* of nodes: four times this bound."""
AT_START = 6
"""Messages from each node to each, at most, however short it takes: of an election, and what happened, some times."""
PER_HEARTBEAT = 4
"""Messages of one node in a heartbeat, at most: a look, an announcement to it, and as many again while it is not
settled who leads. What it tells of itself comes on top."""


def counted(made: Crowd) -> Counter[str]:
    """All counters of all nodes, summed up."""
    total: Counter[str] = Counter()
    for name in made.up:
        said = wait_until(made.nodes[name].ask, f"an answer of {name}", WITHIN_S)
        total.update(said["counters"])
    return total


@pytest.mark.parametrize("strategy", ["bully", "ring"] if PROOF else ["bully"])
def test_twenty_nodes_that_start_at_once_agree_on_one_leader(tmp_path: Path, strategy: str) -> None:
    with crowd(tmp_path, NODES, strategy, PROFILE) as made:
        made.start()
        wait_until(lambda: any(node.ask() for node in made.nodes.values()), "one node is up", WITHIN_S, LOOK_S)
        began_s = time.monotonic()
        made.leads(lambda _: True, within_s=WITHIN_S, every_s=LOOK_S)
        made.know(NODES, within_s=WITHIN_S)
        total = counted(made)
        heartbeats = 1 + (time.monotonic() - began_s) * 1_000 / RANK_PROFILES[PROFILE].heartbeat_ms
        joins = total["sent/join"] / NODES
        assert joins <= JOINS_PER_NODE * NODES, f"{joins:.0f} words about each join: {total}"
        words = RANK_PROFILES[PROFILE].heartbeat_ms / 1_000 / WORDS_EACH_S
        most = NODES * (AT_START * NODES + heartbeats * (PER_HEARTBEAT + words))
        assert total["sent"] <= most, (
            f"{total['sent']} messages in {heartbeats:.0f} heartbeats, {most:.0f} at most: {total}"
        )


@beside_a_canary(250, passes_if_late=True)
def test_twenty_nodes_that_join_at_once_tell_each_other_once() -> None:
    """Message count: one join each, and one word about each to each; nothing goes on afterwards.

    On a machine that stands still in between, what is on its way is told again, as above: whoever sees at two
    heartbeats in a row that another lacks a node tells it. So heartbeats are rare here, for all twenty share one loop.
    """
    names = [f"n{number:02}" for number in range(20)]

    async def scene(nodes: Nodes) -> None:
        election = {"profile": "hecaton"}
        await nodes.start(names[0], election=election)
        await nodes.leads(names[0])
        await asyncio.gather(*(nodes.start(name, [names[0]], election=election) for name in names[1:]))
        await knows(nodes, names)
        await nodes.until(nodes.agreed, "one leads")

        def joins() -> int:
            return sum(node.manager.counters.get("received/join", 0) for node in nodes.up.values())

        most = len(names) * (len(names) - 1)
        await nodes.until(
            lambda: len({node.manager.member_list.digest for node in nodes.up.values()}) == 1, "all lists are the same"
        )
        await nodes.until(quiet(joins), "the storm is over")
        told = sum((Counter(node.manager.counters) for node in nodes.up.values()), Counter())
        assert joins() <= most, f"{joins()} joins for {len(names)} nodes: {dict(told)}"

    lived(scene)
