"""Registers of members between nodes: who tells one, who takes one, who asks for one (R1, R10, R12).

Every message names the register of its sender. A node that shows an older one where it matters (it asks for a vote, it
could not ack a heartbeat) is told the whole newer one; the newer one wins, from whomever it comes. Only a leader takes
none but its own: one of a later term makes it step down in order, one of a leader that is gone gives way to its own.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import MembersTaken, MembersTold, Origin, Query, Report
from primacy.election.model import MembersId, Register
from primacy.election.raft.follow import Following
from primacy.election.raft.lead import Leading
from primacy.election.raft.register import sentence
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftState

UNACKED_HEARTBEATS = 2
"""A heartbeat that waits for its register for longer tells nothing about the leader of today."""


class Telling:
    """What every node does with registers of members."""

    def __init__(self, state: RaftState, leading: Leading, following: Following) -> None:
        self.state = state
        self.leading = leading
        self.following = following

    # --- taking one ---------------------------------------------------------------------------------------------------

    def on_told(self, now_ms: int, told: MembersTold) -> list[Effect]:
        state = self.state
        register, sender = told.register, told.origin.node
        if state.register is None or not state.booted:
            return []
        effects: list[Effect] = []
        if state.is_too_far(register.id.term):
            return state.note(Code.TERM_JUMP, sender, f"term {register.id.term} is too far above {state.term}")
        if self.is_newer(register):
            if not self.may_take():
                return self.see_newer(now_ms, told.origin)
            effects = self.take(now_ms, register)
        if register.id == state.members_id and not register.named(state.node):
            effects += state.refuse(now_ms, Send(sender, MembersTaken(state.origin)))
        return effects

    def on_report(self, now_ms: int, report: Report) -> list[Effect]:
        """An answer to a question about memory brings the members, too (R12)."""
        state = self.state
        register, ballot = report.register, state.ballot
        if ballot is None or register is None or not report.memory or report.origin.base != ballot.base:
            return []
        if not self.is_newer(register) or state.is_too_far(register.id.term):
            return []
        if not self.may_take():
            return self.see_newer(now_ms, report.origin)
        return self.take(now_ms, register)

    def is_newer(self, register: Register) -> bool:
        """The newer id wins, an older one never (R1)."""
        return register.id > self.state.members_id

    def may_take(self) -> bool:
        """A leader takes none but its own (R1)."""
        return self.state.leader_state is None

    def take(self, now_ms: int, register: Register) -> list[Effect]:
        """From now on this one counts: its term at least is ours, and nobody is asked for votes under the old (R1)."""
        state = self.state
        term = state.term
        self.give_up_candidacy(now_ms)
        state.write_register(register)
        if state.term > term:
            state.become_follower()
        effects: list[Effect] = [Record(Event(Code.MEMBERS_CHANGED, state.term, str(register.id), sentence(register)))]
        if register.named(state.node):
            return effects + self._ack_at_last(now_ms)
        state.unacked = None
        state.become_follower()
        if state.options.joins:
            state.file_ask_at_ms = now_ms + state.timing.promise_ms
        return [*effects, Record(Event(Code.NOT_A_MEMBER, state.term, detail=f"of version {register.id.version}"))]

    def give_up_candidacy(self, now_ms: int) -> None:
        """A vote was given for the register that was asked under, and for no newer one (R1)."""
        state = self.state
        if state.campaign is not None:
            state.become_follower()
            state.campaign_at_ms = now_ms + int(state.seat.random.random() * state.timing.heartbeat_ms)

    def _ack_at_last(self, now_ms: int) -> list[Effect]:
        """The heartbeat that made us ask: its register is stored now."""
        state = self.state
        heartbeat, state.unacked = state.unacked, None
        if heartbeat is None or heartbeat.term < state.term or heartbeat.origin.members > state.members_id:
            return []
        if now_ms - state.unacked_at_ms > UNACKED_HEARTBEATS * state.timing.heartbeat_ms:
            return []
        return self.following.on_heartbeat(now_ms, heartbeat)

    # --- a leader -----------------------------------------------------------------------------------------------------

    def see_newer(self, now_ms: int, origin: Origin) -> list[Effect]:
        """Somebody has a newer register than this leader: of a later leader, or of one before that is gone (R4)."""
        state = self.state
        leader = state.leader_state
        if leader is None or origin.members <= state.members_id or origin.base != state.origin.base:
            return []
        term, _ = origin.members
        if term > leader.term:
            return self.leading.give_way(now_ms, leader, origin.node, term)
        return self._rename(leader)

    def _rename(self, leader: Leader) -> list[Effect]:
        """Only the first register keeps its id at an election (R4); now it must be newer than what was left half
        done."""
        state = self.state
        register = state.register
        assert register is not None
        register = register._replace(id=MembersId(leader.term, register.id.version))
        self.leading.write_members(leader, register)
        return [Record(Event(Code.MEMBERS_CHANGED, state.term, str(register.id), sentence(register)))]

    def on_taken(self, now_ms: int, taken: MembersTaken) -> list[Effect]:
        """It has this register: an older one, and could not ack; or the one that does not name it any more."""
        state = self.state
        node = taken.origin.node
        if taken.origin.members < state.members_id:
            return state.tell_members(now_ms, node)
        leader = state.leader_state
        if leader is not None:
            leader.change.removed.pop(node, None)
        return []

    # --- asking at the start (R12) ------------------------------------------------------------------------------------

    def ask_file(self, now_ms: int) -> list[Effect]:
        """The nodes of the file are asked, too: they may know of newer members than an old copy of a ballot does."""
        state = self.state
        register = state.register
        if register is None:  # given up as an old copy: what it knows no more it asks everybody (R9)
            state.file_ask_at_ms = 0
            return []
        if now_ms < state.file_ask_at_ms:
            return []
        joins = state.options.joins
        if joins and not register.named(state.node):
            return self._ask_to_belong(now_ms, register)
        asked = [name for name in state.recovery.named_by_file(register) if name not in state.recovery.reports]
        if asked and now_ms < state.read_at_ms + state.timing.promise_ms:
            state.file_ask_at_ms = now_ms + 2 * state.timing.heartbeat_ms
            return [Send(name, Query(state.origin, True, state.term)) for name in asked]
        if (joins or state.is_never_refused(register)) and not state.leader:
            return self._ask_to_belong(now_ms, register)
        state.file_ask_at_ms = 0
        return []

    def _ask_to_belong(self, now_ms: int, register: Register) -> list[Effect]:
        """One that is to be added may be listed at an address where it does not hear: it asks until it hears a leader
        of the members. So does one that may have been removed by a leader that died before it said so (R10)."""
        state = self.state
        state.file_ask_at_ms = now_ms + state.timing.promise_ms
        asked = state.recovery.named_by_file(register)
        return [Send(name, Query(state.origin, True, state.term)) for name in asked]
