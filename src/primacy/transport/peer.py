"""Another node, as far as datagrams go: where it is dialled, and which start of it is heard."""

from __future__ import annotations

import socket
from typing import NamedTuple

from primacy.election.messages import Message
from primacy.transport.seal import Window, Windows
from primacy.transport.short import Shorthand


class Address(NamedTuple):
    """What stands in the file, `host:port`."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


SocketAddress = tuple[str, int] | tuple[str, int, int, int]


class Peer:
    """Another node, as far as datagrams go."""

    def __init__(self, name: str, dialled: Address) -> None:
        self.name = name
        self.dialled = dialled
        self.address: SocketAddress | None = None
        self.socket: socket.socket | None = None
        self.boot = 0
        """Of its start, as it said itself; 0 if nothing was heard."""
        self.windows = Windows()
        self.window: Window | None = None
        """That of the start that is heard; with it, how its messages begin."""
        self.head = self.head_carries = self.after_counter = b""
        self.last: Message | None = None
        """The last message that was sent: again, once, if it turns out that its receiver has started anew."""
        self.last_counter = 0
        self.short = Shorthand()
        self.word = b""
        """What waits to be carried along by the next message."""
        self.gathers_boot = 0
        """The start of it that takes several datagrams in one."""
        self.offered_boot = self.offers = 0
        """The start that was told that we do, and how often."""
        self.offered_s = 0.0
        self.heard_s = 0.0
        self.greeted_s = 0.0
        self.complained: set[str] = set()
        self.trouble = ""
        """Why nothing is heard of it, as far as we know; empty once something is."""


def numeric(address: Address, family: int = 0) -> SocketAddress | None:
    """The address, if it is one already and no name has to be looked up."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, family=family, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return None
    return found[0][4] if found else None  # type: ignore[return-value]
