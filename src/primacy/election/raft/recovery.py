"""Members and memory (rules M, R9, R12): when a raft node may speak.

A node is recovering (no vote, no ack, no candidacy) while its ballot is missing, or tells of another configuration
(times, strategy or store) than its own. It asks every voter concerned which configuration it runs under and what it
remembers, and counts only answers that echo this boot's nonce. This module keeps the answers and decides; `memory.py`
sends the questions and writes the ballots. It never decides from silence: a voter that is gone for good is named by an
operator.

- M1: the times, the strategy or the store changed. Every voter of the register must run under the new ones. So must the
  nodes of a lease that this node ran on before; if they are not listed, an operator says that they are stopped.
- M2, R9: the memory is lost. Every voter, of both halves, of every register that it is told of must answer from memory;
  it votes only above the highest term heard. Who is an observer by the newest register waits to be admitted (R8), who
  is not in it waits to be added.
- M3: nobody has a memory: the first start of the cluster, said once by an operator or done by the lowest id (`auto`).
  Who says "no memory" first makes the nodes of its file durable under which it does: should their cluster begin without
  it, it begins no other one under a file with fewer nodes before it has asked the others again.

The nodes of the file count for the first start only, and for whom to ask (R12).
"""

from __future__ import annotations

from primacy.election.inputs import Init
from primacy.election.messages import Report
from primacy.election.model import CLOSED, Ballot, ListRecord, Member, Register, Seat
from primacy.election.raft.register import first_register, is_voter
from primacy.election.remembered import with_left
from primacy.settings.timing import Timing, stretched

FLOOR = 1_000
"""Added to the highest term heard when somebody's memory is missing (M2, M3): no lost vote can be that far above."""

STRANGERS_MAX = 64
"""So many strangers are remembered, the last ones."""

TICK_MS = 1
"""What reading a clock in whole milliseconds may cut off."""
NOTHING = Ballot(0, 0, "", 0, 0, 0, ())
"""The lower bound of a node that has not even an old copy."""


def keep_latest(found: dict[str, int], node: str, now_ms: int) -> None:
    """A flood of names must not cost memory."""
    found.pop(node, None)
    found[node] = now_ms
    if len(found) > STRANGERS_MAX:
        del found[next(iter(found))]


class FirstStart:
    """A first ballot that this node made, on its way to the others (M3)."""

    def __init__(self) -> None:
        self.offers: dict[str, int] = {}
        """The boots that said they are blank and have not confirmed the first ballot yet."""
        self.offer_at_ms = 0
        self.init_tried: Init | None = None
        """The operator's word that the last first ballot was made on, until that ballot is on the disk."""
        self.gave_way = False
        """This boot gave up a first ballot that was never used."""
        self.strangers: dict[str, int] = {}
        """Who speaks for this cluster and is in no list here, and when it was heard last."""
        self.told: dict[str, int] = {}
        """Of whom other nodes without memory have told that. It is not told on: told in turns, it would never end."""
        self.heard: dict[str, int] = {}
        """The boot of each node that answered last."""
        self.heard_at_ms = 0
        """When that was last another one than before."""

    def heard_since(self, ms: int) -> tuple[str, ...]:
        """The strangers that this node heard itself, the last one last."""
        return tuple(node for node, at_ms in self.strangers.items() if at_ms >= ms)

    def speaking_since(self, ms: int) -> tuple[str, ...]:
        """Those, and those that others have told of."""
        told = [node for node, at_ms in self.told.items() if at_ms >= ms]
        return tuple(dict.fromkeys((*self.heard_since(ms), *told)))


class Recovery:
    """The answers of one boot, and what follows from them."""

    def __init__(self, seat: Seat, *, auto: bool, token_max: int) -> None:
        self.seat = seat
        self.own = ListRecord(seat.membership.hash, seat.membership.voters, confirmed=True)
        self.auto = auto
        self.token_max = token_max
        self.reports: dict[str, Report] = {}
        self.remembers: dict[str, int] = {}
        """The boots that are known to have a ballot."""
        self.without: tuple[str, ...] = ()
        self.init: Init | None = None
        self.copy: Ballot | None = None
        """A ballot that turned out to be an old copy: what it says is a lower bound, and no memory (Q10)."""
        self.listed: tuple[str, ...] = ()
        """The voters of all files under which this node, without memory, said so: one of them may have begun (M3)."""
        self.mark_due = True
        """The disk does not tell of all voters of our file yet."""
        self.leases: tuple[ListRecord, ...] = ()
        """The leases that this node ran on before this start: others may still do so."""
        self.hold_max_ms = 0
        """The longest hold of those."""
        self.left: tuple[str, ...] = ()
        """The configurations that it ran under and that were replaced, as the disk tells."""
        self.others_stopped = False
        """An operator vouches for the nodes of leases that nobody has listed."""

    def found(self, void: Ballot) -> None:
        """What the disk had at the start was no ballot that counts: an old copy, or a mark."""
        if not void.is_mark:
            self.copy = void
        self.listed = tuple(sorted({name for record in void.lists for name in record.voters}))
        self.mark_due = not set(self.own.voters) <= set(self.listed)

    def ran_on(self, ballot: Ballot) -> None:
        """What the disk tells of leases, in whatever ballot there is: they outlive one that is given up."""
        self.leases, self.left = tuple(record for record in ballot.lists if record.elsewhere), ballot.left
        if self.leases:
            self.hold_max_ms = ballot.hold_max_ms
            self.mark_due = self.mark_due or self.own.hash not in [record.hash for record in ballot.lists]
            self.listed = tuple(sorted({*self.listed, *self._lease_nodes()}))

    def _lease_nodes(self) -> set[str]:
        return {name for record in self.leases for name in record.voters}

    # --- the register and the file (R12) ------------------------------------------------------------------------------

    def first(self) -> Register:
        """The register of the first start: the file's members."""
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
        """Whom to ask at a start: the file's nodes as well as the register's."""
        return tuple(sorted({*self.seat.membership.ids, *register.everybody} - {self.seat.node}))

    def is_lone_file(self, register: Register) -> bool:
        """Without its memory it would begin a cluster of its own: no voter of two or more may be so."""
        return self.seat.membership.ids == (self.seat.node,) and register.everybody != (self.seat.node,)

    # --- the mark (M3) ------------------------------------------------------------------------------------------------

    def mark(self) -> Ballot:
        """What the disk must tell before this node says that it has no memory.

        Who asked may begin a cluster on it and be heard no more: under a file with fewer nodes this node must know whom
        to ask.
        """
        void = self.copy or NOTHING
        known = {name for record in (self.own, *void.lists) for name in record.voters}
        self.listed = tuple(sorted(known.union(self.listed)))
        lists = (ListRecord(self.own.hash, self.listed, confirmed=False), *self.leases)
        hold_max_ms = max(void.hold_max_ms, self.hold_max_ms)
        return void._replace(lists=lists, void=True, hold_max_ms=hold_max_ms, left=self.left)

    @property
    def behind(self) -> tuple[str, ...]:
        """Voters of earlier files that ours has no longer: they may remember a cluster that this node is part of."""
        return tuple(name for name in self.listed if name not in self.own.voters and name != self.seat.node)

    @property
    def is_left(self) -> bool:
        """One of those has not said, under our list, that it has no memory either."""
        reports = [self._under_own_list(name) for name in self.behind]
        return any(report is None or report.memory or report.used for report in reports)

    @property
    def is_unlisted(self) -> bool:
        """Nobody knows who else ran on a lease of this node: nobody begins by itself beside it (M1)."""
        return not self.others_stopped and any(not record.voters for record in self.leases)

    # --- asking -------------------------------------------------------------------------------------------------------

    def start_over(self) -> None:
        """The ballot was given up: what was heard and said before concerns it no longer."""
        self.reports.clear()
        self.without = ()

    def hear(self, report: Report) -> None:
        """Keeps the last answer of each node to this boot, but for a late "blank" of a boot that has a memory since.

        One that gave way had a memory before and has none now; for a first start it counts as late all the same.
        """
        if report.echo != self.seat.boot:
            return
        origin = report.origin
        if report.memory or report.gave_way or not self._is_late(report):
            self.reports[origin.node] = report
        if report.memory:
            self.remembers[origin.node] = origin.boot

    def _is_late(self, report: Report) -> bool:
        """It says that its sender has no memory, and that boot is known to have one."""
        return not report.memory and self.remembers.get(report.origin.node) == report.origin.boot

    def missing(self, ballot: Ballot | None) -> tuple[str, ...]:
        """The voters whose answer is still needed, in order."""
        if ballot is None:
            return tuple(node for node in self._needed(None) if not self._good_for_memory(node))
        return tuple(node for node in self._needed(ballot) if not self._good_for_change(node, ballot))

    def to_ask(self, ballot: Ballot | None) -> tuple[str, ...]:
        """Whom to ask: a change needs each answer once; without memory, "blank" may be untrue a moment later."""
        if ballot is not None:
            return self.missing(ballot)
        names = {*self.seat.membership.ids, *self.behind}
        if self.copy is not None and self.copy.register is not None:
            names.update(self.copy.register.everybody)
        names.update(*(register.everybody for register in self._registers()))
        return self._others(names)

    def _needed(self, ballot: Ballot | None) -> tuple[str, ...]:
        if ballot is not None:
            return self._others(self._voting(ballot) | self._lease_nodes())
        told = self.counted_registers()
        names = {name for register in told for half in register.halves for name in half}
        return self._others(names | self._lease_nodes() if told else {*self.own.voters, *self.behind})

    def _voting(self, ballot: Ballot) -> set[str]:
        halves = ballot.register.halves if ballot.register is not None else (self.own.voters,)
        return {name for half in halves for name in half}

    def _others(self, names: set[str]) -> tuple[str, ...]:
        return tuple(sorted(names - {self.seat.node} - set(self.without)))

    def _reports(self) -> list[Report]:
        return [self.reports[node] for node in sorted(self.reports)]

    def _under_own_list(self, node: str) -> Report | None:
        report = self.reports.get(node)
        return report if report is not None and self.seat.membership.is_config(report.origin.config) else None

    # --- M1 -----------------------------------------------------------------------------------------------------------

    def _good_for_change(self, node: str, ballot: Ballot) -> bool:
        """It runs with our times, and said so from memory, of this cluster (M1); not so who only ran on a lease."""
        report = self._under_own_list(node)
        if report is None:
            return False
        return (report.memory and report.origin.base == ballot.base) or node not in self._voting(ballot)

    def changed(self, ballot: Ballot) -> Ballot | None:
        """The ballot with the other configurations struck, once all have reported (M1); None before."""
        if self.missing(ballot) or self.is_unlisted:
            return None
        heard = [r for r in self._reports() if self.seat.membership.is_config(r.origin.config)]
        token_max = max([ballot.token_max, self.token_max, *(r.token_max for r in heard)])
        least = 1 if self.leases else 0  # a ballot of before a lease is no unused first one (M3)
        term = max([ballot.term, least, *(r.term for r in heard)])
        return ballot._replace(
            term=self._floor(term, token_max, ballot.base) if self.without else term,
            voted_for=CLOSED,
            hold_max_ms=max([ballot.hold_max_ms, *(r.hold_max_ms for r in heard)]),
            token_max=token_max,
            lists=(self.own,),
            changed=True,
            left=with_left(ballot.left, tuple(record.hash for record in ballot.lists), self.own.hash),
        )

    def _floor(self, term: int, token_max: int, base: int) -> int:
        """Above what somebody who is not asked may have voted in: since a lease, that is above its tokens (T2)."""
        return max(term, token_max - base) + FLOOR

    def replaced_by(self) -> tuple[str, ...]:
        """The nodes that have left the configuration that this one was started with (M1).

        Nobody, if this node has left it, too: then it was given that file again.
        """
        if self.own.hash in self.left:
            return ()
        return tuple(report.origin.node for report in self._reports() if self.is_replaced_by(report))

    def is_replaced_by(self, report: Report) -> bool:
        """Its sender has left the configuration of this node: then others may act under the one that it has now."""
        membership = self.seat.membership
        return any(report.has_left(config) for config in (membership.hash, membership.listed_hash))

    def told_of(self, report: Report, ballot: Ballot) -> ListRecord:
        """The configuration of a node that has left ours, as one that this node must wait for."""
        voters = tuple(sorted(self._voting(ballot)))
        return ListRecord(report.origin.config, voters, confirmed=False, elsewhere=True)

    # --- M2, R9 -------------------------------------------------------------------------------------------------------

    def _registers(self) -> list[Register]:
        """A node of the version before tells of none: it knows the members of the first start."""
        return [r.register if r.register is not None else self.first() for r in self._remembering()]

    def counted_registers(self) -> list[Register]:
        """Every register that it is told of: their voters, of both halves, must all answer (R9)."""
        return self._registers()

    def newest(self) -> Register | None:
        """The newest register that was told of."""
        return max(self._registers(), key=lambda register: register.id, default=None)

    def knows_newest(self, newest: Register) -> str:
        """The first of those that told of this register."""
        told = [r.origin.node for r in self._remembering() if (r.register or self.first()) == newest]
        return told[0]

    def remembering(self) -> tuple[str, ...]:
        """Who answered from memory."""
        return tuple(report.origin.node for report in self._remembering())

    def is_never_used(self) -> bool:
        """All that was told of is first ballots of this very file that were never used: they bind nobody (M3)."""
        return all(not report.used for report in self._remembering()) and self._is_unchanged()

    def is_alone(self, newest: Register) -> bool:
        """It is all of a half: what it did alone nobody else can know. Only an operator helps (R9)."""
        return any(half == (self.seat.node,) for half in newest.halves)

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

    @property
    def _at_least(self) -> Ballot:
        return self.copy or NOTHING

    def _bases(self, heard: list[Report]) -> tuple[int, ...]:
        """The token bases that may count: those in use; if none is, those of our voters (M3).

        An unused first ballot binds nobody. A voter that has one gives way; a node that our file has no longer is told
        nothing, and keeps it for ever.
        """
        used = {r.origin.base for r in heard if r.term > 0}
        voters = {r.origin.base for r in heard if r.origin.node in self.own.voters}
        return tuple(sorted(used or voters or {r.origin.base for r in heard}))

    def _remembering(self) -> list[Report]:
        """Answers from memory under our configuration; of somebody who is said to be gone for good, none counts."""
        heard = [r for r in self._reports() if self.seat.membership.is_config(r.origin.config) and r.memory]
        return [r for r in heard if r.origin.node not in self.without]

    def starts_in_use(self) -> tuple[tuple[str, ...], ...]:
        """The nodes of each first start that counts, if there are several: first of the one to be kept.

        That is the one with the largest token, for what is removed with a ballot is not known any more, and tokens must
        not go back (T2). Else the one of more nodes, else the larger base.
        """
        heard = self._remembering()
        sides = [[r for r in heard if r.origin.base == base] for base in self._bases(heard)]
        sides.sort(key=lambda side: (-max(r.token_max for r in side), -len(side), -side[0].origin.base))
        return tuple(tuple(r.origin.node for r in side) for side in sides) if len(sides) > 1 else ()

    def remembered(self, wall_ms: int) -> Ballot | None:
        """A new ballot from what the others remember, once all have answered (R9); None before."""
        newest = self.newest()
        if newest is None or not is_voter(newest, self.seat.node):
            return None  # an observer is admitted (R8), another must be added first
        if self.is_alone(newest) or self.is_lone_file(newest) or self.is_unlisted:
            return None
        heard = self._remembering()
        bases = self._bases(heard)
        if self.missing(None) or len(bases) != 1:
            return None  # an init was said twice and is not settled yet, or two are in use
        heard = [r for r in heard if r.origin.base in bases]
        asked = self._needed(None)
        newcomers = any(not self.reports[node].memory for node in asked)
        base = heard[0].origin.base
        token_max = max([self.token_max, self._at_least.token_known, *(r.token_max for r in heard)])
        copied = self._at_least.term if self._at_least.base == base else 0  # of another first start it says nothing
        term = max([copied, *(r.term for r in heard)])
        return Ballot(
            base=base,
            term=self._floor(term, token_max, base) if newcomers or self.without else term,
            voted_for=CLOSED,
            hold_max_ms=max([self._at_least.hold_max_ms, self.hold_max_ms, *(r.hold_max_ms for r in heard)]),
            token_max=token_max,
            incarnation=self._incarnation(wall_ms),
            lists=(self.own,),
            changed=True,
            left=with_left(self.left, tuple(record.hash for record in self.leases), self.own.hash),
            register=newest,
        )

    # --- M3 -----------------------------------------------------------------------------------------------------------

    def wants_first(self, *, waited_long: bool, base: int) -> Init | None:
        """The init that is to be tried now: an operator's, or our own if we are the lowest id and all are blank.

        `base`: of the unused first ballot that we have already; then only if somebody is still without it.
        """
        if self.init is not None:
            return self.init
        if self.is_tainted or any(report.used for report in self._reports()):
            return None  # somebody has been in use: only an operator may say that all of it is gone
        if not self.auto or self.own.voters[:1] != (self.seat.node,):
            return None
        if base:
            lacking = any(report.origin.base != base for report in self._reports())
            return Init(wall_ms=0) if waited_long and lacking else None
        return Init(wall_ms=0) if waited_long or self.is_by_itself else None

    @property
    def is_by_itself(self) -> bool:
        """Its file names no other node, and then it hears none."""
        return self.seat.membership.ids == (self.seat.node,)

    @property
    def is_tainted(self) -> bool:
        """Somebody who has no memory was in use, or was listed with others: nobody begins by itself beside it (M3)."""
        used = any(report.used and not report.memory for report in self._reports())
        return used or self.copy is not None or self.is_unlisted

    def first_refused(self, init: Init) -> str:
        """Why an init must not go on: somebody remembers, or runs under another file. Empty if it may.

        That a file names other members, its hash does not tell (R12).
        """
        asked = dict.fromkeys((*self.first_asked(init), *self.seat.membership.ids))  # observers, too
        reports = [self.reports[node] for node in asked if node in self.reports and node not in init.without]
        for report in reports:
            if not report.memory and not self._same_file(report):
                return f"node {report.origin.node} runs under another list of nodes"
        for report in reports:
            if not self.seat.membership.is_config(report.origin.config):
                return f"node {report.origin.node} runs under another list of nodes"
            if report.memory and report.used:
                return f"node {report.origin.node} remembers this cluster"
        return ""

    def _same_file(self, report: Report) -> bool:
        if report.register is None:  # of the version before
            return report.origin.config == self.seat.membership.listed_hash
        return report.register.members == self.first().members

    def first_complete(self, init: Init) -> bool:
        """Everybody named has answered, blank and under our file (M3)."""
        return not self.first_refused(init) and not self.first_missing(init)

    def first_missing(self, init: Init) -> tuple[str, ...]:
        """Who has not answered yet, or listens still."""
        answers = {node: self.reports.get(node) for node in self.first_asked(init)}
        return tuple(node for node, told in answers.items() if told is None or told.listens or self._is_late(told))

    def first_wait_ms(self, timing: Timing) -> int:
        """How long after the last answer work of an earlier lease may live: who answered runs on it no more (M1).

        A hold that is no longer than ours is over when the first ballot's silence is.
        """
        hold_ms = max([self.hold_max_ms, *(r.hold_max_ms for r in self._reports())])
        return stretched(hold_ms, timing.drift_ppm) + TICK_MS if hold_ms > timing.hold_ms else 0

    def first_base(self, wall_ms: int) -> int:
        """A token base above every token that anybody knows of (T1)."""
        known = [
            self.token_max,
            self._at_least.token_known,
            *(max(r.token_max, r.origin.base) for r in self._reports()),
        ]
        return max(wall_ms, max(known) + 1)

    def first_asked(self, init: Init) -> tuple[str, ...]:
        """Who must answer that it has no memory."""
        asked = (*self.own.voters, *self.behind)
        return tuple(node for node in asked if node != self.seat.node and node not in init.without)

    def take_offers(self, init: Init) -> dict[str, int]:
        """Whom to hand the first ballot, by boot; and forgets the answers, which are used up."""
        offers = {node: self.reports[node].origin.boot for node in self.first_asked(init) if node in self.own.voters}
        self.reports.clear()
        self.init = None
        return offers

    def first_ballot(self, base: int, hold_ms: int, wall_ms: int, before: Ballot | None) -> Ballot:
        """The file's members, base, term 0; never used yet. It may replace an unused one of a smaller base."""
        return Ballot(
            base=base,
            term=0,
            voted_for="",
            hold_max_ms=hold_ms,
            token_max=max(base, self.token_max, before.token_max if before is not None else 0),
            incarnation=before.incarnation if before is not None else self._incarnation(wall_ms),
            lists=(self.own,),
            seen=before.seen if before is not None else (),
            left=with_left(self.left, tuple(record.hash for record in self.leases), self.own.hash),
            register=self.first(),
        )

    def token_at_least(self, token: int) -> int:
        """This one, or a larger one that is known here (T2)."""
        return max(token, self.token_max, self._at_least.token_known)

    def incarnation_above(self, heard: int, wall_ms: int) -> int:
        """For a node that is admitted: above the start of it that the leader has heard of, too."""
        return max(self._incarnation(wall_ms), heard + 1, self._at_least.incarnation + 1)

    def _incarnation(self, wall_ms: int) -> int:
        """Above every start of this node that anybody has heard of; wall time lifts it further (Q10)."""
        return max([wall_ms, *(r.incarnation_seen + 1 for r in self._reports())])
