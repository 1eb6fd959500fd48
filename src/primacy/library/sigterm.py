"""SIGTERM, where nobody else handles it: the process ends in order, so that its leases are released.

Python's own answer to SIGTERM is to die at once: no block is left, nothing is released, and a successor waits for the
hold to run out. So while a block of an election is open, and as long as the program has no handler of its own, SIGTERM
raises `SystemExit(143)` in the main thread, as Ctrl-C raises `KeyboardInterrupt`: `with` blocks and `finally` clauses
are left, asyncio cancels its tasks, leases are released, and the process ends with 143 (128 + 15), as a shell says it.

It composes: a handler that the program or a framework has (uvicorn, gunicorn, Celery, a handler of the event loop) is
left alone, and one that is set later takes its place; they end their blocks themselves. A second SIGTERM ends the
process at once. Signals belong to the main thread: an election that another thread enters installs nothing.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


class Sigterm:
    """Who handles SIGTERM in this process. One for all elections, for there is one handler for a process."""

    def __init__(self) -> None:
        self._open = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        """A block is entered."""
        with self._lock:
            self._open += 1
            if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self.end)

    def leave(self) -> None:
        """A block was left; with the last one all is as before."""
        with self._lock:
            self._open -= 1
            if not self._open and _is_main() and signal.getsignal(signal.SIGTERM) == self.end:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def end(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The handler."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(EXIT_CODE)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


SIGTERM = Sigterm()
