"""Holders in processes of their own (`tests/support/holder_process.py`): started, listened to, stopped, and ended with
the test.

When they end they are judged by all that they said, whatever came of the test: one at a time, under tokens that grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.safety_checks import safe, tokens_grow
from tests.support.servers import stop_whole
from tests.support.store_harness import made_new

ROOT = Path(__file__).parents[2]
WITHIN_S = 60
BETWEEN_STOPS_S = 0.1


class Process:
    """One holder. Lines are read by a thread, so that waiting for one has a limit."""

    def __init__(self, leases: Path, *arguments: str, watches: int = 0, under: tuple[str, ...] = ()) -> None:
        """`under`: what stands in front of its command (`earlier_version.py`)."""
        self._leases = leases
        environment = {**os.environ, "HOLDER_WATCHES": str(watches or "")}
        self.child = subprocess.Popen(
            [*under, sys.executable, "-m", "tests.support.holder_process", *arguments],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        self.said: list[dict[str, Any]] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def hear(self, word: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """The next line that says this."""
        end = time.monotonic() + within_s
        while True:
            line = self._lines.get(timeout=max(0.001, end - time.monotonic()))
            assert line, f"it ended with {self.child.wait()} and never said {word}: {self.said[-5:]}"
            self.said.append(json.loads(line))
            if self.said[-1]["is"] == word:
                return self.said[-1]

    def heard(self, word: str) -> bool:
        """Whether it has said this by now; waits for nothing."""
        self._take()
        return bool(self.words(word))

    def _take(self) -> None:
        """What it has said by now."""
        while not self._lines.empty():
            if line := self._lines.get():
                self.said.append(json.loads(line))

    def rest(self) -> list[dict[str, Any]]:
        """Everything that it says until it ends."""
        while line := self._lines.get(timeout=WITHIN_S):
            self.said.append(json.loads(line))
        return self.said

    def words(self, word: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line["is"] == word]

    def stop(self) -> None:
        """Not in the middle of a write: there it would keep SQLite's file locked, and nobody could follow it.

        Between two tries it has time to renew: one that is stopped for most of the time loses its hold meanwhile.
        """
        while True:
            stop_whole(self.child.pid)
            if not self._leases.exists() or not locked(self._leases):
                return
            self.go_on()
            time.sleep(BETWEEN_STOPS_S)

    def go_on(self) -> None:
        self.child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.child.kill()

    def terminate(self) -> None:
        self.child.terminate()

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        assert self.child.stdout is not None
        self.child.stdout.close()
        self._take()


class Turn(NamedTuple):
    """One leadership of one process."""

    pid: int
    token: int
    began: int
    over: int
    """When it said that it is over, or else when its hold is over for certain. For others."""
    ended: int = 0
    """When it said that it is over, in time or not: for a later turn of the same process."""


def turns_of(said: list[dict[str, Any]]) -> list[Turn]:
    """Of one process. A body that is over before its hold ends frees the lease then, also after a loss: its row is
    released (G5). One that says nothing, or says it later, holds to the end of its hold. A renewal counts, although no
    step of the body came after it."""
    found: list[Turn] = []
    for line in said:
        if line["is"] == "leads":
            found.append(Turn(line["pid"], line["token"], line["at"], line["hold_until"]))
        elif found and line["is"] == "works":
            found[-1] = found[-1]._replace(over=max(found[-1].over, line["hold_until"]))
        elif found and line["is"] == "renews" and line["token"] == found[-1].token and not found[-1].ended:
            found[-1] = found[-1]._replace(over=max(found[-1].over, line["hold_end"]))
        elif found and line["is"] == "over":
            found[-1] = found[-1]._replace(over=min(line["at"], found[-1].over), ended=line["at"])
    return found


def judge(said: list[list[dict[str, Any]]]) -> None:
    """By what each process said: no two turns at once, no token twice, none smaller than one before."""
    turns = sorted((turn for lines in said for turn in turns_of(lines)), key=lambda turn: turn.began)
    for place, old in enumerate(turns):
        for new in turns[place + 1 :]:
            over = old.ended if old.ended and old.pid == new.pid else old.over
            safe(new.began >= over, f"two holders at once: {old} and {new}")
    tokens_grow(turn.token for turn in turns)


def locked(path: Path) -> bool:
    """Whether somebody is in the middle of a write, or of a read that keeps others from writing (in a file without a
    log of its own). Nobody is waited for: a holder that stands does not renew."""
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False


class Holders:
    """All holders of a test."""

    def __init__(self, folder: Path, store: str = "") -> None:
        """On a new SQLite, unless a store is named."""
        self.folder = folder
        self.store = store or made_new(f"sqlite:///{folder}/leases.db")
        self._all: list[Process] = []

    def end(self) -> None:
        for one in self._all:
            one.end()
        judge([one.said for one in self._all])

    def start(
        self, mode: str, *resource: str, store: str = "", watches: int = 0, under: tuple[str, ...] = ()
    ) -> Process:
        leases = self.folder / "leases.db"
        found = Process(leases, mode, store or self.store, *resource, watches=watches, under=under)
        self._all.append(found)
        return found


@contextlib.contextmanager
def holders(folder: Path) -> Iterator[Holders]:
    found = Holders(folder)
    try:
        yield found
    finally:
        found.end()
