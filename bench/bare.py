"""What the simulator is compared with: the same sort of events, and nothing behind them.

`heap` is a heap of tuples and a function that pushes the next one, the least that any simulation of events must do.
`Cluster` is that heap with five bare nodes: one beats, the others ack and put off a lazy timer, messages take a random
time. No machine, no clocks, no effects, no faults, no checkers: what is left when all that primacy is about is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

Action = Callable[[Any, Any], None]

PENDING = 40
"""Events that wait in the heap of a life, about."""
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


class Node:
    """Somebody to send to."""

    __slots__ = ("acks", "deadline_ms")

    def __init__(self) -> None:
        self.acks = 0
        self.deadline_ms = SILENCE_MS


class Cluster:
    """Five bare nodes; the first one beats."""

    def __init__(self, nodes: int, beat_ms: float) -> None:
        self.now_ms = 0.0
        self.beat_ms = beat_ms
        self._chance = Random(1)
        self._waiting: list[tuple[float, int, Action, Any, Any]] = []
        self._sequence = 0
        self.leader, *self.others = [Node() for _ in range(nodes)]
        self._push(0.0, self._beat, self.leader, None)
        for node in self.others:
            self._push(node.deadline_ms, self._silence, node, None)

    def run(self, events: int) -> None:
        waiting = self._waiting
        for _ in range(events):
            self.now_ms, _, action, a, b = heappop(waiting)
            action(a, b)

    def _push(self, at_ms: float, action: Action, a: Any, b: Any) -> None:
        self._sequence += 1
        heappush(self._waiting, (at_ms, self._sequence, action, a, b))

    def _send(self, to: Node, message: tuple[str, Node, int]) -> None:
        self._push(self.now_ms + 0.3 + self._chance.random() * 1.5, self._deliver, to, message)

    def _beat(self, leader: Node, _: Any) -> None:
        for node in self.others:
            self._send(node, ("beat", leader, self._sequence))
        self._push(self.now_ms + self.beat_ms, self._beat, leader, None)

    def _deliver(self, node: Node, message: tuple[str, Node, int]) -> None:
        what, sender, number = message
        if what == "ack":
            node.acks += 1
            return
        node.deadline_ms = self.now_ms + SILENCE_MS
        self._send(sender, ("ack", node, number))

    def _silence(self, node: Node, _: Any) -> None:
        self._push(max(node.deadline_ms, self.now_ms + 1), self._silence, node, None)
