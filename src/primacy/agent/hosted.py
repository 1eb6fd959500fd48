"""One of several elections of an agent: today's agent as it is, on parts that it shares with the others.

It has its own folder, lock, ballot, guard, events and token. If it cannot take part (its ballot is not to be trusted,
its store is of no use, its command ends again and again) that is said, and tried again after a while; the others do
not notice. Only a bug of ours ends all of them: half an agent would be worse than none, and the guards see to the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from primacy.agent.assemble import holding_times
from primacy.agent.chosen import take_place
from primacy.agent.control_api import write_address
from primacy.agent.lifecycle import Agent, Plan
from primacy.agent.shared import Shared
from primacy.agent.signals import EndRequest, take_turn
from primacy.agent.state import open_state
from primacy.agent.stored import opened
from primacy.control import ADDRESS_FILE, AgentPort
from primacy.control.control_server import Asked
from primacy.control.disk_thread import DiskThread
from primacy.control.eventlog import EventLog
from primacy.control.key import KEY_FILE, write_whole
from primacy.errors import Later, PrimacyError
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock
from primacy.node.log import Level, Log
from primacy.settings.schema import Settings

AGAIN_S = 15.0
"""Until one that could not take part tries again: what is wrong is mended by people, or by another start."""
END_S = 5.0
"""How long the end of an election waits for a disk that hangs: as for its events."""
STARTS = "it is starting"


class ElectionLog(Log):
    """The agent's log; each line says which election it is about."""

    def __init__(self, log: Log, election: str) -> None:
        super().__init__(log.clock, log.level, log.form, log.handle)
        self.election = election

    def say(self, level: Level, text: str, **more: str | int) -> None:
        if self.form == "json":
            super().say(level, text, election=self.election, **more)
        else:
            super().say(level, f"{self.election}: {text}", **more)


class NoPage:
    """One page shows all elections of an agent; `many.py` serves it."""

    def serve(self) -> None: ...

    async def close(self) -> None: ...


class Registry(Protocol):
    """Where the one control API finds an election."""

    said: dict[str, Any]
    key: str

    def enter(self, election: str, asked: Asked) -> None: ...
    def strike(self, election: str) -> None: ...


class HostedControl:
    """One election's part of the control API: in the folder stand the one address and the one key."""

    def __init__(
        self, registry: Registry, settings: Settings, folder: Folder, port: AgentPort, events: EventLog
    ) -> None:
        self.registry = registry
        self.election = settings.election.name
        self.folder = folder
        self.asked = Asked(port, events)

    def bind(self) -> None:
        write_whole(self.folder, KEY_FILE, f"{self.registry.key}\n".encode())
        write_address(self.folder, {**self.registry.said, "election": self.election})

    def serve(self) -> None:
        self.registry.enter(self.election, self.asked)

    async def close(self) -> None:
        """A disk that hangs is waited for for a moment only: a thread of its own, for which the end of the process does
        not wait either."""
        self.registry.strike(self.election)
        remove = partial(os.unlink, ADDRESS_FILE, dir_fd=self.folder.handle)
        disk = DiskThread("primacy-address")
        with contextlib.suppress(OSError, TimeoutError):
            try:
                removed = asyncio.wrap_future(disk.ask(remove))
            except Later:  # no thread is to be had now
                remove()
                return
            disk.end()
            async with asyncio.timeout(END_S):
                await removed


class Once:
    """Calls something the first time that it is called itself."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


def _open(settings: Settings) -> tuple[Folder, AgentLock]:
    """What only this election needs, in a thread: to load the driver of a database takes as long as a few heartbeats,
    and a folder that is made as long as the disk wants.

    Raises for an address, or a driver, that is wrong.
    """
    if settings.election.strategy == "lease":
        opened(settings, holding_times(settings)).close()
    folder = open_state(settings, os.environ, os.geteuid())
    try:
        return folder, AgentLock(folder)
    except BaseException:
        folder.close()
        raise


class Told(Protocol):
    """Who is told how each election stands, to tell the supervisor of the agent."""

    def ready(self, election: str, status: str) -> None: ...
    def status(self, election: str, status: str) -> None: ...
    def stopping(self, election: str, within_ms: int) -> None: ...


class HostedNotifier:
    """One election's words for the supervisor."""

    def __init__(self, told: Told, election: str, started: Callable[[], None]) -> None:
        """`started`: told when it is ready, or waits."""
        self.told = told
        self.election = election
        self.started = started

    def ready(self, status: str) -> None:
        self.started()
        self.told.ready(self.election, status)

    def status(self, status: str) -> None:
        self.told.status(self.election, status)

    def stopping(self, within_ms: int) -> None:
        self.told.stopping(self.election, within_ms)

    def close(self) -> None: ...


class Others(NamedTuple):
    """The other elections of the agent."""

    gives_up: Callable[[HostedElection], HostedElection | None]
    """One that is stopping the command that this one is to run."""
    ended: Callable[[HostedElection], None]
    """Told when nothing runs here any more."""


NO_OTHERS = Others(lambda _: None, lambda _: None)


class HostedElection:
    """From its first start to the end of the agent, or until the file has it no longer."""

    def __init__(
        self,
        plan: Plan,
        shared: Shared,
        told: Told,
        starts: asyncio.Semaphore,
        fault: Callable[[BaseException], None],
        others: Others = NO_OTHERS,
    ) -> None:
        """`starts`: how many may start side by side. `fault`: told of a bug of ours."""
        self.name = plan.settings.election.name
        self.plan = plan
        self.shared = shared
        self.told = told
        self.starts = starts
        self.fault = fault
        self.others = others
        self.agent: Agent | None = None
        self.why = STARTS
        """While it does not take part."""
        self.awaits: HostedElection | None = None
        """Another one, whose command this one is to run."""
        self._has_begun = False
        """From a start of its agent to the end of it."""
        self._next: Plan | None = None
        self._leaves = False
        self._end = EndRequest()
        self._changed = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._live(), name=f"election {self.name}")

    def leave(self) -> None:
        """In order, also if it stops for a change already; said again, at once."""
        stops = self._next is not None and not self._leaves
        self._leaves = True
        self.why = "it is stopping"
        self._changed.set()
        if not stops:
            self._end.ask()

    def change(self, plan: Plan) -> None:
        """Stop, confirm, start with this."""
        stops, self._next = self._next is not None, plan
        self.why = "it stops, to start anew as the file says now"
        self._changed.set()
        if not stops:  # asked again, it would end at once and not in order
            self._end.ask()

    @property
    def wanted(self) -> Plan:
        """What the file said last: that of a change while it still stops for it."""
        return self._next or self.plan

    def gives_up(self, command: tuple[str, ...]) -> bool:
        """It may run this command still, and stops, not to run it again."""
        goes = self._leaves or self.wanted.settings.run.command != command
        return self._has_begun and goes and self.plan.settings.run.command == command

    def look_again(self) -> None:
        """If it could not take part: now rather than later."""
        self._changed.set()

    async def _live(self) -> None:
        try:
            while not self._leaves:
                if self._next is not None:
                    self.plan, self._next = self._next, None
                self._end = EndRequest()
                self._changed.clear()
                await self._others_end()
                if self._asked_meanwhile():
                    continue
                self._has_begun = True
                code = await self._once()
                self._has_begun = False
                self.others.ended(self)
                if self._asked_meanwhile():
                    continue
                self.told.ready(self.name, f"{self.name}: {self.why}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if self._is_done(code) else AGAIN_S):
                        await self._changed.wait()
        except Exception as fault:  # noqa: BLE001  (a bug of ours; all of them end with it)
            self.fault(fault)

    async def _others_end(self) -> None:
        """Until no other election of this agent is stopping the command that is to run here: it would run twice."""
        while not self._asked_meanwhile() and (other := self.others.gives_up(self)) is not None:
            if other is not self.awaits:
                self.why = f"it begins when {other.name}, which had the same command, has ended"
                self.plan.log.info(self.why)
                self.told.ready(self.name, f"{self.name}: {self.why}")
            self.awaits = other
            await self._changed.wait()
            self._changed.clear()
        if self.awaits is not None and not self._asked_meanwhile():
            self.why = STARTS
        self.awaits = None

    def _asked_meanwhile(self) -> bool:
        return self._leaves or self._next is not None

    async def _once(self) -> int | None:
        """One life of its agent. Returns its exit code, or None if it could not take part."""
        before = self.why
        try:
            code = await self._run()
            self.why = f"its command has ended with {code}, and is not started again here"
            if not self._is_done(code):
                self.why = f"its command ended with {code} again and again; this node tries again soon"
        except (PrimacyError, OSError) as error:
            named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            sentence = (error.strerror or "") if isinstance(error, OSError) else str(error)
            self.why = named + sentence
            if self.why != before:  # else it was said already
                self.plan.log.error(f"does not take part here: {self.why}; tried again every {AGAIN_S:.0f} s")
            return None
        return code

    def _is_done(self, code: int | None) -> bool:
        """The command has ended as it should, for good."""
        restart = self.plan.settings.run.restart
        return code is not None and (restart == "never" or (restart == "on-failure" and code == 0))

    async def _run(self) -> int:
        plan, end = self.plan, self._end
        await self.starts.acquire()
        with contextlib.ExitStack() as ends:
            started = Once(self.starts.release)
            ends.callback(started)
            notifier = HostedNotifier(self.told, self.name, started)
            folder, lock = await asyncio.to_thread(_open, plan.settings)
            ends.callback(folder.close)
            ends.callback(lock.close)
            await take_turn(lock, f"election {self.name}", plan.log, end, notifier)
            if end.exit_code is not None:
                return 0
            taking = partial(take_place, plan.settings, folder, plan.log, aligned=True, threads=self.shared.threads)
            place = await asyncio.to_thread(taking)
            try:
                agent = self.agent = Agent(plan, place, end, notifier, self.shared)
            except BaseException:
                place.run_lock.close()  # an agent that was made closes it itself
                raise
            try:
                return await agent.live()
            finally:
                self.agent = None
                await agent.close()
