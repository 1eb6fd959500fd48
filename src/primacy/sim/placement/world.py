"""A cluster of placement machines, from one seed. Elections are plain: one leader each, found anew some time after it
was lost by the node that campaigns first; a handover takes a moment and may fail. That two never lead is no matter of
placement (W1), and is judged elsewhere.

What nodes know of each other comes by gossip, which this world loses and delays; who leads is known late, too.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

from primacy.placement.machine import PlacementMachine
from primacy.placement.model import ElectionSeen, Intent, NodeSeen, Placement, View
from primacy.placement.vocabulary import Announce, DeadlinePassed, Effect, Move, MoveEnded, Order, Rebalance, Seen
from primacy.settings.timing import PlacementTiming
from primacy.sim.placement.facts import Happened, Led, Moved

GOSSIP_MS = 1_000
SOON_MS = 60
FRESH_MS = 3_500
TICK_MS = 500
DETECT_MS = 1_000
SPREAD_MS = 260
CANDIDATES_MAX = 2
"""Who is behind this place in the order campaigns as late as who has it."""
TIMING = PlacementTiming(intent_ms=1_200, intent_max_ms=12_000, gap_ms=500, calm_ms=3_000, settle_ms=5_000)


class Conditions(NamedTuple):
    """Of gossip, and of handovers."""

    loss: float = 0.0
    delay_ms: int = 50
    failing: float = 0.0


class Row(NamedTuple):
    """What a node says of itself."""

    sent_ms: int
    boot_ms: int
    drained: bool
    weight: int
    maintenance: bool
    intent: Intent | None
    unable: tuple[tuple[str, str], ...]
    """(election, why)."""


class SimNode:
    """One agent, and what outlives it."""

    def __init__(self, name: str, weight: int) -> None:
        self.name = name
        self.weight = weight
        self.up = False
        self.boot_ms = 0
        self.drained = False
        self.maintenance = False
        self.unable: dict[str, str] = {}
        self.machine: PlacementMachine
        self.intent: Intent | None = None
        self.rows: dict[str, tuple[Row, int]] = {}
        self.leaders: dict[str, str] = {}
        self.orders: dict[str, Order] = {}
        self.elections: tuple[object, tuple[ElectionSeen, ...]] | None = None
        """What it knows of them, made anew when it changes."""
        self.wake_ms = -1


class World:
    """True time, the network of gossip, the plain elections."""

    def __init__(
        self,
        seed: int,
        nodes: dict[str, int],
        placements: dict[str, dict[str, Placement]],
        make: Callable[[str, PlacementTiming], PlacementMachine],
    ) -> None:
        """`placements`: of each node, of each election: files may differ. `make`: a machine, or one with a defect."""
        self.random = random.Random(seed)
        self.make = make
        self.now_ms = 0
        self.nodes = {name: SimNode(name, weight) for name, weight in sorted(nodes.items())}
        self.placements = placements
        self.elections = sorted(placements[min(nodes)])
        self.leader = dict.fromkeys(self.elections, "")
        self.epoch = dict.fromkeys(self.elections, 0)
        """Counts changes, so that what was due for an earlier one is dropped."""
        self.conditions = Conditions()
        self.cut: set[tuple[str, str]] = set()  # only asked for membership, never walked
        self.tick_ms = TICK_MS
        """How often a node looks."""
        self.stuck = ""
        """A node whose handovers all fail."""
        self.led: list[Led] = []
        self.moves: list[Moved] = []
        self.happened: list[Happened] = []
        self.steps = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, wait_ms: int, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + wait_ms, self._count, do))

    def run_until(self, end_ms: int) -> None:
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, do = heapq.heappop(self._heap)
            do()
        self.now_ms = end_ms

    def note(self, what: str, node: str = "", election: str = "") -> None:
        self.happened.append(Happened(self.now_ms, what, node, election))

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        node = self.nodes[name]
        if node.up:
            return
        self.note("start", name)
        node.up, node.boot_ms, node.intent = True, self.now_ms, None
        node.machine = self.make(name, TIMING)
        node.rows, node.orders, node.wake_ms = {}, {}, -1
        node.leaders = {}
        boot_ms = self.now_ms
        for election, leader in self.leader.items():
            self._tell_leader(node, election, leader)
        self.after(self.random.randrange(GOSSIP_MS), lambda: self._gossip_on(node, boot_ms))
        self.after(self.random.randrange(TICK_MS), lambda: self._tick(node, boot_ms))

    def kill(self, name: str) -> None:
        node = self.nodes[name]
        if not node.up:
            return
        self.note("kill", name)
        node.up = False
        for election in self.elections:
            if self.leader[election] == name:
                self._lose(election)

    def _is_up(self, node: SimNode, boot_ms: int) -> bool:
        return node.up and node.boot_ms == boot_ms

    # --- gossip -------------------------------------------------------------------------------------------------------

    def _gossip_on(self, node: SimNode, boot_ms: int) -> None:
        if self._is_up(node, boot_ms):
            self._gossip(node)
            self.after(GOSSIP_MS, lambda: self._gossip_on(node, boot_ms))

    def _gossip_soon(self, node: SimNode, boot_ms: int) -> None:
        self.after(SOON_MS, lambda: self._gossip(node) if self._is_up(node, boot_ms) else None)

    def _gossip(self, node: SimNode) -> None:
        unable = tuple(sorted(node.unable.items()))
        row = Row(self.now_ms, node.boot_ms, node.drained, node.weight, node.maintenance, node.intent, unable)
        for other in self.nodes.values():
            if other is node or (node.name, other.name) in self.cut or self.random.random() < self.conditions.loss:
                continue
            wait_ms = 1 + self.random.randrange(self.conditions.delay_ms)
            self.after(wait_ms, partial(self._hear, other, node.name, row))

    def _hear(self, node: SimNode, sender: str, row: Row) -> None:
        if node.up and (sender not in node.rows or node.rows[sender][0].sent_ms < row.sent_ms):
            node.rows[sender] = (row, self.now_ms)

    def _tell_leader(self, node: SimNode, election: str, leader: str) -> None:
        epoch = self.epoch[election]
        wait_ms = 1 + self.random.randrange(max(50, self.conditions.delay_ms))

        def learn() -> None:
            if node.up and self.epoch[election] == epoch:
                node.leaders[election] = leader

        self.after(wait_ms, learn)

    # --- machines -----------------------------------------------------------------------------------------------------

    def view(self, node: SimNode) -> View:
        seen = []
        unable: dict[str, list[tuple[str, str]]] = {name: [] for name in self.elections}
        maintenance = node.maintenance
        for name, other in self.nodes.items():
            if other is node:
                up_ms = self.now_ms - node.boot_ms
                seen.append(NodeSeen(name, True, up_ms, node.weight, node.drained, node.intent))
                said = tuple(node.unable.items())
            elif name in node.rows:
                row, at_ms = node.rows[name]
                heard = self.now_ms - at_ms <= FRESH_MS
                up_ms = row.sent_ms - row.boot_ms + self.now_ms - at_ms  # as late as its word was
                seen.append(NodeSeen(name, heard, up_ms, row.weight, row.drained, row.intent))
                said = row.unable
                maintenance = maintenance or (heard and row.maintenance)
            else:
                seen.append(NodeSeen(name, heard=False))
                said = ()
            for election, why in said:
                unable[election].append((name, why))
        key = (tuple(node.leaders.items()), tuple((name, tuple(why)) for name, why in unable.items()))
        if node.elections is None or node.elections[0] != key:
            placed = self.placements[node.name]
            made = tuple(
                ElectionSeen(name, placed[name], node.leaders.get(name, ""), tuple(sorted(why)))
                for name, why in unable.items()
            )
            node.elections = (key, made)
        return View(tuple(seen), node.elections[1], maintenance)

    def _tick(self, node: SimNode, boot_ms: int) -> None:
        if self._is_up(node, boot_ms):
            self._look(node)
            self.after(self.tick_ms, lambda: self._tick(node, boot_ms))

    def _look(self, node: SimNode) -> None:
        self._perform(node, node.machine.step(self.now_ms, Seen(self.view(node))))

    def _perform(self, node: SimNode, effects: list[Effect]) -> None:
        self.steps += 1
        for effect in effects:
            match effect:
                case Order():
                    node.orders[effect.election] = effect
                case Announce(intent):
                    node.intent = intent
                    self._gossip_soon(node, node.boot_ms)
                case Move():
                    self._move(node, effect)
                case _:
                    assert_never(effect)
        due_ms, boot_ms = node.machine.deadline_ms, node.boot_ms
        if due_ms < self.now_ms + self.tick_ms and node.wake_ms != due_ms:  # a tick comes sooner than all others
            node.wake_ms = due_ms

            def wake() -> None:
                if self._is_up(node, boot_ms) and node.machine.deadline_ms <= self.now_ms:
                    self._perform(node, node.machine.step(self.now_ms, DeadlinePassed()))

            self.after(max(1, due_ms - self.now_ms), wake)

    def rebalance(self) -> None:
        self.note("rebalance")
        for node in self.nodes.values():
            if node.up:
                self._perform(node, node.machine.step(self.now_ms, Rebalance()))

    # --- elections ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        for election in self.elections:
            self._campaigns(election)

    def _set(self, election: str, leader: str, how: str) -> None:
        self.epoch[election] += 1
        self.leader[election] = leader
        self.led.append(Led(self.now_ms, election, leader, how))
        for node in self.nodes.values():
            if node.up:
                self._tell_leader(node, election, leader)

    def _lose(self, election: str) -> None:
        self._set(election, "", "lost")
        self._campaigns(election)

    def may_lead(self, node: SimNode, election: str) -> bool:
        """By its own word: what it was told by its machine, and what it knows of itself."""
        order = node.orders.get(election)
        return node.up and order is not None and not order.aside and election not in node.unable

    def _campaigns(self, election: str) -> None:
        """Each node looks again until there is a leader: first after it noticed, then after one spread each."""
        epoch = self.epoch[election]
        for node in self.nodes.values():
            self.after(DETECT_MS + self.random.randrange(50), partial(self._wait, node, election, epoch))

    def _wait(self, node: SimNode, election: str, epoch: int) -> None:
        if self.epoch[election] != epoch:
            return
        order = node.orders.get(election)
        place = order.nodes.index(node.name) if order is not None and node.up else CANDIDATES_MAX
        wait_ms = min(place, CANDIDATES_MAX) * SPREAD_MS + self.random.randrange(SPREAD_MS // 2)
        self.after(wait_ms, lambda: self._campaign(node, election, epoch))

    def _campaign(self, node: SimNode, election: str, epoch: int) -> None:
        if self.epoch[election] != epoch:
            return
        if self.may_lead(node, election):
            self._set(election, node.name, "campaign")
        else:
            self.after(SPREAD_MS, lambda: self._wait(node, election, epoch))

    def _move(self, node: SimNode, move: Move) -> None:
        began_ms, boot_ms, to = self.now_ms, node.boot_ms, self.nodes[move.to]

        def end() -> None:
            leads = self._is_up(node, boot_ms) and self.leader[move.election] == node.name != self.stuck
            ok = leads and self.may_lead(to, move.election) and self.random.random() >= self.conditions.failing
            self.moves.append(Moved(began_ms, self.now_ms, move.election, node.name, move.to, move.reason, ok))
            if ok:
                self._set(move.election, move.to, "move")
            if self._is_up(node, boot_ms):
                if ok:
                    node.leaders[move.election] = move.to
                self._perform(node, node.machine.step(self.now_ms, MoveEnded(move.election, ok)))

        self.after(50 + self.random.randrange(1_200), end)

    # --- operators ----------------------------------------------------------------------------------------------------

    def drain(self, name: str, drained: bool) -> None:
        node = self.nodes[name]
        if node.drained != drained:
            node.drained = drained
            self.note("drain" if drained else "undrain", name)

    def set_unable(self, name: str, election: str, why: str) -> None:
        """Paused, recovering, not well, or its workload gave up there; empty: no longer."""
        self.note("unable" if why else "able", name, election)
        if why:
            self.nodes[name].unable[election] = why
        else:
            self.nodes[name].unable.pop(election, None)

    def set_maintenance(self, on: bool) -> None:
        self.note("maintenance" if on else "maintenance over")
        for node in self.nodes.values():
            node.maintenance = on
