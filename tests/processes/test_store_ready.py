"""PostgreSQL: statements that a session keeps ready, and releases whose commit nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import Place as Placed
from primacy.election.store import StoreAnswer
from primacy.store import open_store
from primacy.store.port import Notifies
from tests.support.servers import Pooler, Postgres, empty, fresh, pooler, server, servers_here, wait_for
from tests.support.store_harness import KEPT_READY, LIMIT_MS, Harness, Place, opened, place, plain, row

if "postgresql" not in servers_here():
    pytest.skip("PostgreSQL is not installed here", allow_module_level=True)

import psycopg

from primacy.store.libpq import Limited
from primacy.store.postgresql import PostgresqlStore

pytestmark = pytest.mark.beside(order=360)

__all__ = ["pooler"]
TRIES_MAX = 6
"""The server writes its log every ten seconds here, and may do so at the very moment of a release."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(KEPT_READY, tmp_path) as found:
        yield found


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How statements were sent, in their order."""
    found: list[str] = []
    run, execute = Limited.run, Limited.execute

    def run_noted(self: Limited, *arguments: Any) -> Any:
        found.append("ready")
        return run(self, *arguments)

    def execute_noted(self: Limited, query: Any, *arguments: Any, **more: Any) -> Any:
        found.append("text")
        return execute(self, query, *arguments, **more)

    monkeypatch.setattr(Limited, "run", run_noted)
    monkeypatch.setattr(Limited, "execute", execute_noted)
    return found


def whole_turn(harness: Harness, token: int = 10) -> None:
    """One leadership, whole."""
    seen = harness.look(count=True)
    assert harness.take(new=row(token=token), seen=seen).done
    assert harness.renew(token=token).done
    assert harness.release(token=token, seq=2).done
    found = harness.look().row
    assert found is not None
    assert (found.token, found.seq, found.released) == (token, 2, True)


def test_a_node_that_listens_sends_no_text_any_more(here: Place, ran: list[str]) -> None:
    harness = here.harness()
    ran.clear()
    whole_turn(harness)
    assert ran.count("text") == 2, "the very first take of a name, and the look that counts before it"
    ran.clear()
    assert harness.take(new=row(token=11), seen=harness.look()).done
    assert harness.renew(token=11).done
    assert harness.release(token=11, seq=2).done
    assert set(ran) == {"ready"}


def test_the_rehearsal_leaves_nothing(here: Place) -> None:
    harness = here.harness()
    store = harness.store
    assert isinstance(store, PostgresqlStore)
    assert store.listings() == []
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    assert postgres.admin("SELECT count(*) FROM primacy_leases", database="app") == [(1,)]
    assert [news for news in store.news() if news.name] == []


def test_one_who_may_only_read_hears_all_the_same(here: Place, ran: list[str]) -> None:
    holder = here.harness()
    assert holder.take().done
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    postgres.admin(
        "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", "GRANT SELECT ON primacy_leases TO reader",
        database="app",
    )  # fmt: skip
    reader = Harness(open_store(here.url.replace("app@", "reader@"), limit_ms=LIMIT_MS, create=False))
    here.opened.append(reader.store)
    assert reader.look().row == holder.look().row
    assert isinstance(reader.store, Notifies)
    assert reader.store.listen() >= 0
    ran.clear()
    assert reader.look().ok
    assert ran == ["text"]
    reader.store.close()
    postgres.admin("DROP OWNED BY reader", "DROP ROLE reader", database="app")


def test_a_table_that_is_made_anew_in_another_shape_harms_nobody(here: Place) -> None:
    """PostgreSQL refuses a plan whose result would change; the statement is sent as a text instead."""
    harness = here.harness()
    whole_turn(harness)
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    postgres.admin("ALTER TABLE primacy_leases ALTER COLUMN hold_ms TYPE bigint", database="app")
    whole_turn(harness, token=11)
    postgres.admin("DROP TABLE primacy_leases", database="app")
    assert harness.look().row is None
    store = harness.store
    assert isinstance(store, PostgresqlStore)
    store.make_table(new=True)
    whole_turn(harness)


def test_in_a_session_of_somebody_else_a_statement_is_this_one_or_none(pooler: Pooler) -> None:
    """A pooler may let LISTEN through for once, and then change the session below each statement."""
    opened(pooler.url()).store.close()
    harnesses = [Harness(open_store(pooler.url(), limit_ms=LIMIT_MS)) for _ in range(3)]
    for harness in harnesses:
        harness.look()
        store = harness.store
        assert isinstance(store, PostgresqlStore)
        store._rehearse(store._connected())
    assert harnesses[0].take().done
    for seq in range(1, 20):
        assert harnesses[seq % 3].renew(seq=seq).done
    assert harnesses[0].release(seq=20).done
    for harness in harnesses:
        harness.store.close()


def test_F42_what_hangs_or_is_locked_ends_within_its_limit() -> None:
    postgres = fresh("postgresql")
    assert isinstance(postgres, Postgres)
    here = Place(postgres.url())
    try:
        opened(postgres.url()).store.close()
        harness = Harness(here.open(limit_ms=4_000))
        assert harness.look().ok
        assert isinstance(harness.store, Notifies)
        assert harness.store.listen() >= 0
        whole_turn(harness)
        seen = harness.look()
        who = seen.server
        with psycopg.connect(f"postgresql://admin@127.0.0.1:{postgres.port}/app") as other:
            other.execute("SELECT * FROM primacy_leases WHERE name = 'job' FOR UPDATE")
            locked = harness.take(seen=seen, new=row(token=11))
            assert (locked.ok, locked.done) == (False, False)
            assert "lock timeout" in locked.reason
        assert harness.take(seen=seen, new=row(token=11)).done, "on the same connection"
        postgres.freeze()
        hung = harness.renew(token=11, server=who)
        postgres.thaw()
        assert (hung.ok, hung.done) == (False, False)
        assert "no answer within 4000 ms" in hung.reason
        wait_for(lambda: harness.look().ok, "an answer: it connects anew")
        postgres.kill()
        gone = harness.renew(token=11, server=who)
        assert (gone.ok, gone.done) == (False, False)
        assert "PostgreSQL at 127.0.0.1" in gone.reason
    finally:
        for store in here.opened:
            store.close()
        postgres.remove()


# --- releases whose commit nobody waits for ---------------------------------------------------------------------------


def waits_for(store: PostgresqlStore, write: Callable[[], StoreAnswer]) -> str:
    """What the commit of a write waits for, as the server has it once the write is done."""
    connection = store._connected()
    with connection.transaction():
        assert write().done
        (found,) = connection.execute("SELECT current_setting('synchronous_commit')").fetchall()
    return str(found[0])


def test_T1_only_a_release_may_be_on_disk_a_moment_later(here: Place) -> None:
    harness = here.harness()
    store = harness.store
    assert isinstance(store, PostgresqlStore)
    for session, of_others in (("local", "on"), ("off", "on"), ("remote_apply", "remote_apply")):
        empty("postgresql")
        store.make_table(new=True)
        seen = harness.look(count=True)
        store._connected().execute(f"SET synchronous_commit = {session}")
        found = [
            waits_for(store, partial(harness.take, seen=seen)),
            waits_for(store, harness.renew),
            waits_for(store, lambda: harness.release(seq=2)),
            waits_for(store, lambda: harness.take(new=row(token=11))),
            waits_for(store, lambda: harness.ask(Placed("other", seen.server))),  # noqa: B023
        ]
        assert found == [of_others, of_others, "off", of_others, of_others], session


def looked_again(harness: Harness) -> StoreAnswer:
    """The old connection died with the server; the next one stands."""
    found = harness.look()
    return found if found.ok else harness.look()


def test_L4_a_release_that_the_server_forgets_is_a_silent_holder() -> None:
    """And one that was taken upon cannot be forgotten: the log is written in order."""
    postgres = fresh("postgresql")
    assert isinstance(postgres, Postgres)
    try:
        postgres.admin("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
        old, new = opened(postgres.url()), Harness(open_store(postgres.url(), limit_ms=LIMIT_MS))
        assert old.take().done
        forgotten = False
        for _ in range(TRIES_MAX):
            assert old.release().done
            postgres.kill()
            postgres.start()
            found = looked_again(old)
            assert found.row is not None
            assert (found.row.holder, found.row.token, found.row.seq) == ("a#1", 10, 1)
            if not found.row.released:
                forgotten = True
                break
            looked_again(new)
            assert new.take(new=row()).done
        assert forgotten, "or this test shows nothing"
        assert not old.release().done, "the row is of before the restart: only its holder's renewal brings it along"
        assert old.renew(server=found.server).done
        assert old.release(seq=2).done, "its holder finds it, and says it again"
        assert looked_again(new).ok
        assert new.take(new=row("b#2", 11, 3)).done
        postgres.kill()
        postgres.start()
        kept = looked_again(old)
        assert kept.row is not None
        assert plain(kept.row) == row("b#2", 11, 3, server=kept.row.server)
        for harness in (old, new):
            harness.store.close()
    finally:
        postgres.remove()
