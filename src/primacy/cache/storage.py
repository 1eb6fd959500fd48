"""Where a cache peer keeps entries, floors and its ceiling: the port, and the storage in memory.

Values and metas stand apart: a meta outlives its value (C8), and all metas are in memory while the peer runs, values
are not. A storage is written by one thread, in batches that are applied whole or not at all, and read by the loop.

A storage has a bound. Above it the values that expired longest ago go first; their metas stay, with `expire_ms` 0. The
machine is told by what `apply` returns, or finds out when it reads.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, assert_never

from primacy.cache.effects import DropValue, Forget, ForgetFloor, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.model import TERM_STEP_MAX, Ballot, Floor, Meta
from primacy.errors import StorageFailed

Write = StoreEntry | StoreMeta | DropValue | Forget | StoreCeiling | StoreFloor | ForgetFloor
"""The effects that a storage performs."""
BYTES_MAX = 1 << 30
"""Of keys and values together, where nothing else is said: 100,000 entries of 10 kB."""
ENTRY_BYTES = 128
"""What an entry costs beside its key and value: meta, tables, page headers. Counted, so that small entries are
bounded as well."""
DAY_MS = 86_400_000
HEAP_FACTOR = 2
"""The order of expiry may hold so many times more rows than there are values before the outdated ones are dropped."""


class Stored(NamedTuple):
    """What a storage has kept, for `Started`."""

    metas: Mapping[bytes, Meta]
    floors: tuple[Floor, ...]
    ceiling: int | None
    """None: there is no memory of it."""


class Evicted(NamedTuple):
    """A value that gave way to others."""

    key: bytes
    epoch: Ballot


class Storage(Protocol):
    """The port. One process has it; one thread at a time writes."""

    durable: bool
    """What `apply` has taken survives the end of the process, and of the machine."""

    def load(self) -> Stored:
        """All but the values, once, before anything is applied."""
        ...

    def read(self, key: bytes) -> tuple[Ballot, bytes] | None:
        """The value, with the epoch that it was stored under. Any thread."""
        ...

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        """All of the batch, in its order, durably, or nothing of it. Returns which values were evicted.

        Raises `StorageFull` or `StorageFailed`; then nothing has changed, and it may be tried again.
        """
        ...

    def close(self) -> None:
        """Nothing is lost by leaving this out."""
        ...


def check_stored(stored: Stored, wall_ms: int, where: str) -> None:
    """Mode `own`: refuses to go on with terms that cannot be. `where`: the folder, or nothing."""
    terms = [stored.ceiling or 0, *(floor.term for floor in stored.floors)]
    terms += [max(meta.term, meta.epoch.term) for meta in stored.metas.values()]
    ahead_ms = max(terms) - wall_ms
    if ahead_ms > TERM_STEP_MAX:
        raise StorageFailed(
            f"the cache's storage{f' in {where}' if where else ''} has the term {max(terms)}, which is "
            f"{ahead_ms // DAY_MS:,} days ahead of this machine's clock: that is wrong, or the storage is damaged. "
            "Set the clock; if it is right, move the folder away: this peer then starts without memory, and entries "
            "are fetched anew"
        )


def cost_bytes(key: bytes, value: bytes) -> int:
    """What an entry counts against the bound."""
    return len(key) + len(value) + ENTRY_BYTES


def without_value(meta: Meta) -> Meta:
    """What stays of a meta when its value goes (C8)."""
    return meta._replace(expire_ms=0, size=0)


def kills(floor: Floor, key: bytes, epoch: Ballot) -> bool:
    """The floor makes this value void (C11)."""
    return epoch.term <= floor.term and (key.startswith(floor.key) if floor.prefix else key == floor.key)


class _Value(NamedTuple):
    epoch: Ballot
    expire_ms: int
    value: bytes


class MemoryStorage:
    """Forgets everything at its end. Also what a peer goes on with while its disk is full."""

    durable = False

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._metas: dict[bytes, Meta] = {}
        self._values: dict[bytes, _Value] = {}
        self._floors: dict[tuple[bytes, bool], Floor] = {}
        self._ceiling: int | None = None
        self._expiry: list[tuple[int, bytes]] = []
        """A heap. A row counts only while the value has this expiry: what was replaced is left in it for a while."""

    def load(self) -> Stored:
        return Stored(dict(self._metas), tuple(self._floors.values()), self._ceiling)

    def read(self, key: bytes) -> tuple[Ballot, bytes] | None:
        found = self._values.get(key)
        return (found.epoch, found.value) if found is not None else None

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        for write in batch:
            self._perform(write)
        return self._evict()

    def close(self) -> None:
        """There is nothing to close."""

    def forget_bare(self) -> None:
        """Metas without values, and floors, go: for who keeps values here and everything else elsewhere."""
        if len(self._metas) > HEAP_FACTOR * len(self._values):
            self._metas = {key: self._metas[key] for key in self._values}
        self._floors.clear()

    def _perform(self, write: Write) -> None:
        match write:
            case StoreEntry(key, meta, value):
                self._drop(key)
                self._values[key] = _Value(meta.epoch, meta.expire_ms, value)
                self._metas[key] = meta
                self.used_bytes += cost_bytes(key, value)
                heapq.heappush(self._expiry, (meta.expire_ms, key))
            case StoreMeta(key, meta):
                self._metas[key] = meta
            case DropValue(key, meta):
                self._drop(key)
                self._metas[key] = meta
            case Forget(key):
                self._drop(key)
                self._metas.pop(key, None)
            case StoreCeiling(ceiling):
                self._ceiling = max(ceiling, self._ceiling or 0)
            case StoreFloor(floor):
                self._raise_floor(floor)
            case ForgetFloor(floor):
                known = self._floors.get((floor.key, floor.prefix))
                if known is not None and known.term <= floor.term:
                    del self._floors[floor.key, floor.prefix]
            case _:
                assert_never(write)

    def _raise_floor(self, floor: Floor) -> None:
        known = self._floors.get((floor.key, floor.prefix), floor)
        self._floors[floor.key, floor.prefix] = max(floor, known)  # of one key: by the term
        reached = list(self._values) if floor.prefix else [floor.key]
        for key in reached:
            value = self._values.get(key)
            if value is not None and kills(floor, key, value.epoch):
                self._drop(key)
                self._metas[key] = without_value(self._metas[key])

    def _drop(self, key: bytes) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self.used_bytes -= cost_bytes(key, value.value)

    def _evict(self) -> tuple[Evicted, ...]:
        evicted = []
        while self.used_bytes > self.bytes_max and self._expiry:
            expire_ms, key = heapq.heappop(self._expiry)
            value = self._values.get(key)
            if value is not None and value.expire_ms == expire_ms:
                self._drop(key)
                self._metas[key] = without_value(self._metas[key])
                evicted.append(Evicted(key, value.epoch))
        if len(self._expiry) > HEAP_FACTOR * len(self._values) + HEAP_FACTOR:
            self._expiry = [(value.expire_ms, key) for key, value in self._values.items()]
            heapq.heapify(self._expiry)
        return tuple(evicted)
