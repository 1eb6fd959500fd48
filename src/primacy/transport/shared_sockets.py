"""The sockets that the elections of one process share: one port, and one connected socket for each other node.

A datagram says in its head for which start of its receiver it is, and of which start of its sender: both are drawn anew
for each election, so that either tells which election is meant. That is a hint and no more: the seal of that election
decides, as always. Where neither number is known (the first words of a node, a release), every election's seal is
tried. So nothing in a datagram is different from those of a node with one election, and such nodes take part.

Several datagrams for one node may leave in one: a byte that no datagram begins with, then each with its length before
it. Each has its own seal, and is judged as if it had come alone; what holds them together proves nothing.

Nothing here looks into a message, and nothing waits: an election that has trouble costs the others its own steps only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Protocol

from primacy.errors import CannotHere, InUse
from primacy.loop import timer, unwatch, watch
from primacy.transport.drop_counters import DropCounters
from primacy.transport.peer import Address, SocketAddress
from primacy.transport.seal import DATAGRAM_BYTES_MAX, LEAST_BYTES, MAGIC

SEVERAL = 0xB8
"""The first byte of several in one."""
SEVERAL_MARK = bytes((SEVERAL,))
LENGTH_BYTES = 2
SEVERAL_BYTES_MAX = 1_400
"""With the heads of IPv6 and UDP, what every network carries in one piece: about fifteen heartbeats."""
READS_MAX = 64
"""Datagrams of one other node in a turn of the loop."""
ANY_READS_MAX = 16
TRIES_MAX = 1_024
"""Seals that are tried in a turn for datagrams whose election is not known: about two milliseconds."""
EXPECTED_S = 60.0
"""Within it, all agents of a cluster have read a changed file."""
SENDERS_MAX = 8_192
"""Starts of other nodes whose election is remembered: five hundred elections of fifteen nodes."""
SENDER_AT, RECEIVER_AT, BOOTS_END = 4, 12, 20
"""Where the two boots stand in the head of a datagram."""


class Member(Protocol):
    """One election's transport, as far as its sockets go."""

    @property
    def boot(self) -> int:
        """Of this start of the node in that election."""
        ...

    def is_ours(self, data: bytes) -> bool:
        """Its seal is of this election."""
        ...

    def take_from(self, data: bytes, address: SocketAddress, *, dialled: bool) -> None:
        """A datagram that seems to be for this election. `dialled`: it came from where another node is dialled."""
        ...

    def reopened(self) -> None:
        """The port has changed: all sockets are new."""
        ...

    def no_seal_fits(self, address: SocketAddress) -> bool:
        """What comes from there is of no election here. True if this one knows who is there, and said so."""
        ...


class Line(NamedTuple):
    """A connected socket, and how many elections use it."""

    socket: socket.socket
    users: int


class SharedSockets:
    """Those of one process."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self.any_socket: socket.socket | None = None
        self.listen = Address("", 0)
        self.bound: SocketAddress = ("", 0)
        self.drops = DropCounters(complain)
        self._members: dict[int, Member] = {}
        """By the boot that datagrams for it name."""
        self._senders: dict[int, Member] = {}
        self._lines: dict[SocketAddress, Line] = {}
        self._tries_left = 0
        self._waiting: dict[SocketAddress, list[bytes]] = {}
        """What leaves at the end of this turn of the loop."""
        self._flushing = timer(self.flush)
        self._expects_until_s = 0.0
        self._loop = asyncio.get_running_loop()

    def expect_others(self) -> None:
        """An election comes or goes here: for a while, what the other nodes say in it is for nobody, and no wonder."""
        self._expects_until_s = monotonic() + EXPECTED_S

    # --- who uses them ------------------------------------------------------------------------------------------------

    def join(self, member: Member, listen: Address, family: int, bound: SocketAddress) -> None:
        """The port is opened by the first one. Raises as `UdpSockets` does if it cannot be."""
        is_any = not bound[1] and self.any_socket is not None
        if not is_any and (self.any_socket is None or bound[:2] != self.bound[:2]):
            self._open(listen, family, bound)
        self._members[member.boot] = member

    def leave(self, member: Member) -> None:
        self._members.pop(member.boot, None)
        for boot in [boot for boot, one in self._senders.items() if one is member]:
            del self._senders[boot]

    def close(self) -> None:
        self.flush()
        self._flushing.end()
        self.drops.close()
        self._close_lines()
        if self.any_socket is not None:
            unwatch(self._loop, self.any_socket)
            self.any_socket.close()
            self.any_socket = None

    def _open(self, listen: Address, family: int, bound: SocketAddress) -> None:
        """Without sharing, so that a port in use is noticed."""
        fresh = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            fresh.bind(bound)
        except OSError as error:
            fresh.close()
            if error.errno == errno.EADDRINUSE:
                raise InUse(f"UDP port {listen} is in use on this machine; each agent needs its own") from None
            raise CannotHere(
                f"cannot listen on UDP {listen}: {error.strerror}; is this an address of this machine? If others dial "
                "it under another one, say `bind` in the file, or --bind"
            ) from None
        self._close_lines()
        if self.any_socket is not None:
            unwatch(self._loop, self.any_socket)
            self.any_socket.close()
        self.any_socket, self.listen, self.bound = fresh, listen, fresh.getsockname()
        watch(self._loop, fresh, self._read_any)
        for member in tuple(self._members.values()):
            member.reopened()

    # --- lines to other nodes -----------------------------------------------------------------------------------------

    def line(self, address: SocketAddress) -> socket.socket:
        """The one to this address. Raises `OSError` if there is no way there."""
        known = self._lines.get(address)
        if known is not None:
            self._lines[address] = known._replace(users=known.users + 1)
            return known.socket
        assert self.any_socket is not None, "a line without a port"
        ours = [self.any_socket, *(line.socket for line in self._lines.values())]
        fresh = socket.socket(self.any_socket.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            for one in (*ours, fresh):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            fresh.bind(self.bound)
            fresh.connect(address)
        except OSError:
            fresh.close()
            raise
        finally:
            for one in (*ours, fresh):
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self._lines[address] = Line(fresh, 1)
        watch(self._loop, fresh, self._read_line, fresh, address)
        return fresh

    def let_go(self, address: SocketAddress) -> None:
        """One election less uses it."""
        line = self._lines.get(address)
        if line is None:
            return
        if line.users > 1:
            self._lines[address] = line._replace(users=line.users - 1)
            return
        del self._lines[address]
        unwatch(self._loop, line.socket)
        line.socket.close()

    def _close_lines(self) -> None:
        for line in self._lines.values():
            unwatch(self._loop, line.socket)
            line.socket.close()
        self._lines.clear()

    # --- several in one -----------------------------------------------------------------------------------------------

    def gather(self, address: SocketAddress, data: bytes) -> None:
        """It leaves with what else is said to that node in this turn."""
        if not self._waiting:
            self._flushing.set(0.0)
        waiting = self._waiting.setdefault(address, [])
        if waiting and 1 + sum(map(len, waiting)) + len(data) + LENGTH_BYTES * (len(waiting) + 1) > SEVERAL_BYTES_MAX:
            self._send(address, waiting)
            waiting.clear()
        waiting.append(data)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for address, datagrams in waiting.items():
            self._send(address, datagrams)

    def _send(self, address: SocketAddress, datagrams: list[bytes]) -> None:
        line = self._lines.get(address)
        if line is None:
            self.drops.count("unsent")
            return
        data = datagrams[0]
        if len(datagrams) > 1:
            data = SEVERAL_MARK + b"".join(len(each).to_bytes(LENGTH_BYTES, "big") + each for each in datagrams)
            self.drops.count("gathered")
        try:
            line.socket.send(data)
        except ConnectionRefusedError:  # of an earlier one: this one was not sent
            self.drops.count("refused")
            with contextlib.suppress(OSError):
                line.socket.send(data)
        except OSError:
            self.drops.count("unsent")
            return
        self.drops.count("sent")
        self.drops.counters["sent_bytes"] += len(data)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_line(self, from_: socket.socket, address: SocketAddress) -> None:
        self._tries_left = TRIES_MAX
        for _ in range(READS_MAX):
            try:
                data = from_.recv(SEVERAL_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self.drops.count("refused")
                continue
            except OSError:
                self.drops.count("unread")
                return
            self.take(data, address, dialled=True)
            return  # mostly it is the only one: to be woken again costs less than to look each time

    def _read_any(self) -> None:
        self._tries_left = TRIES_MAX
        for _ in range(ANY_READS_MAX):
            if self.any_socket is None or self._tries_left <= 0:
                return
            try:
                data, address = self.any_socket.recvfrom(SEVERAL_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except OSError:
                self.drops.count("unread")
                return
            self.take(data, address, dialled=False)

    def take(self, data: bytes, address: SocketAddress, *, dialled: bool) -> None:
        """One datagram, or several in one; of a broken one nothing is heard behind the break."""
        if data[:1] != SEVERAL_MARK or len(data) > SEVERAL_BYTES_MAX:
            self._give(data, address, dialled=dialled)
            return
        at = 1
        while at < len(data):
            end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
            self._give(data[at + LENGTH_BYTES : end], address, dialled=dialled)
            at = end

    def _give(self, data: bytes, address: SocketAddress, *, dialled: bool) -> None:
        """To the election that it is for."""
        if not LEAST_BYTES <= len(data) <= DATAGRAM_BYTES_MAX:
            self.drops.drop("size")
            return
        if data[0] != MAGIC:
            self.drops.drop("foreign")
            return
        member = self._members.get(int.from_bytes(data[RECEIVER_AT:BOOTS_END], "big"))
        if member is None:
            sender = int.from_bytes(data[SENDER_AT:RECEIVER_AT], "big")
            member = self._senders.get(sender) or self._tried(data, sender)
        if member is not None:
            member.take_from(data, address, dialled=dialled)
            return
        if monotonic() < self._expects_until_s:
            self.drops.count("other-election")
            return
        self.drops.drop("seal")
        if dialled:
            any(one.no_seal_fits(address) for one in self._members.values())

    def _tried(self, data: bytes, sender: int) -> Member | None:
        for member in self._members.values():
            if self._tries_left <= 0:
                return None
            self._tries_left -= 1
            if member.is_ours(data):
                if len(self._senders) >= SENDERS_MAX:
                    del self._senders[next(iter(self._senders))]
                self._senders[sender] = member
                return member
        return None
