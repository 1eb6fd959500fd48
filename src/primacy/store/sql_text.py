"""Every SQL statement of the stores, in one place, so that a test can read them all (`tests/test_store_text.py`).

Parameters are written `:name`; each driver gets its own spelling. All conditions compare what the asker saw (token,
seq, holder, server) with what stands there; the database's clock stands in none (L1). `written_at` is for people.
`IDENTITY` is the one expression in which a clock is named: MariaDB's start time is the difference of two readings that
are taken at the same moment, hence a constant.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from primacy.store.port import HOLD_MS_MAX, HOLDER_MAX, MEMBERS_MAX, NAME_MAX, check_table

COLUMNS = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server")
"""In the order of `Row`."""
NAMED = ", ".join(("name", *COLUMNS))
OF_L = ", ".join(f"l.{column}" for column in ("name", *COLUMNS))


class Texts(NamedTuple):
    """The statements of one dialect, for one table."""

    create: str
    look: str
    take: str
    """If the row is as it was seen."""
    first: str
    """If there is no row."""
    renew: str
    release: str
    sheets: str
    rights: tuple[str, ...]
    """What the database's user needs, for `lease schema`."""


def spelled(text: str, style: str) -> str:
    """`:name` in the driver's own style, such as `%({})s`."""
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: style.format(found.group(1)), text)


# --- SQLite -----------------------------------------------------------------------------------------------------------

SQLITE_TIME = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
SQLITE_BATCH = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), \
json_extract(value, '$[3]')"


def sqlite(table: str) -> Texts:
    """`:me` is the identity of the file, which SQL cannot know; it is compared all the same."""
    t = check_table(table)
    return Texts(
        create=f"""CREATE TABLE IF NOT EXISTS {t} (
  name TEXT NOT NULL PRIMARY KEY CHECK (length(name) <= {NAME_MAX}),
  holder TEXT NOT NULL CHECK (length(holder) <= {HOLDER_MAX}),
  token INTEGER NOT NULL CHECK (token >= 0),
  seq INTEGER NOT NULL CHECK (seq >= 0),
  hold_ms INTEGER NOT NULL CHECK (hold_ms BETWEEN 0 AND {HOLD_MS_MAX}),
  wait_ms INTEGER NOT NULL CHECK (wait_ms BETWEEN 0 AND {2 * HOLD_MS_MAX}),
  released INTEGER NOT NULL CHECK (released IN (0, 1)),
  members TEXT NOT NULL CHECK (length(members) <= {MEMBERS_MAX}),
  successor TEXT NOT NULL CHECK (length(successor) <= {HOLDER_MAX}),
  server TEXT NOT NULL CHECK (length(server) <= {HOLDER_MAX}),
  written_at TEXT NOT NULL
) WITHOUT ROWID""",
        look=f"SELECT {NAMED} FROM {t} WHERE name IN (SELECT value FROM json_each(:names))",
        take=f"""UPDATE {t} SET holder = :holder, token = :token, seq = :seq, hold_ms = :hold_ms, wait_ms = :wait_ms,
  released = 0, members = :members, successor = '', server = :me, written_at = {SQLITE_TIME}
WHERE name = :name AND token = :seen_token AND seq = :seen_seq AND members = :seen_members AND :me = :server
RETURNING {NAMED}""",
        first=f"""INSERT INTO {t} ({NAMED}, written_at)
SELECT :name, :holder, :token, :seq, :hold_ms, :wait_ms, 0, :members, '', :me, {SQLITE_TIME}
WHERE :me = :server
ON CONFLICT (name) DO NOTHING
RETURNING {NAMED}""",
        renew=f"""UPDATE {t} SET seq = seq + 1, server = :me, written_at = {SQLITE_TIME}
WHERE released = 0 AND (name, holder, token, seq) IN ({SQLITE_BATCH} FROM json_each(:batch)
  WHERE json_extract(value, '$[4]') = :me)
RETURNING {NAMED}""",
        release=f"""UPDATE {t} SET released = 1, written_at = {SQLITE_TIME},
  successor = (SELECT json_extract(value, '$[4]') FROM json_each(:batch) WHERE json_extract(value, '$[0]') = name)
WHERE server = :me AND (name, holder, token, seq) IN ({SQLITE_BATCH} FROM json_each(:batch))
RETURNING {NAMED}""",
        sheets=f"SELECT {NAMED}, written_at FROM {t} ORDER BY name LIMIT :most",
        rights=(),
    )
