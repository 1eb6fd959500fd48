"""Leading: winning, sending heartbeats, proving the hold, starting the work, and every way in which a term ends.

A leader's hold counts from before a heartbeat left that a majority acked (Q3). It starts its work after the first such
round, after what an older leader may still hold (Q5), and with the run lock free; once in a term (G4). It ends by
losing its majority (Q7), by stepping down in order (G9), or by losing its guard; nothing reopens a term (Q8). Only a
leader whose work ran may release (G7); `release.py` says what a release does.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Extend, OrderRelease, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.messages import Ack, Ahead, Heartbeat, Release, VoteRequest
from primacy.election.model import Leadership, MembersId, Register
from primacy.election.raft.roles import Candidate, Leader
from primacy.election.raft.state import RaftState, made
from primacy.settings.timing import stretched

ALIGN_PART = 4
"""Of a heartbeat: so much earlier one comes at most, until all elections of a process send theirs at one moment."""
TICK_MS = 2
"""Two clocks are read in whole milliseconds: a voter's age may be one too large, a winner's wait one too short."""


class Leading:
    """What a winner and a leader do."""

    def __init__(self, state: RaftState) -> None:
        self.state = state

    # --- the beginning of a term --------------------------------------------------------------------------------------

    def win(self, now_ms: int, campaign: Candidate) -> list[Effect]:
        """Leader of this term; but votes give no hold (Q3), and an older leader's hold is waited for (Q5)."""
        state = self.state
        ballot, promise = state.ballot, state.promise
        assert ballot is not None
        replies = [campaign.yes[node] for node in sorted(campaign.yes)]
        replies = [
            r if r.origin.node != state.node else state.yes(now_ms, VoteRequest(state.origin, r.asked, False))
            for r in replies
        ]
        hold_max_ms = max(reply.hold_max_ms for reply in replies)
        ages = {}
        for reply in replies:
            if reply.age_ms >= 0 and reply.age_term > promise.released_term:
                left_ms = stretched(hold_max_ms, state.timing.drift_ppm) + TICK_MS - reply.age_ms
                ages[reply.origin.node] = (reply.age_term, now_ms + max(0, left_ms))
        token = ballot.base + ballot.term
        leader = Leader(now_ms, ballot.term, token, self.start_at(now_ms, ages), ages)
        leader.newest_term = 0 if promise.newest_at_ms is None else promise.newest_term
        state.become_leader(leader)
        self.rename_members(now_ms, leader)
        effects: list[Effect] = [Record(Event(Code.ELECTED, ballot.term, state.node, value=token))]
        delay_ms = leader.start_at_ms - now_ms
        if delay_ms > 0:
            effects.append(Record(Event(Code.START_DELAY, ballot.term, value=delay_ms)))
        known = max([ballot.token_max, state.options.token_max, *(reply.token_max for reply in replies)])
        if known > token:
            return effects + self._below(now_ms, leader, known)
        return effects + self.lead_on(now_ms, leader)

    def is_below(self, leader: Leader) -> bool:
        """A larger token was learnt since it won: an answer that came after the majority's told it (T2)."""
        return self.state.token_max > leader.token

    def _below(self, now_ms: int, leader: Leader, known: int) -> list[Effect]:
        """No work starts below a token that was seen (T2)."""
        sentence = f"token {known} was already seen, ours is {leader.token}"
        effects = self.resign(now_ms, leader, Code.TOKEN_LOW, sentence)
        self.state.campaign_at_ms = self.state.timeout(now_ms)  # perhaps nobody believes that token: no storm (E2)
        return effects

    def rename_members(self, now_ms: int, leader: Leader) -> None:
        """The winner's register gets its term, so that what a dead leader left half done gives way; the first register
        keeps its id, unless a node that was met has a newer one already (R4)."""
        register = self.state.register
        if register is None:
            return
        leader.change.since_ms = now_ms
        shown = max((origin.members for origin in self.state.peers.known.values()), default=(0, 0))
        if register.id.version > 1 or shown > register.id:
            self.write_members(leader, register._replace(id=MembersId(leader.term, register.id.version)))

    def write_members(self, leader: Leader, register: Register) -> None:
        """The next heartbeat is the first that carries it: only that one and later ones prove it (R5)."""
        self.state.write_register(register)
        leader.change.carried_from = leader.progress.number + 1

    def start_at(self, now_ms: int, ages: dict[str, tuple[int, int]]) -> int:
        """The end of the winner's start delay (Q5): the latest moment at which any reported hold is surely over."""
        return max([now_ms, *(at_ms for _, at_ms in ages.values())])

    # --- heartbeats and their proof -----------------------------------------------------------------------------------

    def is_late(self, now_ms: int, leader: Leader) -> bool:
        """No majority by TERM (Q7)."""
        return now_ms >= leader.progress.hold_from_ms + self.state.timing.term_at_ms

    def lead_on(self, now_ms: int, leader: Leader) -> list[Effect]:
        """Time passed: the next heartbeat, the start of the work, or the end of waiting for it."""
        if not leader.ran and not leader.closed and self._is_overdue(now_ms, leader):
            return self.resign(now_ms, leader, Code.CANNOT_START, "the work could not be started in time")
        effects: list[Effect] = []
        if now_ms >= leader.next_heartbeat_ms:
            effects = self.heartbeat(now_ms, leader)
        return effects if leader.ordered else effects + self.start_if_ready(now_ms)

    def _is_overdue(self, now_ms: int, leader: Leader) -> bool:
        """Its work could not start within H (Q6). One that waits on purpose may wait for hours (G8)."""
        due_ms = max(leader.due_ms, leader.start_at_ms)
        return not leader.deferred and now_ms >= due_ms + self.state.timing.hold_ms

    def heartbeat(self, now_ms: int, leader: Leader) -> list[Effect]:
        state = self.state
        timing = state.timing
        leader.progress.sent(now_ms)
        late_ms = now_ms - leader.next_heartbeat_ms
        next_ms = now_ms + timing.heartbeat_ms - min(late_ms, timing.heartbeat_ms // 2)
        if state.options.aligned:
            next_ms -= min(next_ms % timing.heartbeat_ms, timing.heartbeat_ms // ALIGN_PART)
        leader.next_heartbeat_ms = next_ms
        state.promise.newest_at_ms, state.promise.newest_term = now_ms, leader.term
        settled = now_ms >= leader.start_at_ms
        heartbeat = made(Heartbeat, (state.origin, leader.term, leader.progress.number, timing.hold_ms, settled))
        effects: list[Effect] = [made(Send, (node, heartbeat)) for node in state.quorum.others]
        return effects + self.prove(now_ms, leader) if state.quorum.alone else effects

    def on_ack(self, now_ms: int, ack: Ack) -> list[Effect]:
        state = self.state
        leader = state.role_state
        if type(leader) is not Leader or ack.term != leader.term or ack.leader_boot != state.seat.boot:
            return []
        node = ack.origin.node
        progress = leader.progress
        if not progress.is_news(node, ack.number) or node not in state.quorum.others:
            is_late = ack.number < progress.acked.get(node, 0)
            return [Record(Event(Code.LATE_ACK, ack.term, node, value=ack.number))] if is_late else []
        progress.acked[node] = ack.number
        return self.prove(now_ms, leader) if ack.number > progress.proved else []

    def prove(self, now_ms: int, leader: Leader) -> list[Effect]:
        """Hold = H from the departure of the newest heartbeat that a majority, the leader included, acked (Q3)."""
        if not leader.progress.prove(self.proved_number(leader)):
            return []
        if leader.ordered:  # also during a planned stop: the work may end in peace (G9)
            return [made(Extend, (self._leadership(leader),))]
        return self.start_if_ready(now_ms)

    def proved_number(self, leader: Leader) -> int:
        progress = leader.progress
        return self.state.quorum.newest_acked({**progress.acked, self.state.node: progress.number})

    def heartbeat_again(self, now_ms: int, leader: Leader) -> list[Effect] | None:
        """The next heartbeat of a leader whose work runs, if that is all there is to do; the same as a step."""
        if not leader.ran or not leader.ordered or now_ms < leader.next_heartbeat_ms or self.is_late(now_ms, leader):
            return None
        if self.state.peers.refused:
            self.state.forget_refusals(now_ms)
        return self.heartbeat(now_ms, leader)

    def acked_again(self, now_ms: int, leader: Leader, ack: Ack) -> list[Effect] | None:
        """An ack of a heartbeat of a leader whose work was ordered, if it is news; the same as a step."""
        state, origin, number = self.state, ack.origin, ack.number
        node = origin.node
        known = state.peers.known.get(node)
        if (known is not origin and known != origin) or not leader.ordered or self.is_late(now_ms, leader):
            return None
        if ack.term != leader.term or ack.leader_boot != state.seat.boot or node not in state.quorum.other_voters:
            return None
        progress = leader.progress
        if not progress.is_news(node, number):
            return None
        if state.peers.refused:
            state.forget_refusals(now_ms)
        state.heard_at_ms[node] = now_ms
        progress.acked[node] = number
        return self.prove(now_ms, leader) if number > progress.proved else []

    # --- the work -----------------------------------------------------------------------------------------------------

    def _leadership(self, leader: Leader) -> Leadership:
        until_ms = leader.progress.hold_from_ms + self.state.timing.hold_ms
        return made(Leadership, (self.state.node, leader.term, leader.token, until_ms))

    def start_if_ready(self, now_ms: int) -> list[Effect]:
        """Work starts after the first acked round, the start delay, and with the run lock free; once in a term (G4)."""
        state = self.state
        leader = state.leader_state
        if leader is None or leader.ordered or leader.closed or leader.progress.proved == 0:
            return []
        if now_ms < leader.start_at_ms or state.work_unconfirmed():
            return []
        if self.is_below(leader):
            return self._below(now_ms, leader, state.token_max)
        leader.ordered = True
        state.work_term = leader.term
        released_term = state.promise.released_term
        covered = released_term > 0 and leader.preceding_term <= released_term
        return [Start(self._leadership(leader), Release(state.origin, leader.term), covered)]

    def work_started(self, term: int) -> list[Effect]:
        leader = self.state.leader_state
        if leader is not None and leader.term == term:
            leader.ran = True
        return []

    def work_deferred(self, now_ms: int, term: int, why: str) -> list[Effect]:
        """Once it waits no more, H counts from now: the run lock may be held (Q6)."""
        leader = self.state.leader_state
        if leader is not None and leader.term == term:
            leader.deferred, leader.due_ms = why, now_ms
        return []

    def guard_lost(self, now_ms: int, term: int) -> list[Effect]:
        """The guard is gone, and with it the release; its tree may still be dying, so the run lock decides (Q6, Q8)."""
        state = self.state
        if term != state.work_term:
            return []
        leader = state.leader_state
        state.work_term, state.early = 0, None
        state.lock_held = True  # until the driver finds it free
        if leader is None or leader.term != term:
            return []
        state.retire(now_ms)
        return [Record(Event(Code.GUARD_LOST, term))]

    # --- the end of a term --------------------------------------------------------------------------------------------

    def lose(self, now_ms: int, code: Code, detail: str) -> list[Effect]:
        """The term is over for this node: stop the work, go silent, and release once the work is confirmed gone."""
        leader = self.state.leader_state
        assert leader is not None
        effects: list[Effect] = [Record(Event(code, leader.term, detail=detail))]
        if self.state.work_term == leader.term:
            effects.append(Stop(leader.term, code.value, planned=False))
            if leader.ran:  # only then all work up to its term is known to be gone (G7)
                effects.append(OrderRelease(leader.term, leader.successor))
        self.state.retire(now_ms)
        return effects

    def resign(self, now_ms: int, leader: Leader, code: Code, detail: str) -> list[Effect]:
        """Gives up a term whose work never ran: without a release, for a predecessor may still act (G7)."""
        effects: list[Effect] = [Record(Event(code, leader.term, detail=detail))]
        if self.state.work_term == leader.term:
            effects.append(Stop(leader.term, code.value, planned=False))
        self.state.retire(now_ms)
        return effects

    def step_down(self, now_ms: int, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop, confirm, release, in this order; heartbeats go on until the work is confirmed gone (G9)."""
        state = self.state
        leader = state.leader_state
        if leader is None:
            if state.campaign is not None:
                state.become_follower()
            return []
        if leader.closed:
            return []
        if not leader.ran:
            return self.resign(now_ms, leader, code, detail)
        leader.closed = True
        leader.successor = successor
        return [
            Record(Event(code, leader.term, successor, detail)),
            Stop(leader.term, code.value, planned=True),
            OrderRelease(leader.term, successor),
        ]

    def on_ahead(self, now_ms: int, ahead: Ahead) -> list[Effect]:
        """A voter is a term ahead and can ack nothing: step down in order, then campaign above its term (Q9)."""
        state = self.state
        leader, voter = state.leader_state, ahead.origin.node
        if leader is None or leader.closed or voter not in state.quorum.voters:
            return []
        return self.give_way(now_ms, leader, voter, ahead.term)

    def give_way(self, now_ms: int, leader: Leader, node: str, term: int) -> list[Effect]:
        """Steps down in order, to campaign above this term."""
        state = self.state
        if term <= leader.term or leader.closed:
            return []
        if state.is_too_far(term):
            return state.note(Code.TERM_JUMP, node, f"term {term} is too far above {leader.term}")
        leader.ahead_term = term
        effects = self.step_down(now_ms, Code.TERM_AHEAD, f"node {node} is at term {term}", state.node)
        if state.leader_state is None:
            state.adopt(term)
        return effects
