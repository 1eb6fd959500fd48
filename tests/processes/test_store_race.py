"""Eight processes want one lease, on every store: no two at a time, and tokens that only grow.

The same judge sees the SQL coordinator's own protocol as a control, and must find overlaps there, or it would find none
anywhere.
`make proof` runs the races for longer (`PRIMACY_RACE_S`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.store import StoreAnswer
from primacy.store.memory import MemoryStore, MemoryTable
from tests.support.canary import Canary
from tests.support.servers import kinds, server, servers_here, wait_for
from tests.support.store_cold import Crew
from tests.support.store_harness import Harness, place, row
from tests.support.store_race import PROFILE, Race, judge, now_ns

pytestmark = pytest.mark.alone(order=200)

SECONDS = float(os.environ.get("PRIMACY_RACE_S", "6"))
ROUNDS = int(os.environ.get("PRIMACY_COLD_ROUNDS", "20"))
PLAYERS = 8
SEED = now_ns() % 10_000 if "PRIMACY_RACE_S" in os.environ else 1
"""For what the players do by chance; `make proof` draws it."""
CONTROL_S = 90
"""For its protocol to put two to work: it needs about three seconds, and may be lucky for a while."""


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "memory"])
def test_no_two_hold_it_at_a_time(kind: str, tmp_path: Path) -> None:
    """Memory is left out: its rows do not leave a process."""
    with place(kind, tmp_path) as here, Canary(PROFILE.heartbeat_ms) as canary:
        here.harness()  # a new table: its names are free at once
        verdict = Race(here.url, tmp_path / "race", PLAYERS, SECONDS, SEED).wait()
    print(f"{kind}: {verdict}")
    verdict.one_at_a_time()
    assert verdict.broken == []
    canary.judge(len(verdict.holds) >= SECONDS / 2 > 0, f"somebody always gets it: {verdict}")
    canary.judge(verdict.late <= len(verdict.holds) // 10, f"those that were not frozen stop in time: {verdict}")


@pytest.mark.skipif(
    "mariadb" not in servers_here(), reason="MariaDB is not installed here, and the SQL coordinator is written for it"
)
def test_the_control_overlaps(tmp_path: Path) -> None:
    import json

    maria = server("mariadb")
    maria.empty()
    maria.admin(  # type: ignore[attr-defined]
        "CREATE TABLE locks (lock_key VARCHAR(255) PRIMARY KEY, owner_id VARCHAR(255) NOT NULL, "
        "expires_at TIMESTAMP NOT NULL)",
        database="app",
    )
    where = {"host": "127.0.0.1", "port": maria.port, "user": "app", "password": "secret word", "database": "app"}
    race = Race(json.dumps(where), tmp_path / "race", PLAYERS, mode="seed")
    try:
        wait_for(lambda: bool(judge(race.folder).overlaps), "two at a time", within_s=CONTROL_S)
    finally:
        race.process.terminate()
        race.process.wait()
    verdict = judge(race.folder)
    print(f"control: {verdict}")
    assert verdict.broken == []


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    found = Crew(PLAYERS)
    yield found
    found.end()


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "memory"])
def test_a_cold_start_has_one_winner(kind: str, crew: Crew, tmp_path: Path) -> None:
    """No row yet, eight processes at once, many rounds."""
    with place(kind, tmp_path) as here:
        here.harness()
        crew.open(here.url)
        for turn in range(ROUNDS):
            one_winner(crew.take(f"cold{turn}"))
    print(f"cold start on {kind}: {ROUNDS} rounds of {PLAYERS} processes, one winner each")


def test_a_cold_start_in_memory_has_one_winner() -> None:
    """Its users are threads."""
    table = MemoryTable()
    harnesses = [Harness(MemoryStore(table)) for _ in range(PLAYERS)]
    for turn in range(ROUNDS):
        one_winner(_all_at_once(harnesses, f"cold{turn}"))


def one_winner(answers: list[StoreAnswer]) -> None:
    assert [answer.ok for answer in answers] == [True] * PLAYERS, answers
    assert sum(answer.done for answer in answers) == 1
    winner = next(answer.row for answer in answers if answer.done)
    assert all(answer.row == winner for answer in answers), "and everybody was told who"


def _all_at_once(harnesses: list[Harness], name: str) -> list[StoreAnswer]:
    barrier = threading.Barrier(len(harnesses))
    answers: list[StoreAnswer] = []

    def take(number: int, harness: Harness) -> None:
        seen = harness.look(name, count=True)
        barrier.wait(60)
        answers.append(harness.take(name, new=row(f"n{number}#1", 100 + number), seen=seen))

    threads = [threading.Thread(target=take, args=pair) for pair in enumerate(harnesses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
