"""Ports that are free, and stay so until they are used.

A port that the kernel gives out (`bind` to 0) may be given to any outgoing connection of this machine a moment later,
before the node that it was meant for binds it: one of a few hundred starts failed so. So these stand below the range
that the kernel gives out from. Nor are they given out twice in a while, for a node that is down for the moment wants
its own again; and of tests that run beside each other (lanes of `make test`, workers of pytest-xdist) each has a
part of the range to itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from pathlib import Path
from random import SystemRandom

LOWEST = 10_000
LANE = "PRIMACY_LANE"
"""Says which of how many runs of the tests this is, as 0/3."""
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
GIVEN: deque[int] = deque(maxlen=1_000)
"""The last ones."""


def part() -> range:
    """Of the ports below the kernel's, those that are this process's to give out."""
    above = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    lane, lanes = map(int, os.environ.get(LANE, "0/1").split("/"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    which = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    lowest = min(LOWEST, above // 2)
    size = (above - lowest) // (lanes * workers)
    first = lowest + (lane * workers + which) * size
    return range(first, first + size)


def free_ports(count: int) -> list[int]:
    """Free for datagrams and for connections; held together, so that they differ."""
    chance, held = SystemRandom(), contextlib.ExitStack()
    ports: list[int] = []
    with held:
        while len(ports) < count:
            port = chance.choice(part())
            if port in GIVEN:
                continue
            with contextlib.suppress(OSError):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    one = held.enter_context(socket.socket(socket.AF_INET, kind))
                    one.bind(("127.0.0.1", port))
                ports.append(port)
                GIVEN.append(port)
    return ports


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
