"""Fault plans: what was drawn about one trial, written down, so that it can be run again when draws have changed.

A seed is a number of one version's draws. A fault plan is bound to no draw. It holds:

- the nodes with their clocks, the list they begin with and the one that is rolled out, how the cluster is first
  started, and the conditions of the network and of the work;
- every act of the faults (`sim/faults/acts.py`): its true time, its target and its size. Aimed faults are in it as what
they
  did, when and to whom, and so are choices that were made by looking at who led;
- which nodes stay broken after the calm, and how;
- the seed of what is drawn while the trial runs.

What is drawn while it runs (how long a message takes, whether it is lost or repeated, how late a timer is, how long a
kill takes, the random numbers of a boot) comes in one of two ways:

- `streams=0`: from the one stream that the recorded trial had. On the machines that the plan was recorded with, this
  is the recorded trial again, event by event. From the first message that changed machines do not send alike, all
  later draws differ.
- `streams=K`: from a stream of its own for each way, kind of message and node. A message that is added or left out
  shifts only what comes later on its own way and of its own kind. The plan says which K showed the violation too.

Only for raft: a lease's store has acts that are not written down. What operators ask of the members is in it as what
they asked, when and whom.

Plans from before there were registers of members tell of other lists of nodes in files. A file changes no members any
more, so such a plan has one act more: whenever a node is given a file with other nodes in it, the operator says
`members apply`, and says it again until the members are those of the file that was given last.

Not bound: what the machines say and do, and what the operator does at the calm (both are what is tried); and if
anybody is still mute at the calm, no node stays broken, as in every trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from primacy.election.messages import FailsafeHeartbeat, Heartbeat, HeartbeatRequest, Message
from primacy.election.model import Kind as MemberKind
from primacy.election.model import Member, Membership
from primacy.settings.timing import Timing
from primacy.sim.faults import members as fault_members
from primacy.sim.faults.acts import Written
from primacy.sim.trials.raft import RaftTrial
from primacy.sim.trials.strategy_table import Build
from primacy.sim.trials.trial import Outcome, Plan
from primacy.sim.world.clock import Clock
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore
from primacy.sim.world.world import Conditions, Overrun, Pace, World

DRAWS_PER_MESSAGE = 4
"""Lost, how late, repeated, how late the second time."""
HASHES = {"old": "times-1", "new": "times-2"}
"""Of the files that trials begin with, and roll out: their times only, so that other nodes are no difference."""
SETTLED_MS = 50
"""So long after the calm the last acts are done: restarts with the list that holds in the end."""
WATCHED_MS = 100
STORM = 2_000
"""Events of so many milliseconds that are a storm: what is on its way is then dropped, so that the plan goes on."""


@dataclass(slots=True)
class FaultPlan:
    """One trial, as it was drawn."""

    plan: Plan
    seed: int
    rule: str
    """What it violated when it was recorded; empty if nothing."""
    first_start: str
    conditions: dict[str, float]
    nodes: list[tuple[str, float, float, int]]
    """Name, what its clock shows at 0, its rate, and how far its wall clock is off."""
    lists: dict[str, tuple[Membership, Timing]]
    """`old` is what the nodes begin with; `new`, if any, is rolled out."""
    core: tuple[str, ...]
    breaks: dict[str, tuple[int, str]]
    acts: list[Written]
    streams: tuple[int, ...] = field(default=())
    """Streams with which it showed the violation, too."""
    by_lists: bool = False
    """It is from before there were registers: other nodes in a file are other members."""

    def write(self, path: Path) -> None:
        plan = self.plan
        head = {
            "strategy": plan.strategy,
            "nodes": plan.nodes,
            "profile": plan.profile,
            "minutes": plan.minutes,
            "drift": plan.drift,
            "register": True,
            "members_change": plan.members_change,
            "seed": self.seed,
            "rule": self.rule,
            "streams": self.streams,
            "first_start": self.first_start,
            "conditions": self.conditions,
            "clocks": self.nodes,
            "lists": {name: _written(*listed) for name, listed in self.lists.items()},
            "core": self.core,
            "breaks": self.breaks,
        }
        rows = ",\n".join(json.dumps(act, separators=(",", ":")) for act in self.acts)
        path.write_text(json.dumps(head)[:-1] + ', "acts": [\n' + rows + "\n]}\n", encoding="utf-8")


def read(path: Path) -> FaultPlan:
    said = json.loads(path.read_text(encoding="utf-8"))
    plan = Plan(
        said["strategy"],
        said["nodes"],
        said["profile"],
        said["minutes"],
        drift=said["drift"],
        members_change=said.get("members_change", False),
    )
    old_times = said["lists"]["old"][1]
    return FaultPlan(
        plan,
        said["seed"],
        said["rule"],
        said["first_start"],
        said["conditions"],
        [tuple(row) for row in said["clocks"]],
        {
            name: _listed(HASHES["old" if listed[1] == old_times else name], *listed)
            for name, listed in said["lists"].items()
        },
        tuple(said["core"]),
        {name: (how, other) for name, (how, other) in said["breaks"].items()},
        said["acts"],
        tuple(said["streams"]),
        by_lists=not said.get("register", False),
    )


def _written(membership: Membership, timing: Timing) -> list[Any]:
    return [[[member.id, str(member.kind), member.priority] for member in membership.members], list(timing)]


def _listed(hash_: str, members: list[list[Any]], timing: list[int]) -> tuple[Membership, Timing]:
    rows = [Member(id_, MemberKind(kind), priority) for id_, kind, priority in members]
    return Membership.of(rows, hash_), Timing(*timing)


# --- writing ----------------------------------------------------------------------------------------------------------


def record(plan: Plan, seed: int, build: Build | None = None, *, storms: bool = False) -> FaultPlan:
    """Runs this seed and writes down what it drew, with these machines. `storms`: it has one, which is stilled again
    and again."""
    assert plan.strategy == "raft", plan.strategy
    trial = (_Stilled if storms else RaftTrial)(plan, seed, build)
    nodes = [
        (node.name, node.clock.local0, node.clock.rate, node.clock.wall_offset_ms)
        for node in trial.world.nodes.values()
    ]
    conditions = {name: getattr(trial.world.conditions, name) for name in Conditions.__slots__}
    lists = {"old": trial.faults.list_now()}
    if trial.faults.change is not None:
        lists["new"] = (trial.faults.change.membership, trial.faults.change.timing)
    acts: list[Written] = []
    trial.faults.acts.write(acts.append)
    outcome = trial.run()
    rule = "E2" if storms else outcome.violations[0].rule if outcome.violations else ""
    core = trial.core_drawn or trial.liveness.core
    return FaultPlan(plan, seed, rule, trial.first_start, conditions, nodes, lists, core, trial.breaks, acts)


class _Calming(World):
    """A world whose storms are stilled, so that what is drawn after them can be written down, too."""

    def run(self, until_ms: float) -> None:
        self.pace = Pace(float("inf"), float("inf"))
        while self.now < until_ms:
            self.events_max = self.count.events + STORM
            try:
                super().run(min(until_ms, self.now + WATCHED_MS))
            except Overrun:
                self.drop_messages()


class _Stilled(RaftTrial):
    def _make_world(self, build: Build, store: SimStore | None) -> World:
        return _Calming(f"world/{self.seed}", build, store)


# --- living it again --------------------------------------------------------------------------------------------------


class Replayed(RaftTrial):
    """A trial by a fault plan instead of by draws."""

    def __init__(self, faults: FaultPlan, streams: int = 0, build: Build | None = None) -> None:
        self.recorded = faults
        self.streams = streams
        self.applied = ""
        """The file whose members the operator asks for, of a plan from before there were registers."""
        super().__init__(faults.plan, faults.seed, build)

    def _draw_first_start(self) -> str:
        return self.recorded.first_start

    def _make_world(self, build: Build, store: SimStore | None) -> World:
        if self.streams:
            return _Streamed(f"{self.seed}/{self.streams}", build, store)
        return World(f"world/{self.seed}", build, store)

    def _populate(self) -> None:
        for name, value in self.recorded.conditions.items():
            setattr(self.world.conditions, name, value)
        acts, lists = self.faults.acts, self.recorded.lists
        acts.lists = lists
        self._first_list = lists["old"][0]
        for name, offset_ms, rate, wall_offset_ms in self.recorded.nodes:
            which = "new" if name not in self.names and self.recorded.by_lists else "old"
            node = self.world.add(name, Clock(offset_ms, rate, wall_offset_ms), lists[which][0], self.timing)
            node.introduced = name in self.names
            if self.first_start == "formed" and node.introduced:
                self._form(node)
        for at_ms, name, *given in self.recorded.acts:
            if at_ms > self.calm_ms + SETTLED_MS:
                continue  # an older plan: a roll-out went on after the calm
            self.world.last_at(at_ms, partial(acts.do, name, given))  # a blow falls after what it is aimed at
            if name == "give_list" and self.recorded.by_lists:
                self.world.last_at(at_ms, partial(self._apply, given[1]))

    def _draw_classes(self) -> tuple[str, ...]:
        if any(act[1] == "change_members" for act in self.recorded.acts):
            self._allow_spares()
        return ()

    def _begin_faults(self, calm_ms: float) -> None:
        self.faults.end_ms = calm_ms

    def _draw_core(self, voters: tuple[str, ...]) -> tuple[str, ...]:
        """Those that were not broken; and while that is no quorum of the members that there are now, others too."""
        broken = [name for name in voters if name in self.recorded.breaks]
        while not self._may_elect_without(broken) and broken:
            broken.pop()
        return tuple(sorted(name for name in voters if name not in broken))

    def _draw_break(self, name: str, core: tuple[str, ...]) -> tuple[int, str]:  # noqa: ARG002
        return self.recorded.breaks[name]

    # --- plans from before there were registers -----------------------------------------------------------------------

    def _apply(self, which: str) -> None:
        """The operator has given a node this file, and says `members apply`."""
        begins, self.applied = not self.applied, which
        if begins:
            self._apply_again()

    def _apply_again(self) -> None:
        wanted = self.recorded.lists[self.applied][0].members
        newest = self.newest()
        if {(m.id, m.kind, m.priority) for m in newest.members} != {(m.id, m.kind, m.priority) for m in wanted}:
            rows = [(m.id, str(m.kind), m.priority, "") for m in wanted]
            for name in fault_members.leaders(self.faults):
                self.faults.acts.change_members(name, rows, "first")
        if self.world.now < self.calm_ms + self.unit_ms:
            self.world.after(self.unit_ms, self._apply_again)

    # --- judging ------------------------------------------------------------------------------------------------------

    def _nothing_is_wrong(self) -> bool:
        """The acts do not say of which class they are."""
        return False

    def _is_quiet_for(self, node: str) -> bool:
        """Before the calm, nothing says which acts belong to a fault that still goes on."""
        return self.liveness.calm_ms is not None and super()._is_quiet_for(node)


STREAMS: dict[type, str] = {Heartbeat: "Beat", FailsafeHeartbeat: "FailsafeBeat", HeartbeatRequest: "Heartbeat"}
"""The streams that the recorded plans know; a kind renamed since keeps the name, or the plans meet other draws."""


class _Streamed(World):
    """Draws from a stream of its own for each way and kind of message, and for each node and use."""

    def __init__(self, name: str, build: Build, store: SimStore | None) -> None:
        super().__init__(name, build, store)
        self.name = name
        self._ways_drawn: dict[tuple[str, str, str], Callable[[], float]] = {}
        self._made: dict[str, int] = {}

    def chance_of(self, name: str, use: str) -> Random:
        """A second machine with the same id draws other numbers."""
        key = f"{self.name}/{name}/{use}"
        self._made[key] = self._made.get(key, 0) + 1
        return Random(f"{key}/{self._made[key]}")

    def send(self, node: Node, to: str, message: Message) -> None:
        kind = type(message)
        key = (node.name, to, STREAMS.get(kind, kind.__name__))
        draw = self._ways_drawn.get(key)
        if draw is None:
            draw = self._ways_drawn[key] = Random(f"{self.name}/{'/'.join(key)}").random
        self._draw = iter([draw() for _ in range(DRAWS_PER_MESSAGE)]).__next__
        super().send(node, to, message)


def replayed(faults: FaultPlan, streams: int = 0) -> Outcome:
    """One trial, from its fault plan."""
    return Replayed(faults, streams).run()
