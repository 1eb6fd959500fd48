"""Hostile clients: random bytes, mutated commands, half lines, resets, and some that never read.

    python -m tests.support.slots_fuzz SECONDS [SEED]

The server is a process of its own, once for each protocol. Nothing may come of it: no word in its log, no growth, and
a good client is served all the while.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.support.slots_harness import DATA, LIMIT_S
from tests.support.slots_served import Served, served

PROTOCOLS = ("standard", "telnet", "http")
CROWD = 24
GROWTH_MIB = 24.0
"""Of the server's memory, from after the first tenth to the end. A leak of a hundred bytes per connection shows."""
LINES = sorted({step[2] for each in DATA["tcp"] for step in each["steps"] if step[0] == "send"})
REQUESTS = [
    f"{each['request']['method']} {each['request']['path']} HTTP/1.1\r\nHost: x\r\n"
    f"Content-Length: {len(each['request']['body'] or '')}\r\n\r\n{each['request']['body'] or ''}"
    for each in DATA["http"]
]


class Hostile:
    """One seed's worth of noise."""

    def __init__(self, server: Served, protocol: str, random: Random) -> None:
        self.server = server
        self.random = random
        self.socks: list[socket.socket] = []
        self.known = [line.encode() for line in (REQUESTS if protocol == "http" else LINES)]
        self.end = b"\r\n" if protocol == "telnet" else b"\n"
        self.sent_bytes = 0
        self.opened = 0

    def step(self) -> None:
        """One thing that a client may do."""
        random = self.random
        if len(self.socks) < CROWD:
            self.socks.append(self._dial())
        sock = random.choice(self.socks)
        deed = random.random()
        try:
            if deed < 0.75:
                self.sent_bytes += sock.send(self._noise())
            if deed < 0.85:
                self._read(sock)
            elif deed < 0.95:
                self._leave(sock)
            else:
                sock.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            self._read(sock)
        except OSError:
            self._leave(sock)

    def close(self) -> None:
        for sock in self.socks:
            sock.close()

    def _dial(self) -> socket.socket:
        source = (f"127.1.{self.random.randrange(1, 250)}.1", 0)  # thousands a second: one address has not the ports
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=LIMIT_S, source_address=source)
        sock.setblocking(False)
        self.opened += 1
        return sock

    def _read(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            if not sock.recv(65_536):
                self._leave(sock)

    def _leave(self, sock: socket.socket) -> None:
        """Politely, or with a reset."""
        if sock in self.socks:
            self.socks.remove(sock)
        if self.random.random() < 0.5:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def _noise(self) -> bytes:
        random = self.random
        kind = random.random()
        if kind < 0.2:
            return random.randbytes(random.randrange(1, 400))
        if kind < 0.25:
            return random.randbytes(random.randrange(1, 60_000))
        line = bytearray(random.choice(self.known))
        if kind < 0.6:
            self._mutate(line)
        data = bytes(line)
        if kind > 0.9:
            data = b"".join(random.choice(self.known) for _ in range(random.randrange(1, 200)))
        if random.random() < 0.2:
            data = data[: random.randrange(len(data) + 1)]
        return data or self.end

    def _mutate(self, line: bytearray) -> None:
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(line) + 1)
            if self.random.random() < 0.5 and line:
                line[min(at, len(line) - 1)] = self.random.randrange(256)
            else:
                line[at:at] = self.random.choice((b"\r", b"\n", b"\x00", b"\xff", b"-", b"9" * 30, self.end))


def serves(server: Served, protocol: str) -> None:
    """A good client is answered, whatever the others do."""
    with server.open() as client:
        if protocol == "http":
            client.send(b"GET /999 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"404" in client.line()
            return
        end = b"\r\n" if protocol == "telnet" else b"\n"
        client.send(b"upepe" + end + b"ppassw0rd" + end + b"r999" + end)
        for wanted in (b"vpepe\n", b"vpepe\n", b"e999005\n"):
            while (line := client.line()).startswith(b"a"):
                pass  # somebody's signal
            assert line == wanted, line


def resident_mib(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_048_576


def fuzz(protocol: str, seconds: float, seed: int, folder: Path) -> dict[str, float]:
    """Raises AssertionError for whatever should not be."""
    file = folder / f"{protocol}.yaml"
    slots = {**DATA["slots"], "100": {"kind": "multicast"}, "101": {"kind": "random"}}
    file.write_text(json.dumps({"slots": {"protocol": protocol, "users": DATA["users"], **slots}}))
    random = Random(seed)
    with served("--config", str(file)) as server:
        server.until(r"serves \d+ slots")
        words = len(server.lines)
        noise = Hostile(server, protocol, random)
        began_s = time.monotonic()
        before_mib, steps, good = 0.0, 0, 0
        try:
            while (passed_s := time.monotonic() - began_s) < seconds:
                noise.step()
                steps += 1
                if steps % 200 == 0:
                    serves(server, protocol)
                    good += 1
                if not before_mib and passed_s > seconds / 10:
                    before_mib = resident_mib(server.process.pid)
        finally:
            noise.close()
        serves(server, protocol)
        assert server.process.poll() is None, server.lines
        grown_mib = resident_mib(server.process.pid) - (before_mib or resident_mib(server.process.pid))
        assert grown_mib < GROWTH_MIB, f"{protocol}: grew by {grown_mib:.1f} MiB (seed {seed})"
        assert server.lines[words:] == [], f"{protocol}: it had to say something (seed {seed})"
        assert server.end(signal.SIGTERM) == 0
    return {
        "steps": steps,
        "connections": noise.opened,
        "bytes": noise.sent_bytes,
        "good": good,
        "grown_mib": grown_mib,
    }


def main() -> int:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory(prefix="primacy-fuzz-") as name:
        for protocol in PROTOCOLS:
            found = fuzz(protocol, seconds / len(PROTOCOLS), seed, Path(name))
            print(f"{protocol}: " + ", ".join(f"{key} {value:,.1f}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
