"""What no waiting helps against is told at once, with the remedy: passwords, rights, databases, tables of others.

And what may pass by itself is not: a server that starts, one that has too many connections, a table that is locked.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import Look, Place, Prune, Renew, Settle, StoreAnswer
from primacy.errors import NotReached, StoreUnusable
from primacy.store import open_store, perform
from primacy.store.port import Notifies
from tests.support.servers import MariaDb, Postgres, empty, fresh, server, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, opened, place, row

pytestmark = pytest.mark.beside(order=250)

needs_postgresql = pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here")
needs_mariadb = pytest.mark.skipif("mariadb" not in servers_here(), reason="MariaDB is not installed here")


def asked(url: str, **more: Any) -> StoreAnswer:
    harness = Harness(open_store(url, limit_ms=LIMIT_MS, **more))
    try:
        return harness.look()
    finally:
        harness.store.close()


def final(answer: StoreAnswer, *words: str) -> None:
    """One sentence for people."""
    assert (answer.ok, answer.done, answer.final) == (False, False, True), answer
    for word in words:
        assert word in answer.reason, answer.reason
    for noise in ("('", "\n", "SQLSTATE", "42501", "28P01", "(1045", "(1142", "Traceback", "secret", "guessed"):
        assert noise not in answer.reason, answer.reason


@contextlib.contextmanager
def the_only_one(connect: Callable[[], Any], refused: type[Exception]) -> Iterator[None]:
    """The one connection that a user may have, once the server has noticed that those of before are closed."""
    found: list[Any] = []

    def is_there() -> bool:
        with contextlib.suppress(refused):
            found.append(connect())
        return bool(found)

    wait_for(is_there, "the only connection")
    with contextlib.closing(found[0]):
        yield


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[Postgres]:
    """One that asks for passwords."""
    found = fresh("postgresql")
    assert isinstance(found, Postgres)
    found.admin(
        "ALTER ROLE app PASSWORD 'secret'", "CREATE ROLE nobody_logs_in", "CREATE DATABASE closed",
        "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
    )  # fmt: skip
    (found.data / "pg_hba.conf").write_text(
        "host all admin 127.0.0.1/32 trust\nhost app,closed,nowhere app 127.0.0.1/32 scram-sha-256\n"
        "host app nobody_logs_in,missing 127.0.0.1/32 trust\nhostssl app other 127.0.0.1/32 trust\n"
    )
    found.admin("SELECT pg_reload_conf()")
    yield found
    found.remove()


POSTGRESQL = {
    "a wrong password": ("app:guessed@{}/app", "password authentication failed", "change the user or the password"),
    "no password": ("app@{}/app", "no password supplied", "change the user or the password"),
    "no such database": ("app:secret@{}/nowhere", "nowhere", "make the database"),
    "no right to connect": ("app:secret@{}/closed", "closed", "GRANT CONNECT"),
    "no such role": ("missing@{}/app", "missing", "role"),
    "a role that may not log in": ("nobody_logs_in@{}/app", "not permitted to log in", "role"),
    "nobody admits it": ("stranger@{}/app", "pg_hba.conf", "must admit this user"),
    "TLS that is not there": ("app:secret@{}/app?sslmode=require", "SSL", "TLS is refused"),
    "no such certificate": ("app:secret@{}/app?sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "", "TLS is refused"),
}


@needs_postgresql
@pytest.mark.parametrize("why", POSTGRESQL)
def test_a_connection_that_postgresql_refuses_for_good(guarded: Postgres, why: str) -> None:
    where, *words = POSTGRESQL[why]
    final(asked("postgresql://" + where.format(f"127.0.0.1:{guarded.port}")), "PostgreSQL at 127.0.0.1", *words)


@needs_postgresql
@pytest.mark.parametrize("where", ["PGPASSFILE", "~/.pgpass"])
def test_a_password_where_libpq_finds_it(
    guarded: Postgres, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address has none, and the server asks for one."""
    file = tmp_path / ".pgpass"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGPASSFILE", raising=False)
    if where == "PGPASSFILE":
        file = tmp_path / "passwords"
        monkeypatch.setenv("PGPASSFILE", str(file))
    final(asked(guarded.url()), "no password supplied")
    for password, is_right in (("guessed", False), ("secret", True)):
        file.write_text(f"127.0.0.1:{guarded.port}:app:app:{password}\n")
        file.chmod(0o600)
        answer = asked(guarded.url())
        assert answer.ok == is_right, answer
    file.chmod(0o644)  # libpq does not read what others may
    final(asked(guarded.url()), "no password supplied")


@needs_postgresql
def test_one_of_several_hosts_that_may_come_back_is_waited_for(guarded: Postgres) -> None:
    port = guarded.port
    answer = asked(f"postgresql://app:guessed@127.0.0.1:1,127.0.0.1:{port}/app")
    assert (answer.ok, answer.final) == (False, False), answer
    final(asked(f"postgresql://app:guessed@127.0.0.1:{port},127.0.0.1:{port}/app"), "password")


@needs_postgresql
def test_what_passes_by_itself_in_postgresql(guarded: Postgres) -> None:
    import psycopg

    url = guarded.url().replace("app@", "app:secret@")
    assert asked(url).ok
    guarded.admin("ALTER ROLE app CONNECTION LIMIT 1")
    with the_only_one(lambda: psycopg.connect(url), psycopg.OperationalError):
        full = asked(url)
    guarded.admin("ALTER ROLE app CONNECTION LIMIT -1")
    assert (full.ok, full.final) == (False, False), full
    assert "too many connections" in full.reason
    harness = Harness(open_store(url, limit_ms=4_000))
    assert harness.look().ok
    with psycopg.connect(f"postgresql://admin@127.0.0.1:{guarded.port}/app") as other:
        other.execute("LOCK TABLE primacy_leases")
        locked = harness.look()
        other.rollback()
    assert (locked.ok, locked.final) == (False, False), locked
    harness.store.close()
    assert asked(url).ok


@needs_postgresql
@pytest.mark.parametrize("said", [
    "connection failed: connection to server at \"h\", port 5 failed: FATAL:  the database system is starting up",
    "connection failed: connection to server at \"h\", port 5 failed: FATAL:  sorry, too many clients already",
    "connection failed: connection to server at \"h\", port 5 failed: Connection refused",
    "failed to resolve host 'h': [Errno -3] Temporary failure in name resolution",
    "connection timeout expired",
])  # fmt: skip
def test_a_server_that_starts_is_waited_for(said: str) -> None:
    from primacy.store.postgresql import no_connection

    found = no_connection("PostgreSQL at h:5", said)
    assert isinstance(found, NotReached)
    assert not isinstance(found, StoreUnusable)


@needs_postgresql
def test_a_role_without_rights_is_told_which_in_postgresql(tmp_path: Path) -> None:
    with place("postgresql", tmp_path) as here:
        owner, postgres = here.harness(), server("postgresql")
        assert isinstance(postgres, Postgres)
        postgres.admin("DROP ROLE IF EXISTS few", "CREATE ROLE few LOGIN", database="app")
        few = Harness(open_store(here.url.replace("app@", "few@"), limit_ms=LIMIT_MS))
        try:
            final(few.look(), "permission denied for table primacy_leases", "primacy lease schema")
            postgres.admin("GRANT SELECT ON primacy_leases TO few", database="app")
            assert few.look().ok, "to look is enough for `lease list`"
            final(few.take(), "permission denied for table primacy_leases", "primacy lease schema")
            postgres.admin("GRANT INSERT, UPDATE ON primacy_leases TO few", database="app")
            owner.store.make_table(new=True)  # type: ignore[attr-defined]  # a GRANT makes another identity
            _everything_but_pruning(few)
            postgres.admin("GRANT DELETE ON primacy_leases TO few", database="app")
            _prunes(few)
            other = Harness(open_store(here.url.replace("app@", "few@"), table="elsewhere", limit_ms=LIMIT_MS))
            final(other.look(), "permission denied for schema public", "primacy lease schema")
            other.store.close()
            assert owner.look().ok
        finally:
            few.store.close()
            postgres.admin("DROP OWNED BY few", "DROP ROLE few", database="app")


def _everything_but_pruning(few: Harness) -> None:
    """With the rights that `primacy lease schema` grants."""
    assert few.take().done
    assert few.renew().done
    assert few.release(seq=2).done
    assert few.take(new=row("b#1", 11, 3)).done
    assert few.release(holder="b#1", token=11, seq=3).done
    seen = few.look(count=True)
    assert seen.row is not None
    assert seen.genesis is not None
    final(few.ask(Prune("job", seen.row, seen.server, seen.genesis)), "To prune", "DELETE")
    assert few.look().row == seen.row


def _prunes(few: Harness) -> None:
    granted = few.look(count=True)
    assert granted.genesis is not None
    assert few.ask(Settle("job", granted.server, granted.genesis)).done, "a GRANT makes another identity"
    seen = few.look(count=True)
    assert seen.row is not None
    assert seen.genesis is not None
    assert few.ask(Prune("job", seen.row, seen.server, seen.genesis)).done


@needs_postgresql
@pytest.mark.parametrize("columns", ["name text", "id integer", "name text, holder integer, token text, seq text"])
def test_a_table_of_somebody_else_in_postgresql(columns: str) -> None:
    url, postgres = empty("postgresql"), server("postgresql")
    assert isinstance(postgres, Postgres)
    postgres.admin(
        f"CREATE TABLE primacy_leases ({columns})", "ALTER TABLE primacy_leases OWNER TO app", database="app"
    )
    final(asked(url), "primacy_leases", "choose another name")
    postgres.admin("DROP TABLE primacy_leases", database="app")


@needs_postgresql
def test_a_database_that_takes_any_bytes_is_used_like_any_other() -> None:
    """In SQL_ASCII psycopg shows bytes, no texts; and a stranger's notification may hold what is none."""
    empty("postgresql")
    found = server("postgresql")
    assert isinstance(found, Postgres)
    made = "CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    found.admin("DROP DATABASE IF EXISTS bytes", made)
    harness = opened(f"postgresql://admin@127.0.0.1:{found.port}/bytes")
    try:
        assert harness.take().done
        assert isinstance(harness.store, Notifies)
        assert harness.store.listen() >= 0
        for seq in (1, 2):
            told = "SELECT pg_notify('primacy_leases', convert_from('\\xff'::bytea, 'SQL_ASCII'))"
            found.admin(told, database="bytes")
            assert harness.renew(seq=seq).done
            harness.store.news()
        found.admin("UPDATE primacy_leases SET successor = convert_from('\\xff'::bytea, 'SQL_ASCII')", database="bytes")
        bad = harness.look()
        assert (bad.ok, bad.final) == (False, False)
        assert "is not one of primacy's" in bad.reason
    finally:
        harness.store.close()
        found.admin("DROP DATABASE bytes")


# --- MariaDB ----------------------------------------------------------------------------------------------------------

MARIADB = {
    "a wrong password": ("app:guessed@{}/app", "Access denied", "change the user or the password"),
    "no such user": ("missing:x@{}/app", "Access denied", "change the user or the password"),
    "no such database": ("app:secret%20word@{}/nowhere", "nowhere", "right"),
    "no such database, for one who may all": ("root@{}/nowhere", "nowhere", "make the database"),
    "TLS that is not there": ("app:secret%20word@{}/app?ssl_ca={}", "", "TLS is refused"),
    "no such certificate": ("app:secret%20word@{}/app?ssl_ca=/nowhere/ca.pem", "", "TLS is refused"),
}


@needs_mariadb
@pytest.mark.parametrize("why", MARIADB)
def test_a_connection_that_mariadb_refuses_for_good(why: str) -> None:
    maria = server("mariadb")
    assert isinstance(maria, MariaDb)
    where, *words = MARIADB[why]
    authorities = ssl.get_default_verify_paths().openssl_cafile
    final(asked("mariadb://" + where.format(f"127.0.0.1:{maria.port}", authorities)), "at 127.0.0.1", *words)


@needs_mariadb
def test_what_passes_by_itself_in_mariadb() -> None:
    import pymysql

    maria = server("mariadb")
    assert isinstance(maria, MariaDb)
    assert asked(maria.url()).ok
    maria.admin("GRANT USAGE ON *.* TO app@'%' WITH MAX_USER_CONNECTIONS 1")
    where: dict[str, Any] = {"host": "127.0.0.1", "port": maria.port, "user": "app", "password": "secret word"}
    with the_only_one(lambda: pymysql.connect(**where, database="app"), pymysql.OperationalError):
        full = asked(maria.url())
    maria.admin("GRANT USAGE ON *.* TO app@'%' WITH MAX_USER_CONNECTIONS 0")
    assert (full.ok, full.final) == (False, False), full
    assert "max_user_connections" in full.reason
    maria.admin("SET GLOBAL read_only = 1")
    only = asked(maria.url())
    maria.admin("SET GLOBAL read_only = 0")
    assert (only.ok, only.final) == (False, False), only
    assert asked(maria.url()).ok


@needs_mariadb
def test_a_user_without_rights_is_told_which_in_mariadb(tmp_path: Path) -> None:
    with place("mariadb", tmp_path) as here:
        owner, maria = here.harness(), server("mariadb")
        assert isinstance(maria, MariaDb)
        table = "app.primacy_leases"
        maria.admin("CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'f'", "CREATE TABLE IF NOT EXISTS app.other (x INT)")
        maria.admin("GRANT SELECT ON app.other TO few@'%'")
        few = Harness(open_store(here.url.replace("app:secret%20word", "few:f"), limit_ms=LIMIT_MS))
        try:
            final(few.look(), "SELECT command denied", "primacy lease schema")
            maria.admin(f"GRANT SELECT ON {table} TO few@'%'")
            assert few.look().ok
            final(few.take(), "denied to user", "primacy lease schema")
            maria.admin(f"GRANT INSERT, UPDATE ON {table} TO few@'%'")
            _everything_but_pruning(few)
            maria.admin(f"GRANT DELETE ON {table} TO few@'%'")
            _prunes(few)
            other = Harness(
                open_store(here.url.replace("app:secret%20word", "few:f"), table="elsewhere", limit_ms=LIMIT_MS)
            )
            final(other.look(), "command denied", "primacy lease schema")
            other.store.close()
            assert owner.look().ok
        finally:
            few.store.close()
            maria.admin("DROP USER few@'%'", "DROP TABLE app.other")


@needs_mariadb
def test_a_table_of_somebody_else_in_mariadb() -> None:
    url, maria = empty("mariadb"), server("mariadb")
    assert isinstance(maria, MariaDb)
    maria.admin("CREATE TABLE primacy_leases (name TEXT)", database="app")
    final(asked(url), "primacy_leases", "choose another name")
    maria.admin("DROP TABLE primacy_leases", database="app")


ANSWERS = [
    "{}",
    '{"header": 7, "responses": 7}',
    '{"header": {"cluster_id": "1", "revision": "x"}, "responses": [{"response_range": {}}, {"response_range": {}}]}',
    '{"header": {"cluster_id": "1", "revision": "5"}, "responses": [{}]}',
    '{"header": {"cluster_id": "1", "revision": "5"}, "raftIndex": "9", "kvs": [7]}',
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_speaks_json_and_is_not_etcd_is_told_and_is_no_fault_of_ours(answer: str) -> None:
    class Other(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        store: Any = open_store(f"etcd://127.0.0.1:{other.server_port}", limit_ms=LIMIT_MS)
        for request in (Look("job"), Look("job", count=True), Renew("job", "a#1", 1, 1, "x"), Place("job", "x")):
            (found,) = perform(store, [request])
            assert (found.ok, found.final) == (False, False)
            assert "is this etcd 3.4 or newer?" in found.reason
        for ask in (store.listings, store.make_table):
            with pytest.raises(NotReached, match="does not answer like etcd"):
                ask()
        store.close()
        other.shutdown()
