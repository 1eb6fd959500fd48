"""Between a peer's loop and its storage: what is on its way to the disk, and who reads it meanwhile.

One batch is written at a time, by one thread; what is asked for meanwhile becomes the next batch, so that a slow disk
makes batches larger and the loop never waits. Reads look at what is on its way first. A storage that is not durable is
written at once, in the loop.

A full or broken disk is no end: what could not be written is kept in memory, bounded, and the peer goes on with that
(S1 needs no disk). A later batch that succeeds says that the disk is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from primacy.cache.effects import DropValue, Forget, ForgetFloor, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.inputs import CeilingStored, FloorStored, Input, ValueGone
from primacy.cache.model import Ballot
from primacy.cache.storage import Evicted, MemoryStorage, Storage, Write
from primacy.errors import StorageFailed, StorageFull

log = logging.getLogger("primacy")

WAITING_BYTES_MAX = 256 * 1024 * 1024
"""What waits for the disk. More is not written, but for ceiling and floors: a value or a mark that is lost costs a
retrieval. A value alone may be as large as values can be."""
FLOORS_MAX = 10_000
FLOORS_BYTES_MAX = 16 * 1024 * 1024
"""Floors of one batch, and the bytes of their keys: as many as a peer remembers one by one. More are not written while
the disk hangs, and said not to be durable: they hold, are not acked, and are sent again (C11)."""
FALLBACK_BYTES_MAX = 256 * 1024 * 1024
"""What is kept in memory while the disk refuses."""
WRITE_BYTES = 256
"""What a write without a value counts."""
CLOSE_S = 10.0
"""The disk has so long to take the last batch."""


class Stored(NamedTuple):
    """What became of a batch."""

    evicted: tuple[Evicted, ...]
    why: str
    """Empty, or why not all of it was stored."""
    durable: bool
    """Its ceiling and floors were."""


def stored(storage: Storage, batch: list[Write]) -> Stored:
    """In the writer's thread. A disk without room for values often has some for what must not be forgotten."""
    try:
        return Stored(storage.apply(batch), "", True)
    except StorageFull as error:
        small = [write for write in batch if isinstance(write, StoreCeiling | StoreFloor | ForgetFloor)]
        if not small or len(small) == len(batch):
            return Stored((), str(error), False)
        try:
            return Stored(storage.apply(small), str(error), True)
        except StorageFailed:
            return Stored((), str(error), False)
    except StorageFailed as error:
        return Stored((), str(error), False)


class Writer:
    """All writes of one peer. `told`: where `CeilingStored`, `FloorStored` and `ValueGone` go, in the loop."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop, told: Callable[[Input], None]) -> None:
        self._storage = storage
        self._loop = loop
        self._told = told
        self._thread = ThreadPoolExecutor(1, "primacy-cache-disk") if storage.durable else None
        self._next: list[Write] = []
        self._next_bytes = 0
        self._next_floors = self._next_floor_bytes = 0
        self._next_ceiling: int | None = None
        """Where in the next batch it stands. It only rises, so that the last one does."""
        self._busy: Future[Stored] | None = None
        self._values: dict[bytes, tuple[Ballot, bytes]] = {}
        """On their way to the disk, the latest of each key."""
        self._fallback: MemoryStorage | None = None
        self._closing = False
        self.failure = ""
        """Why the storage refuses, while it does."""
        self.batches = self.writes = self.failures = self.left_out = 0

    def read(self, key: bytes, epoch: Ballot) -> bytes | None:
        """The value of this epoch, wherever it is by now."""
        found = self._values.get(key)
        if found is not None and found[0] == epoch:
            return found[1]
        for where in (self._fallback, self._storage):
            found = where.read(key) if where is not None else None
            if found is not None and found[0] == epoch:
                return found[1]
        return None

    def write(self, write: Write) -> None:
        """Asked for; `flush` sends it on its way."""
        if type(write) is DropValue or type(write) is Forget:
            self._values.pop(write.key, None)
        size = WRITE_BYTES
        if isinstance(write, StoreEntry | StoreMeta | DropValue | Forget):
            size += len(write.key) + (len(write.value) if type(write) is StoreEntry else 0)
            if self._thread is not None and self._next and self._next_bytes + size > WAITING_BYTES_MAX:
                self.left_out += 1
                return
        elif isinstance(write, StoreFloor | ForgetFloor):
            if not self._takes_floor(write):
                return
        elif type(write) is StoreCeiling:
            if self._next_ceiling is not None:
                before = self._next[self._next_ceiling]
                assert type(before) is StoreCeiling
                self._next[self._next_ceiling] = max(before, write)
                return
            self._next_ceiling = len(self._next)
        if type(write) is StoreEntry:
            self._values[write.key] = (write.meta.epoch, write.value)
        self._next_bytes += size
        self._next.append(write)

    def _takes_floor(self, write: StoreFloor | ForgetFloor) -> bool:
        """Once one was left out of a batch, all that follow are: a floor that another one stands for is forgotten on
        the disk only if that one is there."""
        self._next_floors += 1
        self._next_floor_bytes += len(write.floor.key)
        few = self._next_floors <= FLOORS_MAX and self._next_floor_bytes <= FLOORS_BYTES_MAX
        if self._thread is None or few:
            return True
        self.left_out += 1
        if type(write) is StoreFloor and not self._closing:
            self._told(FloorStored(write.floor, False))
        return False

    def flush(self) -> None:
        """What was asked for goes to the storage, now or after the batch that is under way."""
        if not self._next or self._busy is not None:
            return
        batch, self._next, self._next_bytes = self._next, [], 0
        self._next_floors = self._next_floor_bytes = 0
        self._next_ceiling = None
        self.batches += 1
        self.writes += len(batch)
        if self._thread is None:
            evicted = self._storage.apply(batch)
            self._values.clear()
            self._answer(batch, evicted, True)
            return
        self._busy = self._thread.submit(stored, self._storage, batch)
        self._busy.add_done_callback(lambda done: self._call_soon(batch, done))

    def _call_soon(self, batch: list[Write], done: Future[Stored]) -> None:
        """In the writer's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._written, batch, done)

    def _written(self, batch: list[Write], done: Future[Stored]) -> None:
        self._busy = None
        for write in batch:
            if type(write) is StoreEntry and self._values.get(write.key, (None,))[0] == write.meta.epoch:
                del self._values[write.key]
        evicted, why, durable = done.result()
        if why:
            evicted += self._keep_in_memory(batch, why)
        elif self.failure:
            log.warning("the cache's storage takes entries again")
            self.failure = ""
        self._answer(batch, evicted, durable)
        self.flush()

    def _keep_in_memory(self, batch: list[Write], why: str) -> tuple[Evicted, ...]:
        self.failures += 1
        if not self.failure:
            log.error("the cache goes on from memory: %s", why)
        self.failure = why
        if self._fallback is None:
            self._fallback = MemoryStorage(FALLBACK_BYTES_MAX)
        evicted = self._fallback.apply(batch)
        self._fallback.forget_bare()  # nobody reads them here
        return evicted

    def _answer(self, batch: list[Write], evicted: tuple[Evicted, ...], ok: bool) -> None:
        if self._closing:
            return
        for write in batch:
            if type(write) is StoreCeiling:
                self._told(CeilingStored(write.ceiling, ok))
            elif type(write) is StoreFloor:
                self._told(FloorStored(write.floor, ok))
        for key, epoch in evicted:  # by its epoch: the machine may have taken a newer value of the key meanwhile
            self._told(ValueGone(key, epoch))

    async def close(self) -> None:
        """What was asked for is written; then the storage is closed."""
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._busy is not None or self._next:
                    self.flush()
                    if self._busy is not None:
                        await asyncio.wait([asyncio.wrap_future(self._busy)])
                        await asyncio.sleep(0)
        except TimeoutError:
            log.error("the cache's storage did not take its last batch within %.0f s", CLOSE_S)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        self._storage.close()
