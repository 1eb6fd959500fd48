"""What a node without memory must hear before it votes again, where nodes have a register of members (R9, R12).

The same as `recovery.py`, over the members that nodes agreed on instead of the file's: a voter that forgot asks every
voter, of both halves, of every register that it is told of. Who is an observer by the newest one waits to be admitted
(R8), who is not in it waits to be added. The file's members count for the first start only, and for whom to ask.
"""

from __future__ import annotations

from primacy.election.inputs import Init
from primacy.election.messages import Report
from primacy.election.model import Ballot, Member, Register
from primacy.election.raft.recovery import Recovery
from primacy.election.raft.register import first_register, is_voter


class Recall(Recovery):
    """The answers of one boot, and what follows from them."""

    def first(self) -> Register:
        """The register of the first start: the file's members (R12)."""
        return first_register(self.seat.membership.members)

    def upgraded(self, ballot: Ballot) -> Ballot:
        """A ballot from before there were registers: its members are those of the first start, and the hash of its
        configuration is the plain one, if nothing but the version has changed. Else M1 finds out about the times."""
        listed_hash = self.seat.membership.listed_hash
        lists = [r._replace(hash=self.own.hash) if listed_hash and r.hash == listed_hash else r for r in ballot.lists]
        return ballot._replace(register=self._of_earlier(ballot), lists=tuple(lists))

    def _of_earlier(self, ballot: Ballot) -> Register:
        """The voters that it tells of, else the file's members."""
        listed = {member.id: member for member in self.first().members}
        own = [record for record in ballot.lists if not record.elsewhere]
        records = [record for record in own if record.confirmed] or own
        voters = records[0].voters if records else self.own.voters
        if voters == self.own.voters:
            return self.first()
        return first_register(tuple(listed.get(name, Member(name)) for name in voters))

    def is_first(self, ballot: Ballot) -> bool:
        """A first ballot of this very file that was never used (M3), under whatever times: it has promised nothing."""
        return ballot.term == 0 and ballot.register == self.first()

    def named_by_file(self, register: Register) -> tuple[str, ...]:
        """Whom to ask at a start: the file's nodes as well as the register's (R12)."""
        return tuple(sorted({*self.seat.membership.ids, *register.everybody} - {self.seat.node}))

    def is_lone_file(self, register: Register) -> bool:
        """Without its memory it would begin a cluster of its own: no voter of two or more may be so (R12)."""
        return self.seat.membership.ids == (self.seat.node,) and register.everybody != (self.seat.node,)

    # --- whom to ask --------------------------------------------------------------------------------------------------

    def _registers(self) -> list[Register]:
        """A node of the version before tells of none: it knows the members of the first start."""
        return [r.register if r.register is not None else self.first() for r in self._remembering()]

    def newest(self) -> Register | None:
        """The newest register that was told of."""
        return max(self._registers(), key=lambda register: register.id, default=None)

    def is_never_used(self) -> bool:
        """All that was told of is first ballots of this very file that were never used: they bind nobody (M3)."""
        heard = self._remembering()
        return all(not report.used for report in heard) and all(r == self.first() for r in self._registers())

    def remembering(self) -> tuple[str, ...]:
        """Who answered from memory."""
        return tuple(report.origin.node for report in self._remembering())

    def knows_newest(self, newest: Register) -> str:
        """The first of those that told of this register."""
        told = [r.origin.node for r in self._remembering() if (r.register or self.first()) == newest]
        return told[0]

    def to_ask(self, ballot: Ballot | None) -> tuple[str, ...]:
        if ballot is not None:
            return self.missing(ballot)
        names = {*self.seat.membership.ids, *self.behind}
        if self.copy is not None and self.copy.register is not None:
            names.update(self.copy.register.everybody)
        names.update(*(register.everybody for register in self._registers()))
        return tuple(sorted(names - {self.seat.node} - set(self.without)))

    def _needed(self, ballot: Ballot | None) -> tuple[str, ...]:
        if ballot is not None:
            return self._others(self._voting(ballot) | self._lease_nodes())
        told = self.counted_registers()
        names = {name for register in told for half in register.halves for name in half}
        return self._others(names | self._lease_nodes() if told else {*self.own.voters, *self.behind})

    def _voting(self, ballot: Ballot) -> set[str]:
        halves = ballot.register.halves if ballot.register is not None else (self.own.voters,)
        return {name for half in halves for name in half}

    def counted_registers(self) -> list[Register]:
        """Every register that it is told of: their voters, of both halves, must all answer (R9)."""
        return self._registers()

    def _others(self, names: set[str]) -> tuple[str, ...]:
        return tuple(sorted(names - {self.seat.node} - set(self.without)))

    def _good_for_change(self, node: str, ballot: Ballot) -> bool:
        """It runs with our times, and said so from memory, of this cluster (M1); not so who only ran on a lease."""
        report = self._under_own_list(node)
        if report is None:
            return False
        return (report.memory and report.origin.base == ballot.base) or node not in self._voting(ballot)

    def _good_for_memory(self, node: str) -> bool:
        """It answered this boot from memory (R9), or gave up a first ballot that was never used (M3); not so who only
        ran on a lease (M1)."""
        report = self._under_own_list(node)
        if report is None:
            return False
        if report.memory or (report.gave_way and self._is_unchanged()):
            return True
        if node not in self._lease_nodes():
            return False
        return not any(node in half for register in self._registers() for half in register.halves)

    def _is_unchanged(self) -> bool:
        """Nobody who remembers knows of other members than the first: then there is nothing to know but terms, and the
        floor is above any vote that was lost."""
        return all(register == self.first() for register in self._registers())

    # --- a voter that forgot ------------------------------------------------------------------------------------------

    def remembered(self, wall_ms: int) -> Ballot | None:
        """A new ballot from what the others remember, once all have answered (R9); None before."""
        newest = self.newest()
        if newest is None or not is_voter(newest, self.seat.node):
            return None  # an observer is admitted (R8), another must be added first
        if self.is_alone(newest) or self.is_lone_file(newest) or self.is_unlisted:
            return None
        heard = super().remembered(wall_ms)
        return heard._replace(register=newest) if heard is not None else None

    def is_alone(self, newest: Register) -> bool:
        """It is all of a half: what it did alone nobody else can know. Only an operator helps (R9)."""
        return any(half == (self.seat.node,) for half in newest.halves)

    # --- the first start (M3) -----------------------------------------------------------------------------------------

    def first_refused(self, init: Init) -> str:
        """Also where another file names other members: their hash does not tell (R12)."""
        for node in self._first_asked(init):
            report = self.reports.get(node)
            if report is not None and not report.memory and not self._same_file(report):
                return f"node {node} runs under another list of nodes"
        return super().first_refused(init)

    def _same_file(self, report: Report) -> bool:
        if report.register is None:  # of the version before
            return report.origin.config == self.seat.membership.listed_hash
        return report.register.members == self.first().members

    def first_ballot(self, base: int, hold_ms: int, wall_ms: int, before: Ballot | None) -> Ballot:
        return super().first_ballot(base, hold_ms, wall_ms, before)._replace(register=self.first())
