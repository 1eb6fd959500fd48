"""SQLite files that are put back, replaced and damaged while leases are held in them (L3, L4, L5; real files)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from primacy.election.store import GENESIS
from primacy.store.note import SHORT, SLOT, SUFFIX
from primacy.store.sqlite import SqliteStore
from tests.support.store_harness import Harness
from tests.support.store_world import LONG_MS, World

LIMIT_MS = 5_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


@pytest.fixture
def world(file: Path) -> Iterator[World]:
    """Nodes on one file that an operator has called new."""
    SqliteStore(str(file)).make_table(new=True)
    found = World(lambda _: SqliteStore(str(file), limit_ms=LIMIT_MS))
    yield found
    found.close()


def copied(file: Path) -> Path:
    """A backup of the file, all of it."""
    backup = file.with_suffix(".backup")
    with sqlite3.connect(file) as source, sqlite3.connect(backup) as target:
        source.backup(target)
    source.close()
    target.close()
    return backup


def put_back_by_copy(file: Path, backup: Path) -> None:
    """As `cp BACKUP FILE` does it: the same inode, other content; nothing of the write-ahead log is left."""
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    inode = file.stat().st_ino
    shutil.copyfile(backup, file)
    assert file.stat().st_ino == inode, "put back in place"


def put_back_by_sqlite(file: Path, backup: Path) -> None:
    """As `.restore` and the backup interface do it: a transaction that overwrites all pages."""
    inode = file.stat().st_ino
    source, target = sqlite3.connect(backup), sqlite3.connect(file)
    source.backup(target)
    source.close()
    target.close()
    assert file.stat().st_ino == inode, "put back in place"


def replaced(file: Path, backup: Path) -> None:
    """Another file under this name."""
    for rest in ("-wal", "-shm"):
        Path(f"{file}{rest}").unlink(missing_ok=True)
    other = file.with_suffix(".new")
    shutil.copyfile(backup, other)
    os.replace(other, file)


def all_gone_and_copied(file: Path, backup: Path) -> None:
    """Everything of it removed, the note with it; and the backup under its name, perhaps with the same inode."""
    for rest in ("", "-wal", "-shm", SUFFIX):
        Path(f"{file}{rest}").unlink(missing_ok=True)
    shutil.copyfile(backup, file)


WAYS = (put_back_by_copy, put_back_by_sqlite, replaced, all_gone_and_copied)
Way = Callable[[Path, Path], None]


@pytest.mark.parametrize("way", WAYS)
def test_L4_a_release_from_an_older_file_is_not_believed(world: World, file: Path, way: Way) -> None:
    """The backup says "released"; meanwhile another node holds, and is proved to the end of its hold."""
    a = world.node("a")
    world.until_leads(a)
    a.step_down()
    a.is_cut = True
    backup = copied(file)
    b = world.node("b")
    world.until_leads(b)
    world.run(1_000)
    way(file, backup)
    b.is_cut = True  # its machine stands still in this moment; its work lives to the end of its hold
    c = world.node("c")
    took_ms = world.until_leads(c)
    assert world.overlaps() == []
    assert took_ms >= LONG_MS


@pytest.mark.parametrize(
    "change", ["released = 1", "seq = seq - 1", "token = token - 1", "wait_ms = 1", "holder = 'c#1'"]
)
def test_L5_a_row_that_was_changed_by_hand_does_not_vouch(world: World, file: Path, change: str) -> None:
    """Above all one that somebody marked as released: its holder is at work, to the end of its hold."""
    a = world.node("a")
    world.until_leads(a)
    world.run(1_000)
    a.is_cut = True
    with closing(sqlite3.connect(file, isolation_level=None)) as hand:
        assert hand.execute(f"UPDATE primacy_leases SET {change} WHERE name = 'job'").rowcount == 1
    b = world.node("b")
    took_ms = world.until_leads(b)
    assert world.overlaps() == []
    assert took_ms >= LONG_MS


def test_L5_a_note_of_an_earlier_version_vouches_by_the_proof_alone(file: Path) -> None:
    """Old and new users of one file: a row that the old one wrote is as good as it was."""
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    assert harness.take().done
    note = Path(f"{file}{SUFFIX}")
    data = bytearray(note.read_bytes())
    at = data.index(b"job\0")
    data[at + SHORT + 8 : at + SLOT] = bytes(SLOT - SHORT - 8)
    with note.open("r+b") as raw:
        raw.write(data)
    seen = harness.look()
    assert seen.row is not None
    assert seen.row.vouches
    assert harness.renew().done
    assert harness.look().row.vouches  # type: ignore[union-attr]


@pytest.mark.parametrize("way", WAYS)
def test_L3_an_observation_does_not_survive_an_older_file(world: World, file: Path, way: Way) -> None:
    """A watcher is cut off; another takes; the file goes back to what the watcher saw, just before its wait ends."""
    a = world.node("a")
    world.until_leads(a)
    a.is_cut = True
    watcher = world.node("w")
    b = world.node("b")
    world.run(2_600)
    watcher.is_cut = True
    backup = copied(file)
    world.until_leads(b)
    world.run(500)
    way(file, backup)
    b.is_cut, watcher.is_cut = True, False
    world.until_leads(watcher)
    assert world.overlaps() == []


def test_L3_a_renewal_that_is_lost_is_missed(world: World, file: Path) -> None:
    """The token of the older file is the same, only a renewal is gone; a take in the older file would match."""
    a = world.node("a")
    world.until_leads(a)
    watcher = world.node("w")
    world.run(300)
    watcher.is_cut = True
    backup = copied(file)
    world.run(2_600)
    put_back_by_sqlite(file, backup)
    a.is_cut, watcher.is_cut = True, False
    world.until_leads(watcher)
    assert world.overlaps() == []


def test_L3_the_same_older_file_twice(world: World, file: Path) -> None:
    """A row that does not vouch is watched; taken by another; and put back again as the watcher saw it."""
    a = world.node("a")
    world.until_leads(a)
    a.step_down()
    a.is_cut = True
    backup = copied(file)
    world.until_leads(world.node("b"))
    put_back_by_sqlite(file, backup)
    world.nodes[-1].is_cut = True
    watcher, c = world.node("w"), world.node("c")
    world.run(LONG_MS - 300)
    watcher.is_cut = True
    world.until_leads(c)
    put_back_by_sqlite(file, backup)
    c.is_cut, watcher.is_cut = True, False
    world.until_leads(watcher)
    assert world.overlaps() == []


def test_L2_a_live_holder_stops_when_its_row_is_of_an_older_file(world: World, file: Path) -> None:
    a = world.node("a")
    world.until_leads(a)
    backup = copied(file)
    world.run(3_000)
    put_back_by_sqlite(file, backup)
    world.run(2_000)
    assert not a.leads, "its row does not vouch, so it belongs to nobody"
    world.until_leads(a)
    assert len(a.holds) == 2


@pytest.mark.parametrize("way", [put_back_by_sqlite, put_back_by_copy])
def test_L9_a_name_is_not_fresh_in_a_file_of_before_it(world: World, file: Path, way: Way) -> None:
    backup = copied(file)
    a = world.node("a")
    world.until_leads(a)
    way(file, backup)
    a.is_cut = True
    b = world.node("b")
    assert world.until_leads(b) >= LONG_MS
    assert world.overlaps() == []


def test_L9_fresh_names_are_free_at_once_and_other_files_are_not(world: World, file: Path) -> None:
    assert world.until_leads(world.node("a")) <= 50
    assert world.until_leads(world.node("a", "other")) <= 50
    other = World(lambda _: SqliteStore(str(file.with_suffix(".other"))))
    assert other.until_leads(other.node("a")) >= LONG_MS, "nobody has said that this one is new"
    assert other.until_leads(other.node("a", "other")) <= 50, "paid once"
    other.close()


def test_L9_everything_removed_while_somebody_holds(world: World, file: Path) -> None:
    a = world.node("a")
    world.until_leads(a)
    for rest in ("", "-wal", "-shm", SUFFIX):
        Path(f"{file}{rest}").unlink(missing_ok=True)
    a.is_cut = True
    world.until_leads(world.node("b"))
    assert world.overlaps() == []


# --- what cannot pass -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["no folder", "a folder", "no database", "other table", "read-only"])
def test_what_never_passes_by_itself_is_final(tmp_path: Path, case: str) -> None:
    file = tmp_path / "x.db"
    match case:
        case "no folder":
            file = tmp_path / "none" / "x.db"
            told = f"there is no folder {tmp_path / 'none'}: make it"
        case "a folder":
            file.mkdir()
            told = f"{file} is a folder: name a file in it"
        case "no database":
            file.write_text("not a database, but long enough to be one" * 100)
            told = f"{file} is not a SQLite database: name another file"
        case "other table":
            with sqlite3.connect(file) as connection:
                connection.execute("CREATE TABLE primacy_leases (name TEXT, colour TEXT)")
            connection.close()
            told = "this table is not one of primacy's; use another table's name"
        case "read-only":
            if os.geteuid() == 0:
                pytest.skip("root may write everything; test_two_users shows it")
            SqliteStore(str(file)).make_table(new=True)
            file.chmod(0o444)
            told = "is read-only for this user"
    answer = Harness(SqliteStore(str(file))).take() if case == "read-only" else Harness(SqliteStore(str(file))).look()
    assert (answer.ok, answer.final) == (False, True), answer
    assert told in answer.reason


def test_the_genesis_row_is_made_if_it_is_missing(file: Path) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    harness = Harness(store)
    harness.take()
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM primacy_leases WHERE name = ?", (GENESIS,))
    connection.close()
    found = harness.look(count=True)
    assert found.genesis is not None
    assert (found.genesis.vouches, found.genesis.settled) == (False, "")
