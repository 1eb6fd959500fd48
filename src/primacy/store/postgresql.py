"""Leases in PostgreSQL, by psycopg, on one synchronous connection.

Nothing depends on the session: limits, durability and the identity of the server stand inside each statement, so that a
pooler in transaction mode does no harm. Where a session is our own, LISTEN and statements that are kept ready make it
faster, and no more (`libpq.py`). What the server cannot limit, the network, is limited here: a statement that has no
answer in time is given up together with its connection. A standby, or a server that is set to read only, is refused.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.store import ReleaseRow, Renew, Row, Take
from primacy.errors import MissingExtra, NotReached, Refused, UsageError
from primacy.store.hearsay import Hearsay, Known
from primacy.store.port import News, server_limit_ms
from primacy.store.sql import NoTable, Result, Seen, SqlStore, rows_of, take_values
from primacy.store.sql_text import POSTGRESQL_PLAIN, Texts, spelled
from primacy.store.sql_text import postgresql as postgresql_texts

try:
    import psycopg
    from psycopg import sql as psycopg_sql

    from primacy.store.libpq import NOT_READY, Limited, Ready
except ImportError:
    raise MissingExtra("a store in PostgreSQL", "postgres") from None

CONNECT_S = 2
"""libpq gives a connection no less."""
Options = Callable[[], dict[str, Any]]
"""libpq's words for where and who, asked anew for each connection: a password may have changed."""
PROBE = ":"
"""Begins a notification to oneself; no lease's name does."""
PROBE_S = 0.3
"""How long a notification to oneself may take before LISTEN counts as useless. Renewals wait meanwhile."""
NOT_FOR_US = ("42501", "42883", "0A000")
"""No right to a function, no such function, or not supported here."""
REHEARSALS = 6
"""PostgreSQL plans a statement anew five times before it keeps a plan."""
_LEFT_TO_THE_PARENT: list[psycopg.Connection[Any]] = []


class PostgresqlStore(SqlStore):
    """One connection to one database."""

    def __init__(
        self, options: Options, table: str = "primacy_leases", limit_ms: int = 900, create: bool = True
    ) -> None:
        super().__init__(create)
        self.texts = Texts(*(spelled(text, "%({})s") for text in postgresql_texts(table)))
        self._table = table
        self._plain = False
        """The server does not let us have its identifier and timeline."""
        self._limit_ms = limit_ms
        self._options = options
        self._given = options()
        """With what it was connected last."""
        self._connection: Limited | None = None
        self._listening = 0
        """0: not yet, 1: yes, -1: this connection cannot."""
        self._ready: dict[str, Ready] = {}
        """Statements that this connection keeps ready, by their text."""
        self._heard: list[str] = []
        self._hearsay = Hearsay()
        self._pid = os.getpid()

    def close(self) -> None:
        connection, self._connection, self._listening = self._connection, None, 0
        self._hearsay.forget()
        self._ready = {}
        if connection is None:
            return
        if os.getpid() != self._pid:
            _LEFT_TO_THE_PARENT.append(connection)
            return
        connection.close()

    # --- statements ---------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str]) -> Seen:
        found = self._execute(self.texts.look, {"names": list(names)})
        server, read_only = found[0][:2]
        if read_only != "off":
            raise Refused(f"{self._where()} is read-only, like a standby: a lease needs the server that is written to")
        found = [values[2:] for values in found if values[2] is not None]
        seen = Seen(server, rows_of([values[1:] for values in found]))
        if not self._hearsay.answered(server, names, _known(found, seen)):
            return seen._replace(server=f"{server}:misled")  # this once: whoever counted from a lie begins anew
        return seen

    def _take(self, text: str, take: Take) -> Seen:
        return self._write(text, {**take_values(take), "proof": self._hearsay.proof(take)}, take.server)

    def _renew(self, requests: Sequence[Renew]) -> Seen:
        values = {**_columns(requests), "servers": [request.server for request in requests]}
        return self._write(self.texts.renew, values, requests[0].server)

    def _release(self, requests: Sequence[ReleaseRow]) -> Seen:
        values = {**_columns(requests), "successors": [request.successor for request in requests]}
        return self._write(self.texts.release, values, "")

    def _write(self, text: str, values: dict[str, Any], server: str) -> Seen:
        found = self._execute(text, values)
        seen = Seen(found[0][0] if found else server, rows_of([values[2:] for values in found]))
        if found:
            self._hearsay.answered(seen.server, list(seen.rows), _known([values[1:] for values in found], seen))
        return seen

    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        connection = self._connected()
        if "%(limit)s" in text:
            values = {**values, "limit": str(server_limit_ms(self._limit_ms))}
        try:
            if text in self._ready:
                try:
                    return connection.run(self._ready[text], values)
                except psycopg.Error as error:
                    if error.sqlstate not in NOT_READY:
                        raise
                    self._ready = {}  # nothing was done, and it goes without
            cursor = connection.execute(psycopg_sql.SQL(text), values)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._meaning(error) from None

    def _rehearse(self, connection: Limited) -> None:
        """The session is our own: what must be quick is kept ready, down to its plan.

        A release, and the take after it, are the first of their kind in most sessions. So they are done beforehand with
        a name that no lease can have: such a write matches nothing and leaves nothing. A server that refuses any of it,
        as to one who may only read, is asked in the ordinary way.
        """
        texts, limit = self.texts, {"limit": str(server_limit_ms(self._limit_ms))}
        lists = {"names": [""], "holders": [""], "tokens": [0], "seqs": [0], "servers": [""], "successors": [""]}
        nobody = take_values(Take("", 0, 0, "", Row("", 0, 0, 0, 0, released=False)))
        rehearsals = [
            (texts.look, lists | limit, 0),
            (texts.renew, lists | limit, 0),
            (texts.release, lists | limit, REHEARSALS),
            (texts.take, {**nobody, **limit, "proof": ""}, REHEARSALS),
        ]
        try:
            self._ready = connection.keep_ready(rehearsals)
        except psycopg.Error as error:
            if isinstance(meaning := self._meaning(error), NotReached):
                raise meaning from None

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        try:
            return super()._with_table(statement)
        except Refused as refused:
            if refused.args[-1] not in NOT_FOR_US or "pg_" not in refused.args[0] or self._plain:
                raise
        self._plain = True
        self.texts = Texts(*(spelled(text, "%({})s") for text in postgresql_texts(self._table, POSTGRESQL_PLAIN)))
        return super()._with_table(statement)

    def make_table(self) -> None:
        try:
            super().make_table()
        except Refused as refused:
            if refused.args[-1] not in ("23505", "42P07"):  # another one made it at the same moment
                raise Refused(
                    f"{refused.args[0]}; `primacy lease schema` prints what an administrator can run"
                ) from None

    # --- news ---------------------------------------------------------------------------------------------------------

    def listen(self) -> int:
        connection = self._connected()
        if self._listening == 0:
            self._listening = 1 if self._hears_itself(connection) else -1
            if self._listening < 0:
                raise Refused(f"{self._where()} does not pass notifications on, as behind a pooler in transaction mode")
            self._rehearse(connection)
        return connection.fileno() if self._listening > 0 else -1

    def news(self) -> list[News]:
        connection = self._connection
        if connection is None:
            raise NotReached("there is no connection")
        try:
            self._collect(connection)
        except psycopg.Error as error:
            raise self._meaning(error) from None
        heard, self._heard = self._heard, []
        news = (self._hearsay.heard(payload) for payload in heard if not payload.startswith(PROBE))
        return [one for one in news if one is not None]

    def _collect(self, connection: Limited) -> None:
        """What the socket has, without waiting. What came along with an answer has been heard by the handler."""
        connection.pgconn.consume_input()
        while (found := connection.pgconn.notifies()) is not None:
            self._note(connection.pgconn.backend_pid, found.be_pid, found.extra.decode(errors="replace"))

    def _note(self, own: int, sender: int, payload: str) -> None:
        """With many leases, most of what comes is the echo of one's own renewals, and worth nothing."""
        if sender != own or payload.startswith(PROBE):
            self._heard.append(payload)

    def _hears_itself(self, connection: Limited) -> bool:
        """LISTEN succeeds behind a pooler as well, on a connection that is given to somebody else the next moment."""
        word = f"{PROBE}{os.getpid()}:{os.urandom(6).hex()}"
        try:
            connection.execute(psycopg_sql.SQL("LISTEN {}").format(psycopg_sql.Identifier(self._table)))
            connection.execute("SELECT pg_notify(%s, %s)", (self._table, word))
            end = time.monotonic() + min(PROBE_S, self._limit_ms / 2_000)
            while word not in self._heard and (left_s := end - time.monotonic()) > 0:
                select.select([connection], [], [], left_s)
                self._collect(connection)
            return word in self._heard
        except psycopg.Error as error:
            raise self._meaning(error) from None

    # --- the connection -----------------------------------------------------------------------------------------------

    def _where(self) -> str:
        """For sentences; holds no password."""
        host = (
            self._given.get("host") or self._given.get("hostaddr") or self._given.get("service") or "the local socket"
        )
        return f"PostgreSQL at {host}:{self._given.get('port') or 5432}"

    def _connected(self) -> Limited:
        if os.getpid() != self._pid:
            self.close()
            raise NotReached("this store belongs to the process that it was forked from")
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        self._given = self._options()
        limits = {"tcp_user_timeout": self._limit_ms, "connect_timeout": max(CONNECT_S, self._limit_ms // 1_000)}
        options = {"application_name": "primacy", **self._given, **limits}
        try:
            connection = Limited.connect(autocommit=True, prepare_threshold=None, **options)
        except psycopg.Error as error:
            raise NotReached(f"{self._where()}: {_first_line(error)}") from None
        connection.limit_s = self._limit_ms / 1_000
        self._heard = []
        own = connection.pgconn.backend_pid
        connection.add_notify_handler(lambda notify: self._note(own, notify.pid, notify.payload))
        self._connection = connection

    def _meaning(self, error: psycopg.Error) -> Exception:
        code, text = error.sqlstate or "", f"{self._where()}: {_first_line(error)}"
        connection = self._connection
        if code == "42P01":
            return NoTable(f"{self._where()} has no table {self._table}")
        if code == "42703" and "proof" in text:
            return Refused(
                f"{self._where()}: the table {self._table} is of an early version of primacy: drop it, once nobody "
                f"uses it, or add what `primacy lease schema` prints for `proof`",
                code,
            )
        if code == "55000" and "recovery" in text:
            return Refused(f"{self._where()} is a standby: a lease needs the server that is written to")
        if connection is None or connection.closed or not code or code[:2] in ("08", "57", "53"):
            self.close()
            return NotReached(text)
        return Refused(text, code)


def options_of(url: str) -> Options:
    """What an address says; libpq itself reads it, with every option that it knows."""
    try:
        found = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        said = str(error).strip().replace(url, "the address")
        raise UsageError(f"not an address of PostgreSQL, such as postgresql://host/db: {said}") from None
    for port in str(found.get("port") or "").split(","):
        if port and not port.isdigit():
            raise UsageError(
                f"not an address of PostgreSQL, such as postgresql://host:5432/db: {port[:20]!r} is no port"
            )
    return lambda: dict(found)


def _known(found: Sequence[Sequence[Any]], seen: Seen) -> dict[str, Known]:
    """The rows with their proofs; each of `found` begins with proof and name."""
    return {values[1]: Known(seen.rows[values[1]], values[0]) for values in found}


def _columns(requests: Sequence[Renew] | Sequence[ReleaseRow]) -> dict[str, Any]:
    return {
        "names": [request.name for request in requests],
        "holders": [request.holder for request in requests],
        "tokens": [request.token for request in requests],
        "seqs": [request.seq for request in requests],
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
