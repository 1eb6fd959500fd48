"""Every scenario in tests/transcripts/cache/ gives the lines that stand there. `--rewrite-transcripts` writes them
anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cache_scenarios import play

SCENARIOS = sorted((Path(__file__).parent / "cache").glob("own_*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite_transcripts: bool) -> None:
    written = path.read_text(encoding="utf-8")
    assert written.startswith("# ")
    played = play(written)
    assert "VIOLATION" not in played
    if rewrite_transcripts:
        path.write_text(played, encoding="utf-8")
        return
    assert played.splitlines() == written.splitlines()


def test_every_rule_has_a_scenario() -> None:
    told = {path.stem.split("_")[1] for path in SCENARIOS}
    assert told == {f"C{number}" for number in range(1, 13)}
