"""One demo of one scenario, in places of its own, and what must hold of it when it has ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support import leftovers as alone

HANGS_S = 300
"""Beside what it was told to last: far more than its start, its scenes and its end take."""
NO_FAILOVER = ("calm", "child")
AFTER = {
    "stop": "a stopped node",
    "kill": "a killed agent",
    "links": "a lost majority",
    "one-way": "links of one way",
    "minority": "a smaller side",
    "halves": "a split network",
    "freeze": "a frozen node",
    "power": "a lost machine",
}
"""What the summary calls the failover of a scenario."""


def play(
    place: Path, scenario: str, seconds: float, *more: str, traced: bool = False
) -> tuple[alone.Left, dict[str, Any]]:
    """What it left, and its summary. It serves its page as always; there is no terminal, so no browser is opened."""
    call = [sys.executable, "-m", "primacy.cli.main", "demo", "--scenario", scenario, "--seconds", str(seconds)]
    left = alone.run(place, [*call, *more, "--json"], traced=traced, within_s=seconds + HANGS_S)
    return left, json.loads(left.out) if left.out else {}


def check(left: alone.Left, result: dict[str, Any], scenario: str, seconds: float) -> None:
    assert left.code == 0, left
    assert left.processes == [], "processes live on"
    assert left.files == [], "files were left"
    assert left.elsewhere == [], "files were touched outside of its folder"
    assert left.err == ""
    assert result["overlaps"] == 0, result
    assert result["signatures"] > 0, result
    assert result["seconds"] >= seconds, "it ended too early"
    after = [each["after"] for each in result["failovers"]]
    if scenario in AFTER:
        assert after == [AFTER[scenario]], result
    elif scenario in NO_FAILOVER:
        assert after == [], result
    else:
        assert len(after) >= 2, result
