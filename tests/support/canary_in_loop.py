"""A canary that sits in the very loop of a test: it notes how late that loop lets a task go on.

Many nodes in one loop are late together whenever it is, for whatever reason: one processor of two stood still, or all
of them had something to do at once. A process beside it, as in `canary.py`, sees neither. What fails meanwhile is tried
again, as beside the canary of all tests: three times in all at most, and the last one counts. Never safety.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.canary import TriedAgain
from tests.support.safety_checks import violation_in

EVERY_S = 0.02
LATE_MS = 60.0
"""A quarter of what the nodes of these tests wait for an answer (`lan`), which takes some turns of the loop to come."""


@contextlib.asynccontextmanager
async def canary_in_loop(late_ms: float = LATE_MS) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    worst_s, due_s = 0.0, loop.time() + EVERY_S

    async def sit() -> None:
        nonlocal worst_s, due_s
        while True:
            await asyncio.sleep(due_s - loop.time())
            worst_s = max(worst_s, loop.time() - due_s)
            due_s = loop.time() + EVERY_S

    sitting = loop.create_task(sit())
    try:
        yield
    except (Exception, pytest.fail.Exception) as fault:
        found_ms = 1_000 * max(worst_s, loop.time() - due_s)  # it may have failed by what has just made it late
        if found_ms <= late_ms or violation_in(fault) is not None:
            raise
        raise TriedAgain(f"the loop of the test was {found_ms:.0f} ms late (failed: {fault!r:.200})") from fault
    finally:
        sitting.cancel()
