"""Sealed datagrams between the nodes of a cluster, which may come and go.

They come and go on the sockets of `udp_sockets.py`. Of each a bounded number of datagrams is read in a turn of the
loop, of the one for all the fewest. A node that is down answers with "refused", which means nothing here.

What is dropped is counted by kind. Only a datagram with a good seal is ever answered, by a greeting at most, and to the
address that stands in our own list; but for questions of those that are in none (`guests.py`). A node that does not
know its own address `asks` like that itself, and says nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from hmac import compare_digest
from time import monotonic
from typing import Any

from primacy.election.messages import Ack, Heartbeat, Message, Query, Release
from primacy.loop import Timer, timer
from primacy.transport import Hear, Overhear, ReadyDatagram, Trouble, ignored, notices
from primacy.transport.drop_counters import DropCounters
from primacy.transport.duplicates import FORGOTTEN_S
from primacy.transport.guests import SILENT_S, Guests, asked_in, is_taken
from primacy.transport.layout import LAYOUT, packed, packed_word, unpacked, unpacked_word
from primacy.transport.link_cuts import LinkCuts
from primacy.transport.peer import Address, Peer, SocketAddress
from primacy.transport.seal import (
    COUNTER_AT,
    COUNTER_BYTES,
    DATAGRAM_BYTES_MAX,
    HEAD,
    NAME_BYTES_MAX,
    TAG_BYTES,
    Drop,
    Opened,
    Seal,
    Sort,
)
from primacy.transport.short import Lost, is_short
from primacy.transport.udp_sockets import UdpSockets

__all__ = ["Address", "UdpTransport"]

AFTER_COUNTER = COUNTER_AT + COUNTER_BYTES
CARRIED_BYTES_MAX = DATAGRAM_BYTES_MAX - HEAD.size - NAME_BYTES_MAX - TAG_BYTES - 2

SHORT = (Heartbeat, Ack)
READS_MAX = 64
"""Datagrams of one node in a turn: several heartbeats of a hundred nodes, and still only about a millisecond."""
ANY_READS_MAX = 16
BESIDE_S = 1.5
"""A node that runs speaks more often."""
GREETING_S = 0.05
"""Between two greetings of one node: the shortest heartbeat of any profile (E1); a restart needs one."""
CARRY_S = 0.3
"""So long a word that is in no hurry waits for a message to carry it: a heartbeat of most profiles."""


class UdpTransport(UdpSockets):
    """The port `Transport`, for one node. `complain` is told what an operator should know."""

    def __init__(
        self, seal: Seal, listen: Address, others: dict[str, Address], complain: Callable[[str], None]
    ) -> None:
        super().__init__(listen, others, complain)
        self.seal = seal
        self.guests = Guests()
        self.stranger: Callable[[str], None] = lambda _: None
        """Told who is in no list and speaks as if it belonged."""
        self.drops = DropCounters(complain)
        self.links = LinkCuts()
        self._hear: Hear = lambda _: None
        self._overhear: Overhear = ignored
        self._resolving: asyncio.Task[None] | None = None
        self._carrying: Timer

    @property
    def counters(self) -> dict[str, int]:
        return self.drops.counters

    @property
    def troubles(self) -> list[Trouble]:
        own = [Trouble(self.seal.node, self._unmoved)] if self._unmoved else []
        return own + super().troubles

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self, hear: Hear, overhear: Overhear = ignored) -> None:
        self._loop = asyncio.get_running_loop()
        self._hear, self._overhear = hear, overhear
        self._carrying = timer(self._put_words)
        await self._open()
        self._resolving = self._loop.create_task(self._resolve())
        self._resolving.add_done_callback(self._resolved)

    def close(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
        self.drops.close()
        if self._any_socket is not None:
            self._carrying.end()
        self._close_any_socket()

    def _new_peer(self, name: str, dialled: Address) -> Peer:
        peer = Peer(name, dialled)
        peer.windows = self.guests.windows_of(name)
        return peer

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        if self.guests.by_name and (guest := self.guests.asker(to, message)) is not None and guest.address is not None:
            self._put_at(guest, guest.address, self.seal.sealed(Sort.MESSAGE, to, guest.boot, packed(message)))
            return
        peer = self.peers.get(to)
        if peer is None or (self.asks and not isinstance(message, Query)):
            self.drops.count("unsent")
            return
        if isinstance(message, SHORT) and not peer.word:
            data = self.seal.sealed(Sort.MESSAGE, to, peer.boot, peer.short.packed(message, peer.boot))
            peer.last, peer.last_counter = message, self.seal.counter
            self._put(peer, data)
            return
        if type(message) is Release:
            self._put(peer, self.seal.sealed(Sort.RELEASE, to, 0, packed(message)))
            return
        payload = peer.short.packed(message, peer.boot) if isinstance(message, SHORT) else packed(message)
        sort = Sort.QUESTION if self.asks else Sort.MESSAGE
        if peer.word and len(payload) + len(peer.word) <= CARRIED_BYTES_MAX:
            payload, sort = len(payload).to_bytes(2, "big") + payload + peer.word, Sort.CARRIES
            peer.word = b""
            self._carry_on()
        data = self.seal.sealed(sort, to, peer.boot, payload)
        peer.last, peer.last_counter = message, self.seal.counter
        self._put(peer, data)

    def tell(self, to: str, row: list[Any], only: int = 0, *, later: bool = False) -> int:
        peer = self.peers.get(to)
        if peer is None or self.asks:
            return 0
        if only and peer.boot != only:
            return peer.boot
        word = packed_word(row)
        if not later:
            self._put_word(peer, word)
        elif word:
            peer.word = word
            self._carrying.set(CARRY_S)
        return peer.boot

    def _carry_on(self) -> None:
        """This node is awake: words for others leave in this turn, too, after the messages that may carry them."""
        if any(peer.word for peer in self.peers.values()):
            self._carrying.set(0.0)
        else:
            self._carrying.clear()

    def _put_words(self) -> None:
        """Those that found nobody to carry them."""
        for peer in self.peers.values():
            word, peer.word = peer.word, b""
            if word:
                self._put_word(peer, word)

    def _put_word(self, peer: Peer, word: bytes) -> None:
        data = self.seal.sealed(Sort.WORD, peer.name, peer.boot, word)
        assert len(data) <= DATAGRAM_BYTES_MAX, "whoever makes a word bounds it"
        self._put(peer, data)

    def ready_release(self, release: Release) -> list[ReadyDatagram]:
        payload = packed(release)
        return [
            (self.seal.sealed(Sort.RELEASE, peer.name, 0, payload), peer.address[0], peer.address[1])
            for peer in self.peers.values()
            if peer.address is not None and peer.name not in self.links.dumb_to
        ]

    def _put(self, peer: Peer, data: bytes) -> None:
        line = peer.socket
        if line is None or len(data) > DATAGRAM_BYTES_MAX or peer.name in self.links.dumb_to:
            self._not_put(peer, data)
            return
        try:
            line.send(data)
        except ConnectionRefusedError:  # of an earlier one: this one was not sent
            self.drops.count("refused")
            with contextlib.suppress(OSError):
                line.send(data)
        except OSError:
            self.drops.count("unsent")
            return
        self.drops.counters["sent"] += 1

    def _put_at(self, guest: Peer, address: SocketAddress, data: bytes) -> None:
        """To where it asked from."""
        if self._any_socket is None or len(data) > DATAGRAM_BYTES_MAX or guest.name in self.links.dumb_to:
            self._not_put(guest, data)
            return
        try:
            self._any_socket.sendto(data, address)
        except OSError:
            self.drops.count("unsent")
            return
        self.drops.counters["sent"] += 1

    def _not_put(self, peer: Peer, data: bytes) -> None:
        if len(data) > DATAGRAM_BYTES_MAX:
            self.drops.count("too-long")
            self._complain_once(
                peer,
                f"a message to node {peer.name} has {len(data)} bytes, and {DATAGRAM_BYTES_MAX} fit: too many nodes",
            )
        else:
            self.drops.count("cut" if peer.name in self.links.dumb_to else "unsent")

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _read_peer(self, from_: socket.socket, peer: Peer) -> None:
        """A heartbeat or an ack, nearly always, of the start that is heard: a short way. All else takes the long
        one."""
        try:
            data = from_.recv(DATAGRAM_BYTES_MAX + 1)
        except OSError:
            self._read(from_, peer, READS_MAX)
            return
        if not self._hear_short(data, peer) and not self._take(data, peer, peer.address):
            self._read(from_, peer, READS_MAX - 1)

    def _hear_short(self, data: bytes, peer: Peer) -> bool:
        """As `_take`, with the same message and word; False, with nothing changed, if anything about it is unusual."""
        after, window = peer.after_counter, peer.window
        carries = not data.startswith(peer.head)
        if window is None or not data.startswith(after, AFTER_COUNTER):
            return False
        if carries and not data.startswith(peer.head_carries):
            return False
        if self.links.deaf_to or len(data) > DATAGRAM_BYTES_MAX:
            return False
        made = self.seal.begun.copy()
        made.update(data[:-TAG_BYTES])
        if not compare_digest(made.digest(), data[-TAG_BYTES:]):
            return False
        payload, word = data[AFTER_COUNTER + len(after) : -TAG_BYTES], None
        if carries:
            end = 2 + int.from_bytes(payload[:2], "big")
            payload, word = payload[2:end], unpacked_word(payload[end:])
            if word is None:
                return False
        message = peer.short.read(payload, peer.boot, self.seal.boot)
        if message is None or not window.is_new(int.from_bytes(data[COUNTER_AT:AFTER_COUNTER], "big")):
            return False
        peer.heard_s = monotonic()
        peer.trouble = ""
        self.drops.counters["received"] += 1
        self._hear(message)
        if word is not None:
            self._overhear(peer.name, peer.boot, word)
        return True

    def _read_any(self) -> None:
        if self._any_socket is not None:
            self._read(self._any_socket, None, ANY_READS_MAX)

    def _read(self, from_: socket.socket, peer: Peer | None, most: int) -> None:
        for _ in range(most):
            try:
                if peer is None:
                    data, source = from_.recvfrom(DATAGRAM_BYTES_MAX + 1)
                else:
                    data, source = from_.recv(DATAGRAM_BYTES_MAX + 1), peer.address
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self.drops.count("refused")
                continue
            except OSError:
                self.drops.count("unread")
                return
            if self._take(data, peer, source):
                return  # mostly it is the only one: to be woken again costs less than to look each time

    def _take(self, data: bytes, dialled: Peer | None, address: SocketAddress | None) -> bool:
        """True if something was heard."""
        opened = self.seal.opened(data)
        if isinstance(opened, Drop):
            self._dropped(opened, dialled)
            return False
        if opened.sender in self.links.deaf_to:
            self.drops.count("cut")
            return False
        peer = self.peers.get(opened.sender)
        source = str(Address(*address[:2])) if dialled is None and address is not None else ""
        if peer is None or opened.sort is Sort.QUESTION:
            return address is not None and self._take_question(opened, address, peer, source)
        known = opened.boot == peer.boot or peer.windows.knows(opened.boot)
        if opened.sort is not Sort.RELEASE and not self._is_fresh(peer, opened, source):
            return False
        if self.guests.by_name and self.guests.leave(peer.name, opened.boot):
            known = False
        content = self._content(peer, opened)
        if content is None:
            return False
        message, word = content
        peer.heard_s = monotonic()
        if opened.sort is Sort.GREETING or (opened.sort is not Sort.RELEASE and not known):
            self._meet(peer, opened)
        elif opened.boot != peer.boot and opened.sort is not Sort.RELEASE:
            self.duplicates.note(peer.heard_s, peer.name, opened.boot, opened.counter, source)
        peer.trouble = ""
        if opened.sort is Sort.GREETING or opened.sort is Sort.GATHERS:
            return False
        self.drops.count("received")
        if message is not None:
            self._hear(message)
        if word is not None:
            self._overhear(peer.name, opened.boot, word)
        return True

    def _take_question(self, opened: Opened, address: SocketAddress, listed: Peer | None, source: str) -> bool:
        """Of a node that is in no list here, or not where it is listed: nothing else is heard of it."""
        sorts = (Sort.QUESTION, Sort.MESSAGE, Sort.CARRIES)
        if opened.sender == self.seal.node or opened.sort not in sorts:
            self.drops.drop("stranger")
            return False
        if is_taken(listed, opened.boot, SILENT_S):
            self.drops.drop("stranger")
            if is_taken(listed, opened.boot, BESIDE_S):  # not a restart: both speak
                self.duplicates.note(monotonic(), opened.sender, opened.boot, opened.counter, source)
            return False
        guest = self.guests.of(opened, address, listed)
        if guest is None:
            self.drops.drop("stranger")
            return False
        if opened.receiver_boot != self.seal.boot:
            self.drops.count("other-boot")
            self._greet(guest, opened, address)
            return False
        if not guest.windows.is_new(opened.boot, opened.counter):
            self.drops.drop("replay")
            return False
        message = asked_in(opened)
        if message is None:
            self.drops.drop("stranger")
            if listed is None:
                self.guests.spoke(guest)
                self.stranger(opened.sender)
            return False
        if self.guests.met(guest, opened, address, message.origin.boot):
            self.duplicates.note(guest.heard_s, guest.name, opened.boot, opened.counter, source)
        self.drops.count("received")
        self._hear(message)
        return True

    def _content(self, peer: Peer, opened: Opened) -> tuple[Message | None, list[Any] | None] | None:
        """The message and the word in it; None, and counted, if it cannot be read."""
        sort, payload = opened.sort, opened.payload
        word = None
        if sort is Sort.GREETING:
            return None, None
        if sort is Sort.GATHERS:
            self._takes_several(peer, opened)
            return None, None
        if sort is Sort.WORD or sort is Sort.CARRIES:
            end = 2 + int.from_bytes(payload[:2], "big") if sort is Sort.CARRIES else 0
            word = unpacked_word(payload[end:])
            payload = payload[2:end]
            if word is None:
                self.drops.drop("payload")
                return None
            if sort is Sort.WORD:
                return None, word
        short = is_short(payload) and sort is not Sort.RELEASE
        if short:
            message = peer.short.unpacked(payload, opened.boot, self.seal.boot)
            if message is Lost.UNKNOWN:
                self.drops.count("origin-unknown")
                self._greet(peer, opened)
                return None
        else:
            message = unpacked(opened.sender, payload) or Lost.WRONG
        if isinstance(message, Lost) or (type(message) is Release) != (sort is Sort.RELEASE):
            self.drops.drop("payload")
            return None
        if sort is not Sort.RELEASE and not short:
            peer.short.learn(opened.boot, message.origin)
        return message, word

    def _takes_several(self, peer: Peer, opened: Opened) -> None:
        """That node takes several datagrams in one; a node with one election has never two for it."""

    def _is_fresh(self, peer: Peer, opened: Opened, source: str) -> bool:
        """For this start of ours, and not heard before. One that knows another start is told about this one."""
        if opened.receiver_boot != self.seal.boot:
            self.drops.count("other-boot")
            now_s = monotonic()
            if opened.sort is Sort.GREETING:  # to somebody else who says that he is this node
                self.duplicates.note(now_s, self.seal.node, opened.receiver_boot, opened.counter, "")
                return False
            if opened.boot != peer.boot or now_s - peer.heard_s > FORGOTTEN_S:
                self.duplicates.note(now_s, peer.name, opened.boot, opened.counter, source)
            self._greet(peer, opened)
            return False
        if not peer.windows.is_new(opened.boot, opened.counter):
            self.drops.drop("replay")
            return False
        return True

    def _greet(self, peer: Peer, heard: Opened, address: SocketAddress | None = None) -> None:
        """Says which datagram it answers, so that a question that came too late for one start reaches the next."""
        now_s = monotonic()
        if now_s - peer.greeted_s >= GREETING_S:
            peer.greeted_s = now_s
            greeting = self.seal.sealed(Sort.GREETING, peer.name, heard.boot, heard.counter.to_bytes(8, "big"))
            if address is None:
                self._put(peer, greeting)
            else:
                self._put_at(peer, address, greeting)

    def _meet(self, peer: Peer, heard: Opened) -> None:
        """Its start, as proved by a datagram that knows ours: the first one of that start, or a greeting.

        Later ones prove nothing new, and a message of an earlier start may have been long on its way. Two followers
        may not have spoken since one of them started anew: what was just said to it is said again, once, or the first
        question of an election would be lost. So it is said again to one that knows no origin for what was said short.
        """
        peer.window = peer.windows.of(heard.boot)
        is_new, unknown = peer.boot != heard.boot, not peer.boot
        answers = heard.sort is Sort.GREETING and heard.payload == peer.last_counter.to_bytes(8, "big")
        if is_new:
            peer.boot = heard.boot
            peer.head, peer.after_counter = self.seal.head_of_messages(Sort.MESSAGE, peer.name, peer.boot)
            peer.head_carries, _ = self.seal.head_of_messages(Sort.CARRIES, peer.name, peer.boot)
            self.duplicates.forget(peer.name, heard.boot)
        elif not answers:
            return
        peer.short.say_whole()
        message, peer.last = peer.last, None
        if message is not None and (unknown or answers):
            self.send(peer.name, message)
            peer.last = None  # once: with two machines behind one address, each greets what is for the other (E1)

    # --- counting -----------------------------------------------------------------------------------------------------

    def _dropped(self, drop: Drop, dialled: Peer | None) -> None:
        self.drops.drop(drop.why)
        sender = self.peers.get(drop.sender)
        if drop.why == "layout" and sender is not None:
            self._complain_once(sender, notices.other_layout(sender.name, drop.layout, LAYOUT))
        elif drop.why == "seal" and dialled is not None:
            self._complain_once(dialled, notices.no_seal(dialled.name))
