"""A small world: true time, nodes with clocks of their own, a network, disks, a store, and the work itself.

Machines are performed exactly as the driver performs them: one input, an ordered list of effects, a crash possible
between any two. Everything is drawn from one `Random`, ordered by (time, sequence number), and never depends on the
order of a set, so that one seed is one history. What happens is told as facts to whoever listens; the world judges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Persist, Record, Send, Start, Stop
from primacy.election.inputs import DeadlinePassed, Input, PersistFailed, Received, Started
from primacy.election.messages import Ack, Message
from primacy.election.model import Ballot, Membership, Role, Seat, Strategy
from primacy.settings.timing import Timing
from primacy.sim.facts import Fact, Kind
from primacy.sim.world.clock import Clock
from primacy.sim.world.guard import Guard
from primacy.sim.world.node import Node
from primacy.sim.world.order import NO_MEMBERS, check_members, check_order, check_term, tell_register
from primacy.sim.world.plain import PlainWork
from primacy.sim.world.store import SimStore
from primacy.sim.world.store_way import StoreWay
from primacy.sim.world.workload import Heard, Workload
from primacy.supervise.machine import Watchdog

MASK = (1 << 64) - 1
INBOX_MAX = 256
"""What a stopped node's socket keeps; more is lost, as in a kernel buffer."""
STEP = 1000003
LAST = 1 << 62
"""Added to a sequence number, it comes after all others of its moment."""
EVENTS_MAX = 20_000_000
"""Where nobody says less: what has more goes on for ever."""


class Overrun(Exception):
    """More events, or more messages of one node, than any trial can have: something goes round in it (E2)."""


@dataclass(slots=True)
class Conditions:
    """What the world is like at the moment; faults change it."""

    delay_min_ms: float = 0.3
    delay_span_ms: float = 1.5
    loss: float = 0.0
    repeat: float = 0.0
    late_ms: float = 1.0
    """Timers fire late by up to this."""
    spawn_ms: float = 20.0
    stop_ms: float = 30.0
    ignores_term: float = 0.1
    slow_kill: float = 0.3
    """Share of the allowed time that a kill may take, at most 1."""
    planned_stop_ms: int = 3_000
    deferred: float = 0.0
    """Share of the starts that an agent keeps back on purpose (G8)."""
    deferred_ms: float = 0.0
    """For up to this long."""
    store_ms: float = 5.0
    store_fails: float = 0.0
    store_answer_lost: float = 0.0


@dataclass(slots=True)
class Counters:
    """Cheap figures of a trial."""

    sent: int = 0
    steps: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class Pace(NamedTuple):
    """How many messages one node may send (E2): so many a second, and so many at once on top of that."""

    per_s: float
    at_once: float


Maker = Callable[[Node, Seat, Ballot | None], Strategy]
"""Builds a node's strategy at each start: the node (with its list and times), its seat, and what its disk has."""


class World:
    """The world of one trial."""

    guard_class = Guard
    watchdog_class = Watchdog

    def __init__(self, seed: int | str, maker: Maker, store: SimStore | None = None) -> None:
        self.chance = Random(seed)
        self.maker = maker
        self.store = store
        self.store_way = StoreWay(self)
        self.lease_name = "main"
        self.now = 0.0
        self.late_until_ms = 0.0
        """When the last message that was held back arrives."""
        self.conditions = Conditions()
        self.nodes: dict[str, Node] = {}
        self.count = Counters()
        self.listeners: list[Callable[[Fact], None]] = []
        self.watches_messages: Callable[[float, str, str, Message, float], None] | None = None
        self.digest = 0
        self.events_max = EVENTS_MAX
        self.pace = Pace(float("inf"), float("inf"))
        self._heap: list[tuple[float, int, Callable[[Any, Any], None], Any, Any]] = []
        self._sequence = 0
        self._draw = self.chance.random
        self._delivers = self._deliver
        self._told = 0
        self._ways = 0

    # --- building -----------------------------------------------------------------------------------------------------

    def add(self, name: str, clock: Clock, membership: Membership, timing: Any) -> Node:
        node = Node(self, len(self.nodes), name, clock, membership, timing)
        self.nodes[name] = node
        return node

    def start(self, node: Node) -> None:
        """A boot: a new random number, whatever the disk has, and the first input."""
        if node.machine is not None or not node.introduced:
            return
        node.boots += 1
        chance = self.chance_of(node.name, f"boot {node.boots}")
        node.boot = chance.getrandbits(62) | 1
        seat = Seat(node.name, node.boot, node.membership, Random(chance.getrandbits(64)))
        node.machine = self.maker(node, seat, node.disk.ballot)
        node.inbox.clear()
        node.busy = None
        node.timer_ms = None
        node.role, node.leader = Role.STARTING, ""
        node.workload = Workload(self, node, node.timing) if isinstance(node.timing, Timing) else None
        held = node.lock_held()
        if held and node.workload is not None:
            node.workload.watch_lock()
        self.emit(Kind.UP, node.name, node.boots)
        self.give(node, Started(node.clock.wall_ms(self.now), held))

    def crash(self, node: Node, *, power: bool = False) -> None:
        """The agent is killed; with `power`, the whole machine is. Of a frozen machine it always is."""
        power = power or node.frozen
        if node.machine is None:
            if power:
                self._power_lost(node)
            return
        node.machine = None
        node.stopped = 0
        node.doom = -1
        node.busy = None
        node.inbox.clear()
        node.workload = node.guard = None
        node.disk.crash(node.chance)
        self.emit(Kind.DOWN, node.name, 1 if power else 0)
        if power:
            self._power_lost(node)
        for guard in tuple(node.guards):
            guard.agent_died()

    def _power_lost(self, node: Node) -> None:
        for guard in tuple(node.guards):
            guard.power_lost()
            node.guards.remove(guard)
        for end in node.escaping or ():
            end()
        node.escaping = None if node.escaping is None else []
        node.late.clear()
        if node.frozen:
            node.frozen = False
            node.clock.go_on(self.now)

    def chance_of(self, name: str, use: str) -> Random:  # noqa: ARG002
        """Where a node's draws for this use come from: here, from the one stream of the world."""
        return self.chance

    # --- time ---------------------------------------------------------------------------------------------------------

    def draw_ms(self, low: float, high: float) -> float:
        """For what belongs to no node; a node has its own."""
        return low + self.chance.random() * (high - low) if high > low else low

    def at(self, at_ms: float, action: Callable[[], None]) -> None:
        self._push(at_ms, _call, action, None)

    def last_at(self, at_ms: float, action: Callable[[], None]) -> None:
        """At this moment, after everything else that happens at it."""
        self._sequence += 1
        heappush(self._heap, (at_ms, LAST + self._sequence, _call, action, None))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._push(self.now + delay_ms, _call, action, None)

    def _push(self, at_ms: float, action: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, action, a, b))

    def run(self, until_ms: float) -> None:
        heap = self._heap
        digest = self.digest
        events = 0
        room = self.events_max - self.count.events
        while heap and heap[0][0] <= until_ms and events < room:
            at_ms, _, action, a, b = heappop(heap)
            self.now = at_ms
            digest = (digest * STEP ^ hash(at_ms)) & MASK
            events += 1
            action(a, b)
        self.digest = digest
        self.count.events += events
        if heap and heap[0][0] <= until_ms:
            raise Overrun(f"{self.count.events:,} events, more than a trial can have")
        self.now = max(self.now, until_ms)

    def drop_messages(self) -> None:
        """Everything that is on its way is lost."""
        self._heap = [entry for entry in self._heap if entry[2] != self._deliver]
        heapify(self._heap)

    @property
    def trace_hash(self) -> str:
        """Of all moments, all facts, and who sent to whom in which order: another history has another one."""
        return blake2b(f"{self.digest}/{self._told}/{self._ways}".encode(), digest_size=8).hexdigest()

    # --- starts and ends of a machine ---------------------------------------------------------------------------------

    def give(self, node: Node, given: Input) -> None:
        """One input to one machine, now; a stopped agent finds it later."""
        if node.machine is None:
            return
        if node.stopped or node.busy is not None:
            if len(node.inbox) < INBOX_MAX or type(given) is not Received:
                node.inbox.append(given)
            return
        effects = node.machine.step(node.clock.local_ms(self.now), given)
        self.count.steps += 1
        if effects:
            self._perform(node, effects)
        self._arm(node)

    def _arm(self, node: Node) -> None:
        machine = node.machine
        if machine is None:
            return
        deadline_ms = machine.deadline_ms
        timer_ms = node.timer_ms
        if deadline_ms is None or (timer_ms is not None and timer_ms <= deadline_ms):
            return
        node.timer_ms = deadline_ms
        at_ms = max(self.now, node.clock.true_ms(deadline_ms)) + node.lateness() * self.conditions.late_ms
        self._push(at_ms, self._timer, node, (node.boot, deadline_ms))

    def rearm(self, node: Node) -> None:
        """After a change of its clock's rate, a node's timer is set anew."""
        node.timer_ms = None
        self._arm(node)

    def _timer(self, node: Node, armed: tuple[int, int]) -> None:
        machine = node.machine
        boot, deadline_ms = armed
        if machine is None or node.boot != boot or node.timer_ms != deadline_ms:
            return
        node.timer_ms = None
        if node.stopped or node.busy is not None:
            return  # it is armed again when the agent goes on
        wanted_ms = machine.deadline_ms
        if wanted_ms is None or wanted_ms > node.clock.local_ms(self.now):
            self._arm(node)
            return
        self.give(node, DeadlinePassed())

    def _deliver(self, node: Node, message: Message) -> None:
        """`give`, written out: nine of ten events come this way."""
        machine = node.machine
        if machine is None:
            return
        if node.stopped or node.busy is not None:
            self.give(node, Received(message))
            return
        clock = node.clock
        now_ms = int(clock.local0 + (self.now - clock.true0) * clock.rate)
        effects = machine.step(now_ms, Received(message))
        self.count.steps += 1
        if effects:
            self._perform(node, effects)
            machine = node.machine
            if machine is None:
                return
        deadline_ms = machine.deadline_ms
        timer_ms = node.timer_ms
        if deadline_ms is not None and (timer_ms is None or deadline_ms < timer_ms):
            self._arm(node)

    def stop_agent(self, node: Node, frozen: bool = False) -> Callable[[], None]:
        """The agent makes no step until it is told to go on; `frozen`: nor does its guard. Returns how to end it."""
        boot = node.boot
        if node.machine is not None:
            node.stopped += 1
        guards = [guard for guard in node.guards if frozen and not guard.frozen]
        for guard in guards:
            guard.freeze(True)

        def resume() -> None:
            if node.boot == boot and node.stopped:  # a later start was never stopped
                node.stopped -= 1
                if not node.stopped:
                    self._drain(node)  # what the agent missed comes before what its guard says now
            for guard in guards:
                guard.freeze(False)

        return resume

    def freeze_machine(self, node: Node, *, clock_too: bool) -> Callable[[], None]:
        """Nothing happens in a machine that is up, until it goes on; if its clock is frozen too, it sees no time pass.

        Returns how to end it.
        """
        if not node.up or node.frozen:
            return _nothing
        resume, boot = self.stop_agent(node), node.boot
        if clock_too:
            node.clock.stop(self.now)
        node.frozen = True
        self.emit(Kind.FROZEN, node.name)

        def thaw() -> None:
            if node.boot != boot or not node.frozen:
                return  # it was switched off meanwhile
            node.frozen = False
            if clock_too:
                node.clock.go_on(self.now)
            self.emit(Kind.THAWED, node.name)
            resume()
            self.rearm(node)
            late, node.late = node.late, []
            for event in late:
                event()
            for guard in tuple(node.guards):
                if isinstance(guard, Guard):
                    guard.thaw()

        return thaw

    def _drain(self, node: Node) -> None:
        waiting, node.inbox = node.inbox, []
        for given in waiting:
            if not isinstance(given, Heard):
                self.give(node, given)
            elif node.workload is not None:
                node.workload.hear(given.given)
        machine = node.machine
        if machine is not None and not node.stopped and machine.deadline_ms is not None:
            if machine.deadline_ms <= node.local_ms():
                self.give(node, DeadlinePassed())
            self._arm(node)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, node: Node, effects: list[Effect]) -> None:
        """In order; a crash may fall between any two."""
        if len(effects) == 1 and node.doom < 0:
            effect = effects[0]
            if type(effect) is Send:  # an ack, mostly: it changes nothing that anybody notices
                message = effect.message
                if type(message) is Ack:
                    check_term(self, node, message)
                    if message.origin.members != NO_MEMBERS:
                        check_members(self, node, message)
                    self.send(node, effect.to, message)
                    return
        for place, effect in enumerate(effects):
            if node.doom >= 0:
                if node.doom == 0:
                    if type(effect) is Persist:
                        node.disk.crash_while_saving(effect.ballot, node.chance)
                    self.crash(node, power=node.chance.random() < 0.5)
                    return
                node.doom -= 1
            if type(effect) is Send:
                check_order(self, node, effect.to, effect.message)
                self.send(node, effect.to, effect.message)
            elif type(effect) is Persist:
                before = node.disk.ballot
                if before is not None and before.base == effect.ballot.base and effect.ballot.term < before.term:
                    self.emit(Kind.BAD_ORDER, node.name, effect.ballot.term, "Persist")
                if not node.disk.save(effect.ballot):
                    self.give(node, PersistFailed("the disk is full"))
                    break
                if effect.ballot.register is not None:
                    tell_register(self, node, before, effect.ballot)
                if node.disk.slow_ms:
                    self._wait_for_disk(node, effects[place + 1 :])
                    break
            elif not self._do(node, effect):
                return  # the agent is gone
        self._notice(node)

    def _wait_for_disk(self, node: Node, rest: list[Effect]) -> None:
        """The agent stands still while its disk works; what it had to say leaves afterwards."""
        node.busy = rest
        boot = node.boot

        def done() -> None:
            if node.machine is None or node.boot != boot or node.busy is None or node.waits(done):
                return
            effects, node.busy = node.busy, None
            self._perform(node, effects)
            self._drain(node)

        self.after(node.disk.slow_ms, done)

    def _do(self, node: Node, effect: Effect) -> bool:
        match effect:
            case Record(event):
                self.emit(Kind.EVENT, node.name, event.term, event.code, event.value, event.subject, event.detail)
            case Extend(leadership):
                if node.workload is not None:
                    node.workload.extend(leadership)
            case Start() | Stop() | OrderRelease() if node.workload is not None:
                node.workload.perform(effect)
            case Start(leadership):
                node.hold(PlainWork(self, node, leadership))
            case Stop(term) if isinstance(node.guard, PlainWork) and node.guard.term == term:
                node.guard.stop()
            case AskStore(number, request):
                node.sent += 1
                if node.sent > node.sent_look:
                    self._look_at_pace(node)
                self.store_way.ask(node, number, request)
        return node.machine is not None

    def _notice(self, node: Node) -> None:
        """Tells changes of role and of the believed leader."""
        machine: Any = node.machine
        if machine is None:
            return
        if machine.role is not node.role:
            node.role = machine.role
            self.emit(Kind.ROLE, node.name, 0, node.role)
        if machine.leader != node.leader:
            node.leader = machine.leader
            self.emit(Kind.LEADER, node.name, 0, node.leader)

    # --- network ------------------------------------------------------------------------------------------------------

    def send(self, node: Node, to: str, message: Message) -> None:
        """One datagram: lost, late, repeated, held back, or simply delivered."""
        self.count.sent += 1
        node.sent += 1
        if node.sent > node.sent_look:
            self._look_at_pace(node)
        target = self.nodes.get(to)
        if target is None:
            return
        chance = self._draw
        conditions = self.conditions
        lost = (node.cut and to in node.cut) or (conditions.loss and chance() < conditions.loss)
        delay_ms = conditions.delay_min_ms + chance() * conditions.delay_span_ms + node.lag_out_ms + target.lag_in_ms
        if self.watches_messages is not None:
            self.watches_messages(self.now, node.name, to, message, -1.0 if lost else delay_ms)
        if lost:
            return
        if node.held is not None:
            node.held.append((to, message))
            return
        self._sequence += 1
        self._ways = (self._ways * STEP + target.index * 64 + node.index) & MASK
        heappush(self._heap, (self.now + delay_ms, self._sequence, self._delivers, target, message))
        if conditions.repeat and chance() < conditions.repeat:
            self._push(self.now + delay_ms + chance() * 50 * conditions.delay_span_ms, self._deliver, target, message)

    def _look_at_pace(self, node: Node) -> None:
        """A bucket that every message fills and that runs empty by the pace; looked at only when it might be full."""
        spared = (self.now - node.sent_ms) * self.pace.per_s / 1000
        node.sent_level = max(0.0, node.sent_level + node.sent - spared)
        if node.sent_level > self.pace.at_once:
            raise Overrun(
                f"{node.name} sends more than {self.pace.per_s:.0f} messages a second, "
                f"by {self.pace.at_once:.0f} and more: a storm"
            )
        node.sent_ms, node.sent = self.now, 0
        node.sent_look = self.pace.at_once - node.sent_level

    def deliver_later(self, late_ms: float, to: str, message: Message) -> None:
        """A message that was held back arrives after all."""
        self._push(self.now + late_ms, self._deliver, self.nodes[to], message)

    def cut(self, a: str, b: str) -> None:
        """Messages from a to b are lost until mended; cuts of several faults add up."""
        ways = self.nodes[a].cut
        ways[b] = ways.get(b, 0) + 1

    def mend(self, a: str, b: str) -> None:
        ways = self.nodes[a].cut
        if b in ways:
            ways[b] -= 1
            if ways[b] <= 0:
                del ways[b]

    # --- telling ------------------------------------------------------------------------------------------------------

    def emit(
        self,
        kind: Kind,
        node: str,
        number: int = 0,
        text: str = "",
        extra: int = 0,
        subject: str = "",
        detail: str = "",
    ) -> None:
        fact = Fact(self.now, kind, node, number, text, extra, subject, detail)
        self._told = crc32(repr(fact[1:]).encode(), self._told)
        for listener in self.listeners:
            listener(fact)


def _nothing() -> None:
    """What did not begin has no end."""


def _call(action: Callable[[], None], _: Any) -> None:
    action()
