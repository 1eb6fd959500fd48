"""Blows that fall right after the moments that matter: a candidacy, a vote, a victory, a start, a release."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.election.events import Code
from primacy.sim.facts import Fact, Kind
from primacy.sim.faults.network import between, cut
from primacy.sim.world.guard import Guard, Phase
from primacy.sim.world.node import Node

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


AIMED: dict[str, float] = {
    Kind.WORK_STARTED: 0.15,
    Kind.RELEASE_SENT: 0.1,
    Kind.VOTE: 0.1,
    Code.CAMPAIGNS: 0.3,
    Code.ELECTED: 0.2,
    Code.RECOVERED: 0.1,
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


LOOKED_EVERY_MS = 2.0
"""How soon after a proof the blow falls."""
LOOKED_FOR = 0.7
"""In holds: no proof within this time, no blow."""


def extremes(f: Faults) -> None:
    """The holder's clock goes as slow, all others as fast as they may; it is stopped, guard too, just proved (F28)."""
    holders = [f.world.nodes[name] for name in f.names if f.world.nodes[name].lock_held()]
    if len(holders) == 1 and isinstance(holders[0].guard, Guard) and f.drift:
        _when_proved(f, holders[0], holders[0].guard, holders[0].guard.hold_from_ms, f.world.now)


def _when_proved(f: Faults, holder: Node, guard: Guard, hold_from_ms: int, since_ms: float) -> None:
    """Waits for the next proof: from it on the hold counts, and so does what its successors wait."""
    if guard.phase is not Phase.RUNNING or f.world.now >= min(f.end_ms, since_ms + LOOKED_FOR * f.unit_ms):
        return
    if guard.hold_from_ms == hold_from_ms:
        f.world.after(LOOKED_EVERY_MS, partial(_when_proved, f, holder, guard, hold_from_ms, since_ms))
        return
    before = {name: f.world.nodes[name].clock.running_rate for name in f.names}
    slow_kill = f.world.conditions.slow_kill
    for name in f.names:
        f.acts.clock(name, 1 - f.drift if name == holder.name else 1 + f.drift)
    f.acts.conditions({"slow_kill": 1.0})
    stopped = f.acts.stop(holder.name, frozen=True)
    if f.world.store is not None:
        # who looks at the store now begins to wait now; left alone, it would look again much later
        watcher = f.chance.choice([name for name in f.names if name != holder.name] or [holder.name])
        if watcher != holder.name:
            f.acts.crash(watcher)
            f.acts.start(watcher)

    def undo() -> None:
        f.acts.go_on(stopped)
        f.acts.conditions({"slow_kill": slow_kill})
        for name, rate in before.items():
            f.acts.clock(name, rate)

    f.lasting("slowest holder, fastest others", holder.name, undo, 1.2, 2.0)
