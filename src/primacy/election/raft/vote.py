"""Following and voting: the promise of silence, the one vote per term, and the candidacy.

A voter that acked a beat grants nothing for P (Q4) and reports with each vote how old its newest beat is (Q5); a
voter whose own work is not confirmed gone grants nothing at all (Q6). A candidate asks first whether others would
vote, so that a node that returns never deposes a healthy leader (Q9).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import Ack, Ahead, Beat, VoteReply, VoteRequest
from primacy.election.raft.lead import Leading
from primacy.election.raft.roles import Candidate
from primacy.election.raft.state import TERM_JUMP_MAX


class Voting(Leading):
    """What a follower and a candidate do."""

    def _on_beat(self, now_ms: int, beat: Beat) -> list[Effect]:
        ballot = self.ballot
        sender = beat.origin.node
        if ballot is None or self.muted or self._is_old(beat):
            return []
        if beat.term != ballot.term or self.leader != sender:
            if beat.term < ballot.term:
                return self._refuse(now_ms, Send(sender, Ahead(self.origin, ballot.term))) if self.quorum.votes else []
            if beat.term <= self.released_term:
                return []
            if beat.term - ballot.term > TERM_JUMP_MAX:
                return self._note(Code.TERM_JUMP, sender, f"term {beat.term} is too far above {ballot.term}")
            if self.leader_state is not None and beat.term == ballot.term:
                return self._note(Code.TWO_BOOTS, sender, f"it claims our term {beat.term}")
            return self._follow(now_ms, beat) + self._ack(now_ms, beat)
        if beat.term <= self.released_term:
            return []
        return self._ack(now_ms, beat)

    def _is_old(self, beat: Beat) -> bool:
        """Repeated or overtaken: a newer beat of this leader and term was acked already (Q4).

        It tells nothing about the leader of today. The leader needs no second ack: that of the newer beat proves more.
        """
        if beat.number > self._acked_number or beat.term != self.term:
            return False
        return self._acked_of == (beat.term, beat.origin.boot)

    def _follow(self, now_ms: int, beat: Beat) -> list[Effect]:
        """A leader of our term or a newer one: whatever we were, we are its follower."""
        effects: list[Effect] = []
        if self.leader_state is not None:
            effects = self._lose(now_ms, Code.HIGHER_TERM, f"node {beat.origin.node} leads term {beat.term}")
        self._adopt(beat.term)
        self.release = None  # of an older term; whoever follows has no use for it
        self._become_follower(beat.origin.node)
        return [*effects, Record(Event(Code.FOLLOWS, beat.term, self.leader))]

    def _ack(self, now_ms: int, beat: Beat) -> list[Effect]:
        """Promises P of silence from now, and says so by number (Q3, Q4)."""
        self._acked_of, self._acked_number = (beat.term, beat.origin.boot), beat.number
        self.stand_at_ms = self._timeout(now_ms)
        if not self.quorum.votes:
            return []
        ballot = self.ballot
        assert ballot is not None
        hold_ms = beat.hold_ms if beat.settled else max(beat.hold_ms, ballot.hold_max_ms)
        if hold_ms != ballot.hold_max_ms:
            self.ballot = ballot._replace(hold_max_ms=hold_ms)
        self.newest_at_ms, self.newest_term = now_ms, beat.term
        self._steady = beat
        return [Send(beat.origin.node, Ack(self.origin, beat.term, beat.number, beat.origin.boot))]

    def _on_vote_request(self, now_ms: int, request: VoteRequest) -> list[Effect]:
        ballot = self.ballot
        if ballot is None or self.muted or not self.quorum.votes or request.origin.node not in self.quorum.candidates:
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
            return effects + self._refuse(now_ms, Send(candidate, no), request.origin.boot, request.term, request.pre)
        if not request.pre:
            self._become_follower()
            self.ballot = ballot._replace(term=request.term, voted_for=candidate)
            self.stand_at_ms = now_ms + self.timing.spread_ms + int(self.seat.random.random() * self.timing.spread_ms)
        return [*effects, Send(candidate, self._yes(now_ms, request))]

    def _refuses(self, now_ms: int, request: VoteRequest) -> int:
        """-1 to grant; otherwise after how many milliseconds to ask again (0: this term is not to be had)."""
        ballot = self.ballot
        assert ballot is not None
        left_ms = self._promise_left(now_ms)
        if self._work_unconfirmed():
            return max(left_ms, self.timing.heartbeat_ms)
        if left_ms > 0:
            return left_ms
        if request.term > ballot.term:
            return -1
        same = request.term == ballot.term and not request.pre
        return -1 if same and ballot.voted_for in ("", request.origin.node) else 0

    def _may_stand(self, now_ms: int) -> bool:
        if not self.quorum.campaigns or self.muted or self.paused or not self.healthy:
            return False
        return not self._work_unconfirmed() and self._promise_left(now_ms) == 0

    def _stand(self, now_ms: int) -> list[Effect]:
        """Nothing was heard for long enough: ask first whether others would vote (Q9), so that no term is burnt."""
        effects: list[Effect] = []
        if self.leader:
            effects = [Record(Event(Code.LEADER_SILENT, self.term, self.leader))]
            self.leader = ""
        if not self._may_stand(now_ms):
            self.stand_at_ms = now_ms + max(self._promise_left(now_ms), self.timing.heartbeat_ms)
            return effects
        if not effects and self.campaign is not None and not self.campaign.pre:
            effects = [Record(Event(Code.SPLIT_VOTE, self.term))]
        return effects + self._ask_votes(now_ms, self.term + 1, pre=True)  # Q9

    def _ask_votes(self, now_ms: int, term: int, *, pre: bool) -> list[Effect]:
        ballot = self.ballot
        assert ballot is not None
        effects: list[Effect] = []
        if not pre:
            hold_max_ms = max(ballot.hold_max_ms, self.timing.hold_ms)
            token_max = max(ballot.token_max, ballot.base + term)
            self.ballot = ballot._replace(term=term, voted_for=self.node, hold_max_ms=hold_max_ms, token_max=token_max)
            effects = [Record(Event(Code.CAMPAIGNS, term))]
        campaign = self._become_candidate(term, pre=pre)
        spread_ms = self.timing.spread_ms
        self.stand_at_ms = now_ms + spread_ms // 2 + int(self.seat.random.random() * spread_ms)
        request = VoteRequest(self.origin, term, pre, self.release)
        effects += [Send(node, request) for node in self.quorum.other_voters]
        campaign.yes[self.node] = self._yes(now_ms, request)
        return effects + self._count(now_ms)

    def _on_vote_reply(self, now_ms: int, reply: VoteReply) -> list[Effect]:
        campaign = self.campaign
        ballot = self.ballot
        if campaign is None or ballot is None or reply.candidate_boot != self.seat.boot:
            return []
        if (
            reply.asked != campaign.term
            or reply.pre != campaign.pre
            or reply.origin.node not in self.quorum.other_voters
        ):
            return []
        if reply.granted:
            campaign.yes[reply.origin.node] = reply
            return self._count(now_ms)
        campaign.no[reply.origin.node] = reply.retry_ms
        if ballot.term < reply.term <= ballot.term + TERM_JUMP_MAX and reply.term >= campaign.term:
            self._adopt(reply.term)  # we are behind: ask again above it, within the spread
            self._become_follower()
            self.stand_at_ms = now_ms + int(self.seat.random.random() * self.timing.spread_ms)
            return []
        return self._retry_when_told(now_ms, campaign)

    def _retry_when_told(self, now_ms: int, campaign: Candidate) -> list[Effect]:
        """If the refusals exclude a majority, ask again when enough promises have run out (Q4)."""
        if not self.quorum.is_refused(campaign.no):
            return []
        wanted = self.quorum.majority - len(campaign.yes)
        told_ms = sorted(ms for ms in campaign.no.values() if ms > 0)
        if len(told_ms) >= wanted:
            jitter_ms = int(self.seat.random.random() * self.timing.spread_ms / 4)
            self.stand_at_ms = now_ms + told_ms[wanted - 1] + jitter_ms
            self._become_follower()
        return []

    def _count(self, now_ms: int) -> list[Effect]:
        campaign = self.campaign
        assert campaign is not None
        if not self.quorum.has(campaign.yes):
            return []
        if not campaign.pre:
            return self._win(now_ms, campaign)
        if not self._may_stand(now_ms):
            return []
        return self._ask_votes(now_ms, self.term + 1, pre=False)
