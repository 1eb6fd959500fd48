"""A small process beside a drill that ends one fault if the drill does not: `python -m primacy.drill.mender`.

It is told on its standard input what to say to whom and when, and waits. A line "done" dismisses it. If its input ends
without that line (the drill was killed) or the time is over, it says it, again and again for a while if nobody answers.
It has a session of its own: Ctrl-C in the drill's terminal does not reach it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from primacy.control.client import FoundNode, ask
from primacy.errors import PrimacyError, Refused

DONE = b"done\n"
TRIES_S = 120.0
"""How long it goes on while nobody answers."""
AGAIN_S = 0.5
ENDS_S = 10.0


class Mender:
    """The drill's side."""

    def __init__(self, found: FoundNode, path: str, body: dict[str, Any], within_ms: int) -> None:
        """It is there when this returns: only then the fault may begin."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "primacy.drill.mender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        said = {"found": list(found), "path": path, "body": body, "within_ms": within_ms}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(said).encode() + b"\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != b"ready\n":
            raise Refused("the process that would end the fault could not be started: nothing was done")

    def dismiss(self) -> None:
        """The fault is over."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(DONE)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # its time was over, and it has done it
        self.process.wait(ENDS_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def mend_now(self) -> None:
        """It does it, for as long as it takes; nobody waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()


def main() -> int:
    """Exit code 1 if nobody could be told."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    said = json.loads(_line())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    due_s = time.monotonic() + said["within_ms"] / 1_000
    if select.select([0], [], [], max(0.0, due_s - time.monotonic()))[0] and _line() == DONE:
        return 0
    found, last_s = FoundNode(*said["found"]), time.monotonic() + TRIES_S
    while time.monotonic() < last_s:
        try:
            ask(found, said["path"], said["body"], by="the drill, which has ended")
        except Refused:
            return 0  # there is nothing to end any more
        except PrimacyError:
            time.sleep(AGAIN_S)
        else:
            return 0
    return 1


def _line() -> bytes:
    """Unbuffered: what comes later stays there for `select`."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 1)):
        line += more
    return line


if __name__ == "__main__":
    sys.exit(main())
