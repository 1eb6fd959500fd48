"""What bully and ring have in common: finding a leader, watching it, and how islands become one again.

A strategy of this family says only how a round of its election goes; everything before and after it stands here, in
`lead.py`, and in `strategy.py`, the one way in. There is no quorum, no durable vote and no token: a partition has one
leader per island. What holds is that one remains when the network heals, within `rank.settle_ms` after the last fault:

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

Heartbeats are pulled by followers as over Ghoti's wire, where nothing says who leads and no term exists (B10):
fields at their defaults say nothing, and are believed as far as a real node would believe them. Nothing here is a
safety rule.
"""

from __future__ import annotations

from abc import abstractmethod

from primacy.election.effects import Effect, Record
from primacy.election.events import Code, Event
from primacy.election.messages import Alive, Coordinator
from primacy.election.model import Seat
from primacy.election.ranked.lead import ELECTING, Phase, RankLeader, Timer
from primacy.election.ranked.rank import EPOCH_JUMP_MAX, RankOptions
from primacy.settings.timing import RankTiming


class RankFollower(RankLeader):
    """What a node does that does not lead: it follows, answers announcements, asks who leads, and elects."""

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
        self._ended_ms: int | None = None
        """When somebody's announcement last ended an election of this node."""

    # --- what a strategy of this family adds --------------------------------------------------------------------------

    @abstractmethod
    def _start_round(self, now_ms: int) -> list[Effect]:
        """Begins a round of the election: this node may lead and none is running."""

    @abstractmethod
    def _strike(self, now_ms: int, node: str) -> list[Effect]:
        """A call to this node failed at once."""

    # --- following ----------------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        super()._enter(phase)
        if phase in (Phase.FOLLOW, Phase.LEAD):
            self._probes.clear()
            self._unanswered = 0
            self._crossed.clear()
            self._gone = ""

    def _follow(self, now_ms: int, leader: str) -> list[Effect]:
        if not self._up:
            return []
        changed = leader != self.leader
        if self._election_running():
            self._ended_ms = now_ms
        self._enter(Phase.FOLLOW)
        self.leader = leader
        self._arm(Timer.BEAT, now_ms, self._random.randint(1, max(1, self.timing.heartbeat_ms)))
        return [Record(Event(Code.FOLLOWS, self._epoch, leader))] if changed else []

    def _look_at_leader(self, now_ms: int) -> list[Effect]:
        self._arm(Timer.BEAT, now_ms, self.timing.heartbeat_ms)
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
        recent = now_ms - at_ms <= 2 * self.timing.heartbeat_ms and rival not in self._silent
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
        if not self._ranking.may_lead(candidate) or candidate == self.node:
            return False
        return self._ranking.outranks(candidate, self.node) or not self._joined or not self._able(now_ms)

    def _expected(self, sender: str, number: int) -> bool:
        """An answer to a recent look. Real nodes of Ghoti give no number, but their calls end in time or fail."""
        asked = self._asked.get(sender, -1)
        return number == 0 or 0 <= asked - number <= 1 + self.timing.answer_ms // max(1, self.timing.heartbeat_ms)

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
        if not self._ranking.may_lead(sender):
            return []
        known = self._epoch
        epoch = self._raise_epoch(message.epoch)
        following = self._phase is Phase.FOLLOW
        if following and sender == self.leader:
            self._ranking.told_pruned(sender, message.pruned)
            return []
        self._rival = (sender, now_ms)
        if self._phase is Phase.LEAD:
            return self._meet(sender)
        if following:
            if self._answers_lower_announcement(now_ms, sender):
                return self._elect(now_ms)
            newer = epoch == 0 or epoch > known or self._ranking.outranks(sender, self.leader)
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
        outranks = self._ranking.outranks
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
        return self._follow(now_ms, successor) if self._ranking.may_lead(successor) else []

    # --- electing -----------------------------------------------------------------------------------------------------

    def _election_running(self) -> bool:
        """B3: one election at a time; what else calls for one is merged into it."""
        return self._phase in ELECTING

    def _is_just_over(self, now_ms: int, caller: str) -> bool:
        """B3, B9: a call within a heartbeat of the outcome is merged into the election that ended by it.

        The leader hears that call too, and repeats its announcement. Else n nodes that call each other begin a round at
        each call and end it by the leader's answer, over and over: 2ⁿ messages. A call by the leader itself counts: it
        may leave.
        """
        if self._phase is not Phase.FOLLOW or self._ended_ms is None or caller in ("", self.leader):
            return False
        return now_ms - self._ended_ms < self.timing.heartbeat_ms

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
        return [Record(Event(Code.CAMPAIGNS, self._epoch)), *self._start_round(now_ms)]

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
        return self._look_around(now_ms) if self._ranking.others else self._can_lead(now_ms)

    def _look_around(self, now_ms: int) -> list[Effect]:
        """Long enough to hear an announcement too; shorter for the first node of a cluster, so that it is heard."""
        answer_ms, heartbeat_ms = self.timing.answer_ms, self.timing.heartbeat_ms
        first_ms = answer_ms if self.options.bootstrap else max(answer_ms, heartbeat_ms + heartbeat_ms // 2)
        return self._look(now_ms, self._ranking.others, self._patience_ms() if self._rounds else first_ms)

    def _look(self, now_ms: int, whom: tuple[str, ...], span_ms: int) -> list[Effect]:
        if not self._up:
            return []
        self._enter(Phase.LOOK)
        self.leader = ""
        self._arm(Timer.LIMIT, now_ms, span_ms + self._jitter(self.timing.heartbeat_ms))
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
        if not self._ranking.changed(members, version):
            return []
        for names in (self._asked, self._pending, self._probes, self._silent, self._crossed):
            for name in [name for name in names if name not in self._ranking]:
                del names[name]
        if self.node not in self._ranking:
            return self._left_out()
        if self._up and self._phase is Phase.IDLE:
            return self._begin(now_ms)
        if self._ranking.may_lead(self.leader):
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
