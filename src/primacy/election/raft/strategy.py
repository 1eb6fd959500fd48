"""Raft's election without its log: a majority of durable votes makes one leader per term, acked heartbeats make its
hold.

What it adds to the paper, and why (the letters are the safety rules, docs/rules.md):

- Time. A leader's work must be dead before a successor's starts. The leader counts from *before* a heartbeat left (Q3);
a winner counts from the newest heartbeat that any of its voters acked or sent, and waits what is left of the longest
hold times the drift ratio (Q5). A voter that heard a leader refuses votes for P (Q4), so that in a normal failover
nothing is left to wait. A leader without a majority stops by its own clock and goes silent (Q7).
- Ends. A term that was ended for a node never reopens (Q8). A release says that all work up to a term is gone, and
  frees the voters at once (G6); it is only given by a leader whose work ran (G7).
- Memory. A node that forgot, or whose times, strategy or store changed, is recovering until all others have answered
  (M, see `recovery.py`).
- Members. The leader changes them while it leads, in steps that overlap (R, see `change.py`).

Of the single executor: CurrentTerm and VotedFor are `ballot.term` and `ballot.voted_for`; Votes and Heartbeats are
`Candidate.yes` and `Progress.acked`; ElectionTimeout, LeadershipAwareTimeout, HeartbeatTimer and
LeadershipGraceTimeout are `campaign_at_ms`, the promise, `next_heartbeat_ms` and `start_at_ms`. It never touches a
clock, a socket or a disk; time and chance are handed in.

This file is the one way in: it puts the parts together, tells inputs apart, orders effects and sets the deadline. Read
on in `roles.py` and `state.py` (the roles and every change between them), then `follow.py`, `campaign.py`, `lead.py`.
"""

from __future__ import annotations

from typing import assert_never

from primacy.election import guarantees
from primacy.election.effects import Effect, Send
from primacy.election.events import Code
from primacy.election.inputs import (
    Answered,
    CampaignOrder,
    CancelChange,
    ChangeMembers,
    DeadlinePassed,
    ForceMembers,
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
    StrangerHeard,
    Unanswered,
    WorkDeferred,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import (
    Ack,
    Admission,
    Ahead,
    FirstBallot,
    FirstBallotTaken,
    Heartbeat,
    MembersTaken,
    MembersTold,
    Message,
    Origin,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Ballot, Register, Role, Seat, View
from primacy.election.raft.admit import Admitting
from primacy.election.raft.campaign import Campaigning
from primacy.election.raft.change import Changing
from primacy.election.raft.follow import Following
from primacy.election.raft.lead import Leading
from primacy.election.raft.meet import Meeting
from primacy.election.raft.memory import Remembering
from primacy.election.raft.release import Releasing
from primacy.election.raft.requests import why_not
from primacy.election.raft.roles import Leader, Recovering
from primacy.election.raft.state import RaftOptions, RaftState, made
from primacy.election.raft.tell import Telling
from primacy.election.raft.view import view_of
from primacy.settings.timing import Timing

__all__ = ["RaftOptions", "RaftStrategy"]

NEVER_MS = 2**63


class RaftStrategy:
    """One durable vote per node and term, hence at most one leader per term; one acting holder at any instant."""

    guarantees = guarantees.RAFT
    state_class: type[RaftState] = RaftState
    leading_class: type[Leading] = Leading
    releasing_class: type[Releasing] = Releasing
    following_class: type[Following] = Following
    campaigning_class: type[Campaigning] = Campaigning
    remembering_class: type[Remembering] = Remembering
    meeting_class: type[Meeting] = Meeting
    telling_class: type[Telling] = Telling
    changing_class: type[Changing] = Changing
    admitting_class: type[Admitting] = Admitting

    def __init__(self, seat: Seat, timing: Timing, ballot: Ballot | None, options: RaftOptions | None = None) -> None:
        self.node = seat.node
        self.deadline_ms: int | None = None
        self.state = state = self.state_class(seat, timing, ballot, options or RaftOptions())
        self.leading = self.leading_class(state)
        self.releasing = self.releasing_class(state, self.leading)
        self.following = self.following_class(state, self.leading, self.releasing)
        self.campaigning = self.campaigning_class(state, self.leading)
        self.remembering = self.remembering_class(state, self.leading)
        self.meeting = self.meeting_class(state, self.remembering)
        self.telling = self.telling_class(state, self.leading, self.following)
        self.changing = self.changing_class(state, self.leading, self.remembering)
        self.admitting = self.admitting_class(state, self.remembering)

    # --- one input, one ordered list of effects -----------------------------------------------------------------------

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """A leader whose time is over loses before it hears anything else."""
        state = self.state
        disk = state.disk
        effects: list[Effect] = []
        state.steady = None
        if (disk.saving or disk.marking) and type(given) is not PersistFailed:
            state.saved()
        if state.peers.refused:
            state.forget_refusals(now_ms)
        leader = state.role_state
        if type(leader) is Leader and self.leading.is_late(now_ms, leader):
            effects = self.leading.lose(now_ms, Code.MAJORITY_LOST, "no majority acked a heartbeat in time")
        if type(given) is Received:
            heard = self._receive(now_ms, given.message)
            effects = effects + heard if effects else heard
        else:
            effects += self._take(now_ms, given)
            if state.first.offers:
                effects += self.remembering.offer_again(now_ms)  # by time alone: a message gets one answer (E1)
            if state.file_ask_at_ms:
                effects += self.telling.ask_file(now_ms)
        leader = state.role_state
        if type(leader) is Leader and leader.change.questions:
            effects += self.admitting.answer()
        self._rearm(now_ms)
        if state.ballot is disk.durable and not disk.fault:
            disk.starts = disk.saving = False
            waits = type(state.role_state) is Recovering or state.first.offers or disk.marking or state.file_ask_at_ms
            changes = type(leader) is Leader and leader.change.is_busy(state.register)
            state.calm = state.booted and not waits and not changes
            if not state.calm:
                state.steady = None
            return effects
        state.steady, state.calm = None, False
        return self._with_persist(effects)

    def _take(self, now_ms: int, given: Input) -> list[Effect]:
        """What no other node says."""
        state, leading = self.state, self.leading
        match given:
            case DeadlinePassed():
                return self._wake(now_ms)
            case WorkStarted(term):
                return leading.work_started(term)
            case WorkGone(term, released):
                return self.releasing.work_gone(now_ms, term, released) + self.following.hear_early(now_ms)
            case WorkDeferred(term, why):
                return leading.work_deferred(now_ms, term, why)
            case Started(wall_ms, lock_held):
                state.wall_offset_ms = wall_ms - now_ms
                state.lock_held = lock_held
                return self._boot(now_ms)
            case PersistFailed(reason):
                return self._persist_failed(now_ms, reason)
            case GuardLost(term):
                return leading.guard_lost(now_ms, term)
            case RunLock(held):
                state.lock_held = held
                if state.lock_suffices():
                    state.campaign_at_ms = now_ms
                return leading.start_if_ready(now_ms)
            case StepDown(successor, reason):
                return leading.step_down(now_ms, Code.TRANSFER if successor else Code.STEP_DOWN, reason, successor)
            case Shutdown():
                state.paused = True
                return leading.step_down(now_ms, Code.STOPPING, "the node is stopping")
            case Pause(waits_for):
                state.paused, state.pause_ends_by = True, waits_for
                return leading.step_down(now_ms, Code.PAUSED, waits_for or "paused by an operator")
            case Resume():
                state.paused = False
                return self.campaigning.again(now_ms)
            case CampaignOrder(nodes):
                state.take_order(nodes)
                return []
            case Health(ok, detail):
                return self._health(now_ms, ok, detail)
            case Init():
                return self.remembering.init_said(now_ms, given)
            case Rejoin(without, others_stopped):
                state.recovery.without, state.recovery.others_stopped = without, others_stopped
                return self.remembering.decide(now_ms)
            case StrangerHeard(node):
                self.remembering.stranger_heard(now_ms, node)
                return []
            case ChangeMembers() | CancelChange() | ForceMembers():
                return self.changing.on_request(now_ms, given)
            case Received():
                return self._receive(now_ms, given.message)
            case Unanswered() | Answered() | Paced() | MembersChanged() | StoreAnswered() | StoreNews():
                return []  # not of this strategy
            case _:
                assert_never(given)

    def _receive(self, now_ms: int, message: Message) -> list[Effect]:
        state = self.state
        origin = message.origin
        if not state.booted:
            return []
        if origin.node == state.node:
            same = origin.boot == state.seat.boot
            return [] if same else state.note(Code.TWO_BOOTS, origin.node, "our own id is used twice")
        effects: list[Effect] = []
        known = state.peers.known.get(origin.node)
        if known is not origin and known != origin:
            heard, effects = self.meeting.meet(now_ms, message)
            if not heard:
                return effects
            if origin.members > state.origin.members:
                effects = effects + self.telling.see_newer(now_ms, origin)
        state.heard_at_ms[origin.node] = now_ms
        offers = state.first.offers
        if offers and offers.get(origin.node, origin.boot) != origin.boot:
            del offers[origin.node]  # the boot that was blank is gone
        if not effects:  # the two that come all the time
            if type(message) is Ack:
                return self.leading.on_ack(now_ms, message)
            if type(message) is Heartbeat:
                return self._on_heartbeat(now_ms, message)
        return effects + self._heard(now_ms, message)

    def _on_heartbeat(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect]:
        if self.admitting.is_ahead(heartbeat):
            return self.admitting.give_up(heartbeat.origin.node)
        return self.following.on_heartbeat(now_ms, heartbeat)

    def _heard(self, now_ms: int, message: Message) -> list[Effect]:
        """From a node of this cluster, or about memory."""
        match message:
            case Heartbeat():
                return self._on_heartbeat(now_ms, message)
            case Ack():
                return self.leading.on_ack(now_ms, message)
            case VoteRequest():
                return self.following.on_vote_request(now_ms, message)
            case VoteReply():
                return self.campaigning.on_vote_reply(now_ms, message)
            case Release():
                return self.releasing.on_release(now_ms, message)
            case Ahead():
                return self.leading.on_ahead(now_ms, message)
            case Query():
                self.admitting.on_query(message)
                return self.remembering.on_query(now_ms, message)
            case Report():
                return self.telling.on_report(now_ms, message) + self.remembering.on_report(now_ms, message)
            case FirstBallot():
                return self.remembering.on_first_ballot(now_ms, message)
            case FirstBallotTaken():
                self.remembering.on_first_ballot_taken(message)
            case Stale():
                return self.remembering.on_stale(now_ms, message)
            case MembersTold():
                return self.telling.on_told(now_ms, message)
            case MembersTaken():
                return self.telling.on_taken(now_ms, message)
            case Admission():
                return self.admitting.on_admission(now_ms, message)
        return []

    def _wake(self, now_ms: int) -> list[Effect]:
        """Time passed; it may be early or late. Each part looks at its own moment."""
        state = self.state
        leader = state.role_state
        if type(leader) is Leader:
            effects: list[Effect] = []
            if now_ms >= leader.next_heartbeat_ms:
                effects = self.changing.at_heartbeat(now_ms, leader)
            return effects + self.leading.lead_on(now_ms, leader) if state.role_state is leader else effects
        if not state.booted or type(leader) is Recovering:
            if now_ms < state.ask_at_ms:
                return []
            return self.remembering.ask(now_ms) if state.booted else self._boot(now_ms)
        if state.recovery.init is not None and now_ms >= state.ask_at_ms:
            return self.remembering.init_again(now_ms)
        if now_ms < state.campaign_at_ms:
            return []
        return self.remembering.first_start_again() + self.campaigning.begin(now_ms)

    def _rearm(self, now_ms: int) -> None:
        """The next moment at which time alone changes something."""
        state = self.state
        leader = state.role_state
        if type(leader) is Leader:
            at = min(leader.next_heartbeat_ms, leader.progress.hold_from_ms + state.timing.term_at_ms)
            if now_ms < leader.start_at_ms:
                at = min(at, leader.start_at_ms)
        elif type(leader) is Recovering or not state.booted:
            at = state.ask_at_ms
        elif state.quorum.campaigns or state.leader:
            at = state.campaign_at_ms
        else:
            at = NEVER_MS
        if state.first.offers:
            at = min(at, state.first.offer_at_ms)
        if state.recovery.init is not None and type(leader) is not Leader:
            at = min(at, state.ask_at_ms)
        if state.file_ask_at_ms:
            at = min(at, state.file_ask_at_ms)
        self.deadline_ms = None if at == NEVER_MS else at

    def _boot(self, now_ms: int) -> list[Effect]:
        """Reads the ballot, and asks the nodes of the file as well as those of the register (R12)."""
        state = self.state
        effects = self.remembering.boot(now_ms)
        if state.register is not None and not state.muted and not self.remembering.is_blank():
            state.file_ask_at_ms = max(now_ms, 1)
            effects += self.telling.ask_file(now_ms)
        return effects

    def _health(self, now_ms: int, ok: bool, detail: str) -> list[Effect]:
        state = self.state
        was, state.healthy = state.healthy, ok
        state.ill = "" if ok else detail or "a health probe failed"
        if ok:
            return [] if was else self.campaigning.again(now_ms)
        return self.leading.step_down(now_ms, Code.UNHEALTHY, state.ill)

    # --- the ballot and the disk --------------------------------------------------------------------------------------

    def _with_persist(self, effects: list[Effect]) -> list[Effect]:
        state = self.state
        return state.disk.with_persist(state.ballot, effects, leads=state.leader_state is not None)

    def _persist_failed(self, now_ms: int, reason: str) -> list[Effect]:
        """Back to what the disk has. Nothing that relied on the lost ballot was done (F31)."""
        state = self.state
        disk = state.disk
        if disk.marking:
            disk.marking = False  # tried again with the next question
            return disk.refused(state.term, reason)
        state.ballot = disk.durable = disk.earlier
        self.remembering.first_start_failed()
        leader = state.leader_state
        if leader is not None:  # what it wrote of the members is not on the disk: it is not proved either (R1, R5)
            state.refresh_members()
            leader.change.carried_from, leader.change.is_done_due = leader.progress.number + 1, False
        if leader is not None and disk.starts:
            leader.ordered = False
            state.work_term = 0
        if leader is not None and leader.term > state.term:
            state.retire(now_ms)
        state.ask_at_ms = now_ms + state.timing.heartbeat_ms
        if state.leader_state is None:
            self.remembering.ballot_lost(now_ms)
        return disk.refused(state.term, reason)

    # --- the short way ------------------------------------------------------------------------------------------------

    def again(self, now_ms: int, message: Message | None) -> list[Effect] | None:
        """A short way for what goes round all the time: the next heartbeat of our leader, an ack of a heartbeat of
        ours, or the moment for our next heartbeat, which is no message.

        The same as `step` with it, in effects and in all that it leaves behind. None, with nothing changed, if anything
        about this node or the message is not as it was at the last step: then `step` must hear it.
        """
        state = self.state
        steady, leader = state.steady, state.role_state
        if message is None:
            effects = self.leading.heartbeat_again(now_ms, leader) if type(leader) is Leader and state.calm else None
            if effects is not None:
                self._rearm(now_ms)
            return effects
        if steady is not None and type(message) is Heartbeat:
            origin, promise = message.origin, state.promise
            same = origin is steady.origin or origin == steady.origin
            if not same or message.term != steady.term or message.hold_ms != steady.hold_ms:
                return None
            if message.settled is not steady.settled or message.number <= promise.acked_number:
                return None
            if state.peers.refused:
                state.forget_refusals(now_ms)
            promise.acked_number = message.number
            state.heard_at_ms[origin.node] = promise.newest_at_ms = now_ms
            state.campaign_at_ms = self.deadline_ms = state.timeout(now_ms)
            return [made(Send, (origin.node, made(Ack, (state.origin, message.term, message.number, origin.boot))))]
        if type(leader) is Leader and state.calm and type(message) is Ack:
            effects = self.leading.acked_again(now_ms, leader, message)
            if effects:
                self._rearm(now_ms)
            return effects
        return None

    # --- what it shows of itself --------------------------------------------------------------------------------------

    def view(self, now_ms: int) -> View:
        """How it stands, for people."""
        shown = view_of(self.state, now_ms)
        if self.state.register is None:
            return shown
        leader = self.state.leader_state
        untold = tuple(sorted(leader.change.removed)) if leader is not None else ()
        return shown._replace(members=self.state.members_id, change=self.changing.waits_for(), removed_untold=untold)

    @property
    def seat(self) -> Seat:
        return self.state.seat

    def why_not(self, given: ChangeMembers | CancelChange | ForceMembers) -> str:
        """Why this request would be refused, in one sentence with the remedy; empty if it may. Changes nothing."""
        return why_not(self.state, given)

    @property
    def ballot(self) -> Ballot | None:
        return self.state.ballot

    @property
    def register_known(self) -> Register | None:
        """Its register; without memory, the newest one that it was told of."""
        register = self.state.register
        return self.state.recovery.newest() if register is None else register

    @property
    def origin(self) -> Origin:
        return self.state.origin

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def leader(self) -> str:
        return self.state.leader

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def paused(self) -> bool:
        return self.state.paused

    @property
    def healthy(self) -> bool:
        return self.state.healthy

    @property
    def heard(self) -> dict[str, int]:
        """When each node was heard last."""
        return self.state.heard_at_ms

    @property
    def muted(self) -> str:
        """Why it recovers; empty if it does not."""
        return self.state.muted

    @property
    def awaits_word(self) -> bool:
        """Nobody can answer what it asks but an operator: who else used the lease that it used before (M1)."""
        return self.state.ballot is not None and self.state.recovery.is_unlisted

    @property
    def preceding_term(self) -> int:
        """A leader's: the newest earlier term of which it or a voter of its majority knows a heartbeat; 0 for none."""
        leader = self.state.leader_state
        return leader.preceding_term if leader is not None else 0
