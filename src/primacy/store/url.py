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
from typing import Any

from primacy.errors import UsageError
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
