"""The comparisons of leases run, and have their shape. Speed is not judged here; docs/speed.md has figures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from bench import lease, lease_many, report
from bench.lease_many import Cost
from bench.lease_nodes import Trips
from bench.lease_peers import SessionLocks
from bench.trials import Took
from bench.watch import Doorbell, Watch

from primacy.settings.timing import PROFILES, for_lease
from tests.support import servers
from tests.support.store_harness import made_new

pytestmark = pytest.mark.moments(order=5)

PROFILE = "fast"
TIMING = for_lease(PROFILES[PROFILE])
CANARY_HEARTBEAT_MS = TIMING.heartbeat_ms
"""Parties that stand still for longer than their margin fail before they are made to."""


def test_a_holder_fails_in_every_way_and_is_whole_again(tmp_path: Path) -> None:
    said: list[str] = []
    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # of this try
    rounds = lease.Rounds(folder, ("sqlite",), PROFILE, said.append)
    rounds.run(("killed", "frozen", "released", "idle"), 1, 1.0)
    assert any(text.startswith("round 1 of 1") for text in said)
    (killed,), (frozen,) = rounds.took["killed sqlite"], rounds.took["frozen sqlite"]
    assert 0 < killed.notice_ms < min(killed.elected_ms, killed.command_ms)
    waited_ms = min(frozen.elected_ms, frozen.command_ms)
    assert waited_ms > TIMING.hold_ms - TIMING.term_at_ms, "what was left of the hold was waited out"
    (released_ms,) = rounds.released["sqlite"]
    assert released_ms > 0
    assert rounds.idle["sqlite"][0] > 0
    rows = lease.rows_of(rounds)
    assert {row.part for row in rows} == {f"{part}, sqlite" for part in ("killed", "frozen", "released", "idle")}
    assert set(lease.raw_of(rounds)["took"]) == {"killed sqlite", "frozen sqlite"}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_session_lock_is_free_when_its_holder_dies_and_never_when_it_is_frozen(kind: str, tmp_path: Path) -> None:
    if kind not in servers.servers_here():
        pytest.skip(servers.KINDS[kind].missing())
    watch, folder = Watch(), Path(tempfile.mkdtemp(dir=tmp_path))
    bell = Doorbell(watch, folder)
    locks = SessionLocks(watch, folder, kind, servers.empty(kind), bell.path)
    try:
        assert locks.killed_ms() > 0
        assert locks.frozen_ms(TIMING.hold_ms / 1_000) is None
    finally:
        locks.end()
        watch.close()


def test_many_leases_are_held_and_counted(tmp_path: Path) -> None:
    url = made_new(f"sqlite:///{tempfile.mkdtemp(dir=tmp_path)}/many.db")
    cost = lease_many.measured("store", url, 20, "lan", 2.0)  # which bears a machine that stands still for a second
    assert cost.renewals > 0 < cost.statements
    assert cost.cpu_ms > 0 == cost.server_ms


@pytest.mark.skipif(bool(lease_many.missing()), reason=lease_many.missing() or "-")
def test_many_locks_of_redis_are_a_request_each(tmp_path: Path) -> None:
    redis = lease_many.RedisServer(Path(tempfile.mkdtemp(dir=tmp_path)))
    try:
        cost = lease_many.measured("redis", str(redis.port), 20, PROFILE, 1.0, redis.process.pid)
    finally:
        redis.end()
    assert cost.renewals <= cost.statements
    assert cost.renewals > 0 < cost.server_ms


def rounds_of(tmp_path: Path, **more: object) -> lease.Rounds:
    """As if they had been run."""
    found = lease.Rounds(Path(tempfile.mkdtemp(dir=tmp_path)), ("postgresql",), PROFILE, lambda _: None)
    found.watch.close()
    for name, value in more.items():
        setattr(found, name, value)
    return found


def test_what_is_promised_is_judged(tmp_path: Path) -> None:
    class Nodes:
        timing = TIMING

    hold_ms = TIMING.hold_ms
    took = {"killed postgresql": [Took(command_ms=hold_ms * 0.19)], "frozen postgresql": [Took(command_ms=hold_ms)]}
    kept = rounds_of(
        tmp_path,
        nodes={"postgresql": Nodes},
        took=took,
        never={"postgresql": None},
        released={"postgresql": [4.0]},
        trips={"postgresql": Trips([0.5], [1.0], [0.1], [0.5])},
        idle={"postgresql": (2.5, None)},
        many={"postgresql": Cost(200, 50, 40, 1_800, 0), "redis": Cost(230, 70, 1_800, 1_800, 0)},
    )
    assert report.missed(lease.rows_of(kept)) == []
    assert "session lock never" in report.table(lease.rows_of(kept))
    kept.took["killed postgresql"] *= 2
    kept.took["killed postgresql"][0] = Took(command_ms=hold_ms * 0.4)
    kept.took["frozen postgresql"] = [Took(command_ms=hold_ms * 1.2)]
    kept.released["postgresql"] = [10.1]
    kept.idle["postgresql"] = (4.1, None)
    kept.many["postgresql"] = Cost(200, 50, 40, 1_800, 1)
    assert [sentence.partition(",")[0] for sentence in report.missed(lease.rows_of(kept))] == [
        "killed",
        "frozen",
        "released",
        "idle",
        "many",
    ]


def test_the_command_says_what_it_cannot_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--only", "x"], "there is no 'x'"),
        (["--stores", "y"], "no 'y'"),
        (["--rounds", "0"], "above 0"),
    ):
        with pytest.raises(SystemExit) as end:
            lease.main(words)
        assert end.value.code == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr(lease_many, "missing", lambda: "redis-server is not here: make peers")
    assert lease.main(["--only", "many", "--stores", "sqlite"]) == 4
    assert "make peers" in capsys.readouterr().err
    monkeypatch.setattr(lease.Rounds, "run", lambda *_: None)
    assert lease.main(["--only", "idle", "--stores", "sqlite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missed"] == []


def test_what_is_not_here_is_skipped_and_said_unless_it_was_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` goes on to what it measures after this."""
    began: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    monkeypatch.setattr(lease.Rounds, "run", lambda rounds, parts, *_: began.append((rounds.stores, parts)))
    for kind in ("postgresql", "mariadb", "etcd"):
        why = f"{kind} is not here" if kind == "mariadb" else ""
        monkeypatch.setattr(servers.KINDS[kind], "missing", lambda why=why: why)
    monkeypatch.setattr(lease_many, "missing", lambda: "redis-server is not here")
    assert lease.main(["--json"]) == 0
    assert began == [(("sqlite", "postgresql", "etcd"), ("killed", "frozen", "released", "idle"))]
    said = capsys.readouterr().err
    assert "skipped: mariadb: mariadb is not here\n" in said
    assert "skipped: many: redis-server is not here\n" in said
    assert lease.main(["--stores", "sqlite,mariadb", "--only", "idle"]) == 4
    assert "cannot measure: mariadb: mariadb is not here\n" in capsys.readouterr().err
    assert len(began) == 1, "what was named is measured, or nothing is"
