"""A machine of the simulated world: clock, disk, agent and the guards of its work, and what stands in its way now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from primacy.election.effects import Effect
from primacy.election.inputs import Input
from primacy.election.messages import Message
from primacy.election.model import Membership, Role, Strategy
from primacy.sim.world.clock import Clock
from primacy.sim.world.disk import Disk
from primacy.sim.world.guard import Guard
from primacy.sim.world.plain import PlainWork
from primacy.sim.world.workload import Heard, Workload

if TYPE_CHECKING:
    from primacy.sim.world.store import SimStore
    from primacy.sim.world.world import World


class Node:
    """A machine of the world: clock, disk, agent (its strategy) and the guards of its work."""

    def __init__(self, world: World, index: int, name: str, clock: Clock, membership: Membership, timing: Any) -> None:
        self.world = world
        self.index = index
        self.name = name
        self.clock = clock
        self.membership = membership
        self.timing = timing
        self.failsafe = False
        """Lease only: the nodes keep a holder alive while the store is away (L7)."""
        self.watched = False
        """Lease only: every shortcut needs a watch over one unbroken connection (L4)."""
        self.holders: list[str] = []
        """Lease only: the holders of its earlier starts, all under its run lock (L4)."""
        self._stores: tuple[SimStore | None, ...] = ()
        self.introduced = True
        """False for a machine that nobody has set up yet."""
        self.chance = world.chance_of(name, "guard")
        """For what its guard, its work and its disk do."""
        self.lateness = world.chance_of(name, "timers").random
        self.disk = Disk()
        self.machine: Strategy | None = None
        self.boot = 0
        self.boots = 0
        self.lag_in_ms = 0.0
        self.lag_out_ms = 0.0
        """Extra delay of what it receives and of what it sends: routes need not be alike in both directions."""
        self.cut: dict[str, int] = {}
        """Nodes that messages of this one do not reach, with how many faults cut the way."""
        self.sent = 0
        self.sent_look = 0.0
        self.sent_level = 0.0
        self.sent_ms = 0.0
        """Messages since its pace was looked at; after how many it is looked at again; and how it stood then (E2)."""
        self.stopped = 0
        """How many faults stop the agent now."""
        self.frozen = False
        """The whole machine is: nothing happens in it."""
        self.late: list[Callable[[], None]] = []
        """What would have happened in it meanwhile."""
        self.unkillable = False
        """Nothing ends a process of it."""
        self.escaping: list[Callable[[], None]] | None = None
        """A part of the work that ends leaves the process tree and runs on: how it is ended. None: nothing leaves."""
        self.inbox: list[Input | Heard] = []
        self.doom = -1
        """How many more effects are performed until the agent crashes; -1 for no such plan."""
        self.held: list[tuple[str, Message]] | None = None
        self.workload: Workload | None = None
        """Of this boot; None with a strategy that holds nothing."""
        self.guard: Guard | PlainWork | None = None
        self.guards: list[Guard | PlainWork] = []
        """Of this boot, and of all whose work is not confirmed gone."""
        self.role = Role.STARTING
        self.leader = ""
        self.timer_ms: int | None = None
        self.busy: list[Effect] | None = None

    @property
    def store(self) -> SimStore | None:
        """Lease only: where its row is; that of the world, unless it was given another one."""
        return self._stores[0] if self._stores else self.world.store

    @store.setter
    def store(self, store: SimStore | None) -> None:
        self._stores = (store,)

    def local_ms(self) -> int:
        return self.clock.local_ms(self.world.now)

    def draw_ms(self, low: float, high: float) -> float:
        return low + self.chance.random() * (high - low) if high > low else low

    @property
    def up(self) -> bool:
        return self.machine is not None

    def release_targets(self) -> tuple[str, ...]:
        """Everybody that its file names and, with a register of members, everybody that this names."""
        ballot = self.disk.ballot
        named = ballot.register.everybody if ballot is not None and ballot.register is not None else ()
        return tuple(name for name in dict.fromkeys((*self.membership.ids, *named)) if name != self.name)

    def waits(self, event: Callable[[], None]) -> bool:
        """Nothing happens in a frozen machine: it happens once the machine goes on."""
        if self.frozen:
            self.late.append(event)
        return self.frozen

    def lock_held(self) -> bool:
        return any(guard.holds_lock for guard in self.guards)

    def hold(self, guard: Guard | PlainWork) -> None:
        """The work of a new term."""
        self.guard = guard
        self.guards.append(guard)

    def forget(self, guard: Guard | PlainWork) -> None:
        """It is gone, and so is all that it held."""
        if guard in self.guards:
            self.guards.remove(guard)
        if self.guard is guard:
            self.guard = None
