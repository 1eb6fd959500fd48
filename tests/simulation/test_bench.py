"""The benchmarks run, and what they count stays within the rules. Speed itself is not judged here."""

from __future__ import annotations

import json
import sys

import pytest
from bench import __main__ as entry
from bench import bare, manager, messages, simulator


@pytest.mark.parametrize("strategy", ["bully", "ring"])
def test_b9_messages_per_failure(strategy: str) -> None:
    for nodes in (3, 4, 7, 12):
        row = messages._row(strategy, nodes, 3)
        assert 0 < row.most <= row.bound, row


def test_messages_of_real_managers_are_counted() -> None:
    rows, raw = manager.run((3,), ("fast",), 1)
    assert [row.what for row in rows] == ["bully, 3 nodes, fast", "ring, 3 nodes, fast"]
    assert all(row.value > 0 for row in rows), raw
    assert all(found["took_ms"][0] > 0 for found in raw.values())


def test_a_wrong_call_of_the_manager_s_benchmark_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--profiles", "slow"], "there is no profile 'slow'"), (["--nodes", "1"], "between 2 and")):
        with pytest.raises(SystemExit):
            manager.main(words)
        assert said in capsys.readouterr().err


def test_the_bare_loops_do_what_they_are_asked() -> None:
    bare.heap(500)
    cluster = bare.Cluster(5, 250.0)
    cluster.run(5_000)
    assert cluster.leader.acks > 1_000
    assert cluster.now_ms > 60_000


def test_bounds_that_are_missed_are_said() -> None:
    slow = simulator.Speed(0.1, 0.05, 900.0, 1e5)
    row = messages.Count("ring", 3, 13, 13, 12, 600.0)
    assert len(entry._missed(slow, 2.0, [row])) == 3
    assert not entry._missed(slow._replace(ratio=0.2), 1.0, [row._replace(most=12)])


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command(form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(simulator, "speed", lambda *_: simulator.Speed(0.2, 0.1, 2000.0, 2e5))
    monkeypatch.setattr(simulator, "growth", lambda *_: 1.0)
    monkeypatch.setattr(messages, "table", lambda *_: [messages.Count("ring", 3, 6, 6, 12, 600.0)])
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", *(["--json"] if form == "json" else [])])
    assert entry.main() == 0
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out)["missed"] == []
    else:
        assert "ring" in out
