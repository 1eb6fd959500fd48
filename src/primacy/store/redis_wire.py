"""How Redis and Valkey are reached: RESP2 over one socket, with a limit on everything.

No client library: each that there is connects again by itself and sends a request a second time, and here a broken
connection must be seen by the store (`link`), a refused certificate must be told from one that may pass, and the
descriptor of a subscription must be waited for by the renewing thread. What is left of the protocol fits in this file.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Sequence
from typing import NamedTuple

from primacy.errors import NotReached, PrimacyError, Refused, StoreUnusable
from primacy.store.port import next_link
from primacy.store.tls_or_plain import speaks_plain, speaks_tls

BULK_BYTES_MAX = 4 * 1024 * 1024
"""Largest text of an answer. A row has less than a thousand bytes; the page of a scan has many."""
PARTS_MAX = 1_000_000
"""Most parts of one answer."""
DEPTH_MAX = 8
LINE_BYTES_MAX = 65_536
READ_BYTES = 65_536
NUMBER = re.compile(rb"[+-]?[0-9]{1,20}")
TLS_PASSES = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
"""The connection broke, which may pass. Every other error of TLS is a refusal of one of the two."""

RIGHTS = "give this user the rights that `primacy lease schema --store redis://…` prints"
NO_PASSWORD = "this server asks for a password: redis://user:password@host"
REMEDIES = (
    ("WRONGPASS", "correct the user or the password in the address"),
    ("ERR AUTH <password> called without", "leave the password out of the address, or set one on the server"),
    ("NOAUTH", NO_PASSWORD),
    ("ERR Protocol error: unauthenticated", NO_PASSWORD),
    ("NOPERM", RIGHTS),
    ("ERR ACL failure in script", RIGHTS),
    ("ERR The user executing the script", RIGHTS),
    ("DENIED", "this server is in protected mode: give it a password, or let it listen for others"),
    ("ERR DB index", "choose a database that the server has: redis://host/0"),
    ("WRONGTYPE", "the key is somebody else's; choose another name for the table"),
    ("ERR Error compiling script", "is this Redis 7.0 or newer, or Valkey?"),
    ("ERR unknown command", "is this Redis 7.0 or newer, or Valkey, with EVALSHA and INFO allowed?"),
    ("ERR Unknown Redis command called from", "is this Redis 7.0 or newer, or Valkey, with INFO allowed?"),
    ("ERR Unknown command called from", "is this Redis 7.0 or newer, or Valkey, with INFO allowed?"),
    ("MOVED", "the leases belong to another node of this cluster: name that one in the address"),
)
"""What never passes by itself, and what to do."""
PASSES = (
    ("READONLY", "is a replica: a lease needs the server that is written to"),
    ("MASTERDOWN", "is a replica: a lease needs the server that is written to"),
    ("LOADING", "is starting: it still reads its data"),
    ("MISCONF", "cannot write to its disk, and refuses every write until it can"),
    ("NOREPLICAS", "refuses writes, as too few replicas follow it (min-replicas-to-write)"),
)
"""What may pass by itself, in words that help more than the server's own."""
FULL = "ERR max number of clients"
"""It says that, and hangs up: the connection is of no more use."""


class Said(NamedTuple):
    """An error of the server, as it stands in an answer."""

    text: str


Reply = bytes | int | None | list["Reply"] | Said


class Target(NamedTuple):
    """One server, and who we are there."""

    host: str
    port: int
    database: int = 0
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        """For sentences; holds no password."""
        return f"Redis at {self.host}:{self.port}"


class Wire:
    """One connection. It never connects again by itself: after an error it is of no more use."""

    def __init__(self, target: Target, limit_s: float) -> None:
        self.target = target
        self.link = next_link()
        self._limit_s = limit_s
        self._until_s = time.monotonic() + limit_s
        self._buffer = bytearray()
        self._socket: socket.socket | None = None
        try:
            self._socket = self._connected()
        except (OSError, ValueError) as error:
            raise self._meaning(error) from None
        self._log_in()

    @property
    def is_over(self) -> bool:
        """It was closed; nothing more can be asked on it."""
        return self._socket is None

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, *commands: Sequence[str | bytes | int]) -> list[Reply]:
        """One trip: all commands, then all answers. Errors of the server are answers like others."""
        self._until_s = time.monotonic() + self._limit_s
        found: list[Reply] = []
        try:
            self._send(b"".join(map(_packed, commands)))
            while len(found) < len(commands):
                found.append(self._reply())
        except (OSError, ValueError) as error:
            meaning = self._meaning(error)
            if found and isinstance(found[0], Said):  # it said why, and hung up
                meaning = self.refusal(found[0])
            raise meaning from None
        return found

    def pushed(self) -> list[Reply]:
        """What has come by itself since, without waiting: for a connection that has subscribed to something."""
        found: list[Reply] = []
        try:
            assert self._socket is not None
            self._socket.setblocking(False)
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                while True:
                    self._receive()
            while self._is_whole():
                found.append(self._reply())
        except (OSError, ValueError) as error:
            raise self._meaning(error) from None
        return found

    def refusal(self, said: Said) -> PrimacyError:
        """What an error of the server means."""
        for begin, words in PASSES:
            if said.text.startswith(begin):
                return Refused(f"{self.target} {words}")
        if said.text.startswith(FULL):
            return NotReached(f"{self.target}: {FULL} reached: raise maxclients, or end some of its other clients")
        sentence = f"{self.target}: {said.text.partition(' script: ')[0][:200]}"
        for begin, remedy in REMEDIES:
            if said.text.startswith(begin):
                return StoreUnusable(f"{sentence}: {remedy}")
        return Refused(sentence)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        host, port, tls = self.target.host, self.target.port, self.target.tls
        plain = socket.create_connection((host, port), self._limit_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def _log_in(self) -> None:
        user, password = self.target.user, self.target.password
        commands: list[tuple[str | int, ...]] = []
        if user or password:
            commands.append(("AUTH", user, password) if user else ("AUTH", password))
        if self.target.database:
            commands.append(("SELECT", self.target.database))
        for command in commands:
            (answer,) = self.ask(command)
            if isinstance(answer, Said):
                self.close()
                raise self.refusal(answer)

    def _meaning(self, error: OSError | ValueError) -> PrimacyError:
        self.close()
        if isinstance(error, ssl.SSLError) and not isinstance(error, TLS_PASSES):
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            return StoreUnusable(f"{self.target}: TLS is refused: {why}; check the certificates")
        if isinstance(error, TimeoutError):
            return NotReached(f"{self.target}: no answer within {self._limit_s * 1_000:.0f} ms")
        return NotReached(f"{self.target}: {getattr(error, 'strerror', None) or error or type(error).__name__}")

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            raise ConnectionError("the connection is closed")
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _receive(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("it closed the connection")
        self._buffer += data
        if len(self._buffer) > BULK_BYTES_MAX + READ_BYTES:
            raise ValueError("an answer without an end")

    def _wait(self) -> None:
        assert self._socket is not None
        self._socket.settimeout(self._left_s())
        self._receive()

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise ValueError("it does not answer like Redis")
            self._wait()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _reply(self, depth: int = 0) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            text = rest.decode(errors="replace")
            return Said("".join(char if char.isprintable() else "?" for char in text) or "an error without a word")
        if kind not in (b":", b"$", b"*"):
            raise ValueError("it does not answer like Redis")
        number = _number(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"$":
            return self._bulk(number)
        if number > PARTS_MAX or depth > DEPTH_MAX:
            raise ValueError("an answer without an end")
        return [self._reply(depth + 1) for _ in range(number)]

    def _bulk(self, size: int) -> bytes:
        if size > BULK_BYTES_MAX:
            raise ValueError("an answer without an end")
        while len(self._buffer) < size + 2:
            self._wait()
        data = bytes(self._buffer[:size])
        del self._buffer[: size + 2]
        return data

    def _is_whole(self) -> bool:
        """A message of a channel has come as a whole: `*3`, then three texts (a number, when it was subscribed to)."""
        at = 0
        parts = 1
        while parts:
            end = self._buffer.find(b"\r\n", at)
            if end < 0:
                return False
            kind, rest = self._buffer[at : at + 1], self._buffer[at + 1 : end]
            at, parts = end + 2, parts - 1
            if kind == b"*":
                parts += max(0, _number(rest))
            elif kind == b"$" and (size := _number(rest)) >= 0:
                at += size + 2
        return at <= len(self._buffer)


def explained(error: PrimacyError, target: Target, limit_s: float) -> PrimacyError:
    """Of a server that never answered: it may speak TLS only, or plain text only, and then it never will."""
    if not isinstance(error, NotReached):
        return error
    where = (target.host, target.port)
    if target.tls is None and speaks_tls(*where, limit_s):
        return StoreUnusable(f"{target}: it speaks TLS only: use rediss:// in the address")
    if target.tls is not None and speaks_plain(*where, b"PING\r\n", (b"+", b"-"), limit_s):
        said = "TLS is refused: it speaks plain text only: give it a certificate, or use redis:// in the address"
        return StoreUnusable(f"{target}: {said}")
    return error


def _number(text: bytes | bytearray) -> int:
    if not NUMBER.fullmatch(text):
        raise ValueError("it does not answer like Redis")
    return int(text)


def _packed(command: Sequence[str | bytes | int]) -> bytes:
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)
