"""Ports that are free, and stay so until they are used.

A port that the kernel gives out (`bind` to 0) may be given to any outgoing connection of this machine a moment later,
before the node that it was meant for binds it: one of a few hundred starts failed so. So these stand below the range
that the kernel gives out from. Nor is one given twice: not by this process, and not by another one of the same run.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from random import SystemRandom

LOWEST = 10_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
GIVEN: set[int] = set()
GIVEN_MAX = 3_000
"""Then the first are long forgotten."""


def free_ports(count: int) -> list[int]:
    """Free for datagrams and for connections; held together, so that they differ."""
    above = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    chance, held = SystemRandom(), contextlib.ExitStack()
    ports: list[int] = []
    if len(GIVEN) > GIVEN_MAX:
        GIVEN.clear()
    with held:
        while len(ports) < count:
            port = chance.randrange(min(LOWEST, above // 2), above)
            if port in GIVEN or not is_ours(port):
                continue
            GIVEN.add(port)
            with contextlib.suppress(OSError):
                for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                    one = held.enter_context(socket.socket(socket.AF_INET, kind))
                    one.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def is_ours(port: int) -> bool:
    """Of the processes that share the tests of one run, each has ports of its own."""
    share = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return port % count == int(share) % count


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
