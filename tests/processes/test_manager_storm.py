"""Twenty real nodes that start and join at once: one leader for all, and words in proportion to the nodes per join.

Twenty interpreters need a quarter of a minute of processor time to start, and nobody answers in time meanwhile.
Before nodes slowed down together (`http_pace.py`) and gathered their news, this never ended there: each took the others
for dead, led, and announced it, and its events, to all.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from primacy.membership.machine import WORDS_EACH_S
from primacy.settings.timing import RANK_PROFILES
from tests.processes.test_manager_process import PROOF, Crowd, crowd
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
