"""The releaser releases on order, its own lease only, and otherwise nothing (G5, L4)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.servers import servers_here
from tests.support.store_harness import LIMIT_MS, Harness, Place, place

pytestmark = pytest.mark.beside(order=370)

SHORT_MS = 100


@pytest.fixture(params=["sqlite", *servers_here()])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as found:
        yield found


class Releaser:
    def __init__(self, url: str, holder: str = "a#1", token: int = 10, limit_ms: int = LIMIT_MS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "primacy.store.releaser"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.say(
            {
                "url": url,
                "table": "primacy_leases",
                "limit_ms": limit_ms,
                "name": "job",
                "holder": holder,
                "token": token,
            }
        )
        assert self.hear() == "ready"

    def say(self, order: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


def released(harness: Harness) -> bool:
    row = harness.look().row
    assert row is not None
    return row.released


def test_G5_it_releases_on_order_with_the_seq_that_it_finds(here: Place) -> None:
    harness = here.harness()
    harness.take()
    releaser = Releaser(here.url)
    harness.renew()
    releaser.say({"release": True, "successor": "b"})
    assert releaser.hear() == "released"
    assert releaser.end() == 0
    assert released(harness)


def test_G5_without_an_order_it_releases_nothing(here: Place) -> None:
    harness = here.harness()
    harness.take()
    assert Releaser(here.url).end() == 0, "its input ended"
    torn = Releaser(here.url)
    assert torn.process.stdin is not None
    torn.process.stdin.write('{"release": true}')
    assert torn.end() == 0
    assert not released(harness)


def test_G5_a_lease_that_is_somebody_elses_stays(here: Place) -> None:
    harness = here.harness()
    harness.take()
    releaser = Releaser(here.url, token=9)
    releaser.say({"release": True})
    assert releaser.hear() == "refused the row is somebody else's"
    assert releaser.end() == 1
    assert not released(harness)


def test_G5_it_goes_on_while_the_store_is_late(tmp_path: Path) -> None:
    """Somebody writes into the file for longer than several answers may take."""
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take()
        releaser = Releaser(here.url, limit_ms=SHORT_MS)
        writer = sqlite3.connect(urlsplit(here.url).path, isolation_level=None)
        try:
            writer.execute("BEGIN EXCLUSIVE")
            releaser.say({"release": True})
            time.sleep(5 * SHORT_MS / 1_000)
            writer.execute("COMMIT")
        finally:
            writer.close()
        assert releaser.hear() == "released"
        assert released(harness)
        assert releaser.end() == 0


def test_G5_a_release_whose_answer_was_lost_is_none_twice(tmp_path: Path) -> None:
    with place("sqlite", tmp_path) as here:
        harness = here.harness()
        harness.take()
        first, second = Releaser(here.url), Releaser(here.url)
        for each in (first, second):
            each.say({"release": True})
            assert each.hear() == "released"
            assert each.end() == 0
