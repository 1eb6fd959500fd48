"""Which store an address means.

    memory:                              within this process
    sqlite:///file.db                    a file (three strokes: relative, four: absolute)
    postgresql://user:password@host/db   also postgres://, and SQLAlchemy's spellings such as postgresql+asyncpg://
    mysql://…  mariadb://…               likewise
    etcd://host:port,host:port           etcds:// for TLS

or an SQLAlchemy engine that the application already has, synchronous or not: its address and connect arguments are used
for an own connection.
"""

from __future__ import annotations

import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from primacy.errors import UsageError
from primacy.store.engine import from_engine, is_engine
from primacy.store.port import LeaseStore, check_table

TABLE = "primacy_leases"
LIMIT_MS = 900
"""For a hold of 3 s, the default profile's."""


def open_store(where: Any, *, table: str = TABLE, limit_ms: int = LIMIT_MS, create: bool = True) -> LeaseStore:
    """A store that is not connected yet. Raises at once if the address, or what it needs, is wrong.

    `limit_ms` bounds each statement, lock wait and trip; see `limit_of_ms`. `create` False: only an existing table.
    """
    check_table(table)
    if isinstance(where, str):
        return _by_url(where, table, limit_ms, create)
    if hasattr(where, "look") and hasattr(where, "renew"):
        store: LeaseStore = where
        return store
    if is_engine(where):
        return from_engine(where, table, limit_ms, create)
    raise UsageError(f"a store is an address such as postgresql://host/db, or an SQLAlchemy engine, not {where!r:.60}")


def _by_url(url: str, table: str, limit_ms: int, create: bool) -> LeaseStore:
    scheme = re.split(r"[:+]", url, maxsplit=1)[0].lower()
    rest = url.partition(":")[2]
    match scheme:
        case "memory":
            from primacy.store.memory import MemoryStore, shared

            return MemoryStore(shared(rest.strip("/")))
        case "sqlite":
            from primacy.store.sqlite import SqliteStore

            return SqliteStore(sqlite_path(url), table, limit_ms, create)
        case "postgresql" | "postgres":
            from primacy.store.postgresql import PostgresqlStore, options_of

            return PostgresqlStore(options_of(f"postgresql:{rest}"), table, limit_ms, create)
        case "mysql" | "mariadb":
            from primacy.store.mysql import MysqlStore

            options = mysql_options(url)
            return MysqlStore(lambda: options, table, limit_ms, create)
        case "etcd" | "etcds":
            return _etcd(url, table, limit_ms)
    raise UsageError(
        f"{scheme[:20]!r} is no store: an address begins with memory:, sqlite:///, postgresql://, mysql://, mariadb:// "
        "or etcd://"
    )


def sqlite_path(url: str) -> str:
    """The file of `sqlite:///file`, as SQLAlchemy reads it: three strokes and a relative path, or four."""
    _, found, path = url.partition(":///")
    path = path.partition("?")[0]
    if not found or not path:
        raise UsageError(
            f"a SQLite address is sqlite:///file.db (relative) or sqlite:////folder/file.db, not {url[:60]}"
        )
    return path


MYSQL_TEXTS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "server_public_key", "bind_address")
MYSQL_FLAGS = ("ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")


def mysql_options(url: str) -> dict[str, Any]:
    """PyMySQL's arguments. What stands behind `?` is passed on if PyMySQL has it and a lease can bear it."""
    found = address(url, 3306)
    if not found.path.strip("/"):
        raise UsageError("an address of MySQL or MariaDB names its database: mysql://user@host/database")
    options: dict[str, Any] = {
        "host": found.host or "127.0.0.1",
        "port": found.port,
        "user": found.user,
        "password": found.password,
        "database": found.path.strip("/"),
    }
    for key, value in found.options.items():
        if key in MYSQL_TEXTS:
            options[key] = value
        elif key in MYSQL_FLAGS:
            options[key] = truth(key, value)
        elif key != "charset":  # ours is ASCII anyway
            raise UsageError(f"?{key}= is unknown here; there are {', '.join((*MYSQL_TEXTS, *MYSQL_FLAGS))}")
    return options


def _etcd(url: str, table: str, limit_ms: int) -> LeaseStore:
    from primacy.store.etcd import EtcdStore
    from primacy.store.etcd_http import Endpoint, Gateway

    scheme, _, rest = url.partition("://")
    login, _, hosts = rest.partition("?")[0].rstrip("/").rpartition("@")
    endpoints = []
    for text in hosts.split(","):
        found = address(f"etcd://{text}", 2379)
        if not found.host or found.path.strip("/"):
            raise UsageError(f"an address of etcd is etcd://host:port,host:port, not {hosts[:60]!r}")
        endpoints.append(Endpoint(found.host, found.port))
    user, _, password = login.partition(":")
    tls = _tls(address(url.replace(hosts, "x"), 2379).options) if scheme == "etcds" else None
    return EtcdStore(Gateway(endpoints, limit_ms, tls, unquote(user), unquote(password)), table)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """`?ca=FILE&cert=FILE&key=FILE`: whom to trust, and who we are."""
    for key in options:
        if key not in ("ca", "cert", "key"):
            raise UsageError(f"?{key}= is unknown here; there are ca, cert, key")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"))
    except OSError as error:
        raise UsageError(f"the certificates of the store cannot be used: {error.strerror or error}") from None
    return context


def truth(key: str, value: str) -> bool:
    """Yes or no in an address."""
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() in ("0", "false", "no", "off"):
        return False
    raise UsageError(f"?{key}={value[:20]} is neither true nor false")


class Address(NamedTuple):
    """The parts of a URL, decoded."""

    host: str
    port: int
    user: str
    password: str
    path: str
    options: dict[str, str]


def address(url: str, port: int) -> Address:
    """Its parts. Errors show no password."""
    try:
        parts = urlsplit(url)
        found_port = parts.port
    except ValueError as error:
        raise UsageError(f"the store's address is not a URL: {str(error)[:80]}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Address(
        parts.hostname or "",
        found_port or port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        unquote(parts.path),
        options,
    )
