"""The values of the bounded model: nodes with their works, what is under way, and numbers for all of them.

A state of the model is a short tuple of such numbers; two equal values always have the same one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from primacy.election.inputs import Input
from primacy.election.messages import Message, Release
from primacy.election.model import Ballot, Role, Strategy
from primacy.election.store import StoreRequest
from primacy.settings.timing import Timing
from primacy.sim.model.equal import settle, will_settle
from primacy.sim.model.snapshot import fork, frozen
from primacy.sim.world.store import SimStore

DOWN = -1
"""In place of a machine's number: the agent does not run."""
STORE = 3
"""In place of a node's number: the store."""
NEVER = 1 << 60
"""Later than any moment."""


class Phase(IntEnum):
    """Where the work of one term stands. When it is gone, it is no longer listed."""

    SPAWNING = 0
    RUNNING = 1
    STOPPING = 2


class Work(NamedTuple):
    """The guarded work of one term on one node, with what its guard was told."""

    term: int
    token: int
    boot: int
    hold_from_ms: int
    release: Release | None
    phase: Phase = Phase.SPAWNING
    ran: bool = False
    ordered: bool = False
    successor: str = ""
    lost: bool = False
    """The guard was killed: nobody sends a release, and the run lock says when the work is gone."""
    stopped: int = 0
    """The unit of time at which it was told to stop."""


class Node(NamedTuple):
    """One node at one moment."""

    who: int
    """Its place among the names."""
    machine: int
    """Number of the machine's state, or `DOWN`."""
    boots: int
    ballot: Ballot | None
    works: tuple[Work, ...] = ()
    asleep: bool = False


def changed(node: Node, old: Work, new: Work) -> Node:
    return node._replace(works=tuple(new if work is old else work for work in node.works))


class Packet(NamedTuple):
    """A message under way."""

    to: int
    message: Message


class Word(NamedTuple):
    """Something that the agent of this boot is told by its own machine, or by the store."""

    to: int
    boot: int
    given: Input


class Spawn(NamedTuple):
    """The guard starts the work of this term."""

    to: int
    term: int


class Ask(NamedTuple):
    """A request on its way to the store."""

    sender: int
    boot: int
    number: int
    request: StoreRequest


class FreeRow(NamedTuple):
    """A guard releases the row of work that is gone."""

    sender: int
    holder: str
    token: int
    successor: str


Item = Packet | Word | Spawn | Ask | FreeRow
Fact = tuple[Any, ...]
"""("work", node, token, time left), ("elected", node, term), ("vote", node, term, candidate), ("forgot", node) or
("bad", sentence)."""


class Move(NamedTuple):
    """What a happening at one node, or at the store, leads to."""

    after: int
    items: tuple[int, ...] = ()
    facts: tuple[Fact, ...] = ()
    effects: int = 0
    """How many effects it had that a crash can fall between."""


class Setting(Protocol):
    """What is explored: the nodes, how their clocks run, and how a strategy is made at each start."""

    names: tuple[str, ...]
    periods: tuple[int, ...]
    """Units of time per millisecond of each node's clock."""
    phases: tuple[int, ...]
    """How many units of the present millisecond each clock had behind it at the beginning."""
    timing: Timing
    span: int
    """Units of time in which a successor's work can run, and a little more."""

    requests: tuple[Input, ...]
    """What an operator may ask a leader for, where there is a register of members."""

    def make(self, index: int, boot: int, ballot: Ballot | None) -> Strategy:
        """A machine for this node, at a start."""
        ...

    def first_ballot(self, index: int) -> Ballot | None:
        """What is on the disk of this node at the beginning."""
        ...

    def first_store(self) -> SimStore | None:
        """The store at the beginning, if there is one."""
        ...


class Numbers:
    """Values and their numbers, with what is asked of them most often in lists beside them."""

    def __init__(self, setting: Setting) -> None:
        self.periods, self.phases = setting.periods, setting.phases
        self.machines: list[Strategy] = []
        self.nodes: list[Node] = []
        self.items: list[Item] = []
        self.stores: list[SimStore] = []
        self.due: list[int] = []
        """Of each node: the unit of time at which its machine is to be woken."""
        self.awake: list[bool] = []
        """Of each node: it can be told something."""
        self.leads: list[bool] = []
        """Of each machine."""
        self.settles: list[bool] = []
        """Of each node: time alone makes its machine equal to another one."""
        self.place: list[int] = []
        """Of each item: where it arrives."""
        self.for_agent: list[bool] = []
        """Of each item: it waits while the agent sleeps."""
        self._known: dict[Any, int] = {}

    def node(self, node: Node) -> int:
        number = self._known.get(node)
        if number is None:
            number = self._known[node] = len(self.nodes)
            self.nodes.append(node)
            awake = node.machine != DOWN and not node.asleep
            due_ms = self.machines[node.machine].deadline_ms if awake else None
            self.awake.append(awake)
            self.settles.append(node.machine != DOWN and will_settle(self.machines[node.machine]))
            self.due.append(NEVER if due_ms is None else due_ms * self.periods[node.who] - self.phases[node.who])
        return number

    def item(self, item: Item) -> int:
        key = (type(item), item)  # two kinds of tuple may be equal
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.items)
            self.items.append(item)
            self.place.append(STORE if isinstance(item, Ask | FreeRow) else item.to)
            self.for_agent.append(isinstance(item, Packet | Word))
        return number

    def machine(self, machine: Strategy, now_ms: int) -> int:
        """The number of a machine that nobody else will change; it is settled first."""
        settle(machine, now_ms)
        key = frozen(machine)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.machines)
            self.machines.append(machine)
            self.leads.append(machine.view(now_ms).role is Role.LEADER)
        return number

    def later(self, number: int, now_ms: int) -> int:
        """The machine of this number, of which nothing but the time has changed."""
        machine = self.machines[number]
        return self.machine(fork(machine), now_ms) if will_settle(machine) else number

    def store(self, store: SimStore) -> int:
        key = frozen(store)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.stores)
            self.stores.append(store)
        return number
