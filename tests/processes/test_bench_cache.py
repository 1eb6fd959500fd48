"""The benchmark of the cache runs, and looks at every answer. Speed itself is not judged here."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import cache, cache_cold, cache_hits, cache_users


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (cache_hits, "REQUESTS", 200),
        (cache_hits, "WARM", 100),
        (cache_users, "GETS", 20),
        (cache_users, "LOCAL_HITS", 200),
        (cache_cold, "COLD_KEYS", 5),
        (cache_cold, "CLIENTS", 4),
        (cache_cold, "CROWD_KEYS", 5),
        (cache_cold, "CROWD_PEERS", 3),
        (cache_cold, "TAKES_S", 0.1),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.later
def test_hits_are_compared_with_c_and_with_zmq_asyncio(tmp_path: Path) -> None:
    if cache_hits.compiled(tmp_path) is None:
        pytest.skip("a C compiler or libzmq's header is not here")
    rows, raw = cache.run(cache.IN_C, 1, tmp_path)
    assert [row.part for row in rows] == list(cache.IN_C)
    assert all(row.value > 0 for row in rows)
    assert set(raw) == {
        f"{part}{each}" for part in cache.IN_C for each in ("_us", "_beside_us", "_per_s", "_beside_per_s")
    }


def test_the_generator_counts_answers_that_are_no_value(tmp_path: Path) -> None:
    """Otherwise a server that refuses everything would be the fastest."""
    program = cache_hits.compiled(tmp_path)
    if program is None:
        pytest.skip("a C compiler or libzmq's header is not here")
    server = cache_hits.peer("none")
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cache_hits, "KEY", b"nobody has this")
            with pytest.raises(AssertionError, match="10 of them are no value"):
                cache_hits.asked(program, server, "none", tmp_path, 10)
    finally:
        server.end()


@pytest.mark.later
def test_callers_cold_keys_and_a_crowd_are_measured(tmp_path: Path) -> None:
    said: list[str] = []
    rows, raw = cache_users.compared(1, tmp_path, said.append)
    there = [name for name in cache_users.SERVERS if not cache_users.missing(name)]
    assert len(rows) == 3 * len(there)
    assert [text.split(": ")[1] for text in said] == [name for name in cache_users.SERVERS if name not in there]
    rows, raw = cache.run(("cold", "crowd"), 1, tmp_path)
    assert [row.part for row in rows] == ["cold"] * 3 + ["crowd"] * 2
    assert len(raw["cold_ms"]) == len(raw["cold_ping_ms"]) == 5
    assert raw["crowd_fetched"][0] >= 5
    assert raw["crowd_s"][0] >= 0.1


def test_what_is_not_here_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache_hits.shutil, "which", lambda _: None)  # type: ignore[attr-defined]
    assert cache.run(("hits", "curve"), 1, tmp_path) == ([], {})
    assert capsys.readouterr().err.count("skipped: ") == 2
    assert "redis-server is not here" in cache_users.missing("redis")


def test_a_wrong_call_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cache.main(["--only", "nothing"])
    assert "there is no 'nothing'" in capsys.readouterr().err
