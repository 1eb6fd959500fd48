"""A program that cannot outlive the thread that started it: the kernel kills it then (PR_SET_PDEATHSIG).

However that thread ends, `kill -9` of its process included. What the program itself has started is not bound.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

HIDDEN = ("PRIMACY_", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_")
"""What the agent itself was told: not for others. Ours are given anew, each time with what holds then."""
NOT_STARTED = 126
"""A shell's number for a command that could not be started."""
BIND = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    os._exit(1)  # it died before the kernel could know
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(2, os.fsencode(f"{{sys.argv[2]}}: {{error.strerror}}\\n"))
    os._exit({NOT_STARTED})
"""
"""Binds itself and becomes the program. In a process of its own: after a fork, Python code is not safe with threads."""


def bound(argv: Sequence[str]) -> list[str]:
    """The call that starts this program bound to us."""
    return [sys.executable, "-I", "-S", "-c", BIND, str(os.getpid()), *argv]


def outer_environment(around: Mapping[str, str]) -> dict[str, str]:
    """The agent's own environment, without what was meant for the agent alone."""
    return {name: value for name, value in around.items() if not name.startswith(HIDDEN)}
