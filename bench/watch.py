"""What processes say, and when it was read: one loop over their pipes, for every party of a comparison alike.

The moment of a line is that at which this loop read it, so that all parties pay the same small delay of being heard.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

WITHIN_S = 60.0
"""Far more than anything here takes: only a hang reaches it."""
TAIL = 25
"""Lines that are shown of a hang."""


class Line(NamedTuple):
    """One line of one party."""

    at_ns: int
    source: str
    text: str


class Watch:
    """All lines in the order in which they were read."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._selector = selectors.DefaultSelector()
        self._rest: dict[int, bytes] = {}

    def add(self, source: str, fd: int) -> None:
        """Reads this descriptor from now on, to its end, and closes it then."""
        os.set_blocking(fd, False)
        self._rest[fd] = b""
        self._selector.register(fd, selectors.EVENT_READ, source)

    def pump(self, within_s: float = 0.0) -> None:
        """Reads what is there; waits at most so long for the first."""
        for key, _ in self._selector.select(within_s):
            self._read(key.fd, key.data)

    def rest(self, for_s: float) -> None:
        """Lets time pass, and goes on reading meanwhile: a full pipe would hold somebody up."""
        last_s = time.monotonic() + for_s
        while (left_s := last_s - time.monotonic()) > 0:
            self.pump(left_s)

    def until(self, wanted: Callable[[Line], bool], since: int, what: str, within_s: float = WITHIN_S) -> Line:
        """The first such line at or after this place in `lines`."""
        last_s = time.monotonic() + within_s
        place = since
        while True:
            while place < len(self.lines):
                if wanted(self.lines[place]):
                    return self.lines[place]
                place += 1
            if time.monotonic() > last_s:
                tail = "\n".join(f"  {line.source}: {line.text}" for line in self.lines[-TAIL:])
                raise TimeoutError(f"never came within {within_s:g} s: {what}; the last lines:\n{tail}")
            self.pump(0.2)

    def close(self) -> None:
        for fd in list(self._rest):
            self._forget(fd)
        self._selector.close()

    def _read(self, fd: int, source: str) -> None:
        try:
            data = os.read(fd, 65_536)
        except BlockingIOError:
            return
        at_ns = time.monotonic_ns()
        if not data:
            self._forget(fd)
            return
        *whole, self._rest[fd] = (self._rest[fd] + data).split(b"\n")
        self.lines += [Line(at_ns, source, text.decode("utf-8", "replace")) for text in whole]

    def _forget(self, fd: int) -> None:
        del self._rest[fd]
        self._selector.unregister(fd)
        os.close(fd)


class Doorbell:
    """A named pipe that every guarded command of a comparison rings when it runs: `ring NAME WORDS`."""

    def __init__(self, watch: Watch, folder: Path) -> None:
        self.path = folder / "doorbell"
        os.mkfifo(self.path)
        watch.add("doorbell", os.open(self.path, os.O_RDWR | os.O_NONBLOCK))  # open for writing too: it never ends

    def command(self, name: str) -> list[str]:
        """The command that all parties run: a shell that says that it runs, and becomes a sleep."""
        return ["/bin/sh", "-c", f'echo "ring $0 ${{PRIMACY_NODE:-$$}}" >{self.path}; exec sleep 3600', name]


def rings(name: str) -> Callable[[Line], bool]:
    return lambda line: line.source == "doorbell" and line.text.startswith(f"ring {name} ")
