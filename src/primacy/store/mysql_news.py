"""News of MySQL and MariaDB: a session that waits in GET_LOCK is woken when the holder's session lets go of that lock.

The session of a holder keeps one lock for each lease that it holds (`KeptLocks`). Who watches a row waits for its lock
on a second connection (`Waiter`), until it is freed by a release, or by the end of the holder's session. That is news:
it wakes a look, and nothing rests on it (L3). Everybody who may connect can take a lock of any name.

The name of a lock is made from the database, the table, the lease and its token: the session of an earlier holder that
hangs keeps nobody from hearing of the present one. Locks are of one server and are in no transaction and in no log.

Nothing here may fail a lease or hold it up. A holder asks for its lock behind an answer that is complete, and reads
what the server says of it before its next statement. A watcher has the lock for a moment only, inside one statement of
the server, so that all who wait are woken together. Its connection is read without waiting.

A lock that is free although somebody holds the row (its session broke, it is of an earlier version of primacy, somebody
plays with locks) is asked for again after growing pauses. The first of them are short: a killed agent's lease is
released some moments after its session is gone.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import COMMAND

from primacy.election.store import GENESIS, Row
from primacy.errors import NotReached, PrimacyError, Refused
from primacy.store.port import BATCH_MAX, News

LOCKS_MAX = 10_000
"""Locks of one session, and rows of others that are remembered. What is more is noticed at the next look."""
WAIT_S = 60
"""One wait for a lock. A server notices after it that a watcher's machine is gone."""
EARLY_S = WAIT_S / 2
"""A wait that is over before this without the lock was ended by somebody, or by a limit of the server."""
PAUSE_LEAST_S = 0.02
PAUSE_GROWS = 1.5
PAUSE_MOST_S = 60.0
SLEEP_MOST_S = 0.5
"""Longer pauses end with a look that comes anyway."""
AGAIN_LEAST_S = 1.0
"""After a failure, and after a lock that somebody else has; twice as long each time, up to `PAUSE_MOST_S`."""
MARIADB_SELECT = "SET STATEMENT max_statement_time = 0 FOR SELECT"
MYSQL_SELECT = f"SELECT /*+ MAX_EXECUTION_TIME({2 * WAIT_S * 1_000}) */"
"""Longer than is needed: 0 would be what the server is set to."""
RECEIVE_BYTES = 65_536
ANSWER_MAX_BYTES = 4_096
"""One number with its head has less than a hundred."""
EOF_PACKET, ERROR_PACKET = 0xFE, 0xFF
PASSING = (1053, 1077, 1079, 1317, 1927, 4031)
"""The server goes down, or somebody ended the statement or the session."""

Connect = Callable[[], Any]
"""A new connection, or an error of the port. It takes no longer than about one statement may take."""


def lock_name(database: str, table: str, name: str, token: int) -> str:
    """40 characters, of at most 64; the server does not tell capitals from small letters."""
    text = "\n".join((database, table, name, str(token)))
    return f"primacy:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


class Lock(NamedTuple):
    """Of one leadership."""

    name: str
    """The lease's."""
    token: int


class Pause:
    """Not before a moment, and each time later."""

    def __init__(self, least_s: float, grows: float) -> None:
        self._least_s, self._grows = least_s, grows
        self.clear()

    def clear(self) -> None:
        self._next_s, self._until_s = self._least_s, 0.0

    def begin(self) -> None:
        self._until_s = time.monotonic() + self._next_s
        self._next_s = min(self._next_s * self._grows, PAUSE_MOST_S)

    def left_s(self) -> float:
        return self._until_s - time.monotonic()


class KeptLocks:
    """The locks of a holder, in the session that renews."""

    def __init__(self, spelled: Callable[[Lock], str]) -> None:
        self._spelled = spelled
        self._kept: dict[str, int] = {}
        """Tokens by the names of leases."""
        self._asked: list[Lock] = []
        """What the server was asked for, and nobody has read yet."""
        self._unread = False
        self._missed: dict[str, int] = {}
        """Asked for in vain, as `_kept`."""
        self._again = Pause(AGAIN_LEAST_S, 2.0)
        """For what was missed; a new leadership does not wait for it."""

    def forget(self) -> None:
        """The session is gone, and with it everything that it kept."""
        self._kept, self._missed, self._asked, self._unread = {}, {}, [], False

    def keep(self, connection: Any, rows: Mapping[str, Row]) -> None:
        """These rows are our own, as was just written."""
        missing = [Lock(name, row.token) for name, row in rows.items() if self._kept.get(name) != row.token]
        if missing and self._again.left_s() > 0:
            missing = [lock for lock in missing if self._missed.get(lock.name) != lock.token]
        if missing and len(self._kept) < LOCKS_MAX:
            wanted = missing[:BATCH_MAX]
            self._say(connection, wanted, self._taken_out(lock.name for lock in wanted))

    def free(self, connection: Any, names: Iterable[str]) -> None:
        """These leases were released: who waits is woken."""
        if found := self._taken_out(names):
            self._say(connection, [], found)

    def saw(self, connection: Any, names: Iterable[str], rows: Mapping[str, Row]) -> None:
        """What a look showed may be ours no longer: released by somebody else for us, or taken."""
        kept = self._kept
        if kept:
            self.free(connection, [name for name in names if name in kept and not _is_held(rows.get(name), kept[name])])

    def read(self, connection: Any) -> None:
        """What the server said of the locks, before the next statement. Raises if the connection is lost."""
        if not self._unread:
            return
        asked, self._asked, self._unread = self._asked, [], False
        try:
            connection._read_query_result()
            (answers,) = connection._result.rows
        except (pymysql.Error, OSError, TypeError, ValueError):  # the last two: something that is no row
            if not connection.open:
                raise
            answers = ()  # no right, or not supported here: those who wait are told so as well, and say it
        got = [lock for lock, answer in zip(asked, answers, strict=False) if answer == 1]
        self._kept.update(got)
        if len(got) < len(asked):
            if len(self._missed) >= LOCKS_MAX:
                self._missed.clear()
            self._missed.update(lock for lock in asked if lock not in got)
            self._again.begin()
        elif asked:
            self._again.clear()

    def _taken_out(self, names: Iterable[str]) -> list[Lock]:
        names = list(names)
        for name in names:
            self._missed.pop(name, None)
        return [Lock(name, self._kept.pop(name)) for name in names if name in self._kept]

    def _say(self, connection: Any, wanted: list[Lock], unwanted: list[Lock]) -> None:
        gets = [f"GET_LOCK('{self._spelled(lock)}', 0)" for lock in wanted]
        frees = [f"RELEASE_LOCK('{self._spelled(lock)}')" for lock in unwanted]
        try:
            self.read(connection)
            connection._execute_command(COMMAND.COM_QUERY, f"SELECT {', '.join(gets + frees)}")
        except (pymysql.Error, OSError):
            return  # a connection that is lost: the next statement says so, and a lease does not depend on this one
        self._asked, self._unread = wanted, True


class Waiter:
    """The second connection, of one who watches. It waits for one lock at a time."""

    def __init__(self, connect: Connect, spelled: Callable[[Lock], str], where: Callable[[], str]) -> None:
        self._connect = connect
        self._spelled = spelled
        self._where = where
        self.connection: Any = None
        self.maria = True
        self._held: dict[str, int] = {}
        """Tokens of rows that others hold, by their names; what was looked at last stands last."""
        self._target: Lock | None = None
        self._sleeping = self._waiting = False
        """What the server does for us."""
        self._needless = 0
        """So many writes of our own came since there was something to wait for."""
        self._since_s = 0.0
        self._received = bytearray()
        self._pause = Pause(PAUSE_LEAST_S, PAUSE_GROWS)
        """After each wake. It is over at once if the row was released, or taken; else it grows."""
        self._woken: Lock | None = None
        self._again = Pause(AGAIN_LEAST_S, 2.0)
        self._refused = ""
        """Why there are no news, to be said once."""

    def saw(self, names: Iterable[str], rows: Mapping[str, Row]) -> None:
        """What a look showed."""
        for name in names:
            self._held.pop(name, None)
            row = rows.get(name)
            if self._woken is not None and name == self._woken.name and not _is_held(row, self._woken.token):
                self._woken = None
                self._pause.clear()
            if row is not None and row.holder and name != GENESIS and _is_held(row, row.token):
                if len(self._held) >= LOCKS_MAX:
                    del self._held[next(iter(self._held))]
                self._held[name] = row.token

    def ours(self, names: Iterable[str]) -> None:
        """These rows are our own now. Who watches no other needs no second connection.

        It goes behind the first renewal: to close it may take a millisecond, and a take must be told at once.
        """
        for name in names:
            self._held.pop(name, None)
        self._needless = 0 if self._held else self._needless + 1

    def close(self) -> None:
        connection, self.connection = self.connection, None
        self._sleeping = self._waiting = False
        self._needless = 0
        self._received.clear()
        if connection is not None:
            connection._force_close()

    def listen(self) -> int:
        """After a look: what to wait for now. -1: nothing, or not yet."""
        self._needless = 0
        if self._refused:
            refused, self._refused = self._refused, ""
            raise Refused(refused)
        target, before = self._chosen(), self._target
        if self._waiting and target is not None and target != before:
            self.close()  # it waits for the lock of a leadership that is over: its session hangs, or lost the row
        self._target = target if target is not None or not self._waiting else before
        if self.connection is None:
            if target is None or self._again.left_s() > 0:
                return -1
            self._open()
        if target is not None and not self._waiting and not self._sleeping:
            self._begin(target)
        return int(self.connection._sock.fileno())

    def news(self) -> list[News]:
        """What was said meanwhile; never waits."""
        if self._needless > 1 and not self._held:
            self.close()
        if self.connection is None:
            raise NotReached("there is no connection that waits for news")
        self._receive()
        answer = self._answer()
        if answer is None:
            return []
        if self._sleeping:
            self._sleeping = False
            if self._target is not None:
                self._begin(self._target)
            return []
        if not self._waiting or self._target is None:
            raise self._failed("it said something that nobody asked for")
        self._waiting = False
        return self._waited(self._target, answer == b"1")

    def _waited(self, target: Lock, got: bool) -> list[News]:
        if got:
            self._again.clear()
            self._woken = target
            self._pause.begin()
            if self._held.get(target.name) == target.token:
                del self._held[target.name]  # a look finds out
            return [News(target.name)]
        if time.monotonic() - self._since_s < EARLY_S:
            raise self._failed("a wait for a lock was ended")
        self._again.clear()
        self._pause.clear()
        if target.name in self._held:  # the other names have their turn, if there are any
            self._held = {target.name: self._held.pop(target.name), **self._held}
        self._target = None
        self._target = self._chosen()
        if self._target is not None:
            self._wait(self._target)
        return []

    # --- the connection -----------------------------------------------------------------------------------------------

    def _chosen(self) -> Lock | None:
        """What it waits for already, as long as that is still held; else the row that was looked at last."""
        if self._target is not None and self._held.get(self._target.name) == self._target.token:
            return self._target
        name = next(reversed(self._held), None)
        return None if name is None else Lock(name, self._held[name])

    def _open(self) -> None:
        try:
            self.connection = self._connect()
        except PrimacyError:
            self._again.begin()
            raise

    def _begin(self, target: Lock) -> None:
        left_s = self._pause.left_s()
        if left_s <= 0:
            self._wait(target)
        elif left_s < SLEEP_MOST_S:
            self._ask(f"SLEEP({left_s:.3f})")
            self._sleeping = True

    def _wait(self, target: Lock) -> None:
        """The server frees the lock itself, in the same statement. IF evaluates its condition first."""
        name = self._spelled(target)
        self._ask(f"IF(GET_LOCK('{name}', {WAIT_S}) = 1, RELEASE_LOCK('{name}'), -1)")
        self._waiting, self._since_s = True, time.monotonic()

    def _ask(self, expression: str) -> None:
        """Limits of the server are for statements that work, and this one waits."""
        select = MARIADB_SELECT if self.maria else MYSQL_SELECT
        try:
            self.connection._execute_command(COMMAND.COM_QUERY, f"{select} {expression}")
        except (pymysql.Error, OSError) as error:
            raise self._failed(first_line(error)) from None

    def _receive(self) -> None:
        """With TLS, what is readable may be no part of an answer, and an answer may be there that is not readable."""
        sock = self.connection._sock
        limit_s = sock.gettimeout()
        sock.settimeout(0)
        try:
            while True:
                found = sock.recv(RECEIVE_BYTES)
                self._received += found
                if not found or len(self._received) > ANSWER_MAX_BYTES:
                    raise self._failed("the connection was closed")
        except (BlockingIOError, ssl.SSLWantReadError):
            sock.settimeout(limit_s)
        except OSError as error:
            raise self._failed(first_line(error)) from None

    def _answer(self) -> bytes | None:
        """The one value of an answer that is complete: a number of columns, one column, its end, one row, its end."""
        packets = _packets(self._received)
        if packets and packets[0][:1] == bytes([ERROR_PACKET]):
            code = int.from_bytes(packets[0][1:3], "little")
            said = packets[0][3:203].decode(errors="replace").partition("\n")[0]
            said = said[6:] if said.startswith("#") else said  # the state, as standards have it
            if code not in PASSING:
                self._refused = f"{self._where()} refuses GET_LOCK: {said}"
            raise self._failed(said)
        ends = [at for at, packet in enumerate(packets) if packet[:1] == bytes([EOF_PACKET]) and len(packet) < 9]
        if len(ends) < 2:
            return None
        row = packets[ends[0] + 1]
        self._received.clear()
        return row[1:] if row[:1] != b"\xfb" else b""

    def _failed(self, why: str) -> NotReached:
        self.close()
        self._again.begin()
        return NotReached(f"{self._where()}: {why}")


def _is_held(row: Row | None, token: int) -> bool:
    return row is not None and row.token == token and not row.released


def _packets(data: bytearray) -> list[bytes]:
    """Those that are complete: three bytes of length, a number, the content."""
    found, at = [], 0
    while len(data) >= at + 4 and len(data) >= (end := at + 4 + int.from_bytes(data[at : at + 3], "little")):
        found.append(bytes(data[at + 4 : end]))
        at = end
    return found


def first_line(error: Exception) -> str:
    """What an error of the driver says."""
    words = [str(word) for word in error.args if isinstance(word, str) and word]
    return (words[0] if words else str(error) or type(error).__name__).strip().partition("\n")[0]
