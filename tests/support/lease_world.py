"""A small world for the lease alone: true time, nodes with clocks of their own, the simulated store, and the work.

It is harsher than the real guard: work that is not extended lives until the very end of its hold, to the millisecond.
What goes wrong in it stands in `lease_faults.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.events import Event
from primacy.election.inputs import (
    DeadlinePassed,
    Input,
    Received,
    RunLock,
    Started,
    StoreAnswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Leadership, Membership, Seat
from primacy.election.store import FAILSAFE, Look, Renew, Row, StoreAnswer, StoreRequest, Take, holder_id
from primacy.settings.timing import PPM, PROFILES, Timing
from primacy.sim.world import engines
from primacy.sim.world.engines import Engine
from primacy.sim.world.store import SimStore, Table

LAB = PROFILES["lab"]


SLOW = Timing(*(int(value * 2.5) for value in LAB[:-1]), LAB.drift_ppm)  # type: ignore[call-arg]
"""Times of a node that waits for longer than the others: who loses its row must know so (L3, `wait_max`)."""
WORSE_PPM = 50_000
"""All but the first node are told, in some trials, to reckon with clocks that are worse than its own, and have them."""
BACKUPS_MAX = 40


class Work:
    def __init__(self, node: Node, leadership: Leadership, since: float) -> None:
        self.node = node
        self.since = since
        self.boot = node.boot
        self.token = leadership.token
        self.until_ms = leadership.valid_until_ms
        self.alive = True
        self.lost = False
        self.ordered = False
        self.successor = ""


class Watch(NamedTuple):
    """What a node last saw in the store, since when, and the table of that moment: what a blow puts back."""

    row: Row
    since: float
    table: Table


class Node:
    def __init__(self, name: str, rate: float, offset_ms: float, wall_ms: int, timing: Timing) -> None:
        self.name = name
        self.rate = rate
        self.offset_ms = offset_ms
        self.wall_ms = wall_ms
        self.timing = timing
        self.boot = 0
        self.token_max = 0
        self.seen_token = 0
        self.machine: LeaseStrategy | None = None
        self.inbox: list[Input] = []
        self.paused = 0
        self.cut = 0
        self.deaf = 0
        self.works: list[Work] = []
        self.dead: list[str] = []
        """Holders of earlier starts: under this node's run lock."""
        self.armed: float | None = None
        self.link = (0, 0, 0)
        """Start, broken connections of the store, number of the connection."""
        self.watch: Watch | None = None

    def local(self, now: float) -> float:
        return self.offset_ms + self.rate * now

    def true(self, local_ms: float) -> float:
        return (local_ms - self.offset_ms) / self.rate


class LeaseWorld:
    """Trials of several nodes on one row, beside other rows of the same table."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        kind: type[LeaseStrategy] = LeaseStrategy,
        store: type[SimStore] = SimStore,
        engine: Engine | None = None,
        drift: float = 0.01,
        failsafe: bool = False,
        lost_max: int = 5,
        wall_spread_ms: int = 0,
        mixed: bool | None = None,
        settled: bool | None = None,
        watched: bool | None = None,
        look_every_ms: int | None = None,
        outside: str = "",
        outsider: bool = False,
        tables_anew: bool = True,
        uneven: bool | None = None,
        proxied: bool = False,
    ) -> None:
        self.chance = chance = Random(seed)
        self.kind = kind
        self.failsafe = failsafe
        self.name = FAILSAFE + "job" if failsafe else "job"
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
        self.blows: Counter[str] = Counter()
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.serial = 0
        self.loss = 0.0
        self.slow = 0.0
        drawn = chance.choice((0, 0, 3))
        self.look_every_ms = drawn if look_every_ms is None else look_every_ms
        self.delay_ms = chance.choice((1.0, 8.0))
        drawn_mixed, drawn_settled, drawn_watched = (chance.random() for _ in range(3))
        self.watched = drawn_watched < 0.1 if watched is None else watched
        self.cold = chance.random() < 0.5
        """Who starts again knows that the run lock covered its earlier starts (L4)."""
        slow_one = (drawn_mixed < 0.4 if mixed is None else mixed) and not failsafe
        drawn_engine = engines.drawn(chance, seed)
        drawn_uneven = Random(f"{seed}/uneven").random() < 0.3  # drawn by itself, so that the seeds stay as they were
        worse = drawn_uneven if uneven is None else uneven
        others = LAB._replace(drift_ppm=WORSE_PPM) if worse else LAB
        first = SLOW if slow_one else LAB
        self.wait_max_ms = max(first.admitted_ms, others.admitted_ms)
        self.store = store(
            engine or drawn_engine,
            settled=drawn_settled < 0.5 if settled is None else settled,
            wait_max_ms=self.wait_max_ms,
            raft_index=chance.choice((4, 5_000)),
        )
        if chance.random() < 0.5:
            skew_ms = chance.randrange(wall_spread_ms + 1)
            if self.store.engine.tells_time:
                self.store.wall_ms = lambda: 10**12 + skew_ms + int(self.now)
        self.tables_anew = tables_anew
        """A dump may drop and make the table, which breaks no connection."""
        self.proxied = proxied
        """Between the nodes and the store stands what keeps the nodes' connections when the store starts again."""
        self.outsider = outsider
        """The last node is not of the failsafe list, and wants the row all the same (L7)."""
        self.outside = outside
        """Which ways back a blow uses: those of the promise if empty; `folder`; beyond it `revert`, `hand` or `any`."""
        self.break_releases_all = False
        self.backups: list[Table] = [self.store.table]
        self.aims: list[Callable[[Node, StoreRequest, StoreAnswer, Table], bool]] = []
        """Blows that wait for their moment: each is shown every answer until it says that it has struck."""
        self.swallows: list[Callable[[Node, StoreAnswer], bool]] = []
        """Blows that wait for a take: each is shown every answer to one until it says that the answer is lost."""
        self.names = tuple(f"n{i}" for i in range(nodes))
        self.nodes = [
            Node(
                name=name,
                rate=1 + chance.choice((-1, 1)) * (WORSE_PPM / PPM if worse and index else drift),
                offset_ms=chance.uniform(0, 1e6),
                wall_ms=10**12 + chance.randrange(wall_spread_ms + 1),
                timing=others if index else first,
            )
            for index, name in enumerate(self.names)
        ]
        for node in self.nodes:
            self.at(chance.uniform(0, 100), lambda node=node: self.boot(node))

    # --- time ---------------------------------------------------------------------------------------------------------

    def at(self, when: float, do: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (max(when, self.now), self.serial, do))

    def after(self, span: float, do: Callable[[], None]) -> None:
        self.at(self.now + span, do)

    def run(self, until: float) -> LeaseWorld:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self.queue)
            do()
        self.now = until
        return self

    # --- nodes --------------------------------------------------------------------------------------------------------

    def boot(self, node: Node) -> None:
        if node.machine is not None:
            return
        outside_list = self.outsider and node.name == self.names[-1]
        if node.boot:
            node.dead.append(holder_id(node.name, node.boot))
        node.boot = self.chance.randrange(1, 2**60)
        node.watch, node.paused = None, 0
        options = LeaseOptions(
            self.name,
            node.token_max,
            dead=tuple(node.dead) if self.cold and not self.failsafe else (),
            failsafe=self.names[: -1 if self.outsider else None] if self.failsafe and not outside_list else (),
            look_every_ms=self.look_every_ms,
            watched=self.watched,
        )
        seat = Seat(node.name, node.boot, Membership.of(()), Random(self.chance.random()))
        node.machine = self.kind(seat, node.timing, options)
        if self.store.engine.objects:  # ten seconds, which nothing tells: trials that short would see one take
            node.machine._wait_max_ms = self.wait_max_ms
        node.inbox.clear()
        lock_held = any(work.alive for work in node.works)
        self.give(node, Started(node.wall_ms + int(self.now), lock_held))

    def crash(self, node: Node) -> None:
        """The agent dies; the guard stops the work at some moment of its hold, and may release."""
        node.machine = None
        for work in node.works:
            if work.alive:
                work.ordered = self.chance.random() < 0.5
                self.end_soon(work)
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
        boot = node.boot
        node.paused += 1

        def wake() -> None:
            if node.boot != boot:
                return  # a later start was never stopped
            node.paused -= 1
            if node.paused:
                return
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
                        self.after(span, lambda work=work: self._die(work)) if planned else self.end_soon(work)
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
        work = Work(node, leadership, self.now)
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

    def end_soon(self, work: Work) -> None:
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
            self.store.release(self.name, holder_id(node.name, work.boot), work.token, work.successor)
            released = True
        if node.boot == work.boot and not work.lost:
            self.give(node, WorkGone(work.token, released))
        else:
            self.give(node, RunLock(False))

    def _delay(self) -> float:
        if self.chance.random() < self.slow:
            return self.chance.uniform(0, 1.2 * LAB.hold_ms)
        return self.chance.uniform(0.1, self.delay_ms)

    # --- the way to the store -----------------------------------------------------------------------------------------

    @property
    def direct(self) -> bool:
        """No pool passes on what left over a connection that broke (L4 `watched`, L5 etcd)."""
        return (self.store.engine.linked or self.watched) and not self.proxied

    @property
    def _breaks(self) -> int:
        """How often the store broke the connections that the nodes see."""
        return 0 if self.proxied else self.store.breaks

    def _link(self, node: Node) -> int:
        """A new connection after every start of either side."""
        boot, breaks, number = node.link
        if (boot, breaks) != (node.boot, self._breaks):
            node.link = (node.boot, self._breaks, number + 1 if boot == node.boot else 1)
        return node.link[2]

    def _ask(self, node: Node, number: int, request: StoreRequest) -> None:
        boot, link, breaks = node.boot, self._link(node), self._breaks

        def answer(given: StoreAnswer, table: Table | None = None) -> None:
            if node.boot != boot:
                return
            if node.machine is not None and not node.paused:
                node.seen_token = max(node.seen_token, node.machine.token_max)
            if not given.ok and node.link == (boot, breaks, link):
                node.link = (boot, breaks, link + 1)
            self.give(node, StoreAnswered(number, given))
            if table is not None and node.machine is not None and not node.paused:
                self._answered(node, request, given, table)

        def fail() -> None:
            if self.chance.random() < 0.5:
                self.after(self._delay(), lambda: answer(StoreAnswer(False, reason="connection lost")))

        def arrive() -> None:
            broken = self._breaks != breaks and (self.direct or self.chance.random() < 0.5)
            if node.cut or broken or self.chance.random() < self.loss:
                fail()
                return
            result, table = self.store.perform(request, link), self.store.table
            if isinstance(request, Take) and self._is_swallowed(node, result):
                return
            if not node.cut and self.chance.random() >= self.loss:
                self.after(self._delay(), lambda: answer(result, table))

        self.after(self._delay(), arrive)

    def _is_swallowed(self, node: Node, result: StoreAnswer) -> bool:
        struck = next((swallow for swallow in self.swallows if swallow(node, result)), None)
        if struck is not None:
            self.swallows.remove(struck)
        return struck is not None

    def _answered(self, node: Node, request: StoreRequest, given: StoreAnswer, table: Table) -> None:
        """Keeps what the node has seen, and lets a blow that waits for such a moment strike."""
        row = given.row if given.ok else None
        if isinstance(request, Look | Renew):
            seen = node.watch
            if row is None:
                node.watch = None
            elif seen is None or (seen.row.proof, seen.row.token) != (row.proof, row.token):
                node.watch = Watch(row, self.now, table)
        self.aims = [aim for aim in self.aims if not aim(node, request, given, table)]

    # --- trouble ------------------------------------------------------------------------------------------------------

    def working(self) -> list[str]:
        return [node.name for node in self.nodes for work in node.works if work.alive]

    def break_wait_ms(self, wait_ms: int) -> int:
        """How long `lease break` waits before it releases what it took (L7)."""
        return wait_ms

    def calm(self) -> None:
        """Everything answers again and everybody lives."""
        self.loss = self.slow = 0.0
        self.aims.clear()
        self.swallows.clear()
        self.store.restart()
        for node in self.nodes:
            node.cut = node.deaf = 0
            self.boot(node)
