"""Commands of a page, done as a reader would in one folder of an otherwise empty account; and whether what a page shows
is what was printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

WITHIN_S = 120
"""Only a hang reaches it."""
KEPT_S = 30
"""That what runs in the background may take to end in order, before it is killed."""
LEFT_OUT = "…"
"""On a line by itself: any lines, or none."""


class Done(NamedTuple):
    """What one command came to."""

    code: int
    said: str
    """Output and errors, as a terminal has them."""


class Step(NamedTuple):
    """A command, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


def steps(console: str) -> list[Step]:
    """Of a block of a console; comments behind a command are left to the shell."""
    found: list[Step] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ "), ()))
        else:
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
    return found


def is_shown(shown: tuple[str, ...], said: str, exact: tuple[str, ...] = ()) -> bool:
    """All that was said, line by line; figures differ from run to run, but for those in `exact`, and widths with them.

    A line that begins with … stands for anything up to what follows it.
    """
    pattern = ""
    for line in shown:
        pattern += r"(?:[^\n]*\n)*" if line == LEFT_OUT else _of_line(line, exact) + r"\n"
    told = "\n".join(" ".join(line.split()) for line in said.splitlines())
    return re.fullmatch(pattern, f"{told}\n") is not None


def _of_line(line: str, exact: tuple[str, ...]) -> str:
    words = " ".join(line.split())
    kept = "|".join(map(re.escape, exact)) or "(?!)"
    parts = re.split(rf"({kept}|\d[\d,]*|{LEFT_OUT})", words)
    return "".join(
        r"\d[\d,]*" if part[:1].isdigit() and part not in exact else ".*" if part == LEFT_OUT else re.escape(part)
        for part in parts
    )


class Shell:
    """One folder; the state folders, homes and temporary folders of this machine are nobody's to try things in."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        own = {name: folder / name for name in ("home", "tmp", "state")}
        for place in own.values():
            place.mkdir(0o700, exist_ok=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMACY_", "PYTEST_"))}
        places = {"HOME": str(own["home"]), "TMPDIR": str(own["tmp"]), "PRIMACY_STATE_DIR": str(own["state"])}
        self.environment = {**kept, "PATH": path, **places, **more}
        self.started: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def run(self, command: str, *, code: int | None = 0) -> Done:
        """Wait for its end, and for that of nothing that it leaves in the background; `code` is what it must end
        with, None if that is not known."""
        with (self.folder / "said").open("w+") as file:
            done = subprocess.run(
                ["/bin/bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=WITHIN_S,
                check=False,
            )
            file.seek(0)
            found = Done(done.returncode, file.read())
        assert code in (None, found.code), f"{command}: {found.code}: {found.said}{self.told()}"
        return found

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """In the background, its output into a file."""
        log = self.folder / f"background.{len(self.logs)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        self.logs.append(log)
        return process

    def stop(self, of: str) -> None:
        """The one in the background whose command has this in it; in order."""
        (process,) = (one for one in self.started if of in str(one.args) and one.poll() is None)
        process.send_signal(signal.SIGTERM)
        process.wait(KEPT_S)

    def told(self) -> str:
        """What those in the background said, for the reader of a failure."""
        return "".join(f"\n--- {log.name}\n{log.read_text()[-2_000:]}" for log in self.logs)

    def end(self) -> None:
        """All in the background: in order if they will, else not."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(KEPT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Lines:
    """The command lines of one block. Each is taken once, so that one that comes new is noticed."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        joined = re.sub(r"\\\n *", "", text)
        found = [re.sub(r"(^|\s{2,})#.*$", "", line.removeprefix("$ ")).strip() for line in joined.splitlines()]
        self.left = [line for line in found if line]

    def take(self, begin: str) -> str:
        """The first one that begins so."""
        for place, line in enumerate(self.left):
            if line.startswith(begin):
                return self.left.pop(place)
        raise AssertionError(f"{self.where} has no {begin!r} any more: {self.left}")

    def leave(self, begin: str, why: str) -> None:
        """One that is not run here, and why."""
        self.take(begin)

    def all_taken(self) -> None:
        assert not self.left, f"{self.where}: nobody runs {self.left}"
