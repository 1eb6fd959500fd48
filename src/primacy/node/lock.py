"""Two locks per election on a machine, both on plain files, both freed by the kernel when their last holder is gone.

- `agent.lock` is held by the agent for as long as it lives, so that one ballot has one writer. A second agent learns
  who holds it.
- `run.lock` is taken by the guard and held by the guarded tree as well, so that it is free only when the last
  descendant is gone (G3). The agent never keeps it: it only looks whether it is held (Q6).

They are flock locks: they belong to the open file, and pass on to processes that inherit it.
"""

from __future__ import annotations

import fcntl
import os
from typing import NamedTuple

from primacy.node.folder import Folder

AGENT = "agent.lock"
RUN = "run.lock"
HOLDER_BYTES_MAX = 64
NAME_BYTES_MAX = 64
"""The kernel keeps 15."""


class Holder(NamedTuple):
    """Who has a lock."""

    pid: int
    """0 if it did not say."""
    command: str
    """Its name; empty if it is gone or not ours to see."""

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"


class AgentLock:
    """The one writer of a folder."""

    def __init__(self, folder: Folder) -> None:
        self.handle = folder.open(AGENT, os.O_RDWR | os.O_CREAT)

    def take(self) -> bool:
        """True if it is ours now; our process number then stands in the file, for whoever comes second."""
        if not _take(self.handle):
            return False
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, f"{os.getpid()}\n".encode(), 0)
        return True

    def holder(self) -> Holder:
        """Who has it, as far as the file says."""
        text = os.pread(self.handle, HOLDER_BYTES_MAX, 0).strip()
        pid = int(text) if text.isdigit() else 0
        return Holder(pid, command_of(pid))

    def close(self) -> None:
        os.close(self.handle)


class RunLock:
    """A look at the lock that guards and trees hold."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path(RUN)
        self.handle = folder.open(RUN, os.O_RDWR | os.O_CREAT)

    def is_held(self) -> bool:
        """Taken for an instant and given back. Never asked between an order to start and its answer."""
        if not _take(self.handle):
            return True
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        os.close(self.handle)


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def command_of(pid: int) -> str:
    """The name of a process, for a sentence. Not its arguments: they may hold what is nobody's business."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            text = file.read(NAME_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "".join(char if char.isprintable() else "?" for char in text)
