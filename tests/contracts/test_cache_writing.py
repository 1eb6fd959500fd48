"""What a peer does while its disk refuses: values from memory, and what must not be forgotten on what room is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from primacy.cache.effects import StoreCeiling, StoreFloor
from primacy.cache.inputs import CeilingStored, FloorStored, Input, ValueGone
from primacy.cache.model import Floor
from primacy.cache.storage import Evicted, MemoryStorage, Write, cost_bytes
from primacy.cache.writing import Writer
from primacy.errors import StorageFailed, StorageFull
from tests.contracts.test_cache_storage import entry

FLOOR = Floor(b"a", False, 3)


class Refusing(MemoryStorage):
    """A disk that has no room for values, or is broken."""

    durable = True
    how = ""

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        writes = list(batch)
        if self.how == "broken":
            raise StorageFailed("broken")
        if self.how == "full" or (self.how == "values" and any(type(write) is type(entry(b"")) for write in writes)):
            raise StorageFull("no room")
        return super().apply(writes)


def written(how: str) -> tuple[Refusing, list[Input], Writer]:
    async def main() -> tuple[Refusing, list[Input], Writer]:
        storage, told = Refusing(), list[Input]()
        storage.how = how
        writer = Writer(storage, asyncio.get_running_loop(), told.append)
        for write in (entry(b"x", term=5), StoreCeiling(77), StoreFloor(FLOOR)):
            writer.write(write)
        writer.flush()
        while len(told) < 2:
            await asyncio.sleep(0.001)
        assert writer.read(b"x", entry(b"x", term=5).meta.epoch) == b"value", "on disk or from memory"
        await writer.close()
        return storage, told, writer

    return asyncio.run(main())


def test_a_disk_that_takes_everything_is_told_so() -> None:
    storage, told, writer = written("")
    assert told == [CeilingStored(77), FloorStored(FLOOR)]
    assert storage.load().ceiling == 77
    assert (writer.failures, writer.failure) == (0, "")


def test_without_room_for_values_ceiling_and_floors_are_durable_nevertheless() -> None:
    storage, told, writer = written("values")
    assert told == [CeilingStored(77), FloorStored(FLOOR)]
    assert (storage.load().ceiling, storage.load().floors, storage.read(b"x")) == (77, (FLOOR,), None)
    assert (writer.failures, writer.failure) == (1, "no room")


def test_what_could_not_be_made_durable_is_told_so() -> None:
    for how in ("full", "broken"):
        storage, told, writer = written(how)
        assert told == [CeilingStored(77, False), FloorStored(FLOOR, False)]
        assert storage.load().ceiling is None
        assert writer.failures == 1


def test_what_was_evicted_is_told_with_its_epoch() -> None:
    """Whoever took a newer value of the key while the disk made room must not lose it."""

    async def main() -> None:
        old, other = entry(b"x", 5, 100), entry(b"y", 7, 9_000)
        told: list[Input] = []
        writer = Writer(Refusing(2 * cost_bytes(b"x", b"value") - 1), asyncio.get_running_loop(), told.append)
        for write in (old, other):
            writer.write(write)
            writer.flush()
            while writer._busy is not None:
                await asyncio.sleep(0.001)
        assert told == [ValueGone(b"x", old.meta.epoch)]
        await writer.close()

    asyncio.run(main())
