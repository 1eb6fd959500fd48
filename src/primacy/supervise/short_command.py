"""A small command that the agent runs beside its node: a fence command, a hook, a health probe.

It has a group of its own, so that it can be killed with all that it started; it inherits no descriptor but the output;
its end is seen by the loop, without a thread. Whoever starts one never waits for it. A fence command and a hook do not
outlive an agent that is killed: a slow power switch must not meet the next leader. Probes do, for they are many, and an
interpreter for each would cost more than they do; they have their limit and hurt nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from primacy.node.bound import NOT_STARTED, bound

GONE_S = 1.0
"""How long an agent that ends waits for one that it killed."""

Done = Callable[[int, str], None]
"""Told the exit code, as a shell says it, and why it could not be started, if it could not."""


class ShortCommand:
    """One run of one command. `done` is told once, unless it was killed by us."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, done: Done, *, probe: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: Done | None = done
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._gone = asyncio.Event()
        output = subprocess.DEVNULL if probe else 2
        try:
            _look_for(argv[0], environment, cwd)
            self._process = subprocess.Popen(
                list(argv) if probe else bound(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
            self._pidfd = os.pidfd_open(self._process.pid)
        except (OSError, ValueError) as error:
            self.kill()
            if self._process is not None:
                self._process.wait()
                self._process = None
            self._gone.set()
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._done = done
            self._loop.call_soon(self._say, NOT_STARTED, f"{argv[0]}: {why}")
            return
        self._loop.add_reader(self._pidfd, self._ended)

    async def killed(self) -> None:
        """Kills it and waits until it is gone, but not for one that the kernel keeps."""
        self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                await self._gone.wait()

    def kill(self) -> None:
        """It, and what is left of its group; nobody is told."""
        self._done = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self) -> None:
        process = self._process
        assert process is not None
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = process.wait()
        self._process = None
        self._gone.set()
        self._say(128 - code if code < 0 else code, "")

    def _say(self, code: int, why: str) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(code, why)


def _look_for(program: str, environment: Mapping[str, str], cwd: str) -> None:
    """Raises `OSError` as starting it would: what becomes the program later can only say so in a code."""
    found = shutil.which(os.path.join(cwd, program) if "/" in program else program, path=environment.get("PATH"))
    if found is None:
        raise FileNotFoundError(2, "no such program, or it may not be run")
