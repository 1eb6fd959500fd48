"""What the simulator is compared with: the same sort of events, and nothing behind them.

`heap` is a heap of tuples and a function that pushes the next one, the least that any simulation of events must do.
`Cluster` is a bare event loop in the same form as ours: callbacks in a heap of tuples, lazy timers, messages as named
tuples that are drawn a loss and a delay and handed to a node's handler, which answers with what is to be sent. Its five
nodes heartbeat and ack. No election, no ballot, no clocks of their own, no work, no faults, no checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

Action = Callable[[Any, Any], None]

PENDING = 40
"""Events that wait in the heap of a trial, about."""
SILENCE_MS = 3_100.0


def heap(events: int) -> None:
    """So many events, and nothing else."""
    chance = Random(1).random
    waiting: list[tuple[float, int, Action, Any, Any]] = []
    now_ms = 0.0
    sequence = done = 0

    def push(a: Any, b: Any) -> None:
        nonlocal sequence
        sequence += 1
        heappush(waiting, (now_ms + chance(), sequence, push, a, b))

    for _ in range(PENDING):
        push(None, None)
    while done < events:
        now_ms, _, action, a, b = heappop(waiting)
        action(a, b)
        done += 1


class Heartbeat(NamedTuple):
    """Numbered, as ours."""

    sender: str
    term: int
    number: int


class Ack(NamedTuple):
    """Names the heartbeat."""

    sender: str
    term: int
    number: int


class Out(NamedTuple):
    """What a handler wants sent."""

    to: str
    message: Heartbeat | Ack


class Node:
    """Sends heartbeats if it leads, acks if it does not."""

    def __init__(self, name: str, others: tuple[str, ...], heartbeat_ms: float) -> None:
        self.name = name
        self.others = others
        self.heartbeat_ms = heartbeat_ms
        self.leads = False
        self.number = 0
        self.acks = 0
        self.deadline_ms = SILENCE_MS
        self.timer_ms: float | None = None

    def step(self, now_ms: float, message: Heartbeat | Ack | None) -> list[Out]:
        match message:
            case None if self.leads:
                self.number += 1
                self.deadline_ms = now_ms + self.heartbeat_ms
                heartbeat = Heartbeat(self.name, 1, self.number)
                return [Out(other, heartbeat) for other in self.others]
            case Heartbeat(sender, term, number):
                self.deadline_ms = now_ms + SILENCE_MS
                return [Out(sender, Ack(self.name, term, number))]
            case Ack():
                self.acks += 1
        return []


class Cluster:
    """Five bare nodes; the first one leads."""

    def __init__(self, nodes: int, heartbeat_ms: float) -> None:
        self.now_ms = 0.0
        self.loss = 0.0
        self.sent = 0
        self._chance = Random(1)
        self._waiting: list[tuple[float, int, Action, Any, Any]] = []
        self._sequence = 0
        names = tuple(f"n{i + 1}" for i in range(nodes))
        self.nodes = {name: Node(name, tuple(n for n in names if n != name), heartbeat_ms) for name in names}
        self.leader = self.nodes["n1"]
        self.leader.leads = True
        self.leader.deadline_ms = 0.0
        for name in names:
            self._arm(self.nodes[name])

    def run(self, events: int) -> None:
        waiting = self._waiting
        for _ in range(events):
            self.now_ms, _, action, a, b = heappop(waiting)
            action(a, b)

    def _push(self, at_ms: float, action: Action, a: Any, b: Any) -> None:
        self._sequence += 1
        heappush(self._waiting, (at_ms, self._sequence, action, a, b))

    def _send(self, to: str, message: Heartbeat | Ack) -> None:
        self.sent += 1
        if self.loss and self._chance.random() < self.loss:
            return
        self._push(self.now_ms + 0.3 + self._chance.random() * 1.5, self._deliver, self.nodes[to], message)

    def _deliver(self, node: Node, message: Heartbeat | Ack | None) -> None:
        for to, answer in node.step(self.now_ms, message):
            self._send(to, answer)
        self._arm(node)

    def _arm(self, node: Node) -> None:
        """One lazy timer per node: it fires at an old deadline and is put off to the new one."""
        if node.timer_ms is None or node.deadline_ms < node.timer_ms:
            node.timer_ms = node.deadline_ms
            self._push(node.deadline_ms, self._timer, node, node.deadline_ms)

    def _timer(self, node: Node, at_ms: float) -> None:
        if node.timer_ms != at_ms:
            return
        node.timer_ms = None
        if node.deadline_ms > self.now_ms:
            self._arm(node)
        else:
            self._deliver(node, None)
