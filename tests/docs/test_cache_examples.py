"""The examples of `@cached`, run as they stand with the real packages on real peers: each result is computed once."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.test_examples import EXAMPLES, WITHIN_S, Start, get, need, until
from tests.support.cache_served_peers import Served
from tests.support.servers import free_port

pytestmark = pytest.mark.beside(order=460)

CANARY_HEARTBEAT_MS = 100
"""Whoever gets no answer in time computes by itself: that one does it for all is asked of a machine that lets peers
answer."""
PAGE = (EXAMPLES.parent / "docs" / "cache.md").read_text()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as three:
        yield three


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Start]:
    found = Start(tmp_path)
    yield found
    found.end()


def test_fastapi_workers_compute_a_rate_once(begin: Start, served: Served) -> None:
    need("fastapi", "uvicorn")
    ports = [free_port() for _ in range(2)]
    programs = [
        begin(
            sys.executable,
            "-m",
            "uvicorn",
            "cached_fastapi:app",
            "--port",
            str(port),
            PRIMACY_CACHE=",".join(served.apis),
        )
        for port in ports
    ]
    for port in ports:
        until(lambda port=port: get(port, "/openapi.json"), "a worker that answers", *programs)
    with ThreadPoolExecutor(8) as pool:
        rates = list(pool.map(lambda port: get(port, "/rates/EUR"), ports * 4))
    assert {found["rate"] for found in rates if found is not None} == {3.75}
    assert len([found for found in rates if found is not None]) == 8
    last = [get(port, "/rates/EUR") for port in ports]
    assert sum(found["computed"] for found in last if found is not None) == 1
    for program in programs:
        program.ends()


def test_django_commands_compute_a_rate_once(begin: Start, served: Served) -> None:
    need("django")
    log = begin.folder / "computed.log"
    programs = [
        begin(
            sys.executable,
            "manage.py",
            "show_rate",
            "EUR",
            cwd=EXAMPLES / "django_site",
            PRIMACY_CACHE=",".join(served.apis),
            LOG_FILE=str(log),
            SITE_FOLDER=str(begin.folder),
        )
        for _ in range(3)
    ]
    for program in programs:
        assert program.child.wait(WITHIN_S) == 0, program.log.read_text()
        assert program.says("EUR: 3.75")
    assert len(log.read_text().splitlines()) == 1


def test_celery_workers_compute_a_report_once(begin: Start, served: Served) -> None:
    need("celery")
    log, broker = begin.folder / "computed.log", begin.folder / "broker"
    more = {
        "PRIMACY_CACHE": ",".join(served.apis),
        "LOG_FILE": str(log),
        "BROKER_FOLDER": str(broker),
        "PYTHONPATH": str(EXAMPLES),
    }
    worker = begin(
        sys.executable,
        "-m",
        "celery",
        "-A",
        "cached_celery",
        "worker",
        "-c",
        "2",
        "-l",
        "info",
        cwd=begin.folder,
        **more,
    )
    until(lambda: worker.says("ready"), "a worker that is ready", worker)
    program = (
        "from cached_celery import send_report\n"
        "results = [send_report.delay('May', to) for to in ('ann', 'bob', 'eve')]\n"
        "print(sorted(result.get(timeout=50) for result in results))"
    )
    asked = begin(sys.executable, "-c", program, cwd=begin.folder, **more)
    assert asked.child.wait(WITHIN_S) == 0, asked.log.read_text() + worker.log.read_text()
    assert asked.says(re.escape("['ann: report of May', 'bob: report of May', 'eve: report of May']"))
    assert len(log.read_text().splitlines()) == 1
    worker.ends()


def test_the_programs_on_the_page_can_be_read() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        ast.parse("async def body():\n" + re.sub("^", "    ", block, flags=re.MULTILINE))
