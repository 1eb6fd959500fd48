"""The storage of one simulated cache peer: what reads see, what is synced, and what is still on its way.

Writes are gathered into batches, one at a time, each atomic, as the driver's writer thread does it. Reads see what is
on its way first. A crash loses the batches that were not committed; the one under way may have been committed without
anybody having been told. A storage in memory commits at once and loses everything with its process.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from primacy.cache.effects import DropValue, Forget, ForgetFloor, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.inputs import CeilingStored, FloorStored, Started
from primacy.cache.model import Ballot, Floor, Meta

Write = StoreEntry | StoreMeta | DropValue | Forget | StoreCeiling | StoreFloor | ForgetFloor
Later = Callable[[float, Callable[[], None]], None]
"""Does something after so many true milliseconds."""
Tell = Callable[[CeilingStored | FloorStored], None]


class Kept:
    """Contents: of the disk, or as reads see them."""

    __slots__ = ("ceiling", "floors", "metas", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, tuple[Ballot, bytes]] = {}
        self.metas: dict[bytes, Meta] = {}
        self.floors: dict[tuple[bytes, bool], Floor] = {}
        self.ceiling: int | None = None

    def copy(self) -> Kept:
        other = Kept()
        other.values, other.metas = dict(self.values), dict(self.metas)
        other.floors, other.ceiling = dict(self.floors), self.ceiling
        return other

    def apply(self, write: Write) -> None:
        match write:
            case StoreEntry(key, meta, value):
                self.values[key] = (meta.epoch, value)
                self.metas[key] = meta
            case StoreMeta(key, meta):
                self.metas[key] = meta
            case DropValue(key, meta):
                self.values.pop(key, None)
                self.metas[key] = meta
            case Forget(key):
                self.values.pop(key, None)
                self.metas.pop(key, None)
            case StoreCeiling(ceiling):
                self.ceiling = max(ceiling, self.ceiling or 0)
            case StoreFloor(floor):
                self._raise(floor)
            case ForgetFloor(floor):
                if self.floors.get((floor.key, floor.prefix)) == floor:
                    del self.floors[floor.key, floor.prefix]

    def _raise(self, floor: Floor) -> None:
        before = self.floors.get((floor.key, floor.prefix))
        if before is None or before.term < floor.term:
            self.floors[floor.key, floor.prefix] = floor
        for key in [key for key, (epoch, _) in self.values.items() if covers(floor, key) and epoch.term <= floor.term]:
            del self.values[key]


def covers(floor: Floor, key: bytes) -> bool:
    """Whether this key is one of those that the floor is about."""
    return key.startswith(floor.key) if floor.prefix else key == floor.key


class SimStorage:
    """Of one peer, over all its boots."""

    def __init__(self, durable: bool, chance: Random, later: Later) -> None:
        self.durable = durable
        self.chance = chance
        self.later = later
        self.disk = Kept()
        self.view = Kept()
        self.sync_ms = 1.0
        self.failing = False
        self._waiting: list[Write] = []
        self._batch: list[Write] | None = None
        self._boot = 0
        """Counted up at each crash: what was under way then tells nobody any more."""

    def started(self, boot: int) -> Started:
        """The first input of a boot."""
        kept = self.view
        return Started(boot, dict(kept.metas), tuple(kept.floors[at] for at in sorted(kept.floors)), kept.ceiling)

    def read(self, key: bytes) -> tuple[Ballot, bytes] | None:
        return self.view.values.get(key)

    def has_floor(self, floor: Floor) -> bool:
        """Whether the disk has it, or one that says as much."""
        return any(
            known.term >= floor.term and covers(known, floor.key) and known.prefix >= floor.prefix
            for known in self.disk.floors.values()
        )

    def evict(self, key: bytes) -> None:
        """The value goes, the meta stays (C8)."""
        for kept in (self.view, self.disk):
            kept.values.pop(key, None)

    def write(self, write: Write, tell: Tell) -> None:
        """Asked for, and not waited for."""
        self.view.apply(write)
        if not self.durable:
            self._answer([write], True, tell)
            return
        self._waiting.append(write)
        if self._batch is None:
            self._begin(tell)

    def _begin(self, tell: Tell) -> None:
        batch, self._batch, self._waiting = self._waiting, self._waiting, []
        boot = self._boot

        def done() -> None:
            if self._boot != boot:
                return
            ok = not self.failing
            if ok:
                for write in batch:
                    self.disk.apply(write)
            self._batch = None
            self._answer(batch, ok, tell)
            if self._waiting and self._batch is None and self._boot == boot:
                self._begin(tell)

        self.later(self.sync_ms * (0.3 + self.chance.random()), done)

    def _answer(self, batch: list[Write], ok: bool, tell: Tell) -> None:
        for write in batch:
            match write:
                case StoreCeiling(ceiling):
                    tell(CeilingStored(ceiling, ok))
                case StoreFloor(floor):
                    tell(FloorStored(floor, ok))

    def crash(self) -> None:
        """The process is gone. What was not synced is lost, or just was."""
        self._boot += 1
        if self._batch is not None and not self.failing and self.chance.random() < 0.5:
            for write in self._batch:
                self.disk.apply(write)
        self._batch, self._waiting = None, []
        if not self.durable:
            self.disk = Kept()
        self.view = self.disk.copy()

    def wipe(self) -> None:
        """The disk is gone, too."""
        self.disk, self.view = Kept(), Kept()
