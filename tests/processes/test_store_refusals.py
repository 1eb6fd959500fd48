"""A store that refuses for good is told at once, in one sentence, and ends who waits for it with exit code 4.

Real servers, each asked by `primacy run` and by the library: a wrong password or none, rights that are missing, TLS
that is refused, no such database. Waiting does not help there, so nobody waits; only a process whose store has worked
before goes on trying.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import primacy
from primacy import blocking
from primacy.errors import StoreUnusable
from primacy.settings.timing import PROFILES
from tests.support.canary import Canary
from tests.support.servers import KINDS, Etcd, MariaDb, Postgres, Redis, empty, server, wait_for
from tests.support.store_harness import made_new

pytestmark = pytest.mark.beside(order=530)

PROFILE = "wan"
SOON_S = PROFILES[PROFILE].hold_ms / 2_000
"""Half a hold. Far below what waiting would take, far above what a busy machine needs for one connection."""
WITHIN_S = 60
"""One who waits for ever is not waited for."""
CANARY_MS = 1_000
NOISE = re.compile(
    r"""\(b?['"] | \(\d+, | \b(?:42501|28P01|28000|3D000|1044|1045|1049|1142)\b | SQLSTATE | Traceback |
    guessed | hidden""",
    re.VERBOSE,
)
"""What no user may see: tuples and codes of drivers, the program's own lines, passwords."""


class Case(NamedTuple):
    """A store that will not have us before somebody changes something."""

    kind: str
    where: str
    """Its address, but for the host's name and port."""
    sentence: str
    """What is wrong."""
    remedy: str
    is_slow: bool = False
    """It is noticed only once an answer is overdue."""


CASES = {
    "postgresql, wrong password": Case(
        "postgresql", "postgresql://locked:guessed@{}/app", "password authentication failed",
        "change the user or the password in the address",
    ),
    "postgresql, no rights": Case(
        "postgresql", "postgresql://rightless@{}/app", "permission denied for table primacy_leases",
        "an administrator can run what `primacy lease schema` prints",
    ),
    "postgresql, no TLS": Case(
        "postgresql", "postgresql://app@{}/app?sslmode=require", "server does not support SSL",
        "TLS is refused: check sslmode",
    ),
    "postgresql, no such database": Case(
        "postgresql", "postgresql://app@{}/nowhere", 'database "nowhere" does not exist', "make the database",
    ),
    "mariadb, wrong password": Case(
        "mariadb", "mariadb://app:guessed@{}/app", "Access denied for user", "change the user or the password",
    ),
    "mariadb, no rights": Case(
        "mariadb", "mariadb://rightless:hidden@{}/app", "SELECT command denied",
        "an administrator can run what `primacy lease schema` prints",
    ),
    "mariadb, no TLS": Case(
        "mariadb", f"mariadb://app:secret%20word@{{}}/app?ssl_ca={ssl.get_default_verify_paths().openssl_cafile}",
        "SSL", "TLS is refused: check ssl_ca",
    ),
    "mariadb, no such database": Case(
        "mariadb", "mariadb://rightless:hidden@{}/nowhere", "Unknown database 'nowhere'", "make the database",
    ),
    "etcd, wrong password": Case(
        "etcd", "etcd://app:guessed@{}", "invalid user ID or password", "correct the user or the password",
    ),
    "etcd, no user": Case("etcd", "etcd://{}", "user name is empty", "etcd://user:password@host"),
    "etcd, no rights": Case(
        "etcd", "etcd://rightless:hidden@{}", "permission denied", "`primacy lease schema --store etcd://…` prints",
    ),
    "etcd, no TLS": Case(
        "etcd", "etcds://app:hidden@{}", "TLS is refused: it speaks plain HTTP only", "give it a certificate",
    ),
    "redis, wrong password": Case(
        "redis", "redis://app:guessed@{}/0", "WRONGPASS", "correct the user or the password in the address",
    ),
    "redis, no password": Case("redis", "redis://{}/0", "", "this server asks for a password"),
    "redis, no password, another database": Case(
        "redis", "redis://{}/1", "NOAUTH", "this server asks for a password",
    ),
    "redis, no TLS": Case(
        "redis", "rediss://app:hidden@{}/0", "TLS is refused: it speaks plain text only", "give it a certificate",
        is_slow=True,
    ),
    "redis, no rights": Case(
        "redis", "redis://rightless:hidden@{}/0", "NOPERM", "`primacy lease schema --store redis://…` prints",
    ),
}  # fmt: skip


# --- the servers ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _postgresql() -> Iterator[int]:
    """The shared one, where `locked` needs a password and `rightless` may do nothing."""
    made_new(empty("postgresql"))
    found = server("postgresql")
    assert isinstance(found, Postgres)
    found.admin("CREATE ROLE locked LOGIN PASSWORD 'hidden'", "CREATE ROLE rightless LOGIN")
    rules = found.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
    found.admin("SELECT pg_reload_conf()")

    def is_locked() -> bool:
        try:
            psycopg.connect(f"postgresql://locked@127.0.0.1:{found.port}/app").close()
        except psycopg.OperationalError:
            return True
        return False

    wait_for(is_locked, "the server to ask for passwords", found)
    try:
        yield found.port
    finally:
        rules.write_text(before)
        found.admin("SELECT pg_reload_conf()", "DROP ROLE locked", "DROP ROLE rightless")


@contextlib.contextmanager
def _mariadb() -> Iterator[int]:
    """The shared one, where `rightless` may read another table only."""
    made_new(empty("mariadb"))
    found = server("mariadb")
    assert isinstance(found, MariaDb)
    user = "rightless@'%'"
    found.admin(
        f"CREATE USER {user} IDENTIFIED BY 'hidden'", "CREATE TABLE app.another (x INT)",
        f"GRANT SELECT ON app.another TO {user}", f"GRANT SELECT ON nowhere.* TO {user}",
    )  # fmt: skip
    try:
        yield found.port
    finally:
        found.admin(f"DROP USER {user}", "DROP TABLE app.another")


@contextlib.contextmanager
def _etcd() -> Iterator[int]:
    """One that asks who one is; `app` may do all, `rightless` nothing."""
    found = Etcd()
    found.prepare()
    found.start()
    try:
        for path, body in (
            ("auth/user/add", {"name": "root", "password": "hidden"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/user/add", {"name": "app", "password": "hidden"}),
            ("auth/user/grant", {"user": "app", "role": "root"}),
            ("auth/user/add", {"name": "rightless", "password": "hidden"}),
            ("auth/enable", {}),
        ):
            found.post(path, body)
        yield found.port
    finally:
        found.remove()


@contextlib.contextmanager
def _redis() -> Iterator[int]:
    """One that asks who one is; `app` may do all, `rightless` next to nothing."""
    found = Redis()
    found.start()
    try:
        found.admin("ACL", "SETUSER", "app", "on", ">hidden", "~*", "&*", "+@all")
        found.admin("ACL", "SETUSER", "rightless", "on", ">hidden", "~*", "+info")
        found.admin("CONFIG", "SET", "requirepass", "hidden")
        yield found.port
    finally:
        found.remove()


MADE = {"postgresql": _postgresql, "mariadb": _mariadb, "etcd": _etcd, "redis": _redis}


@pytest.fixture(scope="module")
def ports() -> Iterator[Callable[[str], int]]:
    """Of the servers, each made when it is first asked for."""
    found: dict[str, int] = {}
    with contextlib.ExitStack() as stack:

        def port(kind: str) -> int:
            if reason := KINDS[kind].missing():
                pytest.skip(reason)
            if kind not in found:
                found[kind] = stack.enter_context(MADE[kind]())
            return found[kind]

        yield port


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, ports: Callable[[str], int]) -> Case:
    found: Case = CASES[request.param]
    return found._replace(where=found.where.format(f"127.0.0.1:{ports(found.kind)}"))


# --- who is told ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def at_once(what: str) -> Iterator[None]:
    with Canary(CANARY_MS) as canary:
        began_s = time.monotonic()
        yield
        took_s = time.monotonic() - began_s
    canary.judge(took_s < SOON_S, f"{what} took {took_s:.1f} s")


def judge(case: Case, told: str, everything: str) -> None:
    """One sentence for people: what is wrong, and what to do."""
    assert case.sentence in told, told
    assert case.remedy in told, told
    assert "at 127.0.0.1:" in told, told
    assert not NOISE.search(everything), everything


def test_run_ends_with_4_and_a_sentence(case: Case, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "primacy.cli.main", "run", "--store", case.where, "--profile", PROFILE]
    command += ["--state-dir", str(tmp_path / "state"), "--", "touch", str(tmp_path / "ran")]
    said: list[str] = []
    with Canary(CANARY_MS) as canary, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        limit = threading.Timer(WITHIN_S, process.kill)
        limit.start()
        began_s = 0.0  # to start a process takes its time; what is judged begins with the first request
        for line in process.stderr:
            said.append(line)
            began_s = began_s or time.monotonic() * ("campaigns for the lease" in line)
        limit.cancel()
        assert process.wait(WITHIN_S) == 4, said
        took_s = time.monotonic() - began_s
    assert began_s, said
    judge(case, said[-1], "".join(said))
    canary.judge(took_s < SOON_S, f"run took {took_s:.1f} s")
    assert not (tmp_path / "ran").exists()


async def _lock(url: str) -> None:
    async with primacy.Lock("fresh", store=url, profile=PROFILE):
        raise AssertionError("there is no such store")


async def _election(url: str) -> None:
    async with primacy.Election("fresh", store=url, profile=PROFILE) as election:
        async for _ in election:
            raise AssertionError("there is no such store")


async def _once(url: str) -> None:
    @primacy.once("fresh", store=url, profile=PROFILE)
    async def work() -> None:
        raise AssertionError("there is no such store")

    await work()


def _blocking_lock(url: str) -> None:
    with blocking.Lock("fresh", store=url, profile=PROFILE, within_ms=WITHIN_S * 1_000):
        raise AssertionError("there is no such store")


def _blocking_once(url: str) -> None:
    @primacy.once("fresh", store=url, profile=PROFILE)
    def work() -> None:
        raise AssertionError("there is no such store")

    work()


async def _bounded(found: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(WITHIN_S):
        await found


def _call(use: Callable[[str], Any], url: str) -> None:
    found = use(url)
    if asyncio.iscoroutine(found):
        asyncio.run(_bounded(found))


USES = (_lock, _election, _once, _blocking_lock, _blocking_once)


def test_the_library_raises_at_once(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "primacy")
    for use in USES[:1] if case.is_slow else USES:
        with at_once(use.__name__), pytest.raises(StoreUnusable) as caught:
            _call(use, case.where)
        assert caught.value.exit_code == 4
        judge(case, str(caught.value), f"{caught.value}\n{caplog.text}")


@pytest.mark.skipif(bool(Postgres.missing()), reason=Postgres.missing() or "here")
def test_who_has_worked_before_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A role loses its right to log in, and gets it back: the process needs no restart."""
    url, running = empty("postgresql"), server(Postgres.kind)
    assert isinstance(running, Postgres)
    caplog.set_level(logging.INFO, "primacy")
    with blocking.Election("job", store=url, profile="fast") as election:
        assert election.acquire(30_000) is not None
        try:
            running.admin(
                "ALTER ROLE app NOLOGIN",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'",
            )
            wait_for(lambda: "not permitted to log in" in caplog.text, "the refusal to be told")
            assert election.acquire(500) is None, "it waits, and does not raise"
        finally:
            running.admin("ALTER ROLE app LOGIN")
        assert election.acquire(60_000) is not None
