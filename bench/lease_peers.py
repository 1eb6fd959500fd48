"""What databases offer themselves: PostgreSQL's advisory locks and MariaDB's GET_LOCK, held by a session.

The lock lasts as long as the connection. A holder that stands still keeps it for ever, and what it was doing may go on
beside a successor once the connection is cut: there is neither a hold nor a token.

    python -m bench.lease_peers URL NAME BELL        waits for the lock, rings, and holds it until it is killed
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pymysql

from bench import processes
from bench.watch import Watch, rings
from primacy.store.url import mysql_options

LONG_S = 3_600


class SessionLocks:
    """Two processes of which one holds the lock and the other waits for it."""

    def __init__(self, watch: Watch, folder: Path, kind: str, url: str, bell: Path) -> None:
        self.watch, self.folder, self.url, self.bell = watch, folder, url, bell
        self.name = f"session-{kind}"
        self.all: list[subprocess.Popen[bytes]] = []
        self.holder = self.waiter = self._start()
        watch.until(rings(self.name), 0, f"the first holder of {self.name}")
        self.waiter = self._start()
        watch.rest(0.5)

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "bench.lease_peers", self.url, self.name, str(self.bell)]
        process = processes.start(self.watch, self.name, argv, Path.cwd())
        self.all.append(process)
        return process

    def killed_ms(self) -> float:
        """The server sees the connection end."""
        since, began_ns = len(self.watch.lines), time.monotonic_ns()
        self.holder.kill()
        rang = self.watch.until(rings(self.name), since, f"the next holder of {self.name}")
        self.holder, self.waiter = self.waiter, self._start()
        self.watch.rest(0.5)
        return (rang.at_ns - began_ns) / 1e6

    def frozen_ms(self, within_s: float) -> float | None:
        """None: nobody else got it in this time."""
        since, began_ns = len(self.watch.lines), time.monotonic_ns()
        processes.signal_to(self.holder.pid, signal.SIGSTOP)
        try:
            rang = self.watch.until(rings(self.name), since, "never", within_s)
        except TimeoutError:
            return None
        finally:
            processes.signal_to(self.holder.pid, signal.SIGCONT)
        return (rang.at_ns - began_ns) / 1e6

    def end(self) -> None:
        processes.end(self.all)


def hold(url: str, name: str, bell: str) -> None:
    if url.startswith("postgresql"):
        connection = psycopg.connect(url, autocommit=True)
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (name,))
    else:
        with pymysql.connect(**mysql_options(url)).cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, %s)", (name, LONG_S))
            ring(bell, name)
            time.sleep(LONG_S)
    ring(bell, name)
    time.sleep(LONG_S)


def ring(bell: str, name: str) -> None:
    with open(bell, "w", encoding="ascii") as file:
        file.write(f"ring {name} x\n")


if __name__ == "__main__":
    hold(*sys.argv[1:])
