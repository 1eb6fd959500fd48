"""What user code receives: a leadership with its token, and the one question that blocking code must ask.

There is no bare `is_leader()`: the answer would be old before it is used.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, Token

from primacy.errors import LeadershipLost, UsageError
from primacy.library.hold import Hold

_CURRENT: ContextVar[Leadership] = ContextVar("primacy.leadership")


class Leadership:
    """The proof that this process leads, for as long as it lasts.

    Give `token` to every resource that the work changes, and have it refuse smaller ones (`primacy.fence`): that
    protects it even from a process that was frozen while it led.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._entered: Token[Leadership] | None = None

    @property
    def election(self) -> str:
        """The election's name."""
        return self._hold.election

    @property
    def node(self) -> str:
        """The name under which this process leads."""
        return self._hold.member

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier leadership of this election."""
        return self._hold.token

    @property
    def preceding_token(self) -> int:
        """The token of the leadership before this one, or a larger one that nobody worked under; 0 for none. What was
        written under it is what the last holder left."""
        return self._hold.preceding

    @property
    def valid_until_ms(self) -> int:
        """End of the hold on CLOCK_BOOTTIME in ms; it moves on with each renewal. All work must be over by then."""
        return self._hold.valid_until_ms

    def check(self) -> None:
        """Raises `LeadershipLost` once it is over. Blocking code calls this before each step that matters."""
        self._hold.check()

    def left_ms(self) -> int:
        """For how long it is valid even if no renewal succeeds any more; 0 once it is over, for good."""
        return self._hold.left_ms()

    def __repr__(self) -> str:
        return f"<Leadership of {self.election} token={self.token} left_ms={self.left_ms()}>"

    def _enter(self) -> None:
        if self._entered is not None:
            raise UsageError("a leadership is entered once; the next one comes from the election")
        self._entered = _CURRENT.set(self)

    def _leave(self) -> None:
        if self._entered is not None:
            with contextlib.suppress(ValueError):  # left in another context, as generators may be: it ends there
                _CURRENT.reset(self._entered)

    def _error(self) -> LeadershipLost:
        return LeadershipLost(self.election, self.token, self._hold.lost or "its block has ended")

    def _owns(self, error: BaseException | None) -> bool:
        """Whether this is what our own `check` raises."""
        return isinstance(error, LeadershipLost) and (error.election, error.token) == (self.election, self.token)


def current() -> Leadership:
    """The leadership whose block this code runs in; `UsageError` outside of one."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise UsageError(
            "no leadership here: this runs outside of `with leadership`, singleton and once (or in a plain thread; "
            "asyncio.to_thread carries it along)"
        ) from None
