"""Drives one strategy for real. Small on purpose: it performs, and decides nothing.

One input at a time; its effects are done in their order before the next input is looked at. A ballot that could not
be made durable drops everything that stood behind it, and the strategy hears of it before anything else (Q1, F31). One
timer is armed for `deadline_ms`; it may be late, and the strategy knows that.

Everything runs in one thread, in the event loop; saving a ballot holds the loop up, on purpose: a node that has voted
and cannot remember it has nothing to say meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Event
from primacy.election.inputs import DeadlinePassed, Input, PersistFailed, Received
from primacy.election.messages import Heartbeat, Message, Release
from primacy.election.model import Leadership, Strategy
from primacy.election.store import StoreRequest
from primacy.loop import Timer, timer
from primacy.node.ballot import Durable
from primacy.node.clock import Clock

NEVER_LATE_MS = 1 << 62
LATEST_S = 3_600.0
"""A timer is never armed further away than this, so that a clock that jumped is looked at again."""


NOTICED = (Start, Stop)
"""Effects that themselves make news: what led to them is told first."""


class MessageSender(Protocol):
    """Carries messages to other nodes, or loses them."""

    def send(self, to: str, message: Message) -> None: ...


class Store(Protocol):
    """Answers later with `StoreAnswered`, or never."""

    def ask(self, number: int, request: StoreRequest) -> None: ...


class Work(Protocol):
    """The guarded work of this node. It answers with `WorkStarted`, `WorkGone`, `GuardLost` and `RunLock`."""

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None: ...

    def extend(self, leadership: Leadership) -> None: ...

    def stop(self, term: int, reason: str, planned: bool) -> None: ...

    def release(self, term: int, successor: str) -> None: ...


Again = Callable[[int, Message | None], list[Effect] | None]
"""A strategy's short way for a message like the last one, or for its deadline: sends and extensions only, or None."""
Listener = Callable[[Sequence[Event]], None]
"""Told the events of one step together, in order; those before a start or a stop apart."""


class Driver:
    """One strategy with its ports."""

    def __init__(
        self,
        strategy: Strategy,
        clock: Clock,
        durable: Durable,
        work: Work,
        listener: Listener,
        transport: MessageSender | None = None,
        store: Store | None = None,
        again: Again | None = None,
    ) -> None:
        self.strategy = strategy
        self.clock = clock
        self.durable = durable
        self.work = work
        self.listener = listener
        self.transport = transport
        self.store = store
        self.again = again
        self.stepped: Callable[[], None] = lambda: None
        """Called after each step that may have changed the view, when its effects are done.

        A message that has no effects but an answer and an extension, and a moment at which nothing is done but to
        send heartbeats, changed nothing that anybody wants to be told at once.
        """
        self.late_ms = NEVER_LATE_MS
        self.late: Callable[[int], None] = lambda _: None
        """Told how late a deadline was attended to, if it was so late or more."""
        self._due_ms = 0
        self._waiting: deque[Input] = deque()
        self._busy = False
        self._closed = False
        self._timer: Timer | None = None
        self._armed_ms: int | None = None
        """What the timer is set for."""

    def give(self, given: Input) -> None:
        """Told now, or after the inputs that came before. What a port says while it is used comes after this step."""
        self._waiting.append(given)
        if not self._busy and not self._closed:
            self._give_waiting()

    def _give_waiting(self) -> None:
        self._busy = True
        try:
            while self._waiting and not self._closed:
                self._step(self._waiting.popleft())
        finally:
            self._busy = False
        self._arm(self.clock.now_ms())

    def hear(self, message: Message) -> None:
        """A message came. Nearly always it is like the last one of its sender: then the strategy has a short way."""
        if not self._go_on(self.clock.now_ms(), message):
            self.give(Received(message))

    def _go_on(self, now_ms: int, message: Message | None) -> bool:
        """True if the strategy took the short way, and its effects are done."""
        if self.again is None or self._busy or self._closed or self._waiting:
            return False
        effects = self.again(now_ms, message)
        if effects is None:
            return False
        self._busy = True
        try:
            for effect in effects:
                if type(effect) is Send:
                    if self.transport is not None:
                        self.transport.send(effect.to, effect.message)
                else:
                    assert type(effect) is Extend, effect
                    self.work.extend(effect.leadership)
        finally:
            self._busy = False
        if self._waiting:
            self._give_waiting()
        elif self.strategy.deadline_ms != self._armed_ms:
            self._arm(now_ms)
        return True

    def close(self) -> None:
        """No further step is made."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.clear()

    def _step(self, given: Input) -> None:
        events: list[Event] = []
        kind = type(given)
        quiet = kind is Received or kind is DeadlinePassed
        for effect in self.strategy.step(self.clock.now_ms(), given):
            if isinstance(effect, Send):
                if self.transport is not None:
                    self.transport.send(effect.to, effect.message)
                if kind is DeadlinePassed and type(effect.message) is not Heartbeat:
                    quiet = False
                continue
            if not isinstance(effect, Extend):
                quiet = False
                if events and type(effect) in NOTICED:
                    self.listener(events)
                    events = []
            match effect:
                case Persist(ballot):
                    try:
                        self.durable.save(ballot)
                    except OSError as error:
                        self._waiting.appendleft(PersistFailed(error.strerror or type(error).__name__))
                        break
                case Start(leadership, release, covered):
                    self.work.start(leadership, release, covered)
                case Extend(leadership):
                    self.work.extend(leadership)
                case Stop(term, reason, planned):
                    self.work.stop(term, reason, planned)
                case OrderRelease(term, successor):
                    self.work.release(term, successor)
                case AskStore(number, request):
                    if self.store is not None:
                        self.store.ask(number, request)
                case Record(event):
                    events.append(event)
                case _:
                    assert_never(effect)
        if events:
            self.listener(events)
        if not quiet:
            self.stepped()

    def _arm(self, now_ms: int) -> None:
        """One timer, for the moment that the strategy wants."""
        wanted_ms = self.strategy.deadline_ms
        if wanted_ms == self._armed_ms or self._closed:
            return
        self._armed_ms = wanted_ms
        self._due_ms = now_ms if wanted_ms is None or wanted_ms < now_ms else wanted_ms
        if self._timer is None:
            self._timer = timer(self._wake)
        if wanted_ms is None:
            self._timer.clear()
        else:
            after_s = (wanted_ms - now_ms) / 1_000
            self._timer.set(0.0 if after_s < 0 else after_s if after_s < LATEST_S else LATEST_S)

    def _wake(self) -> None:
        self._armed_ms = None
        wanted_ms, now_ms = self.strategy.deadline_ms, self.clock.now_ms()
        if wanted_ms is not None and now_ms < wanted_ms:
            self._arm(now_ms)  # a millisecond early, or a moment that was too far away
            return
        if now_ms - self._due_ms >= self.late_ms:
            self.late(now_ms - self._due_ms)
        if not self._go_on(now_ms, None):
            self.give(DeadlinePassed())
