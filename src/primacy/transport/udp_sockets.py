"""The sockets of one node: one for all, and one for each other node, found by its name.

One connected socket per other node, all on our one port: the kernel hands each node's datagrams to its own queue, so
that a flood of strangers fills another one. That other one takes what comes from anywhere else: releases,
which a guard sends from a port of its own, and nodes behind an address that is not the one they are dialled at.

A name that cannot be resolved is said once and tried again; a name whose node is silent is looked up anew, for it may
have moved. A node that is told its own address only now moves there, with all of its sockets; until it can, it stays
where it is. What is sent and read stands in `udp.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import monotonic

from primacy.errors import CannotHere, InUse, PrimacyError
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
        self._wanted: Address | None = None
        """Where it is to listen, and does not yet."""
        self._unmoved = ""
        """Why not."""
        self.asks = False
        """This node is not where the others have it, or in none of their lists: it asks from where it is."""
        self.meanwhile: Address | None = None
        """Where it asks from at its start if it cannot listen at its own address; None: then it does not start."""
        self.moved: Callable[[], None] = lambda: None
        """Told when it listens elsewhere."""

    @abstractmethod
    def _read_any(self) -> None:
        """There is something to read at the socket for all."""

    @abstractmethod
    def _read_peer(self, from_: socket.socket, peer: Peer) -> None:
        """There is something to read at the socket of this node."""

    def _new_peer(self, name: str, dialled: Address) -> Peer:
        return Peer(name, dialled)

    # --- sockets ------------------------------------------------------------------------------------------------------

    def _open_any_socket(self, listen: Address, family: int, bound: SocketAddress) -> None:
        """Bound without sharing, so that a port in use is noticed; shared with our own sockets only, one by one."""
        any_socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            any_socket.bind(bound)
        except OSError as error:
            any_socket.close()
            if error.errno == errno.EADDRINUSE:
                raise InUse(f"UDP port {listen} is in use on this machine; each node needs its own") from None
            raise CannotHere(
                f"cannot listen on UDP {listen}: {error.strerror}; is this an address of this machine? If others dial "
                "it under another one, say `bind` in the file, or --bind"
            ) from None
        self._close_any_socket()
        self.listen, self._any_socket, self._bound = listen, any_socket, any_socket.getsockname()
        watch(self._loop, any_socket, self._read_any)
        for peer in self.peers.values():
            self._dial(peer, numeric(peer.dialled, family))

    def _close_any_socket(self) -> None:
        """With those of the other nodes, which share its port."""
        for peer in self.peers.values():
            self._hang_up(peer)
        if self._any_socket is not None:
            unwatch(self._loop, self._any_socket)
            self._any_socket.close()
            self._any_socket = None

    def listen_at(self, address: Address) -> None:
        """From now on there, as soon as it can."""
        if address == self._wanted:
            return
        self._unmoved = ""
        self._wanted = address
        self._sought.set()

    async def _open(self) -> None:
        """Where the file says, or raises. Where the members say, which may be wrong: else it asks from elsewhere."""
        try:
            found = await self._looked_up(self.listen, passive=True)
            if found is None:
                raise CannotHere(
                    f"the own address {self.listen} cannot be resolved; say `bind` for this node in the file, or --bind"
                )
            self._open_any_socket(self.listen, *found)
        except PrimacyError as error:
            if self.meanwhile is None or (found := await self._looked_up(self.meanwhile, passive=True)) is None:
                raise
            self.asks, self._wanted = True, self.listen
            self._cannot_move(self.listen, error)
            self._open_any_socket(self.meanwhile, *found)

    def _cannot_move(self, wanted: Address, error: PrimacyError) -> None:
        sentence = notices.unmoved(str(wanted), str(error))
        if sentence != self._unmoved:
            self._unmoved = sentence
            self.complain(sentence)

    async def _move(self, wanted: Address) -> None:
        """To where the members have this node. What keeps it from that is said once, and tried again."""
        if wanted == self.listen:
            self._wanted, self.asks = None, False
            return
        found = await self._looked_up(wanted, passive=True)
        if self._wanted != wanted:
            return
        try:
            if found is None:
                raise CannotHere("its name cannot be resolved here; say --bind HOST:PORT")
            if found[1][:2] != self._bound[:2]:  # else only its name is another
                self._open_any_socket(wanted, *found)
            self.listen = wanted
        except PrimacyError as error:
            self._cannot_move(wanted, error)
            return
        self._wanted, self._unmoved, self.asks = None, "", False
        self.moved()

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
                peer = self.peers[name] = self._new_peer(name, others[name])
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
            if self._wanted is not None:
                await self._move(self._wanted)
            if sought := [peer for peer in self.peers.values() if self._sought_in_s(peer) <= 0]:
                await asyncio.gather(*(self._find(peer) for peer in sought))
            next_s = min((self._sought_in_s(peer) for peer in self.peers.values()), default=SILENT_S)
            if self._wanted is not None:
                next_s = 0.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(RESOLVE_AGAIN_S, next_s)):
                    await self._sought.wait()

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
