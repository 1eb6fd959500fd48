"""A slot server in a thread of the test, on real sockets, with a clock that the test moves; and a client of bytes.

A wait of a conversation moves that clock, so that no test depends on how fast this machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from primacy.loop import QuickLoop
from primacy.node.clock import HandClock
from primacy.settings.loading import of_mapping
from primacy.settings.schema_work import Slots
from primacy.slots.host import Terms
from primacy.slots.http import HttpServer
from primacy.slots.line_server import LineServer, listening

DATA = json.loads((Path(__file__).parents[1] / "data/slots_conversations.json").read_text())
LIMIT_S = 30.0
"""For whatever must come. Nothing waits so long on a machine that works."""
T = TypeVar("T")


def slots_of(protocol: str = "standard", more: dict[str, Any] | None = None) -> Slots:
    """The settings that the conversations are about."""
    given = {"addr": "127.0.0.1:25873", "protocol": protocol, "users": DATA["users"], **DATA["slots"], **(more or {})}
    return of_mapping({"slots": given}).slots


class Harness:
    """One server."""

    def __init__(self, slots: Slots, tls: ssl.SSLContext | None = None) -> None:
        self.slots = slots
        self.tls = tls
        self.clock = HandClock(now_ms=5_000_000, wall_ms=1_800_000_000_000)
        self.complaints: list[str] = []
        self._ready = threading.Event()
        self._end: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._faults: list[dict[str, Any]] = []
        self.server: Any
        """A `LineServer` or an `HttpServer`."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Harness:
        self._thread.start()
        assert self._ready.wait(LIMIT_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        assert not self._faults, self._faults
        assert not self.server.open_now()
        assert not self.complaints

    def call(self, what: Callable[[], T]) -> T:
        """In the server's thread."""

        async def do() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(LIMIT_S)

    def wait(self, what: Callable[[], bool]) -> None:
        """Until it is so."""
        done = threading.Event()
        for _ in range(int(LIMIT_S * 100)):
            if self.call(what):
                return
            done.wait(0.01)
        raise AssertionError("it did not come to pass")

    def open(self) -> Client:
        host, _, port = self.server.address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        return Client(sock)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=QuickLoop) as runner:
            runner.run(self._serve())

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio in debug mode, and only then, reports every handshake of TLS that a stranger has broken off."""
        if not (loop.get_debug() and isinstance(context.get("exception"), OSError) and "protocol" in context):
            self._faults.append(context)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._fault)
        self._end = asyncio.Event()
        sockets = listening("127.0.0.1:0")
        kind = HttpServer if self.slots.protocol == "http" else LineServer
        self.server = kind(Terms(self.slots, self.clock, Random(1), self.complaints.append, self.tls))
        await self.server.start(sockets)
        self.server.lead()
        self._ready.set()
        await self._end.wait()
        await self.server.close()


class Client:
    """Bytes to and from a server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(LIMIT_S)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def expect(self, wanted: bytes) -> None:
        """These bytes are the next."""
        got = b""
        while len(got) < len(wanted):
            more = self.sock.recv(len(wanted) - len(got))
            assert more, f"the server hung up after {got!r}; {wanted!r} was expected"
            got += more
            assert wanted.startswith(got), f"{got!r} came, {wanted!r} was expected"

    def ask(self, line: bytes, wanted: bytes) -> None:
        self.send(line)
        self.expect(wanted)

    def line(self) -> bytes:
        """The next one, or what there is of it at the end."""
        got = b""
        while not got.endswith(b"\n") and (more := self.sock.recv(1)):
            got += more
        return got

    def rest(self) -> bytes:
        """All that comes until the server hangs up."""
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while more := self.sock.recv(4_096):
                got += more
        return got

    def silent(self, for_s: float) -> None:
        self.sock.settimeout(for_s)
        try:
            got = self.sock.recv(1)
        except TimeoutError:
            return
        finally:
            self.sock.settimeout(LIMIT_S)
        raise AssertionError(f"{got!r} came, and nothing was expected")

    def closed(self) -> None:
        """The server hangs up, and says nothing before."""
        assert self.sock.recv(1) == b""

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.sock.close()


def talk(steps: list[list[Any]], open_: Callable[[], Client], wait: Callable[[int], None]) -> None:
    """One conversation. `wait`: how its waits are made."""
    clients: dict[str, Client] = {}
    try:
        for what, *rest in steps:
            match what, rest:
                case "open", [name]:
                    clients[name] = open_()
                case "sleep_ms", [ms]:
                    wait(ms)
                case "send", [name, text]:
                    clients[name].send(text.encode())
                case "expect", [name, text]:
                    clients[name].expect(text.encode())
                case "silent_ms", [name, ms]:
                    clients[name].silent(ms / 1_000)
                case "closed", [name]:
                    clients[name].closed()
                case "close", [name]:
                    clients[name].close()
                case _:
                    raise AssertionError(what)
    finally:
        for client in clients.values():
            client.close()
