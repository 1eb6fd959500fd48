"""A few machines of bully or ring, a clock, and a network that does what a test says. Deterministic, no waiting.

Much smaller than the simulator: messages take one millisecond unless lost, work starts at once and is gone two
milliseconds after its stop. A test cuts ways, crashes, stops and starts nodes, and looks at who leads and what was
sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from primacy.election.effects import Effect, Record, Send, Start, Stop
from primacy.election.events import Code, Event
from primacy.election.inputs import DeadlinePassed, Input, Received, Started, WorkGone, WorkStarted
from primacy.election.messages import Alive, HeartbeatRequest, Message
from primacy.election.model import Member, Membership, Role, Seat
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.ring import RingStrategy
from primacy.settings.timing import RANK_PROFILES, RankTiming

LAN = RANK_PROFILES["lan"]
Machine = BullyStrategy | RingStrategy


def seat(node: str, members: list[Member | str], seed: int = 1) -> Seat:
    return Seat(node, seed * 1000 + sum(node.encode()), Membership.of(members, "hash"), Random(f"{seed} {node}"))


class Cluster:
    """Some nodes and the ways between them."""

    def __init__(
        self,
        kind: type[Machine],
        names: str | list[Any],
        *,
        timing: RankTiming = LAN,
        options: RankOptions = RankOptions(),  # noqa: B008
        seed: int = 1,
        start: bool = True,
    ) -> None:
        self.kind, self.timing, self.options, self.seed = kind, timing, options, seed
        self.members: list[Member | str] = list(names.split()) if isinstance(names, str) else names
        self.names = Membership.of(self.members).ids
        self.now = 0
        self.chance = Random(seed)
        self.machines: dict[str, Machine] = {}
        self.asleep: dict[str, list[Input]] = {}
        self.working: dict[str, int] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.delay: Callable[[], int] = lambda: 1
        self.drops: Callable[[str, str, Message], bool] = lambda a, b, m: False
        self.sent: Counter[str] = Counter()
        self.log: list[tuple[int, str, Event]] = []
        self.effects: list[tuple[int, str, Effect]] = []
        self.boots = seed * 100
        self._queue: list[tuple[int, int, str, int, Input]] = []
        self._number = 0
        if start:
            for name in self.names:
                self.start(name)

    # --- nodes ---

    def start(self, name: str, **options: Any) -> Machine:
        self.boots += 1
        chosen = self.options._replace(**options)
        machine = self.kind(seat(name, self.members, self.boots), self.timing, chosen)
        self.machines[name] = machine
        self.give(name, Started())
        return machine

    def crash(self, *names: str) -> None:
        for name in names:
            del self.machines[name]
            self.working.pop(name, None)

    def sleep(self, *names: str) -> None:
        for name in names:
            self.asleep[name] = []

    def wake(self, *names: str) -> None:
        for name in names:
            for given in self.asleep.pop(name):
                self.give(name, given)
            self.give(name, DeadlinePassed())

    def cut(self, left: str, right: str, one_way: bool = False) -> None:
        for a in left.split():
            for b in right.split():
                self.cuts.add((a, b))
                if not one_way:
                    self.cuts.add((b, a))

    def heal(self) -> None:
        self.cuts.clear()

    # --- time ---

    def give(self, name: str, given: Input) -> list[Effect]:
        machine = self.machines[name]
        effects = machine.step(self.now, given)
        for effect in effects:
            self.effects.append((self.now, name, effect))
            self._perform(name, effect)
        if machine.deadline_ms is not None:
            assert machine.deadline_ms > self.now or not isinstance(given, DeadlinePassed)
            self._push(max(self.now, machine.deadline_ms), name, DeadlinePassed())
        return effects

    def run(self, span_ms: int) -> None:
        end = self.now + span_ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, name, boot, given = heappop(self._queue)
            machine = self.machines.get(name)
            if machine is None or machine.seat.boot != boot:
                continue
            if isinstance(given, DeadlinePassed) and machine.deadline_ms != self.now:
                continue
            if name in self.asleep:
                self.asleep[name].append(given)
                continue
            self.give(name, given)
        self.now = end

    def settle(self, limit_ms: int) -> int:
        """How long until all agree; fails after the limit."""
        began = self.now
        while self.leader() == "":
            assert self.now - began < limit_ms, f"no agreement: {self.beliefs()}"
            self.run(5)
        return self.now - began

    # --- looking ---

    def leaders(self) -> list[str]:
        return [name for name in self.names if name in self.machines and self.machines[name].role is Role.LEADER]

    def beliefs(self) -> dict[str, str]:
        return {name: machine.leader for name, machine in sorted(self.machines.items())}

    def leader(self) -> str:
        """The one leader that all live nodes agree on, none of them standing, or empty."""
        leaders = self.leaders()
        awake = [machine for name, machine in self.machines.items() if name not in self.asleep]
        agreed = {machine.leader for machine in awake if machine.role is not Role.CANDIDATE} == set(leaders)
        stands = any(machine.role is Role.CANDIDATE for machine in awake)
        return leaders[0] if len(leaders) == 1 and agreed and not stands else ""

    def codes(self, *names: str) -> list[Code]:
        return [event.code for _, name, event in self.log if not names or name in names]

    def forget(self) -> None:
        self.sent.clear()
        self.log.clear()
        self.effects.clear()

    @property
    def election_messages(self) -> int:
        return sum(
            count for kind, count in self.sent.items() if kind not in (HeartbeatRequest.__name__, Alive.__name__)
        )

    # --- inside ---

    def _push(self, at_ms: int, name: str, given: Input) -> None:
        self._number += 1
        heappush(self._queue, (at_ms, self._number, name, self.machines[name].seat.boot, given))

    def _perform(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.sent[type(message).__name__] += 1
                lost = (name, to) in self.cuts or self.drops(name, to, message) or self.chance.random() < self.loss
                if to in self.machines and not lost:
                    self._push(self.now + self.delay(), to, Received(message))
            case Record(event):
                self.log.append((self.now, name, event))
            case Start(leadership, _, _):
                assert name not in self.working, f"{name} started beside its own work"
                self.working[name] = leadership.term
                self._push(self.now, name, WorkStarted(leadership.term))
            case Stop(term, _, _):
                self._push(self.now + 2, name, WorkGone(term))
                if self.working.get(name) == term:
                    del self.working[name]
            case _:
                raise AssertionError(effect)
