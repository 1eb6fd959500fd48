"""Ports that are free, and stay so until they are used.

A port that the kernel gives out (`bind` to 0) may be given to any outgoing connection of this machine a moment later,
before the node that it was meant for binds it: one of a few hundred starts failed so. So these stand below the range
that the kernel gives out from.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from random import SystemRandom

LOWEST = 10_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Free for datagrams and for connections; held together, so that they differ."""
    above = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    chance, held = SystemRandom(), contextlib.ExitStack()
    ports: list[int] = []
    with held:
        while len(ports) < count:
            port = chance.randrange(min(LOWEST, above // 2), above)
            with contextlib.suppress(OSError):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    one = held.enter_context(socket.socket(socket.AF_INET, kind))
                    one.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
