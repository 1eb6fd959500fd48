"""The sockets of one node: one for all, and one for each other node, found by its name.

One connected socket per other node, all on our one port: the kernel hands each node's datagrams to its own queue, so
that a flood of strangers fills another one. That other one takes what comes from anywhere else: releases,
which a guard sends from a port of its own, and nodes behind an address that is not the one they are dialled at.

A name that cannot be resolved is said once and tried again; a name whose node is silent is looked up anew, for it may
have moved. What is sent and read stands in `udp.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import monotonic

from primacy.errors import CannotHere, InUse
from primacy.loop import unwatch, watch
from primacy.transport import Trouble, notices
from primacy.transport.duplicates import FORGOTTEN_S, Duplicates
from primacy.transport.peer import Address, Peer, SocketAddress, numeric

RESOLVE_AGAIN_S = 2.0
SILENT_S = 30.0
"""A name is looked up again when its node was silent this long."""


class UdpSockets(ABC):
    """The sockets of one node, and the names behind which the others are. `complain` is told what cannot be done."""

    def __init__(self, listen: Address, others: dict[str, Address], complain: Callable[[str], None]) -> None:
        self.listen = listen
        self.complain = complain
        self.duplicates = Duplicates()
        self.peers = {name: Peer(name, others[name]) for name in sorted(others)}
        self._any_socket: socket.socket | None = None
        self._bound: SocketAddress = (listen.host, listen.port)
        self._sought = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    @abstractmethod
    def _read_peer(self, from_: socket.socket, peer: Peer) -> None:
        """There is something to read at the socket of this node."""

    # --- sockets ------------------------------------------------------------------------------------------------------

    def _opened_any_socket(self, family: int) -> socket.socket:
        """Bound without sharing, so that a port in use is noticed; shared with our own sockets only, one by one."""
        any_socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            any_socket.bind(self._bound)
        except OSError as error:
            any_socket.close()
            if error.errno == errno.EADDRINUSE:
                raise InUse(f"UDP port {self.listen} is in use on this machine; each node needs its own") from None
            raise CannotHere(
                f"cannot listen on UDP {self.listen}: {error.strerror}; is this node's address in the file this "
                "machine's? If others dial it under another one, say `bind` as well"
            ) from None
        return any_socket

    def _dial(self, peer: Peer, address: SocketAddress | None) -> None:
        """A socket of its own for this node. Sharing the port is allowed just as long as it takes."""
        if address is None or address == peer.address or self._any_socket is None:
            return
        self._hang_up(peer)
        ours = [self._any_socket, *(other.socket for other in self.peers.values() if other.socket is not None)]
        fresh = socket.socket(self._any_socket.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            for one in (*ours, fresh):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            fresh.bind(self._bound)
            fresh.connect(address)
        except OSError as error:  # no route: tried again with the names
            fresh.close()
            self._complain_once(peer, notices.no_route(peer.name, str(peer.dialled), error.strerror or ""))
            return
        finally:
            for one in (*ours, fresh):
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        peer.socket, peer.address = fresh, address
        peer.complained.clear()
        peer.trouble = ""
        watch(self._loop, fresh, self._read_peer, fresh, peer)

    def _hang_up(self, peer: Peer) -> None:
        if peer.socket is not None:
            unwatch(self._loop, peer.socket)
            peer.socket.close()
            peer.socket = peer.address = None

    def set_peers(self, others: Mapping[str, Address]) -> None:
        """The other nodes are these from now on. Those that stay keep what was heard of them, also at a new address."""
        for name in [name for name in self.peers if name not in others]:
            self._hang_up(self.peers.pop(name))
        for name in sorted(others):
            peer = self.peers.get(name)
            if peer is None:
                peer = self.peers[name] = Peer(name, others[name])
            elif peer.dialled == others[name]:
                continue
            else:
                self._hang_up(peer)
                peer.dialled = others[name]
                peer.complained.clear()
                peer.trouble = ""
            if self._any_socket is not None:
                self._dial(peer, numeric(peer.dialled, self._any_socket.family))
        self._sought.set()

    # --- names --------------------------------------------------------------------------------------------------------

    async def _resolve(self) -> None:
        """Names at once, all together, and again while there is something to find, or the nodes have changed."""
        while True:
            self._sought.clear()
            if sought := [peer for peer in self.peers.values() if self._sought_in_s(peer) <= 0]:
                await asyncio.gather(*(self._find(peer) for peer in sought))
            next_s = min((self._sought_in_s(peer) for peer in self.peers.values()), default=SILENT_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sought.wait(), max(RESOLVE_AGAIN_S, next_s))

    def _sought_in_s(self, peer: Peer) -> float:
        return 0.0 if peer.socket is None else peer.heard_s + SILENT_S - monotonic()

    async def _find(self, peer: Peer) -> None:
        if self._any_socket is None:
            return
        sought = peer.dialled
        found = await self._looked_up(sought, family=self._any_socket.family)
        if self.peers.get(peer.name) is not peer or peer.dialled != sought:
            return  # it was removed, or has moved, while its name was looked up
        if found is None:
            self._complain_once(peer, notices.unresolved(peer.name, str(sought)))
        else:
            self._dial(peer, found[1])

    def _resolved(self, task: asyncio.Task[None]) -> None:
        """It never ends by itself: a bug of ours is the loop's to report."""
        if not task.cancelled():
            self._loop.call_exception_handler({"message": "names are not looked up", "exception": task.exception()})

    async def _looked_up(
        self, address: Address, *, family: int = 0, passive: bool = False
    ) -> tuple[int, SocketAddress] | None:
        host = address.host or ("0.0.0.0" if passive else "")
        flat = numeric(Address(host, address.port), family)
        if flat is not None:
            return (socket.AF_INET6 if ":" in flat[0] else socket.AF_INET), flat
        try:
            found = await self._loop.getaddrinfo(host, address.port, family=family, type=socket.SOCK_DGRAM)
        except OSError:
            return None
        return (found[0][0], found[0][4]) if found else None  # type: ignore[return-value]

    @property
    def troubles(self) -> list[Trouble]:
        found = [Trouble(peer.name, peer.trouble) for peer in self.peers.values() if peer.trouble]
        now_s = monotonic()
        for name, source in self.duplicates.found(now_s).items():
            peer = self.peers.get(name)
            if peer is None or now_s - peer.heard_s <= FORGOTTEN_S:  # this node itself, or one that is heard
                found.append(notices.duplicate_nodes(name, source))
            else:
                found.append(notices.unheard(name, source, str(peer.dialled)))
        return found

    def _complain_once(self, peer: Peer, sentence: str) -> None:
        peer.trouble = sentence
        if sentence not in peer.complained:
            peer.complained.add(sentence)
            self.complain(sentence)
