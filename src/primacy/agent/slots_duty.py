"""The duty of `primacy slots serve`: the slot server answers while this node leads, and says who does while not.

This is the port `Work` of the driver, for any strategy. There is no process to wait for: the moment in which the board
is taken away is the moment from which nothing is answered, so that the end is confirmed in the next turn of the loop.
A strategy that holds something has its hold looked at before each answer, too; see `slots/server.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from primacy.agent.process_duty import DutyView, Ready
from primacy.control.tls import context_of
from primacy.election.inputs import Input, WorkGone, WorkStarted
from primacy.election.messages import Release
from primacy.election.model import Leadership
from primacy.node.clock import Clock
from primacy.settings.schema import Settings
from primacy.slots.server import LineServer
from primacy.transport import ReadyDatagram
from primacy.watchdog.machine import State


class SlotServer(Protocol):
    """The servers of all three protocols."""

    address: str

    async def start(self, sockets: list[socket.socket]) -> None: ...

    async def close(self) -> None: ...

    def lead(self, hold_until_ms: int) -> None: ...

    def extend(self, hold_until_ms: int) -> None: ...

    def follow(self, leader: str, address: str = "") -> None: ...

    def figures(self) -> Mapping[str, int]:
        """For counters and metrics."""
        ...


def server_of(settings: Settings, clock: Clock, random: Random, complain: Callable[[str], None]) -> SlotServer:
    """By the protocol of the settings."""
    tls = context_of(settings.slots.tls, "slots.tls", settings.source, ssl.CERT_REQUIRED)
    return LineServer(settings.slots, clock, random, complain, tls)


class SlotsDuty:
    """A slot server under any strategy."""

    def __init__(
        self,
        server: SlotServer,
        clock: Clock,
        tell: Callable[[Input], None],
        ready: Ready = lambda _: [],
    ) -> None:
        """`tell`: the election. `ready`: seals a release for every other node."""
        self.server = server
        self.clock = clock
        self.tell = tell
        self.ready = ready
        self.term = 0
        """In which it answers, or has not confirmed yet that it does not; 0 for none."""
        self.state = State.STOPPED
        self.since_ms = 0
        self.runs = 0
        self._release: Release | None = None
        self._ordered = False
        self._successor = ""

    # --- what the driver says -----------------------------------------------------------------------------------------

    def start(self, leadership: Leadership, release: Release | None, covered: bool) -> None:  # noqa: ARG002
        """Clean slots, at once."""
        self.term, self._release, self._ordered = leadership.term, release, False
        self.runs += 1
        self.state, self.since_ms = State.RUNNING, self.clock.now_ms()
        self.server.lead(leadership.valid_until_ms)
        self.tell(WorkStarted(leadership.term))

    def extend(self, leadership: Leadership) -> None:
        if leadership.term == self.term and self.state is State.RUNNING:
            self.server.extend(leadership.valid_until_ms)

    def stop(self, term: int, reason: str, planned: bool) -> None:  # noqa: ARG002
        """Clients are told before this returns. That it is over is said when this step of the election is."""
        if term != self.term:
            return
        self.state = State.STOPPED
        self.server.follow("")
        asyncio.get_running_loop().call_soon(self._confirm, term)

    def release(self, term: int, successor: str) -> None:
        """The release leaves with the confirmation, never before it."""
        if term == self.term:
            self._ordered, self._successor = True, successor

    def _confirm(self, term: int) -> None:
        if term != self.term:
            return
        self.term = 0
        sealed: list[ReadyDatagram] = []
        if self._ordered and self._release is not None:
            sealed = self.ready(self._release._replace(successor=self._successor))
        for data, host, port in sealed:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as way:
                way.setblocking(False)
                try:
                    way.sendto(data, (host, port))
                except OSError:
                    continue  # lost, as a datagram may be: that node waits the hold out
        self.tell(WorkGone(term, bool(sealed)))

    # --- what the agent says ------------------------------------------------------------------------------------------

    def looked(self, leader: str, address: str = "") -> None:
        """Who leads, as this node sees it; for clients that ask it."""
        if self.state is not State.RUNNING:
            self.server.follow(leader, address)

    @property
    def is_over(self) -> bool:
        return not self.term

    def view(self) -> DutyView:
        pid = os.getpid() if self.state is State.RUNNING else 0
        return DutyView("slots", self.state, self.since_ms, pid, self.runs, "", "")

    async def close(self) -> None:
        await self.server.close()
