"""A process that can release a lease when this one is dead: made ready beforehand, it acts on the guard's word (G4).

The guard has neither a driver for a database nor the time to load one, and an agent that was killed can do nothing. So
a third process waits (`store/releaser.py`). At a leadership the agent tells it which lease it is about; the pipe to it
then goes to the guard, in the message that orders the first start, and with it the right to release. Ours is closed:
whatever this agent does from then on, only the guard can say the word, and its end without one means that there is
nothing to release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable

from primacy.election.model import Leadership
from primacy.node.bound import outer_environment

SPARE_S = 0.5
"""After a leadership began: until the next one is made ready. The command has just got to work."""
AGAIN_S = 2.0
FAREWELL_S = 5.0
"""How long one without a lease may take to end once its pipe is closed."""
WORDS = json.dumps({"release": True}) + "\n"
"""What the guard says to it."""


class Releasers:
    """One process in reserve, and those whose leadership lasts."""

    def __init__(self, url: str, table: str, limit_ms: int, name: str, holder: str, complain: Callable[[str], None]):
        self.place = {"url": url, "table": table, "limit_ms": limit_ms, "name": name, "holder": holder}
        self.complain = complain
        self._spare: tuple[subprocess.Popen[bytes], int] | None = None
        self._given: list[subprocess.Popen[bytes]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def keep_spare(self) -> None:
        """If none can be started now, it is tried again later."""
        self._timer = None
        self._given = [one for one in self._given if one.poll() is None]
        if self._closed or (self._spare is not None and self._spare[0].poll() is None):
            return
        if self._spare is not None:
            os.close(self._spare[1])
            self._spare = None
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(ours, False)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "primacy.store.releaser"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                env=outer_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            os.close(ours)
            self.complain(f"no process that could release the lease was started: {error.strerror}")
            self._later(AGAIN_S)
            return
        finally:
            os.close(theirs)
        self._spare = (process, ours)

    def right(self, leadership: Leadership) -> tuple[int, str] | None:
        """For the guard of this leadership: the pipe, and the words. The pipe is the caller's from here on."""
        if self._spare is None or self._spare[0].poll() is not None:
            self.keep_spare()
        if self._spare is None:
            return None
        process, pipe = self._spare
        self._spare = None
        self._given.append(process)
        self._later(SPARE_S)
        try:
            os.write(pipe, (json.dumps({**self.place, "token": leadership.token}) + "\n").encode())
        except OSError as error:
            os.close(pipe)
            self.complain(f"the process that would release the lease cannot be told so: {error.strerror}")
            return None
        return pipe, WORDS

    async def close(self) -> None:
        """The spare one goes. Those of a guard that still holds something stay with it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._spare is None:
            return
        process, pipe = self._spare
        os.close(pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, FAREWELL_S)
            return
        process.kill()

    def _later(self, after_s: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(after_s, self.keep_spare)
