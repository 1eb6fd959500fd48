"""`primacy slots serve` as a process, for tests that speak to it; its lines are read as they come."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

from tests.support.ports import free_port
from tests.support.slots_harness import LIMIT_S, Client

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]


class Served:
    """A server process; its lines are read as they come."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.port = free_port()
        call = [*PRIMACY, "slots", "serve", "--addr", f"127.0.0.1:{self.port}", *arguments]
        more = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True, env=more)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self.lines.append("")
            self._news.notify_all()

    def until(self, pattern: str) -> str:
        """The first line that has it."""

        def found() -> str | None:
            return next((line for line in self.lines if re.search(pattern, line)), None)

        with self._news:
            assert self._news.wait_for(lambda: found() or "" in self.lines, LIMIT_S), self.lines
            line = found()
        assert line is not None, self.lines
        return line

    def open(self) -> Client:
        return Client(socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S))

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextlib.contextmanager
def served(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Served]:
    found = Served(*arguments, environment=environment)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        found._reader.join(LIMIT_S)
        assert found.process.stderr is not None
        found.process.stderr.close()
