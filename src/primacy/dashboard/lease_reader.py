"""Reads the leases of stores, each in a thread of its own: one that hangs holds up neither the page nor another one.

It lists rows and writes nothing. A look that takes too long is one that was not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from primacy.dashboard.known import Model
from primacy.dashboard.leases import StoreSeen, failed, leases_view, looked
from primacy.dashboard.source import now_ms, wall_ms
from primacy.errors import NotReached, PrimacyError
from primacy.store.port import LeaseStore, Listing, Lists

LOOK_S = 1.0
"""All rows of a table are read: that a lease was renewed is seen by its count, however many there were between."""
IDLE_LOOK_S = 5.0
STORES_MAX = 16


class StoreAt(NamedTuple):
    """A store that is to be read."""

    label: str
    table: str
    open: Callable[[], LeaseStore]
    """Raises `PrimacyError` if its address, or what it needs, is wrong."""


class LeaseReader:
    """The stores of a page."""

    def __init__(self, stores: Sequence[StoreAt], complain: Callable[[str], None]) -> None:
        self.complain = complain
        self._part: tuple[tuple[int, ...], Model] = ((), {})
        self.stores = stores[:STORES_MAX]
        self.seen = [StoreSeen(each.label, each.table) for each in self.stores]
        self.is_watched: Callable[[], bool] = lambda: False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._read(at, each)) for at, each in enumerate(self.stores)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.complain(f"a fault of the reader of leases: {type(fault).__name__}: {fault}")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def part(self) -> Model | None:
        """Made anew after a look, and once a second: ages are counted in the page."""
        if not self.stores:
            return None
        made_of = (now_ms() // 1_000, *(store.looks + store.failures for store in self.seen))
        if self._part[0] != made_of:
            self._part = (made_of, leases_view(self.seen, now_ms(), wall_ms()))
        return self._part[1]

    async def _read(self, at: int, where: StoreAt) -> None:
        thread = ThreadPoolExecutor(1, thread_name_prefix="primacy-leases")
        loop = asyncio.get_running_loop()
        store: LeaseStore | None = None
        try:
            while True:
                began_ms = now_ms()
                try:
                    if store is None:
                        store = await loop.run_in_executor(thread, where.open)
                    rows = await loop.run_in_executor(thread, partial(_rows, store))
                    self.seen[at] = looked(self.seen[at], rows, now_ms(), now_ms() - began_ms)
                except PrimacyError as error:
                    self.seen[at] = failed(self.seen[at], str(error), wall_ms())
                await self._rest()
        finally:
            if store is not None:
                thread.submit(store.close)
            thread.shutdown(wait=False)

    async def _rest(self) -> None:
        waited_s = 0.0
        while waited_s < (LOOK_S if self.is_watched() else IDLE_LOOK_S):
            await asyncio.sleep(LOOK_S)
            waited_s += LOOK_S


def _rows(store: LeaseStore) -> list[Listing]:
    if not isinstance(store, Lists):
        raise NotReached("this store cannot list its leases")
    return store.listings()
