"""The other end of a manager's calls: a server that answers as a script says, and keeps what it was asked.

It stands for a node that a cluster knows already. The node under test joins it, looks at it, and, as it answers no look
well, calls an election. So every request that a node makes by itself is seen: method, path, headers and body.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LEFT_OUT = ("Host", "Content-Length", "Accept", "Accept-Encoding", "User-Agent", "Connection")
"""What every HTTP client says, and what its library decides."""


class ManagerPeer:
    """`answers`: path -> [status, body]. Each different request is kept once."""

    def __init__(self, port: int, answers: dict[str, list[Any]], plain: Callable[[str], str]) -> None:
        self.asked: set[tuple[str, ...]] = set()
        self._answers = answers
        self._plain = plain
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                peer.answer(self)

            def do_POST(self) -> None:
                peer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers.get("Content-Length") or 0)).decode("utf-8", "replace")
        kept = sorted((name, value) for name, value in call.headers.items() if name not in LEFT_OUT)
        headers = self._plain(" ".join(f"{name}: {value}" for name, value in kept))
        self.asked.add((call.command, call.path, headers, self._plain(body)))
        status, said = self._answers.get(call.path, [404, ""])
        call.send_response(status)
        data = str(said).encode()
        call.send_header("Content-Type", "application/json")
        call.send_header("Content-Length", str(len(data)))
        call.end_headers()
        call.wfile.write(data)

    def requests(self, within_s: float) -> list[tuple[str, ...]]:
        """All that were made, once every path that has an answer was asked."""
        last = time.monotonic() + within_s
        while time.monotonic() < last and set(self._answers) - {path for _, path, *_ in self.asked}:
            time.sleep(0.02)
        return sorted(self.asked)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
