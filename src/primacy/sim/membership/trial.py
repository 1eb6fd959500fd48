"""One trial of a list that grows by joining: nodes, faults and removals drawn from a seed, then calm, then judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from primacy.election.model import Role
from primacy.membership.machine import MembershipMachine
from primacy.sim.membership.checkers import MembershipChecker
from primacy.sim.membership.world import Fact, Machine, World

FAULTS_MS = 15_000
"""So long nodes join and things go wrong."""
WITHIN_MS = 60_000
"""After the calm everything is as it must be: tries to join come every 6 s at the latest, and twice may be needed."""
STAYS_MS = 3_000
"""And it stays so."""
LOOK_MS = 100


class Outcome(NamedTuple):
    """What came of it."""

    violations: tuple[str, ...]
    calmed_ms: int
    """From the calm until everything was as it must be."""
    events: int
    most_sent: float
    facts: tuple[Fact, ...]


class Trial:
    """Draws what happens to a world."""

    def __init__(self, seed: int, strategy: str, machine: Machine = MembershipMachine) -> None:
        self.facts: list[Fact] = []
        self.world = World(seed, strategy, "lan", self._note)
        self.world.machine = machine
        self.checker = MembershipChecker(self.world.timing)
        self.random = self.world.random

    def _note(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.checker(fact)

    def run(self) -> Outcome:
        world = self.world
        self._join_all()
        for _ in range(self.random.randint(0, 6)):
            world.after(self.random.randint(500, FAULTS_MS), self.random.choice(self._faults))
        while world.now_ms < FAULTS_MS and self._goes_on():
            pass
        world.calm()
        for node in world.nodes.values():
            node.crash_in = 0
            if not node.is_up:
                node.boot()
        calm_ms = since_ms = world.now_ms
        while world.now_ms - since_ms < STAYS_MS and since_ms - calm_ms < WITHIN_MS and self._goes_on():
            if self.checker.missing():
                since_ms = world.now_ms
        violations = self.checker.violations or (self.checker.missing() if since_ms - calm_ms >= WITHIN_MS else [])
        return Outcome(tuple(violations), since_ms - calm_ms, world.events, self.checker.most_sent, tuple(self.facts))

    def _goes_on(self) -> bool:
        """For a moment; a storm ends the trial."""
        if not self.world.run(self.world.now_ms + LOOK_MS):
            self.checker.violations.append("E2: more events than any trial has")
        return not self.checker.violations

    def _join_all(self) -> None:
        """The first one begins a cluster; each other one joins one or two that were made before it."""
        names = [f"n{number}" for number in range(self.random.randint(2, 6))]
        self.random.shuffle(names)
        for place, name in enumerate(names):
            targets = self.random.sample(names[:place], min(place, self.random.randint(1, 2)))
            node = self.world.node(name, tuple(targets))
            self.world.after(self.random.randint(0, 5_000) if place else 0, node.boot)

    @property
    def _faults(self) -> tuple[Callable[[], None], ...]:
        return self._crash, self._cut, self._cut_one_way, self._lose, self._slow, self._pause, self._remove

    def _crash(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        if not node.is_up:
            return
        node.crash_in = self.random.randint(1, 20)

        def again() -> None:
            if self.world.now_ms >= FAULTS_MS:
                return
            node.crash()
            if self.random.random() < 0.3:
                node.disk = None
            node.boot()

        self.world.after(self.random.randint(100, 6_000), again)

    def _cut(self) -> None:
        left = {name for name in self.world.nodes if self.random.random() < 0.5}
        self._cut_for({(a, b) for a in self.world.nodes for b in self.world.nodes if (a in left) != (b in left)})

    def _cut_one_way(self) -> None:
        a, b = self.random.sample(sorted(self.world.nodes), 2)
        self._cut_for({(a, b)})

    def _cut_for(self, links: set[tuple[str, str]]) -> None:
        self.world.cuts |= links
        self.world.after(self.random.randint(500, 8_000), lambda: self.world.cuts.difference_update(links))

    def _lose(self) -> None:
        self.world.loss = self.random.uniform(0.05, 0.4)

    def _slow(self) -> None:
        self.world.delay_ms = (1, self.random.randint(50, 400))

    def _pause(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        if node.is_up and not node.is_paused:
            node.pause(self.random.randint(200, 4_000))

    def _remove(self) -> None:
        """An operator asks a node that leads."""
        leaders = [node for node in self.world.nodes.values() if node.is_up and node.election.role is Role.LEADER]
        if leaders:
            leader = self.random.choice(leaders)
            others = [entry.node for entry in leader.membership.state.member_list.others]
            if others:
                leader.remove(self.random.choice(others))
