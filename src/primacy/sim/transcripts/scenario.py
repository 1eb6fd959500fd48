"""A small cluster in a calm world, and everything that a scene may do to it.

Messages take a millisecond, timers are exact, clocks run true, the work starts and stops within 5 ms and obeys TERM,
until the scene says otherwise. `transcript.py` has the language; this is what its commands do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from primacy.election.inputs import (
    CancelChange,
    ChangeMembers,
    ForceMembers,
    Init,
    Input,
    MembersChanged,
    Pause,
    Received,
    Rejoin,
    Resume,
    StepDown,
)
from primacy.election.messages import Alive, Message, Origin
from primacy.election.model import Ballot, Kind, ListRecord, Member, Membership
from primacy.election.raft.register import FIRST, first_register
from primacy.election.store import FAILSAFE
from primacy.errors import UsageError
from primacy.settings.timing import PROFILES_OF, Timing
from primacy.sim.checkers import TermChecker, WorkChecker
from primacy.sim.transcripts.text import TranscriptText
from primacy.sim.trials.changed import changing
from primacy.sim.trials.strategy_table import entry_of, timing_for
from primacy.sim.trials.trial import BASE, Plan
from primacy.sim.world.clock import Clock
from primacy.sim.world.guard import Phase
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore
from primacy.sim.world.world import World
from primacy.supervise.gate import Approved
from primacy.supervise.vocabulary import State

RESTART_MS = 20
"""How long a restart with a new file takes."""
BEGINS = ("formed", "blank", "auto", "off", "failsafe", "changes")
"""How a scene may begin, see `Scenario.cluster`."""
LEASES = ("lease", "other-lease")
"""Files that a node can be given besides that of raft, each with a store of its own."""
ELECT_MAX_MS = 60_000
"""`elect` gives up after this long."""


class TranscriptError(UsageError):
    """A scene that cannot be played: says file, line, and what is wrong there."""


class Scenario:
    """A world, its teller, and what can be done there. Methods that return lines show something at once."""

    def __init__(self) -> None:
        self.transcript = TranscriptText()
        self.plan = Plan()
        self.auto = False
        self._world: World | None = None
        self._copies: dict[str, Ballot | None] = {}
        self._duplicates: dict[str, Node] = {}
        self._stopped: dict[str, list[Callable[[], None]]] = {}
        self._version = 0

    # --- the members --------------------------------------------------------------------------------------------------

    @property
    def world(self) -> World:
        if self._world is None:
            raise TranscriptError("a scene begins with `> cluster ...`")
        return self._world

    @property
    def now_ms(self) -> float:
        return self._world.now if self._world is not None else 0.0

    def node(self, name: str) -> Node:
        node = self.world.nodes.get(name)
        if node is None:
            raise TranscriptError(f"unknown node {name!r}; there are {', '.join(self.world.nodes)}")
        return node

    def nodes(self, names: str) -> list[Node]:
        return [self.node(name) for name in names.split()]

    def cluster(self, words: str) -> None:
        """Builds the world: nodes, options as name=value, and how it begins.

        `formed` (the default): with a first ballot on every disk. `blank`: without. `auto`: without, and with
        `first_start: auto`. `off`: nobody is started yet. `failsafe`: a lease with a fixed list (L7). `changes`: nodes
        of raft can be given other files: those of `LEASES`.
        """
        options = dict(word.split("=", 1) for word in words.split() if "=" in word)
        begins = [word for word in words.split() if word in BEGINS]
        members = [word for word in words.split() if "=" not in word and word not in BEGINS]
        self.plan = Plan(strategy=options.pop("strategy", "raft"), profile=options.pop("profile", "lab"))
        if self.plan.profile not in PROFILES_OF.get(self.plan.strategy, ()):
            raise TranscriptError(f"no profile {self.plan.profile!r} of strategy {self.plan.strategy!r}")
        self.auto, changes = "auto" in begins, "changes" in begins
        entry = entry_of(self.plan.strategy)
        timing = timing_for(self.plan.strategy, self.plan.profile)
        store = None
        if self.plan.strategy == "lease" and isinstance(timing, Timing):
            store = SimStore(wait_max_ms=timing.wait_ms)
        build = entry.build(self.auto)
        if changes and isinstance(timing, Timing):
            stores = {file: SimStore(wait_max_ms=timing.wait_ms) for file in LEASES}
            build, store = changing(stores, auto=self.auto), stores[LEASES[0]]
        world = World(f"transcript/{options.pop('seed', '1')}", build, store)
        if options:
            raise TranscriptError(f"unknown option {', '.join(options)}; there are strategy, profile, seed")
        _calm(world)
        self._world = world
        self.transcript.prepare(self.plan.strategy, BASE)
        world.listeners.append(self.transcript.fact)
        if entry.holds:
            world.listeners += [WorkChecker(self.transcript.violation), TermChecker(self.transcript.violation)]
        world.watches_messages = self.transcript.message
        membership = self._list_of(members, self.plan.profile)
        for name in membership.ids:
            node = self._add(name, membership)
            node.failsafe = "failsafe" in begins
            if node.failsafe:
                self.world.lease_name = FAILSAFE + "main"
            if self.plan.strategy == "raft" and not self.auto and "blank" not in begins:
                record = ListRecord(membership.hash, membership.voters, confirmed=True)
                register = first_register(membership.members)
                node.disk.ballot = Ballot(BASE, 0, "", node.timing.hold_ms, BASE, 0, (record,), register=register)
            node.disk.strategy = self.plan.strategy
        if "off" not in begins:
            self.start(" ".join(membership.ids))

    def _add(self, name: str, membership: Membership) -> Node:
        place = len(self.world.nodes) + 1
        clock = Clock(place * 100_000.0, 1.0, BASE + place * 1_000)
        return self.world.add(name, clock, membership, timing_for(self.plan.strategy, self.plan.profile))

    def _list_of(self, words: list[str], profile: str) -> Membership:
        """A list from `a b:witness c:2`; its hash is readable and covers the times alone."""
        members = _members_of(words)
        if not members:
            raise TranscriptError("a list of nodes is needed")
        return Membership.of(members, profile)

    # --- time ---------------------------------------------------------------------------------------------------------

    def pass_time(self, amount: str, unit: str) -> None:
        self.world.run(self.world.now + float(amount) * (1_000 if unit == "s" else 1))

    def elect(self, name: str) -> None:
        """Lets this node become leader by pausing the others meanwhile; only the result is told."""
        node = self.node(name)
        others = [other for other in self.world.nodes.values() if other is not node and other.up]
        self.transcript.silent = True
        for other in others:
            self.world.give(other, Pause())
        until_ms = self.world.now + ELECT_MAX_MS
        while not self._leads(node, others):
            if self.world.now >= until_ms:
                raise TranscriptError(f"{name} does not become leader")
            self.world.run(self.world.now + 10)
        for other in others:
            self.world.give(other, Resume())
        self.transcript.silent = False
        self.transcript.begin(self.world.now)

    def _leads(self, node: Node, others: list[Node]) -> bool:
        working = node.guard is not None and node.guard.phase is Phase.RUNNING
        working = working or (node.workload is not None and node.workload.gate.waits)
        return node.role == "leader" and working and all(other.leader == node.name for other in others)

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self, names: str) -> None:
        for node in self.nodes(names):
            self.world.start(node)

    def kill(self, names: str) -> None:
        for node in self.nodes(names):
            self.world.crash(node)

    def power_off(self, names: str) -> None:
        for node in self.nodes(names):
            self.world.crash(node, power=True)

    def stop(self, name: str) -> None:
        self._stopped.setdefault(name, []).append(self.world.stop_agent(self.node(name)))

    def freeze(self, name: str) -> None:
        self._stopped.setdefault(name, []).append(self.world.stop_agent(self.node(name), frozen=True))

    def go_on(self, name: str) -> None:
        for resume in self._stopped.pop(name, []):
            resume()

    def freeze_guard(self, name: str) -> None:
        for guard in self.node(name).guards:
            guard.freeze(True)

    def thaw_guard(self, name: str) -> None:
        for guard in tuple(self.node(name).guards):
            guard.freeze(False)

    def kill_guard(self, name: str) -> None:
        for guard in tuple(self.node(name).guards):
            guard.kill_guard()

    def end_child(self, name: str) -> None:
        for guard in tuple(self.node(name).guards):
            guard.child_ends()

    def duplicate(self, name: str) -> None:
        """A second machine with this id and a copy of its disk; what is sent to the id reaches the first."""
        node = self.node(name)
        duplicate = Node(self.world, node.index, node.name, node.clock, node.membership, node.timing)
        duplicate.disk.ballot = self._copies.get(name, node.disk.ballot)
        self._duplicates[name] = duplicate
        self.world.start(duplicate)

    def end_duplicate(self, name: str) -> None:
        self.world.crash(self._duplicates.pop(name), power=True)

    # --- network ------------------------------------------------------------------------------------------------------

    def cut(self, sides: str) -> None:
        parts = [self.nodes(side) for side in sides.split("|")]
        for place, left in enumerate(parts):
            for right in parts[place + 1 :]:
                for a in left:
                    for b in right:
                        self.world.cut(a.name, b.name)
                        self.world.cut(b.name, a.name)

    def cut_one_way(self, senders: str, receivers: str) -> None:
        for a in self.nodes(senders):
            for b in self.nodes(receivers):
                self.world.cut(a.name, b.name)

    def heal(self) -> None:
        for node in self.world.nodes.values():
            node.cut.clear()

    def hold(self, name: str) -> None:
        self.node(name).held = []

    def let_go(self) -> None:
        for node in self.world.nodes.values():
            held, node.held = node.held, None
            for to, message in held or []:
                self.world.deliver_later(1, to, message)

    def repeat(self, name: str, later_ms: str) -> None:
        """From now on every message of this node arrives a second time."""
        self.node(name)
        tell = self.world.watches_messages

        def again(at_ms: float, sender: str, to: str, message: Message, delay_ms: float) -> None:
            if tell is not None:
                tell(at_ms, sender, to, message, delay_ms)
            if sender == name and delay_ms >= 0:
                self.world.deliver_later(delay_ms + float(later_ms), to, message)

        self.world.watches_messages = again

    def conditions(self, words: str) -> None:
        for word in words.split():
            name, _, value = word.partition("=")
            if not hasattr(self.world.conditions, name):
                raise TranscriptError(f"the conditions have no {name!r}")
            setattr(self.world.conditions, name, float(value))
        for workload in [node.workload for node in self.world.nodes.values() if node.workload is not None]:
            stop_ms = int(self.world.conditions.planned_stop_ms)  # also of a command that runs already
            workload.watchdog.policy = workload.watchdog.policy._replace(stop_ms=stop_ms)

    # --- clocks and disks ---------------------------------------------------------------------------------------------

    def drift(self, name: str, percent: str) -> None:
        node = self.node(name)
        node.clock.set_rate(self.world.now, 1 + float(percent) / 100)
        self.world.rearm(node)

    def disk_full(self, name: str) -> None:
        self.node(name).disk.full = True

    def disk_free(self, name: str) -> None:
        self.node(name).disk.full = False

    def forget(self, name: str) -> None:
        """The machine goes off and its ballot is lost."""
        node = self.node(name)
        self.world.crash(node, power=True)
        node.disk.lose()

    def back_up(self, name: str) -> None:
        self._copies[name] = self.node(name).disk.ballot

    def restore(self, name: str) -> None:
        """The machine goes off and an old copy of its disk is put back."""
        if name not in self._copies:
            raise TranscriptError(f"there is no copy of the disk of {name}: `> back up {name}` comes first")
        node = self.node(name)
        self.world.crash(node, power=True)
        node.disk.ballot = self._copies[name]

    def put_term(self, name: str, term: str) -> None:
        """As if the node had taken part in elections that nobody else saw."""
        self._put_on_disk(name, term=int(term), voted_for="*")

    def put_token(self, name: str, above_base: str) -> None:
        """As if the node had seen a token of a lease that nobody else saw."""
        ballot = self.node(name).disk.ballot
        self._put_on_disk(name, token_max=int(above_base) + (ballot.base if ballot is not None else 0))

    def _put_on_disk(self, name: str, **fields: Any) -> None:
        node = self.node(name)
        if node.up or node.disk.ballot is None:
            raise TranscriptError(f"{name} must be off and have a ballot")
        node.disk.ballot = node.disk.ballot._replace(**fields)

    # --- people -------------------------------------------------------------------------------------------------------

    def tell(self, name: str, given: Input) -> None:
        if not self.node(name).up:
            raise TranscriptError(f"{name} is off and hears nothing")
        self.world.give(self.node(name), given)

    def init(self, names: str, without: str | None) -> None:
        for node in self.nodes(names):
            self.tell(node.name, Init(node.clock.wall_ms(self.world.now), tuple((without or "").split())))

    def rejoin(self, name: str, without: str | None) -> None:
        self.tell(name, Rejoin(tuple((without or "").split())))

    def step_down(self, name: str, successor: str | None) -> None:
        self.tell(name, StepDown(successor, "transfer") if successor else StepDown())

    def approve(self, name: str) -> None:
        """What its start was kept back for is there (G8)."""
        workload = self.node(name).workload
        if workload is None or not workload.gate.waits:
            raise TranscriptError(f"{name} does not wait for an approval: `> conditions deferred=1` comes first")
        workload.hear(Approved(workload.gate.term, "an operator"))

    def new_list(self, words: str, names: str) -> None:
        """The nodes get a new file and are restarted; a new name is a new machine."""
        membership = self._list_of(words.split(), self.plan.profile)
        for name in names.split():
            if name not in self.world.nodes:
                self._add(name, membership)
            self._restart(self.node(name), membership, self.node(name).timing)

    def new_timing(self, profile: str, names: str) -> None:
        if profile not in PROFILES_OF[self.plan.strategy]:
            raise TranscriptError(f"no profile {profile!r} of strategy {self.plan.strategy!r}")
        for node in self.nodes(names):
            self._restart(node, node.membership._replace(hash=profile), timing_for(self.plan.strategy, profile))

    def new_file(self, file: str, names: str) -> None:
        """A lease, another one, or raft again (M1)."""
        if file not in ("raft", *LEASES):
            raise TranscriptError(f"no file {file!r}; there are raft, {', '.join(LEASES)}")
        strategy, config = ("lease", file) if file in LEASES else ("raft", self.plan.profile)
        for node in self.nodes(names):
            self._restart(node, node.membership._replace(hash=config), timing_for(strategy, self.plan.profile))

    def _restart(self, node: Node, membership: Membership, timing: object) -> None:
        self.world.crash(node)
        node.membership, node.timing = membership, timing
        self.world.after(RESTART_MS, lambda: self.world.start(node))

    def join(self, name: str, through: str) -> None:
        """A new node joins a running cluster (bully, ring): all get the new list, and it is told who leads."""
        known = [*self.world.nodes, name]
        membership = Membership.of(known, "")
        node = self._add(name, membership)
        self.world.start(node)
        self._tell_members()
        leader = self.node(through).leader
        self.tell(name, Received(Alive(Origin(through), 0, leader)))

    def remove(self, name: str) -> None:
        """An operator removes a node from the list of a cluster that grows by joining."""
        del self.world.nodes[self.node(name).name]
        self._tell_members()

    def _tell_members(self) -> None:
        self._version += 1
        members = tuple((name, 0, 0) for name in sorted(self.world.nodes))
        for node in self.world.nodes.values():
            self.world.give(node, MembersChanged(members, self._version))

    def machine(self, name: str) -> None:
        """A new machine, without memory, with the file that the others had at first."""
        self._add(name, next(iter(self.world.nodes.values())).membership)
        self.start(name)

    def members(self, words: str) -> None:
        """An operator asks the leader for these members."""
        self._tell_leader(ChangeMembers(tuple(_members_of(words.split())), "an operator"))

    def cancel_members(self) -> None:
        self._tell_leader(CancelChange("an operator"))

    def force_members(self, name: str, without: str) -> None:
        self.tell(name, ForceMembers(tuple(without.split())))

    def _tell_leader(self, given: Input) -> None:
        leading = [node.name for node in self.world.nodes.values() if node.up and node.role == "leader"]
        if len(leading) != 1:
            raise TranscriptError(f"one node must lead to be asked, and these do: {', '.join(leading) or 'none'}")
        self.tell(leading[0], given)

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def store(self) -> SimStore:
        if self.world.store is None:
            raise TranscriptError(f"strategy {self.plan.strategy!r} has no store")
        return self.world.store

    def store_away(self) -> None:
        self.world.store_way.up = False

    def store_hangs(self) -> None:
        self.world.store_way.hangs = True

    def store_back(self) -> None:
        self.world.store_way.up = True
        self.world.store_way.go_on()

    def store_cut(self, name: str) -> None:
        self.node(name).cut["store"] = 1

    def store_fails_over(self, lost: str | None) -> None:
        self.store.fail_over(int(lost or 0))

    # --- looking ------------------------------------------------------------------------------------------------------

    def show(self) -> list[str]:
        """One row per node: what it is, whom it follows, what its work does, and what it waits for."""
        rows = [("node", "role", "leader", "term", "work", "waits for")]
        for name, node in self.world.nodes.items():
            waits = [State.WAITING] if node.workload is not None and node.workload.gate.waits else []
            work = ", ".join([*waits, *(str(guard.phase) for guard in node.guards)]) or "-"
            if node.machine is None:
                rows.append((name, "off", "-", "-", work, ""))
                continue
            view = node.machine.view(node.local_ms())
            role = f"{view.role} (stopped)" if node.stopped else str(view.role)
            waits_for = f"members: {view.change}" if view.change and not view.waits_for else view.waits_for
            if view.members not in (None, FIRST):
                role = f"{role}, members {view.members}"
            rows.append((name, role, view.leader or "-", self.transcript.term(view.term), work, waits_for))
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        return [
            "        " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]


def _members_of(words: list[str]) -> list[Member]:
    """From `a b:witness c:2`, the last with a priority."""
    members = []
    for word in words:
        name, _, more = word.partition(":")
        kind = Kind(more) if more in list(Kind) else Kind.VOTER
        members.append(Member(name, kind, int(more) if more.lstrip("-").isdigit() else 0))
    return members


def _calm(world: World) -> None:
    conditions = world.conditions
    conditions.delay_min_ms, conditions.delay_span_ms, conditions.late_ms = 1.0, 0.0, 0.0
    conditions.spawn_ms = conditions.stop_ms = 5.0
    conditions.ignores_term = conditions.slow_kill = 0.0
    conditions.store_ms = 1.0
