"""One `primacy run` with its output in files, and a fixture that leaves none behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

WITHIN_S = 60.0
"""Far more than anything here takes: only a hang reaches it."""


class Running:
    """One `primacy run`, its output in files."""

    def __init__(
        self, folder: Path, number: int, *args: str, state: str = "state", under: tuple[str, ...] = ()
    ) -> None:
        self.out, self.err = folder / f"out{number}", folder / f"err{number}"
        command = [sys.executable, "-m", "primacy.cli.main", "run", "--state-dir", str(folder / state), *args]
        command = [*under, *command]
        self.began = time.monotonic()
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder)

    def until(self, check: Callable[[], Any], what: str) -> Any:
        """Looks every few milliseconds: what is waited for is another process."""
        return wait_until(check, what, WITHIN_S, told=lambda: f"{self.err.read_text()}\n{self.out.read_text()}")

    def lines(self, count: int = 1) -> list[str]:
        """The first lines that the command prints, once they are there."""
        self.until(lambda: self.out.read_text().count("\n") >= count, f"{count} lines")
        return self.out.read_text().splitlines()

    def said(self, text: str) -> re.Match[str]:
        return self.until(lambda: re.search(text, self.err.read_text()), text)  # type: ignore[no-any-return]

    def pid(self, run: int = 1, nth: int = 1) -> int:
        """The command's process number, of the n-th start that is the run-th of its term."""
        pattern = rf"the command runs: process (\d+), run {run}\b"

        def look() -> str | None:
            found = re.findall(pattern, self.err.read_text())
            return found[nth - 1] if len(found) >= nth else None

        return int(self.until(look, pattern))

    def ends(self) -> int:
        return self.process.wait(WITHIN_S)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts agents, and leaves none of them behind."""
    started: list[Running] = []

    def begin(*args: str, state: str = "state", under: tuple[str, ...] = ()) -> Running:
        started.append(Running(tmp_path, len(started), *args, state=state, under=under))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.signal(signal.SIGCONT)
            one.process.kill()
            one.process.wait(WITHIN_S)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found = []
    for entry_ in os.listdir("/proc"):
        if entry_.isdigit():
            try:
                parent = int(Path(f"/proc/{entry_}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == pid:
                found.append(int(entry_))
    return found
