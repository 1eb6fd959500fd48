"""The work of a leader that holds nothing, held all the same: by the agent's own process.

Bully and ring give a leadership without an end in time. A command under a guard needs one: an agent that is stopped, or
hangs, must not leave it running for ever. So each heartbeat of the agent's own loop moves the end on by one hold, for
as long as the node leads, or stops in order. It promises nothing about other nodes; that is what `--allow-split-brain`
says.
"""

from __future__ import annotations

from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.loop import timer
from primacy.node.clock import Clock
from primacy.settings.timing import Timing
from primacy.supervise.workload import Performer


class RenewedWork:
    """The driver's port `Work`, in front of a workload that wants a hold."""

    def __init__(self, workload: Performer, timing: Timing, clock: Clock) -> None:
        self.workload = workload
        self.timing = timing
        self.clock = clock
        self._leadership: Leadership | None = None
        self._timer = timer(self._heartbeat)

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:
        self._leadership = leadership
        self._timer.set(self.timing.heartbeat_ms / 1_000)
        self.workload.start(self._held(leadership), release, covered)

    def extend(self, leadership: Leadership) -> None:
        raise AssertionError(leadership)

    def stop(self, term: int, reason: str, planned: bool) -> None:
        if not planned:
            self.end()
        self.workload.stop(term, reason, planned)

    def release(self, term: int, successor: str) -> None:
        self.workload.release(term, successor)

    def end(self) -> None:
        """The hold runs out from here on."""
        self._leadership = None
        self._timer.clear()

    def _held(self, leadership: Leadership) -> Leadership:
        return leadership._replace(valid_until_ms=self.clock.now_ms() + self.timing.hold_ms)

    def _heartbeat(self) -> None:
        if self._leadership is None or self.workload.is_over:
            self.end()
            return
        self._timer.set(self.timing.heartbeat_ms / 1_000)
        self.workload.extend(self._held(self._leadership))
