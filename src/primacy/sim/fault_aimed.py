"""Blows that fall right after the moments that matter: a candidacy, a vote, a victory, a start, a release."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.election.events import Code
from primacy.sim.facts import Fact, Kind
from primacy.sim.fault_network import between, cut
from primacy.sim.node import Node

if TYPE_CHECKING:
    from primacy.sim.faults import Faults


AIMED: dict[str, float] = {
    Kind.WORK_STARTED: 0.15,
    Kind.RELEASE_SENT: 0.1,
    Kind.VOTE: 0.1,
    Code.STANDS: 0.3,
    Code.ELECTED: 0.2,
    Code.UNMUTED: 0.1,
    Code.FIRST_BALLOT: 0.1,
    Code.LEASE_TAKEN: 0.2,
    Code.FOLLOWS: 0.02,
}
"""How often a moment is struck at."""


def aimed(f: Faults) -> None:
    """Strikes right after the moments that matter: a candidacy, a vote, a victory, a start, a release."""
    f.world.listeners.append(partial(_aim, f))


def _aim(f: Faults, fact: Fact) -> None:
    """Strikes at the node that the fact is about, now or a moment later."""
    odds = AIMED.get(fact.kind) or AIMED.get(fact.text)
    if odds is None or f.world.now >= f.end_ms or f.chance.random() >= odds:
        return
    f.counted("aimed")
    node = f.world.nodes[fact.node]
    strike = f.chance.choice((_crash, _crash, _cut_off, _stop))
    f.world.after(f.chance.choice((0.0, 0.5, 3.0, 20.0)) * f.chance.random(), lambda: strike(f, node))


def _crash(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms and node.up:
        f.acts.crash(node.name, power=f.chance.random() < 0.5)
        f.lasting("struck: crash", node.name, lambda: f.acts.start(node.name), 0.002, 1.5)


def _cut_off(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms:
        others = tuple(name for name in f.names if name != node.name)
        ways = between((node.name,), others)
        if f.chance.random() < 0.5:
            ways = [way for way in ways if way[0] == node.name or f.chance.random() < 0.3]
        cut(f, ways, f"struck: {node.name} cut", 2.0)


def _stop(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms:
        stopped = f.acts.stop(node.name, frozen=f.chance.random() < 0.4)
        f.lasting("struck: stopped", node.name, lambda: f.acts.go_on(stopped), 0.02, 2.5)
