"""A table that is emptied by hand under a live holder, while somebody who waits for it to be settled sees nothing (L9).

What stands there afterwards must not look like what was seen before, or the wait of before would count for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from primacy.election.effects import Start
from primacy.election.inputs import Started
from primacy.election.lease.state import TICK_MS
from primacy.election.store import WAIT_MAX_MS, Settle, StoreAnswer, StoreRequest
from primacy.store.etcd import EtcdStore
from tests.support.lease_harness import WALL
from tests.support.lease_harness import Harness as Node
from tests.support.servers import MariaDb, Postgres, Redis, kinds, server
from tests.support.store_harness import Harness, place, row
from tests.support.store_harness import Place as Where

pytestmark = pytest.mark.beside(order=320)

KINDS = [kind for kind in kinds() if kind != "memory"]
TABLE = "primacy_leases"
LONG_MS = WAIT_MAX_MS + TICK_MS


class Real:
    """A real store where a rule test has the simulated one."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def perform(self, request: StoreRequest, link: int) -> StoreAnswer:
        return self.harness.ask(request)


def emptied(kind: str, here: Where, harness: Harness) -> None:
    """All rows go, the genesis row included; the table stays."""
    found: Any = server(kind) if kind != "sqlite" else None
    if kind == "sqlite":
        with sqlite3.connect(here.url.removeprefix("sqlite:///")) as connection:
            connection.execute(f"DELETE FROM {TABLE}")
        connection.close()
    elif isinstance(found, Postgres):
        found.admin(f"DELETE FROM {TABLE}", database="app")  # TRUNCATE makes another identity
    elif isinstance(found, MariaDb):
        found.admin(f"TRUNCATE app.{TABLE}")
    elif isinstance(found, Redis):
        found.admin("FLUSHALL")
    else:
        assert isinstance(harness.store, EtcdStore)
        harness.store._post("kv/deleterange", harness.store._folder())


@pytest.mark.parametrize("kind", KINDS)
def test_L9_who_looked_away_while_a_table_was_used_and_emptied_waits_anew(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as here:
        node, other = Node(store=Real(Harness(here.open()))), Harness(here.open())  # type: ignore[arg-type]
        node.tell(Started(WALL))
        while node.now < LONG_MS // 2:
            node.answer() if node.asked else node.wake()
        while node.asked:
            node.answer()
        assert node.machine._settling is not None
        seen = other.look(count=True)
        assert seen.genesis is not None
        assert other.ask(Settle("job", seen.server, seen.genesis)).done, "it has waited for longer"
        assert other.take().done
        assert other.renew().done
        emptied(kind, here, other)
        assert other.look().server == seen.server, "or the name tells it"
        away_ms = node.now = node.now + 2 * LONG_MS
        node.until(Start, within_ms=3 * LONG_MS)
        assert node.now >= away_ms + LONG_MS, "the holder that was lost renewed a moment ago"
        assert row().holder not in str(other.look().row)
