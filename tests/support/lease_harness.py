"""A harness for rule tests: one lease machine and the simulated store, with the clock in the tester's hand."""

from __future__ import annotations

from random import Random
from typing import Any

from primacy.election.effects import AskStore, Effect, Record, Start
from primacy.election.events import Code
from primacy.election.inputs import (
    DeadlinePassed,
    Input,
    Started,
    StoreAnswered,
    WorkStarted,
)
from primacy.election.lease.state import TICK_MS
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Membership, Seat
from primacy.election.store import WAIT_MAX_MS, Row, StoreAnswer, Take, holder_id
from primacy.settings.timing import PROFILES, Timing
from primacy.sim.world.store import SimStore

LAN = PROFILES["lan"]
WALL = 1_800_000_000_000
TRIO = ("a", "b", "c")
LONG_MS = WAIT_MAX_MS + TICK_MS


class Harness:
    """One machine and the store, with the clock in the tester's hand."""

    def __init__(
        self,
        node: str = "a",
        store: SimStore | None = None,
        membership: Membership | None = None,
        timing: Timing = LAN,
        **options: Any,
    ):
        self.store = store or SimStore()
        self.now = 0
        self.link = 1
        seat = Seat(node, 7, membership or Membership.of(()), Random(1))
        self.machine = LeaseStrategy(seat, timing, LeaseOptions("job", **options))
        self.asked: list[AskStore] = []
        self.log: list[Effect] = []

    def tell(self, given: Input, at: int | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        effects = self.machine.step(self.now, given)
        self.asked += [effect for effect in effects if isinstance(effect, AskStore)]
        self.log += effects
        return effects

    def answer(self, at: int | None = None, answer: StoreAnswer | None = None) -> list[Effect]:
        """The oldest request arrives at the store now and is answered now."""
        asked = self.asked.pop(0)
        return self.tell(StoreAnswered(asked.number, answer or self.store.perform(asked.request, self.link)), at)

    def lose(self) -> Any:
        """The oldest request is performed, but nobody hears of it."""
        request = self.asked.pop(0).request
        self.store.perform(request, self.link)
        return request

    def wake(self) -> list[Effect]:
        """Time passes until the machine wants to be woken."""
        assert self.machine.deadline_ms is not None
        return self.tell(DeadlinePassed(), max(self.now, self.machine.deadline_ms))

    def until(self, wanted: type, within_ms: int = 20_000) -> Any:
        """Answers everything at once until the machine asks for, or does, such a thing."""
        end = self.now + within_ms
        while self.now < end:
            found = [asked.request for asked in self.asked if isinstance(asked.request, wanted)]
            if found:
                return found[0]
            effects = self.answer() if self.asked else self.wake()
            done = [effect for effect in effects if isinstance(effect, wanted)]
            if done:
                return done[0]
        raise AssertionError(f"no {wanted.__name__} within {within_ms} ms")

    def lead(self) -> Start:
        self.tell(Started(WALL))
        start: Start = self.until(Start)
        self.tell(WorkStarted(start.leadership.term))
        return start

    def codes(self) -> list[Code]:
        return [effect.event.code for effect in self.log if isinstance(effect, Record)]

    def waits(self) -> str:
        return self.machine.view(self.now).waits_for


def only(effects: list[Effect], wanted: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, wanted)]


def row_of(node: str = "b", token: int = WALL, seq: int = 1, **more: Any) -> Row:
    full = {"hold_ms": LAN.hold_ms, "wait_ms": LAN.wait_ms, "released": False, "server": "server-1"} | more
    return Row(holder_id(node, 9), token, seq, **full)


def held_by(node: str = "b", settled: bool = True, **more: Any) -> SimStore:
    store = SimStore(settled=settled)
    store.put("job", row_of(node, **more))
    return store


def look_until(harness: Harness, ms: int) -> None:
    """Everything is answered at once until that moment; nothing may be taken before it."""
    while harness.now < ms:
        assert not any(isinstance(asked.request, Take) for asked in harness.asked)
        harness.answer() if harness.asked else harness.wake()
    while harness.asked:
        harness.answer()


def taken_ms(harness: Harness) -> int:
    """When the next take leaves; it must be done."""
    harness.until(Take, within_ms=60_000)
    at_ms = harness.now
    assert only(harness.answer(), Start)
    return at_ms
