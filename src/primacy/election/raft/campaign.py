"""Campaigning: asking whether others would vote, then for their votes, and counting them.

A candidate asks first whether others would vote, so that a node that returns never deposes a healthy leader and burns
no term (Q9). Its own vote is durable before it asks for any (Q1). Refusals say how long they last: if they exclude a
majority, it asks again when enough of them have run out (Q4). Answers count for the term and the boot that asked.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import VoteReply, VoteRequest
from primacy.election.raft.lead import Leading
from primacy.election.raft.roles import Candidate
from primacy.election.raft.state import RaftState


class Campaigning:
    """What a candidate does, and how a follower becomes one."""

    def __init__(self, state: RaftState, leading: Leading) -> None:
        self.state = state
        self.leading = leading

    def begin(self, now_ms: int) -> list[Effect]:
        """Nothing was heard for long enough: ask first whether others would vote (Q9), so that no term is burnt."""
        state = self.state
        effects: list[Effect] = []
        if state.leader:
            effects = [Record(Event(Code.LEADER_SILENT, state.term, state.leader))]
            state.leader = ""
            if state.register is not None and (state.options.joins or state.is_never_refused(state.register)):
                # perhaps it is not where they have it (R12), or it was removed, and who was to tell it is gone (R10)
                state.file_ask_at_ms = now_ms + state.timing.promise_ms
        if not self._may_campaign(now_ms):
            state.campaign_at_ms = now_ms + max(state.promise_left(now_ms), state.timing.heartbeat_ms)
            return effects
        campaign = state.campaign
        if not effects and campaign is not None and not campaign.pre:
            effects = [Record(Event(Code.SPLIT_VOTE, state.term))]
        return effects + self.ask_votes(now_ms, state.reached_term + 1, pre=True)

    def again(self, now_ms: int) -> list[Effect]:
        """What kept it from campaigning is over: soon, but not all nodes at once."""
        state = self.state
        if state.leader_state is None and not state.muted:
            state.show_as_follower()
            soon_ms = now_ms + int(state.seat.random.random() * state.timing.spread_ms)
            state.campaign_at_ms = max(state.campaign_at_ms, soon_ms)
        return []

    def _may_campaign(self, now_ms: int) -> bool:
        state = self.state
        if not state.quorum.campaigns or state.muted or state.paused or not state.healthy:
            return False
        return not state.work_unconfirmed() and state.promise_left(now_ms) == 0

    def ask_votes(self, now_ms: int, term: int, *, pre: bool) -> list[Effect]:
        state = self.state
        ballot = state.ballot
        assert ballot is not None
        effects: list[Effect] = []
        if not pre:
            hold_max_ms = max(ballot.hold_max_ms, state.timing.hold_ms)
            token_max = max(ballot.token_max, ballot.base + term)
            state.ballot = ballot._replace(
                term=term, voted_for=state.node, hold_max_ms=hold_max_ms, token_max=token_max
            )
            effects = [Record(Event(Code.CAMPAIGNS, term))]
        campaign = state.become_candidate(term, pre=pre)
        spread_ms = state.timing.spread_ms
        state.campaign_at_ms = now_ms + spread_ms // 2 + int(state.seat.random.random() * spread_ms)
        request = VoteRequest(state.origin, term, pre, state.promise.release)
        effects += [Send(node, request) for node in state.quorum.other_voters]
        campaign.yes[state.node] = state.yes(now_ms, request)
        return effects + self._count(now_ms, campaign)

    def on_vote_reply(self, now_ms: int, reply: VoteReply) -> list[Effect]:
        state = self.state
        if state.ballot is None or reply.candidate_boot != state.seat.boot:
            return []
        state.learn_token(reply.token_max)
        campaign, ballot = state.campaign, state.ballot
        if campaign is None:
            return []
        voter = reply.origin.node
        if reply.asked != campaign.term or reply.pre != campaign.pre or voter not in state.quorum.other_voters:
            return []
        if reply.granted:
            campaign.yes[voter] = reply
            return self._count(now_ms, campaign)
        campaign.no[voter] = reply.retry_ms
        if ballot.term < reply.term >= campaign.term and not state.is_too_far(reply.term):
            state.adopt(reply.term)  # we are behind: ask again above it, within the spread
            state.become_follower()
            state.campaign_at_ms = now_ms + int(state.seat.random.random() * state.timing.spread_ms)
            return []
        return self._retry_when_told(now_ms, campaign)

    def _retry_when_told(self, now_ms: int, campaign: Candidate) -> list[Effect]:
        """If the refusals exclude a majority, ask again when enough promises have run out (Q4)."""
        state = self.state
        if not state.quorum.is_refused(campaign.no):
            return []
        told_ms = sorted(ms for ms in campaign.no.values() if ms > 0)
        wanted = self._wanted(campaign)
        if len(told_ms) >= wanted:
            jitter_ms = int(state.seat.random.random() * state.timing.spread_ms / 4)
            state.campaign_at_ms = now_ms + told_ms[wanted - 1] + jitter_ms
            state.become_follower()
        return []

    def _wanted(self, campaign: Candidate) -> int:
        """So many of those that refused for a while, the shortest while first, must come round."""
        quorum = self.state.quorum
        willing = [name for name in campaign.yes if name not in campaign.no]  # one may have said yes, then no
        told = sorted((ms, name) for name, ms in campaign.no.items() if ms > 0)
        for wanted, (_, name) in enumerate(told, start=1):
            willing.append(name)
            if not quorum.is_refused([name for name in campaign.no if name not in willing]):
                return wanted
        return len(told) + 1

    def _count(self, now_ms: int, campaign: Candidate) -> list[Effect]:
        state = self.state
        if not state.quorum.has(campaign.yes):
            return []
        if not campaign.pre:
            return self.leading.win(now_ms, campaign)
        if not self._may_campaign(now_ms):
            return []
        term = state.reached_term + 1  # above that of the campaign, if a voter has seen a larger token: then again (T2)
        return self.ask_votes(now_ms, term, pre=term > campaign.term)
