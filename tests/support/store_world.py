"""Real lease machines on a real store, with the clock in the tester's hand: what takes ten seconds takes no time.

Every node is a machine with a store of its own. Its requests are performed at once, by the real store; time is one
number that only `World.run` moves. So a test puts the store back at exactly the moment that hurts most.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from primacy.election.effects import AskStore, Effect, Extend, OrderRelease, Start, Stop
from primacy.election.inputs import (
    DeadlinePassed,
    Input,
    Started,
    StepDown,
    StoreAnswered,
    WorkGone,
    WorkStarted,
)
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Membership, Seat
from primacy.node.clock import HandClock
from primacy.settings.timing import PROFILES, for_lease
from primacy.store import LeaseStore, perform

TIMING = for_lease(PROFILES["lan"])
WALL_MS = 1_800_000_000_000
LONG_MS = 10_500
"""wait_max of a table."""


class Node:
    """A machine, its store, and work that starts and ends at once."""

    def __init__(self, world: World, name: str, store: LeaseStore, job: str) -> None:
        self.world, self.name, self.store = world, name, store
        world.boots += 1
        seat = Seat(name, world.boots, Membership.of(()), Random(world.boots))
        self.machine = LeaseStrategy(seat, TIMING, LeaseOptions(job))
        self.is_cut = False
        """Nothing of it moves: it is frozen, or its machine is. Its hold runs on."""
        self.holds: list[tuple[int, int, int]] = []
        """Token, start and proved end of each leadership."""
        self.refusals: list[str] = []
        self.give(Started(WALL_MS + world.clock.ms))

    @property
    def leads(self) -> bool:
        return bool(self.holds) and self.world.clock.ms < self.holds[-1][2]

    def give(self, given: Input) -> None:
        for effect in self.machine.step(self.world.clock.ms, given):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        now_ms = self.world.clock.ms
        match effect:
            case AskStore(number, request):
                (answer,) = perform(self.store, [request])
                if not answer.ok:
                    self.refusals.append(answer.reason)
                self.give(StoreAnswered(number, answer))
            case Start(leadership):
                self.holds.append((leadership.token, now_ms, leadership.valid_until_ms))
                self.give(WorkStarted(leadership.term))
            case Extend(leadership):
                token, start_ms, _ = self.holds[-1]
                self.holds[-1] = (token, start_ms, leadership.valid_until_ms)
            case Stop(term):
                token, start_ms, _ = self.holds[-1]
                self.holds[-1] = (token, start_ms, now_ms)
                self.give(WorkGone(term, released=False))
            case OrderRelease():
                pass

    def step_down(self) -> None:
        """Its work ends, and it says so in the row."""
        self.give(StepDown("", "the test"))


class World:
    """One clock, any number of nodes on one store."""

    def __init__(self, open_store: Callable[[HandClock], LeaseStore]) -> None:
        self.clock = HandClock(now_ms=100_000)
        self.boots = 0
        self.nodes: list[Node] = []
        self._open = open_store

    def node(self, name: str, job: str = "job") -> Node:
        found = Node(self, name, self._open(self.clock), job)
        self.nodes.append(found)
        return found

    def run(self, span_ms: int, until: Callable[[], bool] = lambda: False) -> int:
        """So long, or until that is so; how long it took."""
        began_ms = self.clock.ms
        while self.clock.ms < began_ms + span_ms and not until():
            self.clock.ms += 5
            for node in self.nodes:
                due_ms = node.machine.deadline_ms
                if not node.is_cut and due_ms is not None and due_ms <= self.clock.ms:
                    node.give(DeadlinePassed())
        return self.clock.ms - began_ms

    def until_leads(self, node: Node, within_ms: int = 60_000) -> int:
        took_ms = self.run(within_ms, lambda: node.leads)
        assert node.leads, f"{node.name} does not lead within {within_ms} ms: {node.machine.view(self.clock.ms)}"
        return took_ms

    def close(self) -> None:
        for node in self.nodes:
            node.store.close()

    def overlaps(self) -> list[str]:
        """Two nodes whose work may be alive at the same moment, going by what was proved to each."""
        holds = [
            (start, end, token, node.name) for node in self.nodes for token, start, end in node.holds if end > start
        ]
        return [
            f"{one[3]} (token {one[2]}) until {one[1]}, and {other[3]} (token {other[2]}) from {other[0]}"
            for one in sorted(holds)
            for other in sorted(holds)
            if one[3] != other[3] and one[0] <= other[0] < one[1]
        ]
