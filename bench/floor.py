"""What no failover can undercut on this machine: the death is noticed, two votes reach the disk, the command is
started.

Measured between the rounds, with the same command and on the same disk, because a busy machine slows it as well. How
long it takes to notice depends on what dies: the kernel takes its memory back first. So the trials note that of the
agent itself; here it is that of the small command.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.processes import ENDS_S
from bench.watch import Doorbell, Watch, rings

VOTE_BYTES = 512


class Floor(NamedTuple):
    """Milliseconds."""

    notice_ms: float
    """From SIGKILL until a pidfd of the process is readable."""
    sync_ms: float
    """One small overwrite with fdatasync."""
    spawn_ms: float
    """From the start of the command until it rings."""


def measure(watch: Watch, bell: Doorbell, folder: Path) -> Floor:
    """Once."""
    since = len(watch.lines)
    began_ns = time.monotonic_ns()
    process = subprocess.Popen(bell.command("floor"), stdin=subprocess.DEVNULL)
    try:
        rang_ns = watch.until(rings("floor"), since, "the bare command").at_ns
        handle = os.pidfd_open(process.pid)
        try:
            killed_ns = time.monotonic_ns()
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], ENDS_S)
            noticed_ns = time.monotonic_ns()
        finally:
            os.close(handle)
    finally:
        process.kill()
        process.wait(ENDS_S)
    return Floor((noticed_ns - killed_ns) / 1e6, _sync_ms(folder), (rang_ns - began_ns) / 1e6)


def _sync_ms(folder: Path) -> float:
    handle = os.open(folder / "floor", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size < VOTE_BYTES:
            os.pwrite(handle, bytes(VOTE_BYTES), 0)
            os.fsync(handle)
        began_ns = time.monotonic_ns()
        os.pwrite(handle, os.urandom(VOTE_BYTES), 0)
        os.fdatasync(handle)
        return (time.monotonic_ns() - began_ns) / 1e6
    finally:
        os.close(handle)
