"""Drives one strategy for real. Small on purpose: it performs, and decides nothing.

One input at a time; its effects are done in their order before the next input is looked at. A ballot that could not
be made durable drops everything that stood behind it, and the strategy hears of it before anything else (Q1, F31). One
timer is armed for `deadline_ms`; it may be late, and the strategy knows that.

Everything runs in one thread, in the event loop; saving a ballot holds the loop up, on purpose: a node that has voted
and cannot remember it has nothing to say meanwhile. Where several elections share a loop, a disk that is slow for one
must not hold up the others: then a `saver` saves beside the loop, and only this driver waits, with its inputs in their
order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, assert_never

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Event
from primacy.election.inputs import DeadlinePassed, Input, PersistFailed, Received
from primacy.election.messages import Heartbeat, Message, Release
from primacy.election.model import Ballot, Leadership, Strategy
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
Saver = Callable[[Ballot, Callable[[OSError | None], None]], None]
"""Saves a ballot beside the loop, and says in the loop when it is durable, or why it is not."""
WAITING_MAX = 256
"""Inputs that may wait for a disk. More messages are lost, as on the way; what else is told is never lost."""
Listener = Callable[[Sequence[Event]], None]
"""Told the events of one step together, in order; those before a start or a stop apart."""


class Step:
    """One step whose effects are being performed."""

    def __init__(self, effects: Iterator[Effect], kind: type[Input]) -> None:
        self.effects = effects
        self.kind = kind
        self.events: list[Event] = []
        self.quiet = kind is Received or kind is DeadlinePassed


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
        self.saver: Saver | None = None
        """None: a save holds up the loop."""
        self._due_ms = 0
        self._saving: Step | None = None
        """The step whose ballot is being saved beside the loop."""
        self._saved_at: asyncio.Event | None = None
        self._waiting: deque[Input] = deque()
        self._busy = False
        self._closed = False
        self._timer: Timer | None = None
        self._armed_ms: int | None = None
        """What the timer is set for."""

    def give(self, given: Input) -> None:
        """Told now, or after the inputs that came before. What a port says while it is used comes after this step."""
        if self._saving is not None and len(self._waiting) >= WAITING_MAX and type(given) is Received:
            return
        self._waiting.append(given)
        if not self._busy and not self._closed:
            self._give_waiting()

    def _give_waiting(self) -> None:
        self._busy = True
        try:
            while self._waiting and not self._closed and self._saving is None:
                self._step(self._waiting.popleft())
        finally:
            self._busy = self._saving is not None
        if self._saving is None:
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
            self._timer.end()

    @property
    def is_saving(self) -> bool:
        """A ballot is being saved beside the loop: what is told now is done when it is durable."""
        return self._saving is not None

    async def settled(self) -> None:
        """No ballot is being saved beside the loop any more: its folder may be closed."""
        while self._saving is not None:
            self._saved_at = self._saved_at or asyncio.Event()
            await self._saved_at.wait()

    def _step(self, given: Input) -> None:
        self._perform(Step(iter(self.strategy.step(self.clock.now_ms(), given)), type(given)))

    def _perform(self, step: Step) -> None:
        """The effects in their order, up to a ballot that is saved beside the loop; the rest follows when it is."""
        kind = step.kind
        for effect in step.effects:
            if isinstance(effect, Send):
                if self.transport is not None:
                    self.transport.send(effect.to, effect.message)
                if kind is DeadlinePassed and type(effect.message) is not Heartbeat:
                    step.quiet = False
                continue
            if not isinstance(effect, Extend):
                step.quiet = False
                if step.events and type(effect) in NOTICED:
                    self.listener(step.events)
                    step.events = []
            match effect:
                case Persist(ballot):
                    if self.saver is not None:
                        self._saving = step
                        self.saver(ballot, self._saved)
                        return
                    try:
                        self.durable.save(ballot)
                    except OSError as error:
                        self._not_saved(error)
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
                    step.events.append(event)
                case _:
                    assert_never(effect)
        self._performed(step)

    def _performed(self, step: Step) -> None:
        if step.events:
            self.listener(step.events)
        if not step.quiet:
            self.stepped()

    def _not_saved(self, error: OSError) -> None:
        """Told before all that waits."""
        self._waiting.appendleft(PersistFailed(error.strerror or type(error).__name__))

    def _saved(self, error: OSError | None) -> None:
        """The step goes on where it stood, or ends there."""
        step, self._saving = self._saving, None
        assert step is not None, "saved, and nothing was to be"
        if self._saved_at is not None:
            self._saved_at.set()
            self._saved_at = None
        if self._closed:
            return
        if error is not None:
            self._not_saved(error)
            self._performed(step)
        else:
            self._perform(step)
        if self._saving is None:
            self._give_waiting()

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
        if self._saving is not None:
            return  # looked at again when it is saved
        wanted_ms, now_ms = self.strategy.deadline_ms, self.clock.now_ms()
        if wanted_ms is not None and now_ms < wanted_ms:
            self._arm(now_ms)  # a millisecond early, or a moment that was too far away
            return
        if now_ms - self._due_ms >= self.late_ms:
            self.late(now_ms - self._due_ms)
        if not self._go_on(now_ms, None):
            self.give(DeadlinePassed())
