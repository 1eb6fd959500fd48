"""A strategy of your own: what it must have, a base that does what all have in common, and the adapter that drives it.

A strategy is any class that is made from (seat, timing, ballot) and has `guarantees`, `step`, `deadline_ms` and `view`
(`election/model.py`). What it promises in `guarantees` is taken at its word: it decides which times it is given, which
judges look at it in the simulator, and whether `primacy run` lets it start a command. `OwnStrategy` is a base for those
that decide by what they hear of the others: it says only what to do at a heartbeat and with a message; pausing, health,
stopping in order and old work that still ends are seen to here.

A strategy must never ask a clock, the network or the disk: it is told the time, and what it wants done it returns. So
the simulator can run a thousand trials of it before it decides anything for real.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import isabstract
from typing import Any, ClassVar, Protocol

from primacy.election.effects import Effect, Extend, Persist, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.guarantees import Guarantees
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Input,
    Pause,
    PersistFailed,
    Received,
    Resume,
    RunLock,
    Shutdown,
    Started,
    StepDown,
    WorkGone,
    WorkStarted,
)
from primacy.election.messages import Origin, Own
from primacy.election.model import Ballot, Kind, Leadership, Role, Seat, View
from primacy.election.ranked.rank import NO_HOLD_MS
from primacy.settings.timing import RankTiming, Timing

HEARD_HEARTBEATS = 5
"""Who was heard within so many heartbeats counts as alive: a network that loses one message in twenty loses five in a
row once in three million heartbeats."""
REST_HEARTBEATS = 10
"""After a step-down a node does not stand for so long: the others go first."""


class Pluggable(Protocol):
    """What a strategy of a user's must have."""

    guarantees: ClassVar[Guarantees]
    deadline_ms: int | None

    def __init__(self, seat: Seat, timing: Timing | RankTiming, ballot: Ballot | None) -> None:
        """Times that hold something (`Timing`) go to one that promises at most one; `RankTiming` to the others."""
        ...

    def step(self, now_ms: int, given: Input) -> list[Effect]: ...

    def view(self, now_ms: int) -> View: ...


def wrong_with(made: Any) -> str:
    """What keeps this from being a strategy, or nothing."""
    if not isinstance(made, type):
        return "it is no class"
    lacks = [name for name in ("step", "view") if not callable(getattr(made, name, None))]
    if lacks:
        return f"it has no method {' and no '.join(lacks)}"
    promise = getattr(made, "guarantees", None)
    if not isinstance(promise, Guarantees):
        return "it does not say what it promises: guarantees = Guarantees(...) of primacy.election.guarantees"
    if promise.at_most_one and promise.one_per_island:
        return "it promises at most one, and one per island: a divided network can have only one of both"
    if isabstract(made):
        return "it leaves out a method of its base: woke"
    return ""


class OwnStrategy(ABC):
    """A base: say what to do at a heartbeat, and perhaps with a message."""

    guarantees: ClassVar[Guarantees]

    def __init__(self, seat: Seat, timing: Timing | RankTiming, ballot: Ballot | None = None) -> None:
        self.seat = seat
        self.node = seat.node
        self.timing = timing
        self.ballot = ballot
        self.others = tuple(name for name in seat.membership.ids if name != seat.node)
        self.deadline_ms: int | None = None
        """When it wants to be woken next: for you to set in `woke`. If you do not, a heartbeat later."""
        self.leader = ""
        self.term = 0
        """Counts the leaderships of this node."""
        self.started_ms = 0
        self.heard_ms: dict[str, int] = {}
        """When each other node was last heard."""
        self.told: dict[str, Own] = {}
        """What each of them said last, in words of your own."""
        self._leads: Leadership | None = None
        self._leaving = False
        self._work = 0
        """The leadership whose work is not confirmed gone."""
        self._up = self._paused = self._stopping = self._lock_held = self._ran = False
        self._ill = ""
        self._rests_until_ms = 0
        self._sent = 0
        self._kept = True
        self._origin = Origin(seat.node, boot=seat.boot, config=seat.membership.hash)

    # --- yours --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def woke(self, now_ms: int) -> list[Effect]:
        """The node has started, or `deadline_ms` has passed, or it may lead again."""

    def heard(self, now_ms: int, sender: str, message: Own) -> list[Effect]:  # noqa: ARG002
        """A listed node, with the same strategy and list, says more than before. It stands in `told` already."""
        return []

    # --- for you to call ----------------------------------------------------------------------------------------------

    def may_lead(self, now_ms: int) -> bool:
        """It leads, or could: nothing holds this node back. Tell it to the others, that they do not wait for it."""
        return not self._hindrance(now_ms)

    def lead(self, now_ms: int, token: int = 0, valid_until_ms: int = NO_HOLD_MS) -> list[Effect]:
        """This node leads: from now on, or still. Who promises at most one says with which token, and until when."""
        if not self.may_lead(now_ms):
            return []
        if self._leads is not None:
            self._leads = self._leads._replace(valid_until_ms=max(self._leads.valid_until_ms, valid_until_ms))
            return [Extend(self._leads)] if valid_until_ms != NO_HOLD_MS else []
        self.term += 1
        self._work, self.leader = self.term, self.node
        self._leads, self._ran = Leadership(self.node, self.term, token, valid_until_ms), False
        return [Record(Event(Code.ELECTED, self.term, self.node, value=token)), Start(self._leads)]

    def follow(self, leader: str, why: str = "") -> list[Effect]:
        """Another one leads, or nobody (empty). If this node led, its work must end."""
        effects: list[Effect] = []
        if self._leads is not None:
            if self._leaving and not leader:
                return []
            effects = [Record(Event(Code.OUTRANKED, self.term, leader, why)), Stop(self.term, "outranked", False)]
            self._leads, self._leaving = None, False
        if leader and leader != self.leader:
            effects.append(Record(Event(Code.FOLLOWS, 0, leader, why)))
        self.leader = leader
        return effects

    def tell(self, to: str, word: str, *numbers: int) -> Effect:
        """A message of your own; it may be lost, repeated, late."""
        self._sent += 1
        return Send(to, Own(self._origin, self._sent, word, numbers))

    def tell_all(self, word: str, *numbers: int) -> list[Effect]:
        return [self.tell(name, word, *numbers) for name in self.others]

    def alive(self, now_ms: int) -> tuple[str, ...]:
        """Itself, and whoever was heard within the last heartbeats; in id order."""
        limit_ms = HEARD_HEARTBEATS * self.timing.heartbeat_ms
        return tuple(sorted((self.node, *(n for n, at_ms in self.heard_ms.items() if now_ms - at_ms <= limit_ms))))

    # --- the port -----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        effects = self._take(now_ms, given)
        if self._up and not self._kept:
            assert self.ballot is not None, "a start that was not counted"
            self._kept = True
            effects = [Persist(self.ballot), *effects]
        return effects

    def view(self, now_ms: int) -> View:
        held = self._leads is not None and self._leads.valid_until_ms != NO_HOLD_MS
        left_ms = max(0, self._leads.valid_until_ms - now_ms) if held and self._leads is not None else 0
        token = self._leads.token if self._leads is not None else 0
        waits = self._hindrance(now_ms) if self._leads is None else ""
        return View(self._role, self.leader, self.term, "", token, left_ms, self.alive(now_ms), waits)

    def _wake(self, now_ms: int) -> list[Effect]:
        """Only here a deadline moves on: a message that comes in its very millisecond must not be taken for it."""
        effects = self.woke(now_ms)
        if self.deadline_ms is None or self.deadline_ms <= now_ms:
            self.deadline_ms = now_ms + self.timing.heartbeat_ms
        return effects

    def _take(self, now_ms: int, given: Input) -> list[Effect]:
        match given:
            case Started(wall_ms, lock_held):
                self._up, self._lock_held, self.started_ms = True, lock_held, now_ms
                self._count_start(wall_ms)
                return [Record(Event(Code.STARTED)), *self._wake(now_ms)]
            case DeadlinePassed() if self._up:
                return self._wake(now_ms)
            case Received(Own() as message) if self._up and self._is_news(message):
                sender = message.origin.node
                self.heard_ms[sender], self.told[sender] = now_ms, message
                return self.heard(now_ms, sender, message)
            case WorkGone(term, _) | GuardLost(term) if term and term == self._work:
                return self._gone(now_ms, lost=isinstance(given, GuardLost))
            case RunLock(held) if self._leads is None:
                self._lock_held = held
                return [] if held or not self._up else self._wake(now_ms)
            case PersistFailed(reason):
                return self._not_kept(reason)
            case WorkStarted(term) if term == self._work:
                self._ran = True
            case Pause():
                self._paused = True
                return self._stand_back(Code.PAUSED, "told to pause")
            case Resume():
                self._paused = False
                return self._wake(now_ms) if self._up else []
            case Health(ok, detail):
                self._ill = "" if ok else detail or "a probe fails"
                return self._wake(now_ms) if ok and self._up else self._stand_back(Code.UNHEALTHY, self._ill)
            case StepDown(successor, reason):
                self._rests_until_ms = now_ms + REST_HEARTBEATS * self.timing.heartbeat_ms
                return self._stand_back(Code.TRANSFER if successor else Code.STEP_DOWN, reason, successor)
            case Shutdown():
                self._stopping = True
                return self._stand_back(Code.STOPPING, "the node is stopping")
        return []

    def _not_kept(self, reason: str) -> list[Effect]:
        """Tried again at the next step. A start that stood behind it was not made, so that nothing is led."""
        self._kept = self.ballot is None
        if self._leads is None or self._ran:
            return []
        self._leads, self._work, self._leaving, self.leader = None, 0, False, ""
        return [Record(Event(Code.DISK_FAILED, self.term, detail=reason))]

    def _count_start(self, wall_ms: int) -> None:
        """Durable before anything is said: what an earlier start said may come late, and must be known for old."""
        before = self.ballot or Ballot(0, 0, "", 0, 0, 0, ())
        self.ballot = before._replace(incarnation=max(before.incarnation + 1, wall_ms))
        self._origin, self._kept = self._origin._replace(incarnation=self.ballot.incarnation), False

    def _is_news(self, message: Own) -> bool:
        """Of a listed node under the same list, and newer than what it said last, in this start or an earlier one."""
        origin, sender = message.origin, message.origin.node
        if sender not in self.others or origin.config != self._origin.config:
            return False
        last = self.told.get(sender)
        return last is None or (origin.incarnation, message.number) > (last.origin.incarnation, last.number)

    @property
    def _role(self) -> Role:
        if self._leads is not None:
            return Role.LEADER
        if self._kind is Kind.OBSERVER:
            return Role.OBSERVER
        if self._paused:
            return Role.PAUSED
        return Role.FOLLOWER if self.leader else Role.CANDIDATE if self._up else Role.STARTING

    @property
    def _kind(self) -> Kind:
        own = self.seat.membership.get(self.node)
        return own.kind if own is not None else Kind.VOTER

    def _hindrance(self, now_ms: int) -> str:
        """Why it cannot lead; empty if it can, or does."""
        if self._leaving or self._stopping or not self._up:
            return "its own end"
        if self._kind is not Kind.VOTER:
            return "a leader to be elected: no voter of the list, it only follows"
        if self._paused:
            return "an operator: primacy resume"
        if self._ill:
            return f"its health probe to pass ({self._ill})"
        if self._lock_held or (self._work and self._leads is None):
            return "the run lock: its old work is not confirmed gone"
        return "others to lead first, as it stepped down a moment ago" if now_ms < self._rests_until_ms else ""

    def _stand_back(self, code: Code, detail: str, successor: str = "") -> list[Effect]:
        """Stop and confirm; the role is kept until the work is gone, so that no other starts beside it."""
        if self._leads is None or self._leaving:
            return []
        self._leaving = True
        return [Record(Event(code, self.term, successor, detail)), Stop(self.term, code.value, True)]

    def _gone(self, now_ms: int, *, lost: bool) -> list[Effect]:
        self._work, self._lock_held = 0, lost
        if self._leads is None:
            return self._wake(now_ms)
        self._leads, self._leaving, self.leader = None, False, ""
        effects: list[Effect] = [Record(Event(Code.GUARD_LOST if lost else Code.WORK_ENDED, self.term))]
        return effects if self._stopping else effects + self._wake(now_ms)


class Plugged:
    """One node of a user's strategy, as the agent drives it: looked at after each step, and ended when it must end."""

    def __init__(self, machine: Pluggable, seat: Seat, now_ms: int) -> None:
        self.machine = machine
        self.seat = seat
        self.heard: dict[str, int] = {}
        self.paused = False
        self.healthy = True
        self.muted = False
        self.preceding_term = 0
        self._running = 0
        self._view = machine.view(now_ms)

    @property
    def deadline_ms(self) -> int | None:
        return self.machine.deadline_ms

    @deadline_ms.setter
    def deadline_ms(self, at_ms: int | None) -> None:
        self.machine.deadline_ms = at_ms

    @property
    def role(self) -> Role:
        return self._view.role

    @property
    def term(self) -> int:
        return self._view.term

    @property
    def leader(self) -> str:
        return self._view.leader

    def view(self, now_ms: int) -> View:
        return self.machine.view(now_ms)

    def step(self, now_ms: int, given: Input) -> list[Effect]:
        """What it asks for. An end of the node ends its work, whatever the strategy thinks of it."""
        match given:
            case Received(message):
                self.heard[message.origin.node] = now_ms
            case Pause() | Resume():
                self.paused = isinstance(given, Pause)
            case Health(ok, _):
                self.healthy = ok
        effects = list(self.machine.step(now_ms, given))
        for effect in effects:
            if isinstance(effect, Start):
                self._running = effect.leadership.term
            elif isinstance(effect, Stop) and effect.term == self._running:
                self._running = 0
        if isinstance(given, Shutdown) and self._running:
            effects.append(Stop(self._running, Code.STOPPING.value, True))
            self._running = 0
        self._view = self.machine.view(now_ms)
        return effects
