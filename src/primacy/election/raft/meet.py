"""Meeting others: is the sender of a message of this cluster and configuration, and which start of it speaks?

Earlier starts and copies of a node are recognised by incarnation and boot (Q10), other times by their hash, other
clusters by their token base (T1). Whoever was met is heard without another look until something about it differs. What
is refused is told at most once per heartbeat, and never in answer to a refusal (E1).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Send
from primacy.election.events import Code
from primacy.election.messages import (
    Admission,
    Ahead,
    FirstBallot,
    FirstBallotTaken,
    MembersTaken,
    MembersTold,
    Message,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
)
from primacy.election.raft.memory import Remembering
from primacy.election.raft.register import FIRST
from primacy.election.raft.state import SEEN_MAX, RaftState


class Meeting:
    """Who is heard."""

    def __init__(self, state: RaftState, remembering: Remembering) -> None:
        self.state = state
        self.remembering = remembering

    def meet(self, now_ms: int, message: Message) -> tuple[bool, list[Effect]]:
        """The first message of a boot, or one that does not fit: is its sender of this cluster and configuration?"""
        state = self.state
        origin = message.origin
        about_memory = isinstance(message, Query | Report | FirstBallot | FirstBallotTaken | Stale | Admission)
        effects: list[Effect] = []
        if state.ballot is not None and origin.incarnation > 0:
            heard, effects = self.meet_incarnation(now_ms, message)
            if not heard:
                return False, effects
        same_list = state.seat.membership.is_config(origin.config)
        if not same_list and origin.node in state.quorum.others:
            state.peers.elsewhere[origin.node] = now_ms
        if about_memory:
            tells = isinstance(message, Query | Report) and message.memory and same_list
            return True, effects + (self.remembering.give_way(message) if tells else [])
        if not same_list:
            if self._knows_only_the_first_members(message):
                return False, effects + state.tell_members(now_ms, origin.node)
            return False, effects + state.note(Code.OTHER_LIST, origin.node, "it runs under another list or timing")
        if state.ballot is None:
            self.remembering.stranger_heard(now_ms, origin.node)
            return False, effects  # without memory it can tell no cluster from another
        if origin.base != state.origin.base:
            return False, effects + self._other_base(message)
        if not isinstance(message, Release):
            state.peers.known[origin.node] = origin
        return True, effects

    def _knows_only_the_first_members(self, message: Message) -> bool:
        """It shows the hash with the nodes of the first start in it, which this boot need not know any more; if its
        times are ours, it takes the register that it is told (R10)."""
        state, origin = self.state, message.origin
        if isinstance(message, MembersTold) or origin.base != state.origin.base or origin.base == 0:
            return False
        return origin.members == FIRST and state.members_id > FIRST

    def meet_incarnation(self, now_ms: int, message: Message) -> tuple[bool, list[Effect]]:
        """Q10: an earlier start is dropped and told so; two boots of one start are both muted, and told so, too."""
        state = self.state
        origin, peers = message.origin, state.peers
        assert state.ballot is not None
        newest, boot = state.seen(origin.node)
        if origin.incarnation > newest:
            peers.duplicates.discard(origin.node)
            known = [record for record in state.ballot.seen if record[0] != origin.node]
            if len(known) >= SEEN_MAX:
                known = [record for record in known if record[0] in state.quorum.others]
            seen = sorted([*known, (origin.node, origin.incarnation, origin.boot)])
            state.ballot = state.ballot._replace(seen=tuple(seen))
            return True, []
        if isinstance(message, Release | Stale) or (isinstance(message, Query) and not message.memory):
            return True, []  # what is said of our own start is true, however old the one who heard of it
        if origin.incarnation < newest:  # of the boot that spoke last, it is a late word from before it rose
            return False, [] if origin.boot == boot else self._tell_stale(now_ms, message, newest)
        if origin.boot != boot or origin.node in peers.duplicates:
            peers.duplicates.add(origin.node)
            peers.known.pop(origin.node, None)
            sentence = "two starts of one id speak: neither is heard"
            told = self._tell_stale(now_ms, message, newest)
            return False, [*told, *state.note(Code.TWO_BOOTS, origin.node, sentence)]
        return True, []

    def _tell_stale(self, now_ms: int, message: Message, newest: int) -> list[Effect]:
        """Says that a later, or another, start of the sender was heard; never in answer to a refusal (E1)."""
        if self.is_refusal(message):
            return []
        origin = message.origin
        stale = Send(origin.node, Stale(self.state.origin, origin.boot, newest))
        return self.state.refuse(now_ms, stale, origin.boot)

    def is_refusal(self, message: Message) -> bool:
        """It reports a refusal, a difference or staleness: nothing may be sent because of it (E1)."""
        if isinstance(message, Stale | Ahead | MembersTold | MembersTaken):
            return True
        return isinstance(message, VoteReply) and not message.granted

    def _other_base(self, message: Message) -> list[Effect]:
        """Another token base is another cluster; but a first ballot that was never used gives way to one that is."""
        sentence = "its token base is another: another cluster, or another first start"
        return self.remembering.give_way(message) or self.state.note(Code.OTHER_CLUSTER, message.origin.node, sentence)
