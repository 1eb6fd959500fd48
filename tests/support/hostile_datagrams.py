"""What a stranger, a listener and a traitor can send to a node: real datagrams, and what they are counted as.

python -I -S hostile_datagrams.py SECONDS PORT ...      floods these ports of this machine with junk, as fast as it goes
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from pathlib import Path

MAGIC = 0xB7
RELEASE = 1
SORT_AT, RECEIVER_BOOT_AT, NAME_AT = 3, 12, 28


def flood(seconds: float, ports: list[int]) -> int:
    """How many were sent: all sizes, every second one with the first byte of a real one."""
    junk = [os.urandom(size) for size in (1, 40, 120, 300, 512, 1_400)]
    junk += [bytes([MAGIC]) + each[1:] for each in junk]
    sent, end = 0, time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        while time.monotonic() < end:
            for data in junk:
                for port in ports:
                    out.sendto(data, ("127.0.0.1", port))
                    sent += 1
    return sent


def read_recorded(path: Path) -> list[tuple[str, bytes]]:
    """What the switch passed on: (receiver, datagram)."""
    return [(to, bytes.fromhex(text)) for to, text in map(str.split, path.read_text().splitlines())]


def is_release(data: bytes) -> bool:
    return data[SORT_AT] == RELEASE


def receiver_boot(data: bytes) -> int:
    return int.from_bytes(data[RECEIVER_BOOT_AT : RECEIVER_BOOT_AT + 8], "big")


def flipped(data: bytes, chance: random.Random) -> bytes:
    """One bit, anywhere but in the first byte."""
    at = chance.randrange(1, len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def throw(datagrams: list[bytes], port: int) -> None:
    """So slowly that none is lost on the way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for data in datagrams:
            out.sendto(data, ("127.0.0.1", port))
            time.sleep(0.0005)


if __name__ == "__main__":
    print(flood(float(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
