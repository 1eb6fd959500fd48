"""Leases in MySQL or MariaDB, by PyMySQL, on one synchronous connection.

There is no RETURNING, so that a write is followed by a look, but for the common case: all rows of a renewal or of
a release changed, as their number says, and what stands in them is known. The connection asks for the number of rows
*found*, so that a row written twice alike counts as well (the SQL coordinator, flaw 8).

What changes the genesis row, too, is a short transaction: it locks that row, then the lease's, decides by
`conditions.after`, and writes. Everybody locks in this order, so that nobody waits in a circle.

A replica that only reads is refused, and so is a MariaDB that follows another server, for its rows are not its own
alone; and a server that logs statements instead of rows: replicas would run our conditions anew, compare the server
with themselves, and lose every write.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from primacy.election.store import GENESIS, Genesis, Place, Prune, ReleaseRow, Renew, Row, Settle, Take
from primacy.errors import CannotHere, MissingExtra, NotReached, Refused, StoreUnusable
from primacy.store.conditions import after
from primacy.store.port import News, next_link, server_limit_ms
from primacy.store.sql import (
    NoTable,
    Result,
    ServerRefused,
    SqlStore,
    StatementResult,
    genesis_of,
    rows_of,
    seen_values,
    take_values,
)
from primacy.store.sql_text import (
    FOLLOWING,
    MARIADB_IDENTITY,
    MARIADB_POSITION,
    MARIADB_WHO,
    MYSQL_IDENTITY,
    MYSQL_POSITION,
    MysqlSteps,
    Texts,
    mysql_identity,
    mysql_steps,
    spelled,
)
from primacy.store.sql_text import mysql as mysql_texts

try:
    import pymysql
    from pymysql.constants import CLIENT, ER, SERVER_STATUS

    from primacy.store.mysql_news import KeptLocks, Lock, Waiter, first_line, lock_name
except ImportError:
    raise MissingExtra("a store in MySQL or MariaDB", "mysql") from None

Options = Callable[[], dict[str, Any]]
"""PyMySQL's words for where and who, asked anew for each connection: a password may have changed."""
NO_TABLE = (ER.NO_SUCH_TABLE,)
LOST = (1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 2003, 2006, 2013, 2014, 2055, 4031)
"""The connection is gone or useless, the server is going down, or has too many connections."""
FINAL: dict[int, str] = {
    **dict.fromkeys((1045, 1698), "change the user or the password in the address"),
    **dict.fromkeys((1130, 3118, 4151), "an administrator must admit this user from here"),
    **dict.fromkeys((1820, 1862), "this user's password has expired: set a new one"),
    **dict.fromkeys((1251, 1524, 2059), "this user's way to log in is not supported: choose another one for it"),
    1049: "make the database, or name another one in the address",
    **dict.fromkeys(
        (1044, 1142, 1143, 1227, 1370),
        "this user lacks a right; an administrator can run what `primacy lease schema` prints",
    ),
    **dict.fromkeys((2026, 3159), "TLS is refused: check ssl_ca and the other ssl_ options in the address"),
    **dict.fromkeys((1054, 1288, 1347), "the table {} is somebody else's; choose another name for it"),
}
"""What will not pass before somebody changes something, and what that is."""
PASSING_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
"""The connection broke off, which TLS tells in its own words."""
DUPLICATE = str(ER.DUP_ENTRY)
LIMITED = ("SELECT", "INSERT", "UPDATE", "DELETE")
KNOWN_MAX = 10_000
"""Rows of our own that are remembered between renewals."""
PROOF_BITS = 62
STEPS_TO_CONNECT = 4
"""Each of these may take this part of a statement's limit, where the connection is for news only: renewals wait."""


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
        self._name = "MySQL or MariaDB"
        self._position = 0
        """What the newest look showed. A write does not show it."""
        self._known: dict[str, Row] = {}
        """What our own renewals left in the store, so that the next one need not look."""
        self._random = random.SystemRandom()
        self._database = ""
        self._kept = KeptLocks(self._lock_name)
        self._waiter = Waiter(self._connect_for_news, self._lock_name, self._where)
        self.texts = mysql_texts(table, "''")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._known.clear()
        self._kept.forget()
        if connection is not None and not self._is_inherited(connection):
            connection._force_close()  # without a farewell, which would wait for a server that hangs
        if self._waiter.connection is not None and self._is_inherited(self._waiter.connection):
            self._waiter.connection = None
        self._waiter.close()

    # --- statements ---------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str], count: bool) -> StatementResult:
        found = self._execute(self.texts.counted if count else self.texts.look, {"names": list(names)})
        server, position, wall_ms, writable, number = found[0][:5]
        if not writable:
            self.close()  # whoever watches begins anew, for another server may be written to meanwhile
            raise Refused(f"{self._where()} is read-only, like a replica: a lease needs the server that is written to")
        if f":{FOLLOWING}:" in str(server):
            self.close()
            raise Refused(
                f"{self._where()} follows another server: a lease needs the one server that is written to. If this one "
                "is to be it, stop its replication (STOP SLAVE, RESET SLAVE ALL); servers that follow each other all "
                "the time keep no lease"
            )
        self._position = int(position or 0)
        rows = rows_of([values[5:] for values in found if values[5] is not None])
        self._kept.saw(self._connection, names, rows)
        self._waiter.saw(names, rows)
        return StatementResult(str(server), rows, number, self._position, wall_ms)

    def _take(self, take: Take) -> StatementResult:
        assert take.seen is not None
        self._known.pop(take.name, None)
        seen = seen_values(take.seen)
        if take.seen.mark or not take.seen.vouches or not take.seen.proof.lstrip("-").isdecimal():
            return StatementResult(take.server, {})  # no row here is like that
        proof = self._proof()
        values = {**take_values(take), **seen, "seen_proof": int(take.seen.proof), "proof": proof}
        done = self._write(self.texts.take, values) == 1
        return self._wrote(take.server, {take.name: _as_written(take.row, take.server, proof)} if done else {})

    def _insert(self, take: Take) -> StatementResult:
        self._known.pop(take.name, None)
        row = self._step(take)
        return self._wrote(take.server, {} if row is None else {take.name: row})

    def _renew(self, requests: Sequence[Renew]) -> StatementResult:
        """One statement per server that is meant; there is only one, but for the moment of a fail-over."""
        for server in sorted({request.server for request in requests}):
            rows = self._renew_on(server, [request for request in requests if request.server == server])
            if rows:  # it is the one that answers, so the others are not
                return self._wrote(server, rows)
        return StatementResult("", {})

    def _renew_on(self, server: str, requests: Sequence[Renew]) -> dict[str, Row]:
        proof = self._proof()
        names = [request.name for request in requests]
        before = [self._known.pop(name, None) for name in names]
        values = {"names": names, "batch": _quadruples(requests), "server": server, "proof": proof}
        count = self._write(self.texts.renew, values)
        if count == 0:
            return {}
        known = _as_known(requests, before) if count == len(requests) else None
        if known is not None:
            return {
                name: row._replace(seq=row.seq + 1, server=server, proof=str(proof))
                for name, row in zip(names, known, strict=True)
            }
        return self._proved(names, server, proof)

    def _release(self, requests: Sequence[ReleaseRow]) -> StatementResult:
        """One statement per successor: hardly ever more than one."""
        rows: dict[str, Row] = {}
        server = ""
        for successor in sorted({request.successor for request in requests}):
            chosen = [request for request in requests if request.successor == successor]
            proof, names = self._proof(), [request.name for request in chosen]
            before = [self._known.pop(name, None) for name in names]
            values = {"names": names, "batch": _quadruples(chosen), "successor": successor, "proof": proof}
            count = self._write(self.texts.release, values)
            if count:
                self._kept.free(self._connection, names)
            known = _as_known(chosen, before) if count == len(chosen) else None
            if known is not None:
                server = known[0].server  # which the statement has compared with its own
                rows |= {
                    name: row._replace(released=True, successor=successor, proof=str(proof))
                    for name, row in zip(names, known, strict=True)
                }
            elif count:
                seen = self._look(names, count=False)
                server = seen.server
                rows |= {name: row for name, row in seen.rows.items() if row.proof == str(proof)}
        return StatementResult(server, rows, -1, self._position)

    def _change(self, request: Place | Settle | Prune) -> bool:
        self._known.pop(request.name, None)
        return self._step(request) is not None

    def _proved(self, names: Sequence[str], server: str, proof: int) -> dict[str, Row]:
        """Those rows that the write with this proof has left."""
        seen = self._look(names, count=False)
        return {name: row for name, row in seen.rows.items() if row.proof == str(proof) and seen.server == server}

    def _wrote(self, server: str, rows: dict[str, Row]) -> StatementResult:
        for name, row in rows.items():
            if len(self._known) < KNOWN_MAX:
                self._known[name] = row
        if rows:
            self._kept.keep(self._connection, rows)
            self._waiter.ours(rows)
        return StatementResult(server, rows, -1, self._position)

    def _proof(self) -> int:
        return self._random.getrandbits(PROOF_BITS)

    # --- steps that change the genesis row, too -----------------------------------------------------------------------

    def _step(self, request: Take | Place | Settle | Prune) -> Row | None:
        """The row that it wrote, or removed, or left; None if nothing was done."""
        try:
            with self._transaction():
                done = self._decided(request)
                if done is None:
                    raise _NotDone
                return done
        except _NotDone:
            return None
        except ServerRefused as said:
            if said.code != DUPLICATE:
                raise
        return None

    def _decided(self, request: Take | Place | Settle | Prune) -> Row | None:
        rows = {name: row for name in (GENESIS, request.name) if (row := self._locked(name)) is not None}
        ((server, count),) = self._execute(self._steps.counted, {})
        if GENESIS not in rows:
            return None
        seen = StatementResult(str(server), rows, count)
        present = rows.get(request.name)
        change = after(present, genesis_of(seen), request, seen.server)
        if change is None:
            return None
        proof = self._proof()
        here = {"name": request.name, "server": seen.server, "proof": proof}
        if change.genesis is not None and self._write(self._steps.genesis, here | _genesis(change.genesis)) != 1:
            return None
        if change.removed and self._write(self._steps.delete, here) != 1:
            return None
        if change.row is None:
            return present or rows[GENESIS]
        written = take_values(Take(request.name, None, seen.server, change.row))
        if self._write(self._steps.insert, here | written) != 1:
            return None
        return _as_written(change.row, seen.server, proof)

    def _locked(self, name: str) -> Row | None:
        return rows_of(self._execute(self._steps.lock, {"name": name})).get(name)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Of its own, unless one is under way: what is done then is part of that."""
        connection = self._connected()
        if connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            yield
            return
        with self.transaction("START TRANSACTION"):
            yield

    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._run(text, values)[1]

    def _write(self, text: str, values: dict[str, Any]) -> int:
        return self._run(text, values)[0]

    def _run(self, text: str, values: dict[str, Any]) -> tuple[int, list[tuple[Any, ...]]]:
        connection = self._connected()
        try:
            self._kept.read(connection)
            with connection.cursor() as cursor:
                count = cursor.execute(self._prefix + text if text.startswith(LIMITED) else text, values)
                return count, list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:
            raise self._meaning(error) from None

    def _migrate(self) -> None:
        raise AssertionError("tables of version 0.1 have every column that is needed")

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        self._check_process()
        return self._waiter.listen()

    def news(self) -> list[News]:
        self._check_process()
        return self._waiter.news()

    def _lock_name(self, lock: Lock) -> str:
        return lock_name(self._database, self._table, lock.name, lock.token)

    def _connect_for_news(self) -> Any:
        limit_s = self._limit_ms / 1_000 / STEPS_TO_CONNECT
        try:
            return self._opened(limit_s, limit_s)
        except (pymysql.Error, OSError, RuntimeError) as error:
            raise NotReached(f"{self._where()} has no second connection for us: {first_line(error)}") from None

    # --- the connection -----------------------------------------------------------------------------------------------

    def _where(self) -> str:
        host = self._given.get("unix_socket") or f"{self._given.get('host')}:{self._given.get('port') or 3306}"
        return f"{self._name} at {host}"

    def _is_connected(self) -> bool:
        return self._connection is not None

    def _connected(self) -> Any:
        self._check_process()
        if self._connection is None:
            self._connect()
        return self._connection

    def _connect(self) -> None:
        limit_s = self._limit_ms / 1_000
        self._given = self._options()
        try:
            self._connection = self._opened(max(limit_s, 1.0), limit_s)
        except (pymysql.Error, OSError) as error:
            raise self._meaning(error) from None
        except RuntimeError as error:  # PyMySQL says so where a way to log in needs a package that is not there
            raise StoreUnusable(f"{self._where()}: {first_line(error)}") from None
        self._prefix, self._link = "", next_link()
        self._set_up()

    def _opened(self, connect_s: float, limit_s: float) -> Any:
        options = {
            **self._given,
            "autocommit": True,
            "connect_timeout": connect_s,
            "read_timeout": limit_s,
            "write_timeout": limit_s,
            "client_flag": self._given.get("client_flag", 0) | CLIENT.FOUND_ROWS,
            "program_name": "primacy",
        }
        return pymysql.connect(**options)

    def _set_up(self) -> None:
        """Which of the two it is; limits; and what it must not be."""
        ((version, log_bin, database),) = self._execute("SELECT VERSION(), @@log_bin, DATABASE()", {})
        self._database = str(database)
        has = dict(self._execute("SHOW VARIABLES WHERE Variable_name IN ('binlog_format', 'server_uid')", {}))
        maria = "mariadb" in version.lower()
        self._name = "MariaDB" if maria else "MySQL"
        self._waiter.maria = maria
        if log_bin and has.get("binlog_format") == "STATEMENT":  # newer MySQL has rows only, and no variable
            self.close()
            raise CannotHere(f"{self._where()} has binlog_format = STATEMENT: set it to ROW or MIXED")
        if maria:
            identity = mysql_identity(MARIADB_IDENTITY, self._table, MARIADB_WHO[0 if "server_uid" in has else 1])
        else:
            identity = mysql_identity(MYSQL_IDENTITY, self._table)
        texts = mysql_texts(self._table, identity, MARIADB_POSITION if maria else MYSQL_POSITION)
        self.texts = Texts(*(spelled(text, "%({})s") for text in texts))
        self._steps = MysqlSteps(*(spelled(text, "%({})s") for text in mysql_steps(self._table, identity)))
        self._execute("SET SESSION time_zone = '+00:00'", {})  # or the hour that comes twice would have two names
        if maria:
            self._prefix = f"SET STATEMENT max_statement_time = {server_limit_ms(self._limit_ms) / 1_000:.3f} FOR "
        else:
            self._execute("SET SESSION innodb_lock_wait_timeout = 1", {})  # whole seconds; the socket is stricter

    def _meaning(self, error: Exception) -> Exception:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = f"{self._where()}: {first_line(error)}"
        if code in NO_TABLE:
            return NoTable(f"{self._where()} has no table {self._table}")
        cause = getattr(error, "original_exception", error)
        if isinstance(error, FileNotFoundError | PermissionError) or (
            isinstance(cause, ssl.SSLError) and not isinstance(cause, PASSING_TLS)
        ):
            code = 2026  # a certificate that is not there, or not good; a missing socket is told otherwise
        if code in FINAL:
            if self._connection is None or not isinstance(error, pymysql.Error):
                self.close()
            return StoreUnusable(f"{text}: {FINAL[code].format(self._table)}")
        if isinstance(error, pymysql.Error) and code and code not in LOST and self._connection is not None:
            return ServerRefused(text, str(code))
        self.close()
        return NotReached(text)

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        self._connected()  # which of the two servers it is decides on the texts
        return super()._with_table(statement)

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        self._connected()
        super().make_table(new, wait_max_ms)


class _NotDone(Exception):
    """A condition does not hold: the transaction goes back. Never leaves the store."""


def _as_written(row: Row, server: str, proof: int) -> Row:
    return row._replace(released=False, successor="", server=server, proof=str(proof), mark="", vouches=True)


def _genesis(genesis: Genesis) -> dict[str, Any]:
    """The genesis row as it is written."""
    return {"settled": genesis.settled, "floor": genesis.floor, "names": genesis.names, "version": genesis.version}


def _quadruples(requests: Sequence[Renew] | Sequence[ReleaseRow]) -> list[tuple[str, str, int, int]]:
    return [(request.name, request.holder, request.token, request.seq) for request in requests]


def _as_known(requests: Sequence[Renew] | Sequence[ReleaseRow], rows: Sequence[Row | None]) -> list[Row] | None:
    """The rows, if all that is asked for is what we left there."""
    asked = [request[1:] for request in _quadruples(requests)]
    found = [row for row in rows if row is not None]
    return found if [(row.holder, row.token, row.seq) for row in found] == asked else None
