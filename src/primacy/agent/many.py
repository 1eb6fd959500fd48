"""An agent with several elections: one process, one event loop, one UDP port, one control API.

Each election is an agent as it would be alone (`hosted.py`); here stands what they share, and what is about all of
them: signals, the file read again, the word to the supervisor. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import resource
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from primacy.agent.assemble import is_alone, refuse
from primacy.agent.control_api import ControlSockets
from primacy.agent.events import WRITER
from primacy.agent.hosted import ElectionLog, HostedControl, HostedElection, NoPage, Others
from primacy.agent.lifecycle import SAY_AGAIN_MS, Agent, Plan
from primacy.agent.notify import Notifier
from primacy.agent.page import Page
from primacy.agent.performer import sweep_lease_folders
from primacy.agent.placing import Placing
from primacy.agent.shared import Shared
from primacy.agent.signals import EndSignals, take_turn
from primacy.agent.state import agent_folder, is_elsewhere, room_in, state_root
from primacy.agent.stored import SharedThreads
from primacy.control import AgentPort
from primacy.control.control_server import Asked, PublicServer
from primacy.control.disk_thread import DiskThread
from primacy.control.eventlog import EventLog
from primacy.control.loopback import LoopbackServer
from primacy.errors import CannotHere, PrimacyError, Refused, UsageError
from primacy.loop import QuickLoop
from primacy.node.clock import Clock
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock
from primacy.node.log import Log
from primacy.rate_limiter import RateLimiter
from primacy.settings.elections import few, of_election
from primacy.settings.names import host_name
from primacy.settings.schema import Settings
from primacy.supervise.child import child_of
from primacy.supervise.process_workload import Reserve
from primacy.transport.shared_sockets import SharedSockets
from primacy.transport.shared_udp import SharedTransport

HANDLES_EACH = 24
"""Descriptors that one election may need: folder, locks, events, two guards with their pipes, a store."""
HANDLES_LEAST = 256
SAVES_MAX = 8
"""Ballots that are saved side by side. A disk that hangs holds up as many elections, and then all that vote."""
STARTS_MAX = 2
"""Elections that start side by side: each has a guard to start, and those that run must not wait for that."""
GUARDS_READY_LEAST, GUARDS_READY_PART = 4, 4
"""Guards in reserve: at least so many, and one for so many elections."""
NAMED_MAX = 5
"""Elections that the supervisor is told by name."""


class ManyPlan(NamedTuple):
    """All that the agent needs to know."""

    settings: Settings
    log: Log
    clock: Clock
    again: Callable[[], ManyPlan]
    """The same by the file as it is now, with what the command line says put over it. Raises `UsageError`."""


def run(plan: ManyPlan) -> int:
    """Until the end; returns the exit code."""
    if not sys.platform.startswith("linux"):
        raise CannotHere("a node of primacy needs Linux: it uses kernel clocks, timers and process namespaces")
    plans_of(plan.settings, plan.log, plan.clock)  # what is wrong is said before anything is started
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(_run(plan))


async def _run(plan: ManyPlan) -> int:
    agent = ManyAgent(plan)
    signals = EndSignals(agent.reload_quietly)
    try:
        return await agent.run(signals)
    finally:
        await signals.settle()


def plans_of(settings: Settings, log: Log, clock: Clock) -> dict[str, Plan]:
    """A plan for each election. Raises `UsageError` with all that is wrong with any of them."""
    if not settings.elections:
        raise UsageError(
            f"{settings.source or 'the file'} has no `elections`; for one election: primacy run -- COMMAND, or give it "
            "a name: elections: {NAME: {run: {command: [...]}}}"
        )
    made, wrong = {}, []
    for name in settings.elections:
        one = of_election(settings, name)
        try:
            refuse(one, allow_split_brain=False)
            child = child_of(one.run, os.path.dirname(one.source), None, None, os.environ)
            made[name] = Plan(one, child, ElectionLog(log, name), clock)
        except PrimacyError as error:
            wrong.append(f"elections.{name}: {error}")
    if wrong:
        raise UsageError("\n".join(wrong))
    return made


class ManyControl(ControlSockets):
    """The one control API."""

    def __init__(self, agent: ManyAgent, folder: Folder, node: str) -> None:
        super().__init__(agent.settings, folder, node, agent.complain)
        self.agent = agent
        self.present: dict[str, Asked] = {}

    def enter(self, election: str, asked: Asked) -> None:
        self.present[election] = asked

    def strike(self, election: str) -> None:
        self.present.pop(election, None)

    async def _servers(self, host: str) -> tuple[LoopbackServer, LoopbackServer]:
        server = await asyncio.to_thread(_load)
        own = server(self.agent, self.key, host, lab=self.settings.control.lab)
        return own, PublicServer(_Complains(self.agent.complain), own)


class _Complains(NamedTuple):
    complain: Callable[[str], None]

    def status(self) -> Any:
        raise AssertionError("each election shows its own")


def _load() -> Any:
    from primacy.control.many_server import ManyControlServer  # noqa: PLC0415

    return ManyControlServer


class ManyAgent:
    """The elections of one process, and what they share."""

    def __init__(self, plan: ManyPlan) -> None:
        self._use(plan)
        self.hosted: dict[str, HostedElection] = {}
        self.leaving: dict[str, HostedElection] = {}
        """The file has them no longer; they are being stopped."""
        self._fault: BaseException | None = None
        self._broken_said = RateLimiter(SAY_AGAIN_MS)
        self._ended = asyncio.Event()
        self._ending = self._is_live = False
        self._reload = asyncio.Lock()
        """One at a time: each reads the file when the one before it has been taken."""
        self._reloading: asyncio.Task[None] | None = None
        self._asked_to_reload = False
        self._starts = asyncio.Semaphore(STARTS_MAX)
        self._others = Others(self._gives_up, self._nothing_runs)

    async def run(self, signals: EndSignals) -> int:
        with contextlib.closing(Notifier(os.environ, os.getpid())) as notifier:
            while True:
                with contextlib.ExitStack() as ends:
                    folder = agent_folder(self.settings, os.environ, os.geteuid())
                    ends.callback(folder.close)
                    lock = AgentLock(folder)
                    ends.callback(lock.close)
                    what = f"the agent of cluster {self.settings.cluster.name}"
                    with room_in(folder):
                        waited = await take_turn(lock, what, self.log, signals, notifier)
                    if signals.exit_code is not None:
                        return signals.exit_code
                    if waited and await self._file_elsewhere():
                        continue  # it is another agent's turn there, perhaps
                    asyncio.get_running_loop().set_exception_handler(self._broken)
                    sweep_lease_folders(self.plan.clock)
                    return await self._live(folder, signals, Supervisor(notifier))

    def _use(self, plan: ManyPlan) -> None:
        self.plan = plan
        self.settings = plan.settings
        self.log = plan.log
        self.node = plan.settings.node or host_name()

    async def _file_elsewhere(self) -> bool:
        """Reads the file again, which may have changed while this agent waited. Returns whether its folder has, too.

        Raises `UsageError`, as a start would.
        """

        def read() -> ManyPlan:
            plan = self.plan.again()
            plans_of(plan.settings, plan.log, plan.clock)
            return plan

        before, self._asked_to_reload = self.settings, False
        self._use(await asyncio.to_thread(read))
        return is_elsewhere(self.settings, before, os.environ, os.geteuid())

    async def _live(self, folder: Folder, signals: EndSignals, supervisor: Supervisor) -> int:
        self.supervisor = supervisor
        self.sockets = SharedSockets(self.log.warn)
        self.threads = SharedThreads(self.log.warn)
        self.reserve = Reserve(_guards_ready(len(self.settings.elections)))
        self.saves = ThreadPoolExecutor(SAVES_MAX, thread_name_prefix="primacy-save", initializer=signals.block)
        self.disk = DiskThread(WRITER)
        self.control = ManyControl(self, folder, self.node)
        self.placing = Placing(self.node, self.plan.clock, folder, self._agents, self.log.info)
        self.placing.use(self.settings)
        page = Page(self.settings, self.node, state_root(self.settings, os.environ, os.geteuid()), self.log.warn)
        try:
            self.control.bind()
            _raise_limit(len(self.settings.elections))
            supervisor.awaited = set(self.settings.elections)
            for plan in plans_of(self.settings, self.log, self.plan.clock).values():
                self._begin(plan)
            self.control.serve()
            page.serve()
            self.placing.start()
            self._is_live = True
            signals.told = self._end
            if signals.exit_code is not None:
                self._end(1)
            if self._asked_to_reload:
                self.reload_quietly()
            await self._all_over()
        finally:
            signals.told = None
            self.placing.close()
            await page.close()
            await self.control.close()
            self.sockets.close()
            self.saves.shutdown(wait=False)
            self.disk.end()
        if self._fault is not None:
            raise self._fault
        return signals.exit_code or 0

    async def _all_over(self) -> None:
        """Until the end is wanted and every election has ended."""
        while not self._ending or self.hosted or self.leaving:
            await self._ended.wait()
            self._ended.clear()

    # --- elections ----------------------------------------------------------------------------------------------------

    def _begin(self, plan: Plan) -> None:
        one = HostedElection(plan, self._shared(), self.supervisor, self._starts, self.fail, self._others)
        self.hosted[one.name] = one
        self.sockets.expect_others()
        one.task.add_done_callback(partial(self._over, one))

    def _shared(self) -> Shared:
        transport = partial(SharedTransport, self.sockets)
        own = (transport, self._control_of, lambda *_: NoPage(), self.threads, self.saves, self.disk)
        return Shared(*own, aside=self.placing.aside, reserve=self.reserve, of_agents=self.placing)

    def _agents(self) -> dict[str, Agent]:
        """Of the elections that take part here now, in the order of their names."""
        present = self.control.present
        found = {name: one.agent for name, one in self.hosted.items() if name in present}
        return {name: agent for name, agent in sorted(found.items()) if agent is not None}

    def _control_of(
        self,
        settings: Settings,
        folder: Folder,
        _node: str,
        port: AgentPort,
        events: EventLog,
    ) -> HostedControl:
        return HostedControl(self.control, settings, folder, port, events)

    def _gives_up(self, one: HostedElection) -> HostedElection | None:
        command = one.plan.settings.run.command
        return next(
            (other for other in (*self.leaving.values(), *self.hosted.values()) if other.gives_up(command)), None
        )

    def _nothing_runs(self, ended: HostedElection) -> None:
        for one in self.hosted.values():
            if one.awaits is ended:
                one.look_again()

    def _over(self, one: HostedElection, task: asyncio.Task[None]) -> None:
        for among in (self.hosted, self.leaving):
            if among.get(one.name) is one:
                del among[one.name]
        self.supervisor.gone(one.name)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.fail(fault)
        self._ended.set()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, times: int) -> None:
        """Each of them in order, side by side; asked again, at once. Those that are leaving were asked once already."""
        self._ending = self.supervisor.ends = True
        self.placing.close()
        for one in (*self.hosted.values(), *(self.leaving.values() if times > 1 else ())):
            one.leave()
        self._ended.set()

    def fail(self, fault: BaseException) -> None:
        """A bug of ours."""
        if self._fault is None:
            self._fault = fault
        self._ending = True
        for one in (*self.hosted.values(), *self.leaving.values()):
            one.leave()
            if one.agent is not None:
                one.agent.abandon()
        self._ended.set()

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        """As of an agent alone: a connection that failed is no bug."""
        fault = context.get("exception")
        if isinstance(fault, OSError) and ("socket" in context or "transport" in context):
            said = f"{context.get('message')}: {fault.strerror or type(fault).__name__}"
            if self._broken_said.passes(self.plan.clock.now_ms(), said):
                self.log.warn(said)
            return
        self.fail(fault if isinstance(fault, BaseException) else RuntimeError(str(context.get("message"))))

    # --- what the control API asks ------------------------------------------------------------------------------------

    def present(self) -> Mapping[str, Asked]:
        return self.control.present

    def absent(self) -> Mapping[str, str]:
        every = {**self.leaving, **self.hosted}
        return {name: one.why for name, one in every.items() if name not in self.control.present}

    def describe(self) -> dict[str, Any]:
        datagrams = dict(sorted(self.sockets.drops.counters.items()))
        settings = self.settings
        return {"cluster": settings.cluster.name, "node": self.node, "file": settings.source, "datagrams": datagrams}

    def complain(self, sentence: str) -> None:
        self.log.warn(sentence)

    # --- the file, again ----------------------------------------------------------------------------------------------

    def reload_quietly(self) -> None:
        """By a signal: nobody waits for an answer. Many of them, while the file is read, are one more time."""
        if not self._is_live and not self._asked_to_reload:
            self.log.info("was asked to read its file again: it does when it begins")
        self._asked_to_reload = True
        if self._is_live and self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload_quietly())

    async def _reload_quietly(self) -> None:
        try:
            while self._asked_to_reload and not self._ending:
                self._asked_to_reload = False
                try:
                    await self.reload()
                except PrimacyError as error:
                    self.log.error(f"the file was not taken, and nothing was changed: {error}")
        finally:
            self._reloading = None

    async def reload(self) -> dict[str, Any]:
        """Adds, removes and changes elections; the others go on untouched. All or nothing is taken.

        The file is read in a thread: a long one takes longer than a heartbeat may wait.
        """
        if not self._is_live:
            raise Refused("this agent has not begun yet; say it again when it has")
        async with self._reload:
            settings, plans = await asyncio.to_thread(self._read_again)
            return self._take(settings, plans)

    def _take(self, settings: Settings, plans: dict[str, Plan]) -> dict[str, Any]:
        if self._ending:
            raise Refused("this agent is stopping, and reads no file any more")
        self._refuse_other_parts(settings)
        if busy := [name for name in plans if name in self.leaving]:
            raise Refused(f"{', '.join(busy)}: it was removed and is still being stopped; say it again in a moment")
        added = [name for name in plans if name not in self.hosted]
        removed = [name for name in self.hosted if name not in plans]
        changed = [name for name, one in self.hosted.items() if name in plans and _differs(one, plans[name])]
        warnings = _taken_over({name: one.wanted for name, one in self.hosted.items()}, plans)
        _raise_limit(len(plans))
        self.reserve.most = _guards_ready(len(plans))
        self.settings = settings
        self.placing.use(settings)
        self.sockets.expect_others()
        for name in removed:
            self.leaving[name] = self.hosted.pop(name)
            self.leaving[name].leave()
        for name in changed:
            self.hosted[name].change(plans[name])
        for name in added:
            self._begin(plans[name])
        for name, one in self.hosted.items():
            if name not in added and name not in changed:
                one.look_again()
        done = {"added": added, "removed": removed, "changed": changed}
        said = [f"{word} {few(dict.fromkeys(names))}" for word, names in done.items() if names]
        self.log.info(f"the file was read again: {'; '.join(said) or 'it has the same elections as before'}")
        for sentence in warnings:
            self.log.warn(sentence)
        return {"api": 1, **self.describe(), **done, "elections": sorted(plans), "warnings": warnings}

    def _read_again(self) -> tuple[Settings, dict[str, Plan]]:
        settings = self.plan.again().settings
        return settings, plans_of(settings, self.log, self.plan.clock)

    def _refuse_other_parts(self, settings: Settings) -> None:
        of_elections = ("elections", "election", "run")
        parts = [
            field.name
            for field in dataclasses.fields(settings)
            if field.name not in of_elections and getattr(settings, field.name) != getattr(self.settings, field.name)
        ]
        if parts:
            raise Refused(
                f"{', '.join(parts)} of {settings.source} has changed, and only elections are taken up without a "
                "restart; nothing was changed. Put it back, or restart this agent"
            )


class Supervisor:
    """What systemd is told, of all elections together."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier
        self.awaited: set[str] = set()
        """Those that were not ready yet."""
        self.ends = False
        """The whole agent does."""
        self._lines: dict[str, str] = {}
        self._ready = False
        self._within_ms = 0

    def ready(self, election: str, status: str) -> None:
        self._lines[election] = status
        self.awaited.discard(election)
        if not self.awaited and not self._ready:
            self._ready = True
            self.notifier.ready(self._line())

    def status(self, election: str, status: str) -> None:
        self._lines[election] = status
        if self._ready:
            self.notifier.status(self._line())

    def stopping(self, election: str, within_ms: int) -> None:  # noqa: ARG002
        """Of one that the file has no longer, nothing; of all, as long as the slowest may take."""
        self._within_ms = max(self._within_ms, within_ms)
        if self.ends:
            self.notifier.stopping(self._within_ms)

    def gone(self, election: str) -> None:
        self._lines.pop(election, None)
        self.awaited.discard(election)

    def _line(self) -> str:
        leads = [name for name, line in self._lines.items() if line.startswith("leads")]
        named = f": {', '.join(leads[:NAMED_MAX])}{' …' if len(leads) > NAMED_MAX else ''}" if leads else ""
        return f"{len(self._lines)} elections; leads {len(leads)}{named}"


def _differs(one: HostedElection, plan: Plan) -> bool:
    """What it runs with, or starts with when it has stopped, is not what the file says now."""
    current = one.wanted
    return current.settings != plan.settings or current.child != plan.child


def _taken_over(before: Mapping[str, Plan], after: Mapping[str, Plan]) -> list[str]:
    """What to know of each election that has the command now which another one had: of one that was renamed."""
    said = []
    ran, runs = ({name: plan.settings.run.command for name, plan in plans.items()} for plans in (before, after))
    given_up = {command: name for name, command in ran.items() if runs.get(name) != command}
    for name, command in runs.items():
        old = given_up.get(command)
        if old is None or ran.get(name) == command:
            continue
        sentence = (
            f"{name} has the command that {old} had, and is another election: it begins here when {old} has ended"
        )
        if not is_alone(before[old].settings):
            elsewhere = (
                f". A node that has the old file may run it meanwhile: where it must never run twice, take {old}"
            )
            sentence += f"{elsewhere} out, reload on each node, and then add {name}"
        said.append(sentence)
    return said


def _guards_ready(elections: int) -> int:
    """For as many as one of two other nodes takes over at once when a third of all lose their node, and a few."""
    return max(GUARDS_READY_LEAST, -(-elections // GUARDS_READY_PART))


def _raise_limit(elections: int) -> None:
    """Descriptors for all of them, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HANDLES_LEAST + HANDLES_EACH * elections
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))
