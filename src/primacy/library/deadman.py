"""A kernel timer on the own process: `on_loss="kill"` (rule U1).

At its instant the kernel sends SIGKILL, whether the process runs, hangs or is stopped; no handler, thread or event loop
has a part in it. It is armed before the body starts, moved on at each renewal, and taken away when the body is over. A
forked child does not inherit it.
"""

from __future__ import annotations

import ctypes

from primacy.library.timers import HAS_KERNEL_TIMERS

if HAS_KERNEL_TIMERS:
    from primacy.supervise.guard import guard_tree as kernel


class Deadman:
    """One timer. Whoever owns it sees to it that it is used by one thread at a time."""

    def __init__(self) -> None:
        self._timer: ctypes.c_void_p | None = None

    def arm(self, at_ms: int) -> None:
        """Death at this instant of CLOCK_BOOTTIME, and not at an earlier one."""
        if self._timer is None:
            self._timer = kernel.make_deadman()
        kernel.arm_deadman(self._timer, at_ms)

    def disarm(self) -> None:
        """No death; for good."""
        timer, self._timer = self._timer, None
        if timer is not None:
            kernel.checked(kernel.libc.timer_delete(timer))
