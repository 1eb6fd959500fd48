"""Changing the members while the work runs: what a leader does with a goal (R4 to R7), and with an operator's words.

The leader writes the next register when its next heartbeat is due, tells it to everybody, and goes on once a quorum has
acked a heartbeat that carried it (R5). New nodes come in as observers; when all of them and a majority of the goal
answer, a joint register is written, then the final one (R6). A joint one that is not proved soon is taken back (R7): a
node that never comes up costs nothing. The goal stands in the register, so that the next leader goes on with it. A
leader that leaves hands over first, to one that stays.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers
from primacy.election.messages import MembersTold
from primacy.election.model import CLOSED, Goal, Kind, Member, MembersId, Register
from primacy.election.raft.lead import Leading
from primacy.election.raft.memory import Remembering
from primacy.election.raft.recovery import FLOOR
from primacy.election.raft.register import (
    BY_CHARS_MAX,
    difference,
    is_joint_needed,
    names,
    new_voters,
    ordered,
    prepared,
    sentence,
    taken_back,
    voting,
)
from primacy.election.raft.requests import is_last_step, why_not
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftState

RECENT_HEARTBEATS = 3
"""Who acked one of so many of the newest heartbeats is there (R7)."""


class Changing:
    """What a leader does with a goal, and any node with an operator's request."""

    def __init__(self, state: RaftState, leading: Leading, remembering: Remembering) -> None:
        self.state = state
        self.leading = leading
        self.remembering = remembering

    # --- requests -----------------------------------------------------------------------------------------------------

    def on_request(self, now_ms: int, given: ChangeMembers | CancelChange | ForceMembers) -> list[Effect]:
        state = self.state
        refused = why_not(state, given)
        if not refused and isinstance(given, ForceMembers) and state.promise_left(now_ms) > 0:
            refused = "a leader was heard, or this node was started, a moment ago: ask again when its silence is over"
        if refused:
            soon = isinstance(given, ChangeMembers) and is_last_step(state)
            return [Record(Event(Code.MEMBERS_REFUSED, state.term, detail=refused, value=int(soon)))]
        if isinstance(given, ForceMembers):
            return self._force(now_ms, given)
        leader = state.leader_state
        assert leader is not None, "others refuse"
        if isinstance(given, ChangeMembers):
            wanted = tuple(member._replace(started_ms=0) for member in ordered(given.members))
            leader.change.wanted = Goal(wanted, given.by[:BY_CHARS_MAX], given.wall_ms)
        else:
            leader.change.cancelled = True
        return []

    def _force(self, now_ms: int, given: ForceMembers) -> list[Effect]:
        """The last resort (R14): a term that nobody can have voted in, closed, and silence as after a start.

        A change that was on its way may be known here only: the voters before count on, without those that are gone.
        """
        state = self.state
        register, ballot = state.register, state.ballot
        assert register is not None
        assert ballot is not None
        term = state.reached_term + FLOOR
        members = tuple(member for member in register.members if member.id not in given.without)
        prior = tuple(member for member in register.prior if member.id not in given.without)
        forced = Register(MembersId(term, register.id.version + 1), members, prior)
        state.ballot = ballot._replace(term=term, voted_for=CLOSED, register=forced)
        state.become_follower()
        return [self._recorded(forced), *self.remembering.ballot_read(now_ms)]

    # --- at every heartbeat of a leader -------------------------------------------------------------------------------

    def at_heartbeat(self, now_ms: int, leader: Leader) -> list[Effect]:
        """One step further, if the present register is proved (R5). The heartbeat that follows carries what it is."""
        register, change = self.state.register, leader.change
        if register is None or not change.is_busy(register):
            return []
        effects = self._go_on(now_ms, leader, register)
        return effects + self._tell_removed(leader)

    def _go_on(self, now_ms: int, leader: Leader, register: Register) -> list[Effect]:
        change = leader.change
        if not self.is_proved(leader):
            return self._while_unproved(now_ms, leader, register)
        if leader.closed:
            return []
        effects: list[Effect] = []
        if change.is_done_due:
            change.is_done_due, change.wanted = False, None
            effects.append(Record(Event(Code.MEMBERS_DONE, leader.term, str(register.id), sentence(register))))
        elif register.goal is not None:
            change.wanted = None  # the register has it
        return effects + self._next(now_ms, leader, register)

    def is_proved(self, leader: Leader) -> bool:
        """A quorum acked a heartbeat of this term that carried the present register (R5)."""
        return leader.progress.proved >= leader.change.carried_from

    def _next(self, now_ms: int, leader: Leader, register: Register) -> list[Effect]:
        change = leader.change
        if change.cancelled:
            return self._cancel(now_ms, leader, register)
        if register.prior:
            return self._finish(now_ms, leader, register)
        goal = register.goal or change.wanted
        return [] if goal is None else self._approach(now_ms, leader, register, goal)

    def _approach(self, now_ms: int, leader: Leader, register: Register, goal: Goal) -> list[Effect]:
        """What one step can do; then, when those that are to vote answer, the joint register (R6)."""
        change, node = leader.change, self.state.node
        leaves = not any(member.id == node and member.kind is Kind.VOTER for member in goal.members)
        if not self.needs_joint(register, goal) and not leaves:
            change.is_done_due = True
            return self._write(now_ms, leader, goal.members)
        members = prepared(register, goal, node)
        if register.goal is None or members != register.members:
            return self._write(now_ms, leader, members, goal=goal)
        if now_ms < change.retry_at_ms or not self.is_ready(leader, register, goal):
            return []
        if leaves:
            return self._hand_over(now_ms, leader, register, goal)
        change.before = register
        return self._write(now_ms, leader, goal.members, prior=voting(register.members), goal=goal)

    def needs_joint(self, register: Register, goal: Goal) -> bool:
        """Voters change in two steps (R6)."""
        return is_joint_needed(register, goal)

    def is_ready(self, leader: Leader, register: Register, goal: Goal) -> bool:
        """All new voters and a majority of the goal acked within three heartbeats; so did a quorum of today (R7)."""
        target = names(voting(goal.members))
        there = [name for name in target if self._is_recent(leader, name)]
        if any(name not in there for name in new_voters(register, goal)) or 2 * len(there) <= len(target):
            return False
        return leader.progress.proved >= leader.progress.number - 1

    def _is_recent(self, leader: Leader, node: str) -> bool:
        progress = leader.progress
        return node == self.state.node or progress.acked.get(node, 0) > max(0, progress.number - RECENT_HEARTBEATS)

    def _hand_over(self, now_ms: int, leader: Leader, register: Register, goal: Goal) -> list[Effect]:
        """To one that stays and answers (R7). The goal stands in the register: the next leader goes on with it."""
        if now_ms - leader.change.since_ms < self.state.timing.promise_ms:
            return []  # elected again although it leaves: not at once again
        present = names(tuple(m for m in register.members if m.kind is Kind.VOTER))
        staying = [m for m in goal.members if m.kind is Kind.VOTER and m.id in present]
        staying = [m for m in staying if self._is_recent(leader, m.id)]
        if not staying:
            return []
        successor = min(staying, key=lambda member: (-member.priority, member.id))
        return self.leading.step_down(now_ms, Code.TRANSFER, "it leaves the members", successor.id)

    def _finish(self, now_ms: int, leader: Leader, register: Register) -> list[Effect]:
        """The joint register is proved: the voters before count no longer (R6)."""
        change, goal = leader.change, register.goal
        change.is_done_due = goal is None or goal.members == register.members
        return self._write(now_ms, leader, register.members, goal=None if change.is_done_due else goal)

    # --- going back ---------------------------------------------------------------------------------------------------

    def _while_unproved(self, now_ms: int, leader: Leader, register: Register) -> list[Effect]:
        change = leader.change
        if not register.prior or not self.may_take_back(leader):
            return []
        if change.cancelled:
            return self._cancel(now_ms, leader, register)
        if now_ms < change.written_at_ms + self.state.timing.term_at_ms // 2:
            return []
        change.retry_at_ms = now_ms + self.state.timing.term_at_ms
        detail = "it was not acked in time by a majority of the voters and of those before; it is tried again"
        return self._go_back(now_ms, leader, register, register.goal, detail)

    def may_take_back(self, leader: Leader) -> bool:
        """Unproved, only by the leader that wrote the joint register, in the same term (R5)."""
        return leader.change.before is not None

    def _go_back(self, now_ms: int, leader: Leader, register: Register, goal: Goal | None, detail: str) -> list[Effect]:
        before = leader.change.before
        members = before.members if before is not None else taken_back(register)
        effects = self._write(now_ms, leader, members, goal=goal)
        return [Record(Event(Code.MEMBERS_TAKEN_BACK, leader.term, str(self.state.members_id), detail)), *effects]

    def _cancel(self, now_ms: int, leader: Leader, register: Register) -> list[Effect]:
        """The goal is dropped; a joint register is taken back, a proved one too: a change like any other."""
        change = leader.change
        change.cancelled, change.wanted = False, None
        if register.prior:
            return self._go_back(now_ms, leader, register, None, "it was cancelled")
        if register.goal is None:
            return []
        effects = self._write(now_ms, leader, register.members)
        back = Event(Code.MEMBERS_TAKEN_BACK, leader.term, str(self.state.members_id), "it was cancelled")
        return [Record(back), *effects]

    # --- writing and telling ------------------------------------------------------------------------------------------

    def _write(
        self,
        now_ms: int,
        leader: Leader,
        members: tuple[Member, ...],
        *,
        prior: tuple[Member, ...] = (),
        goal: Goal | None = None,
    ) -> list[Effect]:
        """The next register of this leader, told to everybody before the heartbeat that carries it."""
        state = self.state
        before = state.register
        assert before is not None
        register = Register(MembersId(leader.term, before.id.version + 1), members, prior, goal)
        self.leading.write_members(leader, register)
        gone = [name for name in before.everybody if not register.named(name)]
        leader.change.removed.update(dict.fromkeys(gone, True))
        leader.change.written_at_ms = now_ms
        told: list[Effect] = [effect for node in state.quorum.others for effect in state.tell_members(now_ms, node)]
        return [self._recorded(register), *told]

    def _recorded(self, register: Register) -> Record:
        return Record(Event(Code.MEMBERS_CHANGED, register.id.term, str(register.id), sentence(register)))

    def _tell_removed(self, leader: Leader) -> list[Effect]:
        """Who was removed is told so at every heartbeat, until it says that it knows (R10)."""
        register, change = self.state.register, leader.change
        assert register is not None
        change.removed = {name: True for name in change.removed if not register.named(name)}
        return [Send(node, MembersTold(self.state.origin, register)) for node in sorted(change.removed)]

    # --- for people ---------------------------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """What the change waits for; empty if none is on its way, or it is another's to know."""
        register, leader = self.state.register, self.state.leader_state
        goal = None if register is None else register.goal
        if leader is not None:
            goal = goal or leader.change.wanted
        if register is None or (goal is None and not register.prior):
            return ""
        what = difference(register, goal.members) if goal is not None else ""
        by = f", asked for by {goal.by}" if goal is not None and goal.by else ""
        if leader is None:
            return f"the leader to go on with it ({what}{by})" if what else "the leader to go on with it"
        return f"{self._waits(leader, register, goal)} ({what}{by})" if what else self._waits(leader, register, goal)

    def _waits(self, leader: Leader, register: Register, goal: Goal | None) -> str:
        if leader.closed:
            return "its leader to hand over"
        if not self.is_proved(leader) or goal is None:
            return "a majority of the voters, and of those before, to ack" if register.prior else "a majority to ack"
        silent = [name for name in names(voting(goal.members)) if not self._is_recent(leader, name)]
        if silent and not self.is_ready(leader, register, goal):
            return f"{', '.join(silent)} to be heard (nothing has changed for the others; primacy members cancel)"
        return "the next heartbeat"
