"""The agent's side of a guarded command, for one boot: the real watchdog and gate, with simulated effects.

What `ProcessWorkload` and `StartGate` do in an agent. The machines decide when the command waits, is started, again or
at all, and stopped; orders go to the guard of the term, which is a model (`sim/world/guard.py`). A stopped agent hears
nothing: what its guard says is in its inbox when it goes on.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from primacy.election.effects import OrderRelease, Start, Stop
from primacy.election.inputs import Input
from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.settings.timing import Timing
from primacy.sim.world.guard import Guard
from primacy.supervise import gate, vocabulary
from primacy.supervise.machine import Policy
from primacy.supervise.vocabulary import Tell

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World


class Heard(NamedTuple):
    """In the inbox of a stopped agent: what its workload is to hear."""

    given: vocabulary.Given | gate.Approved


class Workload:
    """One agent's."""

    def __init__(self, world: World, node: Node, timing: Timing) -> None:
        self.world = world
        self.node = node
        self.timing = timing
        # A node that gave up would be off for good. A run of half a hold is steady: times are short here.
        policy = Policy(stop_ms=world.conditions.planned_stop_ms, failures_max=0, steady_ms=timing.hold_ms // 2)
        self.watchdog = world.watchdog_class(timing, policy)
        self.gate = gate.Gate(timing, gate.Rule(), node.name)
        self.guard: Guard | None = None
        self._release: Release | None = None
        self._waiting: deque[vocabulary.Given] = deque()
        self._busy = False
        self._asked = False
        """The election's effects are being performed: what it is told, it hears after them."""
        self._armed_ms: int | None = None
        self._looks = False
        """The run lock is watched."""

    # --- what the election asks for -----------------------------------------------------------------------------------

    def perform(self, effect: Start | Stop | OrderRelease) -> None:
        self._asked = True
        match effect:
            case Start(leadership, release, covered):
                self._release = release
                self._draw_approval(leadership.term)
                self._at_gate(gate.Ask(leadership, covered))
            case Stop(term, _, planned):
                if self.gate.waits:
                    self._at_gate(gate.Ended(term))
                else:
                    self._step(vocabulary.End(term, planned))
            case OrderRelease(term, successor):
                # On a lease, a node that lives writes the release itself, once it is told that the work is gone.
                if self.node.store is None:
                    self._step(vocabulary.LetGo(term, successor))
        self._asked = False

    def extend(self, leadership: Leadership) -> None:
        """With every heartbeat. Of a command that runs it moves the hold, and nothing else."""
        if self.gate.waits:
            self._at_gate(gate.Renewed(leadership))
        elif self._busy:
            self._waiting.append(vocabulary.Renew(leadership))
        else:
            for effect in self.watchdog.step(self.node.local_ms(), vocabulary.Renew(leadership)):
                self._perform(effect)

    def _draw_approval(self, term: int) -> None:
        """A share of the starts is kept back on purpose, until an operator approves (G8): each start has its gate."""
        assert not self.gate.waits, "a second start"
        conditions, node = self.world.conditions, self.node
        manual = bool(conditions.deferred) and node.chance.random() < conditions.deferred
        self.gate = gate.Gate(self.timing, gate.Rule(manual=manual), node.name)
        if manual:
            self.world.after(node.draw_ms(0, conditions.deferred_ms), partial(self.hear, gate.Approved(term, "")))

    # --- what happens -------------------------------------------------------------------------------------------------

    def hear(self, given: vocabulary.Given | gate.Approved) -> None:
        """From its guard, the run lock, an operator or a timer. A dead agent hears nothing, a stopped one later."""
        node = self.node
        if node.workload is not self:
            return
        if node.stopped or node.busy is not None:
            node.inbox.append(Heard(given))
        elif isinstance(given, gate.Approved):
            self._at_gate(given)
        else:
            if isinstance(given, vocabulary.GuardEnded):
                self.guard = None
            self._step(given)

    def watch_lock(self) -> None:
        self._looks = True
        self.look_at_lock()

    def look_at_lock(self) -> None:
        if self._looks and not self.node.lock_held():
            self._looks = False
            self.hear(vocabulary.LockFree())

    # --- the machines -------------------------------------------------------------------------------------------------

    def _at_gate(self, given: gate.Given) -> None:
        for effect in self.gate.step(self.node.local_ms(), given):
            match effect:
                case gate.LetIn(leadership):
                    self._step(vocabulary.Begin(leadership))
                case Tell(told):
                    self._tell(told)

    def _step(self, given: vocabulary.Given) -> None:
        """One input after the other: what is said while an effect is performed comes after it."""
        self._waiting.append(given)
        if self._busy:
            return
        self._busy = True
        while self._waiting and self.node.workload is self:  # who is told may crash
            for effect in self.watchdog.step(self.node.local_ms(), self._waiting.popleft()):
                self._perform(effect)
        self._busy = False
        self._arm()

    def _perform(self, effect: vocabulary.Effect) -> None:
        guard = self.guard
        match effect:
            case vocabulary.OrderExtend(leadership) if guard is not None:
                guard.extend(leadership)
            case vocabulary.OrderStart(run, leadership):
                if guard is None:
                    guard = self.guard = self.world.guard_class(self.world, self, leadership, self._release)
                    self.node.hold(guard)
                guard.order(partial(guard.start, run, leadership))
            case vocabulary.OrderStop(kill_at_ms) if guard is not None:
                guard.order(partial(guard.stop, kill_at_ms))
            case vocabulary.OrderLetGo(successor) if guard is not None:
                guard.order(partial(guard.order_release, successor))
            case vocabulary.Dismiss() if guard is not None:
                guard.order(guard.dismiss)
            case vocabulary.WatchLock():
                self.watch_lock()
            case Tell(told):
                self._tell(told)

    def _tell(self, given: Input) -> None:
        if self._asked:
            self.world.after(0, partial(self._tell_later, given))
        else:
            self.world.give(self.node, given)

    def _tell_later(self, given: Input) -> None:
        if self.node.workload is self:
            self.world.give(self.node, given)

    def _arm(self) -> None:
        """One timer, for the moment that the watchdog wants."""
        wanted_ms = self.watchdog.deadline_ms
        if wanted_ms != self._armed_ms:
            self._armed_ms = wanted_ms
            if wanted_ms is not None:
                at_ms = max(self.world.now, self.node.clock.true_ms(wanted_ms))
                self.world.at(at_ms, partial(self._wake, wanted_ms))

    def _wake(self, armed_ms: int) -> None:
        if armed_ms != self._armed_ms or self.node.waits(partial(self._wake, armed_ms)):
            return
        self._armed_ms = None
        if self.node.local_ms() < armed_ms:
            self._arm()
        else:
            self.hear(vocabulary.Woke())
