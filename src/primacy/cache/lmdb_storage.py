"""The storage of a cache peer in LMDB: one folder, one process, crash-safe.

    meta      slot -> key (if the slot does not hold it), Meta
    data      slot -> expiry, epoch, value
    expiry    expiry, slot -> what the value costs: the order in which values are evicted
    floors    slot -> key, term; `prefixes` likewise for floors of a prefix
    about     the ceiling

A batch is one transaction, so that a crash leaves all of it or nothing, and in it a value is written before its meta.
LMDB syncs each commit. It never writes through its map: a full disk is an error and no SIGBUS.

LMDB takes keys of up to 511 bytes. A slot is the key itself where it fits, else its hash and a digit: two keys of one
hash get different digits, because the whole key is stored and compared.

The folder has a file that says whose it is and which version. Any other folder that is not empty is refused before
anything in it is opened, made or locked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, assert_never

import msgspec

from primacy.cache.effects import DropValue, Forget, ForgetFloor, StoreCeiling, StoreEntry, StoreFloor, StoreMeta
from primacy.cache.model import Ballot, Floor, Meta
from primacy.cache.storage import BYTES_MAX, Evicted, Stored, Write, cost_bytes, kills, without_value
from primacy.errors import CannotHere, InUse, MissingExtra, StorageFailed, StorageFull
from primacy.node.folder import Folder
from primacy.node.lock import AGENT, AgentLock

try:
    import lmdb
except ImportError:  # pragma: no cover
    raise MissingExtra("the cache's storage on disk", "cache") from None

VERSION = 1
"""Of what stands in the folder. A change that older programs would misread gets the next number."""
FORMAT = "format"
FORMAT_NEW = "format.new"
FORMAT_TEXT = "primacy cache storage {}\n"
FORMAT_BYTES_MAX = 200
LMDB_FILES = ("data.mdb", "lock.mdb")
RAW_BYTES_MAX = 500
"""Longer keys are hashed. A mark of one byte stands before a key, eight bytes of expiry before that: 509 of 511."""
RAW, HASHED = b"k", b"h"
SAME_HASH_MAX = 8
"""Keys of one hash. Two of 256 bits were never seen; this is a bound, and no expectation."""
HEAD = struct.Struct("!QQQH")
"""Expiry, term and boot of the epoch, bytes of its peer's url; the url and the value follow."""
EXPIRY, COST = struct.Struct("!Q"), struct.Struct("!Q")
CEILING, TURN = b"ceiling", b"turn"
DATABASES = (b"meta", b"data", b"expiry", b"floors", b"prefixes", b"about")
MAP_FACTOR = 2
"""The map may be so many times the bound: pages are rarely full, and a change is written beside what it replaces."""
MAP_LEAST_BYTES = 64 << 20
"""For metas and floors, which are not evicted."""
RESERVE_PARTS = 8
"""A full map grows by this part with each try, so that something can be evicted: even that needs pages first."""
EVICT_PARTS = (8, 2)
"""Of a full map, first this part of all values goes at once, then this one of what is left."""
LOCK_FILE_BYTES = 64 * 1024
"""Allocated before LMDB maps it: a page of it that has no room on a full disk would end the process."""
PROBE, PROBE_BYTES = "probe", 4 << 20
"""More than a batch is likely to add: who cannot have it has no room."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Hash = Callable[[bytes], bytes]


class MetaRow(msgspec.Struct, array_like=True):
    """What stands in `meta`. The key is empty where the slot holds it."""

    key: bytes
    meta: Meta


class FloorRow(msgspec.Struct, array_like=True):
    """What stands in `floors` and `prefixes`."""

    key: bytes
    term: int


def hash_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=32).digest()


class LmdbStorage:
    """One folder. Raises `InUse` if another process has it, `CannotHere` if it is not one of this version."""

    durable = True

    def __init__(self, where: str, bytes_max: int = BYTES_MAX, *, map_bytes: int = 0, hash_key: Hash = hash_of) -> None:
        """`map_bytes`: the hard limit of the file, otherwise derived from `bytes_max`."""
        self.bytes_max = bytes_max
        self.used_bytes = 0
        """As `cost_bytes` counts, of what is committed."""
        self._hash = hash_key
        self._map_bytes = map_bytes or max(MAP_FACTOR * bytes_max, MAP_LEAST_BYTES)
        self._peers: dict[str, str] = {}
        """One text per peer: thousands of metas name the same few."""
        self._swap = threading.RLock()
        """Held by a read, and while the environment is replaced or mapped anew."""
        self._broken = False
        self.where = os.path.abspath(where)
        refuse_strangers(self.where)
        self._folder = Folder(self.where)
        try:
            self._lock = AgentLock(self._folder)
        except BaseException:
            self._folder.close()
            raise
        try:
            if not self._take_lock():
                raise InUse(
                    f"the cache folder {self.where} is in use by {self._lock.holder()}; every peer needs a folder of "
                    "its own (cache.storage.dir)"
                )
            refuse_strangers(self.where)  # somebody else may have filled it before it was locked
            with self._sentences("opened"):
                claim(self._folder)
                self._open()
        except BaseException:
            self._lock.close()
            self._folder.close()
            raise

    def _take_lock(self) -> bool:
        try:
            return self._lock.take()
        except OSError as error:  # it is held; only the number of this process found no room on the disk
            if error.errno not in FULL:
                raise
            return True

    def _open(self) -> None:
        handle = self._folder.open(LMDB_FILES[1], os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(handle, 0, LOCK_FILE_BYTES)
        finally:
            os.close(handle)
        self._env = lmdb.open(
            self.where,
            map_size=self._map_bytes,
            max_dbs=len(DATABASES),
            max_spare_txns=1,
            create=False,
            mode=0o700,  # its files without the execute bits
        )
        pages, psize = self._env.info()["last_pgno"] + 1, self._env.stat()["psize"]
        if os.path.getsize(os.path.join(self.where, LMDB_FILES[0])) < pages * psize:
            self._env.close()
            raise struct.error("data.mdb is cut off")  # reading what is not there would end the process
        self._meta, self._data, self._expiry, self._floors, self._prefixes, self._about = (
            self._env.open_db(name) for name in DATABASES
        )
        with self._env.begin() as txn:
            self.used_bytes = sum(COST.unpack(cost)[0] for _, cost in txn.cursor(self._expiry))

    # --- the port

    def load(self) -> Stored:
        with self._sentences("read"), self._env.begin() as txn:
            metas = dict(self._metas(txn))
            floors = [
                Floor(row.key, prefix, row.term)
                for prefix in (False, True)
                for row in self._floor_rows(txn, self._floors_of(prefix))
            ]
            ceiling = txn.get(CEILING, db=self._about)
        return Stored(metas, tuple(floors), int.from_bytes(ceiling, "big") if ceiling is not None else None)

    def read(self, key: bytes) -> tuple[Ballot, bytes] | None:
        with self._swap, self._sentences("read"), self._env.begin(buffers=True) as txn:
            slot = self._slot(txn, key)
            row = txn.get(slot, db=self._data) if slot is not None else None
            if row is None:
                return None
            _, epoch, start = self._head(row)
            return epoch, bytes(row[start:])

    def apply(self, batch: Iterable[Write]) -> tuple[Evicted, ...]:
        writes = tuple(batch)
        with self._sentences("written"):
            self._mend()
            with contextlib.suppress(lmdb.MapFullError):
                return self._commit(writes)
            evicted: tuple[Evicted, ...] = ()
            with self._swap:  # a read in the middle would keep the pages that are to be used again
                for tries, parts in enumerate(EVICT_PARTS, 1):
                    with contextlib.suppress(lmdb.MapFullError):
                        evicted += self._make_room(parts, tries)
                        return evicted + self._commit(writes)
                return evicted + self._commit(writes)

    def close(self) -> None:
        with self._swap:
            self._env.close()
        self._lock.close()
        self._folder.close()

    # --- one transaction

    def _commit(self, writes: tuple[Write, ...], keep_bytes: int | None = None) -> tuple[Evicted, ...]:
        """`keep_bytes`: evict until no more than this is left; otherwise the bound."""
        used = self.used_bytes
        try:
            with self._env.begin(write=True, buffers=True) as txn:
                for write in writes:
                    used += self._perform(txn, write)
                evicted, freed = self._evict(txn, used - (self.bytes_max if keep_bytes is None else keep_bytes))
        except lmdb.PanicError:
            self._broken = True
            raise
        self.used_bytes = used - freed
        return evicted

    def _perform(self, txn: Any, write: Write) -> int:
        """Returns by how much the values grew, in bytes."""
        match write:
            case StoreEntry(key, meta, value):
                slot = self._slot_for(txn, key)
                freed = self._drop(txn, slot)
                cost = cost_bytes(key, value)
                peer = meta.epoch.peer.encode()
                assert meta.epoch.boot < 1 << 64, "a boot is drawn from 64 bits"
                head = HEAD.pack(meta.expire_ms, meta.epoch.term, meta.epoch.boot, len(peer))
                txn.put(slot, head + peer + value, db=self._data)
                txn.put(EXPIRY.pack(meta.expire_ms) + slot, COST.pack(cost), db=self._expiry)
                self._put_meta(txn, slot, key, meta)
                return cost - freed
            case StoreMeta(key, meta):
                self._put_meta(txn, self._slot_for(txn, key), key, meta)
            case DropValue(key, meta):
                slot = self._slot_for(txn, key)
                freed = self._drop(txn, slot)
                self._put_meta(txn, slot, key, meta)
                return -freed
            case Forget(key):
                found = self._slot(txn, key)
                if found is not None:
                    freed = self._drop(txn, found)
                    txn.delete(found, db=self._meta)
                    return -freed
            case StoreCeiling(ceiling):
                known = txn.get(CEILING, db=self._about)
                ceiling = max(ceiling, int.from_bytes(known, "big") if known is not None else 0)
                txn.put(CEILING, ceiling.to_bytes(8, "big"), db=self._about)
            case StoreFloor(floor):
                return -self._raise_floor(txn, floor)
            case ForgetFloor(floor):
                db = self._floors_of(floor.prefix)
                found = self._slot(txn, floor.key, db)
                if found is not None and self._floor(txn, found, db).term <= floor.term:
                    txn.delete(found, db=db)
            case _:
                assert_never(write)
        return 0

    def _put_meta(self, txn: Any, slot: bytes, key: bytes, meta: Meta) -> None:
        row = MetaRow(b"" if slot[:1] == RAW else key, meta)
        txn.put(slot, msgspec.msgpack.encode(row), db=self._meta)

    def _drop(self, txn: Any, slot: bytes) -> int:
        """The value of this slot, if there is one; its cost."""
        row = txn.get(slot, db=self._data)
        if row is None:
            return 0
        at = EXPIRY.pack(HEAD.unpack_from(row)[0]) + slot
        cost: int = COST.unpack(txn.pop(at, db=self._expiry))[0]
        txn.delete(slot, db=self._data)
        return cost

    def _void(self, txn: Any, slot: bytes) -> bytes:
        """What stays of the meta when the value goes (C8); the key."""
        row = self._meta_row(txn.get(slot, db=self._meta))
        key = row.key or slot[1:]
        self._put_meta(txn, slot, key, without_value(row.meta))
        return key

    def _evict(self, txn: Any, excess_bytes: int) -> tuple[tuple[Evicted, ...], int]:
        evicted, freed = [], 0
        while freed < excess_bytes:
            with txn.cursor(self._expiry) as cursor:
                if not cursor.first():
                    break
                slot = bytes(cursor.key()[EXPIRY.size :])
            _, epoch, _ = self._head(txn.get(slot, db=self._data))
            freed += self._drop(txn, slot)
            evicted.append(Evicted(self._void(txn, slot), epoch))
        return tuple(evicted), freed

    def _raise_floor(self, txn: Any, floor: Floor) -> int:
        db = self._floors_of(floor.prefix)
        slot = self._slot_for(txn, floor.key, db)
        known = self._floor(txn, slot, db).term
        txn.put(slot, msgspec.msgpack.encode(FloorRow(floor.key, max(known, floor.term))), db=db)
        if floor.prefix:
            short = self._slots_below(txn, RAW + floor.key) if len(floor.key) <= RAW_BYTES_MAX else []
            reached = [*short, *self._slots_below(txn, HASHED)]
        else:
            found = self._slot(txn, floor.key)
            reached = [found] if found is not None else []
        freed = 0
        for each in reached:
            row = txn.get(each, db=self._data)
            if row is None:
                continue
            key = self._meta_row(txn.get(each, db=self._meta)).key or each[1:]
            if kills(floor, key, self._head(row)[1]):
                freed += self._drop(txn, each)
                self._void(txn, each)
        return freed

    # --- rows

    def _slots_below(self, txn: Any, start: bytes) -> list[bytes]:
        """All slots of values that begin so."""
        found = []
        with txn.cursor(self._data) as cursor:
            more = cursor.set_range(start)
            while more and bytes(cursor.key()[: len(start)]) == start:
                found.append(bytes(cursor.key()))
                more = cursor.next()
        return found

    def _slot(self, txn: Any, key: bytes, db: Any = None) -> bytes | None:
        """Where this key stands, or stood; None: a long key that is not there."""
        if len(key) <= RAW_BYTES_MAX:
            return RAW + key
        for slot, row in self._same_hash(txn, key, db):
            if row is not None and self._key(row, db) == key:
                return slot
        return None

    def _slot_for(self, txn: Any, key: bytes, db: Any = None) -> bytes:
        """Where it stands, or may stand."""
        slot = self._slot(txn, key, db)
        if slot is not None:
            return slot
        for free, row in self._same_hash(txn, key, db):
            if row is None:
                return free
        raise StorageFailed(f"more than {SAME_HASH_MAX} keys have one hash; the value is not stored")

    def _same_hash(self, txn: Any, key: bytes, db: Any) -> Iterator[tuple[bytes, Any]]:
        start = HASHED + self._hash(key)
        for digit in range(SAME_HASH_MAX):
            slot = start + bytes([digit])
            yield slot, txn.get(slot, db=db if db is not None else self._meta)

    def _key(self, row: Any, db: Any) -> bytes:
        return self._meta_row(row).key if db is None else msgspec.msgpack.decode(row, type=FloorRow).key

    def _floors_of(self, prefix: bool) -> Any:
        return self._prefixes if prefix else self._floors

    def _floor(self, txn: Any, slot: bytes, db: Any) -> FloorRow:
        row = txn.get(slot, db=db)
        return FloorRow(b"", -1) if row is None else msgspec.msgpack.decode(row, type=FloorRow)

    def _floor_rows(self, txn: Any, db: Any) -> Iterator[FloorRow]:
        for _, row in txn.cursor(db):
            yield msgspec.msgpack.decode(row, type=FloorRow)

    def _metas(self, txn: Any) -> Iterator[tuple[bytes, Meta]]:
        for slot, data in txn.cursor(self._meta):
            row = self._meta_row(data)
            epoch = row.meta.epoch
            peer = self._peers.setdefault(epoch.peer, epoch.peer)
            yield row.key or slot[1:], row.meta._replace(epoch=epoch._replace(peer=peer))

    def _meta_row(self, row: Any) -> MetaRow:
        return msgspec.msgpack.decode(row, type=MetaRow)

    def _head(self, row: Any) -> tuple[int, Ballot, int]:
        """Expiry and epoch of a value, and where it starts."""
        expire_ms, term, boot, length = HEAD.unpack_from(row)
        start = HEAD.size + length
        peer = bytes(row[HEAD.size : start]).decode()
        return expire_ms, Ballot(term, self._peers.setdefault(peer, peer), boot), start

    # --- what goes wrong

    def _make_room(self, parts: int, tries: int) -> tuple[Evicted, ...]:
        """The map is full, before the bound was reached: pages are scattered, or metas are too many.

        Evicting needs pages, too: each try has a little more room for it.
        """
        with self._swap:
            self._env.set_mapsize(self._map_bytes + tries * self._map_bytes // RESERVE_PARTS)
        evicted = self._commit((), keep_bytes=self.used_bytes - self.used_bytes // parts)
        with self._env.begin(write=True) as txn:  # pages that one commit frees can be used from the next but one on
            txn.put(TURN, os.urandom(8), db=self._about)
        return evicted

    def _mend(self) -> None:
        """After an error in the middle of a commit LMDB takes no more; opened anew it has what was committed before."""
        if self._broken:
            with self._swap:
                self._env.close()
                self._open()
            self._broken = False

    def _why_short(self) -> int:
        """LMDB says EIO of a write that was cut short, which is what a full disk does to a large one.

        Whether it is full is known by trying: behind the end of the data, where a limit on sizes or a quota counts too.
        """
        try:
            end = os.path.getsize(os.path.join(self.where, LMDB_FILES[0]))
            handle = self._folder.create(PROBE)
            try:
                os.posix_fallocate(handle, end, PROBE_BYTES)
            finally:
                os.close(handle)
                os.unlink(PROBE, dir_fd=self._folder.handle)
        except OSError as error:
            return error.errno or errno.EIO
        return errno.EIO

    @contextlib.contextmanager
    def _sentences(self, doing: str) -> Iterator[None]:
        """Errors of LMDB and of the disk, as ours."""
        try:
            yield
        except lmdb.MapFullError:
            raise StorageFull(
                f"the cache folder {self.where} cannot be {doing}: it has reached its limit of {self._map_bytes:,} "
                "bytes; raise cache.storage.bytes_max"
            ) from None
        except (lmdb.Error, OSError) as error:
            number = getattr(error, "code", None) or getattr(error, "errno", None)
            number = self._why_short() if number == errno.EIO else number
            why = os.strerror(number) if number and number > 0 else str(error)
            text = f"the cache folder {self.where} cannot be {doing}: {why}"
            if number in FULL:
                raise StorageFull(f"{text}; make room on that disk") from None
            raise StorageFailed(text) from None
        except (msgspec.DecodeError, msgspec.ValidationError, struct.error, UnicodeDecodeError) as error:
            raise StorageFailed(
                f"the cache folder {self.where} is damaged ({error}); move it away, and the peer starts without memory"
            ) from None


def refuse_strangers(where: str) -> None:
    """Raises `CannotHere` unless the folder is missing, empty, or one of this version. Touches nothing."""
    try:
        names = sorted(os.listdir(where))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotHere(f"the cache folder {where} cannot be used: {error.strerror}") from None
    if FORMAT in names:
        with open(os.path.join(where, FORMAT), "rb") as file:
            text = file.read(FORMAT_BYTES_MAX)
        if text == FORMAT_TEXT.format(VERSION).encode():
            return
        shown = text.decode(errors="replace").strip()
        raise CannotHere(
            f"the cache folder {where} was made by another version ({shown!r}, this one writes "
            f"{FORMAT_TEXT.format(VERSION).strip()!r}); nothing in it was changed: name another folder in "
            "cache.storage.dir, or move this one away"
        )
    others = [name for name in names if name not in (AGENT, FORMAT_NEW)]
    if others:
        raise CannotHere(
            f"the folder {where} is no cache folder and not empty (it has {', '.join(others[:3])}); nothing in it was "
            "changed: name another folder in cache.storage.dir"
        )


def claim(folder: Folder) -> None:
    """Mark a new folder as one of this version, durably and before LMDB makes its files."""
    if FORMAT in os.listdir(folder.where):
        return
    handle = folder.create(FORMAT_NEW)
    try:
        text = FORMAT_TEXT.format(VERSION).encode()
        if os.write(handle, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)
    folder.rename(FORMAT_NEW, FORMAT)
    folder.sync()
