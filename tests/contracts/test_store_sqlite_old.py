"""SQLite files of version 0.1: they are migrated in place, and used by old and new users at once (real files)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from primacy.store.sqlite import SqliteStore
from tests.support.store_harness import Harness
from tests.support.store_world import LONG_MS, World

OLD_CREATE = """CREATE TABLE primacy_leases (
  name TEXT NOT NULL PRIMARY KEY CHECK (length(name) <= 120), holder TEXT NOT NULL CHECK (length(holder) <= 190),
  token INTEGER NOT NULL CHECK (token >= 0), seq INTEGER NOT NULL CHECK (seq >= 0),
  hold_ms INTEGER NOT NULL, wait_ms INTEGER NOT NULL, released INTEGER NOT NULL CHECK (released IN (0, 1)),
  members TEXT NOT NULL, successor TEXT NOT NULL, server TEXT NOT NULL, written_at TEXT NOT NULL) WITHOUT ROWID"""
OLD_NAMED = "name, holder, token, seq, hold_ms, wait_ms, released, members, successor, server"
OLD_FIRST = f"""INSERT INTO primacy_leases ({OLD_NAMED}, written_at)
SELECT :name, :holder, :token, :seq, 3000, 3061, 0, '', '', :me, '' ON CONFLICT (name) DO NOTHING
RETURNING {OLD_NAMED}"""
OLD_TAKE = f"""UPDATE primacy_leases SET holder = :holder, token = :token, seq = :seq, hold_ms = 3000, wait_ms = 3061,
  released = 0, members = '', successor = '', server = :me, written_at = ''
WHERE name = :name AND token = :seen_token AND seq = :seen_seq AND members = '' RETURNING {OLD_NAMED}"""
OLD_RENEW = f"""UPDATE primacy_leases SET seq = seq + 1, server = :me, written_at = ''
WHERE released = 0 AND name = :name AND holder = :holder AND token = :token AND seq = :seq RETURNING {OLD_NAMED}"""
OLD_RELEASE = f"""UPDATE primacy_leases SET released = 1, written_at = '', successor = ''
WHERE server = :me AND name = :name AND holder = :holder AND token = :token AND seq = :seq RETURNING {OLD_NAMED}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


class Old:
    """A user of version 0.1, by its statements."""

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file, isolation_level=None)
        found = file.stat()
        self.me = f"sqlite:{found.st_dev:x}:{found.st_ino:x}"

    def run(self, text: str, **values: object) -> list[tuple[object, ...]]:
        return self.connection.execute(text, {"me": self.me, "name": "job", **values}).fetchall()


def test_an_old_file_is_migrated_and_what_it_says_is_watched(file: Path) -> None:
    sqlite3.connect(file).execute(OLD_CREATE).connection.close()
    old = Old(file)
    assert old.run(OLD_FIRST, holder="o#1", token=50, seq=1)
    assert old.run(OLD_RELEASE, holder="o#1", token=50, seq=1)
    world = World(lambda _: SqliteStore(str(file)))
    a = world.node("a")
    assert world.until_leads(a) >= LONG_MS, "a row of before does not vouch"
    assert a.holds[-1][0] > 50
    a.step_down()
    a.is_cut = True
    assert world.until_leads(world.node("b")) <= 50, "from then on it does"
    world.close()


def test_old_and_new_users_of_one_file_at_once(file: Path) -> None:
    """Each respects the other's row; what an old one writes does not vouch."""
    sqlite3.connect(file).execute(OLD_CREATE).connection.close()
    old = Old(file)
    assert old.run(OLD_FIRST, holder="o#1", token=50, seq=1)
    world = World(lambda _: SqliteStore(str(file)))
    a = world.node("a")
    for seq in range(1, 30):
        world.run(500)
        assert old.run(OLD_RENEW, holder="o#1", token=50, seq=seq), "the new one keeps away, and disturbs nothing"
    assert not a.holds
    world.until_leads(a)
    token, seq = old.run("SELECT token, seq FROM primacy_leases WHERE name = 'job'")[0]
    world.run(1_000)
    assert not old.run(OLD_TAKE, holder="o#2", token=2**50, seq=9, seen_token=token, seen_seq=seq), "it was renewed"
    a.is_cut = True
    world.run(3_100)
    token, seq = old.run("SELECT token, seq FROM primacy_leases WHERE name = 'job'")[0]
    assert old.run(OLD_TAKE, holder="o#2", token=2**50, seq=9, seen_token=token, seen_seq=seq)
    found = Harness(SqliteStore(str(file))).look().row
    assert found is not None
    assert (found.token, found.vouches) == (2**50, False)
    assert old.run(OLD_RENEW, holder="o#2", token=2**50, seq=9)
    assert old.run(OLD_FIRST, name="other", holder="o#1", token=1, seq=1)
    after = Harness(SqliteStore(str(file))).look("other", count=True)
    assert after.genesis is not None
    assert after.genesis.names != after.genesis.count, "so nobody is fast until it is settled again"
    a.is_cut = False
    world.run(LONG_MS - 1_000)
    assert not a.leads
    world.until_leads(a)
    world.close()
