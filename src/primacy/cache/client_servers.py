"""The peers that a client asks: one DEALER each, whose turn it is, and which of them are silent.

A process that has no descriptor left cannot open a socket. A peer whose connection broke at that moment stays in the
list without one, is passed over, and gets one as soon as there is one to be had."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from random import Random

from primacy.cache.sockets import ALIVE_OPTIONS, CONNECT_TIMEOUT_MS, EVENTS, READABLE, RECONNECT_MS, receiver, sender
from primacy.errors import CannotHere, MissingExtra, UsageError

try:
    import zmq
except ModuleNotFoundError:
    raise MissingExtra("the cache", "cache") from None

log = logging.getLogger("primacy.cache")

QUEUE_MAX = 1_000
"""Requests on their way to one peer. More go to another."""
ANSWERS_MAX = 50_000
"""Answers of one peer that were not read yet. More stay where they are, on the network and at the peer."""
SLOW_S = 0.1
"""A peer that owes a sign for longer than this is asked only if all others do, too."""
PER_TURN_MAX = 256
PUTS_MAX = 1_000
"""Keys of the newest puts, of which it is remembered who took them."""
PUT_S = 5.0
"""By then the others have heard of a value, if they hear anything."""
REOPEN_S = 0.1
"""Between two tries to open a socket where none is to be had."""


class Server:
    """One peer, as a client sees it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], api: str, frame_bytes_max: int) -> None:
        self.api = api
        self._context, self._frame_bytes_max = context, frame_bytes_max
        self.opened = self.lacking = False
        """`lacking`: it was to be opened again, and could not."""
        self.owes_since_s: float | None = None
        """Since when it owes a sign to somebody who waits."""
        self.heard_s = -1.0
        self.silent = False
        """It did not answer in time, and nothing came since."""

    def open(self, setup: Callable[[zmq.Socket[bytes]], None] | None) -> None:
        """A socket that connects, as often as it takes to be connected once. `setup`: what security asks of it.

        Nothing may wait for a peer that is not connected, and what was on its way to one that is gone must not reach
        the next one at its address. The library has an option for that (`IMMEDIATE`), which ends the process (an
        assertion, fq.cpp) when the connection breaks while answers are being read. So the connection is watched, and
        each has a socket of its own."""
        try:
            self._open(setup)
        except zmq.ZMQError as error:
            raise CannotHere(f"no socket for the cache peer {self.api}: {error.strerror}") from None
        try:
            self.socket.connect(self.api)
        except zmq.ZMQError as error:
            self.close()
            raise UsageError(f"{self.api} is no address of a cache peer: {error.strerror}") from None

    def _open(self, setup: Callable[[zmq.Socket[bytes]], None] | None) -> None:
        self.socket = self._context.socket(zmq.DEALER)
        try:
            for option, value in (
                (zmq.LINGER, 0),
                (zmq.SNDHWM, QUEUE_MAX),
                (zmq.RCVHWM, ANSWERS_MAX),
                (zmq.MAXMSGSIZE, self._frame_bytes_max),
                (zmq.RECONNECT_IVL, RECONNECT_MS),
                (zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS),
                *ALIVE_OPTIONS,
                (zmq.IPV6, int("[" in self.api)),
            ):
                self.socket.setsockopt(option, value)
            self.receive = receiver(self.socket)
            self._send = sender(self.socket)
            self._state = super(zmq.Socket, self.socket).get
            if setup is not None:
                setup(self.socket)
            self.events = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        except BaseException:
            self.socket.close()
            raise
        self._read_event = receiver(self.events)
        self._event_state = super(zmq.Socket, self.events).get
        self._connected = self.broken = False
        self.opened = True

    def close(self) -> None:
        if not self.opened:
            return
        self.opened = False
        self.socket.disable_monitor()
        self.events.close()
        self.socket.close()

    def look_at_events(self) -> None:
        """Was the connection made, or did it break?"""
        while int(self._event_state(EVENTS)) & READABLE:
            event = self._read_event()
            if event is None:
                return
            if int.from_bytes(event[0][:2], sys.byteorder) == zmq.EVENT_DISCONNECTED:
                self.broken = self.broken or self._connected
                self._connected = False
            else:
                self._connected = not self.broken

    def send(self, frames: Sequence[bytes], now_s: float) -> bool:
        """False: it is not connected, or takes no more."""
        if not self.opened:
            return False
        self.look_at_events()
        if not self._connected or not self._send(frames):
            return False
        if self.owes_since_s is None:
            self.owes_since_s = now_s
        return True

    def heard(self, now_s: float) -> None:
        self.heard_s = now_s
        self.owes_since_s = None
        self.silent = False

    def is_slow(self, now_s: float) -> bool:
        return self.owes_since_s is not None and now_s - self.owes_since_s > SLOW_S

    def readable(self) -> bool:
        return self.opened and bool(int(self._state(EVENTS)) & READABLE)


class Servers:
    """All of them, in turn. `on_answer` is called with each message."""

    def __init__(self, on_answer: Callable[[Server, list[bytes]], None], frame_bytes_max: int, chance: Random) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._on_answer = on_answer
        self._frame_bytes_max = frame_bytes_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: set[Server] = set()
        self._chance = chance
        self._next = 0
        self.all: list[Server] = []
        self._order: list[Server] = []
        self._puts: dict[bytes, tuple[Server, float]] = {}
        """Which peer took the newest value of a key from this client, and until when that matters."""
        """Whose turn it is. In another order each time round: where the number of peers divides that of the clients of
        each key, one peer would be the first to be asked for every key, and fetch them all."""

    def open(self, loop: asyncio.AbstractEventLoop, apis: Iterable[str]) -> None:
        self._loop = loop
        try:
            self._context = zmq.Context()
        except zmq.ZMQError as error:
            raise CannotHere(f"no socket for cache peers: {error.strerror}") from None
        try:
            self.replace(apis)
        except BaseException:
            self._context.term()
            raise

    def secure(self, setup: Callable[[zmq.Socket[bytes]], None]) -> None:
        """What security asks of each socket, before it connects."""
        self._setup = setup

    _setup: Callable[[zmq.Socket[bytes]], None] | None = None

    def replace(self, apis: Iterable[str]) -> list[Server]:
        """These, and no others; what stays keeps its connection. Returns who left. Nothing changes where one of them is
        no address, or can have no socket now."""
        wanted = list(dict.fromkeys(apis))
        known = {server.api: server for server in self.all}
        made: dict[str, Server] = {}
        try:
            for api in wanted:
                if api not in known:
                    made[api] = self._made(api)
        except BaseException:
            for server in made.values():
                self._close(server)
            raise
        gone = [server for server in self.all if server.api not in wanted]
        for server in gone:
            self._close(server)
        self.all = [known.get(api) or made[api] for api in wanted]
        self._order, self._next = list(self.all), 0
        return gone

    def _made(self, api: str) -> Server:
        assert self._loop is not None
        assert self._context is not None
        server = Server(self._context, api, self._frame_bytes_max)
        self._open(server)
        return server

    def _open(self, server: Server) -> None:
        assert self._loop is not None
        server.open(self._setup)
        try:
            for socket in (server.socket, server.events):
                self._loop.add_reader(socket.fileno(), self._turn, server)
        except BaseException:
            self._close(server)
            raise

    def _reopen(self, server: Server) -> None:
        """A new socket for a peer whose connection broke, now or later."""
        loop = self._loop
        if loop is None or server not in self.all or server.opened:
            return
        try:
            self._open(server)
        except (CannotHere, OSError) as error:
            if not server.lacking:
                log.warning("%s; it is tried again", error)
            server.lacking = True
            loop.call_later(REOPEN_S, self._reopen, server)
        else:
            server.lacking = False

    def _close(self, server: Server) -> None:
        if self._loop is not None and server.opened:
            for socket in (server.socket, server.events):
                self._loop.remove_reader(socket.fileno())
        server.close()

    def any_good(self, but: Container[Server]) -> bool:
        """Is there anybody else who is not known to be silent?"""
        return any(server not in but and not server.silent for server in self.all)

    def has_put(self, key: bytes, server: Server, now_s: float) -> None:
        """This peer has taken a value from this client. The others hear of it a moment later."""
        self._puts.pop(key, None)
        self._puts[key] = (server, now_s + PUT_S)
        if len(self._puts) > PUTS_MAX:
            del self._puts[next(iter(self._puts))]

    def forget_puts(self) -> None:
        """What was put may be void now."""
        self._puts.clear()

    def choose(self, frames: Sequence[bytes], now_s: float, but: Container[Server], key: bytes = b"") -> Server | None:
        """Sends to the next one that takes it: a good one, else a slow one, else one that is silent. Among equals, the
        one that has taken a value of this key goes first."""
        first = self._order[self._next] if self._order else None
        plain = first is not None and not first.silent and first not in but and key not in self._puts
        if first is not None and plain and not first.is_slow(now_s) and first.send(frames, now_s):
            self._sent_to(first)
            return first
        turn = self._order[self._next :] + self._order[: self._next]
        if key in self._puts:
            first, until_s = self._puts[key]
            if now_s < until_s and first in turn:
                turn = [first, *(server for server in turn if server is not first)]
        ranked = sorted(
            (server for server in turn if server not in but),
            key=lambda server: 2 if server.silent else int(server.is_slow(now_s)),
        )
        for server in ranked:
            if server.send(frames, now_s):
                self._sent_to(server)
                return server
        return None

    def _sent_to(self, server: Server) -> None:
        self._next = self._order.index(server) + 1
        if self._next == len(self._order):
            self._next = 0
            self._chance.shuffle(self._order)
        self.look(server)

    def _turn(self, server: Server) -> None:
        self._asked.discard(server)
        loop = self._loop
        if server not in self.all or loop is None or not server.opened:
            return
        for _ in range(PER_TURN_MAX):
            frames = server.receive()
            if frames is None:
                break
            server.heard(loop.time())
            self._on_answer(server, frames)
            if server not in self.all:
                return
        server.look_at_events()
        if server.broken and not server.readable():  # all that it said before is read
            self._close(server)
            self._reopen(server)
        self.look(server)

    def has_unread(self, server: Server) -> bool:
        """There is something of this peer that was not read yet."""
        if server not in self.all or not server.readable():
            return False
        self.look(server)
        return True

    def look(self, server: Server) -> None:
        """The descriptor is edge-triggered: see `sockets.py`."""
        if self._loop is not None and server not in self._asked and server.readable():
            self._asked.add(server)
            self._loop.call_soon(self._turn, server)

    async def close(self) -> None:
        for server in self.all:
            self._close(server)
        self.all, self._loop = [], None
        context = self._context
        assert context is not None
        try:
            await asyncio.to_thread(context.term)
        except RuntimeError:  # at the end of the interpreter there are no threads any more
            context.term()
