"""Drills from the page: `primacy drill` as a process of its own, so that a page that ends takes no fault with it.

In a lab only. A drill of a cluster that matters is begun where its operator types yes. One runs at a time, for all
browsers; what it said and what came of it is kept until the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from primacy.drill.catalogue import LAB, chosen, offered
from primacy.drill.page import page
from primacy.errors import Refused, UsageError

LINES_MAX = 400
NAMES_MAX = 40
END_S = 20.0
"""How long a drill may take to end its fault when the page's server ends."""
REPORT_BYTES_MAX = 64_000_000
FIELDS = ("kept", "verdict", "began", "ended", "summary", "plan", "done", "interrupted")
"""Of the report, for the page; the timeline is in the file."""
BY_HAND = (
    "This cluster is no lab: a drill stops and moves its command, so it is begun in a terminal, where it asks first. "
    "Say: primacy drill --config FILE"
)


class Drills:
    """The drill of one lab."""

    def __init__(self, folder: str) -> None:
        """`folder`: the lab's; empty: this is no lab."""
        self.folder = folder
        self.lines: list[str] = []
        self.report: dict[str, Any] | None = None
        self.code: int | None = None
        self.began_unix_ms = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._watching is not None and not self._watching.done()

    def shown(self, strategy: str) -> dict[str, Any]:
        """`GET /dashboard/drill`."""
        report = {name: self.report[name] for name in FIELDS} if self.report is not None else None
        return {
            "by_hand": "" if self.folder else BY_HAND,
            "offered": [
                {"name": each.name, "fault": each.fault, "title": each.title, "must": each.must}
                | {"beyond_quorum": each.beyond_quorum}
                for each in (offered(LAB, strategy) if self.folder else ())
            ],
            "running": self.is_running,
            "began_unix_ms": self.began_unix_ms,
            "lines": self.lines,
            "code": self.code,
            "report": report,
        }

    async def begin(self, body: dict[str, Any], strategy: str) -> None:
        """Raises `UsageError` or `Refused`."""
        names, beyond = body.get("scenarios", []), body.get("beyond_quorum", False)
        right = isinstance(names, list) and len(names) <= NAMES_MAX and all(isinstance(name, str) for name in names)
        if body.keys() - {"scenarios", "beyond_quorum"} or not right or not isinstance(beyond, bool):
            raise UsageError('say {"scenarios": ["kill"], "beyond_quorum": false}; no scenario means all')
        if not self.folder:
            raise Refused(BY_HAND)
        if self.is_running:
            raise Refused("a drill runs already; stop it first, or wait for its end")
        plan = chosen(tuple(names), LAB, strategy, beyond_quorum=beyond)
        self.lines, self.report, self.code = [], None, None
        self.began_unix_ms = time.time_ns() // 1_000_000
        self._process = await asyncio.create_subprocess_exec(
            *self._call([each.name for each in plan] if names else [], beyond=beyond),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=REPORT_BYTES_MAX,
        )
        self._watching = asyncio.create_task(self._watch(self._process))

    def _call(self, names: Sequence[str], *, beyond: bool) -> list[str]:
        call = [sys.executable, "-m", "primacy.cli.main", "drill", "--lab", self.folder, "--json"]
        for name in names:
            call += ["--scenario", name]
        return [*call, *(["--beyond-quorum"] if beyond else [])]

    async def stop(self) -> None:
        """As Ctrl-C: the fault is ended, and the report has what there was."""
        if self._process is None or not self.is_running:
            raise Refused("no drill runs")
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    async def close(self) -> None:
        if self.is_running and self._watching is not None:
            await self.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await asyncio.shield(self._watching)

    def file(self) -> str:
        """The report as a page of its own. Raises `Refused`."""
        if self.report is None:
            raise Refused("no drill has ended here yet")
        return page(self.report)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        whole, _ = await asyncio.gather(process.stdout.read(), self._follow(process.stderr))
        self.code = await process.wait()
        with contextlib.suppress(ValueError):  # it ended before there was a report: its last line says why
            self.report = json.loads(whole)

    async def _follow(self, said: asyncio.StreamReader) -> None:
        async for line in said:
            self.lines.append(line.decode(errors="replace").rstrip()[:500])
            del self.lines[:-LINES_MAX]
