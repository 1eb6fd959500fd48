"""Faults of one machine: its processes, its clock, its disk and what it remembers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from primacy.sim.facts import MEMORY_LOST
from primacy.sim.world.node import Node

if TYPE_CHECKING:
    from primacy.sim.faults.classes import Faults


# --- processes --------------------------------------------------------------------------------------------------------


def _crash(f: Faults, *, power: bool) -> None:
    node = f.some_node()
    f.acts.crash(node.name, power)
    f.lasting("power lost" if power else "agent killed", node.name, lambda: f.acts.start(node.name), 0.01, 3)


def crash_agent(f: Faults) -> None:
    """The agent is killed; its guard stops the work and releases (F02)."""
    _crash(f, power=False)


def crash_node(f: Faults) -> None:
    """The whole machine is off (F01)."""
    _crash(f, power=True)


def crash_between(f: Faults) -> None:
    """A crash between two effects of one of the next steps."""
    node = f.some_node()
    f.acts.doom(node.name, f.chance.randrange(0, 40))

    def undo() -> None:
        f.acts.doom(node.name, -1)
        f.acts.start(node.name)

    f.lasting("crash between effects", node.name, undo, 0.5, 3)


def storm(f: Faults) -> None:
    """Every agent restarts again and again (F47)."""
    for name in f.names:
        node = f.world.nodes[name]
        f.world.after(f.chance.random() * f.unit_ms, partial(_bounce, f, node))


def _bounce(f: Faults, node: Node) -> None:
    if f.world.now < f.end_ms and node.up:
        f.acts.crash(node.name)
        f.lasting("restart", node.name, lambda: f.acts.start(node.name), 0.005, 0.3)


def stall(f: Faults) -> None:
    """The agent makes no step for a while; its guard goes on (F04, F05, F08)."""
    node = f.some_node()
    stopped = f.acts.stop(node.name)
    f.lasting("agent stopped", node.name, lambda: f.acts.go_on(stopped), 0.02, 2.5)


def freeze(f: Faults) -> None:
    """Agent and guard are stopped; only the kernel's dead-man timer acts (F07)."""
    node = f.some_node()
    stopped = f.acts.stop(node.name, frozen=True)
    f.lasting("agent and guard stopped", node.name, lambda: f.acts.go_on(stopped), 0.02, 2.5)


def child(f: Faults) -> None:
    """The child ends by itself (F03), or its guard is killed."""
    for name in f.names:
        if f.world.nodes[name].guard is not None:
            f.acts.end_child(name, guard_too=f.chance.random() < 0.3)


# --- time, disk, memory -----------------------------------------------------------------------------------------------


def clock(f: Faults) -> None:
    """A clock changes its rate within the bound (F28); wall clocks jump (F27)."""
    node = f.world.nodes[f.chance.choice(f.names)]
    extreme = f.chance.random() < 0.7
    rate = 1 + (f.chance.choice((-1, 1)) if extreme else f.chance.uniform(-1, 1)) * f.drift
    jump_ms = 0 if f.walls_agree else f.chance.choice((-3_600_000, -1_000, 0, 1_000, 3_600_000))
    f.acts.clock(node.name, rate, jump_ms)


def disk_full(f: Faults) -> None:
    """Nothing can be saved (F31)."""
    node = f.some_node()
    f.acts.disk_full(node.name, True)
    f.lasting("disk full", node.name, lambda: f.acts.disk_full(node.name, False))


def disk_slow(f: Faults) -> None:
    """A save takes long, and the agent waits for it (F35)."""
    node = f.some_node()
    f.acts.disk_slow(node.name, int(f.unit_ms * f.chance.uniform(0.01, 1.5)))
    f.lasting("slow disk", node.name, lambda: f.acts.disk_slow(node.name, 0))


def memory(f: Faults) -> None:
    """A node comes back without its ballot (F36, F37)."""
    node = f.some_node()
    if f.memory_left <= 0 or not node.up:
        return
    f.memory_left -= 1
    f.acts.crash(node.name, power=f.chance.random() < 0.5)
    f.acts.lose(node.name)
    f.lasting(MEMORY_LOST, node.name, lambda: f.acts.start(node.name), 0.01, 2)


def duplicate(f: Faults) -> None:
    """A second machine with the same id and a copied disk speaks; what is sent to the id reaches the first (F49)."""
    node = f.some_node()
    voters = min(len(f.world.nodes[name].membership.voters) for name in f.names)
    if not f.copies_disks or voters < f.doubled_least:
        return
    doubled = f.acts.double(node.name)

    def undo() -> None:
        """An operator finds the second machine and restarts the first: a new start is heard again."""
        f.acts.end_double(doubled)
        f.acts.crash(node.name)
        f.acts.start(node.name)
        f.restarts[node.name] = node

    f.lasting("two nodes with one id", node.name, undo, 0.5, 3)
