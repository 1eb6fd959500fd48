"""Connections of the line protocol: bytes between a socket and a session, with a bound on everything.

A plain connection is watched by the loop's selector itself and answered by one `send` in the same turn: asyncio's
streams would cost eight times as much for pipelined commands. With TLS asyncio's transport stands between.

A reader that is too slow is dropped and counted, by size and by time; while something waits for it, nothing more is
read from it. What it is owed is never cut in the middle and then continued. Nor is anything read from a client whose
signals are being worked off in portions.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from primacy.loop import unwatch, watch
from primacy.slots.session import Session

READ_BYTES_MAX = 16_384
"""Read in one go; its answers are at most some 140 KB, for the shortest line has 5 bytes and the longest answer 41."""
OWED_BYTES_MAX = 262_144
"""What may wait for a client that does not read; beyond, it is dropped."""
LINGER_BYTES = 65_536
"""A client that is hung up on is read empty up to here first, or the kernel would throw away what it was told last."""


class Owner(Protocol):
    """The server, as its connections see it."""

    def now_ms(self) -> int:
        """The slots' time; ends a leadership whose hold is over before anything is answered under it."""
        ...

    def unfinished(self, link: Link) -> None:
        """A line waits for its end."""
        ...

    def owes(self, link: Link, *, took: bool = False) -> None:
        """The client has not taken all that it is owed. `took`: but some of it, just now."""
        ...

    def later(self, link: Link) -> None:
        """Its client has sent more than is worked off in one go: `go_on`, in another turn."""
        ...

    def came(self, link: Link) -> None: ...

    def gone(self, link: Link, *, slow: bool) -> None: ...


class Link(Protocol):
    """A connection, with or without TLS."""

    session: Session

    @property
    def owed_bytes(self) -> int:
        """What the client has not taken."""
        ...

    def answer(self, data: bytes) -> None:
        """Sends, or keeps what cannot be sent now."""
        ...

    def go_on(self) -> None:
        """With what its client has sent already; also if it has left meanwhile."""
        ...

    def hang_up(self) -> None:
        """When what is owed is sent."""
        ...

    def drop(self, *, slow: bool = False) -> None:
        """Now."""
        ...


class PlainLink:
    """A connection without TLS."""

    __slots__ = ("_owed", "_reads", "_writes", "loop", "owner", "session", "sock")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        owner: Owner,
        session: Callable[[Callable[[bytes], bool]], Session],
    ) -> None:
        self.loop, self.sock, self.owner = loop, sock, owner
        self._owed = b""
        self._reads = self._writes = False
        self.session = session(self._offer)
        self._listen(True)
        owner.came(self)

    @property
    def owed_bytes(self) -> int:
        return len(self._owed)

    def readable(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop()
            return
        if not data:
            self.drop()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        now_ms = self.owner.now_ms()
        session = self.session
        said = session.take(data, now_ms)
        if said:
            self.answer(said)
        if session.closing:
            self.hang_up()
        elif session.rest:
            if session.more:
                self._listen(False)
                self.owner.later(self)
            else:
                self.owner.unfinished(self)

    def go_on(self) -> None:
        """Not while something waits for the client: it is read no further then, and served no further."""
        if self._owed or self.session.closing:
            return
        self._take(b"")
        if self.sock.fileno() < 0:
            self.owner.gone(self, slow=False)  # it may have registered once more
        elif not self._owed and not self.session.more:
            self._listen(True)

    def answer(self, data: bytes) -> None:
        if self._owed:
            self._owe(self._owed + data)
            return
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.drop()
            return
        if sent != len(data):
            self._owe(data[sent:])

    def _offer(self, event: bytes) -> bool:
        if self.sock.fileno() < 0:
            return False
        self.answer(event)
        return not self._owed and self.sock.fileno() >= 0

    def hang_up(self) -> None:
        self.session.closing = True
        if self._owed or self.sock.fileno() < 0:
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
            read = 0
            while read < LINGER_BYTES and (data := self.sock.recv(READ_BYTES_MAX)):
                read += len(data)
        except OSError:
            pass  # nothing more to read, or it is gone already
        self.drop()

    def drop(self, *, slow: bool = False) -> None:
        if self.sock.fileno() < 0:
            return
        self._listen(False)
        self._wait(False)
        self.sock.close()
        self._owed = b""
        self.owner.gone(self, slow=slow)

    def _owe(self, data: bytes) -> None:
        if len(data) > OWED_BYTES_MAX:
            self.drop(slow=True)
            return
        self._owed = data
        self._listen(False)
        self._wait(True)
        self.owner.owes(self)

    def _writable(self) -> None:
        try:
            sent = self.sock.send(self._owed)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop()
            return
        self._owed = self._owed[sent:]
        self.owner.owes(self, took=True)  # also if that was all: its time must not run on to the next debt
        if self._owed:
            return
        self._wait(False)
        if self.session.closing:
            self.hang_up()
        elif self.session.more:
            self.owner.later(self)
        else:
            self._listen(True)

    def _listen(self, on: bool) -> None:
        if on != self._reads:
            self._reads = on
            if on:
                watch(self.loop, self.sock, self.readable)
            else:
                unwatch(self.loop, self.sock)

    def _wait(self, on: bool) -> None:
        if on != self._writes:
            self._writes = on
            if on:
                self.loop.add_writer(self.sock, self._writable)
            else:
                self.loop.remove_writer(self.sock)


class TlsLink(asyncio.Protocol):
    """A connection behind asyncio's TLS."""

    def __init__(self, owner: Owner, session: Callable[[Callable[[bytes], bool]], Session]) -> None:
        self.owner = owner
        self.session = session(self._offer)
        self._transport: asyncio.Transport | None = None
        self._full = False
        self._ending = False
        """asyncio's transport must not be spoken to once it was told to close."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over; what never comes so far is asyncio's to forget."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.owner.came(self)

    @property
    def owed_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None and not self._ending else 0

    def data_received(self, data: bytes) -> None:
        if not self._is_open():
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        now_ms = self.owner.now_ms()
        said = self.session.take(data, now_ms)
        if said:
            self.answer(said)
        if self.session.closing:
            self.hang_up()
        elif self.session.more:
            if self._transport is not None and not self._ending:
                self._transport.pause_reading()
            self.owner.later(self)
        elif self.session.rest:
            self.owner.unfinished(self)

    def go_on(self) -> None:
        """Read again only when all is worked off: asyncio would close first if the client has left meanwhile."""
        if self._full or self.session.closing:
            return
        self._take(b"")
        if self._transport is None:
            self.owner.gone(self, slow=False)
        elif not self._ending and not self._full and not self.session.more:
            self._transport.resume_reading()

    def answer(self, data: bytes) -> None:
        if self._transport is None or self._ending:
            return
        self._transport.write(data)
        owed = self.owed_bytes
        if owed > OWED_BYTES_MAX:
            self.drop(slow=True)
        elif owed:
            self.owner.owes(self)

    def pause_writing(self) -> None:
        self._full = True
        if self._transport is not None and not self._ending:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._transport is not None and not self._ending:
            self.owner.owes(self, took=True)
            if self.session.more:
                self.owner.later(self)
            else:
                self._transport.resume_reading()

    def _offer(self, event: bytes) -> bool:
        self.answer(event)
        return self._is_open() and not self.owed_bytes

    def _is_open(self) -> bool:
        return self._transport is not None and not self._ending

    def hang_up(self) -> None:
        self.session.closing = True
        if self._transport is not None and not self._ending:
            self._ending = True
            self._transport.close()

    def drop(self, *, slow: bool = False) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
            self.owner.gone(self, slow=slow)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._transport is not None:
            self._transport = None
            self.owner.gone(self, slow=False)
