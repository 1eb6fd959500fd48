"""One of several elections of a process: sealed datagrams as in `udp.py`, on sockets that all of them share.

What several elections say to one node in a turn of the loop leaves in one datagram, if the start of it that is spoken
to has said that it takes such. Each start is told a few times that this one does, and answers once; one that knows no
such word, of `primacy run` or of an earlier version, says nothing, and gets each datagram by itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic

from primacy.election.messages import Message
from primacy.transport import notices
from primacy.transport.peer import Address, Peer, SocketAddress, numeric
from primacy.transport.seal import DATAGRAM_BYTES_MAX, TAG_BYTES, Opened, Seal, Sort
from primacy.transport.shared_sockets import SharedSockets
from primacy.transport.udp import UdpTransport

OFFERS_MAX = 5
OFFER_S = 1.0
"""So often a start is told that several datagrams may come in one, and so long between two of them."""
ASKS, ANSWERS = b"\x00", b"\x01"


class SharedTransport(UdpTransport):
    """The port `Transport`, for one node in one of several elections."""

    def __init__(
        self,
        sockets: SharedSockets,
        seal: Seal,
        listen: Address,
        others: dict[str, Address],
        complain: Callable[[str], None],
    ) -> None:
        super().__init__(seal, listen, others, complain)
        self.sockets = sockets
        self._at: dict[SocketAddress, Peer] = {}
        """The other nodes by where they are dialled."""

    # --- the sockets --------------------------------------------------------------------------------------------------

    def _open_any_socket(self, listen: Address, family: int, bound: SocketAddress) -> None:
        self.sockets.join(self, listen, family, bound)
        if self._any_socket is not self.sockets.any_socket:
            self.reopened()
        self.listen = listen

    def reopened(self) -> None:
        self._any_socket, self._bound = self.sockets.any_socket, self.sockets.bound
        self._at.clear()
        for peer in self.peers.values():
            peer.socket = peer.address = None
            assert self._any_socket is not None
            self._dial(peer, numeric(peer.dialled, self._any_socket.family))

    def _close_any_socket(self) -> None:
        for peer in self.peers.values():
            self._hang_up(peer)
        self._any_socket = None
        self.sockets.leave(self)

    def _dial(self, peer: Peer, address: SocketAddress | None) -> None:
        if address is None or address == peer.address or self._any_socket is None:
            return
        self._hang_up(peer)
        try:
            line = self.sockets.line(address)
        except OSError as error:  # no route: tried again with the names
            self._complain_once(peer, notices.no_route(peer.name, str(peer.dialled), error.strerror or ""))
            return
        peer.socket, peer.address = line, address
        peer.complained.clear()
        peer.trouble = ""
        self._at[address] = peer

    def _hang_up(self, peer: Peer) -> None:
        if peer.address is not None:
            self._at.pop(peer.address, None)
            self.sockets.let_go(peer.address)
            peer.socket = peer.address = None

    def _read_peer(self, from_: socket.socket, peer: Peer) -> None:  # noqa: ARG002
        raise AssertionError("the shared sockets read")

    # --- several in one -----------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        super().send(to, message)
        peer = self.peers.get(to)
        if peer is not None and peer.boot and peer.gathers_boot != peer.boot:
            self._offer(peer)

    def _offer(self, peer: Peer) -> None:
        if peer.offered_boot != peer.boot:
            peer.offered_boot, peer.offers, peer.offered_s = peer.boot, 0, 0.0
        if peer.offers >= OFFERS_MAX:
            return
        now_s = monotonic()
        if now_s - peer.offered_s >= OFFER_S:
            peer.offers, peer.offered_s = peer.offers + 1, now_s
            self._put(peer, self.seal.sealed(Sort.GATHERS, peer.name, peer.boot, ASKS))

    def _takes_several(self, peer: Peer, opened: Opened) -> None:
        """Only what asks is answered."""
        peer.gathers_boot = opened.boot
        if opened.payload[:1] == ASKS:
            self._put(peer, self.seal.sealed(Sort.GATHERS, peer.name, opened.boot, ANSWERS))

    def _put(self, peer: Peer, data: bytes) -> None:
        gathers = peer.boot and peer.gathers_boot == peer.boot
        if not gathers or peer.address is None or len(data) > DATAGRAM_BYTES_MAX or self.links.dumb_to:
            super()._put(peer, data)
            return
        self.sockets.gather(peer.address, data)
        self.drops.counters["sent"] += 1

    # --- what they hand over ------------------------------------------------------------------------------------------

    @property
    def boot(self) -> int:
        return self.seal.boot

    def is_ours(self, data: bytes) -> bool:
        return self.seal.fits(data[:-TAG_BYTES], data[-TAG_BYTES:])

    def take_from(self, data: bytes, address: SocketAddress, *, dialled: bool) -> None:
        """One of those nearly always that come all the time, by the short way."""
        peer = self._at.get(address) if dialled else None
        if peer is None or not self._hear_short(data, peer):
            self._take(data, peer, address)

    def no_seal_fits(self, address: SocketAddress) -> bool:
        peer = self._at.get(address)
        if peer is not None:
            self._complain_once(peer, notices.no_election(peer.name))
        return peer is not None
