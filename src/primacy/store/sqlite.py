"""Leases in a SQLite file: the embedded default, for all processes of one machine.

The "server" is the file: its device and inode. A file that was deleted or replaced while it was open is noticed before
every statement, or an old holder would go on renewing in a file that nobody else sees. Network file systems are
refused: their locks are not to be trusted.

A connection must not be used after a fork, nor be closed there: the child leaves it alone and holds nothing.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from primacy.election.store import ReleaseRow, Renew, Take
from primacy.errors import CannotHere, NotReached, Refused, UsageError
from primacy.store.inotify import Ear
from primacy.store.port import News
from primacy.store.sql import NoTable, Seen, SqlStore, rows_of, take_values
from primacy.store.sql_text import sqlite as sqlite_texts

log = logging.getLogger("primacy.store")

LEAST_VERSION = (3, 38, 0)
"""RETURNING came with 3.35; since 3.38 every build has the JSON functions."""
NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "gfs2", "ocfs2", "beegfs",
    "9p", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.davfs2", "fuse.cephfs",
)  # fmt: skip
_LEFT_TO_THE_PARENT: list[sqlite3.Connection] = []
"""Connections that a forked child inherited: kept alive, so that nothing closes them."""


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
        self.texts = sqlite_texts(table)
        self.path = os.path.abspath(path)
        self._limit_ms = limit_ms
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self._ear: Ear | None = None
        self._pid = os.getpid()
        refuse_network(self.path)

    @property
    def _me(self) -> str:
        return f"sqlite:{self._inode[0]:x}:{self._inode[1]:x}"

    def close(self) -> None:
        connection, self._connection = self._connection, None
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
        if connection is None:
            return
        if os.getpid() != self._pid:
            _LEFT_TO_THE_PARENT.append(connection)
            return
        connection.close()

    # --- statements ---------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str]) -> Seen:
        found = self._execute(self.texts.look, {"names": json.dumps(list(names))})
        return Seen(self._me, rows_of(found))

    def _take(self, text: str, take: Take) -> Seen:
        return self._write(text, take_values(take))

    def _renew(self, requests: Sequence[Renew]) -> Seen:
        batch = [[r.name, r.holder, r.token, r.seq, r.server] for r in requests]
        return self._write(self.texts.renew, {"batch": json.dumps(batch)})

    def _release(self, requests: Sequence[ReleaseRow]) -> Seen:
        batch = [[r.name, r.holder, r.token, r.seq, r.successor] for r in requests]
        done = self._write(self.texts.release, {"batch": json.dumps(batch)})
        if done.rows:
            self._touch()
        return done

    def _write(self, text: str, values: dict[str, Any]) -> Seen:
        self._connected()
        me = self._me
        found = self._execute(text, {**values, "me": me})
        if me != self._me:
            raise NotReached(f"{self.path} was replaced in the middle of a statement")
        return Seen(me, rows_of(found))

    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            return connection.execute(text, values).fetchall()
        except sqlite3.Error as error:
            raise self._meaning(error) from None

    def _meaning(self, error: sqlite3.Error) -> Exception:
        text, code = str(error), getattr(error, "sqlite_errorname", "")
        if text.startswith("no such table"):
            return NoTable(f"{self.path} has no table of leases")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return Refused(f"{self.path} was locked by somebody else for {self._limit_ms} ms")
        if code.startswith("SQLITE_READONLY"):
            return Refused(f"{self.path} is read-only for this user: a lease needs to write")
        self.close()
        return NotReached(f"{self.path}: {text} ({code or type(error).__name__})")

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
        if os.getpid() != self._pid:
            self.close()
            raise NotReached("this store belongs to the process that it was forked from")
        if self._connection is not None and self._inode != inode_of(self.path):
            self.close()
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
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
            raise NotReached(f"{self.path}: {error}; does its folder exist, and may this user write there?") from None
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
        self._inode = found


def inode_of(path: str) -> tuple[int, int] | None:
    """Which file has this name now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReached(f"{path}: {error.strerror}") from None
    return found.st_dev, found.st_ino


def refuse_network(path: str, mounts: str = "/proc/self/mountinfo") -> None:
    """Raises if the file would lie on a network file system (RULES L5)."""
    kind = file_system_of(path, mounts)
    if kind in NETWORK:
        raise CannotHere(
            f"{path} lies on a network file system ({kind}), whose locks cannot be trusted: use a local file, or a "
            "database such as postgresql://host/db"
        )


def file_system_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The kind of file system of the folder that this file is, or would be, in; empty if the system does not tell."""
    folder = os.path.realpath(os.path.dirname(path) or ".")
    best, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                before, _, after = line.partition(" - ")
                mount = before.split()[4].encode().decode("unicode_escape")  # blanks are written as \040
                inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
                if inside and len(mount) >= len(best):
                    best, kind = mount, after.split()[0]
    except OSError:
        return ""
    return kind
