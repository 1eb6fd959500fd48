"""The note beside a SQLite file, where many leases are renewed at once (L5, L6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primacy.election.store import Look, Renew, Take
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
