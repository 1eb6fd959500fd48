"""What faults do to a world: one method per act, each of which can be written down and done again.

A seed is a number of the draws of one version: who adds a draw gives every seed another history. An act names its
moment, its target and its size, and nothing of how it was chosen. A list of acts is therefore a fault plan that stays
the same when draws, classes or machines change. `sim/trials/replay.py` writes such plans and runs them again.

Acts are harmless where they do not fit: a node that is off cannot be crashed, one that runs cannot be started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.inputs import (
    CancelChange,
    ChangeMembers,
    ForceMembers,
    Health,
    Init,
    Input,
    Pause,
    Resume,
    StepDown,
)
from primacy.election.model import Ballot, Member, Membership
from primacy.election.model import Kind as MemberKind
from primacy.sim.facts import Kind
from primacy.sim.world.node import Node
from primacy.sim.world.world import World

Written = list[Any]
"""The true time, the name of the act, and what it was given: plain values, so that it can stand in a file."""
Row = Sequence[Any]
"""A member as it can stand in a file: id, kind, priority, address."""
LOST_MS = -1.0
"""In the place of a delay: it never arrives."""


class Acts:
    """Acts on one world; with `write`, each is written down as it is done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lists: dict[str, tuple[Membership, Any]] = {}
        """Each list, with its times, that a node can be given."""
        self.listed: Callable[[str, tuple[str, ...]], None] = lambda _, __: None
        """Called with the list that holds in the end, and with all names, once a change of the list is begun."""
        self.introduced: Callable[[str], None] = lambda _: None
        """Called with the name of a machine that was set up just now."""
        self.destroyed: Callable[[str], None] = lambda _: None
        """Called with the name of a machine that is gone for good."""
        self.gone: dict[str, bool] = {}
        """Machines that never run again."""
        self._write: Callable[[Written], None] | None = None
        self._stops: dict[int, Callable[[], None]] = {}
        self._doubles: dict[int, Node] = {}
        self._copies: dict[str, Ballot | None] = {}
        self._begun: dict[int, tuple[str, str]] = {}
        self._next = 0

    def write(self, write: Callable[[Written], None]) -> None:
        """From now on every act is told to this one."""
        self._write = write

    def do(self, name: str, given: Sequence[Any]) -> None:
        """Does again what was written down."""
        getattr(self, name)(*given)

    def _done(self, name: str, *given: Any) -> None:
        if self._write is not None:
            self._write([self.world.now, name, *given])

    # --- processes ----------------------------------------------------------------------------------------------------

    def crash(self, name: str, power: bool = False) -> None:
        """The agent is killed; with `power`, the whole machine is."""
        self._done("crash", name, power)
        self.world.crash(self.world.nodes[name], power=power)

    def start(self, name: str) -> None:
        self._done("start", name)
        self.world.start(self.world.nodes[name])

    def doom(self, name: str, effects: int) -> None:
        """The agent crashes after so many effects; -1: it does not, after all."""
        self._done("doom", name, effects)
        self.world.nodes[name].doom = effects

    def stop(self, name: str, frozen: bool = False) -> int:
        """The agent makes no step, and with `frozen` its guard does nothing, until `go_on` with the number."""
        self._done("stop", name, frozen)
        self._next += 1
        self._stops[self._next] = self.world.stop_agent(self.world.nodes[name], frozen=frozen)
        return self._next

    def go_on(self, number: int) -> None:
        self._done("go_on", number)
        self._stops.pop(number)()

    def freeze_machine(self, name: str, clock_too: bool) -> int:
        """Nothing happens in the whole machine, and its clock stands or not, until `go_on` with the number."""
        self._done("freeze_machine", name, clock_too)
        self._next += 1
        self._stops[self._next] = self.world.freeze_machine(self.world.nodes[name], clock_too=clock_too)
        return self._next

    def unkillable(self, name: str, yes: bool) -> None:
        """No signal ends a process of this machine."""
        self._done("unkillable", name, yes)
        self.world.nodes[name].unkillable = yes

    def escape(self, name: str, yes: bool) -> None:
        """Of work that ends, a part that nobody holds runs on; or what runs on is ended."""
        self._done("escape", name, yes)
        node = self.world.nodes[name]
        running, node.escaping = node.escaping or [], [] if yes else None
        for end in running:
            end()

    def end_child(self, name: str, guard_too: bool) -> None:
        """The child ends by itself, or its guard is killed."""
        self._done("end_child", name, guard_too)
        guard = self.world.nodes[name].guard
        if self.world.nodes[name].frozen:
            return  # a signal waits until the machine goes on
        if guard is not None and guard_too:
            guard.kill_guard()
        elif guard is not None:
            guard.child_ends()

    # --- clock, disk, memory ------------------------------------------------------------------------------------------

    def clock(self, name: str, rate: float, wall_jump_ms: int = 0) -> None:
        self._done("clock", name, rate, wall_jump_ms)
        node = self.world.nodes[name]
        node.clock.set_rate(self.world.now, rate)
        node.clock.wall_offset_ms += wall_jump_ms
        self.world.rearm(node)

    def disk_full(self, name: str, full: bool) -> None:
        self._done("disk_full", name, full)
        self.world.nodes[name].disk.full = full

    def disk_slow(self, name: str, slow_ms: int) -> None:
        self._done("disk_slow", name, slow_ms)
        self.world.nodes[name].disk.slow_ms = slow_ms

    def lose(self, name: str) -> None:
        """The ballot is gone."""
        self._done("lose", name)
        self.world.nodes[name].disk.lose()

    def back_up(self, name: str) -> None:
        """A copy of the ballot file is kept."""
        self._done("back_up", name)
        self._copies[name] = self.world.nodes[name].disk.ballot

    def put_back(self, name: str) -> None:
        """The machine is off, and its ballot file is the copy again."""
        self._done("put_back", name)
        node = self.world.nodes[name]
        self.world.crash(node, power=True)
        node.disk.ballot = self._copies[name]

    def double(self, name: str) -> int:
        """A second machine with the same id and a copied disk speaks, until `end_double`; the first is restarted."""
        self._done("double", name)
        node = self.world.nodes[name]
        double = Node(self.world, node.index, node.name, node.clock, node.membership, node.timing)
        double.disk.ballot = node.disk.ballot
        self.world.crash(node)
        self.world.start(node)
        self.world.start(double)
        self._next += 1
        self._doubles[self._next] = double
        return self._next

    def end_double(self, number: int) -> None:
        self._done("end_double", number)
        self.world.crash(self._doubles.pop(number), power=True)

    def is_doubled(self, name: str) -> bool:
        """A second machine speaks with this id."""
        return any(double.name == name for double in self._doubles.values())

    def destroy(self, name: str) -> None:
        """The machine and its disk are gone for good."""
        self._done("destroy", name)
        node = self.world.nodes[name]
        self.gone[name] = True
        self.world.crash(node, power=True)
        node.disk.lose()
        node.introduced = False
        self.destroyed(name)

    # --- network ------------------------------------------------------------------------------------------------------

    def cut(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Messages from the first to the second of each pair are lost."""
        self._done("cut", list(pairs))
        for a, b in pairs:
            self.world.cut(a, b)

    def mend(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._done("mend", list(pairs))
        for a, b in pairs:
            self.world.mend(a, b)

    def conditions(self, values: dict[str, float]) -> None:
        """How the network and the store are from now on; what is not named stays."""
        self._done("conditions", values)
        for name, value in values.items():
            setattr(self.world.conditions, name, value)

    def lag(self, name: str, in_ms: float, out_ms: float) -> None:
        """What it receives, or sends, takes so much longer than before."""
        self._done("lag", name, in_ms, out_ms)
        node = self.world.nodes[name]
        node.lag_in_ms += in_ms
        node.lag_out_ms += out_ms

    def hold_back(self, name: str) -> None:
        """What a node sends is kept."""
        self._done("hold_back", name)
        node = self.world.nodes[name]
        if node.held is None:
            node.held = []

    def let_go(self, name: str, late_ms: Sequence[float]) -> None:
        """What was kept arrives, each as late as it says, or never; the delays are used again if there are too few."""
        self._done("let_go", name, list(late_ms))
        node = self.world.nodes[name]
        held, node.held = node.held, None
        for place, (to, message) in enumerate(held or []):
            late = late_ms[place % len(late_ms)] if late_ms else 0.0
            if late != LOST_MS:
                self.world.deliver_later(late, to, message)
                self.world.late_until_ms = max(self.world.late_until_ms, self.world.now + late)

    # --- people -------------------------------------------------------------------------------------------------------

    def tell(self, name: str, what: str, successor: str = "") -> None:
        """An operator's request, or what a probe of health says."""
        self._done("tell", name, what, successor)
        node = self.world.nodes[name]
        self.world.give(node, _said(what, successor, node.clock.wall_ms(self.world.now)))

    def begin_list(self, final: str, names: Sequence[str]) -> None:
        """A change of the list begins; this one holds in the end, and these nodes are there from now on."""
        self._done("begin_list", final, list(names))
        self.listed(final, tuple(names))

    def give_list(self, name: str, which: str) -> None:
        """A node's file says another list, or other times: they count from its next start."""
        self._done("give_list", name, which)
        node = self.world.nodes[name]
        node.membership, node.timing = self.lists[which]
        node.introduced = name not in self.gone

    def introduce(self, name: str) -> None:
        """A machine is set up, blank, with the file that the others have; it is started."""
        self._done("introduce", name)
        node = self.world.nodes[name]
        if not node.introduced and name not in self.gone:
            node.introduced = True
            self.introduced(name)
            self.world.start(node)

    def change_members(self, name: str, rows: Sequence[Row], by: str, version: int = 0) -> None:
        """An operator asks this node for these members: id, kind, priority and address of each."""
        self._done("change_members", name, [list(row) for row in rows], by, version)
        node = self.world.nodes[name]
        wanted = tuple(Member(id_, MemberKind(kind), priority, address=at) for id_, kind, priority, at in rows)
        self.world.give(node, ChangeMembers(wanted, by, node.clock.wall_ms(self.world.now), version))

    def cancel_change(self, name: str, by: str) -> None:
        """An operator asks this node to give up the change that is on its way."""
        self._done("cancel_change", name, by)
        self.world.give(self.world.nodes[name], CancelChange(by))

    def force_members(self, name: str, without: Sequence[str]) -> None:
        """An operator says on this node that these members are gone for good."""
        self._done("force_members", name, list(without))
        self.world.give(self.world.nodes[name], ForceMembers(tuple(without)))

    # --- telling ------------------------------------------------------------------------------------------------------

    def begins(self, node: str, number: int, text: str) -> None:
        """A fault begins; with the number 0 it has no end."""
        self._done("begins", node, number, text)
        self._begun[number] = (node, text)
        self.world.emit(Kind.FAULT, node, number, text)

    def ends(self, number: int, text: str = "") -> None:
        """It ends by itself, or by what the text says."""
        self._done("ends", number, text)
        node, began = self._begun.get(number, ("", ""))
        self.world.emit(Kind.CALM, "" if text else node, number, text or began)


def _said(what: str, successor: str, wall_ms: int) -> Input:
    match what:
        case "init":
            return Init(wall_ms)
        case "step-down":
            return StepDown()
        case "transfer":
            return StepDown(successor=successor, reason="transfer")
        case "pause":
            return Pause()
        case "resume":
            return Resume()
        case "unhealthy":
            return Health(False, "probe failed")
        case "healthy":
            return Health(True)
    raise AssertionError(f"nobody says {what!r}")
