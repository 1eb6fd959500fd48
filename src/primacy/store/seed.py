"""Taking over from seed 002: its table `locks` (lock_key, owner_id, expires_at), its key `coordinator_lock` (L8).

The old row is taken by the old rules (only when it has expired, by the database's clock), and in the same statement its
expiry becomes the column's maximum: no old node can ever take it again, and an old holder that comes back finds another
owner and steps down. Then the new row is made, unreleased, with the old lease's length as its hold, so that nobody
starts before an old holder's last moment is over.

This is the one place where the database's clock stands in a condition: it is the old protocol's own condition. An
import that broke off between the two steps can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.election.model import TOKEN_MAX
from primacy.election.store import Look, Row, Take
from primacy.errors import Refused, UsageError
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
    now: str
    latest: Callable[[str], str]
    """The latest moment that a column of this type holds."""
    column_type: str


def _mysql_latest(column_type: str) -> str:
    return "FROM_UNIXTIME(2147483647)" if column_type == "timestamp" else "'9999-12-31 23:59:59'"


DIALECTS = {
    "MysqlStore": Dialect(
        "%({})s",
        "NOW()",
        _mysql_latest,
        "SELECT data_type FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = :table "
        "AND column_name = 'expires_at'",
    ),
    "PostgresqlStore": Dialect(
        "%({})s",
        "now()",
        lambda _: "'infinity'",
        "SELECT data_type FROM information_schema.columns WHERE table_schema = ANY (current_schemas(false)) "
        "AND table_name = :table AND column_name = 'expires_at'",
    ),
    "SqliteStore": Dialect(
        ":{}",
        "datetime('now')",
        lambda _: "'9999-12-31 23:59:59'",
        "SELECT type FROM pragma_table_info(:table) WHERE name = 'expires_at'",
    ),
}


class Old(NamedTuple):
    """The old row."""

    owner: str
    expires_at: str
    expired: bool


class SeedTable:
    """The old table in the database of a store."""

    def __init__(self, store: LeaseStore, table: str = TABLE, key: str = KEY) -> None:
        dialect = DIALECTS.get(type(store).__name__)
        if dialect is None or not isinstance(store, SqlStore):
            raise UsageError("the seed's table is in a database: name MySQL, MariaDB, PostgreSQL or SQLite as --store")
        if not key or len(key) > KEY_MAX:
            raise UsageError(f"a lock's key has 1 to {KEY_MAX} characters")
        self._store, self._dialect = store, dialect
        self._table, self._key = check_table(table), key

    def look(self) -> Old | None:
        """What stands there."""
        text = (
            "SELECT owner_id, CAST(expires_at AS CHAR(40)), "
            f"CASE WHEN expires_at < {self._dialect.now} THEN 1 ELSE 0 END "
            f"FROM {self._table} WHERE lock_key = :key"
        )
        found = self._run(text, {"key": self._key})
        return Old(str(found[0][0]), str(found[0][1]).strip(), bool(found[0][2])) if found else None

    def take(self, owner: str) -> bool:
        """By the old rules, and for good. True if it is ours now, which the owner proves: nobody else has that name."""
        (kind, *_), *_ = self._run(self._dialect.column_type, {"table": self._table}) or [("",)]
        latest = self._dialect.latest(str(kind).lower())
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
                f"WHERE lock_key = :key AND expires_at < {self._dialect.now}"
            )
            self._run(update, values)
        now = self.look()
        return now is not None and now.owner == owner

    def _run(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            return self._store._execute(spelled(text, self._dialect.style), values)
        except NoTable:
            raise Refused(f"there is no table {self._table} in this database") from None


def import_seed(
    store: LeaseStore,
    name: str,
    unique: str,
    wall_ms: int,
    wait_ms: int,
    table: str = TABLE,
    key: str = KEY,
) -> Row | Old:
    """The new row; or the old one, if it is held and must be waited for.

    `unique` is new at every call. `wait_ms`: the old lease, stretched by the clocks' error.
    """
    check_name(name)
    seed = SeedTable(store, table, key)
    (seen,) = store.look([Look(name)])
    if seen.row is not None:
        raise Refused(f"there is a lease {name!r} already; `primacy lease show {name}` shows it")
    old = seed.look()
    ours = old is not None and not old.expired and re.fullmatch(rf"{OWNER}-[0-9a-f]+", old.owner) is not None
    if not ours and not seed.take(f"{OWNER}-{unique}"):
        now = seed.look()
        assert now is not None
        return now
    token = min(wall_ms, TOKEN_MAX - 1)
    row = Row(f"{OWNER}#{unique}", token, 1, LEASE_MS, wait_ms, False)
    (answer,) = store.take([Take(name, 0, 0, seen.server, row)])
    if not answer.done or answer.row is None:
        raise Refused(f"the lease {name!r} was made by somebody else in this moment; `primacy lease show {name}`")
    return answer.row
