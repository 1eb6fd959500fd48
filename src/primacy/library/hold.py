"""One leadership as all threads see it: until when it is valid, whether it is over, and why.

The renewer's thread moves the end on at each proved renewal; the user's side closes it when its time has passed,
however late it looks. Once closed it stays closed (Q8): a proof that arrives a moment later opens nothing again.

Two timers hang on it, both in the kernel, both moved by the renewer itself at each renewal: the one that the user's
event loop watches as a descriptor, and with `on_loss="kill"` the dead-man. Neither waits for a busy loop to move it,
and after a freeze both are due at once.
"""

from __future__ import annotations

import os
import threading

from primacy.election.model import Leadership
from primacy.errors import LeadershipLost
from primacy.library.deadman import Deadman
from primacy.library.timers import NEVER_MS, set_timer
from primacy.node.clock import Clock
from primacy.settings.timing import Timing

NOT_RENEWED = "no renewal was proved in time"
FORKED = "this process was forked from the one that leads"
ENDED = "its block has ended"


class Hold:
    """What the renewer and the user's side share of one leadership."""

    def __init__(
        self,
        election: str,
        given: Leadership,
        timing: Timing,
        clock: Clock,
        kill: bool,
        at_most_ms: int = 0,
        preceding: int = 0,
    ) -> None:
        self.election = election
        self.member, self.term, self.token = given.member, given.term, given.token
        self.preceding = preceding
        """The largest token before it that is known: its holder worked last. 0 for none."""
        self.valid_until_ms = given.valid_until_ms
        """End of the hold: whatever the body began must be over by then."""
        self.lost = ""
        """Why it is over; empty while it is not known to be."""
        self.ended = False
        """The body is over."""
        self.claimed = False
        """Somebody's body runs under it."""
        self.alive_ms = self.began_ms = clock.now_ms()
        """When the user's loop last showed that it turns; when the body began."""
        self.at_most_ms = at_most_ms
        """How long the body may run, however often the lease is renewed; 0 for as long as it likes."""
        self._timing = timing
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal handler may ask in the middle of a question
        self._timer = -1
        self._deadman = Deadman() if kill else None

    @property
    def until_ms(self) -> int:
        """When it is lost without another renewal: the TERM point of the newest proved one, or after `at_most_ms`."""
        term_ms = self.valid_until_ms - self._timing.hold_ms + self._timing.term_at_ms
        return min(term_ms, self.began_ms + self.at_most_ms) if self.at_most_ms and self.claimed else term_ms

    @property
    def dead_ms(self) -> int:
        """When the kernel ends a process that runs with `on_loss="kill"`."""
        return self.valid_until_ms - self._timing.hold_ms + self._timing.deadman_at_ms

    # --- the renewer's side -------------------------------------------------------------------------------------------

    def extend(self, given: Leadership) -> None:
        """A renewal was proved."""
        with self._lock:
            if self.lost or self.ended or given.valid_until_ms <= self.valid_until_ms or self.is_outlasted():
                return
            self.valid_until_ms = given.valid_until_ms
            self._arm()

    def is_outlasted(self) -> bool:
        """The body runs for longer than it may. From then on nothing is renewed for it."""
        return self.claimed and 0 < self.at_most_ms <= self._clock.now_ms() - self.began_ms

    def outlasted(self) -> str:
        """The reason, if it is lost for that."""
        return f"it lasted for lock_at_most_ms = {self.at_most_ms:,}"

    def lose(self, reason: str) -> None:
        """It is over for good; the body may not know yet."""
        with self._lock:
            if not self.lost and not self.ended:
                self.lost = reason

    # --- the user's side ----------------------------------------------------------------------------------------------

    def claim(self, timer: int = -1) -> bool:
        """A body begins under it, unless it is over already. `timer`: the descriptor that tells a loop of the end."""
        with self._lock:
            if self.why_over():
                return False
            self.claimed, self._timer = True, timer
            self.alive_ms = self.began_ms = self._clock.now_ms()
            self._arm()
        return True

    def alive(self) -> None:
        """The body, or the loop that it runs in, shows that it lives."""
        self.alive_ms = self._clock.now_ms()

    def end(self) -> bool:
        """The body is over: no timer may fire for it any more. False if that was said before."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            if self.ended:
                return False
            self.ended = True
            if self._timer >= 0:
                set_timer(self._timer, NEVER_MS)
            if self._deadman is not None:
                self._deadman.disarm()
        return True

    def forget_timer(self) -> None:
        """Its descriptor is about to be closed."""
        with self._lock:
            self._timer = -1

    def why_over(self) -> str:
        """Empty while it is valid. Looking closes it if its time has passed."""
        if os.getpid() != self._pid:
            return FORKED
        if not (self.lost or self.ended) and self._clock.now_ms() < self.until_ms:
            return ""
        with self._lock:
            if not (self.lost or self.ended) and self._clock.now_ms() >= self.until_ms:
                self.lost = self.outlasted() if self.is_outlasted() else NOT_RENEWED
            return self.lost or (ENDED if self.ended else "")

    def check(self) -> None:
        """Raises `LeadershipLost` if it is over."""
        if reason := self.why_over():
            raise LeadershipLost(self.election, self.token, reason)

    def left_ms(self) -> int:
        """How long it is valid if no further renewal succeeds; 0 if it is over."""
        return 0 if self.why_over() else max(0, self.until_ms - self._clock.now_ms())

    def _arm(self) -> None:
        if self._timer >= 0:
            set_timer(self._timer, self.until_ms)
        if self._deadman is not None and self.claimed:
            self._deadman.arm(self.dead_ms)
