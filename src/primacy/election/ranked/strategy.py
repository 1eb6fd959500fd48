"""The one way in for bully and ring: inputs, timers and messages, and what a node shows of itself.

Whatever comes is handed down to the layer that it concerns: `follow.py` (finding and watching a leader, healing),
`lead.py` (leading, leaving in order), or the round of the strategy itself (`bully.py`, `ring.py`).
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
from primacy.election.messages import Alive, Coordinator, Election, Handover, Heartbeat, Message, Okay, Origin, Unable
from primacy.election.model import Kind, Role, Seat, View
from primacy.election.ranked.follow import RankFollower
from primacy.election.ranked.lead import ELECTING, PAUSED, Phase, Timer
from primacy.election.ranked.rank import RankOptions, detect_ms
from primacy.settings.timing import RankTiming


class RankStrategy(RankFollower):
    """One node of a cluster in which the highest live node is to lead."""

    def __init__(self, seat: Seat, timing: RankTiming, options: RankOptions) -> None:
        super().__init__(seat, timing, options)
        self._two_boots = False

    # --- what a strategy of this family adds --------------------------------------------------------------------------

    @abstractmethod
    def _call_over(self, now_ms: int) -> list[Effect]:
        """The limit of its own round has passed."""

    @abstractmethod
    def _hear_round(self, now_ms: int, sender: str, message: Message) -> list[Effect]:
        """A message of a round, from a known node."""

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
            case Answered(node) if node in self._ranking:
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
        if self._ranking.kind is Kind.OBSERVER:
            return Role.OBSERVER
        if self._paused:
            return Role.PAUSED
        if self._phase in ELECTING:
            return Role.CANDIDATE
        return Role.FOLLOWER if self._joined else Role.STARTING

    @property
    def pruned(self) -> tuple[str, ...]:
        """Nodes that no election waits for at present."""
        return self._ranking.pruned

    def view(self, now_ms: int) -> View:
        """How it stands. Nothing is held here, hence no hold and no token."""
        alive = self._ranking.alive(now_ms)
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

    def _overslept(self, now_ms: int) -> bool:
        """It was stopped for so long that the others must have gone on without it."""
        return self.deadline_ms is not None and now_ms - self.deadline_ms > detect_ms(self.timing)

    def _wake_up(self, now_ms: int) -> list[Effect]:
        """It comes back as a follower: what it believed is old, and its overdue waits prove nothing about others."""
        if not self._ranking.others:
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
        known = sender in self._ranking
        effects = self._note(now_ms, sender) if known else []
        match message:
            case Heartbeat(_, number):
                able = self._phase is Phase.LEAD or self._able(now_ms)
                return [*effects, Send(sender, Alive(self._origin, number, self.leader, self._epoch, able))]
            case Election(_, number):
                return effects + self._hear_call(now_ms, sender, number)
        if not known or not self._up or self.node not in self._ranking:
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
        return self._lead(now_ms) if self._phase is Phase.POLL and self._ranking.has_majority(now_ms) else []

    def _note(self, now_ms: int, sender: str) -> list[Effect]:
        """It lives: a node that was left out comes back by being heard."""
        if sender == self._gone:
            self._gone = ""
        returned = self._ranking.note(now_ms, sender)
        return [Record(Event(Code.RETURNED, self._epoch, sender))] if returned else []

    def _hear_namesake(self, origin: Origin) -> list[Effect]:
        if self._two_boots or origin.boot in (0, self._origin.boot):
            return []
        self._two_boots = True
        return [Record(Event(Code.TWO_BOOTS, self._epoch, self.node, "another node uses this id"))]

    def _hear_call(self, now_ms: int, sender: str, number: int) -> list[Effect]:
        """OK, and an own election. A leader answers by saying so; a stranger is kept quiet and moves nobody.

        On Ghoti's wire the sender may be unknown, as nobody reads that body: an empty one counts as listed.
        """
        if self._phase is Phase.LEAD:
            effects: list[Effect] = [Send(sender, Okay(self._origin, number))]
            return [*effects, Send(sender, self._announcement())] if sender in self._ranking else effects
        if not self._able(now_ms):
            return [Send(sender, Unable(self._origin, number))]
        listed = not sender or sender in self._ranking
        begins = listed and not self._is_just_over(now_ms, sender)
        return [Send(sender, Okay(self._origin, number)), *(self._elect(now_ms) if begins else [])]
