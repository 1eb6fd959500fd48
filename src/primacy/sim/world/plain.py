"""The work of a strategy that holds nothing (bully, ring): it starts when its node leads and ends when it yields.

A model of `HostedWorkload`, whose work is a part of the agent. No deadline, no dead-man, no release: what it does in a
partition is exactly what these strategies promise, one per island. It has the shape of `Guard`, so that faults treat
both alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.election.inputs import WorkGone, WorkStarted
from primacy.election.model import Leadership
from primacy.sim.facts import Kind
from primacy.sim.world.guard import Phase

if TYPE_CHECKING:
    from primacy.sim.world.node import Node
    from primacy.sim.world.world import World


class PlainWork:
    """Runs while its node leads."""

    frozen = False

    def __init__(self, world: World, node: Node, leadership: Leadership) -> None:
        self.world = world
        self.node = node
        self.term = leadership.term
        self.boot = node.boot
        self.phase = Phase.SPAWNING
        world.after(node.draw_ms(1, world.conditions.spawn_ms), self._spawned)

    def _spawned(self) -> None:
        if self.phase is Phase.SPAWNING:
            self.phase = Phase.RUNNING
            self.world.emit(Kind.WORK_STARTED, self.node.name, self.term, str(self.term), 1, "1")
            self.world.give(self.node, WorkStarted(self.term))

    @property
    def holds_lock(self) -> bool:
        return self.phase is not Phase.GONE

    def stop(self) -> None:
        """Planned or not, it has as long as it needs."""
        if self.phase in (Phase.SPAWNING, Phase.RUNNING):
            self.world.after(self.node.draw_ms(1, self.world.conditions.stop_ms), self._gone)

    def agent_died(self) -> None:
        self._gone()

    def kill_guard(self) -> None:
        self._gone()

    def child_ends(self) -> None:
        """Restarted at once; nothing to see from outside."""

    def freeze(self, frozen: bool) -> None:
        """It goes on: nothing here stops it."""

    def power_lost(self) -> None:
        if self.phase is Phase.RUNNING:
            self.world.emit(Kind.WORK_ENDED, self.node.name, self.term, str(self.term), 1)
        self.phase = Phase.GONE

    def _gone(self) -> None:
        if self.phase is not Phase.GONE:
            self.power_lost()
            self.node.forget(self)
            if self.node.boot == self.boot:
                self.world.give(self.node, WorkGone(self.term, released=False))
