"""A process that can release leases when this one is dead: made ready beforehand, it acts on the guards' word (G4).

A guard has neither a driver for a database nor the time to load one, and an agent that was killed can do nothing. So a
third process waits (`store/releaser.py`), one for all leases of this agent on one store: three hundred of them need
neither as many processes nor as many connections. It reads a pipe. At each leadership the guard gets a descriptor of
that pipe and the words that order the release of this one lease, in the message that orders the first start. Nobody
else says these words: what the agent itself writes there makes nobody release anything.

The pipe is the agent's, not the process's: one that has ended is followed by another on the same pipe, which hears
what was not read yet. Without the agent it lives for as long as a guard that holds its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable

from primacy.node.bound import outer_environment

AGAIN_S = 2.0
"""Between two tries to have one."""
FAREWELL_S = 1.0
"""How long its end is waited for when the agent ends in order. A guard that still holds something keeps it."""
PIPE_BYTES = 262_144
"""The words for 500 leases at once, should it be waiting for the store meanwhile."""


class Releaser:
    """The one for a store."""

    def __init__(self, url: str, table: str, limit_ms: int, complain: Callable[[str], None]) -> None:
        self.complain = complain
        self._store = {"url": url, "table": table, "limit_ms": limit_ms}
        self._loop = asyncio.get_running_loop()
        self._theirs = self._ours = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def keep(self) -> None:
        """One is there. If none can be started now, it is tried again later."""
        if self._process is not None or self._timer is not None or self._closed:
            return
        try:
            if self._ours < 0:
                self._theirs, self._ours = _pipe()
            self._tell_store()
            self._process, self._pidfd = _start(self._theirs)
        except OSError as error:
            self.complain(f"no process that could release leases was started: {error.strerror}")
            self._later()
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def right(self, name: str, holder: str, token: int) -> tuple[int, str] | None:
        """For the guard of this leadership: its end of the pipe, which is the caller's from here on, and the words."""
        self.keep()
        if self._ours < 0:
            return None
        words = json.dumps({"release": True, "name": name, "holder": holder, "token": token}) + "\n"
        assert len(words) <= select.PIPE_BUF, "what is longer may be mixed with the words of others"
        try:
            self._tell({"ready": name})
            return os.dup(self._ours), words
        except OSError as error:
            self.complain(f"{name} will not be released if this agent is killed: {error.strerror}")
            return None

    async def close(self) -> None:
        """It stays for the guards that still hold something, and ends with them."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for handle in (self._theirs, self._ours):
            if handle >= 0:
                os.close(handle)
        self._theirs = self._ours = -1
        if self._process is None:
            return
        self._forget_pidfd()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, FAREWELL_S)

    def _tell_store(self) -> None:
        """Before one is started. What fills the pipe then is the agent's own: a guard speaks when there is no agent."""
        try:
            self._tell(self._store)
        except BlockingIOError:
            os.read(self._theirs, PIPE_BYTES)
            self._tell(self._store)

    def _tell(self, order: dict[str, object]) -> None:
        """Never waits: raises if the pipe is full."""
        os.write(self._ours, (json.dumps(order) + "\n").encode())

    def _ended(self) -> None:
        """By itself it does not: it was killed, or could not open the store."""
        assert self._process is not None
        self._forget_pidfd()
        code = self._process.wait()
        self._process = None
        self.complain(f"the process that releases leases of a killed agent has ended ({code}); another one is started")
        self._later()

    def _forget_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pidfd = -1

    def _later(self) -> None:
        if not self._closed and self._timer is None:
            self._timer = self._loop.call_later(AGAIN_S, self._again)

    def _again(self) -> None:
        self._timer = None
        self.keep()


def _pipe() -> tuple[int, int]:
    """To read and to write. Whoever writes never waits."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(ours, False)
    with contextlib.suppress(OSError):  # the system keeps us to less: then some of very many words may be lost
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return theirs, ours


def _start(orders: int) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and what tells of its end."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "primacy.store.releaser"],
        stdin=orders,
        stdout=subprocess.DEVNULL,
        env=outer_environment(os.environ),
        start_new_session=True,
    )
    try:
        return process, os.pidfd_open(process.pid)
    except OSError:
        process.kill()
        process.wait()
        raise
