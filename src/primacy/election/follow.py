"""What bully and ring have in common: finding a leader, watching it, and how islands become one again.

A strategy of this family says only how a round of its election goes; everything before and after it stands here and
in `lead.py`. There is no quorum, no durable vote and no token: a partition has one leader per island. What holds is
that one remains when the network heals, within `rank.settle_ms` after the last fault:

- The leader announces itself every beat to the whole list (B2). A leader that hears a higher one makes sure of it with
  one look, stops its work and follows. So two leaders that meet are one a beat and a way there and back later.
- A follower of a leader that ranks below it stays quiet (it joined above a healthy leader), but answers the
  announcement of any *other* lower one with an election (B1). So a node between two leaders that cannot hear each
  other takes both.
- Every phase without a leader has a limit and ends in a new round (B4). Rounds wait longer and longer, up to a factor
  of `rank.BACKOFF_MAX`; any announcement ends the waiting at once.
- A leader whose answers stop coming counts as gone, and what it still announces counts for nothing until it answers a
  look: else a node that is heard but cannot hear would be followed and dropped for ever. An announcement that is older
  than what is known (epochs serve for this alone), or that would move a node off a live leader, is proved the same way.

Heartbeats are pulled by followers as over seed 000's wire, where nothing says who leads and no term exists (B10):
fields at their defaults say nothing, and are believed as far as a real node would believe them. Nothing here is a
safety rule.
"""

from __future__ import annotations

from abc import abstractmethod

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    Answered,
    DeadlinePassed,
    GuardLost,
    Health,
    Input,
    MembersChanged,
    Paced,
    Pause,
    Received,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    Unanswered,
    WorkGone,
)
from primacy.election.lead import ELECTING, PAUSED, Phase, RankLeader, Timer
from primacy.election.messages import Alive, Coordinator, Election, Handover, Heartbeat, Message, Okay, Origin, Unable
from primacy.election.model import Kind, Role, Seat, View
from primacy.election.rank import EPOCH_JUMP_MAX, RankOptions, detect_ms
from primacy.settings.timing import RankTiming


class RankStrategy(RankLeader):
    """One node of a cluster in which the highest live node is to lead."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._probes: dict[str, None] = {}
        """Announced themselves and were asked for proof."""
        self._silent: dict[str, None] = {}
        """Did not answer while they led; their announcements need proof until they do."""
        self._rival = ("", 0)
        """Who announced itself last, other than the one followed, and when."""
        self._crossed: dict[str, None] = {}
        """Rivals on record in this leadership."""
        self._gone = ""
        """The leader whose silence began this election."""
        self._unanswered = 0
        """Looks at the leader in a row without an answer."""
        self._two_boots = False

    # --- what a strategy of this family adds --------------------------------------------------------------------------

    @abstractmethod
    def _start_round(self, now_ms: int) -> list[Effect]:
        """Begins a round of the election: this node may lead and none is running."""

    @abstractmethod
    def _call_over(self, now_ms: int) -> list[Effect]:
        """The limit of its own round has passed."""

    @abstractmethod
    def _hear_round(self, now_ms: int, sender: str, message: Message) -> list[Effect]:
        """A message of a round, from a known node."""

    @abstractmethod
    def _strike(self, now_ms: int, node: str) -> list[Effect]:
        """A call to this node failed at once."""

    @abstractmethod
    def _ack_missing(self, now_ms: int) -> list[Effect]:
        """The ring's; bully passes nothing on."""

    # --- the port -----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """One input; the effects stand in the order in which they must happen."""
        effects = self._wake_up(now_ms) if self._overslept(now_ms) else []
        match given:
            case Received(message):
                effects += self._receive(now_ms, message)
            case DeadlinePassed():
                effects += self._tick(now_ms)
            case Unanswered(node):
                effects += self._unreached(now_ms, node)
            case Answered(node) if node in self._roster:
                effects += self._note(now_ms, node) + self._counted(now_ms)
            case WorkGone(term, _):
                effects += self._work_gone(now_ms, term)
            case GuardLost(term) if term and term == self._led:
                effects += self._resign(Code.GUARD_LOST, "", "its guard is gone") + self._look_around(now_ms)
            case RunLock(held):
                effects += self._run_lock(now_ms, held)
            case StepDown(successor, reason):
                effects += self._leave(Code.TRANSFER if successor else Code.STEP_DOWN, reason, successor)
            case Pause():
                self._paused = True
                effects += self._cannot_lead(now_ms, Code.PAUSED, "told to pause")
            case Resume():
                self._paused = False
                effects += self._can_lead(now_ms)
            case Health(ok, detail):
                self._ill = "" if ok else detail or "a probe fails"
                effects += self._can_lead(now_ms) if ok else self._cannot_lead(now_ms, Code.UNHEALTHY, self._ill)
            case MembersChanged(members, version):
                effects += self._members_changed(now_ms, members, version)
            case Started(_, lock_held) if not self._up and not self._stopping:
                self._up, self._lock_held = True, lock_held
                effects += [Record(Event(Code.STARTED)), *self._begin(now_ms)]
            case Paced(factor):
                self._pace(factor)
            case Shutdown():
                effects += self._shut_down()
            case _:
                pass  # what concerns strategies with a ballot or a store
        self.deadline_ms = min(self._timers.values(), default=None)
        return effects

    @property
    def role(self) -> Role:
        """In the users' words."""
        if self._phase is Phase.LEAD:
            return Role.LEADER
        if self._roster.kind is Kind.OBSERVER:
            return Role.OBSERVER
        if self._paused:
            return Role.PAUSED
        if self._phase in ELECTING:
            return Role.CANDIDATE
        return Role.FOLLOWER if self._joined else Role.STARTING

    @property
    def pruned(self) -> tuple[str, ...]:
        """Nodes that no election waits for at present."""
        return self._roster.pruned

    def view(self, now_ms: int) -> View:
        """How it stands. Nothing is held here, hence no hold and no token."""
        alive = self._roster.alive(now_ms)
        return View(self.role, self.leader, self._epoch, "", 0, 0, alive, self._waits_for(now_ms))

    def _waits_for(self, now_ms: int) -> str:
        """What belongs behind "waits for"; a paused node says so even while it follows."""
        if self._paused and self._phase is not Phase.LEAD:
            return PAUSED
        match self._phase:
            case Phase.IDLE:
                return "the list of nodes; see that a node to join is up" if self._up else ""
            case Phase.LOOK:
                return self._hindrance(now_ms) or "the other nodes to say who leads"
            case Phase.CALL:
                return f"the election that it called: {len(self._pending)} nodes have still to answer"
            case Phase.WAIT if self._awaited:
                return f"an announcement, since {self._awaited} is there"
            case Phase.WAIT:
                return "its next round"
            case Phase.POLL:
                return "a majority of the list to answer"
            case _:
                return ""

    # --- time ---------------------------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for timer in Timer:
            if self._timers.get(timer, now_ms + 1) <= now_ms:
                del self._timers[timer]
                effects += self._fire(now_ms, timer)
        return effects

    def _fire(self, now_ms: int, timer: Timer) -> list[Effect]:
        match timer, self._phase:
            case Timer.LIMIT, Phase.LOOK:
                return self._look_over(now_ms)
            case Timer.LIMIT, Phase.CALL:
                return self._call_over(now_ms)
            case Timer.LIMIT, Phase.WAIT:
                return self._wait_expired(now_ms)
            case Timer.LIMIT, _:
                return self._poll_over(now_ms)
            case Timer.BEAT, Phase.LEAD:
                return self._leader_beat(now_ms)
            case Timer.BEAT, _:
                return self._look_at_leader(now_ms)
            case Timer.GONE, _:
                return self._leader_gone(now_ms, "does not answer")
        return self._ack_missing(now_ms)

    def _enter(self, phase: Phase) -> None:
        super()._enter(phase)
        if phase in (Phase.FOLLOW, Phase.LEAD):
            self._probes.clear()
            self._unanswered = 0
            self._crossed.clear()
            self._gone = ""

    def _overslept(self, now_ms: int) -> bool:
        """It was stopped for so long that the others must have gone on without it."""
        return self.deadline_ms is not None and now_ms - self.deadline_ms > detect_ms(self.timing)

    def _wake_up(self, now_ms: int) -> list[Effect]:
        """It comes back as a follower: what it believed is old, and its overdue waits prove nothing about others."""
        if not self._roster.others:
            return []
        effects = self._resign(Code.OVERSLEPT, "", "it was stopped meanwhile") if self._phase is Phase.LEAD else []
        self._timers.clear()
        self._joined = False
        return effects + self._look_around(now_ms)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        sender = message.origin.node
        if sender == self.node:
            return self._hear_namesake(message.origin)
        known = sender in self._roster
        effects = self._note(now_ms, sender) if known else []
        match message:
            case Heartbeat(_, number):
                able = self._phase is Phase.LEAD or self._able(now_ms)
                return [*effects, Send(sender, Alive(self._origin, number, self.leader, self._epoch, able))]
            case Election(_, number):
                return effects + self._hear_call(now_ms, sender, number)
        if not known or not self._up or self.node not in self._roster:
            return effects
        match message:
            case Alive():
                effects += self._hear_alive(now_ms, sender, message)
            case Coordinator():
                effects += self._hear_coordinator(now_ms, sender, message)
            case Handover(_, successor):
                effects += self._hear_handover(now_ms, sender, successor)
            case _:
                effects += self._hear_round(now_ms, sender, message)
        return effects + self._counted(now_ms)

    def _counted(self, now_ms: int) -> list[Effect]:
        """One more was heard: it leads, if it waited for a majority and this makes one."""
        return self._lead(now_ms) if self._phase is Phase.POLL and self._roster.has_majority(now_ms) else []

    def _note(self, now_ms: int, sender: str) -> list[Effect]:
        """It lives: a node that was left out comes back by being heard."""
        if sender == self._gone:
            self._gone = ""
        returned = self._roster.note(now_ms, sender)
        return [Record(Event(Code.RETURNED, self._epoch, sender))] if returned else []

    def _hear_namesake(self, origin: Origin) -> list[Effect]:
        if self._two_boots or origin.boot in (0, self._origin.boot):
            return []
        self._two_boots = True
        return [Record(Event(Code.TWO_BOOTS, self._epoch, self.node, "another node uses this id"))]

    def _hear_call(self, now_ms: int, sender: str, number: int) -> list[Effect]:
        """OK, and an own election. A leader answers by saying so; a stranger is kept quiet and moves nobody.

        On seed 000's wire the sender may be unknown, as nobody reads that body: an empty one counts as listed.
        """
        if self._phase is Phase.LEAD:
            effects: list[Effect] = [Send(sender, Okay(self._origin, number))]
            return [*effects, Send(sender, self._announcement())] if sender in self._roster else effects
        if not self._able(now_ms):
            return [Send(sender, Unable(self._origin, number))]
        listed = not sender or sender in self._roster
        return [Send(sender, Okay(self._origin, number)), *(self._elect(now_ms) if listed else [])]

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, now_ms: int, leader: str) -> list[Effect]:
        if not self._up:
            return []
        changed = leader != self.leader
        self._enter(Phase.FOLLOW)
        self.leader = leader
        self._arm(Timer.BEAT, now_ms, self._random.randint(1, max(1, self.timing.beat_ms)))
        return [Record(Event(Code.FOLLOWS, self._epoch, leader))] if changed else []

    def _look_at_leader(self, now_ms: int) -> list[Effect]:
        self._arm(Timer.BEAT, now_ms, self.timing.beat_ms)
        self._unanswered += 1
        if self._unanswered >= self.timing.misses and Timer.GONE not in self._timers:
            self._arm(Timer.GONE, now_ms, self.timing.answer_ms)
        return [self._ask(self.leader)]

    def _leader_gone(self, now_ms: int, why: str, code: Code = Code.LEADER_SILENT) -> list[Effect]:
        """Elects, unless another node above has announced itself just now: then that one is asked first."""
        gone, self.leader = self.leader, ""
        self._gone = gone
        self._silent[gone] = None
        rival, at_ms = self._rival
        recent = now_ms - at_ms <= 2 * self.timing.beat_ms and rival not in self._silent
        lost = Event(code, self._epoch, gone, f"{gone} {why}")
        return [Record(lost), *self._go_on(now_ms, rival if recent else "")]

    def _does_not_lead(self, now_ms: int, named: str) -> list[Effect]:
        """Its leader is up and says that another leads, or nobody: two may have come to follow each other."""
        gone, self.leader = self.leader, ""
        left = Event(Code.LEADER_LEFT, self._epoch, gone, f"{gone} says that it does not lead")
        return [Record(left), *self._go_on(now_ms, named)]

    def _go_on(self, now_ms: int, candidate: str) -> list[Effect]:
        """Without a leader: looks at the one said to lead if it is of use (B5), or elects."""
        self._enter(Phase.IDLE)
        if self._takes(now_ms, candidate):
            return self._look(now_ms, (candidate,), self.timing.answer_ms)
        return self._new_round(now_ms)

    def _takes(self, now_ms: int, candidate: str) -> bool:
        """Would follow it: one that may lead and ranks above; or any rank, if this node cannot lead or is new (B5)."""
        if not self._roster.may_lead(candidate) or candidate == self.node:
            return False
        return self._roster.outranks(candidate, self.node) or not self._joined or not self._able(now_ms)

    def _expected(self, sender: str, number: int) -> bool:
        """An answer to a recent look. Real nodes of seed 000 give no number, but their calls end in time or fail."""
        asked = self._asked.get(sender, -1)
        return number == 0 or 0 <= asked - number <= 1 + self.timing.answer_ms // max(1, self.timing.beat_ms)

    def _hear_alive(self, now_ms: int, sender: str, message: Alive) -> list[Effect]:
        if not self._expected(sender, message.number):
            return []
        self._silent.pop(sender, None)
        self._raise_epoch(message.epoch)
        leads = message.leader == sender or (message.leader is None and message.able)
        if self._phase is Phase.FOLLOW and sender == self.leader:
            if not leads:
                return self._does_not_lead(now_ms, message.leader or "")
            self._unanswered = 0
            self._timers.pop(Timer.GONE, None)
            return []
        if leads and (message.leader or sender in self._probes):
            return self._proved(now_ms, sender)
        return self._hear_look_answer(now_ms, sender, message) if self._phase is Phase.LOOK else []

    def _proved(self, now_ms: int, sender: str) -> list[Effect]:
        """A look was answered: it leads, and hears us."""
        asked = sender in self._probes
        self._probes.pop(sender, None)
        if self._phase is Phase.LEAD:
            if not asked or not self._yields_to(sender):
                return []
            return self._resign(Code.OUTRANKED, sender, f"{sender} leads too") + self._follow(now_ms, sender)
        if not self._takes(now_ms, sender) or (self._phase is Phase.FOLLOW and not asked):
            return []
        return self._follow(now_ms, sender)

    # --- announcements ------------------------------------------------------------------------------------------------

    def _raise_epoch(self, epoch: int) -> int:
        """The epoch as far as it can be believed; 0 for none."""
        if not 0 < epoch <= self._epoch + EPOCH_JUMP_MAX:
            return 0
        self._epoch = max(self._epoch, epoch)
        return epoch

    def _hear_coordinator(self, now_ms: int, sender: str, message: Coordinator) -> list[Effect]:
        if not self._roster.may_lead(sender):
            return []
        known = self._epoch
        epoch = self._raise_epoch(message.epoch)
        following = self._phase is Phase.FOLLOW
        if following and sender == self.leader:
            self._roster.told_pruned(sender, message.pruned)
            return []
        self._rival = (sender, now_ms)
        if self._phase is Phase.LEAD:
            return self._meet(sender)
        if following:
            if self._answers_lower_announcement(now_ms, sender):
                return self._elect(now_ms)
            newer = epoch == 0 or epoch > known or self._roster.outranks(sender, self.leader)
            return self._probe(sender) if newer and self._takes(now_ms, sender) else []
        if not self._takes(now_ms, sender):
            return []  # from below, and an election is running that will tell it (B1, B3)
        if sender in self._silent or 0 < epoch < known:
            return self._probe(sender)
        return self._follow(now_ms, sender)

    def _answers_lower_announcement(self, now_ms: int, sender: str) -> bool:
        """B1: a node that may lead does not stand by while another than its leader takes over from below.

        Not if its leader ranks above itself: that one lives, would win again, and meets the announcer on its own.
        """
        outranks = self._roster.outranks
        return outranks(self.node, sender) and not outranks(self.leader, self.node) and self._able(now_ms)

    def _probe(self, sender: str) -> list[Effect]:
        self._probes[sender] = None
        return [self._ask(sender)]

    def _meet(self, rival: str) -> list[Effect]:
        """Two leaders met. The lower makes sure and yields; the higher goes on, as its next announcement says (B2)."""
        effects: list[Effect] = []
        if rival not in self._crossed:
            self._crossed[rival] = None
            effects.append(Record(Event(Code.CROSSED, self._led, rival, f"{rival} announced itself too")))
        return effects + self._probe(rival) if self._yields_to(rival) else effects

    def _hear_handover(self, now_ms: int, sender: str, successor: str) -> list[Effect]:
        """Only from the leader that it follows, so that nobody is made leader by a stranger's or an old word."""
        if self._phase is not Phase.FOLLOW or sender != self.leader:
            return []
        if successor == self.node:
            return self._win(now_ms) if self._able(now_ms) else []
        return self._follow(now_ms, successor) if self._roster.may_lead(successor) else []

    # --- electing -----------------------------------------------------------------------------------------------------

    def _election_running(self) -> bool:
        """B3: one election at a time; what else calls for one is merged into it."""
        return self._phase in ELECTING

    def _elect(self, now_ms: int) -> list[Effect]:
        """Somebody else gave the reason, so the leader that it believes in is kept on show until the outcome.

        One that is new, or slept, asks who leads before it stands: the call may be as old as its sleep.
        """
        asks_first = self._phase is Phase.LOOK and not self._joined
        return [] if asks_first or self._election_running() else self._new_round(now_ms)

    def _new_round(self, now_ms: int) -> list[Effect]:
        """A round of its own; one that cannot lead asks who does instead."""
        self._joined = True
        if not self._able(now_ms):
            return self._look_around(now_ms)
        return [Record(Event(Code.STANDS, self._epoch)), *self._start_round(now_ms)]

    def _wait_expired(self, now_ms: int) -> list[Effect]:
        """B4: every wait ends in a new round."""
        effects = self._in_vain() if self._awaited else []
        self.leader = ""
        self._rounds += 1
        return effects + self._new_round(now_ms)

    def _in_vain(self) -> list[Effect]:
        sentence = f"{self._awaited} was there and did not announce itself"
        return [Record(Event(Code.WINNER_DEAD, self._epoch, self._awaited, sentence))]

    # --- asking who leads ---------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> list[Effect]:
        """Nobody leads before it has asked the others, not even the first node after a restart."""
        return self._look_around(now_ms) if self._roster.others else self._can_lead(now_ms)

    def _look_around(self, now_ms: int) -> list[Effect]:
        """Long enough to hear an announcement too; shorter for the first node of a cluster, so that it is heard."""
        answer_ms, beat_ms = self.timing.answer_ms, self.timing.beat_ms
        first_ms = answer_ms if self.options.bootstrap else max(answer_ms, beat_ms + beat_ms // 2)
        return self._look(now_ms, self._roster.others, self._patience_ms() if self._rounds else first_ms)

    def _look(self, now_ms: int, whom: tuple[str, ...], span_ms: int) -> list[Effect]:
        if not self._up:
            return []
        self._enter(Phase.LOOK)
        self.leader = ""
        self._arm(Timer.LIMIT, now_ms, span_ms + self._jitter(self.timing.beat_ms))
        self._pending = dict.fromkeys(whom)
        return [self._ask(name) for name in whom]

    def _hear_look_answer(self, now_ms: int, sender: str, message: Alive) -> list[Effect]:
        """It does not lead itself. A join answer names the leader; the word of others is not enough."""
        named = message.leader or ""
        if message.number == 0 and not self._joined and named != sender and self._takes(now_ms, named):
            return self._follow(now_ms, named)
        return self._answered(now_ms, sender)

    def _answered(self, now_ms: int, node: str) -> list[Effect]:
        """All have answered and nobody leads: no need to wait longer. One that cannot lead would only ask again."""
        self._pending.pop(node, None)
        return [] if self._pending or not self._able(now_ms) else self._look_over(now_ms)

    def _look_over(self, now_ms: int) -> list[Effect]:
        """B5: "no usable leader" is itself a reason to elect."""
        able = self._able(now_ms)
        if able and self.options.bootstrap and not self._joined:
            return self._win(now_ms)
        self._rounds += not able
        return self._new_round(now_ms)

    def _unreached(self, now_ms: int, node: str) -> list[Effect]:
        """A call failed at once. That is the silence of a look, sooner; it proves no more."""
        if self._phase is Phase.FOLLOW and node == self.leader and self._unanswered >= self.timing.misses:
            return self._leader_gone(now_ms, "refuses the call")
        if self._phase is Phase.LOOK and node in self._pending:
            return self._answered(now_ms, node)
        return self._strike(now_ms, node)

    # --- the list -----------------------------------------------------------------------------------------------------

    def _members_changed(self, now_ms: int, members: tuple[tuple[str, int, int], ...], version: int) -> list[Effect]:
        """Changes who ranks where and who is asked; who leads changes only if the leader itself has left."""
        if not self._roster.changed(members, version):
            return []
        for names in (self._asked, self._pending, self._probes, self._silent, self._crossed):
            for name in [name for name in names if name not in self._roster]:
                del names[name]
        if self.node not in self._roster:
            return self._left_out()
        if self._up and self._phase is Phase.IDLE:
            return self._begin(now_ms)
        if self._roster.may_lead(self.leader):
            return []
        if self._phase is Phase.FOLLOW:
            return self._leader_gone(now_ms, "has left the list", Code.LEADER_LEFT)
        self.leader = ""
        return []

    def _left_out(self) -> list[Effect]:
        """This node was removed: it stops its work, says so once, and nothing more."""
        why = "it was removed from the list"
        effects: list[Effect] = []
        if self._phase is Phase.LEAD:
            effects = self._resign(Code.REMOVED, self.node, why)
        elif self._phase is not Phase.IDLE:
            effects = [Record(Event(Code.REMOVED, self._epoch, self.node, why))]
        self._halt()
        self._joined = False
        return effects
