"""Leases in MySQL or MariaDB, by PyMySQL, on one synchronous connection.

There is no RETURNING, so that a write is followed by a look, but for the common case: all rows of a renewal changed, as
their number says, and what stands in them is known. The connection asks for the number of rows *found*, so that a row
written twice alike counts as well (seed 002, flaw 8).

A replica that only reads is refused, and so is a server that logs statements instead of rows: replicas would run our
conditions anew, compare the server with themselves, and lose every write.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.store import ReleaseRow, Renew, Row, Take
from primacy.errors import CannotHere, MissingExtra, NotReached, Refused
from primacy.store.port import server_limit_ms
from primacy.store.sql import NoTable, Result, Seen, SqlStore, rows_of, take_values
from primacy.store.sql_text import MARIADB_IDENTITY, MYSQL_IDENTITY, Texts, spelled
from primacy.store.sql_text import mysql as mysql_texts

try:
    import pymysql
    from pymysql.constants import CLIENT, ER
except ImportError:
    raise MissingExtra("a store in MySQL or MariaDB", "mysql") from None

Options = Callable[[], dict[str, Any]]
"""PyMySQL's words for where and who, asked anew for each connection: a password may have changed."""
NO_TABLE = (ER.NO_SUCH_TABLE,)
LOST = (1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 2003, 2006, 2013, 2014, 2055, 4031)
"""The connection is gone or useless, the server is going down, or has too many connections."""
DUPLICATE = ER.DUP_ENTRY
KNOWN_MAX = 10_000
"""Rows of our own that are remembered between renewals."""
_LEFT_TO_THE_PARENT: list[Any] = []


class MysqlStore(SqlStore):
    """One connection to one database."""

    def __init__(
        self, options: Options, table: str = "primacy_leases", limit_ms: int = 900, create: bool = True
    ) -> None:
        super().__init__(create)
        self._table = table
        self._limit_ms = limit_ms
        self._options = options
        self._given = options()
        """With what it was connected last."""
        self._connection: Any = None
        self._prefix = ""
        self._known: dict[str, Row] = {}
        """What our own renewals left in the store, so that the next one need not look."""
        self._random = random.SystemRandom()
        self._pid = os.getpid()
        self.texts = mysql_texts(table)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._known.clear()
        if connection is None:
            return
        if os.getpid() != self._pid:
            _LEFT_TO_THE_PARENT.append(connection)
            return
        connection._force_close()  # without a farewell, which would wait for a server that hangs

    # --- statements ---------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str]) -> Seen:
        server, rows = self._proofs(names)
        return Seen(server, {name: row for name, (_, row) in rows.items()})

    def _proofs(self, names: Sequence[str]) -> tuple[str, dict[str, tuple[int, Row]]]:
        """The server, and each row with the proof of whoever wrote it last."""
        found = self._execute(self.texts.look, {"names": list(names)})
        server, writable = found[0][:2]
        if not writable:
            raise Refused(f"{self._where()} is read-only, like a replica: a lease needs the server that is written to")
        present = [values[2:] for values in found if values[2] is not None]
        rows = rows_of([values[1:] for values in present])
        return str(server), {values[1]: (values[0], rows[values[1]]) for values in present}

    def _take(self, text: str, take: Take) -> Seen:
        self._known.pop(take.name, None)
        proof = self._proof()
        try:
            count = self._write(text, {**take_values(take), "proof": proof})
        except _Duplicate:
            count = 0
        if count != 1:
            return Seen(take.server, {})
        row = take.row._replace(released=False, successor="", server=take.server)
        return Seen(take.server, {take.name: self._remember(take.name, row)})

    def _renew(self, requests: Sequence[Renew]) -> Seen:
        """One statement per server that is meant; there is only one, but for the moment of a fail-over."""
        for server in sorted({request.server for request in requests}):
            rows = self._renew_on(server, [request for request in requests if request.server == server])
            if rows:  # it is the one that answers, so the others are not
                return Seen(server, rows)
        return Seen("", {})

    def _renew_on(self, server: str, requests: Sequence[Renew]) -> dict[str, Row]:
        proof = self._proof()
        names = [request.name for request in requests]
        before = [self._known.pop(name, None) for name in names]
        values = {"names": names, "batch": _quadruples(requests), "server": server, "proof": proof}
        count = self._write(self.texts.renew, values)
        if count == 0:
            return {}
        if count == len(requests) and all(
            row is not None and (row.holder, row.token, row.seq) == (request.holder, request.token, request.seq)
            for row, request in zip(before, requests, strict=True)
        ):
            after = {
                n: row._replace(seq=row.seq + 1, server=server) for n, row in zip(names, before, strict=True) if row
            }
        else:
            found_on, found = self._proofs(names)
            after = {name: row for name, (mark, row) in found.items() if mark == proof and found_on == server}
        return {name: self._remember(name, row) for name, row in after.items()}

    def _release(self, requests: Sequence[ReleaseRow]) -> Seen:
        """One statement per successor: hardly ever more than one."""
        rows: dict[str, Row] = {}
        server = ""
        for successor in sorted({request.successor for request in requests}):
            chosen = [request for request in requests if request.successor == successor]
            proof, names = self._proof(), [request.name for request in chosen]
            for name in names:
                self._known.pop(name, None)
            values = {"names": names, "batch": _quadruples(chosen), "successor": successor, "proof": proof}
            if self._write(self.texts.release, values):
                server, found = self._proofs(names)
                rows |= {name: row for name, (mark, row) in found.items() if mark == proof}
        return Seen(server, rows)

    def _proof(self) -> int:
        return self._random.getrandbits(62)

    def _remember(self, name: str, row: Row) -> Row:
        if len(self._known) < KNOWN_MAX:
            self._known[name] = row
        return row

    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._run(text, values)[1]

    def _write(self, text: str, values: dict[str, Any]) -> int:
        return self._run(text, values)[0]

    def _run(self, text: str, values: dict[str, Any]) -> tuple[int, list[tuple[Any, ...]]]:
        connection = self._connected()
        try:
            with connection.cursor() as cursor:
                count = cursor.execute(self._prefix + text if not text.startswith("CREATE") else text, values)
                return count, list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:
            raise self._meaning(error) from None

    def make_table(self) -> None:
        try:
            super().make_table()
        except Refused as refused:
            raise Refused(f"{refused}; `primacy lease schema` prints what an administrator can run") from None

    # --- the connection -----------------------------------------------------------------------------------------------

    def _where(self) -> str:
        host = self._given.get("unix_socket") or f"{self._given.get('host')}:{self._given.get('port') or 3306}"
        return f"{'MariaDB' if 'mariadb' in self.texts.take else 'MySQL'} at {host}"

    def _connected(self) -> Any:
        if os.getpid() != self._pid:
            self.close()
            raise NotReached("this store belongs to the process that it was forked from")
        if self._connection is None:
            self._connect()
        return self._connection

    def _connect(self) -> None:
        limit_s = self._limit_ms / 1_000
        self._given = self._options()
        options = {
            **self._given,
            "autocommit": True,
            "connect_timeout": max(limit_s, 1.0),
            "read_timeout": limit_s,
            "write_timeout": limit_s,
            "client_flag": self._given.get("client_flag", 0) | CLIENT.FOUND_ROWS,
            "program_name": "primacy",
        }
        try:
            self._connection = pymysql.connect(**options)
        except (pymysql.Error, OSError) as error:
            raise NotReached(f"{self._where()}: {_first_line(error)}") from None
        self._prefix = ""
        self._set_up()

    def _set_up(self) -> None:
        """Which of the two it is; limits; and what it must not be."""
        ((version, log_bin),) = self._execute("SELECT VERSION(), @@log_bin", {})
        log_format = self._execute(
            "SHOW VARIABLES LIKE 'binlog_format'", {}
        )  # newer MySQL has rows only, and no variable
        maria = "mariadb" in version.lower()
        if log_bin and log_format and log_format[0][1] == "STATEMENT":
            self.close()
            raise CannotHere(f"{self._where()} has binlog_format = STATEMENT: set it to ROW or MIXED")
        texts = mysql_texts(self._table, MARIADB_IDENTITY if maria else MYSQL_IDENTITY)
        self.texts = Texts(*(spelled(text, "%({})s") for text in texts))
        if maria:
            self._prefix = f"SET STATEMENT max_statement_time = {server_limit_ms(self._limit_ms) / 1_000:.3f} FOR "
        else:
            self._execute("SET SESSION innodb_lock_wait_timeout = 1", {})  # whole seconds; the socket is stricter

    def _meaning(self, error: Exception) -> Exception:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = f"{self._where()}: {_first_line(error)}"
        if code in NO_TABLE:
            return NoTable(f"{self._where()} has no table {self._table}")
        if code == DUPLICATE:
            return _Duplicate(text)
        if isinstance(error, pymysql.ProgrammingError | pymysql.OperationalError | pymysql.InternalError) and code:
            if code in LOST:
                self.close()
                return NotReached(text)
            return Refused(text)
        self.close()
        return NotReached(text)

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        self._connected()  # which of the two servers it is decides on the texts
        return super()._with_table(statement)


class _Duplicate(Refused):
    """The row is there already."""


def _quadruples(requests: Sequence[Renew] | Sequence[ReleaseRow]) -> list[tuple[str, str, int, int]]:
    return [(request.name, request.holder, request.token, request.seq) for request in requests]


def _first_line(error: Exception) -> str:
    words = [str(word) for word in error.args if isinstance(word, str) and word]
    return (words[0] if words else str(error) or type(error).__name__).strip().partition("\n")[0]
