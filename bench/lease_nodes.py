"""Three agents of `primacy run` that meet in a store only, and the servers under them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pymysql
from tests.support import servers
from tests.support.store_harness import made_new

from bench import processes
from bench.nodes import NAMES, Nodes
from bench.watch import Doorbell, Line, Watch, rings
from primacy.control.client import ask, find
from primacy.settings.timing import PROFILES, for_lease

LEADS = re.compile(r"\bleads \(token \d+\)")
NOTIFY = ("postgresql", "etcd")
"""Stores that tell of every change."""
RELEASES = ("sqlite", "mariadb")
"""Stores that tell of a release only."""
QUIET_S = 0.05
"""Before each bare trip. A release comes out of quiet as well; on a warm line a question takes a third."""
ALL_STAND_S = 0.005
"""Until all threads of a process that was stopped stand."""
FILE_FREE_S = 0.05
"""How long others write to a SQLite file at most."""
STORES = ("sqlite", "postgresql", "mariadb", "etcd")


class Trips(NamedTuple):
    """Bare round trips on one connection, in milliseconds: a question, and a committed write."""

    asks: list[float]
    """Each after a moment of quiet."""
    writes: list[float]
    warm_asks: list[float]
    """One right after the other."""
    warm_writes: list[float]


class Place:
    """An empty store, with a server of its own if it has one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.server: servers.Server | None = None
        self.file = folder / "bench.db"
        if kind != "sqlite":
            self.server = servers.KINDS[kind]()
            self.server.prepare()
            self.server.start()
            if isinstance(self.server, servers.Etcd):
                self.server.age()
        made_new(self.url)

    @property
    def url(self) -> str:
        return self.server.url() if self.server is not None else f"sqlite:///{self.file}"

    def end(self) -> None:
        if self.server is not None:
            self.server.remove()

    def trips_ms(self, count: int = 50) -> Trips:
        ask_, write, close = self._bare()
        try:
            write(), ask_()
            return Trips(*([timed_ms(one, s) for _ in range(count)] for s in (QUIET_S, 0.0) for one in (ask_, write)))
        finally:
            close()

    def _bare(self) -> tuple[Any, Any, Any]:
        if isinstance(self.server, servers.Etcd):
            line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)

            def post(path: str, body: dict[str, str]) -> None:
                line.request("POST", path, json.dumps(body))
                line.getresponse().read()

            return (
                lambda: post("/v3/kv/range", {"key": "YmVuY2g="}),
                lambda: post("/v3/kv/put", {"key": "YmVuY2g=", "value": "MQ=="}),
                line.close,
            )
        if self.kind == "sqlite":
            lite = sqlite3.connect(self.file, isolation_level=None)
            lite.execute("PRAGMA synchronous=FULL")
            run: Any = lite.execute
            close: Any = lite.close
        elif isinstance(self.server, servers.Postgres):
            pg = psycopg.connect(self.url, autocommit=True)
            run, close = pg.execute, pg.close
        else:
            assert self.server is not None
            my = pymysql.connect(
                host="127.0.0.1",
                port=self.server.port,
                user="app",
                password="secret word",
                database="app",
                autocommit=True,
            )
            run, close = my.cursor().execute, my.close
        run("CREATE TABLE IF NOT EXISTS bare (n BIGINT)")
        run("INSERT INTO bare VALUES (0)")
        return lambda: run("SELECT 1"), lambda: run("UPDATE bare SET n = n + 1"), close

    @property
    def pid(self) -> int:
        """Of the server; 0 if there is none."""
        return self.server.process.pid if self.server is not None and self.server.process is not None else 0

    def statements(self) -> int | None:
        """What the server itself has counted so far; None if it does not."""
        if isinstance(self.server, servers.Postgres):
            found = self.server.admin("SELECT xact_commit FROM pg_stat_database WHERE datname = 'app'")
            return int(found[0][0])
        if isinstance(self.server, servers.MariaDb):
            return int(self.server.admin("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])
        return None


def timed_ms(call: Any, quiet_s: float) -> float:
    time.sleep(quiet_s)
    began_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began_ns) / 1e6


class LeaseNodes(Nodes):
    """A cluster without a list."""

    def __init__(self, watch: Watch, bell: Doorbell, folder: Path, profile: str, place: Place) -> None:
        self.watch = watch
        self.name = f"lease-{place.kind}-{profile}"
        self.timing = for_lease(PROFILES[profile])
        self.folder = folder / self.name
        self.folder.mkdir()
        (self.folder / "primacy.yaml").write_text(
            f"cluster: {{name: bench}}\nelection:\n  strategy: lease\n  profile: {profile}\n"
            f'  store: {{url: "{place.url}"}}\nrun: {{stop_ms: 1000}}\n'
        )
        self._place = place
        self._command = bell.command(self.name)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self.runs_on = ""

    def elected(self, line: Line) -> bool:
        return line.source.startswith(f"{self.name}-") and bool(LEADS.search(line.text))

    def catch_up(self) -> None:
        """Who runs the command now: on a busy machine a store may have been too slow for somebody meanwhile."""
        self.watch.pump()
        rang = rings(self.name)
        self.note(next(line for line in reversed(self.watch.lines) if rang(line)))

    def freeze(self, node: str) -> tuple[list[int], int]:
        """Agent and everything of it but the command: nobody of ours is awake. The kernel ends the command.

        Returns who stands, and since when. One that stands in the middle of a write to a SQLite file keeps the file,
        and nobody leads before it goes on (docs/leases.md): it is let go, and stopped again a moment later.
        """
        pids = [self.agents[node].pid, *processes.children(self.agents[node].pid)]
        while True:
            began_ns = time.monotonic_ns()
            for pid in pids:
                processes.signal_to(pid, signal.SIGSTOP)
            self.watch.rest(ALL_STAND_S)
            if not self._file_locked():
                return pids, began_ns
            for pid in pids:
                processes.signal_to(pid, signal.SIGCONT)
            self.watch.rest(ALL_STAND_S)

    def _file_locked(self) -> bool:
        """By the one that stands; the others keep it for a moment only."""
        if self._place.server is not None:
            return False
        with contextlib.closing(sqlite3.connect(self._place.file, timeout=FILE_FREE_S)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.rollback()
            except sqlite3.OperationalError:
                return True
        return False

    def counted(self) -> int:
        """Requests that all nodes have sent to the store."""
        total = 0
        for node in NAMES:
            found = find(str(self.folder / node / "bench" / "main"))
            assert found is not None, f"{self.name}-{node} says nowhere where it listens"
            total += ask(found, "/v1/state")["counters"]["store_performed"]
        return total
