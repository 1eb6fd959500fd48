"""Reads the slots while somebody looks at their page, and not otherwise: a broadcast counts every client.

Values come from the server of the slots, by its own protocol; counters from the control API of the node that leads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from primacy.dashboard.known import Model
from primacy.dashboard.slots import SLOTS_MAX, Declared, SlotSeen, SlotsSeen, counted, read, slots_view
from primacy.dashboard.source import Pulse, now_ms, wall_ms
from primacy.errors import PrimacyError

LOOK_S = 1.0
FIRST_S = 1.0
ASKED_MS = 4_000
"""After this time without a browser that asks, the connection is closed."""

Counters = Callable[[], Awaitable[tuple[str, dict[str, int]]]]
"""Of the node that leads, with its name. Raises `PrimacyError`."""


class SlotsPort(Protocol):
    """The slots, as a command assembles it."""

    declared: tuple[Declared, ...]

    async def get(self, number: str) -> bytes:
        """Raises `PrimacyError`."""
        ...

    async def hang_up(self) -> None:
        """The next read connects again."""
        ...


class SlotsReader:
    """The slots of one cluster."""

    def __init__(self, port: SlotsPort | None, counters: Counters) -> None:
        self.port = port
        self.counters = counters
        self.declared = port.declared if port is not None else ()
        self.seen = SlotsSeen()
        self._asked_ms = 0
        self._reading: asyncio.Task[None] | None = None
        self._looked = Pulse()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def page(self) -> Model:
        """How they stand. To ask has them read for a while; the first answer waits for the first look, for a moment."""
        self._asked_ms = now_ms()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        if not self.seen.looked_unix_ms and not self.seen.error:
            await self._looked.within(FIRST_S, self._looked.count)
        return slots_view(self.declared, self.seen)

    async def _read(self) -> None:
        assert self.port is not None
        try:
            while now_ms() - self._asked_ms < ASKED_MS:
                await self._values(self.port)
                await self._counters()
                self._looked.send()
                await asyncio.sleep(LOOK_S)
        finally:
            await self.port.hang_up()
            self.seen = SlotsSeen()  # what nobody watched is not drawn as if somebody had

    async def _values(self, port: SlotsPort) -> None:
        try:
            for slot in [slot for slot in self.declared[:SLOTS_MAX] if not slot.why_not]:
                value = await port.get(slot.number)
                before = self.seen.slots.get(slot.number, SlotSeen())
                slots = {**self.seen.slots, slot.number: read(before, value, wall_ms())}
                self.seen = self.seen._replace(slots=slots)
            self.seen = self.seen._replace(error="", looked_unix_ms=wall_ms())
        except PrimacyError as error:
            self.seen = self.seen._replace(error=str(error)[:300])

    async def _counters(self) -> None:
        try:
            node, found = await self.counters()
            self.seen = counted(self.seen, node, found, now_ms())
        except PrimacyError as error:
            self.seen = self.seen._replace(counters_error=str(error)[:300])
