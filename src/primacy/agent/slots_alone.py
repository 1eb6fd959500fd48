"""`primacy slots serve` without a cluster: this node always leads, as a file without one means in Ghoti.

Nothing is elected and nothing is kept, so that there is no state folder, no lock and no control API: several may run on
one machine. What anybody may read of a node (`control.public`: /leader, /healthz, /metrics) is there if asked for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from primacy.agent.signals import EndSignals
from primacy.agent.slots_workload import served, server_of
from primacy.control import NodeStatus
from primacy.election.model import Role, View
from primacy.loop import QuickLoop
from primacy.node.clock import Clock
from primacy.node.log import Log
from primacy.settings.names import host_name
from primacy.settings.schema import Settings
from primacy.slots.host import FOR_EVER_MS, Host
from primacy.slots.line_server import listening
from primacy.supervise.vocabulary import State
from primacy.supervise.workload import WorkloadView

if TYPE_CHECKING:
    from primacy.control.control_server import PublicServer

HOLD_MS = 1
"""Shown as left of a hold that never ends: it leads."""


def serve_alone(settings: Settings, log: Log, clock: Clock) -> int:
    """Until a signal ends it; returns the exit code."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(_serve(settings, log, clock))


async def _serve(settings: Settings, log: Log, clock: Clock) -> int:
    signals = EndSignals()
    sockets = listening(settings.slots.addr)
    server = server_of(settings, clock, log.warn)
    open_: list[PublicServer] = []
    try:
        await server.start(sockets)
        server.lead(FOR_EVER_MS)
        log.info(served(settings, server.address))
        open_ = await _public(Alone(settings, server, log, clock))
        await signals.event.wait()
    finally:
        await server.close()
        for each in open_:
            await each.close()
        await signals.settle()
    return signals.exit_code or 0


async def _public(shown: Alone) -> list[PublicServer]:
    wanted = shown.settings.control.public
    if not wanted:
        return []
    from primacy.control.control_server import PublicServer  # noqa: PLC0415  aiohttp takes as long to load as all else

    open_ = []
    for sock in listening(wanted, "control.public"):
        open_.append(PublicServer(shown))
        await open_[-1].start(sock)
    return open_


class Alone:
    """A node that leads without an election, as others see it."""

    def __init__(self, settings: Settings, server: Host, log: Log, clock: Clock) -> None:
        self.settings, self.server, self.log, self.clock = settings, server, log, clock
        self.node = settings.node or host_name()
        self.since_ms = clock.now_ms()

    def status(self) -> NodeStatus:
        return NodeStatus(
            settings=self.settings,
            node=self.node,
            view=View(Role.LEADER, self.node, 0, "", 0, HOLD_MS, (self.node,), ""),
            workload=WorkloadView("slots", State.RUNNING, self.since_ms),
            heard_ms={},
            counters=self.server.figures(),
            now_ms=self.clock.now_ms(),
            wall_ms=self.clock.wall_ms(),
            ending=False,
        )

    def complain(self, sentence: str) -> None:
        self.log.warn(sentence)
