"""`primacy slots serve` without a cluster: this node always leads, as a file without one means in seed 000."""

from __future__ import annotations

import asyncio

from primacy.agent.asked import Asked
from primacy.agent.log import Log
from primacy.agent.slots_duty import served, server_of
from primacy.loop import QuickLoop
from primacy.node.clock import Clock
from primacy.settings.schema import Settings
from primacy.slots.host import FOR_EVER_MS
from primacy.slots.server import listening


def serve_alone(settings: Settings, log: Log, clock: Clock) -> int:
    """Until a signal ends it; returns the exit code."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(_serve(settings, log, clock))


async def _serve(settings: Settings, log: Log, clock: Clock) -> int:
    asked = Asked()
    sockets = listening(settings.slots.addr)
    server = server_of(settings, clock, log.warn)
    try:
        await server.start(sockets)
        server.lead(FOR_EVER_MS)
        log.info(served(settings, server.address))
        await asked.event.wait()
    finally:
        await server.close()
        await asked.settle()
    return asked.exit_code or 0
