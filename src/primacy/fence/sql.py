"""A guard inside of the user's own transaction: a stale holder's transaction fails, whatever it wrote.

    with engine.begin() as connection:
        fence.sql.guard(connection, "reports", leadership.token)     # first: raises StaleToken
        connection.execute(...)                                      # then whatever the holder does

A small table has one row per election with the largest token seen. The guard raises it, if the token is not smaller, by
one conditional statement, and keeps the row locked until the transaction ends: two holders' transactions follow one
another, and the older one either was over before or is refused. A guard outside of a transaction would protect nothing,
and is an error.

It takes a connection or session of SQLAlchemy, Django's `connection`, or a plain one of sqlite3, psycopg, psycopg2,
PyMySQL or MySQL Connector; `guard_async` those of SQLAlchemy's asyncio. For any other driver, `texts` has the
statements. The table is made by `create`, once, and not by the guard: in MySQL making one ends a transaction.

Where the protected rows are few, they can carry the token themselves:
`UPDATE thing SET value = :v, fence = :token WHERE id = :id AND fence <= :token` (no row: stale).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from primacy.errors import StaleToken, UsageError
from primacy.fence.file import check_token
from primacy.store.port import NAME_MAX, check_name, check_table

TABLE = "primacy_fences"
IN_TRANSACTION = 1
"""The bit of it in MySQL's status; it says the same in PyMySQL and in the server."""
PG_IN_TRANSACTION = 2
DRIVERS = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "mysql": "mysql",
}
VENDORS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


class Texts(NamedTuple):
    """The statements of one dialect. Parameters are written `:name` and `:token`."""

    create: str
    raise_mark: str
    """Run first. Where it returns a row, the token was let in; where it returns none, see `returns`."""
    read_mark: str
    """The mark as it stands now, in the same transaction; larger than the token: stale."""
    returns: bool
    """Whether `raise_mark` returns the row that it wrote. If not, `read_mark` must follow it."""


def texts(dialect: str, table: str = TABLE) -> Texts:
    """For `sqlite`, `postgresql`, or `mysql` (MariaDB too)."""
    t = check_table(table)
    one_statement = f"""INSERT INTO {t} (name, token, uses) VALUES (:name, :token, 1)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, uses = {t}.uses + 1 WHERE {t}.token <= excluded.token
RETURNING token"""
    match dialect:
        case "sqlite":
            return Texts(
                f"CREATE TABLE IF NOT EXISTS {t} (name TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL, "
                "uses INTEGER NOT NULL)",
                one_statement,
                f"SELECT token FROM {t} WHERE name = :name",
                True,
            )
        case "postgresql":
            return Texts(
                f"CREATE TABLE IF NOT EXISTS {t} (name varchar({NAME_MAX}) PRIMARY KEY, token bigint NOT NULL, "
                "uses bigint NOT NULL)",
                one_statement,
                f"SELECT token FROM {t} WHERE name = :name",
                True,
            )
        case "mysql":  # assignments see the new values of those before them; the row always changes when let in
            return Texts(
                f"CREATE TABLE IF NOT EXISTS {t} (name VARCHAR({NAME_MAX}) CHARACTER SET ascii COLLATE ascii_bin "
                "NOT NULL PRIMARY KEY, token BIGINT NOT NULL, uses BIGINT NOT NULL) ENGINE=InnoDB",
                f"""INSERT INTO {t} (name, token, uses) VALUES (:name, :token, 1)
ON DUPLICATE KEY UPDATE uses = IF(token <= :token, uses + 1, uses), token = GREATEST(token, :token)""",
                f"SELECT token FROM {t} WHERE name = :name FOR UPDATE",
                False,
            )
    raise UsageError(f"no fence for {dialect!r}: there is one for sqlite, postgresql and mysql (MariaDB too)")


def guard(connection: Any, name: str, token: int, *, table: str = TABLE) -> None:
    """Raises `StaleToken` if a larger token was seen. Call it first in the transaction that writes."""
    check_name(name)
    check_token(token)
    port = _port(connection)
    wanted = texts(port.dialect, table)
    found = port.run(wanted.raise_mark, {"name": name, "token": token})
    if not port.in_transaction():
        raise UsageError(
            "the guard is called outside of a transaction, so that it protects nothing: begin one, guard, write, commit"
        )
    if found and wanted.returns:
        return
    ((mark,),) = port.run(wanted.read_mark, {"name": name})
    if mark > token or wanted.returns:
        raise StaleToken(f"the fence {name} in {table}", token, mark)


async def guard_async(connection: Any, name: str, token: int, *, table: str = TABLE) -> None:
    """The same for an `AsyncConnection` or `AsyncSession` of SQLAlchemy."""
    if not hasattr(connection, "run_sync"):
        raise UsageError(f"guard_async takes SQLAlchemy's AsyncConnection or AsyncSession, not {connection!r:.60}")
    await connection.run_sync(guard, name, token, table=table)


def create(connection: Any, *, table: str = TABLE) -> None:
    """Makes the table, if it is not there. Commit afterwards; in MySQL this itself commits what was open."""
    port = _port(connection)
    port.run(texts(port.dialect, table).create, {})


# --- connections ------------------------------------------------------------------------------------------------------


class _Port(ABC):
    """A connection of some kind: its dialect, a way to run a statement, and whether a transaction is open."""

    dialect = ""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, text: str, values: dict[str, Any]) -> list[Any]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(self.spelled(text), values)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()

    def spelled(self, text: str) -> str:
        return re.sub(r":([a-z]+)\b", r"%(\1)s", text)

    @abstractmethod
    def in_transaction(self) -> bool: ...


class _Sqlite(_Port):
    dialect = "sqlite"

    def spelled(self, text: str) -> str:
        return text

    def in_transaction(self) -> bool:
        return bool(self.connection.in_transaction)


class _Postgresql(_Port):
    dialect = "postgresql"

    def in_transaction(self) -> bool:
        info = getattr(self.connection, "info", None)
        return int(info.transaction_status) == PG_IN_TRANSACTION if info is not None else False


class _Mysql(_Port):
    dialect = "mysql"

    def in_transaction(self) -> bool:
        found = self.connection
        if hasattr(found, "server_status"):  # PyMySQL
            return bool(found.server_status & IN_TRANSACTION)
        return bool(found.in_transaction)  # MySQL Connector


class _Django(_Port):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.dialect = VENDORS.get(connection.vendor, connection.vendor)

    def in_transaction(self) -> bool:
        return bool(self.connection.in_atomic_block or not self.connection.get_autocommit())


class _Alchemy(_Port):
    """SQLAlchemy's own connection begins a transaction by itself, unless it was told to commit each statement."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.dialect = VENDORS.get(connection.dialect.name, connection.dialect.name)

    def run(self, text: str, values: dict[str, Any]) -> list[Any]:
        from sqlalchemy import text as sql  # noqa: PLC0415 -- whoever has such a connection has the package

        result = self.connection.execute(sql(text), values)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    def in_transaction(self) -> bool:
        level = self.connection.get_execution_options().get("isolation_level")
        raw = self.connection.connection.dbapi_connection
        own = _plain(raw)
        return level != "AUTOCOMMIT" and self.connection.in_transaction() and (own is None or own.in_transaction())


def _port(connection: Any) -> _Port:
    if hasattr(connection, "exec_driver_sql"):
        return _Alchemy(connection)
    if hasattr(connection, "get_bind") and callable(getattr(connection, "connection", None)):  # a Session
        return _Alchemy(connection.connection())
    if hasattr(connection, "vendor") and hasattr(connection, "in_atomic_block"):
        return _Django(connection)
    found = _plain(connection)
    if found is None:
        raise UsageError(
            f"the guard does not know {type(connection).__module__}.{type(connection).__qualname__}: hand over a "
            "connection of SQLAlchemy, Django, sqlite3, psycopg or PyMySQL, or run fence.sql.texts yourself"
        )
    return found


def _plain(connection: Any) -> _Port | None:
    """A driver's own connection, also one of a class that was derived from it."""
    for kind in type(connection).__mro__:
        match DRIVERS.get(kind.__module__.partition(".")[0]):
            case "sqlite":
                return _Sqlite(connection)
            case "postgresql" if hasattr(connection, "info"):
                return _Postgresql(connection)
            case "mysql":
                return _Mysql(connection)
    return None
