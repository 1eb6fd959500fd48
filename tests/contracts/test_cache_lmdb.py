"""The storage in LMDB: restarts, kills, strangers' folders, full disks, long keys, a second process."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import lmdb
import pytest
from lmdb.verify import verify

from primacy.cache import lmdb_storage
from primacy.cache.document import DocumentMachine
from primacy.cache.effects import DropValue, Forget, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.inputs import Started
from primacy.cache.key_memory import key_memory
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.machine import Machine
from primacy.cache.model import Ballot, CacheSettings, Floor, Meta, PeerAddress
from primacy.cache.own import OwnMachine
from primacy.cache.storage import without_value
from primacy.errors import CannotHere, InUse, StorageFailed, StorageFull
from tests.contracts.test_cache_storage import entry
from tests.support import cache_writer

pytestmark = pytest.mark.beside(order=470)

HERE = Path(__file__).parents[2]
KILLS = {"proof": 200}.get(os.environ.get("PRIMACY_SIZE", ""), 20)
KEYS_MANY = {"proof": 100_000}.get(os.environ.get("PRIMACY_SIZE", ""), 10_000)


@contextlib.contextmanager
def opened(folder: Path, bytes_max: int = 1 << 30, **more: object) -> Iterator[LmdbStorage]:
    storage = LmdbStorage(str(folder), bytes_max, **more)  # type: ignore[arg-type]
    try:
        yield storage
    finally:
        storage.close()


def looks(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything about a folder that would change if somebody touched it."""
    found = {p.name: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_mode) for p in folder.iterdir()}
    return {**found, ".": (b"", folder.stat().st_mtime_ns, folder.stat().st_mode)}


def test_a_restart_finds_entries_terms_floors_and_ceiling(tmp_path: Path) -> None:
    entries = [entry(b"a"), entry(b"b" * 700), entry(b"c", value=b"x" * 50_000)]
    floors = (Floor(b"d", False, 3), Floor(b"e" * 600, True, 4))
    with opened(tmp_path / "s") as storage:
        storage.apply([*entries, *map(StoreFloor, floors), StoreCeiling(99), StoreMeta(b"m", Meta(term=8))])
        used = storage.used_bytes
    with opened(tmp_path / "s") as storage:
        assert storage.used_bytes == used
        stored = storage.load()
        assert stored.metas == {**{one.key: one.meta for one in entries}, b"m": Meta(term=8)}
        assert (stored.floors, stored.ceiling) == (floors, 99)
        assert [storage.read(one.key) for one in entries] == [(one.meta.epoch, one.value) for one in entries]


def test_every_commit_is_synced_and_nothing_is_written_through_the_map(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as storage:
        flags = storage._env.flags()
        assert (flags["sync"], flags["metasync"], flags["writemap"], flags["lock"]) == (True, True, False, True)


def test_its_files_are_closed_to_others(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as storage:
        storage.apply([entry(b"a")])
        modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "s").iterdir()}
    assert modes == dict.fromkeys(["agent.lock", "data.mdb", "lock.mdb", "format"], 0o600)


# --- keys of one hash -------------------------------------------------------------------------------------------------


def test_long_keys_of_one_hash_are_told_apart(tmp_path: Path) -> None:
    keys = [bytes([n]) * 600 for n in range(lmdb_storage.SAME_HASH_MAX)]
    with opened(tmp_path / "s", hash_key=lambda key: b"same") as storage:
        storage.apply([entry(key, value=key[:1]) for key in keys])
        assert [storage.read(key) for key in keys] == [(entry(key).meta.epoch, key[:1]) for key in keys]
        storage.apply([Forget(keys[0]), Forget(keys[3])])
        assert storage.read(keys[0]) is None
        assert storage.read(keys[7]) is not None, "found behind the gap"
        storage.apply(
            [entry(keys[7], term=6), StoreFloor(Floor(keys[5], False, 9)), StoreFloor(Floor(keys[6], False, 9))]
        )
        assert storage.load().floors == (Floor(keys[5], False, 9), Floor(keys[6], False, 9))
        assert set(storage.load().metas) == set(keys) - {keys[0], keys[3]}
        storage.apply([entry(keys[0]), entry(keys[3])])
        with pytest.raises(StorageFailed, match="one hash"):
            storage.apply([entry(b"a"), entry(b"z" * 700)])
        assert storage.read(b"a") is None, "all of a batch, or nothing"


# --- whose folder -----------------------------------------------------------------------------------------------------


def test_a_folder_of_another_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with opened(folder) as storage:
        storage.apply([entry(b"a")])
    (folder / "format").write_text("primacy cache storage 2\n")
    (folder / "format").chmod(0o600)
    before = looks(folder)
    with pytest.raises(CannotHere, match=r"another version \('primacy cache storage 2', this one writes") as found:
        LmdbStorage(str(folder))
    assert found.value.exit_code == 4
    assert looks(folder) == before


@pytest.mark.parametrize("what", ["a file", "another LMDB", "a LevelDB", "a cut marker"])
def test_a_folder_of_somebody_else_is_refused_and_not_touched(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    match what:
        case "a file":
            (folder / "thesis.tex").write_text("years")
        case "another LMDB":
            lmdb.open(str(folder)).close()
        case "a LevelDB":
            (folder / "CURRENT").write_text("MANIFEST-000001\n")
        case _:
            (folder / "format").write_bytes(b"")
    before = looks(folder)
    with pytest.raises(CannotHere, match="another version" if "marker" in what else "no cache folder and not empty"):
        LmdbStorage(str(folder))
    assert looks(folder) == before


def test_an_interrupted_first_start_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    for name in ("agent.lock", "format.new"):
        (folder / name).touch(0o600)
    with opened(folder) as storage:
        assert storage.load().ceiling is None


def test_a_file_that_was_cut_off_or_damaged_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as storage:
        storage.apply([entry(bytes([n]), value=bytes(20_000)) for n in range(50)])
    data = tmp_path / "s" / "data.mdb"
    whole = data.read_bytes()
    os.truncate(data, len(whole) // 2)
    with pytest.raises(StorageFailed, match=r"damaged .data.mdb is cut off\); move it away"):
        LmdbStorage(str(tmp_path / "s"))
    data.write_bytes(b"\0" * 8_192)
    with pytest.raises(StorageFailed, match="cannot be opened"):
        LmdbStorage(str(tmp_path / "s"))
    data.write_bytes(whole)
    with opened(tmp_path / "s") as storage:
        assert len(storage.load().metas) == 50
        with storage._env.begin(write=True) as txn:
            txn.put(b"kbad", b"\xc1", db=storage._meta)
        with pytest.raises(StorageFailed, match="is damaged"):
            storage.load()


def test_a_second_process_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    script = "import sys; from primacy.cache.lmdb_storage import LmdbStorage; LmdbStorage(sys.argv[1])"
    with opened(tmp_path / "s") as storage:
        storage.apply([entry(b"a")])
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "s")], check=False, capture_output=True, text=True
        )
        assert f"is in use by process {os.getpid()}" in done.stderr
        with pytest.raises(InUse, match="every peer needs a folder of its own") as found:
            LmdbStorage(str(tmp_path / "s"))
        assert found.value.exit_code == 4
        assert storage.read(b"a") is not None
    with opened(tmp_path / "s") as storage:
        assert storage.read(b"a") is not None


# --- kills ------------------------------------------------------------------------------------------------------------


def test_a_writer_that_is_killed_loses_nothing_that_it_committed(tmp_path: Path) -> None:
    """kill -9 at any moment of a write, over and over in one folder."""
    chance, done, during = random.Random(), 0, 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.cache_writer", str(tmp_path / "s"), "5"],
            stdout=subprocess.PIPE,
            cwd=HERE,
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        said += process.stdout.read()
        process.wait()
        process.stdout.close()
        done = int(said.split()[-1])
        assert verify(str(tmp_path / "s")) == []
        with opened(tmp_path / "s", cache_writer.BOUND_BYTES) as storage:
            stored = storage.load()
            assert stored.ceiling is not None
            assert done <= stored.ceiling <= done + 1, "what was said to be committed, and at most one more"
            during += stored.ceiling - done
            assert stored.floors == (Floor(b"nobody's", False, stored.ceiling),)
            expected = cache_writer.newest(stored.ceiling, 5)
            assert {key: meta.term for key, meta in stored.metas.items()} == {
                cache_writer.key_of(n): turn for n, turn in expected.items()
            }
            for n, turn in expected.items():
                assert storage.read(cache_writer.key_of(n)) == (
                    Ballot(turn, "tcp://127.0.0.1:1", 5),
                    cache_writer.value_of(n, turn),
                )
    print(f"{KILLS} kills, {done} batches; {during} were committed and not said any more")


# --- no room ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted by root only")
def test_a_full_disk_is_told_and_what_was_stored_stays(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(small)], check=True)
    try:
        with opened(small / "s") as storage:
            kept = fill(storage)
            assert 10 < len(kept) < 100
            with pytest.raises(StorageFull, match="No space left on device; make room on that disk"):
                storage.apply([entry(b"more", value=bytes(100_000))])
            assert all(storage.read(one.key) == (one.meta.epoch, one.value) for one in kept)
            assert storage.read(b"more") is None
            storage.apply([DropValue(one.key, without_value(one.meta)) for one in kept[:10]])
            storage.apply([StoreCeiling(77)])  # LMDB uses freed pages from the next commit but one on
            storage.apply([entry(b"more", value=bytes(100_000))])
            assert storage.read(b"more") is not None, "it recovers"
        with opened(small / "s") as storage:
            assert storage.load().ceiling == 77
            assert set(storage.load().metas) == {*(one.key for one in kept), b"more"}
            assert all(storage.read(one.key) == (one.meta.epoch, one.value) for one in kept[10:])
        assert verify(str(small / "s")) == []
        with open(small / "filling", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1_000))
        with opened(small / "s") as storage:
            assert storage.read(b"more") is not None, "a full disk does not keep it from being opened"
        with pytest.raises(StorageFull):
            LmdbStorage(str(small / "new"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def fill(storage: LmdbStorage) -> list[StoreEntry]:
    kept: list[StoreEntry] = []
    for n in range(10_000):
        one = entry(b"%d" % n, n + 1, n + 1, random.Random(n).randbytes(30_000))
        try:
            storage.apply([one])
        except StorageFull:
            return kept
        kept.append(one)
    raise AssertionError("it was never full")


def test_files_that_may_not_grow_are_a_full_disk(tmp_path: Path) -> None:
    """For an ordinary user, a limit on the size of files stands for it."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from primacy.cache.lmdb_storage import LmdbStorage
        from primacy.cache.effects import StoreCeiling
        from primacy.errors import StorageFull
        from tests.contracts.test_cache_lmdb import entry, fill
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        storage = LmdbStorage(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        kept = fill(storage)
        assert 10 < len(kept) < 40, len(kept)
        assert all(storage.read(one.key) == (one.meta.epoch, one.value) for one in kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        storage.apply([entry(b"more", value=bytes(100_000)), StoreCeiling(5)])
        assert storage.read(b"more") is not None
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")], check=False, cwd=HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with opened(tmp_path / "s") as storage:
        assert storage.load().ceiling == 5
        assert storage.read(b"more") is not None


def test_a_full_map_evicts_and_goes_on(tmp_path: Path) -> None:
    """The bound is a count; the map's limit is hard. Scattered pages may reach it first."""
    with opened(tmp_path / "s", map_bytes=1 << 20) as storage:
        evicted = []
        for n in range(200):
            evicted += storage.apply([entry(b"%d" % n, n, n, bytes(20_000))])
        assert storage.read(b"199") is not None
        assert storage.read(b"0") is None
        assert set(storage.load().metas) == {b"%d" % n for n in range(200)}
        with pytest.raises(StorageFull, match=r"reached its limit of 1,048,576 bytes; raise cache.storage.bytes_max"):
            storage.apply([entry(b"huge", value=bytes(3 << 20))])
        assert storage.read(b"huge") is None
        storage.apply([entry(b"next", 300, 300)])
        assert storage.read(b"next") is not None
    assert verify(str(tmp_path / "s")) == []


def test_an_environment_that_lmdb_gave_up_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "s") as storage:
        storage.apply([entry(b"a")])
        real, first = storage._perform, storage._env

        def panics(txn: object, write: object) -> int:
            raise lmdb.PanicError("mdb_txn_commit")

        monkeypatch.setattr(storage, "_perform", panics)
        with pytest.raises(StorageFailed, match="cannot be written"):
            storage.apply([entry(b"b")])
        monkeypatch.setattr(storage, "_perform", real)
        storage.apply([entry(b"b")])
        assert storage._env is not first
        assert storage.read(b"a") is not None
        assert storage.read(b"b") is not None


# --- beside each other, and many --------------------------------------------------------------------------------------


def test_reads_go_on_while_another_thread_writes_and_the_map_grows(tmp_path: Path) -> None:
    wrong: list[object] = []
    with opened(tmp_path / "s", map_bytes=1 << 20) as storage:
        storage.apply([entry(b"fixed", 1, 1 << 40, b"x" * 5_000)])
        over = threading.Event()

        def reads() -> None:
            while not over.is_set():
                found = storage.read(b"fixed")
                if found is None or found[1] != b"x" * 5_000:
                    wrong.append(found)

        reader = threading.Thread(target=reads)
        reader.start()
        try:
            for n in range(150):
                storage.apply([entry(b"%d" % n, n, n, bytes(20_000))])
        finally:
            over.set()
            reader.join()
    assert wrong == []


@pytest.mark.parametrize("machine", [OwnMachine, DocumentMachine])
def test_memory_per_key(tmp_path: Path, machine: Callable[..., Machine]) -> None:
    """What a key costs a peer beside LMDB's pages, which are the system's: its meta. The peer reports what it is."""
    with opened(tmp_path / "s") as storage:
        for start in range(0, KEYS_MANY, 1_000):
            storage.apply([entry(b"user:%012d" % n, n, 1 << 41, bytes(100)) for n in range(start, start + 1_000)])
    tracemalloc.start()
    try:
        with opened(tmp_path / "s") as storage:
            began, before = time.monotonic(), tracemalloc.get_traced_memory()[0]
            stored = storage.load()
            took = time.monotonic() - began
            peer = machine("tcp://a", (PeerAddress("tcp://a", "tcp://b"),), CacheSettings(), Random(1))
            peer.step(0, 1 << 40, Started(7, stored.metas, stored.floors, stored.ceiling))
            assert len(stored.metas) == KEYS_MANY
            del stored
            each = (tracemalloc.get_traced_memory()[0] - before) / KEYS_MANY
    finally:
        tracemalloc.stop()
    reported = key_memory(peer, 0)
    print(f"{KEYS_MANY:,} keys: {each:.0f} bytes of memory each, {reported.per_key_bytes} reported, "
          f"loaded in {took:.2f} s (traced)")  # fmt: skip
    assert reported.keys == KEYS_MANY
    assert each < 700
    assert 0.75 * each < reported.per_key_bytes < 1.25 * each
