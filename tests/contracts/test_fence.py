"""The fences, each by itself: what they let in, what they refuse, and that they forget nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy.errors import InUse, StaleToken, Unsafe, UsageError
from primacy.fence import sql
from primacy.fence.file import File, Mark
from primacy.fence.http import TokenGate, WsgiTokenGate
from tests.support import servers
from tests.support.holder_process import connect

pytestmark = pytest.mark.beside(order=440)

SQL = ["sqlite", *(kind for kind in servers.kinds() if kind in ("postgresql", "mariadb", "mysql"))]


# --- file -------------------------------------------------------------------------------------------------------------


def test_file_a_token_not_below_the_last_is_let_in(tmp_path: Path) -> None:
    found = File(tmp_path / "ledger")
    found.append(b"a", 5)
    found.append(b"b", 5)
    found.append(b"c", 7)
    with pytest.raises(StaleToken, match=r"ledger\.fence has seen token 7, so that 6 is stale") as caught:
        found.append(b"d", 6)
    assert (caught.value.token, caught.value.mark) == (6, 7)
    assert (tmp_path / "ledger").read_bytes() == b"abc"
    assert found.mark.value() == 7


def test_file_replace_is_all_or_nothing_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"old")
    path.chmod(0o640)
    found = File(path)
    found.replace(b"new", 5)
    with pytest.raises(StaleToken):
        found.replace(b"stale", 4)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["config", "config.fence"]


def test_file_a_failed_write_leaves_nothing_behind_and_the_mark_raised(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        File(path).replace(b"x", 9)
    assert sorted(os.listdir(tmp_path)) == ["folder", "folder.fence"]
    with pytest.raises(StaleToken):
        Mark(tmp_path / "folder.fence").admit(8)


def test_mark_outlives_the_process_and_a_damaged_one_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    code = f"from primacy.fence.file import Mark; Mark({str(path)!r}).admit(12)"
    subprocess.run([sys.executable, "-c", code], check=True)
    mark = Mark(path)
    assert mark.value() == 12
    for damaged in (b"00000000000000000013 nonsense\n", b"garbage", path.read_bytes()[:15]):
        path.write_bytes(damaged)
        with pytest.raises(Unsafe, match="cannot be read, so that nobody is let in"):
            mark.admit(99)
    mark.reset(50)
    mark.admit(50)
    with pytest.raises(StaleToken):
        mark.admit(49)


def test_mark_is_raised_before_anything_is_done_under_it(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "mark")
    with pytest.raises(ValueError, match="mine"), mark.admitted(5):
        raise ValueError("mine")
    with pytest.raises(StaleToken):
        mark.admit(4)


def test_mark_one_at_a_time_and_not_for_ever(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "mark", wait_ms=50)
    with mark.admitted(5), pytest.raises(InUse, match="locked by another process for 50 ms"):
        mark.admit(6)
    mark.admit(6)


def test_mark_never_goes_back_among_threads(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "mark", wait_ms=60_000)
    admitted: list[int] = []

    def part(tokens: range) -> None:
        for token in tokens:
            try:
                with mark.admitted(token):
                    admitted.append(token)
            except StaleToken:
                pass

    threads = [threading.Thread(target=part, args=(range(first, 200, 4),)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted == sorted(admitted)
    assert mark.value() == 199


@pytest.mark.parametrize("wrong", [0, -1, 2**53, 1.5, "7", True, None])
def test_what_is_no_token_is_a_wrong_call(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match="a fencing token is a whole number"):
        Mark(tmp_path / "mark").admit(wrong)
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(UsageError, match="a fencing token is a whole number"),
    ):
        sql.guard(connection, "job", wrong)


# --- SQL --------------------------------------------------------------------------------------------------------------


class Database:
    """A database with the fence's table and one of the application's."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.url = f"sqlite:///{folder}/app.db" if kind == "sqlite" else servers.empty(kind)
        self.resource = str(folder / "app.db") if kind == "sqlite" else self.url
        self.opened: list[Any] = []
        if kind != "sqlite":
            server: Any = servers.server(kind)
            server.admin("DROP TABLE IF EXISTS written, primacy_fences", database="app")
        connection = self.connect()
        sql.create(connection)
        connection.cursor().execute("CREATE TABLE written (number INTEGER, token BIGINT)")
        connection.commit()

    def connect(self) -> Any:
        self.opened.append(connect(self.kind, self.resource))
        return self.opened[-1]

    def close(self) -> None:
        for connection in self.opened:
            connection.close()


@pytest.fixture(params=SQL)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    found = Database(request.param, tmp_path)
    yield found
    found.close()


def written(database: Database) -> list[int]:
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT token FROM written")
    return sorted(token for (token,) in cursor.fetchall())


def put(connection: Any, token: int) -> None:
    """As an application does it: guard, write, commit, or roll back."""
    try:
        sql.guard(connection, "job", token)
        connection.cursor().execute(f"INSERT INTO written (token) VALUES ({token})")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def test_sql_a_token_not_below_the_last_is_let_in(database: Database) -> None:
    connection = database.connect()
    for token in (5, 5, 7):
        put(connection, token)
    with pytest.raises(StaleToken) as caught:
        put(connection, 6)
    assert (caught.value.token, caught.value.mark) == (6, 7)
    put(connection, 7)
    put(connection, 2**53 - 1)
    assert written(database) == [5, 5, 7, 7, 2**53 - 1]


def test_sql_each_election_has_its_own_mark(database: Database) -> None:
    connection = database.connect()
    sql.guard(connection, "job", 9)
    sql.guard(connection, "JOB", 3)
    sql.guard(connection, "other", 1)
    connection.rollback()


def test_sql_a_rolled_back_transaction_raises_no_mark(database: Database) -> None:
    connection = database.connect()
    sql.guard(connection, "job", 9)
    connection.rollback()
    put(connection, 8)
    assert written(database) == [8]


def test_sql_transactions_of_two_holders_follow_one_another(database: Database) -> None:
    """The newer one waits for the older one's commit, and the older one's next transaction is refused."""
    old, new = database.connect(), database.connect()
    put(old, 4)
    sql.guard(old, "job", 5)
    old.cursor().execute("INSERT INTO written (token) VALUES (5)")
    done = threading.Event()
    thread = threading.Thread(target=lambda: (put(new, 6), done.set()))
    thread.start()
    assert not done.wait(0.3)
    old.commit()
    thread.join(60)
    assert done.is_set()
    with pytest.raises(StaleToken):
        put(old, 5)
    assert written(database) == [4, 5, 6]


def test_sql_two_that_come_first_at_once(database: Database) -> None:
    """There is no row yet: one of them makes it, and the mark is the larger token whoever that was."""
    refused: list[int] = []

    def part(token: int) -> None:
        connection = database.connect()
        barrier.wait()
        try:
            put(connection, token)
        except StaleToken as error:
            refused.append(error.token)

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=part, args=(token,)) for token in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted([*written(database), *refused]) == [5, 6]
    assert 6 not in refused
    with pytest.raises(StaleToken):
        put(database.connect(), 5)


def test_sql_outside_of_a_transaction_it_is_an_error(database: Database) -> None:
    connection = database.connect()
    if database.kind == "sqlite":
        connection.isolation_level = None
    elif database.kind == "postgresql":
        connection.autocommit = True
    else:
        connection.autocommit(True)
    with pytest.raises(UsageError, match="outside of a transaction"):
        sql.guard(connection, "job", 5)


def alchemy_url(database: Database) -> str:
    url = database.url
    for short, long in (
        ("postgresql:", "postgresql+psycopg:"),
        ("mariadb:", "mysql+pymysql:"),
        ("mysql:", "mysql+pymysql:"),
    ):
        if url.startswith(short):
            return url.replace(short, long, 1)
    return url


def test_sql_with_sqlalchemy(database: Database) -> None:
    alchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    engine = alchemy.create_engine(alchemy_url(database))
    try:
        with engine.begin() as connection:
            sql.create(connection)
            sql.guard(connection, "job", 5)
            connection.execute(alchemy.text("INSERT INTO written (token) VALUES (5)"))
        with Session(engine) as session, session.begin():
            sql.guard(session, "job", 6)
            session.execute(alchemy.text("INSERT INTO written (token) VALUES (6)"))
        with pytest.raises(StaleToken), engine.begin() as connection:
            sql.guard(connection, "job", 5)
        bare = engine.execution_options(isolation_level="AUTOCOMMIT")
        with bare.connect() as connection, pytest.raises(UsageError, match="outside of a transaction"):
            sql.guard(connection, "job", 7)
    finally:
        engine.dispose()
    assert written(database) == [5, 6]


def test_sql_with_asynchronous_sqlalchemy(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def body() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        async with engine.begin() as connection:
            await connection.run_sync(sql.create)
            await sql.guard_async(connection, "job", 5)
        async with AsyncSession(engine) as session, session.begin():
            await sql.guard_async(session, "job", 6)
        with pytest.raises(StaleToken):
            async with engine.begin() as connection:
                await sql.guard_async(connection, "job", 5)
        with pytest.raises(UsageError, match="AsyncConnection"):
            await sql.guard_async(engine, "job", 5)
        await engine.dispose()

    asyncio.run(body())


def test_sql_the_statements_for_other_drivers_and_what_is_not_known() -> None:
    assert "ON CONFLICT" in sql.texts("postgresql").raise_mark
    with pytest.raises(UsageError, match="no fence for 'oracle'"):
        sql.texts("oracle")
    with pytest.raises(UsageError, match="a table's name"):
        sql.texts("sqlite", "x; DROP TABLE y")
    with pytest.raises(UsageError, match=r"does not know builtins\.object"):
        sql.guard(object(), "job", 5)


# --- HTTP -------------------------------------------------------------------------------------------------------------

Ask = Callable[..., tuple[int, str]]


def ask_asgi(mark: Mark) -> Ask:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = f"let in {scope.get('primacy.token')}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    gate = TokenGate(app, mark=mark)

    def ask(method: str, *tokens: str) -> tuple[int, str]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError("nobody reads the body")

        headers = [(b"primacy-token", token.encode("latin-1")) for token in tokens]
        asyncio.run(gate({"type": "http", "method": method, "headers": headers}, receive, send))
        return sent[0]["status"], sent[1]["body"].decode()

    return ask


def ask_wsgi(mark: Mark) -> Ask:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [f"let in {environ.get('primacy.token')}".encode()]

    gate = WsgiTokenGate(app, mark=mark)

    def ask(method: str, *tokens: str) -> tuple[int, str]:
        statuses: list[str] = []
        environ = {"REQUEST_METHOD": method} | ({"HTTP_PRIMACY_TOKEN": ",".join(tokens)} if tokens else {})
        body = b"".join(gate(environ, lambda status, headers: statuses.append(status)))
        return int(statuses[0][:3]), body.decode()

    return ask


@pytest.mark.parametrize("kind", [ask_asgi, ask_wsgi])
def test_http_answers(kind: Callable[[Mark], Ask], tmp_path: Path) -> None:
    ask = kind(Mark(tmp_path / "mark", wait_ms=50))
    assert ask("POST", "5") == (200, "let in 5")
    assert ask("POST", "7") == (200, "let in 7")
    assert ask("POST", "6") == (412, "stale token 6: 7 was seen; stop\n")
    assert ask("DELETE", "7") == (200, "let in 7")
    assert ask("GET") == (200, "let in None")
    assert ask("GET", "6")[0] == 412
    assert ask("POST") == (428, "send the fencing token as Primacy-Token\n")
    for wrong in ("", "x", "-1", "0", "7.0", "9" * 17, "²", str(2**53)):
        assert ask("POST", wrong)[0] == 400, wrong
    assert ask("POST", "7", "8")[0] == 400
    (tmp_path / "mark").write_bytes(b"garbage")
    assert ask("POST", "9") == (503, "the mark of this gate was not to be had; see the log\n")


def test_http_a_gate_without_a_mark_is_told_at_once(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    gate = TokenGate(app, mark=tmp_path / "mark")
    assert isinstance(gate.mark, Mark)
    assert WsgiTokenGate(lambda *_: [], mark=str(tmp_path / "mark")).mark.path == gate.mark.path
    for wrong in (None, "", 7):
        with pytest.raises(UsageError, match="a gate needs a Mark, or the file"):
            TokenGate(app, mark=wrong)  # type: ignore[arg-type]


def test_its_parts_are_there_when_they_are_asked_for() -> None:
    code = "import sys, primacy\nassert 'primacy.fence.sql' not in sys.modules\nprimacy.fence.sql.guard\n"
    code += "primacy.fence.file.Mark, primacy.fence.http.TokenGate\nassert 'sql' in dir(primacy.fence)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="there are file, http, sql"):
        primacy.fence.ftp  # noqa: B018


def test_http_the_mark_outlives_the_server(tmp_path: Path) -> None:
    assert ask_asgi(Mark(tmp_path / "mark"))("POST", "9")[0] == 200
    assert ask_wsgi(Mark(tmp_path / "mark"))("POST", "8")[0] == 412


def test_http_websockets_need_a_token_and_the_rest_passes(tmp_path: Path) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    gate = TokenGate(app, mark=Mark(tmp_path / "mark"))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    asyncio.run(gate({"type": "websocket", "headers": []}, receive, send))
    asyncio.run(gate({"type": "websocket", "headers": [(b"Primacy-Token", b"3")]}, receive, send))
    asyncio.run(gate({"type": "lifespan"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "send the fencing token as Primacy-Token"}]
    assert seen == ["websocket", "lifespan"]


def test_a_stale_token_is_an_error_of_the_one_tree() -> None:
    assert issubclass(StaleToken, primacy.PrimacyError)
