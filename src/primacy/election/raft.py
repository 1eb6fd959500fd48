"""Raft's election without its log: a majority of durable votes makes one leader per term, acked beats make its hold.

What it adds to the paper, and why (the letters are the safety rules):

- Time. A leader's work must be dead before a successor's starts. The leader counts from *before* a beat left (Q3); a
  winner counts from the newest beat that any of its voters acked or sent, and waits what is left of the longest hold times
  the drift ratio (Q5). A voter that heard a leader refuses votes for P (Q4), so that in a normal failover nothing is left to
  wait. A leader without a majority stops by its own clock and goes silent (Q7).
- Ends. A term that was ended for a node never reopens (Q8). A release says that all work up to a term is gone, and frees
  the voters at once (G6); it is only given by a leader whose work ran (G7).
- Memory. A node that forgot, or whose list changed, is mute until all others have answered (M, see `rollcall.py`).

Of seed 004: CurrentTerm and VotedFor are `ballot.term` and `ballot.voted_for`; Votes and Heartbeats are `_Campaign.yes`
and `_Reign.acked`; ElectionTimeout, LeadershipAwareTimeout, HeartbeatTimer and LeadershipGraceTimeout are `stand_at_ms`,
the promise, `next_beat_ms` and `start_at_ms`. It never touches a clock, a socket or a disk; time and chance are handed in.

One `Persist` at most leaves a step, in front of its first `Send`: what a message relies on is durable before it leaves (Q1).
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from primacy.election import guarantees
from primacy.election.effects import Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Init,
    Input,
    MembersChanged,
    Pause,
    PersistFailed,
    Received,
    Rejoin,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    StoreAnswered,
    Unanswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import (
    Ack,
    Ahead,
    Beat,
    FirstBallot,
    FirstBallotTaken,
    Message,
    Origin,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Ballot, Kind, Leadership, ListRecord, Role, Seat, View
from primacy.election.rollcall import RollCall
from primacy.settings.timing import Timing, stretched

TERM_JUMP_MAX = 1_000_000
"""A term further above ours than this is a fault or an attack, not an election (Q9)."""
SLOT_PARTS = 5
"""After a release the k-th node in line stands after k fifths of a beat: time for the one before to be heard."""
NOTED_MAX = 64
"""How many complaints about other nodes are remembered, so that each is recorded once."""


class RaftOptions(NamedTuple):
    """What a node is told besides its seat and its times."""

    auto: bool = False
    """`cluster.first_start: auto` (M3)."""
    token_max: int = 0
    """Largest token that this machine knows of this election, from whatever strategy (T2)."""


class _Campaign:
    """The votes for one asked term."""

    def __init__(self, term: int, pre: bool) -> None:
        self.term = term
        self.pre = pre
        self.yes: dict[str, VoteReply] = {}
        self.no: dict[str, int] = {}


class _Reign:
    """What a leader keeps of its term."""

    def __init__(self, now_ms: int, term: int, token: int, start_at_ms: int, ages: dict[str, tuple[int, int]]) -> None:
        self.term = term
        self.token = token
        self.elected_ms = now_ms
        self.start_at_ms = start_at_ms
        self.ages = ages
        """Voter -> (term of its newest beat, when work of that term is surely gone)."""
        self.number = 0
        self.departures: dict[int, int] = {}
        self.acked: dict[str, int] = {}
        self.proved = 0
        self.hold_from_ms = now_ms
        """s of the newest beat that a majority acked; before the first such round, the moment of the election."""
        self.next_beat_ms = now_ms
        self.ordered = False
        """The work of this term was ordered to start."""
        self.ran = False
        """The work of this term was seen running."""
        self.closed = False
        """TERM was sent for its sake, its guard was lost, or a release was ordered (Q8)."""
        self.ahead_term = 0
        """A voter is ahead of us: step down in order and stand again above this term (Q9)."""


class RaftStrategy:
    """One durable vote per node and term, hence at most one leader per term; one acting holder at any instant."""

    guarantees = guarantees.RAFT

    def __init__(self, seat: Seat, timing: Timing, ballot: Ballot | None, options: RaftOptions | None = None) -> None:
        self.seat = seat
        self.timing = timing
        self.options = options or RaftOptions()
        self.node = seat.node
        self.ballot = ballot
        self.deadline_ms: int | None = None
        self.role = Role.STARTING
        self.leader = ""
        self.stand_at_ms = 0
        self.released_term = -1
        self.release: Release | None = None
        self.newest_at_ms: int | None = None
        """When the newest beat was acked or sent, or the ballot read; None: nothing that still binds."""
        self.newest_term = 0
        self.lock_held = False
        self.work_term = 0
        """The term whose work was ordered here and is not confirmed gone; 0 for none."""
        self.paused = False
        self.healthy = True
        self.campaign: _Campaign | None = None
        self.reign: _Reign | None = None
        self.heard: dict[str, int] = {}
        self.muted = ""
        self.origin = Origin(self.node, 0, seat.boot, seat.membership.hash, 0)
        self.roll = RollCall(seat, auto=self.options.auto, token_max=self.options.token_max)
        self._durable = ballot
        self._earlier = ballot
        self._known: dict[str, Origin] = {}
        self._twins: set[str] = set()  # only asked for membership, never walked
        self._noted: dict[tuple[str, str], bool] = {}
        self._booted = False
        self._wall_offset_ms = 0
        self._ask_at_ms = 0
        self._read_at_ms = 0
        self._offers: dict[str, int] = {}
        """First start: the boots that said they are blank and have not confirmed the first ballot yet."""
        list_ = seat.membership
        mine = list_.get(self.node)
        self._votes = mine is not None and mine.kind is not Kind.OBSERVER
        self._stands = mine is not None and mine.kind is Kind.VOTER
        self._voters = list_.voters
        self._majority = list_.majority
        self._others = tuple(name for name in list_.ids if name != self.node)
        self._other_voters = tuple(name for name in self._voters if name != self.node)
        self._lag = self._priority_lag()

    # --- the one way in -----------------------------------------------------------------------------------------------

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """One input, one ordered list of effects. A leader whose time is over loses before it hears anything else."""
        effects: list[Effect] = []
        reign = self.reign
        if reign is not None and self._is_late(now_ms, reign):
            effects = self._lose(now_ms, Code.MAJORITY_LOST, "no majority acked a beat in time")
        match given:
            case Received(message):
                effects += self._receive(now_ms, message)
            case DeadlinePassed():
                effects += self._wake(now_ms)
            case WorkStarted(term):
                effects += self._work_started(now_ms, term)
            case WorkGone(term, released):
                effects += self._work_gone(now_ms, term, released)
            case Started(wall_ms, lock_held):
                self._wall_offset_ms = wall_ms - now_ms
                self.lock_held = lock_held
                effects += self._boot(now_ms)
            case PersistFailed(reason):
                effects += self._persist_failed(now_ms, reason)
            case GuardLost(term):
                effects += self._guard_lost(now_ms, term)
            case RunLock(held):
                self.lock_held = held
                if self._lock_suffices():
                    self.stand_at_ms = now_ms
                effects += self._start_if_ready(now_ms)
            case StepDown(successor, reason):
                code = Code.TRANSFER if successor else Code.STEP_DOWN
                effects += self._step_down(now_ms, code, reason, successor)
            case Shutdown():
                self.paused = True
                effects += self._step_down(now_ms, Code.STOPPING, "the node is stopping")
            case Pause():
                self.paused = True
                effects += self._step_down(now_ms, Code.PAUSED, "paused by an operator")
            case Resume():
                self.paused = False
                effects += self._stand_again(now_ms)
            case Health(ok, detail):
                effects += self._health(now_ms, ok, detail)
            case Init():
                effects += self._init_said(now_ms, given)
            case Rejoin(without):
                self.roll.without = without
                effects += self._decide_mute(now_ms)
            case Unanswered() | MembersChanged() | StoreAnswered():
                pass  # not of this strategy
            case _:
                assert_never(given)
        self._rearm(now_ms)
        return self._with_persist(effects)

    def _with_persist(self, effects: list[Effect]) -> list[Effect]:
        """A changed ballot becomes durable before the first message of this step (Q1).

        What concerns the guard stands in front: it relies on no ballot of this step, and must not wait for a slow disk.
        """
        if self.ballot is self._durable or self.ballot is None:
            return effects
        self._earlier, self._durable = self._durable, self.ballot
        sends = [effect for effect in effects if type(effect) is Send]
        return [*(effect for effect in effects if type(effect) is not Send), Persist(self.ballot), *sends]

    def _persist_failed(self, now_ms: int, reason: str) -> list[Effect]:
        """Back to what the disk has. Nothing that relied on the lost ballot has left (F31)."""
        self.ballot = self._durable = self._earlier
        self.campaign = None
        self._ask_at_ms = now_ms + self.timing.beat_ms
        if self.role is not Role.LEADER:
            self._booted = self.ballot is None or self.ballot.incarnation == self.origin.incarnation
            if self.ballot is None:
                self.origin = self.origin._replace(incarnation=0, base=0)
            self.muted = self._why_mute()
            self._settle_role()
            self.stand_at_ms = now_ms + self.timing.promise_ms
        return [Record(Event(Code.DISK_FAILED, self.term, detail=reason))]

    def _rearm(self, now_ms: int) -> None:
        """The next moment at which time alone changes something."""
        reign = self.reign
        if reign is not None:
            at = min(reign.next_beat_ms, reign.hold_from_ms + self.timing.term_at_ms)
            if now_ms < reign.start_at_ms:
                at = min(at, reign.start_at_ms)
            self.deadline_ms = at
        elif self.muted or not self._booted:
            self.deadline_ms = self._ask_at_ms
        elif self._stands:
            self.deadline_ms = self.stand_at_ms
        else:
            self.deadline_ms = None

    def _wake(self, now_ms: int) -> list[Effect]:
        """Time passed; it may be early or late. Each part looks at its own moment."""
        if self.reign is not None:
            return self._reign_on(now_ms, self.reign)
        if not self._booted or self.muted:
            if now_ms < self._ask_at_ms:
                return []
            return self._ask(now_ms) if self._booted else self._boot(now_ms)
        return self._stand(now_ms) if now_ms >= self.stand_at_ms else []

    # --- start --------------------------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.ballot.term if self.ballot is not None else 0

    def _boot(self, now_ms: int) -> list[Effect]:
        """Counts this start, enters the own list into the ballot if it is another, and begins silent or mute."""
        self._booted = True
        effects: list[Effect] = [Record(Event(Code.STARTED, self.term))]
        ballot = self.ballot
        if ballot is not None:
            lists = ballot.lists
            if self.roll.own.hash not in [record.hash for record in lists]:
                lists = (*lists, self.roll.own._replace(confirmed=False))
            changed = ballot.changed or len(lists) > 1
            self.ballot = ballot._replace(incarnation=ballot.incarnation + 1, lists=lists, changed=changed)
        return effects + self._ballot_read(now_ms)

    def _ballot_read(self, now_ms: int) -> list[Effect]:
        """From here on the node is silent for P, or mute; the end of muteness counts as reading, too (Q4, M1)."""
        self._read_at_ms = now_ms
        ballot = self.ballot
        if ballot is not None:
            self.origin = self.origin._replace(incarnation=ballot.incarnation, base=ballot.base)
        self.newest_at_ms, self.newest_term = now_ms, self.term
        self.released_term = -1
        self._known.clear()  # everybody is met anew
        was, self.muted = self.muted, self._why_mute()
        self._settle_role()
        self.stand_at_ms = now_ms if self._lock_suffices() else self._timeout(now_ms)
        if self.muted:
            self._ask_at_ms = now_ms
            return [Record(Event(Code.MUTED, self.term, detail=self.muted)), *self._ask(now_ms)]
        return [Record(Event(Code.UNMUTED, self.term))] if was else []

    def _lock_suffices(self) -> bool:
        """One voter whose ballot never held another list: the free run lock takes the place of P and of the delay (M4)."""
        ballot = self.ballot
        if ballot is None or ballot.changed or self._voters != (self.node,):
            return False
        return not self._work_unconfirmed()

    def _why_mute(self) -> str:
        """Empty, or why this node must not speak (M1, M2)."""
        if self.ballot is None:
            return "no-memory"
        if any(record.hash != self.roll.own.hash for record in self.ballot.lists):
            return "other-list"
        return ""

    def _settle_role(self) -> None:
        if self.muted:
            self.role = Role.MUTED
        elif not self._votes:
            self.role = Role.OBSERVER
        else:
            self.role = Role.PAUSED if self.paused else Role.FOLLOWER

    def _priority_lag(self) -> int:
        """A lower priority waits one spread longer per step; it never blocks."""
        levels = sorted({m.priority for m in self.seat.membership.members if m.kind is Kind.VOTER}, reverse=True)
        mine = self.seat.membership.get(self.node)
        if mine is None or mine.priority not in levels:
            return 0
        return levels.index(mine.priority) * self.timing.spread_ms

    def _timeout(self, from_ms: int) -> int:
        """When to stand if nothing is heard: P after the newest beat, spread at random."""
        return from_ms + self.timing.promise_ms + self._lag + int(self.seat.random.random() * self.timing.spread_ms)

    # --- members and memory: asking (M) -------------------------------------------------------------------------------

    def _ask(self, now_ms: int) -> list[Effect]:
        """Asks whoever has not answered, then decides. Repeated every beat while mute."""
        self._ask_at_ms = now_ms + self.timing.beat_ms
        targets = self.roll.missing(self.ballot)
        if self.roll.init is not None or self.options.auto:
            init = self.roll.init or Init(0)
            targets = tuple(sorted({*targets, *self.roll.first_missing(init)}))
        asked: list[Effect] = [Send(node, Query(self.origin, self.ballot is not None)) for node in targets]
        return asked + self._decide_mute(now_ms)

    def _decide_mute(self, now_ms: int) -> list[Effect]:
        """Has enough been heard to speak again, or for a first start?"""
        if self._is_blank():
            first = self._first_start(now_ms)
            if first:
                return first
        if not self.muted:
            return []
        heard = self.roll.remembered() if self.ballot is None else self.roll.changed(self.ballot)
        if heard is None:
            return []
        self.ballot = heard._replace(hold_max_ms=max(heard.hold_max_ms, self.timing.hold_ms))
        return self._ballot_read(now_ms)

    def _is_blank(self) -> bool:
        """No memory, or a first ballot of this very list that was never used, which counts as none for `init` (M3)."""
        return self.ballot is None or (self.ballot.term == 0 and self.ballot.lists == (self.roll.own,))

    def _init_said(self, now_ms: int, init: Init) -> list[Effect]:
        if not self._is_blank():
            return [Record(Event(Code.INIT_REFUSED, self.term, detail="this node remembers the cluster"))]
        self.roll.init = init
        self.roll.reports.clear()  # only answers given after the word count
        asked: list[Effect] = [
            Send(n, Query(self.origin, self.ballot is not None)) for n in self.roll.first_missing(init)
        ]
        return asked + self._decide_mute(now_ms)

    def _first_start(self, now_ms: int) -> list[Effect]:
        """M3: all have answered blank, so this node writes the first ballot and hands it to each."""
        waited = now_ms - self._read_at_ms >= self.timing.promise_ms
        init = self.roll.wants_first(waited_long=waited, again=self.ballot is not None)
        if init is None or not self._votes:
            return []
        refused = self.roll.first_refused(init)
        if refused:
            said, self.roll.init = self.roll.init, None
            return [Record(Event(Code.INIT_REFUSED, self.term, detail=refused))] if said else []
        if not self.roll.first_complete(init):
            return []
        wall_ms = max(init.wall_ms, now_ms + self._wall_offset_ms)
        base = self.roll.first_base(max(wall_ms, self.ballot.base + 1 if self.ballot is not None else 0))
        self.ballot = self.roll.first_ballot(base, self.timing.hold_ms, self.ballot)
        self._offers = self.roll.take_offers(init)
        effects: list[Effect] = [Record(Event(Code.FIRST_BALLOT, value=base)), *self._ballot_read(now_ms)]
        return effects + self._offer_first()

    def _offer_first(self) -> list[Effect]:
        """To the boots that said they are blank; again at each candidacy while it is unused here."""
        ballot = self.ballot
        if ballot is None or ballot.term > 0:
            return []
        return [Send(node, FirstBallot(self.origin, ballot.base, boot)) for node, boot in sorted(self._offers.items())]

    def _first_start_again(self) -> list[Effect]:
        """A first start that broke off: the ballot is offered again, and with `auto` all are asked again."""
        if not self._is_blank():
            return []
        effects = self._offer_first()
        if self.options.auto and self._voters[0] == self.node:
            effects += [Send(node, Query(self.origin, memory=True)) for node in self._other_voters]
        return effects

    def _on_first_ballot(self, now_ms: int, message: FirstBallot) -> list[Effect]:
        """Written before it is confirmed; replaced only by a larger base, and only while it was never used (M3)."""
        sender = message.origin.node
        if message.origin.config != self.origin.config or not self._votes or sender not in self._voters:
            return []
        if message.echo != self.seat.boot or not self._is_blank():
            return []
        effects: list[Effect] = []
        if self.ballot is None or message.base > self.ballot.base:
            self.ballot = self.roll.first_ballot(message.base, self.timing.hold_ms, self.ballot)
            self._offers = {}
            effects = [Record(Event(Code.FIRST_BALLOT, value=message.base)), *self._ballot_read(now_ms)]
        if self.ballot.base == message.base:
            effects.append(Send(sender, FirstBallotTaken(self.origin, message.base)))
        return effects

    def _on_query(self, query: Query) -> list[Effect]:
        """Anybody of any list is told: our list (durable in our ballot before this) and what we remember."""
        ballot = self.ballot
        asker = query.origin.node
        seen = dict(ballot.seen).get(asker, 0) if ballot is not None else 0
        report = Report(
            self.origin,
            echo=query.origin.boot,
            memory=ballot is not None,
            used=not self._is_blank(),
            term=self.term,
            hold_max_ms=ballot.hold_max_ms if ballot is not None else 0,
            token_max=max(ballot.token_max if ballot is not None else 0, self.options.token_max),
            confirmed=tuple((r.hash, r.voters) for r in ballot.lists if r.confirmed) if ballot is not None else (),
            incarnation_seen=max(seen, query.origin.incarnation),
        )
        return [Send(asker, report)]

    def _on_report(self, now_ms: int, report: Report) -> list[Effect]:
        self.roll.hear(report)
        return self._decide_mute(now_ms)

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        origin = message.origin
        if not self._booted or origin.node == self.node:
            return (
                []
                if origin.boot == self.seat.boot
                else self._note(Code.TWO_BOOTS, origin.node, "our own id is used twice")
            )
        effects: list[Effect] = []
        if self._known.get(origin.node) != origin:
            heard, effects = self._meet(message)
            if not heard:
                return effects
        self.heard[origin.node] = now_ms
        match message:
            case Beat():
                return effects + self._on_beat(now_ms, message)
            case Ack():
                return effects + self._on_ack(now_ms, message)
            case VoteRequest():
                return effects + self._on_vote_request(now_ms, message)
            case VoteReply():
                return effects + self._on_vote_reply(now_ms, message)
            case Release():
                return effects + self._on_release(now_ms, message)
            case Ahead():
                return effects + self._on_ahead(now_ms, message)
            case Query():
                return effects + self._on_query(message)
            case Report():
                return effects + self._on_report(now_ms, message)
            case FirstBallot():
                return effects + self._on_first_ballot(now_ms, message)
            case FirstBallotTaken() if self.ballot is not None and message.base == self.ballot.base:
                self._offers.pop(origin.node, None)
            case Stale():
                return effects + self._on_stale(now_ms, message)
        return effects

    def _meet(self, message: Message) -> tuple[bool, list[Effect]]:
        """The first message of a boot, or one that does not fit: is its sender who we think, of this cluster and list?"""
        origin = message.origin
        about_memory = isinstance(message, Query | Report | FirstBallot | FirstBallotTaken | Stale)
        effects: list[Effect] = []
        if self.ballot is not None and origin.incarnation > 0:
            heard, effects = self._meet_incarnation(message)
            if not heard:
                return False, effects
        if about_memory:
            return True, effects
        if origin.config != self.origin.config:
            return False, effects + self._note(Code.OTHER_LIST, origin.node, "it runs under another list or timing")
        if origin.base != self.origin.base or self.ballot is None:
            return False, effects + self._other_base(message)
        if origin.node not in self._others:
            return False, effects + self._note(Code.OTHER_LIST, origin.node, "it is not in the list")
        if not isinstance(message, Release):
            self._known[origin.node] = origin
        return True, effects

    def _meet_incarnation(self, message: Message) -> tuple[bool, list[Effect]]:
        """Q10: an earlier start is dropped and told so; two boots of one start are both muted."""
        origin = message.origin
        assert self.ballot is not None
        seen = dict(self.ballot.seen)
        newest = seen.get(origin.node, 0)
        if origin.incarnation > newest:
            self._twins.discard(origin.node)
            if origin.node in self._others:
                seen[origin.node] = origin.incarnation
                self.ballot = self.ballot._replace(seen=tuple(sorted(seen.items())))
            return True, []
        if isinstance(message, Release) or (isinstance(message, Query) and not message.memory):
            return True, []
        if origin.incarnation < newest:
            return False, [Send(origin.node, Stale(self.origin, origin.boot, newest))]
        known = self._known.get(origin.node)
        if origin.node in self._twins or (
            known is not None and known.incarnation == newest and known.boot != origin.boot
        ):
            self._twins.add(origin.node)
            self._known.pop(origin.node, None)
            return False, self._note(Code.TWO_BOOTS, origin.node, "two starts of one id speak: neither is heard")
        return True, []

    def _other_base(self, message: Message) -> list[Effect]:
        """Another token base is another cluster; but a first ballot that was never used gives way to one that is."""
        origin = message.origin
        if isinstance(message, Beat) and self.term == 0 and self.ballot is not None and not self.muted:
            self.ballot = None
            self.muted = "no-memory"
            self._settle_role()
            self._ask_at_ms = 0
            return [Record(Event(Code.MUTED, 0, origin.node, "another first start of this cluster is in use"))]
        return self._note(
            Code.OTHER_CLUSTER, origin.node, "its token base is another: another cluster, or another first start"
        )

    def _on_stale(self, now_ms: int, message: Stale) -> list[Effect]:
        """A peer heard a later start of us: this ballot is an old copy, hence no memory (Q10, M2)."""
        if message.echo != self.seat.boot or self.ballot is None or message.incarnation_seen <= self.origin.incarnation:
            return []
        lost = self._lose(now_ms, Code.STALE_INCARNATION, "an old copy of the ballot") if self.reign is not None else []
        self.ballot = self._durable = None
        self.campaign = None
        self.muted = "no-memory"
        self._settle_role()
        self._ask_at_ms = now_ms
        return [*lost, Record(Event(Code.STALE_INCARNATION, 0, message.origin.node))]

    def _note(self, code: Code, subject: str, detail: str) -> list[Effect]:
        """Records a complaint about another node once per boot."""
        if (code, subject) in self._noted or len(self._noted) >= NOTED_MAX:
            return []
        self._noted[code, subject] = True
        return [Record(Event(code, self.term, subject, detail))]

    # --- following ----------------------------------------------------------------------------------------------------

    def _on_beat(self, now_ms: int, beat: Beat) -> list[Effect]:
        ballot = self.ballot
        sender = beat.origin.node
        if ballot is None or self.muted:
            return []
        if beat.term != ballot.term or self.leader != sender:
            if beat.term < ballot.term:
                return [Send(sender, Ahead(self.origin, ballot.term))] if self._votes else []
            if beat.term <= self.released_term:
                return []
            if beat.term - ballot.term > TERM_JUMP_MAX:
                return self._note(Code.TERM_JUMP, sender, f"term {beat.term} is too far above {ballot.term}")
            if self.reign is not None and beat.term == ballot.term:
                return self._note(Code.TWO_BOOTS, sender, f"it claims our term {beat.term}")
            return self._follow(now_ms, beat) + self._ack(now_ms, beat)
        if beat.term <= self.released_term:
            return []
        return self._ack(now_ms, beat)

    def _follow(self, now_ms: int, beat: Beat) -> list[Effect]:
        """A leader of our term or a newer one: whatever we were, we are its follower."""
        effects: list[Effect] = []
        if self.reign is not None:
            effects = self._lose(now_ms, Code.HIGHER_TERM, f"node {beat.origin.node} leads term {beat.term}")
        self._adopt(beat.term)
        self.campaign = None
        self.leader = beat.origin.node
        self._settle_role()
        return [*effects, Record(Event(Code.FOLLOWS, beat.term, self.leader))]

    def _adopt(self, term: int) -> None:
        ballot = self.ballot
        assert ballot is not None
        if term > ballot.term:
            self.ballot = ballot._replace(term=term, voted_for="")

    def _ack(self, now_ms: int, beat: Beat) -> list[Effect]:
        """Promises P of silence from now, and says so by number (Q3, Q4)."""
        self.stand_at_ms = self._timeout(now_ms)
        if not self._votes:
            return []
        ballot = self.ballot
        assert ballot is not None
        hold_ms = beat.hold_ms if beat.settled else max(beat.hold_ms, ballot.hold_max_ms)
        if hold_ms != ballot.hold_max_ms:
            self.ballot = ballot._replace(hold_max_ms=hold_ms)
        self.newest_at_ms, self.newest_term = now_ms, beat.term
        return [Send(beat.origin.node, Ack(self.origin, beat.term, beat.number, beat.origin.boot))]

    def _promise_left(self, now_ms: int) -> int:
        """How long this voter still grants nothing (Q4): P from the newest beat acked or sent, or from reading."""
        if self.newest_at_ms is None or self._lock_suffices():
            return 0
        return max(0, self.newest_at_ms + self.timing.promise_ms - now_ms)

    def _work_unconfirmed(self) -> bool:
        """The run lock is held: by work of ours that is not confirmed gone, or by an old tree (Q6)."""
        return self.lock_held or self.work_term > 0

    def _age(self, now_ms: int) -> int:
        """Since the newest beat acked or sent, or the ballot read (Q5); -1 for none that counts."""
        if self.newest_at_ms is None or self._lock_suffices():
            return -1
        return now_ms - self.newest_at_ms

    def _on_vote_request(self, now_ms: int, request: VoteRequest) -> list[Effect]:
        ballot = self.ballot
        if ballot is None or self.muted or not self._votes:
            return []
        effects: list[Effect] = []
        if request.evidence is not None:
            effects = self._on_release(now_ms, request.evidence, evidence=True)
        if request.term - ballot.term > TERM_JUMP_MAX:
            return effects + self._note(
                Code.TERM_JUMP, request.origin.node, f"term {request.term} is too far above ours"
            )
        retry_ms = self._refuses(now_ms, request)
        candidate = request.origin.node
        if retry_ms >= 0:
            no = VoteReply(
                self.origin, request.term, request.pre, False, request.origin.boot, ballot.term, retry_ms=retry_ms
            )
            if retry_ms > 0 and request.term > ballot.term:
                effects.append(Record(Event(Code.PROMISE_REFUSED, ballot.term, candidate, value=retry_ms)))
            return [*effects, Send(candidate, no)]
        if not request.pre:
            self.campaign = None
            self._settle_role()
            self.ballot = ballot._replace(term=request.term, voted_for=candidate)
            self.stand_at_ms = now_ms + self.timing.spread_ms + int(self.seat.random.random() * self.timing.spread_ms)
        return [*effects, Send(candidate, self._yes(now_ms, request))]

    def _yes(self, now_ms: int, request: VoteRequest) -> VoteReply:
        ballot = self.ballot
        assert ballot is not None
        return VoteReply(
            self.origin,
            request.term,
            request.pre,
            True,
            request.origin.boot,
            ballot.term,
            self._age(now_ms),
            self.newest_term,
            ballot.hold_max_ms,
            ballot.token_max,
        )

    def _refuses(self, now_ms: int, request: VoteRequest) -> int:
        """-1 to grant; otherwise after how many milliseconds to ask again (0: this term is not to be had)."""
        ballot = self.ballot
        assert ballot is not None
        if self._work_unconfirmed():
            return self.timing.beat_ms
        left_ms = self._promise_left(now_ms)
        if left_ms > 0:
            return left_ms
        if request.term > ballot.term:
            return -1
        same = request.term == ballot.term and not request.pre
        return -1 if same and ballot.voted_for in ("", request.origin.node) else 0

    # --- standing -----------------------------------------------------------------------------------------------------

    def _may_stand(self, now_ms: int) -> bool:
        if not self._stands or self.muted or self.paused or not self.healthy:
            return False
        return not self._work_unconfirmed() and self._promise_left(now_ms) == 0

    def _stand(self, now_ms: int) -> list[Effect]:
        """Nothing was heard for long enough: ask first whether others would vote (Q9), so that no term is burnt."""
        if not self._may_stand(now_ms):
            left_ms = self._promise_left(now_ms)
            self.stand_at_ms = now_ms + max(left_ms, self.timing.beat_ms)
            return []
        effects = self._first_start_again()
        if self.leader:
            effects += [Record(Event(Code.LEADER_SILENT, self.term, self.leader))]
            self.leader = ""
        elif self.campaign is not None and not self.campaign.pre:
            effects += [Record(Event(Code.SPLIT_VOTE, self.term))]
        return effects + self._ask_votes(now_ms, self.term + 1, pre=self._asks_first())

    def _asks_first(self) -> bool:
        """Pre-vote (Q9)."""
        return True

    def _ask_votes(self, now_ms: int, term: int, *, pre: bool) -> list[Effect]:
        ballot = self.ballot
        assert ballot is not None
        self.role = Role.CANDIDATE
        effects: list[Effect] = []
        if not pre:
            hold_max_ms = max(ballot.hold_max_ms, self.timing.hold_ms)
            token_max = max(ballot.token_max, ballot.base + term)
            self.ballot = ballot._replace(term=term, voted_for=self.node, hold_max_ms=hold_max_ms, token_max=token_max)
            effects = [Record(Event(Code.STANDS, term))]
        self.campaign = _Campaign(term, pre)
        spread_ms = self.timing.spread_ms
        self.stand_at_ms = now_ms + spread_ms // 2 + int(self.seat.random.random() * spread_ms)
        request = VoteRequest(self.origin, term, pre, self.release)
        effects += [Send(node, request) for node in self._other_voters]
        own = self._yes(now_ms, request)
        self.campaign.yes[self.node] = own
        return effects + self._count(now_ms)

    def _on_vote_reply(self, now_ms: int, reply: VoteReply) -> list[Effect]:
        campaign = self.campaign
        ballot = self.ballot
        if campaign is None or ballot is None or reply.candidate_boot != self.seat.boot:
            return []
        if reply.asked != campaign.term or reply.pre != campaign.pre or reply.origin.node not in self._other_voters:
            return []
        if reply.granted:
            campaign.yes[reply.origin.node] = reply
            return self._count(now_ms)
        campaign.no[reply.origin.node] = reply.retry_ms
        if ballot.term < reply.term <= ballot.term + TERM_JUMP_MAX and reply.term >= campaign.term:
            self._adopt(reply.term)  # we are behind: ask again above it, within the spread
            self.campaign = None
            self._settle_role()
            self.stand_at_ms = now_ms + int(self.seat.random.random() * self.timing.spread_ms)
            return []
        return self._retry_when_told(now_ms, campaign)

    def _retry_when_told(self, now_ms: int, campaign: _Campaign) -> list[Effect]:
        """If the refusals exclude a majority, ask again when enough promises have run out (Q4)."""
        wanted = self._majority - len(campaign.yes)
        if wanted <= len(self._voters) - len(campaign.yes) - len(campaign.no):
            return []
        told_ms = sorted(ms for ms in campaign.no.values() if ms > 0)
        if len(told_ms) >= wanted:
            jitter_ms = int(self.seat.random.random() * self.timing.spread_ms / 4)
            self.stand_at_ms = now_ms + told_ms[wanted - 1] + jitter_ms
            self.campaign = None
            self._settle_role()
        return []

    def _count(self, now_ms: int) -> list[Effect]:
        campaign = self.campaign
        assert campaign is not None
        if len(campaign.yes) < self._majority:
            return []
        if not campaign.pre:
            return self._win(now_ms, campaign)
        if not self._may_stand(now_ms):
            return []
        return self._ask_votes(now_ms, self.term + 1, pre=False)

    def _win(self, now_ms: int, campaign: _Campaign) -> list[Effect]:
        """Leader of this term; but votes give no hold (Q3), and what an older leader may still hold is waited for (Q5)."""
        ballot = self.ballot
        assert ballot is not None
        replies = [campaign.yes[node] for node in sorted(campaign.yes)]
        replies = [
            r if r.origin.node != self.node else self._yes(now_ms, VoteRequest(self.origin, r.asked, False))
            for r in replies
        ]
        hold_max_ms = max(reply.hold_max_ms for reply in replies)
        ages = {}
        for reply in replies:
            if reply.age_ms >= 0 and reply.age_term > self.released_term:
                left_ms = stretched(hold_max_ms, self.timing.drift_ppm) - reply.age_ms
                ages[reply.origin.node] = (reply.age_term, now_ms + max(0, left_ms))
        token = ballot.base + ballot.term
        self.campaign = None
        self.role = Role.LEADER
        self.leader = self.node
        self.reign = _Reign(now_ms, ballot.term, token, self._start_at(now_ms, ages), ages)
        effects: list[Effect] = [Record(Event(Code.ELECTED, ballot.term, self.node, value=token))]
        delay_ms = self.reign.start_at_ms - now_ms
        if delay_ms > 0:
            effects.append(Record(Event(Code.START_DELAY, ballot.term, value=delay_ms)))
        known = max([ballot.token_max, self.options.token_max, *(reply.token_max for reply in replies)])
        if known > token:
            refused = self._resign(
                now_ms, self.reign, Code.TOKEN_LOW, f"token {known} was already seen, ours is {token}"
            )
            return effects + refused
        return effects + self._reign_on(now_ms, self.reign)

    def _start_at(self, now_ms: int, ages: dict[str, tuple[int, int]]) -> int:
        """The end of the winner's start delay (Q5): the latest moment at which any reported hold is surely over."""
        return max([now_ms, *(at_ms for _, at_ms in ages.values())])

    # --- leading ------------------------------------------------------------------------------------------------------

    def _is_late(self, now_ms: int, reign: _Reign) -> bool:
        """No majority by TERM (Q7)."""
        return now_ms >= reign.hold_from_ms + self.timing.term_at_ms

    def _reign_on(self, now_ms: int, reign: _Reign) -> list[Effect]:
        if not reign.ran and not reign.closed:
            due_ms = max(reign.start_at_ms, reign.elected_ms)
            if now_ms >= due_ms + self.timing.hold_ms:
                return self._resign(now_ms, reign, Code.CANNOT_START, "the work could not be started in time")
        effects: list[Effect] = []
        if now_ms >= reign.next_beat_ms:
            effects = self._beat(now_ms, reign)
        return effects + self._start_if_ready(now_ms)

    def _beat(self, now_ms: int, reign: _Reign) -> list[Effect]:
        reign.number += 1
        reign.departures[reign.number] = now_ms
        late_ms = now_ms - reign.next_beat_ms
        reign.next_beat_ms = now_ms + self.timing.beat_ms - min(late_ms, self.timing.beat_ms // 2)
        self.newest_at_ms, self.newest_term = now_ms, reign.term
        beat = Beat(self.origin, reign.term, reign.number, self.timing.hold_ms, now_ms >= reign.start_at_ms)
        effects: list[Effect] = [Send(node, beat) for node in self._others]
        return effects + self._prove(now_ms, reign) if self._majority == 1 else effects

    def _on_ack(self, now_ms: int, ack: Ack) -> list[Effect]:
        reign = self.reign
        if reign is None or ack.term != reign.term or ack.leader_boot != self.seat.boot:
            return []
        node = ack.origin.node
        newest = reign.acked.get(node, 0)
        if ack.number <= newest or ack.number > reign.number or node not in self._other_voters:
            return [Record(Event(Code.LATE_ACK, ack.term, node, value=ack.number))] if ack.number < newest else []
        reign.acked[node] = ack.number
        return self._prove(now_ms, reign) if ack.number > reign.proved else []

    def _prove(self, now_ms: int, reign: _Reign) -> list[Effect]:
        """Hold = H from the departure of the newest beat that a majority, the leader included, acked (Q3)."""
        number = self._proved_number(reign)
        if number <= reign.proved:
            return []
        for old in range(reign.proved, number):
            reign.departures.pop(old, None)
        reign.proved = number
        reign.hold_from_ms = self._counted_from(now_ms, reign.departures[number])
        if reign.ordered:
            return [Extend(self._leadership(reign))]  # also during a planned stop: the work may end in peace (G9)
        return self._start_if_ready(now_ms)

    def _proved_number(self, reign: _Reign) -> int:
        others = self._majority - 1
        if others == 0:
            return reign.number
        acked = sorted(reign.acked.values(), reverse=True)
        return acked[others - 1] if len(acked) >= others else 0

    def _counted_from(self, now_ms: int, departed_ms: int) -> int:  # noqa: ARG002  (the mutant counts from now)
        """The hold counts from before the beat left, never from the ack."""
        return departed_ms

    def _leadership(self, reign: _Reign) -> Leadership:
        return Leadership(self.node, reign.term, reign.token, reign.hold_from_ms + self.timing.hold_ms)

    def _start_if_ready(self, now_ms: int) -> list[Effect]:
        """Work starts after the first acked round, the start delay, and with the run lock free; once in a term (G4)."""
        reign = self.reign
        if reign is None or reign.ordered or reign.closed or reign.proved == 0:
            return []
        if now_ms < reign.start_at_ms or self._work_unconfirmed():
            return []
        reign.ordered = True
        self.work_term = reign.term
        covered = self.released_term > 0 and all(term <= self.released_term for term, _ in reign.ages.values())
        return [Start(self._leadership(reign), Release(self.origin, reign.term), covered)]

    def _work_started(self, now_ms: int, term: int) -> list[Effect]:  # noqa: ARG002
        if self.reign is not None and self.reign.term == term:
            self.reign.ran = True
        return []

    def _lose(self, now_ms: int, code: Code, detail: str) -> list[Effect]:
        """The term is over for this node: stop the work, go silent, and release once the work is confirmed gone."""
        reign = self.reign
        assert reign is not None
        effects: list[Effect] = [Record(Event(code, reign.term, detail=detail))]
        if self.work_term == reign.term:
            effects.append(Stop(reign.term, code.value, planned=False))
            if reign.ran and self._may_release(now_ms, reign):
                effects.append(OrderRelease(reign.term))
        self._retire(now_ms)
        return effects

    def _may_release(self, now_ms: int, reign: _Reign) -> bool:  # noqa: ARG002
        """Only a leader whose work ran may say that all work up to its term is gone (G7)."""
        return reign.ran

    def _retire(self, now_ms: int) -> None:
        """Follower of nobody, without a beat; the own beats still bind (Q4)."""
        self.reign = None
        self.leader = ""
        self._settle_role()
        self.stand_at_ms = self._timeout(now_ms if self.newest_at_ms is None else self.newest_at_ms)

    def _resign(self, now_ms: int, reign: _Reign, code: Code, detail: str) -> list[Effect]:
        """Gives up a term whose work never ran: without a release, for a predecessor may still act (G7)."""
        effects: list[Effect] = [Record(Event(code, reign.term, detail=detail))]
        if self.work_term == reign.term:
            effects.append(Stop(reign.term, code.value, planned=False))
        if self._may_release(now_ms, reign):
            effects.append(OrderRelease(reign.term))
        self._retire(now_ms)
        return effects

    def _step_down(self, now_ms: int, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop, confirm, release, in this order; beats go on until the work is confirmed gone (G9)."""
        reign = self.reign
        if reign is None:
            if self.role in (Role.FOLLOWER, Role.CANDIDATE, Role.PAUSED):
                self.campaign = None
                self._settle_role()
            return []
        if reign.closed:
            return []
        if not reign.ran:
            return self._resign(now_ms, reign, code, detail)
        reign.closed = True
        return [
            Record(Event(code, reign.term, successor, detail)),
            Stop(reign.term, code.value, planned=True),
            OrderRelease(reign.term, successor),
        ]

    def _on_ahead(self, now_ms: int, ahead: Ahead) -> list[Effect]:
        """A voter is a term ahead and can ack nothing: step down in order, then stand again above its term (Q9)."""
        reign = self.reign
        if reign is None or ahead.term <= reign.term or reign.closed or ahead.origin.node not in self._voters:
            return []
        if ahead.term - reign.term > TERM_JUMP_MAX:
            return self._note(Code.TERM_JUMP, ahead.origin.node, f"term {ahead.term} is too far above {reign.term}")
        reign.ahead_term = ahead.term
        effects = self._step_down(
            now_ms, Code.TERM_AHEAD, f"node {ahead.origin.node} is at term {ahead.term}", self.node
        )
        if self.reign is None:
            self._adopt(ahead.term)
        return effects

    def _health(self, now_ms: int, ok: bool, detail: str) -> list[Effect]:
        was, self.healthy = self.healthy, ok
        if ok:
            return [] if was else self._stand_again(now_ms)
        return self._step_down(now_ms, Code.UNHEALTHY, detail or "a health probe failed")

    def _stand_again(self, now_ms: int) -> list[Effect]:
        if self.reign is None and not self.muted:
            self._settle_role()
            self.stand_at_ms = max(self.stand_at_ms, now_ms + int(self.seat.random.random() * self.timing.spread_ms))
        return []

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _work_gone(self, now_ms: int, term: int, released: bool) -> list[Effect]:
        """The tree is confirmed gone. If the release has left, it binds us as it binds the others."""
        if term == self.work_term:
            self.work_term = 0
        reign = self.reign
        ahead_term = 0
        effects: list[Effect] = []
        if reign is not None and reign.term == term:
            if self._reopens(reign):
                reign.ordered = reign.ran = reign.closed = False
                return self._start_if_ready(now_ms)
            ahead_term = reign.ahead_term
            effects.append(Record(Event(Code.RELEASED, term)))
            self._retire(now_ms)
        if released:
            effects += self._apply_release(now_ms, Release(self.origin, term, self.node if ahead_term else ""))
        if ahead_term > self.term:
            self._adopt(ahead_term)
        return effects

    def _reopens(self, reign: _Reign) -> bool:  # noqa: ARG002
        """Nothing reopens a term (Q8)."""
        return False

    def _guard_lost(self, now_ms: int, term: int) -> list[Effect]:
        """The guard is gone, and with it the release; its tree may still be dying, so the run lock decides (Q6, Q8)."""
        if term != self.work_term:
            return []
        reign = self.reign
        self.work_term = 0
        self.lock_held = True  # until the driver finds it free
        if reign is None or reign.term != term:
            return []
        self._retire(now_ms)
        return [Record(Event(Code.GUARD_LOST, term))]

    def _on_release(self, now_ms: int, release: Release, *, evidence: bool = False) -> list[Effect]:
        origin = release.origin
        ballot = self.ballot
        if ballot is None or self.muted or origin.base != ballot.base or origin.config != self.origin.config:
            return []
        if origin.node == self.node and self.work_term >= release.term:
            return []
        if evidence and not self._release_covers(release.term):
            return []  # an old one that a candidate carries along
        return self._apply_release(now_ms, release)

    def _apply_release(self, now_ms: int, release: Release) -> list[Effect]:
        """Clears acks of terms up to T and nothing above (G6)."""
        reign = self.reign
        term = release.term
        if reign is not None:
            return self._release_in_delay(now_ms, reign, release) if term < reign.term else []
        if self.newest_at_ms is None and term <= self.released_term:
            return []
        if not self._release_covers(term):
            return [Record(Event(Code.RELEASE_REFUSED, term, release.origin.node))]
        self.newest_at_ms = None
        self.released_term = max(self.released_term, term)
        self.release = release
        self.leader = ""
        self.campaign = None
        self._settle_role()
        self.stand_at_ms = now_ms + self._slot_ms(release)
        return [Record(Event(Code.RELEASE_APPLIED, term, release.origin.node))]

    def _release_covers(self, term: int) -> bool:
        """At least the newest term acked and, after a restart, at least the ballot's term as it was read (G6)."""
        return term >= self.newest_term

    def _release_in_delay(self, now_ms: int, reign: _Reign, release: Release) -> list[Effect]:
        """A winner applies a release that arrives during its delay."""
        if reign.ordered or release.term <= self.released_term:
            return []
        self.released_term, self.release = release.term, release
        reign.ages = {node: age for node, age in reign.ages.items() if age[0] > release.term}
        shorter = self._start_at(now_ms, reign.ages)
        effects: list[Effect] = []
        if shorter < reign.start_at_ms:
            reign.start_at_ms = shorter
            effects = [Record(Event(Code.RELEASE_APPLIED, release.term, release.origin.node))]
        return effects + self._start_if_ready(now_ms)

    def _slot_ms(self, release: Release) -> int:
        """Who stands when after a release: the named one at once, then the others in turn, the releaser last."""
        able = [m for m in self.seat.membership.members if m.kind is Kind.VOTER]
        from_id = release.origin.node
        able.sort(key=lambda m: (m.id != release.successor, m.id == from_id, -m.priority, m.id <= from_id, m.id))
        place = next((i for i, m in enumerate(able) if m.id == self.node), len(able))
        return place * (self.timing.beat_ms // SLOT_PARTS)

    # --- looking ------------------------------------------------------------------------------------------------------

    def view(self, now_ms: int) -> View:
        """How it stands, for people."""
        reign = self.reign
        left_ms = 0
        if reign is not None and reign.proved:
            left_ms = max(0, reign.hold_from_ms + self.timing.hold_ms - now_ms)
        recent = tuple(n for n in sorted(self.heard) if now_ms - self.heard[n] <= self.timing.hold_ms)
        return View(
            role=self.role,
            leader=self.leader,
            term=self.term,
            voted_for=self.ballot.voted_for if self.ballot is not None else "",
            token=reign.token if reign is not None else 0,
            hold_left_ms=left_ms,
            alive=tuple(sorted((self.node, *recent))),
            waits_for=self._waits_for(now_ms),
        )

    def _waits_for(self, now_ms: int) -> str:
        reign = self.reign
        if self.muted:
            return self._mute_sentence()
        if reign is not None:
            if reign.closed:
                return "its work to end, then it releases the role"
            if reign.ordered:
                return "" if reign.ran else "its work to start"
            if self._work_unconfirmed():
                return "the run lock: work of an earlier term on this machine is not confirmed gone"
            if now_ms < reign.start_at_ms:
                return f"{reign.start_at_ms - now_ms} ms, until any earlier holder's work is surely over"
            return "the first beat that a majority acks"
        if self.paused:
            return "an operator: primacy resume"
        if not self.healthy:
            return "its health probe to pass"
        left_ms = self._promise_left(now_ms)
        return f"{left_ms} ms of silence before it may vote" if left_ms and not self.leader else ""

    def _mute_sentence(self) -> str:
        missing = self.roll.missing(self.ballot)
        names = ", ".join(missing) or "nobody"
        if self.muted == "other-list":
            return f"its list of nodes changed; not yet reported by: {names} (gone for good: primacy rejoin --without NODE)"
        if any(report.memory for report in self.roll.reports.values()):
            return f"its memory is lost; not yet answered from memory: {names} (gone for good: primacy rejoin --without NODE)"
        if self.options.auto:
            return f"the first start of the cluster; not heard yet: {', '.join(self.roll.first_missing(Init(0))) or 'nobody'}"
        return "the first start of the cluster: primacy init, once, on one node"


def list_record(voters: tuple[str, ...], config: str) -> ListRecord:
    """A confirmed list, as a ballot holds it."""
    return ListRecord(config, voters, confirmed=True)
