"""The examples, run as they stand, with the real packages: two processes of each, of which one works.

The packages are the group `examples` of pyproject.toml.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.settings.timing import PROFILES
from tests.support.holder_harness import BETWEEN_STOPS_S, locked
from tests.support.programs import EXAMPLES, WITHIN_S, Program, Start, need, until
from tests.support.safety_checks import safe, tokens_grow
from tests.support.servers import free_port, stop_whole

pytestmark = pytest.mark.beside(order=120)

SIGTERM_CODE = 128 + signal.SIGTERM
"""A program that has no handler of its own ends in order, and says so (docs/library.md)."""
RELEASED_S = PROFILES["wan"].hold_ms / 1_000
"""Under the profile `wan` a successor that comes sooner was let in by a release; else it waits for the hold."""
CANARY_HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
"""That the one which works goes on is asked of a machine that lets it run."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    found = Start(tmp_path)
    yield found
    found.end()


def stop_outside_of_a_write(program: Program, *databases: Path) -> None:
    """Inside of one it would keep SQLite's file locked."""
    stop_whole(program.child.pid)
    while any(locked(database) for database in databases):
        program.child.send_signal(signal.SIGCONT)
        time.sleep(BETWEEN_STOPS_S)
        stop_whole(program.child.pid)


def get(port: int, path: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    with contextlib.suppress(OSError), contextlib.closing(connection):
        connection.request("GET", path)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    return None


def test_fastapi_one_worker_builds_and_another_goes_on(start: Start) -> None:
    need("fastapi", "uvicorn")
    ports = [free_port(), free_port()]
    workers = {
        port: start(sys.executable, "-m", "uvicorn", "fastapi_lifespan:app", "--port", str(port), PROFILE="wan")
        for port in ports
    }

    def builds(port: int) -> bool:
        found = get(port, "/reports")
        return bool(found and found["role"] == "leader" and found["built"])

    leader = until(lambda: next((p for p in ports if builds(p)), None), "a report", *workers.values())
    (other,) = set(ports) - {leader}

    def names_a_leader() -> dict[str, Any] | None:
        found = get(other, "/reports")
        return found if found and found["leader"] else None

    seen = until(names_a_leader, "the leader's name", *workers.values())
    assert seen["built"] == 0
    assert seen["role"] == "follower"
    assert seen["leader"].endswith(f":{workers[leader].child.pid}")
    assert workers[leader].ends() in (0, -signal.SIGTERM), "uvicorn ends in order, then as the signal would have"
    ended_s = time.monotonic()
    until(lambda: builds(other), "the other one's report", workers[other])
    assert time.monotonic() - ended_s < RELEASED_S, "the lease was released"


def test_apscheduler_once_one_of_all_schedulers_runs_the_job(start: Start) -> None:
    need("apscheduler")
    programs = [start(sys.executable, "apscheduler_once.py", EVERY_S="1") for _ in range(2)]
    pattern = r"(\d+) reports under token (\d+)"

    def runs() -> list[tuple[str, str]]:
        return [found for program in programs for found in program.says(pattern)]  # type: ignore[misc]

    until(lambda: len(runs()) >= 4, "four reports", *programs)
    began_s, before = time.monotonic(), len(runs())
    until(lambda: time.monotonic() - began_s > 3.5, "three and a half seconds")
    came, took_s = len(runs()) - before, time.monotonic() - began_s
    assert came <= took_s + 1.5, "one per second, not one per second and process"
    tokens = [int(token) for _, token in runs()]
    safe(len(set(tokens)) == len(tokens), f"a token twice: {tokens}")


def test_apscheduler_once_a_process_that_ends_holds_nothing_up(start: Start) -> None:
    """SIGTERM behind its run, while the lease is kept for `lock_at_least_ms`: it is released then, and not kept for the
    whole hold."""
    need("apscheduler")
    programs = [start(sys.executable, "apscheduler_once.py", EVERY_S="1", PROFILE="wan") for _ in range(2)]

    def runs(program: Program) -> int:
        return len(program.says(r"reports under token \d+"))

    until(lambda: sum(map(runs, programs)) >= 2, "two runs", *programs)
    before = {program: runs(program) for program in programs}
    ran = until(lambda: next((p for p in programs if runs(p) > before[p]), None), "a run", *programs)
    (other,) = (program for program in programs if program is not ran)
    seen = runs(other)
    assert ran.ends() == SIGTERM_CODE
    ended_s = time.monotonic()
    until(lambda: runs(other) > seen, "the other one's run", other)
    assert time.monotonic() - ended_s < RELEASED_S, "the lease was released"
    assert other.ends(signal.SIGINT) == 130


def test_apscheduler_leader_only_the_leader_has_a_scheduler(start: Start) -> None:
    need("apscheduler")
    programs = [start(sys.executable, "apscheduler_leader.py", EVERY_S="0.1", PROFILE="wan") for _ in range(2)]
    pattern = r"ticks under token (\d+)"
    leader = until(lambda: next((p for p in programs if len(p.says(pattern)) > 5), None), "ticks", *programs)
    (other,) = (program for program in programs if program is not leader)
    assert not other.says(pattern)
    assert leader.ends() == SIGTERM_CODE
    ended_s = time.monotonic()
    until(lambda: other.says(pattern), "the other one's ticks", other)
    assert time.monotonic() - ended_s < RELEASED_S, "the lease was released"
    assert other.ends(signal.SIGINT) == 130
    tokens_grow([int(leader.says(pattern)[-1]), int(other.says(pattern)[0])])


def test_django_the_command_works_on_one_machine_at_a_time_and_is_fenced(start: Start) -> None:
    need("django")
    site, folder = EXAMPLES / "django_site", start.folder

    def manage(*arguments: str, profile: str = "fast") -> Program:
        return start(sys.executable, "manage.py", *arguments, cwd=site, SITE_FOLDER=str(folder), PROFILE=profile)

    migrated = manage("migrate", "-v0")
    assert migrated.child.wait(WITHIN_S) == 0, migrated.log.read_text()
    first, second = manage("build_reports", profile="wan"), manage("build_reports", profile="wan")
    pair = (first, second)
    builds = until(lambda: next((p for p in pair if p.says(r"report \d+ under")), None), "the first reports", *pair)
    (waits,) = set(pair) - {builds}
    assert builds.ends() == SIGTERM_CODE, builds.log.read_text()
    ended_s = time.monotonic()
    until(lambda: waits.says(r"report \d+ under"), "the other one's reports", *pair)
    assert time.monotonic() - ended_s < RELEASED_S, "the lease was released"
    assert waits.ends() == SIGTERM_CODE, waits.log.read_text()
    old, new = manage("build_reports"), None
    until(lambda: len(old.says(r"report \d+ under")) > 3, "reports", old)
    new = manage("build_reports", "--reports", "5")
    stop_outside_of_a_write(old, folder / "site.db", folder / "leases.db")
    until(lambda: new.says(r"report 5 under"), "the new one's reports", new)
    old.child.send_signal(signal.SIGCONT)
    assert new.child.wait(WITHIN_S) == 0
    with contextlib.closing(sqlite3.connect(folder / "site.db")) as connection:
        rows = connection.execute("SELECT token, pid FROM reports_report ORDER BY id").fetchall()
    tokens = [token for token, _ in rows]
    safe(tokens == sorted(tokens), f"the fence let an older token through: {tokens}")
    assert {pid for _, pid in rows} == {*(program.child.pid for program in (*pair, old, new))}


def test_celery_beat_under_primacy_run(start: Start) -> None:
    need("celery")
    folder, broker = start.folder, start.folder / "broker"
    beat = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "celery_beat",
        "beat",
        "-l",
        "info",
        "--schedule",
        str(folder / "beat"),
    ]
    times = ["--profile", "wan"]  # in a quicker one, a stall of seconds makes it the second one's turn
    command = [sys.executable, "-m", "primacy.cli.main", "run", *times, "--state-dir", str(folder / "state"), "--"]
    more = {"BROKER_FOLDER": str(broker), "EVERY_S": "0.2", "PYTHONPATH": str(EXAMPLES)}
    first = start(*command, *beat, cwd=folder, **more)
    until(lambda: first.says("Sending due task report"), "the first task", first)
    second = start(*command, *beat, cwd=folder, **more)
    until(lambda: second.says("waits|holds|another"), "a second one that waits", second)
    safe(not second.says("beat: Starting"), "the second one starts while the first one runs")
    first.ends()
    until(lambda: second.says("Sending due task report"), "the second one's task", second)
    second.ends()
    assert list(broker.glob("*.msg"))
