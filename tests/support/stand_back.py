"""Runs a command that takes what others leave of the processors, and nothing else.

    python -m tests.support.stand_back COMMAND [ARGUMENT ...]

`nice` is not enough while others judge moments: it leaves a share, and Linux counts it within a session only (a
guard, for one, has a session of its own). So the command gets the policy SCHED_IDLE and a session of its own, which
counts least among all sessions. All that it starts inherits both.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SESSION = Path("/proc/self/autogroup")
"""How much this session counts among others, as `nice` does for one process. Not every kernel has it."""


def stand_back() -> None:
    os.setsid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if SESSION.exists():
        SESSION.write_text("19")


if __name__ == "__main__":
    stand_back()
    os.execvp(sys.argv[1], sys.argv[1:])
