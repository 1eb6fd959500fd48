"""An old table with DATETIME columns, taken over on a real MariaDB whose clock is west or east of UTC (L8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from primacy.store.sql_coordinator import CoordinatorTable, Old, import_coordinator
from tests.support.servers import MariaDb, server, servers_here
from tests.support.store_harness import Place, place

pytestmark = [
    pytest.mark.beside(order=87),
    pytest.mark.skipif("mariadb" not in servers_here(), reason="MariaDB is not installed here"),
]


@pytest.fixture(params=["-05:00", "+00:00", "+09:30", "SYSTEM"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    maria = server("mariadb")
    assert isinstance(maria, MariaDb)
    try:
        maria.admin(f"SET GLOBAL time_zone = '{request.param}'")
        yield request.param
    finally:
        maria.admin("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.fixture
def here(zone: str, tmp_path: Path) -> Iterator[Place]:
    with place("mariadb", tmp_path) as found:
        yield found


def held(seconds: int, column_type: str) -> MariaDb:
    """By an old node, whose session has the server's zone."""
    maria = server("mariadb")
    assert isinstance(maria, MariaDb)
    maria.admin(
        "CREATE TABLE locks (lock_key VARCHAR(255) PRIMARY KEY, owner_id VARCHAR(255) NOT NULL, "
        f"expires_at {column_type} NOT NULL)",
        f"INSERT INTO locks VALUES ('coordinator_lock', 'old', NOW() + INTERVAL {seconds} SECOND)", database="app",
    )  # fmt: skip
    return maria


@pytest.mark.parametrize("column_type", ["DATETIME", "DATETIME(6)", "TIMESTAMP"])
def test_L8_a_live_old_lease_is_left_alone_in_every_zone(here: Place, column_type: str) -> None:
    harness = here.harness()
    maria = held(+60, column_type)
    found = import_coordinator(harness.store, "coordinator", "0c", 10_204)
    assert isinstance(found, Old)
    assert (found.owner, found.expired) == ("old", False)
    assert maria.admin("SELECT owner_id FROM app.locks") == (("old",),)
    assert harness.look("coordinator").row is None


@pytest.mark.parametrize("column_type", ["DATETIME", "DATETIME(6)", "TIMESTAMP"])
def test_L8_an_expired_old_lease_is_taken_for_good_in_every_zone(here: Place, column_type: str) -> None:
    harness = here.harness()
    maria = held(-5, column_type)
    made = import_coordinator(harness.store, "coordinator", "0c", 10_204)
    assert not isinstance(made, Old)
    assert made.is_placeholder
    ((owner, never),) = maria.admin("SELECT owner_id, expires_at > NOW() + INTERVAL 10 YEAR FROM app.locks")
    assert (owner, never) == ("primacy-import-0c", 1)
    with closing(here.open()) as again:
        assert CoordinatorTable(again).is_closed()  # type: ignore[arg-type]
