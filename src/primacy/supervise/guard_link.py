"""The pipe to one guard process: packets in both directions, and the news of its end.

A guard is started before it is needed, so that no start of an interpreter stands between an election and the work. It
runs as a plain script, not through this package: what it does not load, it need not carry. Each packet is one JSON
object; all times are absolute milliseconds of CLOCK_BOOTTIME. Extensions, which come with every heartbeat, go through a
pipe at which the guard does not wait: it looks there in time by itself.

Whoever loses either the process or the pipe has lost the guard (Q8).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from primacy.supervise.containment import start_guard

PACKET_BYTES_MAX = 256 * 1024
BUFFER_BYTES = 2 * PACKET_BYTES_MAX
UNSENT_MAX = 32
"""Packets that a guard which reads nothing may be behind. It holds its own deadlines, so it is lost soon anyway."""

EXTENSION = struct.Struct("!c3q")
EXTENSION_MARK = b"+"
"""As the guard knows them, which imports nothing of ours."""

Hear = Callable[["GuardLink", dict[str, Any]], None]
Ended = Callable[["GuardLink"], None]


class GuardLink:
    """One guard. `hear` is told each of its packets, `ended` once that it is gone."""

    def __init__(self, hear: Hear, ended: Ended) -> None:
        self.hear = hear
        self.ended = ended
        self.containment = ""
        """`strong` or `weak`, once it has said so."""
        self.way = ""
        """Of strong containment: `namespace` or `ptrace`."""
        self.why = ""
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[bytes, int]] = deque()
        """Packets, each with a descriptor that goes along, or -1."""
        self._over = False
        self._writes = False
        """The loop says when the socket takes more."""
        self._looked_at, self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.process, self.socket = start_guard()
        except OSError:
            os.close(self._looked_at)
            os.close(self._pipe)
            raise
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self.socket.setblocking(False)
        self._pidfd = os.pidfd_open(self.process.pid)
        self._loop.add_reader(self._pidfd, self._process_ended)
        self._loop.add_reader(self.socket, self._readable)

    def hello(self, lock: str, containment: str) -> None:
        """First of all, and with the guard's end of the pipe."""
        handle, self._looked_at = self._looked_at, -1
        self.send({"do": "hello", "agent": os.getpid(), "lock": lock, "containment": containment}, handle)

    def extend(self, term_at_ms: int, kill_at_ms: int, deadman_at_ms: int) -> None:
        """Never waits. A full pipe means that the guard did not look for long: then a packet wakes it.

        If that cannot be sent either, it is dropped: a later one will say more. One that is gone will be found gone.
        """
        if self._over:
            return
        extension = EXTENSION.pack(EXTENSION_MARK, term_at_ms, kill_at_ms, deadman_at_ms)
        try:
            os.write(self._pipe, extension)
        except BlockingIOError:
            if not self._unsent:
                with contextlib.suppress(OSError):
                    self.socket.send(extension)
        except BrokenPipeError:
            pass

    def send(self, packet: dict[str, Any], handle: int = -1) -> None:
        """In order. Not with the quicker encoder: an environment may have bytes that are no text.

        `handle` is a descriptor for the guard; ours of it is closed when it is sent.
        """
        if self._over:
            _drop(handle)
            return
        self._unsent.append((json.dumps(packet).encode(), handle))
        self._flush()
        if len(self._unsent) > UNSENT_MAX:
            self.kill()

    def kill(self) -> None:
        """Its tree dies with it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def _flush(self) -> None:
        while self._unsent:
            data, handle = self._unsent[0]
            try:
                if handle < 0:
                    self.socket.send(data)
                else:
                    socket.send_fds(self.socket, [data], [handle])
            except BlockingIOError:
                self._writes = True
                self._loop.add_writer(self.socket, self._flush)
                return
            except OSError:  # it is gone, or will be found gone
                self._forget_unsent()
                break
            self._unsent.popleft()
            _drop(handle)
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self.socket)

    def _readable(self) -> None:
        if not self._read():
            self._loop.remove_reader(self.socket)
            self.kill()  # without its pipe it can be told nothing more

    def _read(self) -> bool:
        """Hears what is there; False at the end of the pipe."""
        while not self._over:
            try:
                data = self.socket.recv(PACKET_BYTES_MAX)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            said = json.loads(data)
            if said.get("is") == "ready":
                self.containment, self.why = said.get("containment", "weak"), said.get("why", "")
                self.way = said.get("way", "")
            self.hear(self, said)
        return True

    def _process_ended(self) -> None:
        """What it said last is heard first."""
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self.socket)
        self._read()
        self._close()
        self.ended(self)

    def _close(self) -> None:
        self._over = True
        self._forget_unsent()
        self._loop.remove_writer(self.socket)
        self.socket.close()
        os.close(self._pidfd)
        os.close(self._pipe)
        _drop(self._looked_at)
        self.process.wait()

    def _forget_unsent(self) -> None:
        while self._unsent:
            _drop(self._unsent.popleft()[1])


def _drop(handle: int) -> None:
    if handle >= 0:
        os.close(handle)
