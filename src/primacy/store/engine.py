"""A store from the SQLAlchemy engine that the application already has.

Nothing of the engine's pool is used: a renewal must not wait for a connection that the application keeps busy, nor run
in an event loop that it blocks. What is taken over is what the engine would connect with: its address and connect
arguments, read by its own `do_connect` event each time a connection is made, so that passwords that change (a token of
a cloud, say) are the present ones. An asynchronous driver's arguments are translated to the synchronous driver's.
"""

from __future__ import annotations

import threading
from typing import Any

from primacy.errors import UsageError
from primacy.store.port import LeaseStore

MYSQL_DRIVERS = ("pymysql", "mysqldb", "aiomysql", "asyncmy", "mysqlconnector", "mariadbconnector")
RENAMED = {"username": "user", "passwd": "password", "db": "database", "dbname": "database"}
PLAIN = ("host", "port", "user", "password", "database")
OWN = (
    "connect_timeout", "timeout", "command_timeout", "read_timeout", "write_timeout", "autocommit", "client_flag",
    "charset", "use_unicode", "statement_cache_size", "prepared_statement_cache_size", "prepare_threshold", "echo",
    "application_name", "program_name", "check_same_thread", "isolation_level", "uri", "cached_statements",
)  # fmt: skip
"""What the application sets for its own connections and what a lease sets for its own."""
MYSQL_PASSED = ("unix_socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify_cert",
                "ssl_verify_identity", "ssl_disabled", "server_public_key", "bind_address")  # fmt: skip


class _Captured(Exception):
    """Ends a connection before it is made: only its arguments are wanted."""


def is_engine(where: Any) -> bool:
    """An engine of SQLAlchemy, or an asynchronous one, without importing either."""
    engine = getattr(where, "sync_engine", where)
    return all(hasattr(engine, name) for name in ("url", "dialect", "pool"))


def from_engine(where: Any, table: str, limit_ms: int, create: bool) -> LeaseStore:
    """A store of its own on the same database."""
    engine = getattr(where, "sync_engine", where)
    dialect, driver = engine.dialect.name, engine.dialect.driver
    arguments = Arguments(engine)
    match dialect:
        case "sqlite":
            from primacy.store.sqlite import SqliteStore

            return SqliteStore(engine.url.database or "", table, limit_ms, create)
        case "postgresql":
            from primacy.store.postgresql import PostgresqlStore

            return PostgresqlStore(lambda: postgresql_arguments(driver, arguments()), table, limit_ms, create)
        case "mysql" | "mariadb":
            from primacy.store.mysql import MysqlStore

            return MysqlStore(lambda: mysql_arguments(driver, arguments()), table, limit_ms, create)
    raise UsageError(f"a lease cannot be kept in {dialect}: the engine must be SQLite, PostgreSQL, MySQL or MariaDB")


class Arguments:
    """What the engine would connect with at the moment of a call.

    The listener stays for as long as the engine: taking it away again could meet a connection of the application.
    """

    def __init__(self, engine: Any) -> None:
        from sqlalchemy import event

        self._engine = engine
        self._asked = threading.local()
        event.listen(engine, "do_connect", self._catch)

    def __call__(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._asked.found = found
        try:
            self._engine.pool.recreate().connect()
        except _Captured:
            return {RENAMED.get(key, key): value for key, value in found.items()}
        finally:
            self._asked.found = None
        raise AssertionError("the engine connected without asking its listeners")

    def _catch(self, dialect: Any, record: Any, positional: Any, keywords: dict[str, Any]) -> None:  # noqa: ARG002
        """Sees every connection of the engine, and stops those that this thread asked for."""
        found = getattr(self._asked, "found", None)
        if found is not None:
            found.update(keywords)
            raise _Captured


def postgresql_arguments(driver: str, given: dict[str, Any]) -> dict[str, Any]:
    """libpq's names for them."""
    options = {("dbname" if key == "database" else key): value for key, value in given.items() if key in PLAIN}
    rest = {key: value for key, value in given.items() if key not in PLAIN and key not in OWN}
    if driver in ("psycopg", "psycopg2", "psycopg_async"):
        return {**options, **{key: value for key, value in rest.items() if key != "context"}}
    ssl_mode = rest.pop("ssl", None)
    if isinstance(ssl_mode, str | bool):
        options["sslmode"] = ssl_mode if isinstance(ssl_mode, str) else "verify-full" if ssl_mode else "disable"
    elif ssl_mode is not None:
        raise UsageError(
            "the engine's ssl= is a Python object, which a connection of its own cannot use: hand over the address "
            "instead, such as postgresql://host/db?sslmode=verify-full&sslrootcert=ca.pem"
        )
    rest.pop("server_settings", None)
    if rest:
        raise _unknown(driver, rest)
    return options


def mysql_arguments(driver: str, given: dict[str, Any]) -> dict[str, Any]:
    """PyMySQL's names for them."""
    options = {key: value for key, value in given.items() if key in PLAIN or key in MYSQL_PASSED}
    rest = {key: value for key, value in given.items() if key not in options and key not in OWN}
    if rest or driver not in MYSQL_DRIVERS:
        raise _unknown(driver, rest)
    if "database" not in options:
        raise UsageError("the engine's address names no database: a lease needs one for its table")
    return {"host": "127.0.0.1", **options}


def _unknown(driver: str, rest: dict[str, Any]) -> UsageError:
    named = ", ".join(sorted(rest)) or "its arguments"
    return UsageError(
        f"{driver}'s {named} cannot be translated for a connection of its own: hand over an address instead"
    )
