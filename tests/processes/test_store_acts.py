"""Many real processes want one lease while an operator does whatever can be done to its store (`store_acts.py`)."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.servers import KINDS, Etcd, MariaDb, Postgres, Redis, fresh, wait_for
from tests.support.store_acts import NOT_POSSIBLE, Acts, EtcdActs, MariaDbActs, PostgresActs, RedisActs, SqliteActs
from tests.support.store_race import Race

pytestmark = pytest.mark.beside(order=22)

SECONDS = float(os.environ.get("PRIMACY_ACTS_S", "15"))
TRIALS = int(os.environ.get("PRIMACY_ACTS_TRIALS", "1"))
WAIT_MS = 1_500
BETWEEN_S = (0.1, 2.0)
ACTS_LEAST = 3
SECONDS_MOST = 300
"""On a machine where one restart of a server takes many seconds: until so many acts were done."""


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "etcd", "redis"])
def test_L5_whatever_is_done_to_a_store_no_two_hold_it(kind: str, trial: int, tmp_path: Path) -> None:
    """Drawn anew each time: the seed of a failure is said."""
    seed = random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    if kind != "sqlite" and (reason := KINDS[kind].missing()):
        pytest.skip(reason)
    server = fresh(kind) if kind != "sqlite" else None
    url = server.url() if server is not None else f"sqlite:///{tmp_path}/leases.db"
    acts: Acts
    if isinstance(server, Postgres):
        acts = PostgresActs(server, rng)
    elif isinstance(server, MariaDb):
        acts = MariaDbActs(server, rng)
    elif isinstance(server, Etcd):
        acts = EtcdActs(server, rng)
    elif isinstance(server, Redis):
        acts = RedisActs(server, rng)
    else:
        acts = SqliteActs(tmp_path / "leases.db", rng)
    race = Race(url, tmp_path / "race", count=rng.choice((3, 5, 8)), seed=seed, wait_ms=WAIT_MS)
    impossible = 0
    try:
        wait_for(lambda: race.holds_since(0) > 0, "somebody to hold it")
        began_s = time.monotonic()
        while (took_s := time.monotonic() - began_s) < SECONDS or (
            len(acts.done) < ACTS_LEAST and took_s < SECONDS_MOST
        ):
            time.sleep(rng.uniform(*BETWEEN_S))
            try:
                acts.one()
            except NOT_POSSIBLE as error:
                impossible += 1
                if server is not None and server.process is None:
                    raise AssertionError(f"the server did not come back: {acts.done}") from error
    finally:
        verdict = race.stop()
        if server is not None:
            server.remove()
    print(f"{kind}, seed {seed}: {verdict}; {len(acts.done)} acts, {impossible} not possible")
    told = f"{kind}, seed {seed}: {', '.join(acts.done)}"
    assert not verdict.overlaps, f"{told}; {verdict.overlaps[:2]}"
    verdict.one_at_a_time()
    assert not verdict.broken, f"{told}; {verdict.broken[:2]}"
    assert len(acts.done) >= ACTS_LEAST, told
