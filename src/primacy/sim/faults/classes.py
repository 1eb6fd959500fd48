"""What goes wrong in a trial: fault classes with rates that are drawn anew for every seed.

A trial has a random subset of the classes (some interplay only shows when others are absent), each with its own pace
and length, measured in holds so that every profile is treated alike. Each fault knows how to end itself; at the calm
all of them end at once. Here they are drawn, counted and ended; what each of them does stands in `fault_*.py`, with its
number in the fault catalogue, docs/faults.md, in brackets.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from primacy.election.model import Membership
from primacy.settings.timing import Timing
from primacy.sim.faults import aimed as fault_aimed
from primacy.sim.faults import changed as fault_changed
from primacy.sim.faults import force as fault_force
from primacy.sim.faults import machine as fault_machine
from primacy.sim.faults import members as fault_members
from primacy.sim.faults import network as fault_network
from primacy.sim.faults import outside as fault_outside
from primacy.sim.faults import people as fault_people
from primacy.sim.faults import store as fault_store
from primacy.sim.faults.acts import Acts
from primacy.sim.world.node import Node
from primacy.sim.world.world import World

Undo = Callable[[], None]

LAYERED = ("loss", "repeat", "delay_min_ms", "delay_span_ms", "store_ms", "store_answer_lost", "store_fails")
"""Parts of the conditions that faults worsen."""

SELDOM = {"extremes": 6, "members": 5, "changed": 8}
"""Holds between two faults of a class, at most, where they are not 15: these need several to find anything."""

VOTERS_MOST = 5
"""So many voters an operator asks for at most."""


class Change(NamedTuple):
    """A file with other times that an operator rolls out, node by node."""

    text: str
    membership: Membership
    timing: Timing


class Faults:
    """Draws, applies and ends faults in one world."""

    def __init__(self, world: World, chance: Random, names: tuple[str, ...], unit_ms: float) -> None:
        self.world = world
        self.acts = Acts(world)
        self.acts.listed = self._listed
        self.acts.introduced = self._introduced
        self.acts.destroyed = self._destroyed
        self.chance = chance
        self.names = names
        self.unit_ms = unit_ms
        self.end_ms = 0.0
        self.active: dict[int, Undo] = {}
        self.change: Change | None = None
        self.final: tuple[Membership, Timing] | None = None
        """The list that holds after the roll-out, once there was one."""
        self.rolled_out = ""
        """The file that the last roll-out brings, of those that differ in strategy, store or times."""
        self.restarts: dict[str, Node] = {}
        """Nodes that an operator restarts at the calm, to be heard again after two boots of one id spoke."""
        self.copies_disks = True
        """Whether a second machine with a copied disk may appear."""
        self.doubled_least = 2
        """Voters that a list must have for one of them to be doubled: alone, nobody is there who hears both."""
        self.walls_agree = True
        """Wall clocks stay within a fraction of a hold of each other; only then may a store lose commits (T1)."""
        self.stops_guards = 0.2
        """How often a guard is stopped while a new file makes its agent restart."""
        self.spares: tuple[str, ...] = ()
        """Machines that nobody has set up yet, and that an operator may add to the members."""
        self.voters_least, self.voters_most = 1, VOTERS_MOST
        """How few voters an operator asks for, and how many."""
        self.drift = 0.0
        self.memory_left = 0
        """How many nodes may still lose their memory: the others must stay a majority."""
        self._next = 0
        self._intervals: dict[str, float] = {}
        self._layers: list[dict[str, float]] = []
        self._fair: dict[str, float] = {name: getattr(world.conditions, name) for name in LAYERED}

    # --- pace ---------------------------------------------------------------------------------------------------------

    def begin(self, classes: tuple[str, ...], end_ms: float) -> None:
        self.end_ms = end_ms
        for name in classes:
            if name == "aimed":
                CLASSES[name](self)  # once: it waits for moments, not for a timer
                continue
            self._intervals[name] = self.unit_ms * self.chance.uniform(1.5, SELDOM.get(name, 15))
            self._schedule(name, self.chance.random() * self._intervals[name])

    def _schedule(self, name: str, after_ms: float) -> None:
        def fire() -> None:
            if self.world.now >= self.end_ms:
                return
            CLASSES[name](self)
            self.counted(name)
            self._schedule(name, self._intervals[name] * self.chance.uniform(0.5, 1.5))

        self.world.after(after_ms, fire)

    def counted(self, name: str) -> None:
        """One more fault of this class befell this trial."""
        faults = self.world.count.faults
        faults[name] = faults.get(name, 0) + 1

    def until_calm(self, undo: Undo) -> int:
        """At the calm this is undone, unless whoever takes the number out of `active` did so before."""
        self._next += 1
        self.active[self._next] = undo
        return self._next

    def lasting(self, text: str, node: str, undo: Undo, least: float = 0.05, most: float = 4.0) -> None:
        """Ends after a while, or at the calm, whichever comes first."""
        key = self.until_calm(undo)
        self.acts.begins(node, key, text)

        def end() -> None:
            again = self.active.pop(key, None)
            if again is not None:
                again()
                self.acts.ends(key)

        self.world.after(self.unit_ms * self.chance.uniform(least, most), end)

    def calm(self) -> None:
        """Everything ends now, in the order in which it began."""
        while self.active:
            key = next(iter(self.active))
            self.active.pop(key)()
            self.acts.ends(key, "calm")
        for name in self.names:
            if not self.world.nodes[name].up:
                self.acts.start(name)
        for name in self.restarts:
            self.acts.crash(name)
            self.acts.start(name)

    def conditions(self, layer: dict[str, float], text: str) -> None:
        """Worsens the conditions for a while; of several layers the worst counts."""
        self._layers.append(layer)
        self._worsen()

        def undo() -> None:
            self._layers.remove(layer)
            self._worsen()

        self.lasting(text, "", undo)

    def _worsen(self) -> None:
        worst = {
            name: max([fair, *(layer.get(name, fair) for layer in self._layers)]) for name, fair in self._fair.items()
        }
        conditions = self.world.conditions
        self.acts.conditions({name: value for name, value in worst.items() if value != getattr(conditions, name)})

    def list_now(self) -> tuple[Membership, Timing]:
        """The list, with its times, that the nodes began with."""
        node = self.world.nodes[self.names[0]]
        return node.membership, node.timing

    def _listed(self, final: str, names: tuple[str, ...]) -> None:
        self.names = names
        self.final = self.acts.lists[final]

    def _introduced(self, name: str) -> None:
        """It has the file that the others have by now."""
        self.names = (*self.names, name)
        if self.final is not None:
            node = self.world.nodes[name]
            node.membership, node.timing = self.final

    def _destroyed(self, name: str) -> None:
        self.names = tuple(other for other in self.names if other != name)
        self.memory_left = 0  # who is left must remember, or nobody does

    # --- choosing -----------------------------------------------------------------------------------------------------

    def some_node(self) -> Node:
        """Any node, the one that leads more often than others."""
        nodes = self.world.nodes
        leading = [name for name in self.names if nodes[name].role == "leader"]
        if leading and self.chance.random() < 0.5:
            return nodes[self.chance.choice(leading)]
        return nodes[self.chance.choice(self.names)]


CLASSES: dict[str, Callable[[Faults], None]] = {
    "aimed": fault_aimed.aimed,
    "extremes": fault_aimed.extremes,
    "crash-agent": fault_machine.crash_agent,
    "crash-node": fault_machine.crash_node,
    "crash-between": fault_machine.crash_between,
    "storm": fault_machine.storm,
    "stall": fault_machine.stall,
    "freeze": fault_machine.freeze,
    "child": fault_machine.child,
    "partition": fault_network.partition,
    "link": fault_network.link,
    "one-way": fault_network.one_way,
    "chain": fault_network.chain,
    "bridge": fault_network.bridge,
    "swizzle": fault_network.swizzle,
    "flap": fault_network.flap,
    "lossy": fault_network.lossy,
    "lag": fault_network.lag,
    "hold-back": fault_network.hold_back,
    "clock": fault_machine.clock,
    "disk-full": fault_machine.disk_full,
    "disk-slow": fault_machine.disk_slow,
    "memory": fault_machine.memory,
    "duplicate": fault_machine.duplicate,
    "relist": fault_people.relist,
    "operator": fault_people.operator,
    "members": fault_members.members,
    "changed": fault_changed.changed,
    "force": fault_force.force,
    "store-away": fault_store.store_away,
    "store-hangs": fault_store.store_hangs,
    "store-slow": fault_store.store_slow,
    "store-answers": fault_store.store_answers,
    "store-cut": fault_store.store_cut,
    "store-other": fault_store.store_other,
    "store-back": fault_store.store_back,
    "store-hand": fault_store.store_hand,
    "store-blow": fault_store.store_blow,
    "store-sudden": fault_store.store_sudden,
    "store-people": fault_store.store_people,
    "store-outside": fault_store.store_outside,
    "frozen-clock": fault_outside.frozen_clock,
    "standstill": fault_outside.standstill,
    "unkillable": fault_outside.unkillable,
    "escaped": fault_outside.escaped,
    "old-ballot": fault_outside.old_ballot,
}
RENAMED = {"twin": "duplicate"}
"""By the name of before."""
_OUTSIDE_BOTH = ("frozen-clock", "standstill", "unkillable", "escaped")
OUTSIDE_OF: dict[str, tuple[str, ...]] = {
    "raft": (*_OUTSIDE_BOTH, "old-ballot"),
    "lease": (*_OUTSIDE_BOTH, "store-outside"),
}
"""Beyond the promise: no trial draws them; they come where they are asked for, and a violation is to be expected."""
OUTSIDE = tuple(name for name in CLASSES if any(name in names for names in OUTSIDE_OF.values()))

MEMBERS, LAST_RESORT = ("members",), ("force",)
OF_MEMBERS = (*MEMBERS, *LAST_RESORT)
"""Only for nodes that keep a register of members, which are those of raft."""
WITH_CHANGES = ("changed",)
"""Only for nodes whose strategy, store and times change: in all trials of those."""

_PROCESS = ("aimed", "crash-agent", "crash-node", "crash-between", "storm", "stall", "freeze", "clock", "operator")
_NETWORK = ("partition", "link", "one-way", "chain", "bridge", "swizzle", "flap", "lossy", "lag", "hold-back")
_DISK = ("disk-full", "disk-slow", "memory", "duplicate", "relist")
_STORE = (
    *("store-away", "store-hangs", "store-slow", "store-answers", "store-cut", "store-other"),
    *("store-back", "store-hand", "store-blow", "store-sudden", "store-people"),
)

CLASSES_OF: dict[str, tuple[str, ...]] = {
    "raft": (*_PROCESS, "child", *_NETWORK, *_DISK, "extremes"),
    "lease": (*_PROCESS, "child", *_NETWORK, "disk-full", "disk-slow", *_STORE, "extremes"),
    "bully": (*_PROCESS, *_NETWORK),
    "ring": (*_PROCESS, *_NETWORK),
}
"""Which faults can befall which strategy."""


CHANGING = tuple(name for name in CLASSES_OF["lease"] if name != "extremes")
"""What befalls nodes whose strategy changes: all of raft and a lease, but lost memories, doubled machines and changed
lists."""


def classes_of(strategy: str) -> tuple[str, ...]:
    """A user's own has no store, and no disk that we know of."""
    return CLASSES_OF.get(strategy, CLASSES_OF["bully"])


def named_of(strategy: str, changes: bool = False) -> tuple[str, ...]:
    """Those that can be asked for by name: beside the drawn ones, what is beyond the promise."""
    if changes:
        return (*CHANGING, *WITH_CHANGES)
    of_members = OF_MEMBERS if strategy == "raft" else ()
    return (*classes_of(strategy), *of_members, *OUTSIDE_OF.get(strategy, ()))
