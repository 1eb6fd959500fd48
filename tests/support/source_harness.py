"""Calls of sources of one peer, without the rest of it: what ended, how, and when."""

from __future__ import annotations

import asyncio
import stat
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from primacy.cache.effects import Call
from primacy.cache.inputs import SourceEnded
from primacy.cache.model import Ballot, Failure, Fetched
from primacy.cache.source import Calls, SourceSpec
from primacy.node.clock import SystemClock

BALLOT = Ballot(1, "tcp://127.0.0.1:1", 1)
HOSTILE = [
    b"plain",
    b"two words",
    b'it\'s "quoted"',
    b"-rf",
    b"--",
    b"$(touch /tmp/never) `id` ; | & > x",
    b"{key}",
    b"*",
    b"../../etc/passwd",
    b"line\nbreak\ttab",
    b"\xff\xfe\x80 not text",
    "grün".encode(),
    b"%41%00",
    b"x" * 8_000,
]
"""Keys that mean something to a shell, a path, a URL or a template."""
LIMIT_S = 60.0
"""For whatever must come: only a hang reaches it."""


class Harness:
    """Calls of one peer, and what ended."""

    def __init__(self, *specs: SourceSpec, **more: Any) -> None:
        self.clock = SystemClock()
        self.ended: asyncio.Queue[SourceEnded] = asyncio.Queue()
        self.left: list[str] = []
        self.alerts: list[str] = []
        self.calls = Calls(
            specs, self.clock, self.ended.put_nowait, leave=self.left.append, on_alert=self.alerts.append, **more
        )

    def start(self, key: bytes, cancel_ms: int = 20_000, over_ms: int = 20_150, ballot: Ballot = BALLOT) -> int:
        """Says when it must be over."""
        now = self.clock.now_ms()
        self.calls.start(Call(key, ballot, now + cancel_ms, now + over_ms))
        return now + over_ms

    async def end(self) -> SourceEnded:
        return await asyncio.wait_for(self.ended.get(), LIMIT_S)

    async def get(self, key: bytes) -> Fetched | Failure:
        self.start(key)
        found = await self.end()
        assert (found.key, found.ballot) == (key, BALLOT)
        return found.result


def with_harness(work: Callable[[Harness], Awaitable[None]], *specs: SourceSpec, **more: Any) -> Harness:
    async def main() -> Harness:
        harness = Harness(*specs, **more)
        await harness.calls.open()
        try:
            await work(harness)
        finally:
            await harness.calls.close()
        assert harness.calls.running == 0
        assert harness.ended.empty(), "each call ends once"
        return harness

    return asyncio.run(main())


def script(tmp_path: Path, text: str, name: str = "fetch") -> str:
    """A program of the user's, in a folder of his."""
    file = tmp_path / name
    file.write_text("#!/bin/bash\n" + textwrap.dedent(text))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def reason(found: Fetched | Failure) -> str:
    assert isinstance(found, Failure), found
    return found.reason
