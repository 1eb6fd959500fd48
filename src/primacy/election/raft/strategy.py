"""Raft's election without its log: a majority of durable votes makes one leader per term, acked beats make its hold.

What it adds to the paper, and why (the letters are the safety rules, docs/rules.md):

- Time. A leader's work must be dead before a successor's starts. The leader counts from *before* a beat left (Q3); a
  winner counts from the newest beat that any of its voters acked or sent, and waits what is left of the longest hold
  times the drift ratio (Q5). A voter that heard a leader refuses votes for P (Q4), so that in a normal failover
  nothing is left to wait. A leader without a majority stops by its own clock and goes silent (Q7).
- Ends. A term that was ended for a node never reopens (Q8). A release says that all work up to a term is gone, and
  frees the voters at once (G6); it is only given by a leader whose work ran (G7).
- Memory. A node that forgot, or whose list changed, is mute until all others have answered (M, see `recovery.py`).

Of the single executor: CurrentTerm and VotedFor are `ballot.term` and `ballot.voted_for`; Votes and Heartbeats are
`Candidate.yes` and `Progress.acked`; ElectionTimeout, LeadershipAwareTimeout, HeartbeatTimer and
LeadershipGraceTimeout are `stand_at_ms`, the promise, `next_beat_ms` and `start_at_ms`. It never touches a clock, a
socket or a disk; time and chance are handed in.

This file is the one way in: it tells inputs apart, orders effects, sets the deadline and shows the view. The layers
below are `raft_memory.py`, `raft_vote.py`, `raft_lead.py` and `raft_state.py`.
"""

from __future__ import annotations

from typing import assert_never

from primacy.election import guarantees
from primacy.election.effects import Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    Answered,
    DeadlinePassed,
    GuardLost,
    Health,
    Init,
    Input,
    MembersChanged,
    Paced,
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
    StoreNews,
    Unanswered,
    WorkDeferred,
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
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import DOUBLED, Role, View
from primacy.election.raft.memory import TWO_BOOTS, Remembering
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftOptions
from primacy.election.raft.state import made as _made

__all__ = ["RaftOptions", "RaftStrategy"]

URGENT = (Stop, Extend, OrderRelease)
"""Effects that end or extend work: they rely on no ballot and must not wait for a disk."""
RELY = (Send, Start)
"""Effects that rely on the ballot of their step."""


NEVER_MS = 2**63


class RaftStrategy(Remembering):
    """One durable vote per node and term, hence at most one leader per term; one acting holder at any instant."""

    guarantees = guarantees.RAFT

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """One input, one ordered list of effects. A leader whose time is over loses before it hears anything else."""
        effects: list[Effect] = []
        self._steady = None
        if (self._saving or self._voiding) and type(given) is not PersistFailed:
            self._saved()
        if self._refused:
            self._forget_refusals(now_ms)
        leader_state = self.leader_state
        if leader_state is not None and self._is_late(now_ms, leader_state):
            effects = self._lose(now_ms, Code.MAJORITY_LOST, "no majority acked a beat in time")
        match given:
            case Received():
                heard = self._receive(now_ms, given.message)
                effects = effects + heard if effects else heard
            case DeadlinePassed():
                effects += self._wake(now_ms)
            case WorkStarted(term):
                effects += self._work_started(now_ms, term)
            case WorkGone(term, released):
                effects += self._work_gone(now_ms, term, released)
            case WorkDeferred(term, why):
                effects += self._work_deferred(now_ms, term, why)
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
                self.recovery.without = without
                effects += self._decide_mute(now_ms)
            case Unanswered() | Answered() | Paced() | MembersChanged() | StoreAnswered() | StoreNews():
                pass  # not of this strategy
            case _:
                assert_never(given)
        if self._offers and type(given) is not Received:
            effects += self._offer_again(now_ms)  # by time alone: a message from the wire gets one answer (E1)
        self._rearm(now_ms)
        if self.ballot is self._durable and not self._disk_fault:
            self._starts = self._saving = False
            self._calm = self._booted and not (self.muted or self._offers or self._voiding)
            if not self._calm:
                self._steady = None
            return effects
        self._steady, self._calm = None, False
        return self._with_persist(effects)

    def again(self, now_ms: int, message: Message | None) -> list[Effect] | None:
        """A short way for what goes round all the time: the next beat of our leader, an ack of a beat of ours, or the
        moment for our next beat, which is no message.

        The same as `step` with it, in effects and in all that it leaves behind. None, with nothing changed, if anything
        about this node or the message is not as it was at the last step: then `step` must hear it.
        """
        steady, leader_state = self._steady, self.leader_state
        if message is None:
            return self._beat_again(now_ms, leader_state) if leader_state is not None and self._calm else None
        origin = message.origin
        if steady is not None and type(message) is Beat:
            same = origin is steady.origin or origin == steady.origin
            if not same or message.term != steady.term or message.hold_ms != steady.hold_ms:
                return None
            if message.settled is not steady.settled or message.number <= self._acked_number:
                return None
            if self._refused:
                self._forget_refusals(now_ms)
            self._acked_number = message.number
            self.heard[origin.node] = self.newest_at_ms = now_ms
            self.stand_at_ms = self.deadline_ms = self._timeout(now_ms)
            return [_made(Send, (origin.node, _made(Ack, (self.origin, message.term, message.number, origin.boot))))]
        if leader_state is not None and self._calm and type(message) is Ack:
            return self._acked_again(now_ms, leader_state, message)
        return None

    def _beat_again(self, now_ms: int, leader_state: Leader) -> list[Effect] | None:
        if (
            not leader_state.ran
            or not leader_state.ordered
            or now_ms < leader_state.next_beat_ms
            or self._is_late(now_ms, leader_state)
        ):
            return None
        if self._refused:
            self._forget_refusals(now_ms)
        effects = self._beat(now_ms, leader_state)
        self._rearm(now_ms)
        return effects

    def _acked_again(self, now_ms: int, leader_state: Leader, ack: Ack) -> list[Effect] | None:
        origin, number = ack.origin, ack.number
        node = origin.node
        known = self._known.get(node)
        if (known is not origin and known != origin) or not leader_state.ordered or self._is_late(now_ms, leader_state):
            return None
        if ack.term != leader_state.term or ack.leader_boot != self.seat.boot or node not in self.quorum.other_voters:
            return None
        if not leader_state.progress.is_news(node, number):
            return None
        if self._refused:
            self._forget_refusals(now_ms)
        self.heard[node] = now_ms
        leader_state.progress.acked[node] = number
        if number <= leader_state.progress.proved:
            return []
        effects = self._prove(now_ms, leader_state)
        self._rearm(now_ms)
        return effects

    def _with_persist(self, effects: list[Effect]) -> list[Effect]:
        """A changed ballot becomes durable before the first message, or start, of this step (Q1).

        What ends or extends work stands in front: it relies on no ballot, and must not wait for a slow disk. While the
        disk is in doubt, a node that does not lead saves again before it says anything (F31).
        """
        self._starts = self._saving = False
        if self.ballot is None:
            return effects
        if self.ballot is self._durable:
            if not self._disk_fault or self.leader_state is not None or not any(type(e) is Send for e in effects):
                return effects
        else:
            self._earlier, self._durable = self._durable, self.ballot
        last = max((place for place, effect in enumerate(effects) if type(effect) in URGENT), default=-1)
        urgent = [effect for effect in effects[: last + 1] if type(effect) not in RELY]
        rest = [effect for place, effect in enumerate(effects) if place > last or type(effect) in RELY]
        self._starts = any(type(effect) is Start for effect in rest)
        self._saving = True
        return [*urgent, Persist(self.ballot), *rest]

    def _saved(self) -> None:
        """No failure was told: what was on its way to the disk has arrived."""
        self._disk_fault = ""
        if self._voiding:
            self._voiding = self._void_due = self.recovery.mark_due = False

    def _persist_failed(self, now_ms: int, reason: str) -> list[Effect]:
        """Back to what the disk has. Nothing that relied on the lost ballot was done (F31)."""
        if self._voiding:
            self._voiding = False  # tried again with the next question
            return self._disk_refused(reason)
        self.ballot = self._durable = self._earlier
        self._first_start_failed()
        if self._starts and self.leader_state is not None:
            self.leader_state.ordered = False
            self.work_term = 0
        if self.leader_state is not None and self.leader_state.term > self.term:
            self._retire(now_ms)
        self._ask_at_ms = now_ms + self.timing.heartbeat_ms
        if self.leader_state is None:
            if self.campaign is not None:
                self._become_follower()
            self._booted = self.ballot is None or self.ballot.incarnation == self.origin.incarnation
            if self.ballot is None:
                self.origin = self.origin._replace(incarnation=0, base=0)
            else:
                self.origin = self.origin._replace(base=self.ballot.base)
            self._become_able(self._why_mute())
            self.stand_at_ms = now_ms + self.timing.promise_ms
        return self._disk_refused(reason)

    def _disk_refused(self, reason: str) -> list[Effect]:
        was, self._disk_fault = self._disk_fault, reason or "no reason given"
        return [] if was else [Record(Event(Code.DISK_FAILED, self.term, detail=reason))]

    def _rearm(self, now_ms: int) -> None:
        """The next moment at which time alone changes something."""
        leader_state = self.leader_state
        if leader_state is not None:
            at = min(leader_state.next_beat_ms, leader_state.progress.hold_from_ms + self.timing.term_at_ms)
            if now_ms < leader_state.start_at_ms:
                at = min(at, leader_state.start_at_ms)
        elif self.muted or not self._booted:
            at = self._ask_at_ms
        elif self.quorum.campaigns or self.leader:
            at = self.stand_at_ms
        else:
            at = NEVER_MS
        if self._offers:
            at = min(at, self._offer_at_ms)
        self.deadline_ms = None if at == NEVER_MS else at

    def _wake(self, now_ms: int) -> list[Effect]:
        """Time passed; it may be early or late. Each part looks at its own moment."""
        if self.leader_state is not None:
            return self._lead_on(now_ms, self.leader_state)
        if not self._booted or self.muted:
            if now_ms < self._ask_at_ms:
                return []
            return self._ask(now_ms) if self._booted else self._boot(now_ms)
        if now_ms < self.stand_at_ms:
            return []
        return self._first_start_again() + self._stand(now_ms)

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        origin = message.origin
        if not self._booted:
            return []
        if origin.node == self.node:
            same = origin.boot == self.seat.boot
            return [] if same else self._note(Code.TWO_BOOTS, origin.node, "our own id is used twice")
        effects: list[Effect] = []
        known = self._known.get(origin.node)
        if known is not origin and known != origin:
            heard, effects = self._meet(now_ms, message)
            if not heard:
                return effects
        self.heard[origin.node] = now_ms
        if self._offers and self._offers.get(origin.node, origin.boot) != origin.boot:
            del self._offers[origin.node]  # the boot that was blank is gone
        if not effects:  # the two that come all the time
            if type(message) is Ack:
                return self._on_ack(now_ms, message)
            if type(message) is Beat:
                return self._on_beat(now_ms, message)
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
                self.recovery.remembers[origin.node] = origin.boot
            case Stale():
                return effects + self._on_stale(now_ms, message)
        return effects

    def hold_left_ms(self, now_ms: int) -> int:
        leader_state = self.leader_state
        return (
            max(0, leader_state.progress.hold_from_ms + self.timing.hold_ms - now_ms)
            if leader_state is not None and leader_state.progress.proved
            else 0
        )

    def view(self, now_ms: int) -> View:
        """How it stands, for people."""
        leader_state = self.leader_state
        recent = tuple(n for n in sorted(self.heard) if now_ms - self.heard[n] <= self.timing.hold_ms)
        return View(
            role=self.role,
            leader=self.leader,
            term=self.term,
            voted_for=self.ballot.voted_for if self.ballot is not None else "",
            token=leader_state.token if leader_state is not None else 0,
            hold_left_ms=self.hold_left_ms(now_ms),
            alive=tuple(sorted((self.node, *recent))),
            waits_for=self._waits_for(now_ms),
        )

    def _waits_for(self, now_ms: int) -> str:
        """What this node waits for, in one phrase with the next command in it; empty if nothing is amiss."""
        to_save = self.ballot is not None or self.recovery.mark_due or self._void_due or not self.recovery.reports
        if self._disk_fault and to_save and self.role is not Role.LEADER:
            return f"its disk to take the ballot ({self._disk_fault})"
        if self.muted:
            return self._mute_sentence()
        if self.leader_state is not None:
            return self._leader_sentence(now_ms, self.leader_state)
        if self._work_unconfirmed():
            return "the run lock: work of an earlier term on this machine is not confirmed gone"
        if self.paused:
            return "an operator: primacy resume"
        if not self.healthy:
            return f"its health to return: {self.ill}"
        if self.leader:
            return ""
        left_ms = self._promise_left(now_ms)
        if left_ms:
            return f"{left_ms} ms of silence to pass before it may vote"
        if self.role is Role.CANDIDATE:
            since_ms = now_ms - self.timing.promise_ms
            others = ", ".join(name for name in sorted(self._elsewhere) if self._elsewhere[name] > since_ms)
            differs = f"; under another list or timing: {others} (give all nodes the same file)" if others else ""
            return f"votes of a majority: {self.quorum.majority} of {len(self.quorum.voters)} voting nodes{differs}"
        return "a leader to be elected" if self.quorum.votes else ""

    def _leader_sentence(self, now_ms: int, leader_state: Leader) -> str:
        if leader_state.closed:
            return "its work to end, then it releases the role"
        if leader_state.ordered:
            return "" if leader_state.ran else leader_state.deferred or "its work to start"
        if self._work_unconfirmed():
            return "the run lock: work of an earlier term on this machine is not confirmed gone"
        if now_ms < leader_state.start_at_ms:
            return f"{leader_state.start_at_ms - now_ms} ms, until any earlier holder's work is surely over"
        return "the first beat that a majority acks"

    def _mute_sentence(self) -> str:
        if self.muted == TWO_BOOTS:
            return f"{DOUBLED}, or this disk is a copy; stop one, restart the other"
        missing = self.recovery.missing(self.ballot)
        names = ", ".join(missing) or "nobody"
        gone = "".join(f" --without {name}" for name in missing)
        remedy = f" (gone for good: primacy rejoin{gone})" if gone else ""
        if self.muted == "other-list":
            return f"its new list of nodes to be reported by {names}{remedy}"
        if any(report.memory for report in self.recovery.reports.values()):
            kept, *others = self.recovery.starts_in_use() or ((),)
            if others and not missing:
                given_up = ", ".join(name for names in others for name in names)
                used = f"two first starts are in use, by {', '.join(kept)} and by {given_up}"
                return f"an operator: {used}; on {given_up}: stop the agent, remove its file ballot, start it again"
            return f"answers from memory, for its own is lost, by {names}{remedy}"
        init = self.recovery.init
        refused = self.recovery.first_refused(init or Init(0))
        if refused:
            return f"the first start of the cluster; {refused}: give all nodes the same file"
        missing = self.recovery.first_missing(init or Init(0))
        earlier = "".join(f" --without {name}" for name in missing if name in self.recovery.behind)
        if init is None and not earlier and (self.recovery.is_tainted or not self.options.auto):
            return "the first start of the cluster: primacy init, once, on one node"
        remedy = f" (of an earlier list; gone for good: primacy init{earlier})" if earlier else ""
        heard = f"not heard yet: {', '.join(missing)}{remedy}" if missing else "all nodes were heard"
        return f"the first start of the cluster; {heard}"
