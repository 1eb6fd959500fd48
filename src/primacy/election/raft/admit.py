"""Nodes without memory that the register names as observers: how they come in (R8, R10).

An observer counts in no quorum, so a vote that it gave and forgot can elect nobody any more. It asks with the nonce of
its boot; a leader answers once a heartbeat that left after the question is proved, so that it still led then. From the
answer the node writes a ballot, as if it had just read it. So a new node becomes an observer, is admitted, acks, and
only then gets a vote (`change.py`).

An observer whose term is ahead of its leader's can ack nothing: it gives its ballot up and is admitted anew (R10).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.messages import Admission, Heartbeat, Query
from primacy.election.model import CLOSED, Ballot, Register
from primacy.election.raft.memory import Remembering
from primacy.election.raft.register import is_observer
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftState


class Admitting:
    """Both sides: a leader, and a node that was told nothing yet."""

    def __init__(self, state: RaftState, remembering: Remembering) -> None:
        self.state = state
        self.remembering = remembering

    # --- a leader -----------------------------------------------------------------------------------------------------

    def on_query(self, query: Query) -> None:
        """Remembers the question of a blank node; the first one of its boot, so that a repeated one costs no time."""
        state = self.state
        leader, register, asker = state.leader_state, state.register, query.origin
        if leader is None or register is None or query.memory or not self.may_admit(register, asker.node):
            return
        if not state.seat.membership.is_config(asker.config):
            return
        boot, _ = leader.change.questions.get(asker.node, (0, 0))
        if boot != asker.boot:
            leader.change.questions[asker.node] = asker.boot, leader.progress.number

    def may_admit(self, register: Register, node: str) -> bool:
        """Only an observer: a voter may have forgotten a vote that still counts (R8)."""
        return is_observer(register, node)

    def answer(self) -> list[Effect]:
        """Those that may be admitted by now."""
        state = self.state
        leader, register, ballot = state.leader_state, state.register, state.ballot
        if leader is None or register is None or ballot is None:
            return []
        effects: list[Effect] = []
        for node, (boot, number) in sorted(leader.change.questions.items()):
            if not self.may_admit(register, node):
                del leader.change.questions[node]
            elif self.is_proved(leader, number):
                del leader.change.questions[node]
                hold_max_ms = max(ballot.hold_max_ms, state.timing.hold_ms)
                told = (boot, leader.term, register, hold_max_ms, ballot.token_known, ballot.seen)
                effects.append(Send(node, Admission(state.origin, *told)))
        return effects

    def is_proved(self, leader: Leader, number: int) -> bool:
        """A quorum acked a heartbeat that left after the question: it led when it was asked (R8)."""
        return leader.progress.proved > number

    # --- the node that asked ------------------------------------------------------------------------------------------

    def on_admission(self, now_ms: int, admission: Admission) -> list[Effect]:
        """Written as if just read: the term closed, silent for P (R8)."""
        state = self.state
        origin, register = admission.origin, admission.register
        if state.ballot is not None or not self.is_answer(admission):
            return []
        if not state.seat.membership.is_config(origin.config) or origin.base <= 0:
            return []
        if not self.may_admit(register, state.node):
            return []
        recovery = state.recovery
        if recovery.is_lone_file(register):
            detail = "its file names nobody but itself: write the other nodes into it"
            return state.note(Code.NOT_A_MEMBER, "", detail)
        seen = {name: (count, boot) for name, count, boot in admission.seen}
        mine, _ = seen.pop(state.node, (0, 0))
        state.ballot = Ballot(
            base=origin.base,
            term=admission.term,
            voted_for=CLOSED,
            hold_max_ms=max(admission.hold_max_ms, state.timing.hold_ms),
            token_max=recovery.token_at_least(admission.token_max),
            incarnation=recovery.incarnation_above(mine, now_ms + state.wall_offset_ms),
            lists=(recovery.own,),
            changed=True,
            seen=tuple((name, *seen[name]) for name in sorted(seen)),
            register=register,
        )
        if state.options.joins:
            state.file_ask_at_ms = now_ms + state.timing.promise_ms  # until it hears a leader (R12)
        admitted = Record(Event(Code.ADMITTED, admission.term, origin.node, f"members {register.id}"))
        return [admitted, *self.remembering.ballot_read(now_ms)]

    def is_answer(self, admission: Admission) -> bool:
        """To this boot, and to no earlier one, which may have voted since (R8)."""
        return admission.echo == self.state.seat.boot

    # --- an observer that is ahead (R10) ------------------------------------------------------------------------------

    def is_ahead(self, heartbeat: Heartbeat) -> bool:
        """The leader's register is ours and names us as observer, and its term is behind ours."""
        state = self.state
        register = state.register
        if register is None or state.muted or heartbeat.term >= state.term:
            return False
        return heartbeat.origin.members == register.id and is_observer(register, state.node)

    def give_up(self, leader: str) -> list[Effect]:
        """No memory any more, but for the largest token; what it asks from now on has a new nonce."""
        state = self.state
        term, state.recovery.copy = state.term, state.ballot
        state.draw_boot()
        voided = self.remembering.forget_durably()
        detail = "its term is ahead: it gives its ballot up, to be admitted anew"
        return [*voided, Record(Event(Code.RECOVERING, term, leader, detail))]
