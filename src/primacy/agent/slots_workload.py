"""The workload of `primacy slots serve`: the slot server answers while this node leads, and says who does while not.

Nothing has to be waited for: the moment in which the board is taken away is the moment from which nothing is answered.
A strategy that holds something has its hold looked at before each answer besides; see `slots/line_server.py`.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from random import Random

from primacy.control.tls import context_of
from primacy.election.model import Leadership
from primacy.node.clock import Clock
from primacy.settings.schema import Settings
from primacy.slots.host import Host, Terms
from primacy.slots.line_server import LineServer, listening


def server_of(settings: Settings, clock: Clock, complain: Callable[[str], None]) -> Host:
    """By the protocol of the settings."""
    tls = context_of(settings.slots.tls, "slots.tls", settings.source, ssl.CERT_REQUIRED)
    terms = Terms(settings.slots, clock, Random(secrets.randbits(64)), complain, tls)
    if settings.slots.protocol == "http":
        from primacy.slots.http import HttpServer  # noqa: PLC0415  aiohttp takes as long to load as all else

        return HttpServer(terms)
    return LineServer(terms)


def served(settings: Settings, address: str) -> str:
    """Where, and what: one sentence."""
    slots = settings.slots
    count = len(slots.numbered)
    what = f"{count} slot{'s' if count != 1 else ''}" if count else "no slot, for none is configured,"
    sealed = " behind TLS" if slots.tls.cert else ""
    return f"serves {what} on {address}, protocol {slots.protocol}{sealed}"


class SlotsWorkload:
    """A slot server under any strategy."""

    kind = "slots"

    def __init__(
        self, settings: Settings, clock: Clock, complain: Callable[[str], None], inform: Callable[[str], None]
    ):
        """`complain`, `inform`: for the log."""
        self.settings = settings
        self.inform = inform
        self.server = server_of(settings, clock, complain)

    async def open(self) -> None:
        """The port is taken whether this node leads or not. Raises `InUse`."""
        await self.server.start(listening(self.settings.slots.addr))
        self.inform(served(self.settings, self.server.address) + ", while this node leads")

    async def start(self, leadership: Leadership) -> None:
        """Clean slots."""
        self.server.lead(leadership.valid_until_ms)

    def extend(self, leadership: Leadership) -> None:
        self.server.extend(leadership.valid_until_ms)

    async def stop(self, within_ms: int, reason: str) -> None:  # noqa: ARG002
        """Clients are told when this returns."""
        self.server.follow("")

    def follow(self, leader: str, address: str) -> None:
        self.server.follow(leader, address)

    def counters(self) -> Mapping[str, int]:
        return self.server.figures()

    async def close(self) -> None:
        await self.server.close()
