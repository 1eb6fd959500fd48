"""Trials whose members change: raft nodes with a register (rules R), and operators who ask for other members.

What differs from other trials: machines stand by that may be added, the files only count for the first start, and who
must lead after the calm follows from what the disks have. Everything else goes wrong as ever, at the same time.

After the calm (P6): what is on its way ends, or it waits for a node that stays broken or was never set up. Then the
operator cancels it, and that ends as well.
"""

from __future__ import annotations

from functools import partial

from primacy.election.events import Code
from primacy.election.model import Ballot, Member, Membership, MembersId, Register, Seat, Strategy
from primacy.election.model import Kind as MemberKind
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import Timing
from primacy.sim.checkers import RegisterChecker, TermChecker, Violation
from primacy.sim.facts import Fact, Kind
from primacy.sim.faults import members as fault_members
from primacy.sim.faults.classes import WITH_REGISTER, Change
from primacy.sim.trials.strategy_table import Build, events_max, pace_of
from primacy.sim.trials.trial import Outcome, Plan, Trial, _scaled
from primacy.sim.world.node import Node

SPARES = 3
"""Machines that stand by."""
TIMES = "times-1"
"""What the hash of all files is about: with a register, the members are not in it."""
LOOKS = 5
"""So often the operator looks after the calm whether a change waits in vain, once per bound."""


def registered(machine: type[RaftStrategy] = RaftStrategy, *, auto: bool = True) -> Build:
    """Nodes of this machine, with a register."""

    def build(node: Node, seat: Seat, ballot: Ballot | None) -> Strategy:
        assert isinstance(node.timing, Timing)
        return machine(seat, node.timing, ballot, RaftOptions(auto=auto, register=True))

    return build


def trial_of(plan: Plan, seed: int, build: Build | None = None) -> Trial:
    """The trial that a plan asks for."""
    return MembersTrial(plan, seed, build) if plan.register else Trial(plan, seed, build)


class MembersTrial(Trial):
    """One trial of a cluster whose members change while it runs."""

    def __init__(self, plan: Plan, seed: int, build: Build | None = None) -> None:
        assert plan.strategy == "raft", plan.strategy
        super().__init__(plan, seed, build)
        self.registers = RegisterChecker(self._violated)
        terms = TermChecker(self._violated, counts_by_register=True)
        self.world.listeners[self.world.listeners.index(self.terms)] = terms
        self.terms = terms
        self.world.listeners += [self.registers, self._watch_work]
        most = len(self.names) + SPARES
        self.world.events_max = events_max(self.timing, most, plan.minutes)
        self.world.pace = pace_of(plan.strategy, self.timing, most)

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
        if self.faults.voters_least == 1:
            self.faults.copies_disks = False  # nobody would hear both machines of a register of one

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
        drawn = super()._draw_classes()
        if not self.plan.draw or (self.plan.faults is not None and "members" not in self.plan.faults):
            return drawn
        return (*drawn, *WITH_REGISTER)

    def _begin_faults(self, calm_ms: float) -> None:
        super()._begin_faults(calm_ms)
        if {"members", "memory"} <= set(self.outcome.classes):
            self.world.listeners.append(partial(fault_members.forgets, self.faults))

    # --- who must lead ------------------------------------------------------------------------------------------------

    def registers_now(self) -> list[Register]:
        """What stands on the disks of those who belong together, the newest last.

        Where an operator had to begin anew, for all voters had lost their memory, the later cluster counts.
        """
        found = {name: node.disk.ballot for name, node in self.world.nodes.items()}
        base = max((ballot.base for ballot in found.values() if ballot is not None and not ballot.void), default=0)
        registers = {
            name: ballot.register
            for name, ballot in found.items()
            if ballot is not None and ballot.base == base and ballot.register is not None
        }
        if not registers:
            return []
        newest = max(registers.values(), key=lambda register: register.id)
        near = {registers[name] for name in newest.everybody if name in registers} | {newest}
        return sorted(near, key=lambda register: register.id)

    def newest(self) -> Register:
        """The newest that is on any disk; before the first start, what the files say."""
        return next(reversed(self.registers_now()), Register(MembersId(0, 1), self._first_list.members))

    def voters(self) -> tuple[str, ...]:
        """Who votes under the newest register, or voted before the change that is on its way."""
        return tuple(sorted({name for half in self.newest().halves for name in half}))

    def _draw_core(self, voters: tuple[str, ...]) -> tuple[str, ...]:
        """Breaks some at random, as long as every register that may still elect keeps a majority of each half.

        And one that may lead: a witness only votes.
        """
        registers = self.registers_now() or [self.newest()]
        halves = [half for register in registers for half in register.halves]
        able = [[member.id for member in register.members if member.kind is MemberKind.VOTER] for register in registers]
        names = list(voters)
        self.chance.shuffle(names)
        broken: list[str] = []
        for name in names[: self.chance.randrange(len(names) + 1)]:
            left = [sum(1 for node in half if node not in (*broken, name)) for half in halves]
            led = all(any(node not in (*broken, name) for node in names_able) for names_able in able)
            if led and all(2 * count > len(half) for count, half in zip(left, halves, strict=True)):
                broken.append(name)
        return tuple(sorted(name for name in voters if name not in broken))

    def _calm(self) -> None:
        super()._calm()
        core = tuple(sorted({*self.liveness.core, *(name for name in self.faults.names if name not in self.broken)}))
        self.liveness.begin(self.world.now, core)
        for look in range(1, LOOKS + 1):
            self.world.after(look * self.liveness.bound_ms, self._cancel_in_vain)

    def _cancel_in_vain(self) -> None:
        """The operator sees that a change waits for a node that does not come, and gives it up."""
        goal = self.newest().goal
        if goal is None or not any(self._is_away(member) for member in goal.members):
            return
        for name in fault_members.leaders(self.faults):
            self.faults.acts.cancel_change(name, "first")
            self._saw("change that waited in vain was cancelled")

    def _is_away(self, member: Member) -> bool:
        ballot = self.world.nodes[member.id].disk.ballot
        is_blank = ballot is None or ballot.void
        is_cut = member.id in self.broken or member.id in self.apart
        return is_cut or is_blank or not self.world.nodes[member.id].up

    # --- judging ------------------------------------------------------------------------------------------------------

    def _stuck_by_design(self) -> bool:
        """A half of the newest register has no majority that remembers: only an operator helps (R9, R14)."""
        newest = self.newest()
        remembers = {name for name, node in self.world.nodes.items() if node.disk.ballot and not node.disk.ballot.void}
        if not remembers & set(newest.everybody):
            return super()._stuck_by_design()
        return any(2 * len(remembers & set(half)) <= len(half) for half in newest.halves)

    def _judge_liveness(self) -> None:
        super()._judge_liveness()
        if "memory not healed" in self.outcome.rare or self.outcome.violations:
            return
        newest = self.newest()
        leader = self.liveness.leaders()[0]
        member = newest.get(leader)
        if member is None or leader not in newest.voters:
            sentence = f"{leader} leads, but is no voter of the members {newest.id}"
            self._violated(Violation(self.world.now, "P1", sentence))
        if newest.goal is not None or newest.prior:
            sentence = f"the change of the members {newest.id} did not end: it wants {_names(newest)}"
            self._violated(Violation(self.world.now, "P6", sentence))

    def _judge_agreement(self, leader: str) -> None:
        """After the calm all members follow the one leader and have its register; who was removed is not asked."""
        newest = self.newest()
        blank = self._blank()
        for name in newest.everybody:
            node = self.world.nodes[name]
            if not node.up or name in self.broken or name in self.apart or (name in blank and len(blank) > 1):
                continue
            ballot = node.disk.ballot
            has = ballot.register.id if ballot is not None and ballot.register is not None else "none"
            if node.leader != leader:
                sentence = f"{name} follows {node.leader or 'nobody'} while {leader} leads"
                self._violated(Violation(self.world.now, "P1", sentence))
            elif has != newest.id:
                sentence = f"{name} has the members {has}, not {newest.id}"
                self._violated(Violation(self.world.now, "P1", sentence))

    def _is_without_faults(self) -> bool:
        return not set(self.outcome.classes) - set(WITH_REGISTER)

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
        elif fact.kind is Kind.EVENT and fact.text in DEPOSED and self._nothing_is_wrong():
            sentence = f"{fact.node}: {fact.text} ({fact.detail}), although nothing is wrong"
            self._violated(Violation(fact.at_ms, "P5", sentence))

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


def _names(register: Register) -> str:
    wanted = register.goal.members if register.goal is not None else register.members
    return ", ".join(member.id for member in wanted)
