"""Trials of raft: nodes that keep a register of members, as every agent does (rules R), and operators who change it.

What differs from trials of other strategies: machines stand by that may be added, the files count for the first start
only, and who must lead after the calm follows from what the disks have. Operators ask for other members in a part of
the trials (in all, where a plan says so); everything else goes wrong as ever, at the same time.

After the calm (P6): what is on its way ends, or it waits for a node that stays broken or was never set up. Then the
operator cancels it, and that ends as well. A change that was done stays done.
"""

from __future__ import annotations

import re
from functools import partial
from random import Random

from primacy.election.events import Code
from primacy.election.model import Ballot, Goal, Membership, MembersId, Register, Seat, Strategy
from primacy.election.model import Kind as MemberKind
from primacy.election.raft.register import new_voters
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import Timing
from primacy.sim.checkers import RegisterChecker, TermChecker, Violation
from primacy.sim.facts import Fact, Kind
from primacy.sim.faults import force as fault_force
from primacy.sim.faults import members as fault_members
from primacy.sim.faults.classes import LAST_RESORT, MEMBERS, Change
from primacy.sim.trials.changed import ChangedTrial
from primacy.sim.trials.strategy_table import Build, events_max, pace_of
from primacy.sim.trials.trial import Outcome, Plan, Trial, _scaled
from primacy.sim.world.node import Node

SPARES = 3
"""Machines that stand by."""
TIMES = "times-1"
"""What the hash of all files is about: the members are not in it."""
UNHEARD, CUT_FROM_ONE = (0, 1, 2), 4
"""Ways in which a node stays broken: off, alone, or unable to send; cut from one other node only."""
GONE_LOOKS = 6
"""So often it looks after the calm whether those that are gone are still members, once per hold."""
FORCED = 0.2
"""How many trials have machines that are gone for good, and an operator who says so (R14)."""
CHANGED = 0.35
"""How many trials have operators who change the members, where a plan does not say that all have."""
LOOKS = 5
"""So often the operator looks after the calm whether a change waits in vain, once per bound."""


def registered(machine: type[RaftStrategy] = RaftStrategy, *, auto: bool = True) -> Build:
    """Nodes of this machine."""

    def build(node: Node, seat: Seat, ballot: Ballot | None) -> Strategy:
        assert isinstance(node.timing, Timing)
        return machine(seat, node.timing, ballot, RaftOptions(auto=auto))

    return build


def trial_of(plan: Plan, seed: int, build: Build | None = None) -> Trial:
    """The trial that a plan asks for."""
    if plan.changes:
        return ChangedTrial(plan, seed, build)
    return RaftTrial(plan, seed, build) if plan.strategy == "raft" else Trial(plan, seed, build)


def run_trial(plan: Plan, seed: int, build: Build | None = None) -> Outcome:
    """One trial, from its seed."""
    return trial_of(plan, seed, build).run()


class RaftTrial(Trial):
    """One trial of a cluster of raft."""

    def __init__(self, plan: Plan, seed: int, build: Build | None = None) -> None:
        assert plan.strategy == "raft", plan.strategy
        super().__init__(plan, seed, build)
        self.registers = RegisterChecker(self._violated)
        terms = TermChecker(self._violated, counts_by_register=True)
        self.world.listeners[self.world.listeners.index(self.terms)] = terms
        self.terms = terms
        self.done: dict[int, MembersId] = {}
        """Of each token base: the newest register of which a leader said that its change is done."""
        self.world.listeners += [self.registers, self._watch_work]

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self) -> Build:
        return registered(auto=self.first_start == "auto")

    def _populate(self) -> None:
        super()._populate()
        spares = tuple(f"new{number + 1}" for number in range(SPARES))
        for name in spares:
            self._add(name, self._first_list).introduced = False
        self.faults.spares = spares
        self.faults.voters_least = self.chance.choice((1, 2, 2))
        if "lone" in self.plan.beyond:
            self.faults.voters_least = self.faults.voters_most = self.faults.doubled_least = 1

    def _first_membership(self) -> Membership:
        return Membership.of(self.members, TIMES)

    def _form(self, node: Node) -> None:
        super()._form(node)
        ballot = node.disk.ballot
        assert ballot is not None
        node.disk.ballot = ballot._replace(register=Register(MembersId(0, 1), self._first_list.members))

    def _draw_change(self) -> Change:
        """Other times only; the members are changed in their register."""
        assert isinstance(self.timing, Timing)
        kind = self.chance.choice(("slower", "faster"))
        timing = _scaled(self.timing, 1.4 if kind == "slower" else 0.7)
        return Change(kind, Membership.of(self.members, "times-2"), timing)

    def _draw_classes(self) -> tuple[str, ...]:
        classes = (*super()._draw_classes(), *self._draw_members())
        if "members" in classes:
            self._allow_spares()
        if "members" in classes and self.faults.voters_least == 1 and "lone" not in self.plan.beyond:
            self.faults.copies_disks = False  # nobody would hear both machines of a register of one
        return classes

    def _allow_spares(self) -> None:
        """What they may say and do, where they may be added (E2)."""
        most = len(self.names) + SPARES
        self.world.events_max = events_max(self.timing, most, self.plan.minutes)
        self.world.pace = pace_of(self.plan.strategy, self.timing, most)

    def _draw_members(self) -> tuple[str, ...]:
        """Whether the members change; drawn apart from the other classes."""
        plan = self.plan
        if not plan.draw or (plan.faults is not None and "members" not in plan.faults):
            return ()
        if not plan.members_change:
            return MEMBERS if Random(f"members/{self.seed}").random() < CHANGED else ()
        may_force = plan.faults is None or LAST_RESORT[0] in plan.faults
        forced = may_force and Random(f"force/{self.seed}").random() < FORCED
        return (*MEMBERS, *(LAST_RESORT if forced else ()))

    def _begin_faults(self, calm_ms: float) -> None:
        super()._begin_faults(calm_ms)
        if {"members", "memory"} <= set(self.outcome.classes):
            self.world.listeners.append(partial(fault_members.forgets, self.faults))

    # --- who must lead ------------------------------------------------------------------------------------------------

    def registers_now(self) -> list[Register]:
        """What stands on the disks of those who belong together, the newest last.

        Where an operator had to begin anew, for all voters had lost their memory, the later cluster counts. After the
        calm, what nobody can be told of does not: it is on the disk of a node only that is heard no more.
        """
        base = self._base()
        registers = {
            name: ballot.register
            for name, ballot in self._ballots().items()
            if ballot.base == base and ballot.register is not None
        }
        if not registers:
            return []
        newest = max(registers.values(), key=lambda register: register.id)
        near = {registers[name] for name in newest.everybody if name in registers} | {newest}
        return sorted(near, key=lambda register: register.id)

    def _ballots(self) -> dict[str, Ballot]:
        """Those on the disks of nodes that are heard."""
        found = {name: node.disk.ballot for name, node in self.world.nodes.items() if not self._is_unheard(name)}
        return {name: ballot for name, ballot in found.items() if ballot is not None}

    def _base(self) -> int:
        return max((ballot.base for ballot in self._ballots().values() if not ballot.void), default=0)

    def _is_unheard(self, name: str) -> bool:
        """It stays off, or what it sends reaches nobody."""
        how, _ = self.breaks.get(name, (CUT_FROM_ONE, ""))
        return how in UNHEARD

    def newest(self) -> Register:
        """The newest that is on any disk; before the first start, what the files say."""
        return next(reversed(self.registers_now()), Register(MembersId(0, 1), self._first_list.members))

    def voters(self) -> tuple[str, ...]:
        """Who votes under the newest register, or voted before the change that is on its way."""
        return tuple(sorted({name for half in self.newest().halves for name in half}))

    def belonging(self) -> tuple[str, ...]:
        return self.newest().everybody

    def _draw_core(self, voters: tuple[str, ...]) -> tuple[str, ...]:
        """Breaks some at random, as long as every register that may still elect keeps a majority of each half.

        And one that may lead: a witness only votes.
        """
        names = list(voters)
        self.chance.shuffle(names)
        broken = [name for name in names if name in self.faults.acts.gone]
        for name in names[: self.chance.randrange(len(names) + 1)]:
            if name not in broken and self._may_elect_without([*broken, name]):
                broken.append(name)
        return tuple(sorted(name for name in voters if name not in broken))

    def _may_elect_without(self, broken: list[str]) -> bool:
        """Each register that may still elect has a majority of each half left, and one that may lead."""
        for register in self.registers_now() or [self.newest()]:
            able = [member.id for member in register.members if member.kind is MemberKind.VOTER]
            if all(name in broken for name in able):
                return False
            if any(2 * sum(name not in broken for name in half) <= len(half) for half in register.halves):
                return False
        return True

    def _calm(self) -> None:
        super()._calm()
        core = tuple(sorted({*self.liveness.core, *(name for name in self.faults.names if name not in self.broken)}))
        self.liveness.begin(self.world.now, core)
        for look in range(1, LOOKS + 1):
            self.world.after(look * self.liveness.bound_ms, self._cancel_in_vain)
        self._go_without(GONE_LOOKS)

    def _break_for_good(self, name: str, core: tuple[str, ...]) -> tuple[str, ...]:
        if name not in self.faults.acts.gone:
            return super()._break_for_good(name, core)
        self.broken[name], self.breaks[name] = True, (0, "")
        return ()

    def _go_without(self, looks: int) -> None:
        """The operator goes on until those that are gone are no members; the time for a leader counts from there."""
        if looks and fault_force.go_without(self.faults):
            self.operator.acts += 1
            self.liveness.begin(self.world.now, self.liveness.core)
            self.world.after(self.unit_ms, partial(self._go_without, looks - 1))

    def _cancel_in_vain(self) -> None:
        """The operator sees that a change waits for a node that does not come, and gives it up."""
        newest = self.newest()
        for name in fault_members.leaders(self.faults):
            if newest.goal is not None and self._waits_in_vain(newest, newest.goal, name):
                self.faults.acts.cancel_change(name, "first")
                self._saw("change that waited in vain was cancelled")

    def _waits_in_vain(self, register: Register, goal: Goal, leader: str) -> bool:
        """A new voter is away, or half of those that are to vote, or everybody to whom the leader could hand over."""
        target = [member for member in goal.members if member.kind is not MemberKind.OBSERVER]
        there = [member.id for member in target if not self._is_away(member.id, leader)]
        if any(name not in there for name in new_voters(register, goal)) or 2 * len(there) <= len(target):
            return True
        able = [member.id for member in target if member.kind is MemberKind.VOTER]
        present = [member.id for member in register.members if member.kind is MemberKind.VOTER]
        return leader not in able and not any(name in there and name in present for name in able)

    def _is_away(self, name: str, leader: str) -> bool:
        """For good, as far as this leader is concerned; or it has no memory to ack with."""
        node = self.world.nodes[name]
        return not node.up or self._is_blank(name) or self._is_cut_from(name, leader)

    def _is_blank(self, name: str) -> bool:
        ballot = self.world.nodes[name].disk.ballot
        return ballot is None or ballot.void

    def _is_cut_from(self, name: str, other: str) -> bool:
        """What one of the two says does not reach the other."""
        return other in self.world.nodes[name].cut or name in self.world.nodes[other].cut

    # --- judging ------------------------------------------------------------------------------------------------------

    def _stuck_by_design(self) -> bool:
        """A half of the newest register has no majority that remembers: only an operator helps (R9, R14).

        Or nobody remembers anything and one of the file is gone for good: it must be taken out of the file first (M3).
        """
        newest, gone = self.newest(), self.faults.acts.gone
        remembers = {name for name in self.world.nodes if not self._is_blank(name)}
        if not any(name not in gone for name in remembers.intersection(newest.everybody)):
            return any(name in gone for name in self.names) or super()._stuck_by_design()
        return any(2 * len(remembers & set(half)) <= len(half) for half in newest.halves)

    def _judge_liveness(self) -> None:
        super()._judge_liveness()
        newest = self.newest()
        done = self.done.get(self._base(), newest.id)
        if newest.id < done and "memory not healed" not in self.outcome.rare:
            sentence = f"the change to the members {done} was done, but those that are heard have {newest.id}"
            self._violated(Violation(self.world.now, "P6", sentence))
        if self._stuck_by_design() or self.outcome.violations:
            return
        leader = self.liveness.leaders()[0]
        member = newest.get(leader)
        if member is None or leader not in newest.voters:
            sentence = f"{leader} leads, but is no voter of the members {newest.id}"
            self._violated(Violation(self.world.now, "P1", sentence))
        self._run_until_members_rest()
        newest = self.newest()
        if not _is_at_rest(newest):
            sentence = f"the change of the members {newest.id} did not end: it wants {_names(newest)}"
            self._violated(Violation(self.world.now, "P6", sentence))

    def _run_until_members_rest(self) -> None:
        """A change whose leader leaves waits for its work, which may take its time to stop: longer than a short trial
        has left after the calm. All looks of the operator, and that time after the last one, are waited for."""
        calm_ms, bound_ms = self.liveness.calm_ms or 0.0, self.liveness.bound_ms
        end_ms = calm_ms + (LOOKS + 1) * bound_ms + self.world.conditions.planned_stop_ms
        while not _is_at_rest(self.newest()) and self.world.now < end_ms:
            self.world.run(min(end_ms, self.world.now + self.unit_ms))

    def _judge_agreement(self, leader: str) -> None:
        """After the calm all members follow the one leader and have its register; who was removed is not asked."""
        newest = self.newest()
        for name in newest.everybody:
            if self._is_excused(name, leader):
                continue
            node = self.world.nodes[name]
            ballot = node.disk.ballot
            has = ballot.register.id if ballot is not None and ballot.register is not None else "none"
            if not node.up:
                self._violated(Violation(self.world.now, "P1", f"{name} does not run"))
            elif node.leader != leader:
                sentence = f"{name} follows {node.leader or 'nobody'} while {leader} leads"
                self._violated(Violation(self.world.now, "P1", sentence))
            elif has != newest.id:
                sentence = f"{name} has the members {has}, not {newest.id}"
                self._violated(Violation(self.world.now, "P1", sentence))

    def _is_excused(self, name: str, leader: str) -> bool:
        """It was never set up; it is broken for good in a way that keeps it from the leader; or it is a voter without
        memory, and cannot be helped (R9): all of a half, or it needs the answer of one that is gone."""
        if not self.world.nodes[name].introduced or (name in self.broken and self._is_cut_off(name)):
            return True
        if self._is_cut_from(name, leader):
            return True
        registers = self.registers_now()
        voters = {voter for register in registers for half in register.halves for voter in half}
        if not self._is_blank(name) or name not in voters:
            return False
        alone = any(half == (name,) for register in registers for half in register.halves)
        return alone or self._waits_for_gone(name)

    def _waits_for_gone(self, name: str) -> bool:
        """It says that it waits for an answer of one that is gone for good: it was told of it before."""
        node = self.world.nodes[name]
        said = node.machine.view(node.local_ms()).waits_for if node.machine is not None else ""
        return bool(set(re.split(r"[^\w-]+", said)) & set(self.faults.acts.gone))

    def _is_cut_off(self, name: str) -> bool:
        """Off, alone, or unable to send or to hear: not only cut from one other node."""
        how, _ = self.breaks[name]
        return how < CUT_FROM_ONE

    def _is_without_faults(self) -> bool:
        return not set(self.outcome.classes) - set(MEMBERS)

    def _nothing_is_wrong(self) -> bool:
        """Only the members change; some nodes are broken at the calm."""
        return self._is_without_faults() and self.liveness.calm_ms is None and not self.broken

    def _is_quiet_for(self, node: str) -> bool:
        """Who was removed hears no leader any more; that is no fault of anybody."""
        if not self.newest().named(node):
            return False
        return self._nothing_is_wrong() or super()._is_quiet_for(node)

    def _watch_work(self, fact: Fact) -> None:
        """Where nothing goes wrong, a change of members interrupts the work by an ordered handover only (P5)."""
        if fact.kind is Kind.REGISTER:
            self._saw("members saved")
        elif fact.kind is Kind.EVENT and fact.text in SEEN:
            self._saw(SEEN[fact.text])
            if fact.text == Code.MEMBERS_DONE:
                self._done(fact)
        elif fact.kind is Kind.EVENT and fact.text == Code.TRANSFER and self._must_leave(fact.node):
            self.liveness.hands_over(fact.subject)
        elif fact.kind is Kind.EVENT and fact.text in DEPOSED and self._nothing_is_wrong():
            sentence = f"{fact.node}: {fact.text} ({fact.detail}), although nothing is wrong"
            self._violated(Violation(fact.at_ms, "P5", sentence))

    def _done(self, fact: Fact) -> None:
        ballot = self.world.nodes[fact.node].disk.ballot
        assert ballot is not None
        term, version = fact.subject.split(".")
        done = MembersId(int(term), int(version))
        self.done[ballot.base] = max(done, self.done.get(ballot.base, done))

    def _must_leave(self, leader: str) -> bool:
        """The register on its disk wants others to lead: it hands over, however late its work ends (R7)."""
        ballot = self.world.nodes[leader].disk.ballot
        goal = ballot.register.goal if ballot is not None and ballot.register is not None else None
        staying = [] if goal is None else [m.id for m in goal.members if m.kind is MemberKind.VOTER]
        return goal is not None and leader not in staying

    def _saw(self, what: str) -> None:
        self.outcome.rare[what] = self.outcome.rare.get(what, 0) + 1

    def _finish(self, end_ms: float) -> Outcome:
        outcome = super()._finish(end_ms)
        outcome.rare["registers written"] = self.registers.written
        return outcome


SEEN: dict[str, str] = {
    Code.MEMBERS_REFUSED: "change of members refused",
    Code.MEMBERS_TAKEN_BACK: "change of members taken back",
    Code.MEMBERS_DONE: "change of members done",
    Code.ADMITTED: "node admitted",
    Code.NOT_A_MEMBER: "node outside of the members",
}
DEPOSED = (Code.MAJORITY_LOST, Code.HIGHER_TERM, Code.TERM_AHEAD, Code.CANNOT_START)
"""Ends of a leadership that nobody asked for."""


def _is_at_rest(register: Register) -> bool:
    """No change is on its way."""
    return register.goal is None and not register.prior


def _names(register: Register) -> str:
    wanted = register.goal.members if register.goal is not None else register.members
    return ", ".join(member.id for member in wanted)
