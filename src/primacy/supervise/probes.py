"""Asks the probes: a command, a URL, a port. The pure machine says when, and what follows.

Each question has a limit of time and never holds up the node: commands are processes that the loop watches, the rest
waits on sockets. aiohttp is loaded only where a URL is asked, and beside the running node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never
from urllib.parse import urlsplit, urlunsplit

from primacy.election.inputs import Health
from primacy.errors import Refused
from primacy.node.bound import outer_environment
from primacy.node.clock import Clock
from primacy.settings.schema_work import Probe
from primacy.supervise import health
from primacy.supervise.health import HealthWatch, Rule
from primacy.supervise.short_command import ShortCommand

WELL = range(200, 300)
"""What a URL answers when all is well."""


def rule_of(probe: Probe) -> Rule:
    return Rule(
        name_of(probe),
        probe.when == "running",
        probe.every_ms,
        probe.failures,
        probe.successes,
        probe.start_ms,
        probe.rest_ms,
    )


def name_of(probe: Probe) -> str:
    """For people; a password in a URL is not for them, nor is a query, which may hold one."""
    if probe.http:
        parts = urlsplit(probe.http)
        return f"GET {urlunsplit(parts._replace(netloc=parts.netloc.rpartition('@')[2], query='', fragment=''))}"
    return f"TCP {probe.tcp}" if probe.tcp else f"command {os.path.basename(probe.command[0])}"


@dataclass(eq=False)
class HealthProbes:
    """The probes of one node, and what monitors tell it."""

    probes: tuple[Probe, ...]
    clock: Clock
    cwd: str
    tell: Callable[[Health], None]
    note: Callable[[bool, str], None]

    def __post_init__(self) -> None:
        self.watch = HealthWatch(tuple(rule_of(probe) for probe in self.probes))
        self._asked: dict[int, asyncio.Task[None] | ShortCommand] = {}
        self._limits: dict[int, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._http: Any = None
        self._session: Any = None
        self._closed = False

    @property
    def sentence(self) -> str:
        """For the state document."""
        return f"failing: {self.watch.failing}" if self.watch.failing else "ok"

    def start(self) -> None:
        self._step(health.Began())

    def runs(self, now: bool) -> None:
        if now != self.watch.running:
            self._step(health.Runs(now))

    def said(self, monitor: str, ok: bool, detail: str, within_ms: int) -> None:
        """Raises `Refused` for one monitor too many."""
        if not self.watch.has_room(monitor):
            raise Refused(
                f"{health.MONITORS_MAX} monitors speak about this node already, and {monitor} is not heard; let one "
                'end with {"ok": true} and no within_ms'
            )
        self._step(health.Said(monitor, ok, detail, within_ms))

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        asked = tuple(self._asked.values())
        for place in tuple(self._asked):
            self._drop(place)
        for one in asked:
            if isinstance(one, ShortCommand):
                await one.killed()
            else:
                with contextlib.suppress(asyncio.CancelledError):
                    await one
        if self._session is not None:
            await self._session.close()

    def _step(self, given: health.Given) -> None:
        if self._closed:
            return
        for effect in self.watch.step(self.clock.now_ms(), given):
            match effect:
                case health.AskProbe(place):
                    self._ask(place)
                case health.DropProbe(place):
                    self._drop(place)
                case health.Tell(told):
                    self.tell(told)
                case health.Note(ok, text):
                    self.note(ok, text)
                case _:
                    assert_never(effect)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wanted_ms = self.watch.deadline_ms
        if wanted_ms is not None and not self._closed:
            left_s = max(0.0, (wanted_ms - self.clock.now_ms()) / 1_000)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._step, health.Woke())

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, place: int) -> None:
        probe = self.probes[place]
        if probe.command:
            environment = outer_environment(os.environ)
            self._asked[place] = ShortCommand(
                probe.command, environment, self.cwd, lambda code, why: self._ended(place, code, why), probe=True
            )
            limit_s = probe.timeout_ms / 1_000
            self._limits[place] = asyncio.get_running_loop().call_later(limit_s, self._late, place)
        else:
            self._asked[place] = asyncio.get_running_loop().create_task(self._connect(place, probe))

    def _ended(self, place: int, code: int, why: str) -> None:
        self._answer(place, code == 0, why or f"it ended with code {code}")

    def _late(self, place: int) -> None:
        self._drop(place)
        self._answer(place, False, f"no end within {self.probes[place].timeout_ms:,} ms")

    async def _connect(self, place: int, probe: Probe) -> None:
        try:
            async with asyncio.timeout(probe.timeout_ms / 1_000):
                wrong = await (self._get(probe.http) if probe.http else _open(probe.tcp))
        except TimeoutError:
            wrong = f"no answer within {probe.timeout_ms:,} ms"
        except (OSError, ValueError) as error:
            wrong = _said(error)
        self._answer(place, not wrong, wrong)

    async def _get(self, url: str) -> str:
        """Redirects are not followed: another place is another question."""
        aiohttp = self._http or await asyncio.to_thread(_load)
        if self._session is None:
            self._http = aiohttp
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                return "" if answer.status in WELL else f"it answered {answer.status}"
        except aiohttp.ClientError as error:
            return _said(error)

    def _answer(self, place: int, ok: bool, detail: str) -> None:
        self._forget(place)
        self._step(health.Answered(place, ok, detail))

    def _drop(self, place: int) -> None:
        asked = self._forget(place)
        if isinstance(asked, ShortCommand):
            asked.kill()
        elif asked is not None:
            asked.cancel()

    def _forget(self, place: int) -> asyncio.Task[None] | ShortCommand | None:
        limit = self._limits.pop(place, None)
        if limit is not None:
            limit.cancel()
        return self._asked.pop(place, None)


async def _open(address: str) -> str:
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host.removeprefix("[").removesuffix("]"), int(port))
    writer.close()
    return ""


def _said(error: Exception) -> str:
    """Why nobody answered, in short."""
    inner = getattr(error, "os_error", error)
    number = getattr(inner, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(inner) or type(inner).__name__


def _load() -> Any:
    import aiohttp  # noqa: PLC0415

    return aiohttp
