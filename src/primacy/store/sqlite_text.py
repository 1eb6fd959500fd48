"""Every SQL statement of SQLite, in one place, so that a test can read them all.

Conditions are not written in SQL here: under the file's write lock the rows are read, judged by `conditions.py` and
written, in one transaction. `written_at` is for people; no clock stands in any statement that decides.
"""

from __future__ import annotations

from primacy.store.port import HOLD_MS_MAX, HOLDER_MAX, MEMBERS_MAX, NAME_MAX, PROOF_MAX, check_table
from primacy.store.sql_text import NAMED, Texts

TIME = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
VERSION = "1 + abs(random() % 1000000000)"
"""Of a genesis row that is made, as in PostgreSQL."""


PROOF = f"proof TEXT NOT NULL DEFAULT '' CHECK (length(proof) <= {PROOF_MAX})"


def sqlite(table: str) -> Texts:
    """Whatever is written, it is whole rows in place of what stands there: a name each, then in the order of `Row`.

    All of a call in one statement: between two steps of one the driver gives the interpreter to another thread.
    """
    t = check_table(table)
    write = f"""INSERT OR REPLACE INTO {t} ({NAMED}, proof, written_at)
SELECT {", ".join(f"json_extract(value, '$[{place}]')" for place in range(11))}, {TIME} FROM json_each(:rows)"""
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
  written_at TEXT NOT NULL,
  {PROOF}
) WITHOUT ROWID""",
        genesis=f"""INSERT INTO {t} ({NAMED}, written_at)
VALUES (':genesis', '', 0, {VERSION}, 0, :wait_max, 1, '', '', '', {TIME}) ON CONFLICT (name) DO NOTHING""",
        wait_max="",
        look=f"SELECT {NAMED}, proof FROM {t} WHERE name IN (SELECT value FROM json_each(:names))",
        counted=f"SELECT count(*) FROM {t} WHERE name <> ':genesis'",
        take=write,
        renew=write,
        release=write,
        listings=f"SELECT {NAMED}, proof, written_at FROM {t} WHERE name <> ':genesis' ORDER BY name LIMIT :most",
    )


def remove(table: str) -> str:
    """A row that is pruned (L10)."""
    return f"DELETE FROM {check_table(table)} WHERE name = :name"


def migrate(table: str) -> tuple[str, ...]:
    """A table of version 0.1 gets the proof. What users of that version write from then on has none."""
    t = check_table(table)
    return (
        f"ALTER TABLE {t} ADD COLUMN {PROOF}",
        f"""CREATE TRIGGER IF NOT EXISTS {t}_unproved AFTER UPDATE ON {t}
WHEN new.proof = old.proof AND new.proof <> ''
BEGIN UPDATE {t} SET proof = '' WHERE name = new.name; END""",
    )
