"""What grows with what others send has a bound, in number and in bytes: each container is filled and stays below it.
The bounds are listed in docs/cache.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from primacy.cache import cached, client_copies, control, own, own_parts, writing
from primacy.cache import effects as does
from primacy.cache import inputs as told
from primacy.cache import messages as says
from primacy.cache.access import Found
from primacy.cache.document import DocumentMachine
from primacy.cache.model import SHORT_BYTES, CacheSettings, Floor, Meta, Mode, short_key
from primacy.cache.serving import OPTIONS_KNOWN_MAX, WATCHERS_MAX, Remote, Serving
from primacy.cache.waiting import Waiting
from primacy.cache.wire_client import Options
from primacy.node.clock import HandClock
from primacy.settings.timing_cache import CACHE_PROFILES
from tests.contracts.test_cache_storage import entry
from tests.contracts.test_cache_writing import Refusing
from tests.support.cache_harness import SETTINGS, WALL_MS, addresses
from tests.support.cache_one_peer import One, T, did, said

LONG = 4_000


def long_key(number: int) -> bytes:
    return b"%06d" % number + b"x" * (LONG - 6)


# --- keys of which something is remembered ----------------------------------------------------------------------------


@pytest.mark.parametrize(("keys_max", "keys_bytes_max"), [(100, 1 << 40), (1 << 40, 100 * LONG)])
def test_keys_are_bounded_in_number_and_bytes_between_two_sweeps(keys_max: int, keys_bytes_max: int) -> None:
    """Questions of other peers, each about another key, within one instant."""
    settings = SETTINGS._replace(keys_max=keys_max, keys_bytes_max=keys_bytes_max, active_max=20)
    one = One(settings=settings)
    most = 0
    for number in range(500):
        key = long_key(number)
        trailer = one.trailer("a", one.ballot("a", T + number))
        one.hear("a", says.Question(key, T + number, trailer))
        one.hear("a", says.Update(key, T + number, one.wall + 60_000, b"v", one.trailer("a", epoch=trailer.ballot)))
        most = max(most, len(one.machine.metas))
        assert one.machine._metas_bytes == sum(map(len, one.machine.metas))
        assert one.machine._keys_bytes == sum(map(len, one.machine.keys))
    assert 100 <= most <= 104
    forgotten = {effect.key for effect in did(one.seen, does.Forget)}
    assert len(forgotten) >= 396
    assert not forgotten & set(one.machine.keys), "what is under way is not forgotten"
    old = one.ballot("c", T - 1)
    trailer = one.trailer("c", old, epoch=old, fetched_ms=one.wall)
    late = says.Update(long_key(3), old.term, one.wall + 60_000, b"old", trailer)
    assert not did(one.hear("c", late), does.StoreEntry), "what was forgotten is not replaced by something older"


def test_what_a_disk_brings_beyond_the_bound_is_forgotten_by_and_by() -> None:
    metas = {long_key(number): Meta(5, 0) for number in range(300)}
    one = One(settings=SETTINGS._replace(keys_bytes_max=100 * LONG), metas=metas)
    assert one.machine._metas_bytes == 100 * LONG
    assert len(one.machine.metas) == 100


def test_one_look_forgets_no_more_than_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "SHED_KEYS", 10)
    metas = {long_key(number): Meta(5, 0) for number in range(300)}
    one = One(settings=SETTINGS._replace(keys_max=100), metas=metas, calm=False)
    before = len(one.machine.metas)
    one.tell(told.Withdrawn(1))
    assert 0 < before - len(one.machine.metas) <= 10
    one.run(5_000)
    assert len(one.machine.metas) <= 100


def test_keys_of_mode_mixed_are_bounded_in_bytes() -> None:
    timing = CACHE_PROFILES["ha-cache"]
    settings = CacheSettings(timing, Mode.MIXED, keys_bytes_max=50 * LONG, active_bytes_max=10 * LONG)
    machine = DocumentMachine("b", addresses("a b c"), settings, Random(1))
    machine.step(0, WALL_MS, told.Started(1, {}, (), None))
    for number in range(300):
        machine.step(5_000, WALL_MS, told.Received("a", says.Question(long_key(number), 7, None)))
        state = machine._state
        assert state.active_bytes == sum(map(len, state.active)) <= 11 * LONG
        assert state.metas_bytes == sum(map(len, state.metas)) <= 51 * LONG


# --- what is under way, and who waits ---------------------------------------------------------------------------------


def test_keys_under_way_are_bounded_in_bytes_and_who_comes_then_asks_elsewhere() -> None:
    one = One(settings=SETTINGS._replace(active_bytes_max=10 * LONG))
    answers = [one.ask(number, long_key(number)) for number in range(30)]
    assert len(one.machine.keys) == 10
    assert [bool(did(each, does.SeeOther)) for each in answers] == [False] * 10 + [True] * 20
    one.run(60_000)
    assert one.machine._keys_bytes == sum(map(len, one.machine.keys))


def test_waiting_requests_are_bounded_by_the_bytes_of_their_keys() -> None:
    waiting = Waiting(1_000, bytes_max=10 * LONG)
    for number in range(30):
        waiting.add(0, number, long_key(number % 2))
    assert len(waiting) == 10
    assert waiting.turned_away == 20
    waiting.see_other(long_key(0))
    assert len(waiting) == 5
    for number in range(100, 130):
        waiting.add(0, number, long_key(number))
    assert len(waiting) == 10


def test_short_names_of_keys_stand_for_one_key_and_are_short() -> None:
    keys = [b"", b"k", b"k" * SHORT_BYTES, b"k" * (SHORT_BYTES + 1), long_key(1), long_key(2)]
    assert len({short_key(key) for key in keys}) == len(keys)
    assert max(len(short_key(key)) for key in keys) <= SHORT_BYTES + 1
    one = One()
    one.question("a", T + 9)
    one.question("c", T)
    waiting = Waiting(1_000)
    waiting.at_once(0, long_key(1))
    for memory in (one.machine._refusals, one.machine._hits, waiting._prompt):
        assert all(LONG not in map(len, filter(None, mark if isinstance(mark, tuple) else (mark,))) for mark in memory)


# --- floors -----------------------------------------------------------------------------------------------------------


def test_floors_are_bounded_in_bytes_and_nothing_is_forgotten() -> None:
    one = One(settings=SETTINGS._replace(floors_bytes_max=20 * LONG))
    for number in range(100):
        floor = Floor(long_key(number), False, T + number)
        one.hear("a", says.FloorSet(floor, number, one.trailer("a")))
        assert one.machine.floors._bytes <= 20 * LONG
        assert one.machine.floors.of(floor.key) >= floor.term
    assert all(one.machine.floors.of(long_key(number)) >= T + number for number in range(100))
    assert one.machine.floors._bytes == sum(len(floor.key) for floor in one.machine.floors.sorted())


def test_floors_of_mode_mixed_are_bounded_in_bytes() -> None:
    settings = CacheSettings(CACHE_PROFILES["ha-cache"], Mode.MIXED, floors_bytes_max=20 * LONG)
    machine = DocumentMachine("b", addresses("b"), settings, Random(1))
    machine.step(0, WALL_MS, told.Started(1, {}, (), None))
    for number in range(100):
        machine.step(number, WALL_MS, told.Invalidate(number, long_key(number)))
        assert sum(len(key) for key, _ in machine._floors._forget) <= 20 * LONG


def test_floors_that_wait_for_a_disk_that_hangs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, and by the bytes of their keys: those that others set, those that are read from others, and acks."""
    for most, most_bytes in ((50, 1 << 40), (1 << 40, 100 * LONG)):
        monkeypatch.setattr(own_parts, "ACKS_MAX", most)
        one = One(settings=SETTINGS._replace(floors_bytes_max=most_bytes))
        one.stores = False
        for number in range(200):
            floor = Floor(long_key(number), False, T + number)
            applied = one.hear("a", says.FloorSet(floor, number, one.trailer("a")))
            assert did(applied, does.StoreFloor), "what the driver has at hand is void from now on"
            assert one.machine.floors.of(floor.key) >= floor.term, "it holds"
            assert len(one.machine._owed) <= 100
            assert one.machine._owed._bytes <= 100 * LONG
            again = one.hear("a", says.FloorSet(floor, number, one.trailer("a")))
            assert not did(again, does.StoreFloor), "the disk is not asked for it twice"
        for number in range(200):  # one floor, and many who want to know when it is durable
            whole = Floor(b"", True, T + 10_000)
            one.hear("a", says.FloorSet(whole, 1_000 + number, one.trailer("a")))
            assert one.machine._owed._count <= most
        waiting = list(one.machine._owed._acks)
        assert waiting
        one.stores = True
        acked = [each for floor in waiting for each in said(one.tell(told.FloorStored(floor)), says.FloorAck)]
        assert acked
        assert (len(one.machine._owed), one.machine._owed._count, one.machine._owed._bytes) == (0, 0, 0)
        late = Floor(long_key(199), False, T + 199)
        one.hear("a", says.FloorSet(late, 199, one.trailer("a")))
        assert late in [ack.floor for ack in said(one.seen, says.FloorAck)], "it was sent again, and is acked"


def test_floors_of_mode_mixed_that_wait_for_a_disk_that_hangs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_parts, "ACKS_MAX", 50)
    settings = CacheSettings(CACHE_PROFILES["ha-cache"], Mode.MIXED)
    machine = DocumentMachine("b", addresses("a b"), settings, Random(1))
    machine.step(0, WALL_MS, told.Started(1, {}, (), None))
    trailer = says.Trailer(boot=7)
    for number in range(200):
        floor = Floor(long_key(number), False, 5)
        done = machine.step(1_000, WALL_MS, told.Received("a", says.FloorSet(floor, number, trailer)))
        assert did(done, does.StoreFloor)
        again = machine.step(1_000, WALL_MS, told.Received("a", says.FloorSet(floor, number, trailer)))
        assert not did(again, does.StoreFloor)
        assert len(machine._floors._acks) <= 50
    acked = [machine.step(2_000, WALL_MS, told.FloorStored(floor)) for floor in list(machine._floors._acks._acks)]
    assert all(said(effects, says.FloorAck) for effects in acked)
    late = machine.step(2_000, WALL_MS, told.Received("a", says.FloorSet(floor, 199, trailer)))
    assert did(late, does.StoreFloor), "it was sent again"
    assert said(machine.step(2_000, WALL_MS, told.FloorStored(floor)), says.FloorAck)


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_what_waits_for_a_disk_that_hangs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "WAITING_BYTES_MAX", 50_000)

    async def main() -> None:
        writer = writing.Writer(Refusing(), asyncio.get_running_loop(), lambda given: None)
        for number in range(1_000):
            writer.write(does.DropValue(long_key(number), Meta()))
            writer.write(does.Forget(long_key(number)))
            writer.write(entry(long_key(number)))
        assert writer._next_bytes <= 50_000
        assert writer.left_out > 2_900
        floor = Floor(b"k", False, 5)
        writer.write(does.StoreFloor(floor))
        writer.write(does.StoreCeiling(9))
        assert writer._next[-2:] == [does.StoreFloor(floor), does.StoreCeiling(9)], "what must not be forgotten"
        await writer.close()

    asyncio.run(main())


def test_floors_and_ceilings_that_wait_for_a_disk_that_hangs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A floor that is left out is said not to be durable. What is forgotten for the sake of one that was left out
    stays on the disk."""
    monkeypatch.setattr(writing, "FLOORS_MAX", 100)
    monkeypatch.setattr(writing, "FLOORS_BYTES_MAX", 60 * LONG)

    async def main() -> None:
        for key in (long_key, lambda number: b"%d" % number):
            heard: list[told.Input] = []
            storage = Refusing()
            writer = writing.Writer(storage, asyncio.get_running_loop(), heard.append)
            old = Floor(b"old", False, 1)
            storage.apply([does.StoreFloor(old)])
            floors = [Floor(key(number), False, 5) for number in range(500)]
            for number, floor in enumerate(floors):
                writer.write(does.StoreFloor(floor))
                writer.write(does.StoreCeiling(number))
                assert len(writer._next) <= 101
                assert sum(len(each.floor.key) for each in writer._next if type(each) is does.StoreFloor) <= 60 * LONG
            writer.write(does.StoreFloor(Floor(b"", True, 9)))
            writer.write(does.ForgetFloor(old))
            refused = [given.floor for given in heard if isinstance(given, told.FloorStored) and not given.ok]
            taken = 60 if key is long_key else 100
            assert refused == [*floors[taken:], Floor(b"", True, 9)]
            writer.flush()
            while len(heard) < len(refused) + taken + 1:
                await asyncio.sleep(0)
            assert heard[len(refused) :] == [
                told.FloorStored(floors[0]),
                told.CeilingStored(499),
                *map(told.FloorStored, floors[1:taken]),
            ]
            assert set(storage.load().floors) == {old, *floors[:taken]}
            writer.write(does.StoreFloor(floors[-1]))
            writer.flush()
            await writer.close()
            assert floors[-1] in storage.load().floors, "there is room again"

    asyncio.run(main())


def test_a_value_of_any_size_that_is_allowed_finds_its_way_to_an_idle_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "WAITING_BYTES_MAX", 50_000)

    async def main() -> None:
        storage = Refusing()
        writer = writing.Writer(storage, asyncio.get_running_loop(), lambda given: None)
        writer.write(entry(b"k", value=b"v" * 50_000))
        writer.flush()
        await writer.close()
        assert storage.read(b"k") is not None

    asyncio.run(main())


def test_what_is_kept_in_memory_for_a_full_disk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FALLBACK_BYTES_MAX", 20_000)

    async def main() -> None:
        storage = Refusing()
        storage.how = "broken"
        writer = writing.Writer(storage, asyncio.get_running_loop(), lambda given: None)
        for number in range(200):
            writer.write(entry(long_key(number)))
            writer.write(does.StoreFloor(Floor(long_key(number + 500), False, 1)))
            writer.flush()
            while writer._busy is not None:
                await asyncio.sleep(0)
        assert writer._fallback is not None
        assert len(writer._fallback._values) <= 5
        assert len(writer._fallback._metas) <= 10
        assert writer._fallback._floors == {}
        await writer.close()

    asyncio.run(main())


# --- clients, as a peer knows them ------------------------------------------------------------------------------------


def serving() -> Serving:
    made = Serving.__new__(Serving)
    made._watchers, made._options = {}, {}
    return made


def test_watchers_and_options_are_bounded() -> None:
    one = serving()
    for number in range(WATCHERS_MAX + 50):
        one._watch(Remote(b"%d" % number, b"", True, None, told.TimerPassed()))
    assert len(one._watchers) == WATCHERS_MAX
    assert b"0" not in one._watchers, "the longest silent is not told"
    for number in range(OPTIONS_KNOWN_MAX + 50):
        one._remember(b"%d" % number, Options())
        assert len(one._options) <= OPTIONS_KNOWN_MAX


def test_events_have_short_keys() -> None:
    events = control.Events(HandClock(0, WALL_MS))
    for _ in range(control.EVENTS_MAX + 5):
        events.add(does.Record("fetched", long_key(1), "x" * LONG))
    kept = events.after(0)
    assert len(kept) == control.EVENTS_MAX
    assert max(len(event.key) + len(event.detail) for event in kept) <= 1_000


# --- copies in clients ------------------------------------------------------------------------------------------------


def test_copies_of_a_client_count_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_copies, "COPIES_BYTES_MAX", 10 * LONG)
    copies = client_copies.Copies(1_000)
    for number in range(100):
        copies.keep(long_key(number), Found(b"", 10_000, 0, "", False), number, number)
        assert len(copies) <= 10
    copies.drop(b"", 200, prefix=True)
    assert (len(copies), copies._bytes) == (0, 0)


def test_copies_of_the_decorator_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "LOCAL_BYTES_MAX", 10 * LONG)
    copies = cached._Copies(bytes)
    for number in range(100):
        copies.put(number % 50, cached._Copy(10_000, b"k", b"", None, LONG), 0)
        assert len(copies._of) <= 10
        assert copies._bytes == len(copies._of) * LONG
    copies.drop(b"", prefix=True)
    assert (len(copies._of), copies._bytes) == (0, 0)


def test_a_function_listens_to_each_client_once_and_keeps_none_alive() -> None:
    class Asker:
        def __init__(self) -> None:
            self.calls: list[Callable[[bytes, bool], None]] = []

        def on_dropped(self, call: Callable[[bytes, bool], None]) -> None:
            self.calls.append(call)

    function = cached._Function.__new__(cached._Function)
    cached._Function.__init__(function, len, None, cached.serializer("json", int), cached.Options(1, 0, 1, 1), None)  # type: ignore[arg-type, attr-defined]
    for _ in range(1_000):  # one per event loop: a later one may have the id of an earlier one
        asker = Asker()
        function.listen(asker)  # type: ignore[arg-type]
        function.listen(asker)  # type: ignore[arg-type]
        assert len(asker.calls) == 1
    assert len(function._listening) == 1


def test_the_bounds_are_those_that_the_documents_name() -> None:
    settings = CacheSettings()
    assert settings.keys_bytes_max == 256 << 20
    assert settings.active_bytes_max == settings.waiting_bytes_max == 64 << 20
    assert settings.floors_bytes_max == writing.FLOORS_BYTES_MAX == 16 << 20
    assert settings.floors_max == writing.FLOORS_MAX == own_parts.ACKS_MAX == 10_000
