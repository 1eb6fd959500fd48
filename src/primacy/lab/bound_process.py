"""A process that cannot outlive the one that started it, and is signalled by a handle that names it and nobody else.

The kernel kills it when its starter dies, however that dies (PR_SET_PDEATHSIG). The kernel means the *thread* that
started it: whoever uses this starts from a thread that lasts, and `Lab` insists on it. What an agent runs goes with it,
for its guard sees to that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from primacy.node.bound import bound


class BoundProcess:
    """One process that we started."""

    def __init__(self, argv: Sequence[str], folder: Path, output: BinaryIO, more: Mapping[str, str]) -> None:
        """In a session of its own, so that a Ctrl-C in our terminal is ours alone to answer."""
        self.process = subprocess.Popen(
            bound(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **more},
            start_new_session=True,
        )
        self.handle = os.pidfd_open(self.process.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; a signal counts as in a shell."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def send(self, number: signal.Signals) -> None:
        send(self.handle, number)

    def wait(self, within_s: float) -> bool:
        """True if it has ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        return self.process.returncode is not None

    def close(self) -> None:
        """It is over; nothing of it is kept."""
        self.process.kill()
        self.process.wait()
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def send(handle: int, number: signal.Signals) -> None:
    """To exactly this process, or to nobody if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)


def ended(handle: int, within_s: float) -> bool:
    """Whether a process that need not be our child has ended by then."""
    look = select.poll()
    look.register(handle, select.POLLIN)
    return bool(look.poll(max(0, int(within_s * 1_000))))


def children(pid: int) -> list[int]:
    """Of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in sorted(os.listdir(f"/proc/{pid}/task")):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


class Held:
    """Handles of several processes that somebody else started, each taken while its parent still named it."""

    def __init__(self) -> None:
        self.handles: dict[int, int] = {}

    def take(self, parent: int, pid: int) -> None:
        """A number may pass to another process between two looks; what is still a child then is the right one."""
        if pid in self.handles:
            return
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if pid in children(parent):
            self.handles[pid] = handle
        else:
            os.close(handle)

    def take_tree(self, pid: int) -> None:
        for child in children(pid):
            self.take(pid, child)
            self.take_tree(child)

    def send(self, number: signal.Signals) -> None:
        for handle in self.handles.values():
            send(handle, number)

    def close(self) -> None:
        for handle in self.handles.values():
            os.close(handle)
        self.handles.clear()
