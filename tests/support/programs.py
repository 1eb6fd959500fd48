"""Programs of users, each a process with its output in a file: those in examples/, and those on `primacy.contrib`.

They share a folder with a SQLite store whose names are free at once.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.store_harness import made_new
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 60


class Program:
    """One process, its output in a file."""

    def __init__(self, log: Path, *command: str, cwd: Path, **environment: str) -> None:
        self.log = log
        with log.open("wb") as out:
            self.child = subprocess.Popen(
                command, cwd=cwd, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **environment}
            )

    def says(self, pattern: str) -> list[str]:
        """In whole lines: of one that is just being written, a part may be seen."""
        return re.findall(pattern, self.log.read_text().rpartition("\n")[0])

    def ends(self, number: int = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return self.child.wait(WITHIN_S)


class Start:
    """Starts programs that share a folder, and ends them."""

    def __init__(self, below: Path) -> None:
        self.started: list[Program] = []
        self.folder = below
        made_new(f"sqlite:///{below}/leases.db")

    def __call__(self, *command: str, cwd: Path = EXAMPLES, **environment: str) -> Program:
        store = f"sqlite:///{self.folder}/leases.db"
        more = {"STORE": store, "PROFILE": "fast", "PYTHONUNBUFFERED": "1", **environment}
        self.started.append(Program(self.folder / f"log{len(self.started)}", *command, cwd=cwd, **more))
        return self.started[-1]

    def end(self) -> None:
        while self.started:
            program = self.started.pop()
            if program.child.poll() is None:
                program.child.kill()
            program.child.wait(WITHIN_S)


def need(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (group `examples` of pyproject.toml)")


def until(check: Callable[[], Any], what: str, *programs: Program) -> Any:
    logs = [program.log for program in programs]
    return wait_until(check, what, WITHIN_S, 0.02, told=lambda: "\n".join(log.read_text()[-2_000:] for log in logs))
