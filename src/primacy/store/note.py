"""The note beside a SQLite file: which write of each row was the last one in this boot of the kernel (L5).

A SQLite file that is put back in place (`cp`, `.restore`, the backup API) keeps its device and inode, and in WAL mode
even its change counter. All users of the file are on this machine, so they keep a small file beside it, `FILE-primacy`,
with the proof of the last write of every row. The proof is random and new with every write: a row whose proof is
another one comes from an older file.

It is written under the database's own write lock, before the commit. Who is killed in between leaves a row that does
not vouch: it is watched for the longest wait, and then taken. The note has the boot id of the kernel, so it need not
survive the machine and is never synced. Its `word` is random and part of the store's identity: a note that is missing,
torn, of another boot or of another file is made anew, and what stood before it counts as written on another server.

The file is a head and one slot per name, none of which crosses a page, so that a slot is written as a whole or not.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import zlib
from collections.abc import Mapping, Sequence

from primacy.errors import NotReached, Refused, StoreUnusable
from primacy.store.port import NAME_MAX

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SUFFIX = "-primacy"
SLOT = 256
MAGIC = b"primacy note 1"
SLOTS_MAX = 1_000_000
"""256 MB. More names than that in one file is a mistake, which would fill the disk."""
EMPTY = b"\0" * SLOT
SPREAD_MAX = 8
"""Slots are read together if they are not spread over more than so many times as many."""
FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CHANGES_AT = SLOT - 16
"""Where the head counts slots that were given to a name or taken from one; outside of its checksum."""


class Note:
    """One user's view of the note. All but `proof_of` is called under the database's write lock."""

    def __init__(self, database: str, boot_id: str = BOOT_ID) -> None:
        self.path = database + SUFFIX
        self._database = database
        self._boot_id = boot_id
        self._fd = -1
        self._inode = (0, 0)
        self._writes = False
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._end = 0
        self._changes = b""
        """As the head counted when the slots were last read."""
        self._boot = b""
        """Of the kernel, when the note was opened."""
        self._sound = (b"", (0, 0))
        """A head that was found sound, and for which file."""
        self._held = False
        self._locked: dict[str, tuple[int | None, str | None]] = {}
        """Slot and proof of names that were looked up under the present lock: nobody else changes them."""
        self.word = ""
        """Empty: there is no note that could be used."""

    def close(self) -> None:
        fd, self._fd, self.word = self._fd, -1, ""
        self._slots, self._free, self._changes, self._locked = {}, [], b"", {}
        if fd >= 0:
            os.close(fd)

    def is_sound(self, inode: tuple[int, int]) -> bool:
        """Whether the note of this boot and of this file is open, and still the one that has the name."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            self.close()
            return False
        except OSError as error:
            raise NotReached(f"{self.path}: {error.strerror}") from None
        if self._fd < 0 or self._inode != (found.st_dev, found.st_ino):
            self.close()
            self._open()
        self.word = self._word(inode) if self._fd >= 0 else ""
        return bool(self.word)

    def make(self, inode: tuple[int, int]) -> None:
        """A new one, in place of whatever stands there. It has the rights of the database file."""
        self.close()
        self._read_boot()
        word = os.urandom(8).hex()
        head = self._head(inode, word)
        folder, name = os.path.split(self.path)
        try:
            like = os.stat(self._database)
            fd, temporary = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
            try:
                os.fchmod(fd, like.st_mode & 0o666)
                if os.geteuid() == 0 or like.st_gid != os.getegid():
                    with contextlib.suppress(
                        PermissionError
                    ):  # of no group that this user is in: then who is must write
                        os.fchown(fd, like.st_uid if os.geteuid() == 0 else -1, like.st_gid)
                _write(fd, head, 0)
                os.rename(temporary, self.path)
            except BaseException:
                os.unlink(temporary)
                raise
            finally:
                os.close(fd)
        except PermissionError as error:
            raise StoreUnusable(
                f"{self.path} cannot be made ({error.strerror}): this user needs to write the folder of the file"
            ) from None
        except OSError as error:
            raise Refused(f"{self.path} cannot be made: {error.strerror}") from None

    def lock(self, held: bool) -> None:
        """The database's write lock is ours from now on, or no longer: what was looked up before may have changed."""
        self._held, self._locked = held, {}

    def proof_of(self, name: str) -> str | None:
        """The proof of its last write in this boot; None: there was none. What is torn matches no proof."""
        if name in self._locked:
            return self._locked[name][1]
        slot, data = self._found(name)
        proof = None if slot is None else _proof_in(data)
        if self._held:
            self._locked[name] = (slot, proof)
        return proof

    def read(self, names: Sequence[str]) -> None:
        """Looks all of them up at once, for `proof_of`; under the lock. What is not where it was is left to that."""
        slots = sorted((slot, name) for name in names if (slot := self._slots.get(name)) is not None)
        if not self._held or not slots:
            return
        first, last = slots[0][0], slots[-1][0]
        if last - first >= SPREAD_MAX * len(slots):
            return
        found = self._bytes((last - first + 1) * SLOT, first * SLOT)
        for slot, name in slots:
            data = found[(slot - first) * SLOT : (slot - first + 1) * SLOT]
            if data[:NAME_MAX].rstrip(b"\0") == name.encode():
                self._locked[name] = (slot, _proof_in(data))

    def write_all(self, proofs: Mapping[str, str | None]) -> None:
        """As `write`, of many names: slots side by side are written together."""
        self._check_writable()
        runs: list[tuple[int, bytes]] = []
        known = {name: self._locked[name][0] for name in proofs if name in self._locked}
        for name, proof in proofs.items():
            slot = known.get(name)
            if slot is None or proof is None:
                self.write(name, proof)
                continue
            self._locked[name] = (slot, proof)
            runs.append((slot, _slot_of(name, proof)))
        runs.sort()
        at = 0
        while at < len(runs):
            end = at + 1
            while end < len(runs) and runs[end][0] == runs[end - 1][0] + 1:
                end += 1
            self._write(b"".join(data for _, data in runs[at:end]), runs[at][0] * SLOT)
            at = end

    def write(self, name: str, proof: str | None) -> None:
        """Before the commit of what it says. None: the row is gone."""
        self._check_writable()
        slot = (self._locked.get(name) or self._found(name))[0]
        if proof is None:
            if slot is not None:
                self._count()
                self._put(slot, EMPTY)
                del self._slots[name]
                self._free.append(slot)
                self._locked.pop(name, None)
            return
        is_new = slot is None
        if slot is None:
            slot = self._free.pop() if self._free else self._end
        if slot >= SLOTS_MAX:
            raise StoreUnusable(f"{self._database} has {SLOTS_MAX:,} names: primacy lease prune removes unused ones")
        if is_new:
            self._count()
            self._slots[name], self._end = slot, max(self._end, slot + 1)
        if self._held:
            self._locked[name] = (slot, proof)
        self._put(slot, _slot_of(name, proof))

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            try:
                self._fd, self._writes = os.open(self.path, os.O_RDWR | FLAGS), True
            except PermissionError:
                self._fd, self._writes = os.open(self.path, os.O_RDONLY | FLAGS), False
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnusable(
                f"{self.path} cannot be read ({error.strerror}): give this user the rights of {self._database}"
            ) from None
        self._read_boot()
        found = os.fstat(self._fd)
        self._inode = (found.st_dev, found.st_ino)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise StoreUnusable(f"{self.path} is no file: remove it, and a new one is made")

    def _read_boot(self) -> None:
        try:
            with open(self._boot_id, "rb") as file:
                self._boot = file.read().strip()
        except OSError as error:
            raise StoreUnusable(f"the kernel does not say which boot this is: {error.strerror}") from None

    def _head(self, inode: tuple[int, int], word: str) -> bytes:
        body = b"%s\n%s\n%x:%x\n%s\n" % (MAGIC, self._boot, *inode, word.encode())
        return _sealed(body.ljust(CHANGES_AT - 8, b"\0")).ljust(SLOT, b"\0")

    def _word(self, inode: tuple[int, int]) -> str:
        head = self._read(0)[:CHANGES_AT]
        if self.word and self._sound == (head, inode):
            return self.word
        if not _is_sealed(head):
            return ""
        word = head[:-8].rstrip(b"\0").split(b"\n")[-2].decode("ascii", "replace")
        if head != self._head(inode, word)[:CHANGES_AT]:
            return ""
        self._sound = (head, inode)
        return word

    def _found(self, name: str) -> tuple[int | None, bytes]:
        """Where the name stands, and with what.

        Others may have given slots to names, or taken them, since they were last read.
        """
        slot = self._slots.get(name)
        if slot is not None:
            data = self._read(slot)
            if data[:NAME_MAX].rstrip(b"\0") == name.encode():
                return slot, data
        changes = self._read(0)[CHANGES_AT:]
        if changes != self._changes or slot is not None:
            self._read_all()
            self._changes = changes
        slot = self._slots.get(name)
        return slot, b"" if slot is None else self._read(slot)

    def _read_all(self) -> None:
        self._slots, self._free = {}, []
        size = min(os.fstat(self._fd).st_size // SLOT, SLOTS_MAX)
        self._end = max(1, size)
        data = self._bytes(size * SLOT, 0)
        for slot in range(1, len(data) // SLOT):
            name = data[slot * SLOT : slot * SLOT + NAME_MAX].rstrip(b"\0")
            if name:
                self._slots[name.decode("ascii", "replace")] = slot
            else:
                self._free.append(slot)

    def _count(self) -> None:
        """Before a slot changes its name, so that nobody overlooks it."""
        number = int.from_bytes(self._read(0)[CHANGES_AT : CHANGES_AT + 8], "little")
        self._write(((number + 1) % 2**64).to_bytes(8, "little"), CHANGES_AT)
        self._changes = self._read(0)[CHANGES_AT:]

    def _put(self, slot: int, data: bytes) -> None:
        self._write(data, slot * SLOT)

    def _check_writable(self) -> None:
        if not self._writes:
            raise StoreUnusable(f"{self.path} is read-only for this user: give it the rights of {self._database}")

    def _read(self, slot: int) -> bytes:
        return self._bytes(SLOT, slot * SLOT)

    def _bytes(self, number: int, at: int) -> bytes:
        try:
            return os.pread(self._fd, number, at)
        except OSError as error:
            raise NotReached(f"{self.path} cannot be read: {error.strerror}") from None

    def _write(self, data: bytes, at: int) -> None:
        try:
            _write(self._fd, data, at)
        except OSError as error:
            raise Refused(f"{self.path} cannot be written: {error.strerror}") from None


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError(28, "no space left on the device")


def _sealed(body: bytes) -> bytes:
    return body + b"%08x" % zlib.crc32(body)


def _is_sealed(data: bytes) -> bool:
    return len(data) > 8 and b"%08x" % zlib.crc32(data[:-8]) == data[-8:]


def _slot_of(name: str, proof: str) -> bytes:
    body = name.encode("ascii").ljust(NAME_MAX, b"\0") + proof.encode("ascii").ljust(16, b"\0")
    return _sealed(body).ljust(SLOT, b"\0")


def _proof_in(data: bytes) -> str:
    return data[NAME_MAX : NAME_MAX + 16].decode("ascii", "replace") if _is_whole(data) else "torn"


def _is_whole(data: bytes) -> bool:
    return len(data) == SLOT and _is_sealed(data[: NAME_MAX + 16 + 8])
