"""The agent's memory: what is loaded inside of the room lies side by side, so that it can be gathered."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real_time

LOADS = """
import sys
from primacy.agent.memory import ROOM_BYTES, gather, room
with room():
    from primacy.agent.lifecycle import Agent
    from primacy.transport.udp import UdpTransport
    functions = [each for kind in (Agent, *UdpTransport.__mro__[:2]) for each in vars(kind).values()]
    where = sorted(id(each) for each in functions if hasattr(each, "__code__"))
    together = max(sum(at <= other < at + ROOM_BYTES for other in where) for at in where)
    gather()
    with open("/proc/self/status") as file:
        resident = [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
    print(len(where), together, resident[0])
"""


def test_what_is_loaded_in_the_room_lies_together_and_the_room_is_not_wasted() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], check=True, capture_output=True, text=True, timeout=60)
    count, together, resident_kib = map(int, done.stdout.split())
    assert count > 50
    assert together > count / 2, "what was loaded is scattered"
    assert resident_kib <= 60 * 1024
