"""Waits until what was sent inside of this process has arrived there: no pause is long enough on every machine.

A message of ZeroMQ that a test sends to a peer in its own process is carried by threads of the library, by way of TCP.
It has arrived when nothing is left in the buffers of those connections and every such thread sleeps: one that has
something to do is woken by the very call that gives it that, and sleeps only when it has done it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

WITHIN_S = 60.0
"""Only a hang reaches it."""
LOOKS = 3
"""In a row, some milliseconds apart: between two threads a message may be in neither's hands for a moment."""


def arrived(addresses: Iterable[str]) -> None:
    """All that was sent by way of these addresses (`tcp://127.0.0.1:5000`), from either end."""
    ports = {int(address.rpartition(":")[2]) for address in addresses}
    last_s, quiet = time.monotonic() + WITHIN_S, 0
    while quiet < LOOKS:
        assert time.monotonic() < last_s, "messages are on their way for ever"
        time.sleep(0.01)
        quiet = quiet + 1 if not _unread_bytes(ports) and _others_sleep() else 0


def _unread_bytes(ports: set[int]) -> int:
    """In the buffers of connections with such a port at either end."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        here, there = (int(fields[place].rpartition(":")[2], 16) for place in (1, 2))
        if {here, there} & ports:
            found += sum(int(queue, 16) for queue in fields[4].split(":"))
    return found


def _others_sleep() -> bool:
    """All threads of this process but the one that asks."""
    states = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != threading.get_native_id():
            with contextlib.suppress(OSError):  # it ended just now
                states.append(Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0])
    return all(state == "S" for state in states)
