"""Leases in a SQLite file: the embedded default, for all processes of one machine.

The "server" is the file and the note beside it (`note.py`): device, inode, and the note's random word. A file that was
deleted or replaced while it was open is noticed before every statement, or an old holder would go on renewing in a file
that nobody else sees. One that was put back in place keeps its inode: then its rows are not those of the note, and do
not vouch. Network file systems are refused: their locks are not to be trusted.

A write reads the rows, judges them by `conditions.py` and writes, in one transaction under the file's write lock, with
the note before the commit.

A connection must not be used after a fork, nor be closed there: the child leaves it alone and holds nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

from primacy.election.store import GENESIS, Genesis, Place, Prune, ReleaseRow, Renew, Row, Settle, StoreRequest, Take
from primacy.errors import CannotHere, NotReached, Refused, StoreUnusable, UsageError
from primacy.store import sqlite_text
from primacy.store.conditions import after, needs_count
from primacy.store.inotify import Ear
from primacy.store.note import PROOF_LETTERS, Note, vouches, vouching
from primacy.store.port import LIST_MAX, Listing, News, listing_of, next_link
from primacy.store.sql import NoTable, OldTable, SqlStore, StatementResult, genesis_of, named_row

log = logging.getLogger("primacy.store")

LEAST_VERSION = (3, 38, 0)
"""RETURNING came with 3.35; since 3.38 every build has the JSON functions."""
MOUNTS = "/proc/self/mountinfo"
NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "gfs2", "ocfs2", "beegfs",
    "9p", "virtiofs", "vboxsf", "davfs", "gpfs", "pvfs2", "prl_fs", "vmhgfs", "coda", "panfs", "wekafs",
)  # fmt: skip
LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.encfs", "fuse.gocryptfs")
"""Of the programs that serve files (FUSE), most over a network, those that are known to have them on a local disk."""


class SqliteStore(SqlStore):
    """One connection to one file."""

    def __init__(self, path: str, table: str = "primacy_leases", limit_ms: int = 900, create: bool = True) -> None:
        super().__init__(create)
        if sqlite3.sqlite_version_info < LEAST_VERSION:
            least = ".".join(map(str, LEAST_VERSION))
            raise CannotHere(f"this Python has SQLite {sqlite3.sqlite_version}; leases need {least} or newer")
        if not path or ":memory:" in path:
            raise UsageError(
                "a lease in SQLite needs a file, such as sqlite:///leases.db; within a process use memory:"
            )
        self.texts = sqlite_text.sqlite(table)
        self._remove = sqlite_text.remove(table)
        self._migration = sqlite_text.migrate(table)
        self.path = os.path.abspath(path)
        self._limit_ms = limit_ms
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self._table = table
        self._note = Note(self.path, table=table)
        self._before: dict[str, str | None] = {}
        """What the note said before the transaction that is open."""
        self._ear: Ear | None = None
        refuse_network(self.path)

    @property
    def _me(self) -> str:
        return f"sqlite:{self._inode[0]:x}:{self._inode[1]:x}:{self._note.word or 'unnoted'}"

    def close(self) -> None:
        connection, self._connection = self._connection, None
        ear, self._ear = self._ear, None
        self._before = {}
        self._note.close()
        if ear is not None:
            ear.close()
        if connection is not None and not self._is_inherited(connection):
            connection.close()

    # --- what is asked ------------------------------------------------------------------------------------------------

    def listings(self) -> list[Listing]:
        """Of a text that is not UTF-8 its row is refused, and not the file."""
        self._connected().text_factory = lambda data: data.decode(errors="surrogateescape")
        try:
            found = self._with_table(lambda: self._execute(self.texts.listings, {"most": LIST_MAX}))
        finally:
            if self._connection is not None:
                self._connection.text_factory = str
        self._make_note()
        return [listing_of(values[0], partial(self._judged, values), values[11]) for values in found]

    def _raise_wait_max(self, wait_max_ms: int) -> None:
        with self._writing() as connection:
            genesis = genesis_of(self._read(connection, [GENESIS], count=False))
            if genesis.wait_max_ms >= wait_max_ms:
                return
            # its new proof vouches, and a genesis row from an older file must not look settled by that
            settled = genesis.settled if genesis.vouches else ""
            raised = genesis._replace(wait_max_ms=wait_max_ms, version=genesis.version + 1, settled=settled)
            self._write_rows(connection, {GENESIS: _with_proof(_row_of(raised), os.urandom(8).hex())})

    def _migrate(self) -> None:
        with self._writing() as connection:
            try:
                for text in self._migration:
                    connection.execute(text)
            except sqlite3.OperationalError as error:
                if "duplicate column" not in str(error):  # somebody else was quicker
                    raise

    # --- reading ------------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str], count: bool) -> StatementResult:
        """A row that does not vouch may be about to be written in this moment: then it is read under the lock."""
        connection = self._connected()
        self._make_note()
        with self._failing(), self._reading(connection):
            seen = self._read(connection, names, count)
        if (
            connection.in_transaction
            or not any(row.proof and row.mark and not row.vouches for row in seen.rows.values())
            or not self._note.word
        ):
            return seen
        try:
            with self._writing() as connection:
                return self._read(connection, names, count)
        except StoreUnusable:
            return seen  # who may only read sees it as it is

    @contextmanager
    def _reading(self, connection: sqlite3.Connection) -> Iterator[None]:
        """All that is read inside stood there at one moment."""
        own = not connection.in_transaction
        if own:
            connection.execute("BEGIN")
        try:
            yield
        finally:
            if own and connection.in_transaction:  # some errors end it by themselves
                connection.execute("ROLLBACK")

    def _read(self, connection: sqlite3.Connection, names: Sequence[str], count: bool) -> StatementResult:
        found = connection.execute(self.texts.look, {"names": json.dumps(list(names))}).fetchall()
        self._note.read(names)
        number = connection.execute(self.texts.counted).fetchone()[0] if count else -1
        return StatementResult(self._me, {str(values[0]): self._judged(values) for values in found}, number)

    def _judged(self, values: Sequence[Any]) -> Row:
        """A row, and whether its last write is the one that the note tells of.

        One that was not written since the note began is of another identity; version 0.1 writes no proof.
        """
        name, *plain = values[:11]
        noted = self._note.noted(str(name)) if self._note.word else "none"
        row = named_row(name, [*plain, (noted or "")[:PROOF_LETTERS], True])
        if noted is not None:
            return row._replace(vouches=vouches(str(name), row, noted))
        return row._replace(vouches=bool(row.proof) and row.server != self._me)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _take(self, take: Take) -> StatementResult:
        return self._written_by([take])

    def _insert(self, take: Take) -> StatementResult:
        return self._written_by([take])

    def _renew(self, requests: Sequence[Renew]) -> StatementResult:
        return self._written_by(requests)

    def _release(self, requests: Sequence[ReleaseRow]) -> StatementResult:
        done = self._written_by(requests)
        if done.rows:
            self._touch()
        return done

    def _change(self, request: Place | Settle | Prune) -> bool:
        return bool(self._written_by([request]).rows)

    def _written_by(self, requests: Sequence[StoreRequest]) -> StatementResult:
        """What was written, by the names that asked for it. For a row that is gone, and for settling: what was."""
        done: dict[str, Row] = {}
        rows: dict[str, Row | None] = {}
        with self._writing() as connection:
            me = self._me
            names = [request.name for request in requests]
            if not all(isinstance(request, Renew | ReleaseRow) for request in requests):
                names.append(GENESIS)  # whatever stands in that row, a live holder does not depend on it
            seen = self._read(connection, names, any(needs_count(request) for request in requests))
            genesis = genesis_of(seen)
            proofs = os.urandom(8 * (len(requests) + 1)).hex()
            for number, request in enumerate(requests):
                if isinstance(request, Take | Settle) and request.link not in (0, self._link):
                    continue  # its evidence came over another connection
                change = after(seen.rows.get(request.name), genesis, request, me)
                if change is None:
                    continue
                if change.row is not None:
                    proof = proofs[16 * number : 16 * number + 16]
                    done[request.name] = rows[request.name] = _with_proof(change.row, proof)
                elif change.removed:
                    done[request.name], rows[request.name] = seen.rows[request.name], None
                if change.genesis is not None:
                    written = rows[GENESIS] = _with_proof(_row_of(change.genesis), proofs[-16:])
                    done.setdefault(request.name, written)
            self._write_rows(connection, rows)
        if inode_of(self.path) != self._inode:
            self.close()
            raise NotReached(f"{self.path} was replaced in the middle of a statement")
        return StatementResult(me, done)

    def _write_rows(self, connection: sqlite3.Connection, rows: Mapping[str, Row | None]) -> None:
        """Each with its new proof, which the note has before the table; None: it goes."""
        for name in rows:
            if name not in self._before:
                self._before[name] = self._note.noted(name)
        self._note.write_all({name: None if row is None else vouching(name, row) for name, row in rows.items()})
        removed = [{"name": name} for name, row in rows.items() if row is None]
        if removed:
            connection.executemany(self._remove, removed)
        written = [(name, *row[:10]) for name, row in rows.items() if row is not None]
        connection.execute(self.texts.take, {"rows": json.dumps(written)})

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction under the write lock; part of the one that is open, if there is one."""
        connection = self._connected()
        own = not connection.in_transaction
        with self._failing():
            if own:
                self._before = {}
                connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._note.is_sound(self._inode):
                    self._note.make(self._inode)
                    self._note.is_sound(self._inode)
                self._note.lock(held=True)
                yield connection
                if own:
                    connection.execute("COMMIT")
                    self._before = {}
            except BaseException:
                if own and connection.in_transaction:
                    self._undo()
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._note.lock(held=False)

    def _undo(self) -> None:
        """The note as it was, while the lock is still ours. If that fails, the rows do not vouch."""
        before, self._before = self._before, {}
        for name, proof in before.items():
            try:
                self._note.write(name, proof)
            except (Refused, StoreUnusable) as error:
                log.warning("the note of %s was not put back: %s", self.path, error)

    def _make_note(self) -> None:
        """If there is none of use. One who may not write has none, and then no row vouches."""
        self._connected()
        if self._note.is_sound(self._inode):
            return
        try:
            with self._writing():
                pass
        except StoreUnusable as error:
            log.debug("%s", error)

    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        connection = self._connected()
        with self._failing():
            if text.startswith("ROLLBACK"):
                self._undo()
            found = connection.execute(text, values).fetchall()
        if not connection.in_transaction or text.startswith("BEGIN"):
            self._before = {}
        return found

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._meaning(error) from None

    def _meaning(self, error: sqlite3.Error) -> Exception:
        text, code = str(error), getattr(error, "sqlite_errorname", "")
        if text.startswith("no such table"):
            return NoTable(f"{self.path} has no table of leases")
        if "column" in text and text.endswith("proof"):
            return OldTable(f"the leases in {self.path} are of version 0.1")
        if "no such column" in text or "has no column" in text:
            return StoreUnusable(f"{self.path}: {text}: this table is not one of primacy's; use another table's name")
        if text.startswith("Could not decode"):  # the driver says it: the file is well, and so are its other rows
            return Refused(f"{self.path}: a row in it is not one of primacy's: a text is not UTF-8")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return Refused(f"{self.path} was locked by somebody else for {self._limit_ms} ms")
        if code.startswith("SQLITE_FULL"):
            return Refused(f"{self.path} cannot be written: the disk is full")
        if code.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
            return StoreUnusable(f"{self.path} is read-only for this user: a lease needs to write it, and its folder")
        self.close()
        if code.startswith("SQLITE_NOTADB"):
            return StoreUnusable(f"{self.path} is not a SQLite database: name another file")
        if code.startswith("SQLITE_CORRUPT"):
            return StoreUnusable(f"{self.path} is damaged ({text}): put back a backup of it, or remove it")
        if code.startswith("SQLITE_CANTOPEN"):
            return self._cannot_open()
        return NotReached(f"{self.path}: {text} ({code or type(error).__name__})")

    def _cannot_open(self) -> Exception:
        folder = os.path.dirname(self.path)
        if os.path.isdir(self.path):
            return StoreUnusable(f"{self.path} is a folder: name a file in it")
        if not os.path.isdir(folder):
            return StoreUnusable(f"there is no folder {folder}: make it")
        if not os.access(folder, os.W_OK | os.X_OK) or (
            os.path.exists(self.path) and not os.access(self.path, os.R_OK)
        ):
            return StoreUnusable(f"{self.path} cannot be opened: this user may not write it, or its folder")
        return NotReached(f"{self.path} cannot be opened")

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        self._connected()
        if self._ear is None:
            try:
                self._ear = Ear(self.path)
            except OSError as error:
                raise Refused(f"the system does not tell when {self.path} is touched: {error.strerror}") from None
        return self._ear.descriptor

    def news(self) -> list[News]:
        """Which row it was the file does not say."""
        if self._ear is None:
            return []
        return [News("")] if self._ear.touched() else []

    def _touch(self) -> None:
        """The row is released and everything is said in it: the rest is only to be sooner than the next look."""
        try:
            os.utime(self.path)
        except OSError as error:
            log.debug("%s could not be touched: %s", self.path, error.strerror)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        """The connection, if it is of this process and to the file that has this name now; else a new one."""
        self._check_process()
        if self._connection is not None and self._inode != inode_of(self.path):
            was_open = self._connection.in_transaction
            self.close()
            if was_open:
                raise NotReached(f"{self.path} was replaced in the middle of a transaction")
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        self._note.close()
        real = single_name(self.path)
        refuse_single_mount(real)
        self._note = Note(real, table=self._table)
        is_new = inode_of(self.path) is None
        if is_new and not self._create:
            raise NotReached(f"there is no file {self.path}")
        mode = "rwc" if self._create else "rw"
        try:
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?mode={mode}",
                uri=True,
                timeout=self._limit_ms / 1_000,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._meaning(error) from None
        self._connection = connection
        try:
            connection.execute("PRAGMA synchronous = FULL")
            if is_new:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # the file is there, and is one
        except sqlite3.Error as error:
            raise self._meaning(error) from None
        found = inode_of(self.path)
        if found is None:
            self.close()
            raise NotReached(f"{self.path} vanished while it was opened")
        self._inode, self._link = found, next_link()


def _with_proof(row: Row, proof: str) -> Row:
    return Row._make((*row[:9], proof, proof, True))


def _row_of(genesis: Genesis) -> Row:
    """The genesis row in the columns of a row."""
    return Row(
        "", genesis.floor, genesis.version, genesis.names, genesis.wait_max_ms, released=True, server=genesis.settled
    )


def inode_of(path: str) -> tuple[int, int] | None:
    """Which file has this name now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except (PermissionError, NotADirectoryError) as error:
        raise StoreUnusable(
            f"{path}: {error.strerror}: this user must be able to enter the folder of the file"
        ) from None
    except OSError as error:
        raise NotReached(f"{path}: {error.strerror}") from None
    return found.st_dev, found.st_ino


def single_name(path: str) -> str:
    """Where the file really is: its users must find the same note, as they must find the same write-ahead log."""
    real = os.path.realpath(path)
    try:
        links = os.stat(real).st_nlink
    except OSError:
        return real  # it is not there yet; or opening it will tell
    if links > 1 and os.path.isfile(real):
        raise StoreUnusable(f"{real} has {links} names (hard links), and SQLite bears one only: remove the others")
    return real


def refuse_single_mount(real: str, mounts: str = MOUNTS) -> None:
    """Raises if this very file is a mount point: the kernel says so, for `os.path.ismount` sees other devices only.

    Under two paths it would have two write-ahead logs and two notes, so that two nodes could hold one lease.
    """
    if os.path.ismount(real) or any(point == real for point, _ in mounted(mounts)):
        raise StoreUnusable(
            f"{real} is mounted as a single file: mount its folder, or others have other logs next to it"
        )


def refuse_network(path: str, mounts: str = MOUNTS) -> None:
    """Raises if the file would lie on a network file system (RULES L5)."""
    kind = file_system_of(path, mounts)
    if is_network(kind):
        raise CannotHere(
            f"{path} lies on a network file system, or one that may be ({kind}), whose locks cannot be trusted: use a "
            "local file, or a database such as postgresql://host/db"
        )


def is_network(kind: str) -> bool:
    """Or may be one."""
    return kind in NETWORK or kind == "fuse" or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def file_system_of(path: str, mounts: str = MOUNTS) -> str:
    """The kind of file system of the folder that this file is, or would be, in; empty if the system does not tell."""
    folder = os.path.realpath(os.path.dirname(path) or ".")
    best, kind = "", ""
    for point, named in mounted(mounts):
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, named
    return kind


def mounted(mounts: str = MOUNTS) -> Iterator[tuple[str, str]]:
    """Each mount point that this process sees, with its kind of file system; nothing if the system does not tell."""
    try:
        with open(mounts, "rb") as lines:
            for line in lines:
                before, _, after = line.partition(b" - ")
                point = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8) & 255]), before.split()[4])
                yield os.fsdecode(point), after.split()[0].decode()  # a blank in it is written as \040
    except OSError:
        return
