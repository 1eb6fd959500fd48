"""The benchmark of the slots runs, and compares every answer. Speed itself is not judged here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench import slots

pytestmark = pytest.mark.beside(order=272)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("CONNECTIONS", 5),
        ("BATCHES", {1: 5, 16: 5}),
        ("LISTENERS", 20),
        ("BROADCASTS", 3),
        ("IDLE", 50),
    ):
        monkeypatch.setattr(slots, name, value)


def test_idle_connections_are_weighed(tmp_path: Path) -> None:
    (row,), raw = slots.run(("idle",), 1, tmp_path)
    assert row.part == "idle"
    assert raw["idle_kib"][0] < 1_000


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not here")
def test_requests_and_broadcasts_are_compared(tmp_path: Path) -> None:
    rows, _ = slots.run(("read", "write", "broadcast"), 1, tmp_path)
    assert [row.part for row in rows] == ["read", "read", "write", "write", "broadcast", "broadcast"]
    assert all(row.value > 0 for row in rows)


def test_a_wrong_call_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        slots.main(["--only", "nothing"])
    assert "there is no 'nothing'" in capsys.readouterr().err


def test_without_redis_the_rest_is_measured_unless_it_was_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` goes on to what it measures after this."""
    began: list[tuple[str, ...]] = []
    monkeypatch.setattr(slots, "run", lambda parts, *_: (began.append(parts) or [], {}))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert slots.main(["--json"]) == 0
    assert began == [("idle", "failover")]
    assert "skipped: read, write, broadcast: redis-server is not here: make peers\n" in capsys.readouterr().err
    assert slots.main(["--only", "read"]) == 4
    assert "cannot measure: read: redis-server" in capsys.readouterr().err
    assert len(began) == 1
