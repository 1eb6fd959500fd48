"""A real PostgreSQL in which names are exchanged: a copy stands where the leases stood, or the leases come back (L5).

The server runs on, and a copy by `CREATE DATABASE … TEMPLATE` has the very rows, with the marks that vouch for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.election.store import StoreAnswer
from primacy.settings.timing import PROFILES, for_lease
from tests.support.canary import Canary
from tests.support.servers import Postgres, fresh, servers_here, wait_for
from tests.support.store_harness import Harness, opened, row
from tests.support.store_race import Race, now_ns

pytestmark = [
    pytest.mark.beside(order=85),
    pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here"),
]

TABLE = "primacy_leases"


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Postgres]:
    yield from started(hides=False)


@pytest.fixture(scope="module")
def hiding() -> Iterator[Postgres]:
    """It keeps its identifier and timeline to itself, as with some providers."""
    yield from started(hides=True)


def started(hides: bool) -> Iterator[Postgres]:
    found = fresh("postgresql")
    assert isinstance(found, Postgres)
    try:
        if hides:  # also in databases that are made from now on
            for database in ("template1", "app"):
                found.admin("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC", database=database)
        yield found
    finally:
        found.remove()


@pytest.fixture(params=["whole", "without the right to pg_control_system"])
def postgres(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue("ordinary" if request.param == "whole" else "hiding")
    found.empty()
    return found


def led_and_released(postgres: Postgres) -> tuple[Harness, StoreAnswer, StoreAnswer]:
    """With what was seen of the lease, and of a name that is free."""
    harness = opened(postgres.url())
    assert harness.take().done
    assert harness.release().done
    seen, free = harness.look(count=True), harness.look("fresh", count=True)
    assert seen.server.startswith("postgresql:127.0.0.1:") is (postgres.admin(
        "SELECT has_function_privilege('app', 'pg_control_system()', 'EXECUTE')", database="app"
    ) == [(False,)])  # fmt: skip
    assert seen.genesis is not None
    assert seen.genesis.is_settled(seen.server)
    harness.store.close()
    return harness, seen, free


def is_another_server(harness: Harness, seen: StoreAnswer, free: StoreAnswer) -> None:
    """Although every row is what it was."""
    back, back_free = harness.look(count=True), harness.look("fresh", count=True)
    assert back.row == seen.row, "or this shows nothing"
    assert back.server != seen.server
    assert back.genesis is not None
    assert not back.genesis.is_settled(back.server)
    assert not harness.take(new=row("c#1", 30, 2), seen=seen).done, "what was seen before proves nothing"
    assert not harness.take("fresh", seen=free).done
    assert not harness.take("fresh", seen=back_free).done
    assert harness.take(new=row("c#1", 30, 2), seen=back).done, "who has waited takes it"
    harness.store.close()


def test_L5_a_copy_of_the_database_that_takes_its_place_is_another_server(postgres: Postgres) -> None:
    """A backup of before somebody led, put back by its name."""
    harness, seen, free = led_and_released(postgres)
    postgres.admin("CREATE DATABASE app_kept TEMPLATE app OWNER app")
    assert harness.take(new=row("b#1", 20, 2), seen=seen).done, "somebody works under it"
    harness.store.close()
    postgres.admin("ALTER DATABASE app RENAME TO app_lost", "ALTER DATABASE app_kept RENAME TO app")
    is_another_server(harness, seen, free)
    postgres.admin("DROP DATABASE app_lost")


AWAY = {
    "database": (("ALTER DATABASE app RENAME TO app_old", "CREATE DATABASE app OWNER app"),
                 ("ALTER DATABASE app RENAME TO app_bad", "ALTER DATABASE app_old RENAME TO app",
                  "DROP DATABASE app_bad")),
    "table": ((f"ALTER TABLE {TABLE} RENAME TO old",),
              (f"ALTER TABLE {TABLE} RENAME TO bad", f"ALTER TABLE old RENAME TO {TABLE}", "DROP TABLE bad")),
    "schema": (("ALTER SCHEMA public RENAME TO old", "CREATE SCHEMA public AUTHORIZATION app"),
               ("ALTER SCHEMA public RENAME TO bad", "ALTER SCHEMA old RENAME TO public", "DROP SCHEMA bad CASCADE")),
}  # fmt: skip
"""What takes it away, and what brings it back."""


@pytest.mark.parametrize("what", AWAY)
def test_L5_what_was_renamed_and_has_its_name_again_is_another_server(postgres: Postgres, what: str) -> None:
    """A copy stood in its place meanwhile, and somebody led there."""
    harness, seen, free = led_and_released(postgres)
    away, again = AWAY[what]
    database = "postgres" if what == "database" else "app"
    postgres.admin(*away, database=database)
    other = opened(postgres.url())
    assert other.take(new=row("b#1", 20, 1)).done, "somebody works under it"
    other.store.close()
    postgres.admin(*again, database=database)
    is_another_server(harness, seen, free)


def test_L5_what_a_server_does_by_itself_changes_no_identity(postgres: Postgres) -> None:
    harness = opened(postgres.url())
    assert harness.take().done
    before = harness.look(count=True)
    for statement in (f"VACUUM {TABLE}", f"VACUUM FREEZE {TABLE}", f"ANALYZE {TABLE}", "VACUUM FREEZE pg_database",
                      "VACUUM FREEZE pg_class", "VACUUM FREEZE pg_namespace", "VACUUM FULL pg_class", "VACUUM",
                      "ANALYZE", "CHECKPOINT", f"REINDEX TABLE {TABLE}"):  # fmt: skip
        postgres.admin(statement, database="app")
        after = harness.look(count=True)
        assert (after.row, after.genesis, after.server) == (before.row, before.genesis, before.server), statement
    harness.store.close()


CHANGES = (
    f"VACUUM FULL {TABLE}", f"GRANT SELECT ON {TABLE} TO PUBLIC", f"ALTER TABLE {TABLE} ADD COLUMN note text",
    f"CLUSTER {TABLE} USING {TABLE}_pkey", "GRANT CONNECT ON DATABASE app TO PUBLIC",
    "ALTER DATABASE app CONNECTION LIMIT 50", "GRANT USAGE ON SCHEMA public TO PUBLIC",
)  # fmt: skip
"""What an administrator may do to a table in use; each may be another server to those who look."""


def test_L3_a_live_holder_moves_along_with_what_an_administrator_does(postgres: Postgres, tmp_path: Path) -> None:
    """It finds its own row, which vouches, under the new identity, and renews it there."""
    looks = opened(postgres.url())
    race = Race(postgres.url(), tmp_path / "race", count=3, mode="calm", profile="lan")
    try:
        wait_for(lambda: race.holds_since(0) >= 3, "somebody to hold it")
        seen = {looks.look("race").server}
        with Canary(for_lease(PROFILES["lan"]).heartbeat_ms) as canary:
            for statement in CHANGES:
                since = now_ns()
                postgres.admin(statement, database="app")
                wait_for(lambda since=since: race.holds_since(since) >= 3, f"a renewal after {statement}")  # type: ignore[misc]
                seen.add(looks.look("race").server)
        held = {line["token"] for line in race.lines() if line["what"] == "hold"}
        assert len(seen) >= 5, "the identity hardly changed, so this shows nothing"
    finally:
        verdict = race.stop()
        looks.store.close()
    verdict.one_at_a_time()
    canary.judge(len(held) == 1, f"no leadership ends: {verdict}")
