"""The note beside a SQLite file, where many leases are renewed at once (L5, L6)."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from primacy.election.store import Look, Prune, Renew, Take
from primacy.store import perform
from primacy.store.sqlite import SqliteStore
from tests.support.store_harness import Harness, row


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


def test_L6_many_renewals_are_noted_together_and_each_for_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    names = [f"job-{number:02}" for number in range(40)]
    seen = Harness(store).look(count=True)
    assert all(a.done for a in perform(store, [Take(name, None, seen.server, row(), seen.genesis) for name in names]))
    chosen = [name for name in names if name not in ("job-07", "job-20")]
    writes: list[int] = []

    def counted(fd: int, data: bytes, at: int) -> int:
        writes.append(len(data))
        return real(fd, data, at)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", counted)
    renewed = perform(store, [Renew(name, "a#1", 10, 1, seen.server) for name in chosen])
    monkeypatch.undo()
    assert all(answer.done for answer in renewed)
    assert len(writes) == 3, "what lies side by side in the note is written at once"
    other = perform(SqliteStore(str(file)), [Look(name) for name in names])
    assert all(answer.row is not None and answer.row.vouches for answer in other)
    note = Path(f"{file}-primacy")
    torn = bytearray(note.read_bytes())
    torn[torn.index(b"job-03") + 125] ^= 1
    note.write_bytes(torn)
    again = perform(store, [Renew(name, "a#1", 10, 2, seen.server) for name in chosen])
    assert [name for name, answer in zip(chosen, again, strict=True) if not answer.done] == ["job-03"]


def test_L5_many_writes_that_fail_leave_the_note_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(str(file))
    store.make_table(new=True)
    seen = Harness(store).look(count=True)
    names = [f"job-{number}" for number in range(9)]
    perform(store, [Take(name, None, seen.server, row(), seen.genesis) for name in names])
    before = Path(f"{file}-primacy").read_bytes()
    monkeypatch.setattr(store, "texts", store.texts._replace(take="INSERT INTO nowhere VALUES (1)"))
    assert not any(answer.ok for answer in perform(store, [Renew(name, "a#1", 10, 1, seen.server) for name in names]))
    monkeypatch.undo()
    assert Path(f"{file}-primacy").read_bytes() == before
    assert all(answer.done for answer in perform(store, [Renew(name, "a#1", 10, 1, seen.server) for name in names]))


def test_L5_each_table_of_a_file_has_its_own_slots(file: Path) -> None:
    """They share the note: what is written in one says nothing of the other. SQLite knows no case in their names."""
    stores = [SqliteStore(str(file), table=table) for table in ("primacy_leases", "one", "two")]
    for store in stores:
        store.make_table(new=True)
    tables = [Harness(store) for store in stores]
    for token, table in enumerate(tables, 10):
        assert table.take(new=row(token=token)).done, "the table was said to be new"
    for seq in (1, 2):
        assert all(table.renew(token=token, seq=seq).done for token, table in enumerate(tables, 10))
    for token, table in enumerate(tables, 10):
        seen = table.look(count=True)
        assert seen.row is not None
        assert seen.genesis is not None
        assert (seen.row.token, seen.row.vouches) == (token, True)
        assert seen.genesis.is_settled(seen.server)
    in_capitals = Harness(SqliteStore(str(file), table="ONE")).look()
    assert in_capitals == tables[1].look()._replace(link=in_capitals.link)
    assert tables[1].release(token=11, seq=3).done
    gone = tables[1].look(count=True)
    assert gone.row is not None
    assert gone.genesis is not None
    assert tables[1].ask(Prune("job", gone.row, gone.server, gone.genesis)).done
    assert tables[0].renew(token=10, seq=3).done
    assert tables[2].renew(token=12, seq=3).done
    with sqlite3.connect(file) as hand:
        hand.execute("INSERT INTO one SELECT * FROM two WHERE name = 'job'")
    hand.close()
    copied = tables[1].look()
    assert copied.row is not None
    assert (copied.row.token, copied.row.vouches) == (12, False), "a row of another table"
    data = Path(f"{file}-primacy").read_bytes()
    assert (data.count(b"job\0"), data.count(b":genesis\0")) == (1, 1), "the usual table's, as ever"
