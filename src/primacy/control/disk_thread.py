"""One thread for files that no election may wait for.

It does one thing after another, so that a disk that hangs has one thread hang, however much is asked of it. It is a
thread of its own, and not one of the loop's, which save ballots and load modules; and a daemon: neither the end of the
agent nor that of the process waits for a disk. Signals are for the thread of the loop alone (`agent/signals.py`).
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from primacy.errors import Later

Found = TypeVar("Found")
Work = tuple["Future[Any]", Callable[[], Any]]


class DiskThread:
    """Begun with the first thing that is asked of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._asked: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, work: Callable[[], Found]) -> Future[Found]:
        """Never waits: the answer is there later. The caller bounds how much it asks. Raises `Later` if the system
        gives no thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._do, name=self.name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                raise Later("the system gives this process no further thread; ask again") from None
            self._thread = thread
        answer: Future[Found] = Future()
        self._asked.put((answer, work))
        return answer

    def end(self) -> None:
        """After what was asked; nothing is asked from now on."""
        self._asked.put(None)

    def _do(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        while (asked := self._asked.get()) is not None:
            answer, work = asked
            if not answer.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                answer.set_result(work())
            except BaseException as fault:  # noqa: BLE001  (who asked is told)
                answer.set_exception(fault)
