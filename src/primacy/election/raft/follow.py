"""Following and voting: the promise of silence, and the one vote per term.

A voter that acked a heartbeat grants nothing for P (Q4) and reports with each vote how old its newest heartbeat is
(Q5); a voter whose own work is not confirmed gone grants nothing at all (Q6). A heartbeat that is not newer than one
already acked renews nothing (Q4), one of an older term is told how far we are (Q9), and no refusal goes out twice
within a heartbeat (E1).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import Ack, Ahead, Heartbeat, MembersTaken, VoteReply, VoteRequest
from primacy.election.raft.lead import Leading
from primacy.election.raft.register import FIRST, UNKNOWN
from primacy.election.raft.release import Releasing
from primacy.election.raft.state import TERM_JUMP_MAX, RaftState


class Following:
    """What a follower does, and every voter."""

    def __init__(self, state: RaftState, leading: Leading, releasing: Releasing) -> None:
        self.state = state
        self.leading = leading
        self.releasing = releasing

    def on_heartbeat(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect]:
        state = self.state
        ballot = state.ballot
        sender = heartbeat.origin.node
        if ballot is None or state.muted or self.is_old(heartbeat):
            return []
        if state.is_too_far(heartbeat.term):
            return state.doubt(now_ms, sender, heartbeat.term)
        late = self._before_ack(now_ms, heartbeat)
        if late is not None:
            return late
        if heartbeat.term != ballot.term or state.leader != sender:
            if heartbeat.term < ballot.term:
                return state.refuse(now_ms, Send(sender, Ahead(state.origin, ballot.term)))
            if heartbeat.term <= state.promise.released_term:
                return []
            if state.leader_state is not None and heartbeat.term == ballot.term:
                return state.note(Code.TWO_BOOTS, sender, f"it claims our term {heartbeat.term}")
            return self._follow(now_ms, heartbeat) + self._ack(now_ms, heartbeat)
        if heartbeat.term <= state.promise.released_term:
            return []
        return self._ack(now_ms, heartbeat)

    def _before_ack(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect] | None:
        """What there is to do about the members instead of an ack; None if it may be acked."""
        state = self.state
        sender = heartbeat.origin.node
        if heartbeat.origin.members > state.members_id:
            return self._ask_members(now_ms, heartbeat)
        state.unacked = None
        if state.members_id.term > heartbeat.term:
            return state.tell_members(now_ms, sender)  # somebody was elected after it, and it must know by whom
        return None

    def _ask_members(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect]:
        """It is acked once the register that it names is stored here (R1). Until then it is no reason to campaign."""
        state = self.state
        if heartbeat.term >= state.term:
            state.unacked, state.unacked_at_ms = heartbeat, now_ms
            state.campaign_at_ms = max(state.campaign_at_ms, state.timeout(now_ms))
        return state.refuse(now_ms, Send(heartbeat.origin.node, MembersTaken(state.origin)))

    def is_old(self, heartbeat: Heartbeat) -> bool:
        """Repeated or overtaken: a newer heartbeat of this leader and term was acked already (Q4).

        It tells nothing about the leader of today. The leader needs no second ack: that of the newer heartbeat proves
        more.
        """
        promise = self.state.promise
        if heartbeat.number > promise.acked_number or heartbeat.term != self.state.term:
            return False
        return promise.acked_of == (heartbeat.term, heartbeat.origin.boot)

    def _follow(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect]:
        """A leader of our term or a newer one: whatever we were, we are its follower."""
        state = self.state
        leader = heartbeat.origin.node
        effects: list[Effect] = []
        if state.leader_state is not None:
            effects = self.leading.lose(now_ms, Code.HIGHER_TERM, f"node {leader} leads term {heartbeat.term}")
        state.adopt(heartbeat.term)
        state.promise.release = None  # of an older term; whoever follows has no use for it
        state.become_follower(leader)
        return [*effects, Record(Event(Code.FOLLOWS, heartbeat.term, leader))]

    def _ack(self, now_ms: int, heartbeat: Heartbeat) -> list[Effect]:
        """Promises P of silence from now, and says so by number (Q3, Q4)."""
        state = self.state
        promise = state.promise
        promise.acked_of, promise.acked_number = (heartbeat.term, heartbeat.origin.boot), heartbeat.number
        state.campaign_at_ms = state.timeout(now_ms)
        ballot = state.ballot
        assert ballot is not None
        hold_ms = heartbeat.hold_ms if heartbeat.settled else max(heartbeat.hold_ms, ballot.hold_max_ms)
        if hold_ms != ballot.hold_max_ms:
            state.ballot = ballot._replace(hold_max_ms=hold_ms)
        promise.newest_at_ms, promise.newest_term = now_ms, heartbeat.term
        state.steady = heartbeat
        return [Send(heartbeat.origin.node, Ack(state.origin, heartbeat.term, heartbeat.number, heartbeat.origin.boot))]

    def on_vote_request(self, now_ms: int, request: VoteRequest) -> list[Effect]:
        state = self.state
        ballot = state.ballot
        candidate = request.origin.node
        if ballot is None or state.muted:
            return []
        # What our own register says of us or of the candidate decides nothing (R2).
        if self.is_outdated(request):
            assert state.register is not None
            if state.register.id.term - (request.term - 1) > TERM_JUMP_MAX:
                return self._no(now_ms, request)  # it believes the members once it knows the token (Q9)
            return state.tell_members(now_ms, candidate)
        if self._is_early(request):
            state.early = request
            return []
        effects: list[Effect] = []
        if request.evidence is not None:
            effects = self.releasing.on_release(now_ms, request.evidence, evidence=True)
        if state.is_too_far(request.term):
            return effects + state.doubt(now_ms, candidate, request.term)
        retry_ms = self._refuses(now_ms, request)
        if retry_ms >= 0:
            if retry_ms > 0 and request.term > ballot.term:
                effects.append(Record(Event(Code.PROMISE_REFUSED, ballot.term, candidate, value=retry_ms)))
            return effects + self._no(now_ms, request, retry_ms)
        if not request.pre:
            state.vote_for(candidate, request.term)
            spread_ms = state.timing.spread_ms
            state.campaign_at_ms = now_ms + spread_ms + int(state.seat.random.random() * spread_ms)
        return [*effects, Send(candidate, state.yes(now_ms, request))]

    def _no(self, now_ms: int, request: VoteRequest, retry_ms: int = 0) -> list[Effect]:
        state, origin = self.state, request.origin
        ballot = state.ballot
        assert ballot is not None
        told = (state.origin, request.term, request.pre, False, origin.boot, ballot.term)
        no = VoteReply(*told, token_max=ballot.token_max, retry_ms=retry_ms)
        return state.refuse(now_ms, Send(origin.node, no), origin.boot, request.term, request.pre)

    def _is_early(self, request: VoteRequest) -> bool:
        """It carries the release of the work here, which the guard tells this node in the same moment (G6).

        Refused for a promise that is over at once, a candidate among two would wait the whole of it, and the old leader
        would win again. It is heard when the guard has spoken, as if the network had been slower.
        """
        state, release = self.state, request.evidence
        if release is None or not request.pre or release.origin.node != state.node:
            return False
        return 0 < state.work_term == release.term

    def hear_early(self, now_ms: int) -> list[Effect]:
        """The guard has spoken: what came too early is heard now."""
        request, self.state.early = self.state.early, None
        return self.on_vote_request(now_ms, request) if request is not None else []

    def is_outdated(self, request: VoteRequest) -> bool:
        """Its register is older than ours: no vote and no pre-vote, no term adopted; it is told ours (R3)."""
        shown = request.origin.members
        if shown == UNKNOWN and self.state.members_id == FIRST:
            return False  # of the version before: the members are those of the first start, which it knows
        return shown < self.state.members_id

    def _refuses(self, now_ms: int, request: VoteRequest) -> int:
        """-1 to grant; otherwise after how many milliseconds to ask again (0: this term is not to be had)."""
        state = self.state
        ballot = state.ballot
        assert ballot is not None
        left_ms = state.promise_left(now_ms)
        if state.work_unconfirmed():
            return max(left_ms, state.timing.heartbeat_ms)
        if left_ms > 0:
            return left_ms
        if request.term > ballot.term:
            return -1
        same = request.term == ballot.term and not request.pre
        return -1 if same and ballot.voted_for in ("", request.origin.node) else 0
