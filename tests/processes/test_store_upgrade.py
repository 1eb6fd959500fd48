"""Tables of version 0.1, and nodes of version 0.1 beside new ones on one table: a rolling upgrade is safe.

The old node speaks by its recorded statements (`data/store_0_1.json`). What it writes does not vouch where there is a
mark, and makes names differ from their count: new nodes wait longer then, and believe nothing that they should not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from primacy.election.store import GENESIS, Settle, StoreAnswer
from primacy.errors import StoreUnusable
from primacy.store import open_store, schema
from primacy.store.sql_text import spelled
from tests.support.canary import Canary
from tests.support.servers import Postgres, empty, server, servers_here
from tests.support.store_harness import LIMIT_MS, Harness, row

pytestmark = pytest.mark.beside(order=310)

OLD = json.loads((Path(__file__).parents[1] / "data/store_0_1.json").read_text())
KINDS = [kind for kind in ("postgresql", "mariadb") if kind in servers_here()]
USERS = 3
TURNS = 12


class OldRow(NamedTuple):
    """What an old node sees of a row."""

    holder: str
    token: int
    seq: int
    released: bool
    server: str


class OldNode:
    """A user of version 0.1, by its statements."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts = {name: spelled(text, "%({})s") for name, text in OLD[kind].items()}
        found = server(kind)
        if kind == "postgresql":
            import psycopg

            self.connection: Any = psycopg.connect(found.url(), autocommit=True)
        else:
            import pymysql
            from pymysql.constants import CLIENT

            self.connection = pymysql.connect(
                host="127.0.0.1",
                port=found.port,
                user="app",
                password="secret word",
                database="app",
                autocommit=True,
                client_flag=CLIENT.FOUND_ROWS,
            )

    def run(self, statement: str, /, **values: Any) -> tuple[int, list[tuple[Any, ...]]]:
        with self.connection.cursor() as cursor:
            cursor.execute(self.texts[statement], {"limit": "5000", **values})
            return cursor.rowcount, list(cursor.fetchall()) if cursor.description else []

    def look(self, name: str = "job") -> tuple[str, OldRow | None]:
        found = self.run("look", names=[name])[1]
        server, _, _, present, holder, token, seq, _, _, released, _, _, of, *_ = found[0]
        return server, None if present is None else OldRow(holder, token, seq, bool(released), of)

    def take(self, name: str, holder: str, token: int, seen: OldRow | None) -> bool:
        """As its machine does after it has waited."""
        values = {"name": name, "holder": holder, "token": token, "seq": 1 if seen is None else seen.seq + 1,
                  "hold_ms": 3_000, "wait_ms": 3_061, "members": "", "server": self.look(name)[0]}  # fmt: skip
        values["proof"] = None if self.kind == "postgresql" else 77
        if seen is not None:
            values |= {"seen_token": seen.token, "seen_seq": seen.seq, "seen_members": ""}
        try:
            return self.run("take" if seen is not None else "first", **values)[0] == 1
        except Exception as error:
            if "Duplicate" not in str(error):
                raise
            return False

    def renew(self, name: str, holder: str, token: int, seq: int) -> bool:
        values: dict[str, Any] = {"names": [name], "holders": [holder], "tokens": [token], "seqs": [seq],
                                  "servers": [self.look(name)[0]], "batch": [(name, holder, token, seq)],
                                  "server": self.look(name)[0], "proof": 78}  # fmt: skip
        return self.run("renew", **values)[0] == 1

    def release(self, name: str, holder: str, token: int, seq: int) -> bool:
        values: dict[str, Any] = {"names": [name], "holders": [holder], "tokens": [token], "seqs": [seq],
                                  "successors": [""], "batch": [(name, holder, token, seq)], "successor": "",
                                  "proof": 79}  # fmt: skip
        return self.run("release", **values)[0] == 1


class Both:
    """A table that an old node has made, and nodes of both kinds."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        empty(kind)
        self.opened: list[Any] = []
        self.old = self.old_node()
        self.old.run("create")

    def old_node(self) -> OldNode:
        found = OldNode(self.kind)
        self.opened.append(found.connection)
        return found

    def new_node(self) -> Harness:
        found = Harness(open_store(server(self.kind).url(), limit_ms=LIMIT_MS))
        self.opened.append(found.store)
        return found

    @property
    def marked(self) -> bool:
        return self.kind == "postgresql"


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    found = Both(request.param)
    yield found
    for one in found.opened:
        one.close()


def settled(harness: Harness) -> bool:
    seen = harness.look(count=True)
    assert seen.genesis is not None
    return seen.genesis.is_settled(seen.server)


def settle(harness: Harness) -> None:
    """As if somebody had waited."""
    seen = harness.look(count=True)
    assert seen.genesis is not None
    assert harness.ask(Settle("job", seen.server, seen.genesis)).done


def test_a_table_of_before_is_migrated_in_place_and_keeps_its_rows(both: Both) -> None:
    assert both.old.take("job", "a#1", 10, None)
    assert both.old.renew("job", "a#1", 10, 1)
    assert both.old.take("free", "a#1", 11, None)
    assert both.old.release("free", "a#1", 11, 1)
    new = both.new_node()
    seen, free = new.look(count=True), new.look("free")
    assert seen.row is not None
    assert free.row is not None
    assert (seen.row.holder, seen.row.token, seen.row.seq, seen.row.released) == ("a#1", 10, 2, False)
    assert (free.row.token, free.row.released) == (11, True)
    assert seen.row.vouches is free.row.vouches is (not both.marked), "what nobody marked does not vouch"
    assert seen.row.server != seen.server, "so that nothing of before spares a wait"
    assert seen.genesis is not None
    assert (seen.genesis.settled, seen.genesis.names, seen.genesis.count) == ("", 0, 2)
    assert not new.take("fresh").done, "nor is any name fresh"
    assert not new.release(seq=2).done
    assert not (new.renew(seq=2).done and both.marked)
    again = new.look()
    assert new.take(new=row("b#1", 20, 3), seen=again).done, "who has waited takes it"
    assert new.renew(holder="b#1", token=20, seq=3).done, "from then on it is a row like any other"
    assert new.release(holder="b#1", token=20, seq=4).done


def test_old_and_new_holders_keep_each_other_away(both: Both) -> None:
    old, new = both.old, both.new_node()
    new.look()
    settle(new)
    assert new.take().done
    where, seen = old.look()
    assert seen is not None
    assert seen.server != where, "an old node believes no release of it, and waits"
    assert new.renew().done
    assert not old.take("job", "o#1", 20, seen), "it was renewed since"
    assert not old.renew("job", "o#1", 10, 2)
    assert not old.release("job", "o#1", 10, 2)
    assert new.release(seq=2).done
    where, seen = old.look()
    assert seen is not None
    assert (seen.released, seen.server == where) == (True, False)

    before = new.look()
    assert old.take("job", "o#1", 30, seen), "after its wait"
    assert not new.renew(seq=2).done
    assert not new.release(seq=2).done
    assert not new.take(new=row("n#2", 40, 9), seen=before).done, "what the new node saw is gone"
    held = new.look()
    assert held.row is not None
    assert held.row.vouches is not both.marked
    assert old.renew("job", "o#1", 30, 3)
    assert not new.take(new=row("n#2", 40, 9), seen=held).done, "it was renewed since"
    assert old.release("job", "o#1", 30, 4)
    released = new.look()
    assert released.row is not None
    assert released.row.released
    assert released.row.server != released.server
    assert new.take(new=row("n#2", 40, 9), seen=released).done
    assert not old.renew("job", "o#1", 30, 4)


def test_a_name_that_an_old_node_makes_is_counted_by_nobody(both: Both) -> None:
    old, new = both.old, both.new_node()
    new.look()
    settle(new)
    assert settled(new)
    seen = new.look("job", count=True)
    assert old.take("job", "o#1", 10, None)
    assert not new.take("job", seen=seen).done
    assert not settled(new), "so that no name is fresh until somebody has waited"
    assert not new.take("other").done
    settle(new)
    assert settled(new)
    assert new.take("other").done
    assert not old.take("other", "o#1", 99, None)


def test_the_genesis_row_is_no_lease_to_an_old_node(both: Both) -> None:
    both.new_node().look()
    found = both.old.look(GENESIS)[1]
    assert found is not None
    assert (found.holder, found.released, found.server) == ("", True, "")


def test_of_old_and_new_nodes_at_once_one_wins(both: Both) -> None:
    """Fresh names, and rows that all of them saw."""
    news = [both.new_node() for _ in range(USERS)]
    olds = [both.old_node() for _ in range(USERS)]
    news[0].look()
    for turn in range(TURNS):
        name = f"job{turn}"
        for step in range(2):
            if step == 0:
                settle(news[0])
            barrier, won = threading.Barrier(2 * USERS), list[str]()

            def by_new(
                number: int, name: str = name, barrier: Any = barrier, won: list[str] = won, step: int = step
            ) -> None:
                seen = news[number].look(name, count=True)
                barrier.wait(60)
                if news[number].take(name, row(f"n{number}#{step}", 100 + 10 * step, 5 + step), seen).done:
                    won.append(f"new{number}")

            def by_old(
                number: int, name: str = name, barrier: Any = barrier, won: list[str] = won, step: int = step
            ) -> None:
                _, seen = olds[number].look(name)
                barrier.wait(60)
                if olds[number].take(name, f"o{number}#{step}", 100 + 10 * step, seen):
                    won.append(f"old{number}")

            threads = [threading.Thread(target=one, args=(n,)) for one in (by_new, by_old) for n in range(USERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1, (turn, step, won)


@pytest.mark.skipif("postgresql" not in KINDS, reason="PostgreSQL is not installed here")
def test_who_may_not_change_the_table_is_told_what_its_owner_can_run() -> None:
    both = Both("postgresql")
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    postgres.admin("DROP ROLE IF EXISTS few", "CREATE ROLE few LOGIN",
                   "GRANT SELECT, INSERT, UPDATE ON primacy_leases TO few", database="app")  # fmt: skip
    few = Harness(open_store(postgres.url().replace("app@", "few@"), limit_ms=LIMIT_MS))
    try:
        answer: StoreAnswer = few.look()
        assert (answer.ok, answer.final) == (False, True), answer
        assert "earlier version" in answer.reason
        assert "primacy lease schema" in answer.reason
        text = schema.schema("postgresql", "primacy_leases", "few")
        both.old.connection.execute(text)
        found = few.look(count=True)
        assert found.ok, found
        assert found.genesis is not None
        assert found.genesis.vouches
    finally:
        few.store.close()
        postgres.admin("DROP OWNED BY few", "DROP ROLE few", database="app")
        for one in both.opened:
            one.close()


@pytest.mark.skipif("postgresql" not in KINDS, reason="PostgreSQL is not installed here")
def test_a_migration_waits_for_no_lock_longer_than_its_limit() -> None:
    """Or every renewal of old nodes would wait behind it."""
    import psycopg

    both = Both("postgresql")
    postgres = server("postgresql")
    assert isinstance(postgres, Postgres)
    try:
        with psycopg.connect(f"postgresql://admin@127.0.0.1:{postgres.port}/app") as reads:
            reads.execute("SELECT * FROM primacy_leases")
            short = Harness(open_store(postgres.url(), limit_ms=24_000))
            with Canary(1_000) as canary:
                began_s = time.monotonic()
                answer = short.look()
                took_s = time.monotonic() - began_s
            assert (answer.ok, answer.final) == (False, False), answer
            canary.judge(took_s < 12, f"{took_s:.1f} s, not a small part of its limit: many nodes may try it in turn")
            short.store.close()
            assert both.old.take("job", "a#1", 10, None), "an old node goes on"
            reads.rollback()
        assert both.new_node().look().ok
    finally:
        for one in both.opened:
            one.close()


@pytest.mark.skipif("postgresql" not in KINDS, reason="PostgreSQL is not installed here")
def test_a_table_that_cannot_be_made_to_fit_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both("postgresql")
    try:
        store: Any = both.new_node().store
        monkeypatch.setattr(store, "_migrate", lambda: None)
        with pytest.raises(StoreUnusable, match="although it was just made to fit"):
            store.look([])
    finally:
        for one in both.opened:
            one.close()
