"""What every storage of a cache peer owes to the machine, asked of each: memory and LMDB."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primacy.cache.effects import DropValue, Forget, ForgetFloor, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.model import NO_BALLOT, Ballot, Floor, Meta
from primacy.cache.storage import BYTES_MAX, Evicted, MemoryStorage, Storage, Write, cost_bytes, without_value

Make = Callable[[int], Storage]
KEYS = (b"", b"a", b"\0\xff", "grün".encode(), b"k" * 500, b"k" * 501, b"k" * 511, b"k" * 512, b"k" * 4_096)


def entry(key: bytes, term: int = 5, expire_ms: int = 1_000, value: bytes = b"value") -> StoreEntry:
    epoch = Ballot(term, "tcp://10.0.0.1:6000", (1 << 64) - 1 - term)
    return StoreEntry(key, Meta(term, expire_ms, epoch, len(value), 7), value)


@pytest.fixture(params=["memory", "lmdb"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Storages, each in a place of its own; closed at the end."""
    made: list[Storage] = []

    def one(bytes_max: int = BYTES_MAX) -> Storage:
        lmdb = request.param == "lmdb"
        made.append(LmdbStorage(str(tmp_path / f"s{len(made)}"), bytes_max) if lmdb else MemoryStorage(bytes_max))
        return made[-1]

    yield one
    for storage in made:
        storage.close()


@pytest.fixture
def storage(make: Make) -> Storage:
    return make(BYTES_MAX)


def test_a_new_storage_knows_nothing(storage: Storage) -> None:
    assert storage.load() == ({}, (), None)
    assert storage.read(b"a") is None


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{len(key)}-{key[:2]!r}")
def test_a_key_of_any_length_has_its_value_and_its_meta(storage: Storage, key: bytes) -> None:
    one = entry(key, value=b"")
    assert storage.apply([one]) == ()
    assert storage.read(key) == (one.meta.epoch, b"")
    assert storage.load().metas == {key: one.meta}
    two = entry(key, term=6, value=b"x" * 100_000)
    storage.apply([two])
    assert storage.read(key) == (two.meta.epoch, two.value)
    assert storage.load().metas == {key: two.meta}
    storage.apply([Forget(key)])
    assert storage.load().metas == {}
    assert storage.read(key) is None
    assert storage.apply([Forget(key)]) == (), "what is not there is forgotten already"


def test_long_keys_that_begin_alike_are_told_apart(storage: Storage) -> None:
    keys = [b"k" * 600 + bytes([n]) for n in range(20)]
    storage.apply([entry(key, value=key[-1:]) for key in keys])
    assert [storage.read(key) for key in keys] == [(entry(key).meta.epoch, key[-1:]) for key in keys]
    assert set(storage.load().metas) == set(keys)


def test_a_meta_outlives_its_value(storage: Storage) -> None:
    one = entry(b"a")
    storage.apply([one, DropValue(b"a", without_value(one.meta))])
    assert storage.read(b"a") is None
    assert storage.load().metas == {b"a": one.meta._replace(expire_ms=0, size=0)}
    assert storage.load().metas[b"a"].epoch == one.meta.epoch


def test_a_meta_alone_leaves_the_value_as_it_is(storage: Storage) -> None:
    one = entry(b"a")
    higher = one.meta._replace(term=9)
    storage.apply([one, StoreMeta(b"a", higher), StoreMeta(b"b", Meta(term=3))])
    assert storage.read(b"a") == (one.meta.epoch, b"value")
    assert storage.load().metas == {b"a": higher, b"b": Meta(term=3)}
    assert storage.read(b"b") is None


def test_a_value_of_an_original_peer_has_the_epoch_of_nobody(storage: Storage) -> None:
    storage.apply([StoreEntry(b"a", Meta(1, 1_000, NO_BALLOT, 1, 0), b"x")])
    assert storage.read(b"a") == (NO_BALLOT, b"x")


def test_a_ceiling_only_rises(storage: Storage) -> None:
    storage.apply([StoreCeiling(10)])
    storage.apply([StoreCeiling(7)])
    assert storage.load().ceiling == 10
    storage.apply([StoreCeiling((1 << 53) - 1)])
    assert storage.load().ceiling == (1 << 53) - 1


@pytest.mark.parametrize("length", [1, 499, 500, 501, 512, 3_000])
def test_a_floor_only_rises_and_drops_the_values_at_or_below_it(storage: Storage, length: int) -> None:
    key = b"k" * length
    below, other = entry(key, term=5), entry(key[:-1] + b"x", term=5)
    storage.apply([below, other, StoreFloor(Floor(key, False, 4))])
    assert storage.read(key) is not None, "its epoch is above"
    storage.apply([StoreFloor(Floor(key, False, 5))])
    assert storage.read(key) is None
    assert storage.read(other.key) is not None
    stored = storage.load()
    assert stored.metas[key] == without_value(below.meta)
    storage.apply([StoreFloor(Floor(key, False, 2))])
    assert storage.load().floors == (Floor(key, False, 5),)
    storage.apply([ForgetFloor(Floor(key, False, 4))])
    assert storage.load().floors == (Floor(key, False, 5),), "a higher one has come meanwhile"
    storage.apply([ForgetFloor(Floor(key, False, 5)), ForgetFloor(Floor(b"none", False, 5))])
    assert storage.load().floors == ()


@pytest.mark.parametrize("length", [0, 1, 500, 501, 600])
def test_a_floor_of_a_prefix_reaches_every_key_that_begins_so(storage: Storage, length: int) -> None:
    prefix = b"p" * length
    under = [prefix, prefix + b"\0", prefix + b"\xff\xff", prefix + b"x" * 700]
    aside = [b"o", prefix[:-1] + b"q", b"q" * 900] if length else []
    storage.apply([entry(key, term=5) for key in under + aside])
    storage.apply([entry(prefix + b"new", term=6), StoreFloor(Floor(prefix, True, 5))])
    assert [storage.read(key) for key in under] == [None] * len(under)
    assert all(storage.read(key) is not None for key in [*aside, prefix + b"new"])
    assert set(storage.load().metas) == {*under, *aside, prefix + b"new"}
    assert storage.load().floors == (Floor(prefix, True, 5),)


def test_a_floor_of_a_key_and_one_of_the_same_prefix_are_two(storage: Storage) -> None:
    both = (Floor(b"a", False, 3), Floor(b"a", True, 4))
    storage.apply(StoreFloor(floor) for floor in both)
    assert set(storage.load().floors) == set(both)
    storage.apply([ForgetFloor(both[0])])
    assert storage.load().floors == (both[1],)


def test_what_expired_longest_ago_is_evicted_first_and_its_meta_stays(make: Make) -> None:
    one = entry(b"0", value=bytes(1_000))
    storage = make(5 * cost_bytes(one.key, one.value))
    order = [3_000, 1_000, 5_000, 2_000, 4_000]
    entries = [entry(bytes([48 + n]), n, expire, bytes(1_000)) for n, expire in enumerate(order, 1)]
    assert storage.apply(entries) == ()
    assert storage.apply([entry(b"9", 9, 9_000, bytes(1_000))]) == (Evicted(b"2", entries[1].meta.epoch),)
    assert storage.read(b"2") is None
    assert storage.load().metas[b"2"] == without_value(entries[1].meta)
    gone = [Evicted(entries[n].key, entries[n].meta.epoch) for n in (3, 0, 4)]
    assert storage.apply([entry(b"8", 9, 9_000, bytes(3_000))]) == tuple(gone)
    assert storage.apply([Forget(b"9"), Forget(b"8"), *entries[:2]]) == (), "what was removed makes room"
    assert storage.read(b"2") is not None


def test_a_value_that_was_replaced_counts_once(make: Make) -> None:
    one = entry(b"a", value=bytes(1_000))
    storage = make(2 * cost_bytes(one.key, one.value))
    for term in range(200):
        assert storage.apply([entry(b"a", term, 1_000 + term, bytes(1_000))]) == ()
    assert storage.apply([entry(b"b", 1, 500, bytes(1_000))]) == ()
    assert storage.apply([entry(b"c", 1, 5_000, bytes(1_000))]) == (Evicted(b"b", entry(b"b", 1).meta.epoch),)


def test_a_value_above_the_whole_bound_is_not_kept(make: Make) -> None:
    storage = make(1_000)
    assert storage.apply([entry(b"a", value=bytes(2_000))]) == (Evicted(b"a", entry(b"a").meta.epoch),)
    assert storage.read(b"a") is None
    assert storage.load().metas[b"a"].epoch == entry(b"a").meta.epoch


def test_an_empty_batch_changes_nothing(storage: Storage) -> None:
    assert storage.apply([]) == ()


def test_both_storages_hold_the_same_after_any_writes(make: Make, tmp_path: Path) -> None:
    """Whatever is written, in any order: what LMDB has equals what memory has."""
    chance = random.Random(7)
    bound = 20 * cost_bytes(b"123", bytes(100))
    here, model = make(bound), MemoryStorage(bound)
    keys = [b"", b"a", b"ab", b"abc", b"b", b"x" * 500, b"x" * 501, b"x" * 501 + b"y", b"y" * 2_000, b"y" * 501]
    prefixes = [b"", b"a", b"ab", b"x", b"x" * 501, b"y" * 600]
    expiries = iter(chance.sample(range(1, 100_000), 4_000))

    def draw() -> Write:
        key, term = chance.choice(keys), chance.randint(1, 30)
        meta = Meta(term, 0, Ballot(term, chance.choice(["tcp://a:1", "tcp://b:1"]), term))
        match chance.randrange(12):
            case 0:
                return Forget(key)
            case 1:
                return DropValue(key, meta)
            case 2:
                return StoreMeta(key, meta)
            case 3:
                return StoreFloor(Floor(key, False, term // 2))
            case 4:
                return StoreFloor(Floor(chance.choice(prefixes), True, term // 3))
            case 5:
                return ForgetFloor(Floor(chance.choice(keys), chance.random() < 0.5, term))
            case 6:
                return StoreCeiling(term)
        return entry(key, term, next(expiries), bytes(chance.choice([0, 1, 50, 100, 900])))

    for _ in range(300):
        batch = [draw() for _ in range(chance.randrange(1, 8))]
        assert here.apply(batch) == model.apply(batch)
        got, expected = here.load(), model.load()
        assert (got.metas, set(got.floors), got.ceiling) == (expected.metas, set(expected.floors), expected.ceiling)
        assert [here.read(key) for key in keys] == [model.read(key) for key in keys]
