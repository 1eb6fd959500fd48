"""`primacy lab signer`: stands for the process that must run once. It signs one height after the other, with its token.

    python -I -S signer.py HOST:PORT INTERVAL_MS

Nothing but the standard library, and little of that: it is started at every failover, and nothing of ours may stand in
the way. What it is called comes from the environment that `primacy run` gives to every command.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

TIMEOUT_S = 2.0
"""The chain is on this machine; one that takes longer is asked again."""
AGAIN_S = 0.1
"""Between two tries to reach it."""
ANSWER_BYTES_MAX = 65_536


class Stale(Exception):
    """The chain refuses this signer for good."""


class Line:
    """One connection to the chain, kept open: requests and answers of HTTP/1.1, in as few words as it allows."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.socket: socket.socket | None = None

    def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """The answer. Raises `OSError` if the chain is not there, `Stale` if it says no."""
        if self.socket is None:
            self.socket = socket.create_connection((self.host, self.port), TIMEOUT_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nX-Primacy: 1\r\nContent-Length: {len(data)}\r\n\r\n"
        try:
            self.socket.sendall(head.encode() + data)
            status, said = self._answer(self.socket)
        except (OSError, ValueError) as error:
            self.socket.close()
            self.socket = None
            raise OSError(str(error)) from None
        if status != 200:
            raise Stale(str(said.get("error", status)))
        return said

    @staticmethod
    def _answer(sock: socket.socket) -> tuple[int, dict[str, object]]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += _more(sock, data)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        while len(body) < length:
            body += _more(sock, body)
        return int(lines[0].split()[1]), json.loads(body)


def _more(sock: socket.socket, so_far: bytes) -> bytes:
    part = sock.recv(4_096)
    if not part or len(so_far) > ANSWER_BYTES_MAX:
        raise OSError("the chain hung up")
    return part


def made_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000


def sign(host: str, port: int, interval_ms: int, who: dict[str, object]) -> None:
    """Until it is killed, or refused."""
    line = Line(host, port)
    while True:
        try:
            height = line.post("/v1/open", {**who, "made_us": made_us(), "interval_ms": interval_ms})["next_height"]
            due_s = time.monotonic()
            while True:
                height = line.post("/v1/sign", {**who, "made_us": made_us(), "height": height})["next_height"]
                due_s = max(due_s + interval_ms / 1_000, time.monotonic())  # what was missed is not made up for
                time.sleep(max(0.0, due_s - time.monotonic()))
        except OSError:
            time.sleep(AGAIN_S)


def main(argv: list[str]) -> int:
    try:
        address, interval = argv
        host, _, port = address.rpartition(":")
        token, run = int(os.environ["PRIMACY_TOKEN"]), int(os.environ.get("PRIMACY_RUN", "1"))
        node = os.environ.get("PRIMACY_NODE", "alone")
        who = {"token": token, "run": run, "node": node, "id": os.urandom(8).hex()}
        sign(host, int(port), int(interval), who)
    except Stale as error:
        print(f"signer: the chain refuses it: {error}", file=sys.stderr)
        return 1
    except (KeyError, ValueError):
        print("signer: needs HOST:PORT and an interval in ms, and PRIMACY_TOKEN of `primacy run`", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
