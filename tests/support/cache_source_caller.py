"""A peer without a machine: one call of one source, whose hold it proves anew every 100 ms. For tests that kill it.

    python -m tests.support.cache_source_caller SOURCE KEY [on_overrun]

CALLER_GUARD in the environment: the folder of another guard, with a defect.

Prints `open`, then `hold OVER_AT` with each extension, then `ended RESULT`, and ends. Times are ms of CLOCK_BOOTTIME.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from primacy.cache import source_guard
from primacy.cache.effects import Call, Extend
from primacy.cache.inputs import SourceEnded
from primacy.cache.model import Ballot, Failure
from primacy.cache.source import Calls, SourceSpec
from primacy.node.clock import SystemClock

CANCEL_MS, OVER_MS, EVERY_S = 1_200, 1_500, 0.1
"""More than twice those of the profile, so that a busy machine does not end the hold before the test does."""
BALLOT = Ballot(1, "tcp://127.0.0.1:1", 1)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def main(source: str, key: str, on_overrun: str = "exit") -> None:
    clock, ended = SystemClock(), asyncio.get_running_loop().create_future()

    def heard(given: SourceEnded) -> None:
        if not ended.done():
            ended.set_result(given.result)

    calls = Calls([SourceSpec(source)], clock, heard, on_overrun=on_overrun, on_alert=lambda text: say(f"alert {text}"))
    await calls.open()
    say("open")
    now = clock.now_ms()
    calls.start(Call(key.encode(), BALLOT, now + CANCEL_MS, now + OVER_MS))
    say(f"hold {now + OVER_MS}")
    last = now
    while not ended.done():
        now = clock.now_ms()
        if now - last < CANCEL_MS:  # a hold that ran out while this process stood still is not proved anew
            say(f"hold {now + OVER_MS}")  # before: what is killed in between has said too much, never too little
            calls.extend(Extend(key.encode(), BALLOT, now + CANCEL_MS, now + OVER_MS))
            last = now
        await asyncio.wait([ended], timeout=EVERY_S)
    result = ended.result()
    said = f"failed {result.reason}" if isinstance(result, Failure) else f"value {len(result.value)}"
    say(f"ended {said}")
    await calls.close()


if __name__ == "__main__":
    source_guard.FOLDER = Path(os.environ.get("CALLER_GUARD", source_guard.FOLDER))
    asyncio.run(main(*sys.argv[1:]))
