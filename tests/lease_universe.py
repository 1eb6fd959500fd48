"""A small universe for the lease alone: true time, nodes with clocks of their own, the simulated store, and the work.

It is harsher than the real guard: work that is not extended lives until the very end of its hold, to the millisecond.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Event
from primacy.election.inputs import (
    DeadlinePassed,
    GuardLost,
    Health,
    Input,
    Pause,
    Received,
    Resume,
    RunLock,
    Started,
    StepDown,
    StoreAnswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease import LeaseOptions, LeaseStrategy
from primacy.election.model import Leadership, Membership, Seat
from primacy.election.store import StoreAnswer, holder_id
from primacy.settings.timing import PROFILES, Timing
from primacy.sim.store import SimStore

LAB = PROFILES["lab"]


class Work:
    def __init__(self, node: Node, leadership: Leadership) -> None:
        self.node = node
        self.boot = node.boot
        self.token = leadership.token
        self.until_ms = leadership.valid_until_ms
        self.alive = True
        self.lost = False
        self.ordered = False
        self.successor = ""


class Node:
    def __init__(self, name: str, rate: float, offset_ms: float, wall_ms: int) -> None:
        self.name = name
        self.rate = rate
        self.offset_ms = offset_ms
        self.wall_ms = wall_ms
        self.boot = 0
        self.token_max = 0
        self.seen_token = 0
        self.machine: LeaseStrategy | None = None
        self.inbox: list[Input] = []
        self.paused = False
        self.cut = False
        self.deaf = False
        self.works: list[Work] = []
        self.armed: float | None = None

    def local(self, now: float) -> float:
        return self.offset_ms + self.rate * now

    def true(self, local_ms: float) -> float:
        return (local_ms - self.offset_ms) / self.rate


class Universe:
    """Lives of several nodes on one row."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        kind: type[LeaseStrategy] = LeaseStrategy,
        store: SimStore | None = None,
        timing: Timing = LAB,
        drift: float = 0.01,
        failsafe: bool = False,
        forgets: bool = False,
        lost_max: int = 5,
        wall_spread_ms: int = 10_000_000,
    ) -> None:
        self.chance = Random(seed)
        self.kind = kind
        self.store = store or SimStore()
        self.timing = timing
        self.failsafe = failsafe
        self.forgets = forgets
        self.lost_max = lost_max
        self.now = 0.0
        self.overlaps: list[str] = []
        self.token_trouble = 0
        self.own_token_trouble = 0
        """Starts not above the largest token that the node itself had seen before its take (T2)."""
        self.starts = 0
        self.highest = 0
        self.codes: Counter[str] = Counter()
        self.events: list[tuple[str, Event]] = []
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.serial = 0
        self.loss = 0.0
        self.slow = 0.0
        self.look_every_ms = self.chance.choice((0, 3))
        self.delay_ms = self.chance.choice((1.0, 8.0))
        names = [f"n{i}" for i in range(nodes)]
        self.names = tuple(names)
        self.nodes = [
            Node(
                name=name,
                rate=1 + self.chance.choice((-1, 1)) * drift,
                offset_ms=self.chance.uniform(0, 1e6),
                wall_ms=10**12 + self.chance.randrange(wall_spread_ms + 1),
            )
            for name in names
        ]
        for node in self.nodes:
            self.at(self.chance.uniform(0, 100), lambda node=node: self.boot(node))

    # --- time ---------------------------------------------------------------------------------------------------------

    def at(self, when: float, do: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (max(when, self.now), self.serial, do))

    def after(self, span: float, do: Callable[[], None]) -> None:
        self.at(self.now + span, do)

    def run(self, until: float) -> Universe:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self.queue)
            do()
        self.now = until
        return self

    # --- nodes --------------------------------------------------------------------------------------------------------

    def boot(self, node: Node) -> None:
        if node.machine is not None:
            return
        node.boot = self.chance.randrange(1, 2**60)
        failsafe = self.names if self.failsafe else ()
        options = LeaseOptions("job", node.token_max, failsafe=failsafe, look_every_ms=self.look_every_ms)
        seat = Seat(node.name, node.boot, Membership.of(()), Random(self.chance.random()))
        node.machine = self.kind(seat, self.timing, options)
        node.inbox.clear()
        lock_held = any(work.alive for work in node.works)
        self.give(node, Started(node.wall_ms + int(self.now), lock_held))

    def crash(self, node: Node) -> None:
        """The agent dies; the guard stops the work at some moment of its hold, and may release."""
        node.machine = None
        for work in node.works:
            if work.alive:
                work.ordered = self.chance.random() < 0.5
                self._end_soon(work)
        self.after(self.chance.uniform(1, 1500), lambda: self.boot(node))

    def give(self, node: Node, given: Input) -> None:
        if node.machine is None:
            return
        if node.paused:
            node.inbox.append(given)
            return
        effects = node.machine.step(int(node.local(self.now)), given)
        for effect in effects:
            self._do(node, effect)
        self._arm(node)

    def _arm(self, node: Node) -> None:
        machine = node.machine
        if machine is None or node.paused or machine.deadline_ms is None:
            return
        when = max(self.now, node.true(machine.deadline_ms)) + 1e-6
        if node.armed is not None and node.armed <= when:
            return
        node.armed = when

        def ring() -> None:
            if node.armed == when:
                node.armed = None
                self.give(node, DeadlinePassed())
                self._arm(node)

        self.at(when, ring)

    def pause(self, node: Node, span: float) -> None:
        node.paused = True

        def wake() -> None:
            node.paused = False
            waiting, node.inbox = node.inbox, []
            for given in waiting:
                self.give(node, given)
            self.give(node, DeadlinePassed())

        self.after(span, wake)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _do(self, node: Node, effect: Effect) -> None:
        match effect:
            case AskStore(number, request):
                self._ask(node, number, request)
            case Start(leadership):
                self._start(node, leadership)
            case Extend(leadership):
                for work in node.works:
                    if work.token == leadership.token and work.boot == node.boot:
                        work.until_ms = max(work.until_ms, leadership.valid_until_ms)
            case Stop(term, _, planned):
                for work in node.works:
                    if work.alive and work.token == term:
                        span = self.chance.uniform(0, 600) if planned else 0.0
                        self.after(span, lambda work=work: self._die(work)) if planned else self._end_soon(work)
            case OrderRelease(term, successor):
                for work in node.works:
                    if work.token == term:
                        work.ordered, work.successor = True, successor
            case Record(event):
                self.codes[event.code] += 1
                self.events.append((node.name, event))
            case Persist(ballot):
                node.token_max = ballot.token_max
            case Send(to, message):
                target = next(n for n in self.nodes if n.name == to)
                if not (node.deaf or target.deaf) and self.chance.random() >= self.loss:
                    self.after(self.chance.uniform(0.1, 20), lambda: self.give(target, Received(message)))

    def _start(self, node: Node, leadership: Leadership) -> None:
        for other in self.nodes:
            for work in other.works:
                if work.alive:
                    self.overlaps.append(f"{node.name} starts {leadership.token} beside {other.name} {work.token}")
        self.token_trouble += leadership.token <= self.highest
        self.own_token_trouble += leadership.token < node.seen_token
        self.highest = max(self.highest, leadership.token)
        self.starts += 1
        work = Work(node, leadership)
        node.works = [w for w in node.works if w.alive] + [work]
        self._dead_man(work)
        if self.chance.random() < 0.95:
            self.after(self.chance.uniform(0, 30), lambda: self.give(node, WorkStarted(work.token)))

    def _dead_man(self, work: Work) -> None:
        def check() -> None:
            if not work.alive:
                return
            if work.node.local(self.now) >= work.until_ms - 1e-3:
                self._die(work)
            else:
                self._dead_man(work)

        self.at(work.node.true(work.until_ms), check)

    def _end_soon(self, work: Work) -> None:
        """Usually it uses its hold to the last."""
        if self.chance.random() < 0.3:
            left = work.node.true(work.until_ms) - self.now
            self.after(self.chance.uniform(0, max(0.0, left)), lambda: self._die(work))

    def _die(self, work: Work) -> None:
        if not work.alive:
            return
        work.alive = False
        node = work.node
        released = False
        if work.ordered and not work.lost and self.store.up and not node.cut:
            self.store.release("job", holder_id(node.name, work.boot), work.token, work.successor)
            released = True
        if node.boot == work.boot and not work.lost:
            self.give(node, WorkGone(work.token, released))
        else:
            self.give(node, RunLock(False))

    def _delay(self) -> float:
        if self.chance.random() < self.slow:
            return self.chance.uniform(0, 1.2 * self.timing.hold_ms)
        return self.chance.uniform(0.1, self.delay_ms)

    def _ask(self, node: Node, number: int, request: object) -> None:
        boot = node.boot

        def answer(given: StoreAnswer) -> None:
            if node.boot == boot and node.machine is not None and not node.paused:
                node.seen_token = max(node.seen_token, node.machine.token_max)
            if node.boot == boot:
                self.give(node, StoreAnswered(number, given))

        def arrive() -> None:
            if node.cut or self.chance.random() < self.loss:
                if self.chance.random() < 0.5:
                    self.after(self._delay(), lambda: answer(StoreAnswer(False, reason="connection lost")))
                return
            result = self.store.perform(request)  # type: ignore[arg-type]
            if not node.cut and self.chance.random() >= self.loss:
                self.after(self._delay(), lambda: answer(result))

        self.after(self._delay(), arrive)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def trouble(self, until: float, faults: tuple[str, ...]) -> None:
        """Draws rates anew and strikes at random moments until the end."""
        self.loss = self.chance.choice((0.0, 0.0, 0.02, 0.1))
        self.slow = self.chance.choice((0.0, 0.02, 0.1))
        when = 0.0
        mean = self.chance.choice((300.0, 800.0, 2000.0))
        while (when := when + self.chance.expovariate(1 / mean)) < until:
            self.at(when, getattr(self, f"_{self.chance.choice(faults)}"))

    def _victim(self) -> Node:
        """Often the one that works."""
        working = [node for node in self.nodes if any(work.alive for work in node.works)]
        return self.chance.choice(working if working and self.chance.random() < 0.7 else self.nodes)

    def _isolate(self) -> None:
        """The worker loses the store, and one of the others loses the worker."""
        node = self._victim()
        node.cut = True
        other = self.chance.choice([n for n in self.nodes if n is not node])
        other.deaf = True
        span = self.chance.uniform(1, 3) * self.timing.hold_ms
        self.after(span, lambda: (setattr(node, "cut", False), setattr(other, "deaf", False)))

    def _cut(self) -> None:
        node = self._victim()
        node.cut = True
        self.after(self.chance.uniform(10, 3 * self.timing.hold_ms), lambda: setattr(node, "cut", False))

    def _cut_peer(self) -> None:
        node = self.chance.choice(self.nodes)
        node.deaf = True
        self.after(self.chance.uniform(10, 3 * self.timing.hold_ms), lambda: setattr(node, "deaf", False))

    def _stall(self) -> None:
        node = self._victim()
        if not node.paused:
            self.pause(node, self.chance.uniform(1, 3 * self.timing.hold_ms))

    def _crash(self) -> None:
        node = self._victim()
        if node.machine is not None:
            self.crash(node)

    def _guard(self) -> None:
        node = self._victim()
        for work in node.works:
            if work.alive and work.boot == node.boot:
                work.lost = True
                self.give(node, GuardLost(work.token))
                self._end_soon(work)

    def _people(self) -> None:
        node = self._victim()
        heir = self.chance.choice(("", self.chance.choice(self.names)))
        self.give(node, self.chance.choice((StepDown(heir), Pause(), Health(False, "sick"))))
        self.after(self.chance.uniform(1, 1000), lambda: (self.give(node, Resume()), self.give(node, Health(True))))

    def _restart(self) -> None:
        self.store.stop()
        self.after(self.chance.uniform(10, 3 * self.timing.hold_ms), self.store.restart)

    def _fail_over(self) -> None:
        lost = min(self.lost_max, self.chance.choice((0, 1, 1, 2, 5)))
        self.store.forget(lost) if self.forgets else self.store.fail_over(lost)

    def calm(self) -> None:
        """Everything answers again and everybody lives."""
        self.loss = self.slow = 0.0
        self.store.restart()
        for node in self.nodes:
            node.cut = node.deaf = False
            self.boot(node)

    def working(self) -> list[str]:
        return [node.name for node in self.nodes for work in node.works if work.alive]


FAILSAFE = ("cut", "stall", "crash", "restart", "cut_peer", "isolate", "isolate")
ALL = ("cut", "stall", "crash", "guard", "people", "restart", "fail_over")


def life(seed: int, seconds: float = 20, faults: tuple[str, ...] = ALL, **how: object) -> Universe:
    """One life with trouble, then calm."""
    universe = Universe(seed, **how)  # type: ignore[arg-type]
    universe.trouble(seconds * 1000, faults)
    return universe.run(seconds * 1000)
