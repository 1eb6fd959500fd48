"""The note beside a SQLite file: which write of each row was the last one in this boot of the kernel (L5).

A SQLite file that is put back in place (`cp`, `.restore`, the backup API) keeps its device and inode, and in WAL mode
even its change counter. All users of the file are on this machine, so they keep a small file beside it, `FILE-primacy`,
with the proof of the last write of every row, and a digest of what was written. The proof is random and new with every
write: a row whose proof is another one comes from an older file; one with another digest was changed by hand.

It is written under the database's own write lock, before the commit. Who is killed in between leaves a row that does
not vouch: it is watched for the longest wait, and then taken. The note has the boot id of the kernel, so it need not
survive the machine and is never synced. Its `word` is random and part of the store's identity: a note that is missing,
torn, of another boot or of another file is made anew, and what stood before it counts as written on another server.

The file is a head and one slot per name, none of which crosses a page, so that a slot is written as a whole or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Mapping, Sequence

from primacy.election.store import Row
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
KEY_BYTES = 32
FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
PROOF_LETTERS = 16
SHORT = NAME_MAX + PROOF_LETTERS
"""A name and a proof, with a checksum behind them: all that a slot of an earlier version holds."""
DEFAULT_TABLE = "primacy_leases"
CHANGES_AT = SLOT - 16
"""Where the head counts slots that were given to a name or taken from one; outside of its checksum."""


class Note:
    """One user's view of the note. All but `noted` is called under the database's write lock."""

    def __init__(self, database: str, boot_id: str = BOOT_ID, table: str = DEFAULT_TABLE) -> None:
        self.path = database + SUFFIX
        self._table = table.lower()  # as SQLite compares them
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
        """Slot and content of names that were looked up under the present lock: nobody else changes them."""
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

    def noted(self, name: str) -> str | None:
        """Of its last write in this boot: `vouching`; None: there was none. What is torn vouches for nothing."""
        return self._noted(self._key(name))

    def _key(self, name: str) -> str:
        """Under what the name stands in the note, which all tables of the file share.

        In the usual table it is the name itself, as in notes of earlier versions. No name begins as the others do.
        """
        if self._table == DEFAULT_TABLE:
            return name
        return "*" + hashlib.blake2b(f"{self._table} {name}".encode(), digest_size=KEY_BYTES).hexdigest()

    def _noted(self, name: str) -> str | None:
        if name in self._locked:
            return self._locked[name][1]
        slot, data = self._found(name)
        noted = None if slot is None else _noted_in(data)
        if self._held:
            self._locked[name] = (slot, noted)
        return noted

    def read(self, names: Sequence[str]) -> None:
        """Looks all of them up at once, for `noted`; under the lock. What is not where it was is left to that."""
        keys = map(self._key, names)
        slots = sorted((slot, key) for key in keys if (slot := self._slots.get(key)) is not None)
        if not self._held or not slots:
            return
        first, last = slots[0][0], slots[-1][0]
        if last - first >= SPREAD_MAX * len(slots):
            return
        found = self._bytes((last - first + 1) * SLOT, first * SLOT)
        for slot, name in slots:
            data = found[(slot - first) * SLOT : (slot - first + 1) * SLOT]
            if data[:NAME_MAX].rstrip(b"\0") == name.encode():
                self._locked[name] = (slot, _noted_in(data))

    def write_all(self, texts: Mapping[str, str | None]) -> None:
        """As `write`, of many names: slots side by side are written together."""
        self._check_writable()
        texts = {self._key(name): text for name, text in texts.items()}
        runs: list[tuple[int, bytes]] = []
        known = {name: self._locked[name][0] for name in texts if name in self._locked}
        for name, text in texts.items():
            slot = known.get(name)
            if slot is None or text is None:
                self._write_one(name, text)
                continue
            self._locked[name] = (slot, text)
            runs.append((slot, _slot_of(name, text)))
        runs.sort()
        at = 0
        while at < len(runs):
            end = at + 1
            while end < len(runs) and runs[end][0] == runs[end - 1][0] + 1:
                end += 1
            self._write(b"".join(data for _, data in runs[at:end]), runs[at][0] * SLOT)
            at = end

    def write(self, name: str, text: str | None) -> None:
        """Before the commit of what it says. None: the row is gone."""
        self._check_writable()
        self._write_one(self._key(name), text)

    def _write_one(self, name: str, text: str | None) -> None:
        slot = (self._locked.get(name) or self._found(name))[0]
        if text is None:
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
            self._locked[name] = (slot, text)
        self._put(slot, _slot_of(name, text))

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


def vouching(name: str, row: Row) -> str:
    """What the note says of a row: its proof, and a digest of all that stands in it."""
    *plain, proof = row[:10]
    text = "\n".join((name, proof, *(str(int(value)) if isinstance(value, bool) else str(value) for value in plain)))
    return proof + hashlib.blake2b(text.encode(), digest_size=PROOF_LETTERS // 2).hexdigest()


def vouches(name: str, row: Row, noted: str) -> bool:
    """Whether the row is the one that the note tells of. An earlier version notes the proof alone."""
    return noted == (row.proof if len(noted) == PROOF_LETTERS else vouching(name, row))


def _slot_of(name: str, text: str) -> bytes:
    short = name.encode("ascii").ljust(NAME_MAX, b"\0") + text[:PROOF_LETTERS].encode("ascii").ljust(16, b"\0")
    whole = _sealed(short)
    digest = text[PROOF_LETTERS:].encode("ascii")
    return (_sealed(whole + digest) if digest else whole).ljust(SLOT, b"\0")


def _noted_in(data: bytes) -> str:
    if len(data) != SLOT or not _is_sealed(data[: SHORT + 8]):
        return "torn"
    proof, digest = data[NAME_MAX:SHORT], data[SHORT + 8 : SHORT + 8 + PROOF_LETTERS]
    if not digest.strip(b"\0"):
        return proof.decode("ascii", "replace")
    if not _is_sealed(data[: SHORT + 8 + PROOF_LETTERS + 8]):
        return "torn"
    return (proof + digest).decode("ascii", "replace")
