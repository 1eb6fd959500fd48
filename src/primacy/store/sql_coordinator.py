"""Taking over from the table `locks` (lock_key, owner_id, expires_at) of the SQL coordinator (L8).

Old row and new row change in one transaction: the old row is taken by the old rules (only when it has expired, by the
database's clock) and its expiry becomes the column's maximum, so that no old node can ever take it again; and the new
row is made as a placeholder, which everybody watches for the table's longest wait. That wait must not be shorter than
the old lease, or nothing is done. New nodes are started after it: before, the name is fresh, and they would take it at
once.

This is the one place where the database's clock stands in a condition: it is the old protocol's own condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from primacy.election.store import Look, Place, Row
from primacy.errors import Refused, UsageError
from primacy.store.batch import perform
from primacy.store.port import LeaseStore, check_name, check_table
from primacy.store.sql import NoTable, SqlStore
from primacy.store.sql_text import spelled

TABLE = "locks"
KEY = "coordinator_lock"
KEY_MAX = 255
LEASE_MS = 10_000
"""The document's lease."""
OWNER = "primacy-import"


class Dialect(NamedTuple):
    """How a database spells the old rules."""

    style: str
    now: Callable[[str], str]
    """The moment of the statement, to be compared with a column of this type."""
    latest: Callable[[str], str]
    """The latest moment that a column of this type holds."""
    column_type: str
    begin: str


def _mysql_latest(column_type: str) -> str:
    return "FROM_UNIXTIME(2147483647)" if column_type == "timestamp" else "'9999-12-31 23:59:59'"


def _mysql_now(column_type: str) -> str:
    """A DATETIME has no zone: the old nodes wrote it in the server's, and our own session is in UTC."""
    return "NOW()" if column_type == "timestamp" else "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone)"


DIALECTS = {
    "MysqlStore": Dialect(
        "%({})s",
        _mysql_now,
        _mysql_latest,
        "SELECT data_type FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = :table "
        "AND column_name = 'expires_at'",
        "START TRANSACTION",
    ),
    "PostgresqlStore": Dialect(
        "%({})s",
        lambda _: "now()",
        lambda _: "'infinity'",
        "SELECT data_type FROM information_schema.columns WHERE table_schema = ANY (current_schemas(false)) "
        "AND table_name = :table AND column_name = 'expires_at'",
        "BEGIN",
    ),
    "SqliteStore": Dialect(
        ":{}",
        lambda _: "datetime('now')",
        lambda _: "'9999-12-31 23:59:59'",
        "SELECT type FROM pragma_table_info(:table) WHERE name = 'expires_at'",
        "BEGIN IMMEDIATE",
    ),
}


class Old(NamedTuple):
    """The old row."""

    owner: str
    expires_at: str
    expired: bool


class CoordinatorTable:
    """The old table in the database of a store."""

    def __init__(self, store: LeaseStore, table: str = TABLE, key: str = KEY) -> None:
        dialect = DIALECTS.get(type(store).__name__)
        if dialect is None or not isinstance(store, SqlStore):
            raise UsageError(
                "the table of the old nodes is in a database: name MySQL, MariaDB, PostgreSQL or SQLite as --store"
            )
        if not key or len(key) > KEY_MAX:
            raise UsageError(f"a lock's key has 1 to {KEY_MAX} characters")
        self._store, self._dialect = store, dialect
        self._table, self._key = check_table(table), key

    def look(self) -> Old | None:
        """What stands there."""
        text = (
            "SELECT owner_id, CAST(expires_at AS CHAR(40)), "
            f"CASE WHEN expires_at < {self._dialect.now(self._column_type())} THEN 1 ELSE 0 END "
            f"FROM {self._table} WHERE lock_key = :key"
        )
        found = self._run(text, {"key": self._key})
        return Old(str(found[0][0]), str(found[0][1]).strip(), bool(found[0][2])) if found else None

    def take(self, owner: str) -> bool:
        """By the old rules, and for good. True if it is ours now, which the owner proves: nobody else has that name."""
        column_type = self._column_type()
        latest = self._dialect.latest(column_type)
        values = {"owner": owner, "key": self._key}
        if self.look() is None:
            try:
                insert = f"INSERT INTO {self._table} (lock_key, owner_id, expires_at) VALUES (:key, :owner, {latest})"
                self._run(insert, values)
            except Refused:
                return False  # somebody was quicker
        else:
            update = (
                f"UPDATE {self._table} SET owner_id = :owner, expires_at = {latest} "
                f"WHERE lock_key = :key AND expires_at < {self._dialect.now(column_type)}"
            )
            self._run(update, values)
        now = self.look()
        return now is not None and now.owner == owner

    def _column_type(self) -> str:
        """Of the old expiry; empty if there is none, which the next statement tells."""
        (kind, *_), *_ = self._run(self._dialect.column_type, {"table": self._table}) or [("",)]
        return str(kind).lower()

    def is_closed(self) -> bool:
        """An import has taken it for good."""
        old = self.look()
        return old is not None and not old.expired and re.fullmatch(rf"{OWNER}-[0-9a-f]+", old.owner) is not None

    def transaction(self) -> AbstractContextManager[None]:
        """What is done inside becomes visible at once, or not at all."""
        return self._store.transaction(self._dialect.begin)

    def _run(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            return self._store._execute(spelled(text, self._dialect.style), values)
        except NoTable:
            raise Refused(f"there is no table {self._table} in this database") from None


def import_coordinator(
    store: LeaseStore, name: str, unique: str, wait_ms: int, table: str = TABLE, key: str = KEY
) -> Row | Old:
    """The new row; or the old one, if it is held and must be waited for. Then nothing was changed.

    `unique` is new at every call. `wait_ms`: the old lease, stretched by the clocks' error.
    """
    check_name(name)
    source = CoordinatorTable(store, table, key)
    (seen,) = store.look([Look(name)])
    if seen.row is not None:
        raise Refused(f"there is a lease {name!r} already; `primacy lease show {name}` shows it")
    assert seen.genesis is not None, "a look shows the genesis row"
    if seen.genesis.wait_max_ms < wait_ms:
        raise Refused(
            f"this table admits waits of {seen.genesis.wait_max_ms:,} ms, and the old lease needs {wait_ms:,} ms: "
            f"primacy lease schema --wait-max-ms {wait_ms} raises it. Nothing was changed"
        )
    try:
        with source.transaction():
            if not source.is_closed() and not source.take(f"{OWNER}-{unique}"):
                raise _Held
            (answer,) = perform(store, [Place(name, seen.server)])
            if not answer.done or answer.row is None or not source.is_closed():
                why = answer.reason or "it was made by somebody else in this moment, or another server answers"
                raise Refused(f"the lease {name!r} was not made: {why}. Try again")
    except _Held:
        now = source.look()
        assert now is not None, "it was not taken because it stands there"
        return now
    return answer.row


class _Held(Exception):
    """The old row has a holder. Never leaves this module."""
