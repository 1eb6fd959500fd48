"""The link to one guard process that holds what fetches an entry (C4). The guard itself:
`supervise/guard/guard_calls.py`.

Guards are started ahead, so that no start of an interpreter stands between an election and the call, and each holds
one process tree after the other. A tree that is over is confirmed: by the guard, which reaps all of it, or, if the
guard was killed, by the end of the tree's root, which a pidfd tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from primacy.supervise import containment

FOLDER = containment.GUARD.parent
"""Where the guard's files stand."""
LAUNCH = "import sys; sys.path.append(sys.argv[1]); import guard_calls; guard_calls.main()"
EXTENSION = struct.Struct("!cq3q")
MARK = b"+"
KEPT = -1
"""As the guard knows them, which imports nothing of ours."""
PACKET_BYTES_MAX = 65_536
BUFFER_BYTES = 1 << 20
HANDLE_BYTES = socket.CMSG_SPACE(4)
"""At most one descriptor comes with a packet. `socket.recv_fds` would pass no flags on."""
ROOM_PARTS = 3
"""Of the time between cancel and the end of the hold: a third for SIGTERM, a third for SIGKILL, a third for the kernel
to end the tree after the guard."""
FAR_MS = 1 << 61
"""A peer alone has no hold to lose; its calls may last. The kernel takes this for never."""
UNSEEN_MS = 100
"""A guard that was killed while it started a tree has not told its root: by then the kernel has ended it."""


class Instants(NamedTuple):
    """When a tree is told to end, is killed, and dies with its guard; absolute ms of CLOCK_BOOTTIME."""

    cancel_at: int
    kill_at: int
    deadman_at: int


def instants(cancel_at_ms: int, over_at_ms: int) -> Instants:
    """What a call's two times mean for its tree."""
    cancel_at_ms, over_at_ms = min(cancel_at_ms, FAR_MS), min(over_at_ms, FAR_MS)
    part = max(0, over_at_ms - cancel_at_ms) // ROOM_PARTS
    return Instants(cancel_at_ms, cancel_at_ms + part, over_at_ms - part)


class End(NamedTuple):
    """How a program ended: nothing of it or of what it started is left."""

    code: int | None
    signal: int | None
    why: str
    """Empty, or why it could not be started or seen to its end."""


class Program(Protocol):
    """What is told about a program that a guard holds."""

    def ended(self, end: End) -> None: ...


class SourceGuard:
    """One guard process. `lost` is told once, when it has ended and nothing of its tree is left."""

    def __init__(self, lost: Callable[[SourceGuard], None]) -> None:
        self.way: str | None = None
        """How the tree is bound to the guard: `namespace`, empty for weak, None while it is not known."""
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._program: Program | None = None
        self._run = 0
        self._root_fd = -1
        self._over = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._socket.setblocking(False)
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", LAUNCH, str(FOLDER), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in containment.PASSED_ON if name in os.environ},
                    start_new_session=True,
                )
        except OSError:
            self._socket.close()
            raise
        self._pidfd = os.pidfd_open(self.process.pid)
        self._loop.add_reader(self._pidfd, self._died)
        self._loop.add_reader(self._socket, self._readable)
        self._send({"do": "hello", "peer": os.getpid()})

    @property
    def is_free(self) -> bool:
        return self._program is None and not self._over

    def start(
        self,
        program: Program,
        argv: Sequence[bytes],
        env: Mapping[bytes, bytes],
        cwd: str,
        fds: Mapping[int, int],
        until: Instants,
    ) -> None:
        """`fds`: the number in the program -> a descriptor of ours, which the caller closes afterwards."""
        assert self.is_free
        self._program = program
        self._run += 1
        order = {
            "do": "start",
            "run": self._run,
            "argv": [word.decode("latin-1") for word in argv],
            "env": {name.decode("latin-1"): value.decode("latin-1") for name, value in env.items()},
            "cwd": cwd,
            "fds": list(fds),
            **until._asdict(),
        }
        why = self._send(order, list(fds.values()))
        if why:
            self._loop.call_soon(self._end, End(None, None, why))

    def job(self, data: bytes, until: Instants) -> None:
        """For a worker: its timer is armed before it gets the job."""
        why = self._send({"do": "job", "run": self._run, "job": data.decode("latin-1"), **until._asdict()})
        if why:
            self.kill()

    def extend(self, until: Instants) -> None:
        """Never waits, and may be lost with the guard only: then nothing runs."""
        if not self._over:
            with contextlib.suppress(OSError):
                self._socket.send(EXTENSION.pack(MARK, self._run, *until))

    def rest(self) -> None:
        """The call has ended by itself: no timer is needed until the next job."""
        self._send({"do": "rest", "run": self._run})

    def stop(self, kill_at_ms: int) -> None:
        """SIGTERM now, SIGKILL then."""
        if self._send({"do": "stop", "run": self._run, "kill_at": kill_at_ms}):
            self.kill()

    def kill(self) -> None:
        """The guard itself; its tree dies with it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def close(self) -> None:
        """The guard ends its tree and itself; `lost` is told when it has."""
        if not self._over:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _send(self, order: dict[str, Any], fds: Sequence[int] = ()) -> str:
        """Why it could not be sent; empty if it was."""
        if self._over:
            return "its guard is gone"
        try:
            socket.send_fds(self._socket, [json.dumps(order).encode()], list(fds))
        except OSError as error:
            return f"its guard cannot be told: {error.strerror}"
        return ""

    def _readable(self) -> None:
        while not self._over:
            try:
                data, more, _, _ = self._socket.recvmsg(PACKET_BYTES_MAX, HANDLE_BYTES, socket.MSG_CMSG_CLOEXEC)
                fds = [fd for _, _, part in more for fd in struct.unpack(f"{len(part) // 4}i", part)]
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._loop.remove_reader(self._socket)
                self.kill()  # without its socket it can be told nothing more
                return
            self._hear(json.loads(data), fds)

    def _hear(self, said: dict[str, Any], fds: list[int]) -> None:
        match said["is"]:
            case "ready":
                self.way = said["way"]
            case "started" if said["run"] == self._run and self._program is not None:
                self._root_fd = fds.pop()
            case "gone" if said["run"] == self._run:
                self._end(End(said["code"], said["signal"], said["why"]))
            case "error":
                self.kill()  # one of the two is wrong; it must not go on
        for fd in fds:
            os.close(fd)

    def _end(self, end: End) -> None:
        program, self._program = self._program, None
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
        if program is not None:
            program.ended(end)

    def _died(self) -> None:
        """The guard is gone. Its tree is, too, once the root is: the kernel empties a namespace before that."""
        self._readable()  # what it said before
        self._over = True
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._socket)
        os.close(self._pidfd)
        self._socket.close()
        self.process.wait()
        if self._program is None:
            self._lost(self)
        elif self._root_fd >= 0:
            self._loop.add_reader(self._root_fd, self._root_died)
        else:
            self._loop.call_later(UNSEEN_MS / 1_000, self._finish)

    def _root_died(self) -> None:
        self._loop.remove_reader(self._root_fd)
        self._finish()

    def _finish(self) -> None:
        self._end(End(None, None, "its guard was killed"))
        self._lost(self)


class Guards:
    """The guards of one peer: as many as calls at once, and a few that are ready for the next."""

    def __init__(self, spare: int) -> None:
        self.spare = spare
        self.way: str | None = None
        self._all: set[SourceGuard] = set()
        self._free: list[SourceGuard] = []
        self._closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    def prepare(self) -> None:
        """Start what is missing of the spare ones."""
        while len(self._free) < self.spare and not self._closing:
            self._free.append(self._new())

    def take(self) -> SourceGuard:
        """One that is free. Raises `OSError` if none can be started."""
        guard = self._free.pop() if self._free else self._new()
        if guard.way is not None:
            self.way = guard.way
        return guard

    def give(self, guard: SourceGuard) -> None:
        """It holds nothing any more."""
        if guard.way is not None:
            self.way = guard.way
        if not guard.is_free or self._closing or len(self._free) > self.spare:
            guard.close()
        else:
            self._free.append(guard)

    async def close(self, within_s: float) -> None:
        """Ends all of them, with what they hold; what does not end in time is killed."""
        self._closing = True
        for guard in list(self._all):
            guard.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        for guard in list(self._all):
            guard.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()

    def _new(self) -> SourceGuard:
        guard = SourceGuard(self._gone)
        self._all.add(guard)
        self._empty.clear()
        return guard

    def _gone(self, guard: SourceGuard) -> None:
        self._all.discard(guard)
        if guard in self._free:
            self._free.remove(guard)
        if not self._all:
            self._empty.set()
