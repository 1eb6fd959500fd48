"""Waiting for what a process, a thread or a task will have done: one loop for all tests, with a bound and a sentence.

Who calls it says how long it may take and how often is looked. A bound is for what hangs: how soon something came is
judged by the moments that it left behind, not by this.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
Told = Callable[[], object]
"""Says more about what was waited for in vain; asked only then."""


def wait_until(
    check: Callable[[], Found], what: str = "", within_s: float = 60.0, every_s: float = 0.003, told: Told | None = None
) -> Found:
    """What `check` gives, once it is true."""
    last_s = time.monotonic() + within_s
    while not (found := check()):
        assert time.monotonic() < last_s, _in_vain(what, within_s, told)
        time.sleep(every_s)
    return found


async def wait_until_async(
    check: Callable[[], Found], what: str = "", within_s: float = 60.0, every_s: float = 0.01, told: Told | None = None
) -> Found:
    """The same inside of a loop, whose other tasks go on meanwhile."""
    loop = asyncio.get_running_loop()
    last_s = loop.time() + within_s
    while not (found := check()):
        assert loop.time() < last_s, _in_vain(what, within_s, told)
        await asyncio.sleep(every_s)
    return found


WITHIN_THE_TEST_S = math.inf
"""As long as the test may take, which has a bound of its own."""


def _in_vain(what: str, within_s: float, told: Told | None) -> str:
    return f"never came within {within_s} s: {what or 'what was waited for'}" + ("" if told is None else f"\n{told()}")
