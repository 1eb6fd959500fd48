"""What the agent and an operator ask of a node of bully or ring: to start, pause, step down, take a list, and stop.

A leadership that ends on purpose ends in order: stop the work, have it confirmed, and only then let the next one begin.
The role is kept until then, so that no other starts beside it.
"""

from __future__ import annotations

from primacy.election.effects import Effect, Record, Send, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import (
    GuardLost,
    Health,
    Input,
    MembersChanged,
    Paced,
    Pause,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    WorkGone,
)
from primacy.election.messages import Election, Handover
from primacy.election.ranked.state import ELECTING, Phase, State
from primacy.election.ranked.watch import Watch


class Lifecycle:
    """Inputs that no other node gave."""

    def __init__(self, state: State, watch: Watch) -> None:
        self._state, self._watch = state, watch
        self._ranking, self._fitness = state.ranking, state.fitness

    def take(self, now_ms: int, given: Input) -> list[Effect]:
        state, fitness = self._state, self._fitness
        match given:
            case Started(_, lock_held) if not fitness.up and not fitness.stopping:
                fitness.up, fitness.lock_held = True, lock_held
                return [Record(Event(Code.STARTED)), *self._begin(now_ms)]
            case WorkGone(term, _) if term and term == fitness.work:
                return self._work_gone(now_ms)
            case GuardLost(term) if term and term == state.led:
                return state.resign(Code.GUARD_LOST, "", "its guard is gone") + state.look_around(now_ms)
            case RunLock(held) if state.phase is not Phase.LEAD:  # a leader's own work has the lock
                return self._run_lock(now_ms, held)
            case StepDown(successor, reason):
                return self._leave(Code.TRANSFER if successor else Code.STEP_DOWN, reason, successor)
            case Pause():
                fitness.paused = True
                return self._cannot_lead(now_ms, Code.PAUSED, "told to pause")
            case Resume():
                fitness.paused = False
                return self._can_lead(now_ms)
            case Health(ok, detail):
                fitness.ill = "" if ok else detail or "a probe fails"
                return self._can_lead(now_ms) if ok else self._cannot_lead(now_ms, Code.UNHEALTHY, fitness.ill)
            case MembersChanged(members, version) if self._ranking.changed(members, version):
                return self._members_changed(now_ms)
            case Paced(factor):
                state.pace(factor)
            case Shutdown():
                return self._shut_down()
        return []  # what concerns strategies with a ballot or a store

    def _begin(self, now_ms: int) -> list[Effect]:
        """Nobody leads before it has asked the others, not even the first node after a restart."""
        return self._state.look_around(now_ms) if self._ranking.others else self._can_lead(now_ms)

    # --- able to lead or not ------------------------------------------------------------------------------------------

    def _cannot_lead(self, now_ms: int, code: Code, detail: str) -> list[Effect]:
        """A leader leaves, a candidate gives up; the rest changes nothing."""
        return self._state.look_around(now_ms) if self._state.phase in ELECTING else self._leave(code, detail)

    def _can_lead(self, now_ms: int) -> list[Effect]:
        """What hindered it is over. It campaigns if it was left without a leader, and changes nothing otherwise."""
        state = self._state
        alone = state.phase is Phase.IDLE and not self._ranking.others and not state.options.joining
        leaderless = state.phase is Phase.LOOK and state.joined
        return state.campaign(now_ms) if (alone or leaderless) and state.able(now_ms) else []

    def _run_lock(self, now_ms: int, held: bool) -> list[Effect]:
        """What an earlier start left behind."""
        self._fitness.lock_held = held
        if held:
            return []
        self._fitness.work = 0
        return self._can_lead(now_ms)

    # --- leaving in order ---------------------------------------------------------------------------------------------

    def _leave(self, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop, confirm, hand over."""
        if self._state.phase is not Phase.LEAD or self._state.leaving is not None:
            return []
        self._state.leaving = successor
        return [Record(Event(code, self._state.led, successor, detail)), Stop(self._state.led, code.value, True)]

    def _work_gone(self, now_ms: int) -> list[Effect]:
        self._fitness.work = 0
        if self._state.phase is not Phase.LEAD:
            return self._can_lead(now_ms)
        effects: list[Effect] = []
        if self._state.leaving is None:  # the next in line gets a try
            effects.append(Record(Event(Code.WORK_ENDED, self._state.led, "", "its work ended by itself")))
        return effects + self._hand_over(now_ms)

    def _hand_over(self, now_ms: int) -> list[Effect]:
        """To the named node, if it lives, by telling all; else the highest live node is told to elect."""
        state, ranking = self._state, self._ranking
        named = state.leaving or ""
        to_named = named != state.node and ranking.may_lead(named) and ranking.is_alive(now_ms, named)
        heir = named if to_named else ranking.highest_live(now_ms)
        state.halt()
        effects: list[Effect] = []
        if to_named:
            effects += [Send(name, Handover(state.origin, heir)) for name in ranking.others]
        elif heir:
            effects.append(Send(heir, Election(state.origin)))
        if self._fitness.stopping:
            self._fitness.up = False
            return effects
        self._fitness.sits_out_ms = now_ms + 2 * state.wait_ms
        return effects + state.wait(now_ms, heir, state.wait_ms)

    def _shut_down(self) -> list[Effect]:
        self._fitness.stopping = True
        if self._state.phase is Phase.LEAD:
            return self._leave(Code.STOPPING, "the node is stopping")
        self._state.halt()
        self._fitness.up = False
        return []

    # --- the list -----------------------------------------------------------------------------------------------------

    def _members_changed(self, now_ms: int) -> list[Effect]:
        """Changes who ranks where and who is asked; who leads changes only if the leader itself has left."""
        state = self._state
        state.forget_unlisted()
        self._watch.forget_unlisted()
        if state.node not in self._ranking:
            return self._left_out()
        if self._fitness.up and state.phase is Phase.IDLE:
            return self._begin(now_ms)
        if self._ranking.may_lead(state.leader):
            return []
        if state.phase is Phase.FOLLOW:
            return self._watch.leader_gone(now_ms, "has left the list", Code.LEADER_LEFT)
        state.leader = ""
        return []

    def _left_out(self) -> list[Effect]:
        """This node was removed: it stops its work, says so once, and nothing more."""
        state, why = self._state, "it was removed from the list"
        effects: list[Effect] = []
        if state.phase is Phase.LEAD:
            effects = state.resign(Code.REMOVED, state.node, why)
        elif state.phase is not Phase.IDLE:
            effects = [Record(Event(Code.REMOVED, state.epoch, state.node, why))]
        state.halt()
        state.joined = False
        return effects
