"""The dashboard beside a node whose file asks for it: a process of its own, so that no browser holds up an election.

It lives as long as a pipe from the agent is open, so that it ends with the agent however that ends. A page that cannot
be served is complained of, and stops nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

from primacy.settings.schema import Settings

END_S = 2.0
"""How long it may take to end; then it is killed, for it holds nothing."""


class Page:
    """One process, or none."""

    def __init__(self, settings: Settings, node: str, state_dir: str, complain: Callable[[str], None]) -> None:
        self.settings = settings
        self.node = node
        self.state_dir = state_dir
        self.complain = complain
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None

    def serve(self) -> None:
        if self.settings.control.dashboard:
            self._watch = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        """Started in a thread, for starting a process may take a while; its early end is news."""
        try:
            self._process = await asyncio.to_thread(self._start)
        except OSError as error:
            self.complain(f"the dashboard could not be started: {error.strerror}")
            return
        code = await asyncio.to_thread(self._process.wait)
        self.complain(f"the dashboard has ended with {code}; the node goes on without it")

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.call(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, close_fds=True
        )

    def call(self) -> list[str]:
        """The command, as a person would give it."""
        control, source = self.settings.control, self.settings.source
        said = [sys.executable, "-m", "primacy.cli.main", "--node", self.node, "dashboard"]
        said += ["--config", source] if source else []
        if not self.settings.elections:  # of several it shows all
            said += ["--election", self.settings.election.name]
        said += ["--state-dir", self.state_dir]
        said += ["--listen", control.dashboard, "--no-browser", "--until-eof"]
        if control.tls.cert:
            folder = os.path.dirname(source)
            said += ["--tls-cert", os.path.join(folder, control.tls.cert)]
            said += ["--tls-key", os.path.join(folder, control.tls.key)]
        return said

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
