"""Leases in PostgreSQL, by psycopg, on one synchronous connection.

Nothing depends on the session: limits, durability and the identity of the server stand inside each statement, so that a
pooler in transaction mode does no harm. Where a session is our own, LISTEN and statements that are kept ready make it
faster, and no more (`libpq.py`). What the server cannot limit, the network, is limited here: a statement that has no
answer in time is given up together with its connection. A standby, or a server that is set to read only, is refused.
Notifications are a reason to look and nothing else: everybody who may connect may send them.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from primacy.election.store import Genesis, Place, Prune, ReleaseRow, Renew, Row, Settle, Take
from primacy.errors import MissingExtra, NotReached, PrimacyError, Refused, StoreUnusable, UsageError
from primacy.store.port import News, next_link, server_limit_ms
from primacy.store.sql import (
    NoTable,
    OldTable,
    Result,
    ServerRefused,
    SqlStore,
    StatementResult,
    genesis_values,
    rows_of,
    seen_values,
    take_values,
)
from primacy.store.sql_text import (
    POSTGRESQL_IDENTITY,
    POSTGRESQL_MIGRATE,
    POSTGRESQL_PLAIN,
    Steps,
    Texts,
    postgresql_steps,
    spelled,
)
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
SESSION_ATTRS = "PGTARGETSESSIONATTRS"
"""libpq's variable; a service file may say it, too."""
PROBE = ":"
"""Begins a notification to oneself; no lease's name does."""
PROBE_S = 0.3
"""How long a notification to oneself may take before LISTEN counts as useless. Renewals wait meanwhile."""
NOT_FOR_US = ("42501", "42883", "0A000")
"""No right to a function, no such function, or not supported here."""
MADE_JUST_NOW = ("23505", "42P07")
DUPLICATE = "23505"
READ_ONLY = "25006"
NOT_A_TABLE_OF_LEASES = ("42703", "42804", "42809", "42883")
"""No such column, another type, another kind of thing, no such comparison."""
MIGRATE_SHARE = 10
"""A migration waits for its lock for this part of a statement's limit. Where a backup reads the table for an hour, each
new node tries again and again."""
REHEARSALS = 6
"""PostgreSQL plans a statement anew five times before it keeps a plan."""
WHY_NO_CONNECTION: tuple[tuple[str, str], ...] = (
    (
        r"password authentication failed|no password supplied|authentication failed for user",
        "change the user or the password in the address",
    ),
    (r'role "[^"]*" does not exist|is not permitted to log in', "name a role that may log in, or make this one"),
    (r'database "[^"]*" does not exist', "make the database, or name another one in the address"),
    (r"permission denied for database", "an administrator can GRANT CONNECT on the database to this role"),
    (r"no pg_hba\.conf entry|pg_hba\.conf rejects", "the server's pg_hba.conf must admit this user from here"),
    (
        r"does not support SSL|certificate verify failed|root certificate file|server certificate|sslmode value|"
        r"could not load|could not read certificate|private key file",
        "TLS is refused: check sslmode, sslrootcert, sslcert and sslkey in the address, and the server's certificate",
    ),
)
"""What a server, or libpq, says of a connection that will not come about before somebody changes something, and what.
libpq hands on no code here, so it is read from the words; in other languages than English it counts as no answer."""


class PostgresqlStore(SqlStore):
    """One connection to one database."""

    def __init__(
        self, options: Options, table: str = "primacy_leases", limit_ms: int = 900, create: bool = True
    ) -> None:
        super().__init__(create)
        self._table = table
        self._plain = False
        """The server does not let us have its identifier and timeline."""
        self._spell(POSTGRESQL_IDENTITY)
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

    def close(self) -> None:
        connection, self._connection, self._listening = self._connection, None, 0
        self._ready = {}
        if connection is not None and not self._is_inherited(connection):
            connection.close()

    def _spell(self, identity: str) -> None:
        self.texts = Texts(*(spelled(text, "%({})s") for text in postgresql_texts(self._table, identity)))
        self._steps = Steps(*(spelled(text, "%({})s") for text in postgresql_steps(self._table, identity)))

    # --- statements ---------------------------------------------------------------------------------------------------

    def _look(self, names: Sequence[str], count: bool) -> StatementResult:
        found = self._execute(self.texts.counted if count else self.texts.look, {"names": list(names)})
        server, position, wall_ms, read_only, number = found[0][:5]
        if read_only != "off":
            self.close()  # another host may be the one; and whoever watches begins anew, for it may be written to
            raise Refused(f"{self._where()} is read-only, like a standby: a lease needs the server that is written to")
        rows = rows_of([values[5:] for values in found if values[5] is not None])
        return StatementResult(server, rows, number, position, wall_ms)

    def _take(self, take: Take) -> StatementResult:
        assert take.seen is not None
        return self._write(self.texts.take, {**take_values(take), **seen_values(take.seen)}, take.server)

    def _insert(self, take: Take) -> StatementResult:
        if take.genesis is None:
            return StatementResult(take.server, {})
        try:
            return self._write(self._steps.first, {**take_values(take), **genesis_values(take.genesis)}, take.server)
        except ServerRefused as said:
            if said.code != DUPLICATE:
                raise
        return StatementResult(take.server, {})

    def _renew(self, requests: Sequence[Renew]) -> StatementResult:
        values = {**_columns(requests), "servers": [request.server for request in requests]}
        return self._write(self.texts.renew, values, requests[0].server)

    def _release(self, requests: Sequence[ReleaseRow]) -> StatementResult:
        values = {**_columns(requests), "successors": [request.successor for request in requests]}
        return self._write(self.texts.release, values, "")

    def _change(self, request: Place | Settle | Prune) -> bool:
        values: dict[str, Any] = {"name": request.name, "server": request.server}
        match request:
            case Place():
                text = self._steps.place
            case Settle():
                text = self._steps.settle
                values |= genesis_values(request.genesis)
            case Prune():
                text = self._steps.prune
                values |= genesis_values(request.genesis) | seen_values(request.seen)
        try:
            return bool(self._execute(text, values))
        except ServerRefused as said:
            if said.code != DUPLICATE:
                raise
        return False

    def _write(self, text: str, values: dict[str, Any], server: str) -> StatementResult:
        found = self._execute(text, values)
        if not found:
            return StatementResult(server, {})
        server, position, wall_ms = found[0][:3]
        return StatementResult(server, rows_of([values[3:] for values in found]), -1, position, wall_ms)

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

        A release, and the look and the take after it, must not wait for a plan. So they are done beforehand with
        a name that no lease can have: such a write matches nothing and leaves nothing. A server that refuses any of it,
        as to one who may only read, is asked in the ordinary way.
        """
        texts, limit = self.texts, {"limit": str(server_limit_ms(self._limit_ms))}
        lists = {"names": [""], "holders": [""], "tokens": [0], "seqs": [0], "servers": [""], "successors": [""]}
        nobody = Row("", 0, 0, 0, 0, released=False)
        nothing = {**take_values(Take("", nobody, "", nobody, Genesis())), **seen_values(nobody)}
        rehearsals = [
            (texts.look, lists | limit, REHEARSALS),
            (texts.renew, lists | limit, 0),
            (texts.release, lists | limit, REHEARSALS),
            (texts.take, nothing | limit, REHEARSALS),
        ]
        try:
            self._ready = connection.keep_ready(rehearsals)
        except psycopg.Error as error:
            if isinstance(meaning := self._meaning(error), NotReached):
                raise meaning from None

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        try:
            return super()._with_table(statement)
        except ServerRefused as said:
            if said.code not in NOT_FOR_US or "pg_" not in str(said) or self._plain:
                raise
        self._plain = True
        self._spell(POSTGRESQL_PLAIN)
        return super()._with_table(statement)

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        try:
            super().make_table(new, wait_max_ms)
        except ServerRefused as said:
            if said.code not in MADE_JUST_NOW:  # another one made it at the same moment
                raise
            super().make_table(new, wait_max_ms)

    def _migrate(self) -> None:
        connection = self._connected()
        try:
            with connection.transaction():
                # while it waits, everybody's renewals wait behind it; several new nodes come one after the other
                limit = str(max(1, self._limit_ms // MIGRATE_SHARE))
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (limit,))
                connection.execute(psycopg_sql.SQL(POSTGRESQL_MIGRATE.format(self._table)))
        except psycopg.Error as error:
            if error.sqlstate != "42501":
                raise self._meaning(error) from None
            raise StoreUnusable(
                f"{self._where()}: the table {self._table} is of an earlier version of primacy, and this user may not "
                "change it: its owner can run what `primacy lease schema` prints"
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
        news = (_told(payload) for payload in heard if not payload.startswith(PROBE))
        return [one for one in dict.fromkeys(news) if one.name]

    def _collect(self, connection: Limited) -> None:
        """What the socket has, without waiting. What came along with an answer has been heard by the handler."""
        connection.pgconn.consume_input()
        while (found := connection.pgconn.notifies()) is not None:
            self._note(connection.pgconn.backend_pid, found.be_pid, found.extra.decode(errors="replace"))

    def _note(self, own: int, sender: int, payload: str) -> None:
        """One's own releases and takes are worth nothing."""
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

    def _is_connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def _connected(self) -> Limited:
        self._check_process()
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        self._given = self._options()
        limits = {"tcp_user_timeout": self._limit_ms, "connect_timeout": max(CONNECT_S, self._limit_ms // 1_000)}
        options = {"application_name": "primacy", **_of_hosts(self._given), **limits, "client_encoding": "UTF8"}
        try:
            connection = Limited.connect(autocommit=True, prepare_threshold=None, **options)
            if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
                # it takes any bytes from anybody; in this encoding each of them is a text, and ours are the same
                connection.execute("SET client_encoding = 'LATIN1'")
        except psycopg.Error as error:
            raise no_connection(self._where(), str(error)) from None
        connection.limit_s = self._limit_ms / 1_000
        self._heard = []
        own = connection.pgconn.backend_pid
        connection.add_notify_handler(lambda notify: self._note(own, notify.pid, notify.payload))
        self._connection, self._link = connection, next_link()

    def _meaning(self, error: psycopg.Error) -> Exception:
        code, text = error.sqlstate or "", f"{self._where()}: {_first_line(str(error))}"
        connection = self._connection
        if code == "42P01":
            return NoTable(f"{self._where()} has no table {self._table}")
        if code == "42703" and "xid" in text:
            return OldTable(f"{self._where()}: the table {self._table} is of an earlier version of primacy")
        if code == "42703" and "proof" in text:
            return StoreUnusable(
                f"{self._where()}: the table {self._table} is of an early version of primacy: drop it, once nobody "
                f"uses it, or add what `primacy lease schema` prints for `proof`"
            )
        if code == READ_ONLY or (code == "55000" and "recovery" in text):
            self.close()
            what = "is read-only" if code == READ_ONLY else "is a standby"
            return Refused(f"{self._where()} {what}: a lease needs the server that is written to")
        if connection is None or connection.closed or not code or code[:2] in ("08", "57", "53"):
            self.close()
            return NotReached(text)
        if code in NOT_FOR_US and "pg_" in text and not self._plain:
            return ServerRefused(text, code)
        return self._final(code, text) or ServerRefused(text, code)

    def _final(self, code: str, text: str) -> StoreUnusable | None:
        """What cannot pass before somebody changes something."""
        if code == "42501":
            return StoreUnusable(
                f"{text}: this user lacks a right; an administrator can run what `primacy lease schema` prints"
            )
        if code == "3F000":
            return StoreUnusable(f"{text}: make a schema for the table {self._table}, or set this user's search_path")
        if code in NOT_A_TABLE_OF_LEASES:
            return StoreUnusable(f"{text}: the table {self._table} is somebody else's; choose another name for it")
        if code[:2] == "28" or code == "3D000":
            self.close()
            return StoreUnusable(f"{text}: check the user, the password and the database in the address")
        return None


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


def _of_hosts(given: dict[str, Any]) -> dict[str, Any]:
    """Of several hosts the one that is written to, unless the user says which. Else libpq keeps to the first one that
    answers, as a former primary that came back as a standby."""
    said = "target_session_attrs" in given or "service" in given or SESSION_ATTRS in os.environ
    hosts = given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST") or ""
    return given if said or "," not in str(hosts) else {"target_session_attrs": "read-write", **given}


def no_connection(where: str, said: str) -> PrimacyError:
    """What a failed connection means. It is final only if every host, and every way to it, says so."""
    tries = said.split("connection to server")[1:] or [said]
    remedies = [next((remedy for why, remedy in WHY_NO_CONNECTION if re.search(why, one)), "") for one in tries]
    first = _first_line(said).removeprefix("connection failed: ")
    return StoreUnusable(f"{where}: {first}: {remedies[0]}") if all(remedies) else NotReached(f"{where}: {first}")


def _told(payload: str) -> News:
    """What a notification is worth. An earlier version told more: token, seq, released, proof and successor."""
    name, *words = payload.split(" ")
    return News(name, renewed=words == ["renewed"] or (len(words) == 5 and words[2] == "0"))


def _columns(requests: Sequence[Renew] | Sequence[ReleaseRow]) -> dict[str, Any]:
    return {
        "names": [request.name for request in requests],
        "holders": [request.holder for request in requests],
        "tokens": [request.token for request in requests],
        "seqs": [request.seq for request in requests],
    }


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "no reason given"
