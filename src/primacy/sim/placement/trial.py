"""One trial of placement: a cluster, its wishes, what goes wrong and what operators do, all from one seed.

Kinds: `plain` (nothing is wished for but the spread), `wishes` (all kinds of placement), `loss` (one node is lost, in
clear conditions, and returns), `skewed` (two files never agree), `storm` (plain, with much going wrong), `stuck` (what
the first node wants to hand over always fails, and the last one comes late).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from primacy.placement.machine import PlacementMachine
from primacy.placement.model import Placement
from primacy.settings.timing import PlacementTiming
from primacy.sim.placement.checkers import judge
from primacy.sim.placement.facts import Facts
from primacy.sim.placement.world import TICK_MS, TIMING, Conditions, World

KINDS = ("plain", "wishes", "loss", "skewed", "storm", "stuck")
WISHES = ("only", "prefer", "avoid", "with", "capacity")
FAULTS_MS = 120_000
SKEWED_MS = 600_000
CALM_MS = 360_000
"""Longer than the longest rest, and what follows it."""
WHYS = ("is paused", "is recovering", "is not well", "has given up its workload")


class Trial:
    """Drawn, then run."""

    def __init__(self, seed: int, make: Callable[[str, PlacementTiming], PlacementMachine] = PlacementMachine) -> None:
        self.draw = random.Random(f"placement {seed}")
        self.kind = KINDS[seed % len(KINDS)]
        self.wish = self.draw.choice(("mixed", *WISHES, "avoid"))
        wishes = self.kind == "wishes"
        count = 3 if self.kind == "stuck" else self.draw.randint(2, 5)
        self.names = [chr(ord("a") + number) for number in range(count)]
        self.elections = [
            f"e{number:02}" for number in range(self.draw.choice((5, 9, 13) if wishes else (1, 2, 5, 9, 13)))
        ]
        if self.kind == "stuck":
            self.elections = [f"e{number:02}" for number in range(12)]
        weighted = self.kind == "plain" and self.draw.random() < 0.3
        weights = {name: self.draw.choice((1, 2, 3)) if weighted else 1 for name in self.names}
        placements = {name: self._placement() for name in self.elections}
        self.clear = self.kind == "loss" or self.draw.random() < 0.4
        by_node = dict.fromkeys(self.names, placements)
        if self.kind == "skewed":
            by_node = {
                node: {name: Placement(prefer=("a" if node == "b" else "b",)) for name in self.elections}
                for node in self.names
            }
        self.world = World(seed, weights, by_node, make)
        self.weights, self.placements = weights, placements
        self.for_good: list[str] = []

    def run(self) -> Facts:
        world = self.world
        late = {self.names[-1]: 30_000} if self.kind == "stuck" else {}
        for name in self.names:
            world.after(late.get(name, 0) + self.draw.randrange(400), partial(world.start, name))
        if self.kind == "stuck":
            world.stuck = self.names[0]
        world.begin()
        if not self.clear:
            loss, delay_ms = self.draw.choice((0.0, 0.1, 0.3)), self.draw.choice((50, 400, 1_500))
            world.conditions = Conditions(loss, delay_ms, self.draw.choice((0.0, 0.0, 0.3)))
        self._plan_faults()
        world.run_until(FAULTS_MS)
        self._heal()
        calm_ms, world.tick_ms = world.now_ms, 2 * TICK_MS
        world.run_until(calm_ms + (SKEWED_MS if self.kind == "skewed" else CALM_MS))
        return self._facts(calm_ms)

    def violations(self) -> list[str]:
        return judge(self.run())

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _placement(self) -> Placement:
        if self.kind != "wishes":
            return Placement()
        draw, kind = self.draw, self.wish
        if kind == "mixed":
            kind = self.draw.choice(WISHES)
        if draw.random() < (0.8 if kind == "capacity" else 0.35):  # a capacity of one concerns all on its node
            return Placement()
        some = tuple(draw.sample(self.names, draw.randint(1, len(self.names))))
        other = (draw.choice(self.elections),)
        match kind:
            case "only":
                return Placement(only=tuple(sorted(some)))
            case "prefer":
                return Placement(prefer=some[:2])
            case "avoid":
                return Placement(avoid=other)
            case "with":
                return Placement(together=other)
            case _:
                return Placement(capacity=draw.choice((1, 2, 4)))

    def _plan_faults(self) -> None:
        world, draw = self.world, self.draw
        if self.kind in ("skewed", "stuck"):
            return
        if self.kind == "loss":
            lost = draw.choice(self.names)
            world.after(60_000, lambda: world.kill(lost))
            return
        for _ in range(draw.choice((0, 2, 5, 9)) * (3 if self.kind == "storm" else 1)):
            world.after(draw.randrange(5_000, FAULTS_MS - 10_000), self._fault())

    def _fault(self) -> Callable[[], None]:
        world, draw = self.world, self.draw
        name, election, other = draw.choice(self.names), draw.choice(self.elections), draw.choice(self.names)
        lasts_ms = draw.choice((500, 3_000, 15_000, 40_000))

        def down() -> None:
            world.kill(name)
            world.after(lasts_ms, lambda: world.start(name))

        def flaps() -> None:
            for number in range(5):
                world.after(number * 6_000, lambda: world.kill(name))
                world.after(number * 6_000 + 1_500, lambda: world.start(name))

        def drained() -> None:
            world.drain(name, True)
            if lasts_ms < 40_000:
                world.after(lasts_ms, lambda: world.drain(name, False))

        def unable() -> None:
            world.set_unable(name, election, draw.choice(WHYS))
            world.after(lasts_ms, lambda: world.set_unable(name, election, ""))

        def cut() -> None:
            world.cut |= {(name, other)}
            world.after(lasts_ms, lambda: world.cut.discard((name, other)))

        def maintenance() -> None:
            world.set_maintenance(True)
            world.after(lasts_ms, lambda: world.set_maintenance(False))

        kinds: list[Callable[[], None]] = [down, flaps, drained, unable, maintenance, world.rebalance]
        return draw.choice(kinds if self.clear else [*kinds, cut, cut])

    def _heal(self) -> None:
        """What still goes on ends by itself; then the last disturbance: all are up but one, perhaps, for good."""
        world, draw = self.world, self.draw
        world.run_until(world.now_ms + 45_000)
        world.cut.clear()
        world.conditions = Conditions(0.0 if self.clear else 0.03, 50 if self.clear else 300)
        gone = draw.choice(self.names) if self.kind in ("plain", "storm", "wishes") and draw.random() < 0.3 else ""
        for name in self.names:
            world.kill(name) if name == gone else world.start(name)

    # --- what came of it ----------------------------------------------------------------------------------------------

    def _facts(self, calm_ms: int) -> Facts:
        world = self.world
        able = tuple(
            (election, tuple(name for name in self.names if self._may(name, election))) for election in self.elections
        )
        return Facts(
            kind=self.kind,
            clear=self.clear,
            nodes=tuple(self.weights.items()),
            placements=tuple(self.placements.items()),
            led=tuple(world.led),
            moves=tuple(world.moves),
            happened=tuple(world.happened),
            calm_ms=calm_ms,
            end_ms=world.now_ms,
            last=tuple(world.leader.items()),
            able=able,
            up=tuple(name for name in self.names if world.nodes[name].up),
            drained=tuple(name for name in self.names if world.nodes[name].drained),
            settle_ms=TIMING.settle_ms,
            disturb_ms=TIMING.calm_ms,
        )

    def _may(self, name: str, election: str) -> bool:
        node, only = self.world.nodes[name], self.placements[election].only
        return node.up and not node.drained and election not in node.unable and (not only or name in only)
