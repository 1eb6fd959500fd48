"""What the leader does: the port `Workload`, and whoever performs one for the agent.

A workload inside of the agent's own process (the slot server, or nothing at all) has few methods, and `HostedWorkload`
is all that stands between it and the election: it waits at the gate, is started and stopped one after the other, and
its confirmed end is told, and released. A command of the user's is another matter: `ProcessWorkload` has a guard for
it.

A hosted workload dies with the agent, and no kernel timer ends it before: what it does after its hold ran out, in a
process that was stopped and goes on, it must prevent itself (`Leadership.valid_until_ms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from primacy.election.inputs import Input, RunLock, WorkGone, WorkStarted
from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.errors import PrimacyError
from primacy.node import lock
from primacy.node.clock import Clock
from primacy.supervise.start_gate import StartGate
from primacy.supervise.vocabulary import Note, State

LOCK_LOOK_S = 0.5
"""How often a run lock is looked at that a command of an earlier agent still holds."""


class WorkloadView(NamedTuple):
    """How the workload stands, in the words of the state document."""

    kind: str
    state: State
    since_ms: int = 0
    pid: int = 0
    run: int = 0
    containment: str = ""
    containment_why: str = ""
    way: str = ""
    """Of strong containment: `namespace` or `ptrace`."""


class WorkloadHost(Protocol):
    """Whom the workload reports to: the agent."""

    def tell(self, given: Input) -> None:
        """For the election."""
        ...

    def note(self, note: Note) -> None:
        """For the log."""
        ...

    def complain(self, sentence: str) -> None:
        """For the log: something that should not be."""
        ...

    def give_up(self, code: int) -> None:
        """There will be no further start here."""
        ...

    def stepped(self) -> None:
        """After each step: the moment to see whether all is over."""
        ...


class Workload(Protocol):
    """What this process itself does while its node leads."""

    kind: str
    """`none`, `slots`: as the state document says it."""

    async def start(self, leadership: Leadership) -> None:
        """Returns when it is done. Raises one of ours if it cannot be: then the node lets another one lead."""
        ...

    def extend(self, leadership: Leadership) -> None:
        """The hold was proved anew: `valid_until_ms` is later now."""
        ...

    async def stop(self, within_ms: int, reason: str) -> None:
        """Returns when nothing of it is left. Beyond `within_ms` it is not asked for, but cut off."""
        ...

    async def open(self) -> None:
        """Before the node takes part in anything: what others may see whether it leads or not. Raises one of ours."""
        ...

    def follow(self, leader: str, address: str) -> None:
        """While this node does not lead: who does, as it sees it, and where its clients find it; empty if unknown."""
        ...

    def counters(self) -> Mapping[str, int]:
        """For `status -v` and metrics."""
        ...

    async def close(self) -> None:
        """The node ends."""
        ...


class Nothing:
    """`primacy node start`: to lead is all there is."""

    kind = "none"

    async def start(self, leadership: Leadership) -> None:
        """Who wants to act on it asks the node."""

    def extend(self, leadership: Leadership) -> None:
        """No matter."""

    async def stop(self, within_ms: int, reason: str) -> None:
        """There is nothing to wait for."""

    async def open(self) -> None:
        """There is nothing to be seen."""

    def follow(self, leader: str, address: str) -> None:
        """The node itself can be asked."""

    def counters(self) -> Mapping[str, int]:
        return {}

    async def close(self) -> None:
        """There is nothing to end."""


class Performer(Protocol):
    """What the agent needs of whoever performs its workload: the driver's `Work`, and this."""

    @property
    def state(self) -> State: ...

    @property
    def term(self) -> int:
        """Of the work that is there, or is waited with; 0 for none."""
        ...

    @property
    def is_over(self) -> bool:
        """Nothing runs, and nothing is left to be confirmed."""
        ...

    @property
    def is_orphaned(self) -> bool:
        """It cannot be told anything any more, and may live."""
        ...

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None: ...

    def extend(self, leadership: Leadership) -> None: ...

    def stop(self, term: int, reason: str, planned: bool) -> None: ...

    def release(self, term: int, successor: str) -> None: ...

    async def prepare(self) -> None:
        """Before the node takes part in anything."""
        ...

    def watch_lock(self) -> None:
        """Look until the run lock is free, and tell the election."""
        ...

    def hurry(self) -> None:
        """Whoever asked for the end asks again."""
        ...

    def view(self) -> WorkloadView: ...

    def looked(self, leader: str, address: str) -> None:
        """After each step of the election: who leads, as this node sees it, and where its clients find it."""
        ...

    def counters(self) -> Mapping[str, int]: ...

    async def close(self) -> None: ...


class Spans(NamedTuple):
    """How long a stop may take."""

    planned_ms: int
    loss_ms: int
    """After the role was lost: what lies between TERM and KILL."""


@dataclass(eq=False)
class HostedWorkload:
    """Performs a workload in this process."""

    workload: Workload
    spans: Spans
    clock: Clock
    run_lock: lock.RunLock
    host: WorkloadHost
    gate: StartGate
    send: Callable[[Release], None] | None = None
    """Tells the others of a release; None where the election releases by itself, or nothing is held."""

    def __post_init__(self) -> None:
        self.gate.let_in, self.gate.tell, self.gate.note = self._begin, self.host.tell, self.host.note
        self._state = State.STOPPED
        self._term = 0
        self._since_ms = 0
        self._release: Release | None = None
        self._released = False
        """A release was ordered, and leaves as soon as nothing is left of the work."""
        self._task: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None

    # --- what the driver says -----------------------------------------------------------------------------------------

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:
        self._release, self._released = release, False
        self.gate.ask(leadership, covered)

    def extend(self, leadership: Leadership) -> None:
        if self.gate.waits:
            self.gate.renew(leadership)
        elif leadership.term == self._term and self._state is not State.STOPPING:
            self.workload.extend(leadership)

    def stop(self, term: int, reason: str, planned: bool) -> None:
        if self.gate.waits:
            self.gate.end(term)
            self.host.stepped()
        elif term == self._term and self._state is not State.STOPPING:
            self._state = State.STOPPING
            span_ms = self.spans.planned_ms if planned else self.spans.loss_ms
            self._then(self._stop(span_ms, reason))

    def release(self, term: int, successor: str) -> None:
        """Comes in one breath with the stop, which is confirmed later."""
        if self._release is not None and term == self._release.term:
            self._release, self._released = self._release._replace(successor=successor), True

    # --- what the agent says ------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        await self.workload.open()

    def watch_lock(self) -> None:
        self._look = None
        if self.run_lock.is_held():
            self._look = asyncio.get_running_loop().call_later(LOCK_LOOK_S, self.watch_lock)
        else:
            self.host.tell(RunLock(held=False))

    def hurry(self) -> None:
        """What waits politely is cut off."""
        if self._state is State.STOPPING and self._task is not None:
            self._task.cancel()
            self._task = None
            self._then(self._stop(0, "was asked to end again"))

    @property
    def state(self) -> State:
        return State.WAITING if self.gate.waits else self._state

    @property
    def term(self) -> int:
        return self._term or self.gate.gate.term

    @property
    def is_over(self) -> bool:
        return self._state is State.STOPPED and not self.gate.waits

    @property
    def is_orphaned(self) -> bool:
        return False

    def view(self) -> WorkloadView:
        return WorkloadView(self.workload.kind, self.state, self._since_ms)

    def looked(self, leader: str, address: str) -> None:
        if self._state is State.STOPPED:
            self.workload.follow(leader, address)

    def counters(self) -> Mapping[str, int]:
        return self.workload.counters()

    async def close(self) -> None:
        await self.gate.close()
        if self._look is not None:
            self._look.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._state is not State.STOPPED:
            await self.workload.stop(0, "the node ends")
        await self.workload.close()

    # --- one after the other ------------------------------------------------------------------------------------------

    def _begin(self, leadership: Leadership) -> None:
        self._state, self._term = State.STARTING, leadership.term
        self._then(self._start(leadership))

    async def _start(self, leadership: Leadership) -> None:
        if not self.run_lock.may_start:
            self.host.complain("cannot do what a leader does: the lock of this agent was removed")
            self._gone()
            return
        try:
            await self.workload.start(leadership)
        except PrimacyError as error:
            self.host.complain(f"cannot do what a leader does, and lets another one lead: {error}")
            self._gone()
            return
        if self._state is State.STARTING:
            self._state, self._since_ms = State.RUNNING, self.clock.now_ms()
            self.host.tell(WorkStarted(leadership.term))
            self.host.stepped()

    async def _stop(self, within_ms: int, reason: str) -> None:
        await self.workload.stop(within_ms, reason)
        self._gone()

    def _gone(self) -> None:
        """Confirmed. The release leaves first: from then on it binds us as it binds the others (G6)."""
        term, self._term, self._since_ms = self._term, 0, 0
        self._state = State.STOPPED
        release, self._release = self._release, None
        sends = self._released and release is not None and self.send is not None
        if sends:
            assert release is not None
            assert self.send is not None
            self.send(release)
        if term:
            self.host.tell(WorkGone(term, released=sends))
        self.host.stepped()

    def _then(self, what: Coroutine[Any, Any, None]) -> None:
        """After what is under way. A fault in it is a fault of ours, and ends the agent."""
        loop, before = asyncio.get_running_loop(), self._task

        async def wait() -> None:
            if before is not None:
                await asyncio.wait([before])
            await what

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                loop.call_exception_handler({"message": "a workload failed", "exception": fault})

        self._task = loop.create_task(wait())
        self._task.add_done_callback(done)
