"""A store that refuses for good is told at once, in one sentence, and ends who waits for it with exit code 4.

Real servers: no such database, no such role, a role that may no longer log in. Waiting does not help there, so nobody
waits; only a process whose store has worked before goes on trying.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy import blocking
from primacy.errors import StoreUnusable
from tests.support.canary import Canary
from tests.support.servers import MariaDb, Postgres, empty, server, wait_for

pytestmark = pytest.mark.beside(order=530)

SOON_S = 20.0
"""Far below what waiting would take, far above what a busy machine needs for one connection."""
CANARY_MS = 1_000


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    with Canary(CANARY_MS) as canary:
        began_s = time.monotonic()
        yield
        took_s = time.monotonic() - began_s
    canary.judge(took_s < SOON_S, f"it took {took_s:.1f} s")


def another_database(kind: str) -> str:
    """The address of a database that is not there."""
    return empty(kind).rpartition("/")[0] + "/nowhere"


KINDS = [pytest.param(one.kind, marks=pytest.mark.skipif(bool(one.missing()), reason=one.missing() or "here"))
         for one in (Postgres, MariaDb)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_run_ends_with_4_and_a_sentence(kind: str, tmp_path: Path) -> None:
    where = another_database(kind)  # which may start the server
    state = ["--state-dir", str(tmp_path / "state")]
    command = [
        sys.executable,
        "-m",
        "primacy.cli.main",
        "run",
        "--store",
        where,
        *state,
        "--",
        "sleep",
    ]
    with at_once():
        done = subprocess.run([*command, "60"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "nowhere" in last
    assert "Traceback" not in done.stderr
    assert "('" not in done.stderr, "no driver's tuple"


async def _lock(url: str) -> None:
    async with primacy.Lock("fresh", store=url):
        raise AssertionError("there is no such store")


async def _election(url: str) -> None:
    async with primacy.Election("fresh", store=url) as election:
        async for _ in election:
            raise AssertionError("there is no such store")


async def _once(url: str) -> None:
    @primacy.once("fresh", store=url)
    async def work() -> None:
        raise AssertionError("there is no such store")

    await work()


def _blocking_lock(url: str) -> None:
    with blocking.Lock("fresh", store=url):
        raise AssertionError("there is no such store")


def _blocking_once(url: str) -> None:
    @primacy.once("fresh", store=url)
    def work() -> None:
        raise AssertionError("there is no such store")

    work()


def _call(use: Callable[[str], Any], url: str) -> None:
    found = use(url)
    if asyncio.iscoroutine(found):
        asyncio.run(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", [_lock, _election, _once, _blocking_lock, _blocking_once])
def test_the_library_raises_at_once(kind: str, use: Callable[[str], Any]) -> None:
    where = another_database(kind)  # which may start the server
    with at_once(), pytest.raises(StoreUnusable, match="nowhere") as caught:
        _call(use, where)
    assert caught.value.exit_code == 4
    assert "('" not in str(caught.value)


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
