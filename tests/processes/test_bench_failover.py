"""The comparisons with the peers run, and have their shape. Speed is not judged here; docs/speed.md has figures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from bench import busy, failover, idle, peers, report
from bench.nodes import Nodes
from bench.watch import Doorbell, Line, Watch

from primacy.settings.timing import PROFILES

pytestmark = pytest.mark.moments(order=145)

needs_peers = pytest.mark.skipif(bool(peers.missing()), reason=peers.missing() or "-")
CANNOT_IDLE = peers.missing() or idle.cannot()
MS = 1_000_000
CANARY_HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
"""Parties that stand still for longer than their margin fail before they are made to."""


@needs_peers
def test_every_party_fails_and_is_whole_again(tmp_path: Path) -> None:
    said: list[str] = []
    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # of this try
    rounds = failover.Rounds(folder, ("killed", "handover"), said.append, ("fast",))
    rounds.run(1)
    assert any(text.startswith("round 1 of 1") for text in said)
    rows = failover.rows_of(rounds)
    assert {row.part for row in rows} == {"killed, fast", "handover, fast"}
    assert all(row.value > 0 for row in rows)
    took = rounds.took["killed fast"][0]
    assert 0 < took.notice_ms < min(took.elected_ms, took.command_ms)
    assert rounds.took["killed etcd"][0].command_ms > 500  # its lease of a second is waited for
    assert 0 < rounds.took["handover fast"][0].gap_ms < rounds.took["handover fast"][0].command_ms
    assert all(part.split()[0] in report.table(rows) for part in ("killed", "handover"))


@pytest.mark.skipif(bool(CANNOT_IDLE), reason=CANNOT_IDLE or "-")
def test_idleness_is_measured_in_rooms_of_their_own() -> None:
    seen = idle.measure(0.5, 1)
    assert 10 < seen.ours.sent_packets < 100
    assert seen.ours.sent_bytes > 50 * seen.ours.sent_packets
    assert seen.etcds.cpu_ms > 0 < seen.ours.cpu_ms
    assert 5 < seen.guard_mib < seen.agent_mib
    assert [row.what for row in failover.idle_rows(seen)][:2] == ["processor", "bytes sent"]


def test_a_failover_is_needless_unless_the_canary_was_late_as_well(tmp_path: Path) -> None:
    watch = Watch()
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    nodes = Nodes(watch, Doorbell(watch, folder), folder, "lan")
    heartbeat_ms = PROFILES["lan"].heartbeat_ms
    watch.lines += [
        Line(1_000 * MS, "canary", f"late {heartbeat_ms}"),
        Line(2_000 * MS, "primacy-lan-a", "a leads (term 2)"),
        Line(20_000 * MS, "canary", f"late {heartbeat_ms - 1}"),
        Line(21_000 * MS, "primacy-lan-b", "b leads (term 3)"),
    ]
    seen = busy._judged(nodes, watch, 0, 30.0, 2.0)
    assert (seen.failovers, seen.needless, seen.canary_ms) == (2, 1, heartbeat_ms)
    assert report.missed(failover.busy_rows(seen))
    watch.close()


def test_only_promises_that_fail_make_the_run_fail() -> None:
    kept = report.Row("idle", "processor", "1", "4", 0.25, 0.35)
    lost, news = kept._replace(value=0.5), kept._replace(value=0.5, promise=False)
    assert report.missed([kept, news]) == []
    assert report.missed([lost]) == ["idle: processor: 0.5, and at most 0.35 was promised"]
    text = report.table([kept, lost, news])
    assert [line.split()[-1] for line in text.splitlines()] == ["kept", "yes", "NO", "(no)"]
    assert json.loads(report.document([lost], {}, rounds=1))["rows"][0]["kept"] is False


def test_the_command_says_what_it_cannot_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        failover.main(["--only", "nothing"])
    assert end.value.code == 2
    assert "the parts are killed" in capsys.readouterr().err
    monkeypatch.setattr(peers, "missing", lambda: "etcd is not here: make peers")
    assert failover.main(["--only", "killed"]) == 4
    assert "make peers" in capsys.readouterr().err
    seen = busy.Busy(1.0, 0, 0, 3, 2.0)
    monkeypatch.setattr(busy, "measure", lambda *_: seen)
    assert failover.main(["--only", "busy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missed"] == []


def test_without_the_peers_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` goes on to what it measures after this."""
    began: list[tuple[str, ...]] = []
    monkeypatch.setattr(failover, "compare", lambda parts, *_: (began.append(parts) or [], {}))
    monkeypatch.setattr(peers, "missing", lambda: "etcd is not here: make peers")
    assert failover.main(["--json"]) == 0
    assert began == [("silent", "busy")]
    assert "skipped: killed, handover, idle: etcd is not here: make peers\n" in capsys.readouterr().err
