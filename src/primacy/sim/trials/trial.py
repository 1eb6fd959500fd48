"""One trial of a cluster: built, tormented, calmed and judged, all from one seed.

Safety phase: faults of the drawn classes, judged at every fact. Then the calm: a majority core is healed, what is left
stays broken, and a leader must appear within the bound and stay. The seed alone decides everything; a trial can be
replayed with fewer fault classes or fewer nodes, which is how a failing one is shrunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from random import Random

from primacy.election.events import Code
from primacy.election.inputs import Init
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.model import Ballot, ListRecord, Member, Membership
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.store import FAILSAFE, WAIT_MAX_MS
from primacy.settings.timing import PPM, RankTiming, Timing
from primacy.sim.checkers import LivenessChecker, TermChecker, Violation, WorkChecker
from primacy.sim.facts import Fact, Kind
from primacy.sim.faults.classes import Change, Faults, classes_of
from primacy.sim.trials.operator import Operator
from primacy.sim.trials.strategy_table import Build, bound_ms, entry_of, events_max, pace_of, timing_for, unit_ms
from primacy.sim.world import engines
from primacy.sim.world.clock import Clock
from primacy.sim.world.node import Node
from primacy.sim.world.store import SimStore
from primacy.sim.world.world import Overrun, World

BEYOND = ("lone", "forgetful")
"""What trials of raft leave out unless they are told not to, for no rule can help there (docs/faults.md, F37).

- lone: the members shrink to one voter, which may be doubled. Nobody is there who hears both machines.
- forgetful: more than a minority may lose its memory, and with it what tokens there were.
"""
BASE = 1_700_000_000_000
"""Token base of clusters that are formed before the trial begins."""
VIOLATIONS_MAX = 20
"""A broken rule shows again and again; the first ones say it all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be simulated. With the seed, it determines a trial byte for byte."""

    strategy: str = "raft"
    nodes: int = 5
    profile: str = "lan"
    minutes: float = 2.0
    faults: tuple[str, ...] | None = None
    """The allowed classes; a random subset of them is drawn. None: all of the strategy's."""
    draw: bool = True
    """False: all allowed classes are used, none is drawn away."""
    drift: float = 0.01
    timing: Timing | RankTiming | None = None
    deferred: float = 0.0
    """Share of the starts that are kept back on purpose, for up to five holds (G8): manual mode, a fence command."""
    members: tuple[Member, ...] = ()
    """The nodes of a user's file, with their kinds and priorities, instead of n1, n2, ..."""
    members_change: bool = False
    """Operators of raft change the members in every trial, and use the last resort in some; else in a part of them."""
    changes: bool = False
    """Nodes get files with another strategy, store or times, one after the other (M1): `ChangedTrial`."""
    beyond: tuple[str, ...] = ()
    """Limits of what is promised that this trial goes beyond, of `BEYOND`: a violation in it may be one that physics
    makes, and a test that lifts one says what it expects."""
    engine: str = ""
    """Lease: which kind of store, of `sim/world/engines.py`; empty: drawn for each seed."""


@dataclass(slots=True)
class Outcome:
    """What came of a trial."""

    seed: int
    classes: tuple[str, ...] = ()
    violations: list[Violation] = field(default_factory=list)
    simulated_ms: float = 0.0
    elections: int = 0
    starts: int = 0
    gaps_ms: list[float] = field(default_factory=list)
    needless: int = 0
    sent: int = 0
    steps: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    rare: dict[str, int] = field(default_factory=dict)
    working_ms: float = 0.0
    leader_after_ms: float | None = None
    within_bound: bool | None = None
    """Whether a leader was there within the bound itself, of which P1 allows three; None if that was not judged."""
    trace_hash: str = ""
    engine: str = ""
    """Lease: the kind of store that was drawn, or given."""

    @property
    def overlaps(self) -> int:
        return sum(1 for violation in self.violations if violation.rule == "I1")


class Trial:
    """Builds a world from a plan and a seed, runs it, and judges it."""

    def __init__(self, plan: Plan, seed: int, build: Build | None = None) -> None:
        assert type(self) is not Trial or plan.strategy != "raft", "trial_of says which trial a plan asks for"
        self.plan = plan
        self.seed = seed
        self.entry = entry_of(plan.strategy)
        self.chance = Random(f"{plan.strategy}/{seed}")
        self.outcome = Outcome(seed)
        self.timing = self.slowest = plan.timing or timing_for(plan.strategy, plan.profile)
        self.store_tells_time = self.store_watched = False
        width = len(str(plan.nodes))
        self.members = plan.members or tuple(Member(f"n{i + 1:0{width}}") for i in range(plan.nodes))
        self.names = tuple(sorted(member.id for member in self.members))
        self.first_start = self._draw_first_start() if plan.strategy == "raft" else ""
        store = self._draw_store() if plan.strategy == "lease" else None
        self.world = self._make_world(build or self._build(), store)
        self.unit_ms = unit_ms(self.timing)
        self.faults = Faults(self.world, Random(f"faults/{seed}"), self.names, self.unit_ms)
        self.work = WorkChecker(self._violated if self.entry.holds else _ignore)
        self.terms = TermChecker(self._violated)
        bound = bound_ms(plan.strategy, self.slowest, len(self.names))
        self.liveness = LivenessChecker(bound, watch_ms(self.slowest, store))
        self.last_trouble_ms = 0.0
        self.broken: dict[str, bool] = {}
        self.apart: dict[str, bool] = {}
        """Nodes of the core that one broken node does not hear."""
        self.core_drawn: tuple[str, ...] = ()
        self.breaks: dict[str, tuple[int, str]] = {}
        """How each node that stays broken is broken, and from whom it is cut if only from one."""
        self.led_since: dict[str, int] = {}
        self.leads: dict[str, int] = {}
        """Under which token a node leads."""
        self.led_until: dict[int, float] = {}
        """Of each token, in true time; without end while its node leads."""
        self.slow_node = ""
        """The node that has a longer hold than the others."""
        self.operator = Operator(self)
        self.world.events_max = events_max(self.timing, len(self.names), plan.minutes)
        self.world.pace = pace_of(plan.strategy, self.timing, len(self.names))
        self.world.listeners += [self.work, self.terms, self.liveness, self._count]
        self._populate()

    # --- building -----------------------------------------------------------------------------------------------------

    def _draw_store(self) -> SimStore:
        """Which kind of store it is, and whether one node has a longer hold than the others (L3, `wait_max`)."""
        chance = Random(f"store/{self.seed}")
        assert isinstance(self.timing, Timing)
        engine = engines.drawn(chance, self.seed)
        if self.plan.engine:
            engine = engines.BY_NAME[self.plan.engine]
        self.outcome.engine = engine.name
        if self.plan.timing is None and chance.random() < 0.3:
            slower = _scaled(self.timing, 1.6)
            self.slowest = slower if not engine.objects or slower.wait_ms <= WAIT_MAX_MS else self.timing
        assert isinstance(self.slowest, Timing)
        settled, raft_index = chance.random() < 0.5, chance.choice((4, 5_000))
        wait_max_ms = WAIT_MAX_MS if engine.objects else self.slowest.wait_ms
        store = SimStore(engine, settled=settled, wait_max_ms=wait_max_ms, raft_index=raft_index)
        self.store_tells_time = chance.random() < 0.5 and engine.tells_time
        self.store_watched = chance.random() < 0.15
        return store

    def _draw_first_start(self) -> str:
        return self.chance.choice(("formed", "formed", "auto", "init"))

    def _build(self) -> Build:
        return self.entry.build(self.first_start == "auto")

    def _make_world(self, build: Build, store: SimStore | None) -> World:
        return World(f"world/{self.seed}", build, store)

    def _populate(self) -> None:
        self._draw_conditions()
        self.faults.drift = self.plan.drift
        self.faults.walls_agree = self.chance.random() < 0.5
        self.faults.memory_left = len(self.names) if "forgetful" in self.plan.beyond else (len(self.names) - 1) // 2
        membership = self._first_list = self._first_membership()
        self.faults.change = self._draw_change()
        failsafe = self.plan.strategy == "lease" and len(self.names) > 1 and self.chance.random() < 0.3
        if failsafe:
            self.world.lease_name = FAILSAFE + self.world.lease_name
        elif self.slowest != self.timing:
            self.slow_node = self.names[0]
        self._set_store_clock()
        for name in self.names:
            node = self._add(name, membership)
            node.failsafe, node.watched = failsafe, self.store_watched
            self.world.after(self.chance.uniform(0, 50), partial(self.faults.acts.start, name))
            if self.first_start == "formed":
                self._form(node)
        if self.first_start == "init":
            said = [self.chance.choice(self.names) for _ in range(self.chance.choice((1, 1, 2)))]
            for name in said:
                self.world.after(self.chance.uniform(60, self.unit_ms), partial(self.faults.acts.tell, name, "init"))

    def _first_membership(self) -> Membership:
        return Membership.of(self.members, "list-1")

    def _form(self, node: Node) -> None:
        """As if it had been in this cluster before the trial began."""
        record = ListRecord(node.membership.hash, node.membership.voters, confirmed=True)
        node.disk.ballot = Ballot(BASE, 0, "", node.timing.hold_ms, BASE, 0, (record,))

    def _set_store_clock(self) -> None:
        """A store may tell its wall clock, which is as good, or as bad, as those of the nodes (T1)."""
        store = self.world.store
        if store is not None and self.store_tells_time:
            skew_ms = int(
                Random(f"wall/{self.seed}").uniform(-1, 1) * (0.2 * self.unit_ms if self.faults.walls_agree else 1e7)
            )
            store.wall_ms = lambda: BASE + skew_ms + int(self.world.now)

    def _draw_conditions(self) -> None:
        """How the work behaves in this trial: quick or sluggish, polite or deaf to TERM."""
        conditions = self.world.conditions
        conditions.spawn_ms = self.chance.choice((2.0, 20.0, 0.05 * self.unit_ms))
        conditions.stop_ms = self.chance.choice((5.0, 30.0, 0.3 * self.unit_ms))
        conditions.ignores_term = self.chance.choice((0.0, 0.1, 1.0))
        conditions.slow_kill = self.chance.choice((0.05, 0.3, 1.0))
        conditions.deferred, conditions.deferred_ms = self.plan.deferred, 5 * self.unit_ms
        conditions.planned_stop_ms = int(self.unit_ms * self.chance.choice((0.1, 1.0, 3.0)))

    def _add(self, name: str, membership: Membership) -> Node:
        chance = self.chance
        rate = 1 + chance.choice((-1, 1, chance.uniform(-1, 1))) * self.plan.drift
        skew_ms = 0.2 * self.unit_ms if self.faults.walls_agree else 1e7
        clock = Clock(chance.uniform(1e3, 1e9), rate, BASE + int(chance.uniform(-skew_ms, skew_ms)))
        return self.world.add(name, clock, membership, self.slowest if name == self.slow_node else self.timing)

    def _draw_change(self) -> Change | None:
        """What an operator may roll out in this trial."""
        return None

    def _say_init(self, name: str) -> None:
        node = self.world.nodes[name]
        self.world.give(node, Init(node.clock.wall_ms(self.world.now)))

    def _draw_classes(self) -> tuple[str, ...]:
        """A random subset; drawn in any case, so that a seed makes the same trial when its classes are given."""
        share = self.chance.choice((0.15, 0.3, 0.6))
        drawn = [name for name in classes_of(self.plan.strategy) if self._draws(name, share)]
        allowed = self.plan.faults if self.plan.faults is not None else classes_of(self.plan.strategy)
        if not self.plan.draw:
            return tuple(allowed)
        return tuple(name for name in drawn if name in allowed)

    def _draws(self, name: str, share: float) -> bool:
        """Whether a class is in this trial.

        `extremes` came later and draws apart, so that seeds without it keep their histories. It is in every trial whose
        clocks may drift further than the machines allow for: there it is the control that must find an overlap.
        """
        if name != "extremes":
            return self.chance.random() < share
        assert isinstance(self.timing, Timing)
        return self.plan.drift * PPM > self.timing.drift_ppm or Random(f"{name}/{self.seed}").random() < share

    # --- living -------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        try:
            self._live_through()
        except Overrun as error:
            # always kept, for it says why the trial ended
            self.outcome.violations.append(Violation(self.world.now, "E2", str(error)))
        return self._finish(self.world.now)

    def _live_through(self) -> None:
        end_ms, calm_ms = self.plan.minutes * 60_000, self.calm_ms
        self.outcome.classes = self._draw_classes()
        self._begin_faults(calm_ms)
        if self.entry.holds:
            self._look_at_beliefs()
        self.world.run(calm_ms)
        self._calm()
        self.world.run(end_ms)
        if self.liveness.watch_ms:
            self.world.run(max(end_ms, self._judged_ms()))  # a short trial leaves no time for so long a wait
        while self.operator.acts and self.world.now < self._judged_ms():
            self.world.run(self._judged_ms())  # an operator had to help: the time counts from there
        self._judge_liveness()

    @property
    def calm_ms(self) -> float:
        """When all faults end."""
        end_ms = self.plan.minutes * 60_000
        return max(end_ms * 0.6, end_ms - 12 * self.liveness.bound_ms)

    def _judged_ms(self) -> float:
        return (self.liveness.calm_ms or 0.0) + self.liveness.limit_ms

    def _begin_faults(self, calm_ms: float) -> None:
        if self.chance.random() < 0.5:
            self.world.run(2 * self.unit_ms)  # half of the trials begin in peace
        self.faults.begin(self.outcome.classes, calm_ms)

    def _calm(self) -> None:
        """Heals everything, then breaks a minority for good, so that hidden dead ends show (P1)."""
        self.faults.calm()
        self.world.run(self.world.now + 200)
        for name in self.faults.names:
            self.world.start(self.world.nodes[name])
        if self.first_start == "init":
            self._repeat_init()
        core = self._core()
        for name in self.voters():
            if name not in core:
                core = tuple(sorted((*core, *self._break_for_good(name, core))))
        self.last_trouble_ms = self.world.now
        self.liveness.begin(self.world.now, core)
        if self.plan.strategy == "raft":
            self.operator.begin()

    def _repeat_init(self) -> None:
        """A first start that broke off is said again (M3), by an operator who sees that nobody has ever led."""
        machines = [self.world.nodes[name].machine for name in self.voters()]
        raft = [machine for machine in machines if isinstance(machine, RaftStrategy)]
        if raft and all(machine.term == 0 for machine in raft):
            self._say_init(self.voters()[0])

    def voters(self) -> tuple[str, ...]:
        """Who votes under the list that holds in the end."""
        return self.faults.final[0].voters if self.faults.final else self._first_list.voters

    def belonging(self) -> tuple[str, ...]:
        """Who must follow the leader in the end."""
        return self.voters()

    def _core(self) -> tuple[str, ...]:
        """A majority that speaks; all nodes if anybody is mute, or will be, for muteness may need all to end."""
        machines = [self.world.nodes[name].machine for name in self.faults.names]
        voters, belonging = self.voters(), self.belonging()
        raft = [m for m in machines if isinstance(m, RaftStrategy) and m.node in belonging]
        if any(m.muted or not m.state.booted for m in raft) or len({m.origin.base for m in raft}) > 1:
            return voters
        self.core_drawn = self._draw_core(voters)
        return self.core_drawn

    def _draw_core(self, voters: tuple[str, ...]) -> tuple[str, ...]:
        size = len(voters) // 2 + 1
        names = list(voters)
        self.chance.shuffle(names)
        return tuple(sorted(names[: self.chance.randrange(size, len(names) + 1)]))

    def _break_for_good(self, name: str, core: tuple[str, ...]) -> tuple[str, ...]:
        """Down, isolated, one-way, or cut from just one node (F14), which may still lead; returns who may lead."""
        node = self.world.nodes[name]
        self.broken[name] = True
        how, other = self.breaks[name] = self._draw_break(name, core)
        if how >= 4:
            self.world.cut(name, other)
            self.world.cut(other, name)
            self.apart[other] = True
            return (name,)
        if self.world.store is not None:
            self.world.cut(name, "store")
        if how == 0:
            self.world.crash(node, power=True)
        for other in self.faults.names:
            if other != name and how in (1, 2):
                self.world.cut(name, other)
            if other != name and how in (1, 3):
                self.world.cut(other, name)
        return ()

    def _draw_break(self, name: str, core: tuple[str, ...]) -> tuple[int, str]:  # noqa: ARG002
        how = self.chance.randrange(6 if self.plan.strategy == "raft" else 2)
        if how < 4:
            return how, ""
        leading = [other for other in core if self.world.nodes[other].role == "leader"]
        return how, self.chance.choice(leading or core)

    def _look_at_beliefs(self) -> None:
        """I6, now and then: a node that believes it leads was proved within TERM, on its own clock."""
        for name in self.faults.names:
            node = self.world.nodes[name]
            if node.machine is None or node.stopped or node.busy is not None or node.role != "leader":
                continue
            timing = node.timing
            led_ms = node.local_ms() - self.led_since.get(name, node.local_ms())
            unproved_ms = timing.hold_ms - node.machine.view(node.local_ms()).hold_left_ms
            if min(led_ms, unproved_ms) > timing.term_at_ms + 2 * timing.heartbeat_ms:
                sentence = f"{name} believes it leads, but nothing was proved for {unproved_ms} ms"
                self._violated(Violation(self.world.now, "I6", sentence))
        self.world.after(self.unit_ms * 0.17, self._look_at_beliefs)

    # --- judging ------------------------------------------------------------------------------------------------------

    def _violated(self, violation: Violation) -> None:
        if len(self.outcome.violations) < VIOLATIONS_MAX:
            self.outcome.violations.append(violation)

    def _judge_liveness(self) -> None:
        liveness = self.liveness
        calm_ms = liveness.calm_ms or 0.0
        if self._stuck_by_design():
            self.outcome.rare["memory not healed"] = 1
            return
        leaders = liveness.leaders()
        self.outcome.leader_after_ms = liveness.leader_after_ms
        after_ms = liveness.leader_after_ms
        self.outcome.within_bound = after_ms is not None and after_ms <= liveness.bound_ms + liveness.watch_ms
        if after_ms is None or after_ms > liveness.limit_ms:
            self._violated(Violation(calm_ms, "P1", f"no leader within {liveness.limit_ms:.0f} ms after the calm"))
        elif len(leaders) != 1:
            self._violated(Violation(self.world.now, "P1", f"leaders at the end: {', '.join(leaders) or 'none'}"))
        elif leaders[0] not in self.work.running:
            self._violated(Violation(self.world.now, "P2", f"{leaders[0]} leads, but its work does not run at the end"))
        elif self.plan.strategy != "lease":
            self._judge_agreement(leaders[0])
        if liveness.changes_after:
            self._violated(Violation(self.world.now, "P3", f"{liveness.changes_after} changes of a stable leader"))
        if liveness.candidacies_after and self.plan.strategy == "raft":
            sentence = f"{liveness.candidacies_after} terms were begun beside a stable leader"
            self._violated(Violation(self.world.now, "P4", sentence))

    def _judge_agreement(self, leader: str) -> None:
        """After the calm, all nodes of the core follow the one leader."""
        for name in self.liveness.core:
            if self.world.nodes[name].leader != leader and name not in self.broken and name not in self.apart:
                believed = self.world.nodes[name].leader or "nobody"
                self._violated(Violation(self.world.now, "P1", f"{name} follows {believed} while {leader} leads"))

    def _blank(self) -> list[str]:
        """Nodes without memory, if others have one."""
        machines = [self.world.nodes[name].machine for name in self.faults.names]
        raft = [m for m in machines if isinstance(m, RaftStrategy)]
        blank = [m.node for m in raft if m.ballot is None]
        return blank if len(blank) < len(raft) else []

    def _stuck_by_design(self) -> bool:
        """All voters of the list are blank, and others, who are in it no longer, remember: only the old list helps."""
        blank = self._blank()
        return bool(blank) and all(name in blank for name in self.voters())

    def _count(self, fact: Fact) -> None:
        rare = self.outcome.rare
        if fact.kind is Kind.EVENT:
            name = RARE.get(fact.text) or RARE_RECOVERY.get((fact.text, fact.detail))
            if name is not None:
                rare[name] = rare.get(name, 0) + 1
            if fact.text == Code.ELECTED:
                self.leads[fact.node], self.led_until[fact.number] = fact.number, math.inf
            if fact.text in NEEDLESS and self._is_quiet_for(fact.node) and not self._is_told_late(fact):
                self._needless(fact)
        elif fact.kind is Kind.ROLE:
            self.led_since[fact.node] = self.world.nodes[fact.node].local_ms()
            if fact.text != "leader":
                self._leads_no_more(fact)
        elif fact.kind in (Kind.FAULT, Kind.CALM, Kind.UP, Kind.DOWN):
            self.last_trouble_ms = fact.at_ms
            if fact.kind is Kind.DOWN:
                self._leads_no_more(fact)

    def _leads_no_more(self, fact: Fact) -> None:
        if fact.node in self.leads:
            self.led_until[self.leads.pop(fact.node)] = fact.at_ms

    def _needless(self, fact: Fact) -> None:
        """Counted; and judged where nothing at all is wrong: after the calm, and in trials without faults (P5)."""
        self.outcome.needless += 1
        if self.liveness.calm_ms is not None or self._is_without_faults():
            sentence = f"{fact.node}: {fact.text} ({fact.subject or fact.node}), although nothing is wrong"
            self._violated(Violation(fact.at_ms, "P5", sentence))

    def _is_without_faults(self) -> bool:
        return not self.outcome.classes

    def _is_quiet_for(self, node: str) -> bool:
        """No fault is active or was lately, and the node is not one that stays broken: nothing excuses a loss now.

        A message that was held back is trouble when it arrives: the heartbeat of a leader that has resigned meanwhile
        is followed by who heard no later one.
        """
        if self.faults.active or node in self.broken or node in self.apart:
            return False
        return self.world.now > self._quiet_from_ms()

    def _quiet_from_ms(self) -> float:
        return max(self.last_trouble_ms, self.world.late_until_ms) + 3 * self.unit_ms

    def _is_told_late(self, fact: Fact) -> bool:
        """A holder that was lost in the trouble itself is told of when the store was watched for long enough (L4).

        Only that: it does not lead under that token now, nor did it after the trouble, and the watch is not longer than
        the longest. A holder's own loss is never excused by it.
        """
        node = self.world.nodes[fact.node]
        if fact.text != Code.LEADER_SILENT or not isinstance(node.machine, LeaseStrategy):
            return False
        if node.store is None or not node.store.engine.objects:
            return False
        quiet_ms = self._quiet_from_ms()
        return self.led_until.get(fact.number, 0.0) <= quiet_ms and self.world.now <= quiet_ms + WAIT_MAX_MS

    def _finish(self, end_ms: float) -> Outcome:
        outcome = self.outcome
        world = self.world
        outcome.simulated_ms = end_ms
        outcome.elections = self.terms.elections
        outcome.starts = self.work.starts
        outcome.gaps_ms = self.work.gaps_ms
        outcome.sent, outcome.steps, outcome.events = world.count.sent, world.count.steps, world.count.events
        outcome.faults = dict(sorted(world.count.faults.items()))
        running = sum(end_ms - since for _, _, since in self.work.running.values())
        outcome.working_ms = self.work.running_ms + running
        outcome.trace_hash = world.trace_hash
        return outcome


def watch_ms(timing: Timing | RankTiming, *stores: SimStore | None) -> float:
    """By how much the longest wait of a store that nobody can set exceeds the wait of these times (P1), or 0."""
    chosen = not any(store is not None and store.engine.objects for store in stores)
    return 0.0 if chosen or isinstance(timing, RankTiming) else float(max(0, WAIT_MAX_MS - timing.wait_ms))


def _scaled(timing: Timing, by: float) -> Timing:
    return Timing(*(int(value * by) for value in timing[:-1]))._replace(drift_ppm=timing.drift_ppm)


RARE: dict[str, str] = {
    Code.START_DELAY: "winner with a start delay",
    Code.PROMISE_REFUSED: "voter refused within its promise",
    Code.RELEASE_APPLIED: "release shortened a failover",
    Code.RELEASE_REFUSED: "release refused: a newer term was acked",
    Code.TWO_BOOTS: "two boots of one id",
    Code.LATE_ACK: "ack of an old heartbeat came late",
    Code.HIGHER_TERM: "higher term deposed a leader",
    Code.TERM_AHEAD: "voter ahead made the leader step down",
    Code.SPLIT_VOTE: "split vote",
    Code.CROSSED: "crossed coordinators",
    Code.BATON_LOST: "baton lost",
    Code.WINNER_DEAD: "winner dead before its announcement",
    Code.ANSWER_LOST: "store answer lost after the write",
    Code.OTHER_SERVER: "observation restarted by another server",
    Code.DISK_FAILED: "ballot could not be saved",
    Code.CANNOT_START: "leader could not start its work",
}

RARE_RECOVERY: dict[tuple[str, str], str] = {
    (Code.RECOVERING, "other-list"): "changed times made a node recover",
    (Code.RECOVERING, "no-memory"): "node without memory",
    (Code.RECOVERED, "other-list"): "changed times reported by all",
    (Code.RECOVERED, "no-memory"): "lost memory healed",
}
"""Why a node recovers stands in the event's detail."""

NEEDLESS = (Code.MAJORITY_LOST, Code.LEADER_SILENT, Code.LEASE_LOST, Code.RENEWAL_LATE)
"""Losses of a role, or of a leader, that a fault should excuse."""


def _ignore(violation: Violation) -> None:
    """Bully and ring promise one per island, not one in all: their work may overlap in a partition."""
