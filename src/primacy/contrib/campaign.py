"""A role for a program that has a loop of its own, as a scheduler has: a thread waits for it, and tells of its
beginning and of its end.

The thread calls `begin` when this process leads and `end` when that is over, in turn. The lease is released, or the
role campaigned for again, only when `end` has returned: by then nothing may be done in the role any more. What is done
between asks `leadership.check()` first; the thread alone would notice a moment late, and after a freeze too late.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from primacy import blocking

log = logging.getLogger("primacy")

LOOKS = 4
"""How often the thread looks between the TERM point and the end of a hold."""


class Campaign:
    """One election in a thread. `failed` is called, in it, if the store is of no use for good, or if `begin` or `end`
    fails: nothing follows then."""

    def __init__(
        self,
        election: blocking.Election,
        begin: Callable[[blocking.ThreadLeadership], None],
        end: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._election = election
        self._begin, self._end, self._failed = begin, end, failed
        timing = election._renewer.timing
        self.look_s = (timing.hold_ms - timing.term_at_ms) / LOOKS / 1_000
        """Who holds the role and sleeps for longer than this may find it over too late."""
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._leads = False
        self._thread = threading.Thread(target=self._run, name="primacy-campaign", daemon=True)

    def start(self) -> None:
        """Begins to campaign. In the main thread, SIGTERM is handled where nobody else does."""
        self._election.__enter__()
        self._thread.start()

    def stop(self, error: BaseException | None = None) -> None:
        """`end` is called if this process leads; then the lease is released, and that is waited for. `error`: why."""
        with self._lock:
            self._leaving.set()
            leads = self._leads
        if leads:
            self._thread.join()
        self._election.__exit__(type(error) if error else None, error, None)
        self._thread.join()

    def _run(self) -> None:
        try:
            for leadership in self._election:
                with self._lock:
                    if self._leaving.is_set():
                        return
                    self._leads = True
                with leadership:
                    self._lead(leadership)
                with self._lock:
                    self._leads = False
                    if self._leaving.is_set():
                        return
        except Exception as error:  # noqa: BLE001  (the program's to report: it must not go on as if it campaigned)
            log.error("%s: this process does not campaign any more: %s", self._election.name, error)
            self._failed(error)

    def _lead(self, leadership: blocking.ThreadLeadership) -> None:
        try:
            self._begin(leadership)
            while leadership.left_ms() and not self._leaving.wait(self.look_s):
                pass
        finally:
            self._end()
