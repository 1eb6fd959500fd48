"""Ghoti's `Cluster` for Python programs: start, join, remove, leadership, leader, shutdown.

    cluster = cluster_of(settings)          # a `ManagedCluster`, or a `StandaloneCluster` without a cluster section
    await cluster.start()
    if (leadership := cluster.leadership()) is not None: ...
    await cluster.shutdown()

`ManagedCluster` is a whole node of bully or ring in this process, over the HTTP manager, without a command or a control
API; the agent stands on the same machine and the same manager. It promises no more than its strategy does: one leader
per island. `led` is awaited around each leadership, if it is given: started when it begins, and confirmed over before
the role is handed on. One that returns or fails while the node leads hands the role on: to lead without the work is of
no use to anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from primacy.agent.managed import Keep, ranked_parts, ranked_seat
from primacy.election.events import Event
from primacy.election.inputs import Input, Shutdown, Started, WorkGone, WorkStarted
from primacy.election.messages import Release
from primacy.election.model import Ballot, Leadership, Role, View
from primacy.election.ranked.rank import NO_HOLD_MS
from primacy.errors import Refused, UsageError
from primacy.membership.members import Entry
from primacy.node.ballot import Memory
from primacy.node.clock import Clock, SystemClock
from primacy.node.driver import Driver
from primacy.settings import is_ranked
from primacy.settings.schema import Settings
from primacy.transport import MembershipManager

LEAVE_S = 10.0
"""How long the work of a leader may take to end when its node shuts down."""


class Cluster(Protocol):
    """The contract of Ghoti."""

    async def start(self) -> None:
        """Takes part from here on. Raises one of ours if it cannot."""
        ...

    async def join(self, address: str) -> None:
        """Joins the cluster of the node at this address, too. Raises `NotReached`, or `Refused` for a fixed list."""
        ...

    async def remove(self, node: str) -> None:
        """Takes a node off the list. Raises `Refused` on a node that does not lead, and for a fixed list."""
        ...

    def leadership(self) -> Leadership | None:
        """This node's own; None while it does not lead."""
        ...

    def leader(self) -> str:
        """Whom this node believes to lead; empty for nobody."""
        ...

    async def shutdown(self) -> None:
        """In order: the work ends, then the next one is told to stand. May be said twice."""
        ...


class StandaloneCluster:
    """One node, which always leads."""

    def __init__(self, node: str = "standalone") -> None:
        self.node = node
        self._up = False

    async def start(self) -> None:
        self._up = True

    async def join(self, address: str) -> None:
        raise Refused(f"there is no cluster section in the settings, so {address} cannot be joined")

    async def remove(self, node: str) -> None:
        raise Refused(f"there is no cluster section in the settings, and no node {node} to remove")

    def leadership(self) -> Leadership | None:
        return Leadership(self.node, 1, 0, NO_HOLD_MS) if self._up else None

    def leader(self) -> str:
        return self.node if self._up else ""

    async def shutdown(self) -> None:
        self._up = False


Led = Callable[[Leadership], Coroutine[Any, Any, None]]


class ManagedCluster:
    """One node of bully or ring over the HTTP manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        complain: Callable[[str], None] = lambda _: None,
        listener: Callable[[Sequence[Event]], None] = lambda _: None,
        remembered: tuple[Entry, ...] = (),
        keep: Keep = lambda _: None,
        led: Led | None = None,
    ) -> None:
        """`led`: runs while this node leads; cancelled when that ends, and waited for. If it ends by itself, another
        node leads next; where there is none, this one tries again after a while."""
        if not is_ranked(settings):
            raise UsageError(f"election.strategy = {settings.election.strategy}: the manager serves bully and ring")
        self.settings = settings
        self.clock = clock or SystemClock()
        seat = ranked_seat(settings, remembered)
        self.node = seat.node
        parts = ranked_parts(settings, seat, self.clock, complain, remembered, keep)
        self.machine, self.manager = parts
        self.membership: MembershipManager = self.manager
        self._work = _Work(led, complain)
        self.driver = Driver(self.machine, self.clock, _NoBallot(), self._work, listener, self.manager)
        self._work.tell = self.driver.give
        parts.connect(self.driver.give)
        self._over = False

    def view(self) -> View:
        return self.machine.view(self.clock.now_ms())

    async def start(self) -> None:
        try:
            await self.manager.start(self.driver.hear)
        except BaseException:
            await self.manager.aclose()
            raise
        self.driver.give(Started(self.clock.wall_ms()))

    async def join(self, address: str) -> None:
        await self.membership.join(address)

    async def remove(self, node: str) -> None:
        if self.view().role is not Role.LEADER:
            raise Refused(f"node {self.node} does not lead, and only the leader removes; ask {self.leader() or 'it'}")
        if node == self.node:
            raise Refused(f"node {node} leads: let another one lead first, with step-down, then remove it there")
        self.membership.remove(node)

    def leadership(self) -> Leadership | None:
        return self._work.leadership

    def leader(self) -> str:
        return self.machine.leader

    async def shutdown(self) -> None:
        if self._over:
            return
        self._over = True
        self.manager.end()
        self.driver.give(Shutdown())
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._work.is_over.wait()
        finally:
            await self.manager.settle()
            self.driver.close()
            await self.manager.aclose()

    async def kill(self) -> None:
        """Gone without a word, as a process that was killed."""
        self._over = True
        self.driver.close()
        self._work.cancel()
        await self.manager.aclose()


class _Work:
    """The driver's port `Work`: a coroutine while the node leads, cancelled and waited for when that ends."""

    def __init__(self, led: Led | None, complain: Callable[[str], None]) -> None:
        self.led = led
        self.complain = complain
        self.tell: Callable[[Input], None] = lambda _: None
        self.leadership: Leadership | None = None
        self.is_over = asyncio.Event()
        self.is_over.set()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:  # noqa: ARG002
        self.leadership = leadership
        self.is_over.clear()
        if self.led is not None:
            self._task = asyncio.get_running_loop().create_task(self.led(leadership))
            self._task.add_done_callback(lambda task: self._ended(leadership.term, task))
        self.tell(WorkStarted(leadership.term))

    def extend(self, leadership: Leadership) -> None:
        """Nothing is held."""

    def stop(self, term: int, reason: str, planned: bool) -> None:  # noqa: ARG002
        self.leadership = None
        task, self._task = self._task, None
        self._ending = asyncio.get_running_loop().create_task(self._end(term, task))

    def release(self, term: int, successor: str) -> None:
        """Nothing was held."""

    def cancel(self) -> None:
        task, self._task = self._task, None
        for each in (task, self._ending):
            if each is not None:
                each.cancel()

    async def _end(self, term: int, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._gone(term)

    def _ended(self, term: int, task: asyncio.Task[None]) -> None:
        """Nobody asked for it, if it is still the work of the day: then the role goes on to another node."""
        _told_of_faults(task)
        if task is not self._task:
            return
        self._task, self.leadership = None, None
        fault = None if task.cancelled() else task.exception()
        how = f"failed ({type(fault).__name__}: {fault})" if fault is not None else "ended by itself"
        self.complain(f"what runs while this node leads has {how}, so that the role is handed on")
        self._gone(term)

    def _gone(self, term: int) -> None:
        self.tell(WorkGone(term))
        self.is_over.set()


def _told_of_faults(task: asyncio.Task[None]) -> None:
    """What the work raises is its owner's to know, also while it is being ended."""
    if not task.cancelled() and (fault := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "what runs while this node leads has failed", "exception": fault, "task": task}
        )


class _NoBallot:
    """Bully and ring promise nothing that would have to be remembered."""

    def load(self) -> Memory:
        return Memory(None, "")

    def save(self, ballot: Ballot) -> None:
        raise AssertionError(ballot)


def cluster_of(settings: Settings, **options: Any) -> Cluster:
    """As the settings say; standalone if they name no cluster. Raises `UsageError` for a strategy without a manager."""
    if settings.election.strategy == "lease":
        raise UsageError("election.strategy = lease: its store says who leads, not a cluster; use primacy.Election")
    if settings.cluster.manager.type == "none":
        return StandaloneCluster(settings.node or "standalone")
    return ManagedCluster(settings, **options)
