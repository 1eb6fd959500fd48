"""How etcd is reached: its JSON gateway over plain HTTP, one endpoint after the other, with a limit on everything.

No protobuf and no asyncio: the renewing thread has its own connection and waits for one answer at a time. A watch is a
second connection whose answer never ends; it is spoken in HTTP/1.0, so that its lines come as they are.

A broken connection may be all that tells of a server that was put back (L5). So none is ever replaced unnoticed:
each one, and each request that failed, gives `link` a new number.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from typing import Any, NamedTuple

from primacy.errors import NotReached, PrimacyError, Refused, StoreUnusable
from primacy.store.port import next_link
from primacy.store.tls_or_plain import speaks_plain

BODY_BYTES_MAX = 32 * 1024 * 1024
"""Largest answer: a list of `LIST_MAX` rows."""
LINE_BYTES_MAX = 4 * 1024 * 1024
"""Largest line of a watch."""
ASKS_PLAIN, ANSWERS_PLAIN = b"GET /version HTTP/1.0\r\n\r\n", (b"HTTP/1.0 200", b"HTTP/1.1 200")
"""One that speaks TLS answers this with 400 and in plain text."""
CLOSED_MAX = 3
"""Answers in a row whose connection was closed after them. A server that ends closes once; a proxy does it always."""
TLS_PASSES = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
"""The connection broke, which may pass. Every other error of TLS is a refusal of one of the two."""


REMEDIES = (
    ("permission denied", "give this user the rights that `primacy lease schema --store etcd://…` prints"),
    ("invalid user ID or password", "correct the user or the password in the address"),
    ("user name is empty", "this cluster asks for a user: etcd://user:password@host"),
    ("user name not found", "correct the user in the address"),
    ("authentication is not enabled", "leave the user out of the address, or enable authentication"),
)
"""What never passes by itself, and what to do."""


class Endpoint(NamedTuple):
    """One etcd server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Gateway:
    """Requests to a cluster. Not for two threads."""

    def __init__(
        self,
        endpoints: list[Endpoint],
        limit_ms: int,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        self.endpoints = endpoints
        self._limit_s = limit_ms / 1_000
        self._tls = tls
        self._login = (user, password)
        self._key = ""
        """What `authenticate` gave us."""
        self._chosen = 0
        self._connection: http.client.HTTPConnection | None = None
        self.link = next_link()
        """Number of the connection; a new one after every failure."""
        self._closed = 0
        self._unusable: set[int] = set()
        """Endpoints that refused for good since one last answered."""
        self._answered = False
        """At least once."""

    @property
    def is_open(self) -> bool:
        """The next request goes over the connection of the last one."""
        return self._connection is not None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request to the present endpoint. A failure moves on to the next one, for the next request."""
        if self._login[0] and not self._key:
            name, password = self._login
            self._key = self._ask("auth/authenticate", {"name": name, "password": password}).get("token", "")
        return self._ask(path, body)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._key = ""
        if connection is not None:
            connection.close()

    def where(self) -> str:
        return f"etcd at {self.endpoints[self._chosen]}"

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            status, answer = self._exchange(path, json.dumps(body).encode())
        except ssl.SSLError as error:
            if isinstance(error, TLS_PASSES):
                raise self._lost(error) from None
            raise self._no_use(f"TLS is refused: {_words(error, self._limit_s)}; check the certificates") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._lost(error) from None
        if b"HTTP request to an HTTPS server" in answer[:200]:
            raise self._no_use("it speaks TLS only: use etcds://")
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._move_on(f"it answered {status} and no JSON: is this etcd 3.4 or newer?") from None
        if status == 200 and isinstance(found, dict):
            self._unusable.clear()
            self._answered = True
            return found
        raise self._refusal(status, found)

    def _refusal(self, status: int, found: Any) -> PrimacyError:
        said = str(found.get("error") or found.get("message") or status) if isinstance(found, dict) else str(status)
        sentence = f"{self.where()}: {said[:200]}"
        self.link = next_link()
        if "auth token" in said:  # it ran out, or the server that gave it was restarted
            self._key = ""
            return Refused(sentence)
        for told, remedy in REMEDIES:
            if told in said:
                self.close()
                return StoreUnusable(f"{sentence}: {remedy}")
        return Refused(sentence) if status in (400, 401, 403, 429) else self._move_on(said[:200])

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._new_connection()
        headers = {"Content-Type": "application/json"} | ({"Authorization": self._key} if self._key else {})
        self._connection.request("POST", f"/v3/{path}", body, headers)
        answer = self._connection.getresponse()
        found = answer.read(BODY_BYTES_MAX + 1)
        if len(found) > BODY_BYTES_MAX:
            raise ValueError("an answer without an end")
        self._closed = self._closed + 1 if answer.will_close else 0
        if answer.will_close:
            self.close()
        if self._closed >= CLOSED_MAX:
            raise StoreUnusable(
                f"{self.where()} closes the connection after every answer, and leases need one that stays: connect to "
                "etcd itself, not to a proxy before it"
            )
        return answer.status, found

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port = self.endpoints[self._chosen]
        connection = http.client.HTTPConnection(host, port, timeout=self._limit_s)
        if self._tls is not None:
            connection = http.client.HTTPSConnection(host, port, timeout=self._limit_s, context=self._tls)
        connection.connect()
        connection.auto_open = 0  # or http.client would replace a broken one, and nobody would know
        self.link = next_link()
        return connection

    def _lost(self, error: Exception) -> PrimacyError:
        """etcd without TLS hangs up on who begins with it, as one does that goes down."""
        if self._tls is not None and not self._answered:
            host, port = self.endpoints[self._chosen]
            if speaks_plain(host, port, ASKS_PLAIN, ANSWERS_PLAIN, self._limit_s):
                return self._no_use("TLS is refused: it speaks plain HTTP only: give it a certificate, or use etcd://")
        return self._move_on(_words(error, self._limit_s))

    def _move_on(self, said: str) -> NotReached:
        sentence = f"{self.where()}: {said}"
        self.close()
        self.link = next_link()
        self._chosen = (self._chosen + 1) % len(self.endpoints)
        return NotReached(sentence)

    def _no_use(self, said: str) -> PrimacyError:
        """Final only if no other endpoint is left to be tried."""
        self._unusable.add(self._chosen)
        moved = self._move_on(said)
        return StoreUnusable(str(moved)) if len(self._unusable) == len(self.endpoints) else moved

    def watch(self, body: dict[str, Any]) -> Watch:
        """A stream of changes, on a connection of its own."""
        host, port = self.endpoints[self._chosen]
        try:
            plain = socket.create_connection((host, port), self._limit_s)
            stream = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=host)
            data = json.dumps(body).encode()
            head = f"POST /v3/watch HTTP/1.0\r\nHost: {host}:{port}\r\nContent-Length: {len(data)}\r\n"
            head += f"Authorization: {self._key}\r\n" if self._key else ""
            stream.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
            found = Watch(stream)
            found.begin(self._limit_s)
        except (OSError, ValueError) as error:
            raise NotReached(f"{self.where()}: no watch: {_words(error, self._limit_s)}") from None
        return found


class Watch:
    """The lines of a watch, as far as they have come."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._buffer = b""

    def begin(self, limit_s: float) -> None:
        """Waits for the head of the answer and for the line that says that the watch stands."""
        self.stream.settimeout(limit_s)
        while b"\r\n\r\n" not in self._buffer or b"\n" not in self._buffer.partition(b"\r\n\r\n")[2]:
            self._add(self.stream.recv(65_536))
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise ValueError(head.partition(b"\r\n")[0].decode(errors="replace"))
        self.stream.setblocking(False)

    def lines(self) -> list[dict[str, Any]]:
        """What has come, without waiting. Raises OSError or ValueError when the stream is over."""
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            while True:
                self._add(self.stream.recv(65_536))
        *whole, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in whole if line.strip()]

    def close(self) -> None:
        self.stream.close()

    def _add(self, data: bytes) -> None:
        if not data:
            raise ValueError("the stream ended")
        self._buffer += data
        if len(self._buffer) > LINE_BYTES_MAX:
            raise ValueError("a line without an end")


def _words(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s * 1_000:.0f} ms"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
