"""The sockets of one cache peer: PUB and SUB among peers, ROUTER for clients. Frames in, frames out; no decisions.

Frame-wise calls and a watched descriptor: multipart calls cost three times as much, `zmq.asyncio` twelve times. The
descriptor of a ZeroMQ socket is edge-triggered: it becomes readable when the socket's state *may* have changed, and
any call on the socket may consume that sign. So after each turn, and after each send outside of one, the state itself
is looked at (`look`), and while there is something to read the next turn is asked for.

Peers come before clients: elections have deadlines. Both are read a bounded number of messages at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic

from primacy.cache.model import ALL
from primacy.cache.wire import BUNDLED_BYTES_MAX, FRAMES_MAX, Limits
from primacy.cache.wire_client import GET
from primacy.errors import CannotHere, InUse, MissingExtra, UsageError
from primacy.loop import unwatch, watch

try:
    import zmq
    import zmq.backend
except ModuleNotFoundError:
    raise MissingExtra("the cache", "cache") from None

PEERS_PER_TURN = 256
CLIENTS_PER_TURN = 64
"""About a millisecond's worth, so that a peer's message waits no longer than that behind clients."""
CLIENTS_LEAST = 4
"""The same while messages of peers are still unread: clients are never left without, whatever peers send."""
ANSWERS_PER_TURN = 128
"""Of those that go to many at once: signs, and why there is no value."""
CLIENTS_AT_ONCE = 16
"""So many at most are read before the clock is, and then judged by that one reading."""
AT_ONCE_S = 0.001
"""Fewer if it takes longer than this, as with large values."""
TURN_MS = 3
"""Peers, and then clients, are read for about so long in one turn. Calls that must end are ended by the same loop, so
that it must come round often, also where the machine is slow."""
PEER_QUEUE_MAX = 10_000
"""Messages on their way to or from one peer. More are lost, which every rule survives."""
CLIENT_QUEUE_MAX = 1_000
"""Messages to or from one client: the library's own default. A client that does not read loses answers."""
FRAME_BYTES_SPARE = 64 * 1024
"""Above the largest value, for what else a frame may hold. A longer frame ends its connection."""
CLIENT_LINGER_MS = 1_000
"""As the original: answers that were given are sent, even if the peer is closed right after."""
PEER_LINGER_MS = 200
"""At the end only: others hear at once that a call of this peer is over."""
ALIVE_OPTIONS = (
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 2),
    (zmq.TCP_KEEPALIVE_INTVL, 1),
    (zmq.TCP_KEEPALIVE_CNT, 2),
    (zmq.TCP_MAXRT, 4_000),
)
"""A connection whose other end is gone is made anew after some seconds, so that a healed network is used at once and
not when TCP tries again. By the kernel: the library's own heartbeats end the process (an assertion of libzmq) when they
meet a full queue and a connection that broke."""
CONNECT_TIMEOUT_MS = 1_000
RECONNECT_MS = 50
PARTS_MAX = FRAMES_MAX + 1
"""One more than a message may have, so that too many are seen as such."""
SEALED_GET_FRAMES = 8
"""Identity, id, command, expiry, key, after, options, seal."""
BLOCK_COPY_BYTES = 64 * 1024
"""Larger frames are handed over without a copy, which costs more than a copy of a small one."""

NOBLOCK = int(zmq.NOBLOCK)
MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
EVENTS = zmq.SocketOption.EVENTS
READABLE = int(zmq.POLLIN)
"""Plain numbers where the library takes them: operators of its enumerations cost more than its calls. An option is
looked up as a member, which is quicker than by its number."""

Frames = list[bytes]
Setup = Callable[["zmq.Socket[bytes]"], None]


def plain_frames() -> None:
    """For a process that is a cache peer and nothing else: the library makes received frames of its plain class,
    without attributes that nobody here uses. The others make a hit a sixth dearer. Not for a peer inside of an
    application, which may want them."""
    zmq.Frame = zmq.backend.Frame  # type: ignore[misc,assignment]


def receiver(socket: zmq.Socket[bytes]) -> Callable[[], Frames | None]:
    """A function that returns the next message of this socket, or None."""
    recv = super(zmq.Socket, socket).recv

    def receive() -> Frames | None:
        try:
            frame = recv(NOBLOCK, False)
        except zmq.Again:
            return None
        frames = [frame.bytes]
        while frame.more:  # cheaper than to ask the socket
            frame = recv(NOBLOCK, False)
            if len(frames) < PARTS_MAX:
                frames.append(frame.bytes)
        return frames

    return receive


def router_receiver(socket: zmq.Socket[bytes], steady: Collection[bytes]) -> Callable[[int], list[Frames]]:
    """A function that returns the next messages of a ROUTER, at most so many; fewer: there are no more, or they are
    large. They begin with the client's identity and have at least one more frame: the library puts the
    identity in front of a message that it has whole. So the first frame need not be looked at.

    Nor need those of a GET of a `steady` client, all but the last one: to be told whether more follow costs more than
    to receive a frame. If it has fewer frames after all, what is returned as one message has frames of the next ones in
    it, and no good seal. The last frame is always looked at, so that the next message begins where it begins."""
    recv = super(zmq.Socket, socket).recv
    again, get, nothing = zmq.Again, GET, range(0)
    rest, rest_of_command, rest_of_get = (range(PARTS_MAX - had) for had in (1, 3, SEALED_GET_FRAMES))

    def receive(most: int) -> list[Frames]:
        messages: list[Frames] = []
        ends_s = monotonic() + AT_ONCE_S
        for _ in range(most):
            try:
                identity = recv(NOBLOCK)
            except again:
                break
            frames, left = [identity], rest
            try:
                if steady and identity in steady:
                    name, command = recv(NOBLOCK), recv(NOBLOCK)
                    if command == get:
                        expiry, key, after, options = recv(NOBLOCK), recv(NOBLOCK), recv(NOBLOCK), recv(NOBLOCK)
                        frame = recv(NOBLOCK, False)
                        frames = [identity, name, command, expiry, key, after, options, frame.bytes]
                        left = rest_of_get if frame.more else nothing
                    else:
                        frames, left = [identity, name, command], rest_of_command
                for _ in left:
                    frame = recv(NOBLOCK, False)
                    frames.append(frame.bytes)
                    if not frame.more:
                        break
                else:
                    while frame.more:
                        frame = recv(NOBLOCK, False)
            except again:  # only of a steady client, which sent less than before, and nobody else sent something
                messages.append([identity])
                break
            messages.append(frames)
            if monotonic() > ends_s:
                break
        return messages

    return receive


def sender(socket: zmq.Socket[bytes]) -> Callable[[Sequence[bytes]], bool]:
    """A function that sends a message on this socket; False: there is no room, or nobody there."""
    send: Callable[[bytes, int, bool], object] = super(zmq.Socket, socket).send  # type: ignore[assignment]

    def send_all(frames: Sequence[bytes]) -> bool:
        taken = 0
        try:
            for frame in frames[:-1]:
                send(frame, MORE, len(frame) < BLOCK_COPY_BYTES)
                taken += 1
            send(frames[-1], NOBLOCK, len(frames[-1]) < BLOCK_COPY_BYTES)
        except zmq.Again:
            if 0 < taken < len(frames) - 1:
                # A DEALER whose connection broke within the message. The library has taken back what it had of it, and
                # takes the frames up to the end of a message for the rest of this one. Without them that would be the
                # next message, which would be lost and counted as sent.
                for frame in frames[taken + 1 : -1]:
                    send(frame, MORE, True)
                send(frames[-1], NOBLOCK, True)
            return False
        return True

    return send_all


def _connect(socket: zmq.Socket[bytes], url: str) -> None:
    if "[" in url:
        socket.setsockopt(zmq.IPV6, 1)
    try:
        socket.connect(url)
    except zmq.ZMQError as error:
        raise UsageError(f"{url} is no address of a peer: {error.strerror}") from None


class PeerSockets:
    """Open from `open` to `close`. `on_peer` and `on_clients` are called with a bound on what they may read."""

    def __init__(self, me: str, limits: Limits) -> None:
        self.me = me
        self._limits = limits
        self._connected: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = False
        self.closed = False
        self._turn: Callable[[], None] = lambda: None
        frame_max = max(limits.value_bytes_max, BUNDLED_BYTES_MAX) + FRAME_BYTES_SPARE
        try:
            self.context = zmq.Context()
            self._pub, self._sub, self._router = self._made(frame_max)
        except zmq.ZMQError as error:
            raise CannotHere(f"no sockets for a cache peer: {error.strerror}") from None
        self._from_sub = receiver(self._sub)
        self._aside: list[Frames] = []
        """What was read before a peer was disconnected, and not yet handed on."""
        self.steady: set[bytes] = set()
        """Clients whose next GET is expected to have as many frames as their last one. See `Serving`."""
        self.from_clients = router_receiver(self._router, self.steady)
        self.to_peers = sender(self._pub)
        self.to_client = sender(self._router)
        self.send_frame = super(zmq.Socket, self._router).send
        self._sub_state, self._router_state = super(zmq.Socket, self._sub).get, super(zmq.Socket, self._router).get

    def _made(self, frame_max: int) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes], zmq.Socket[bytes]]:
        try:
            return (
                self._socket(zmq.PUB, 0, PEER_QUEUE_MAX, frame_max),
                self._socket(zmq.SUB, 0, PEER_QUEUE_MAX, frame_max),
                self._socket(zmq.ROUTER, CLIENT_LINGER_MS, CLIENT_QUEUE_MAX, frame_max),
            )
        except BaseException:
            self.context.destroy(0)
            raise

    def _socket(self, kind: int, linger_ms: int, queue_max: int, frame_max: int) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, linger_ms)
        made.setsockopt(zmq.SNDHWM, queue_max)
        made.setsockopt(zmq.RCVHWM, queue_max)
        made.setsockopt(zmq.MAXMSGSIZE, frame_max)
        made.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        made.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        for option, value in ALIVE_OPTIONS:
            made.setsockopt(option, value)
        return made

    def secure(self, peers_out: Setup, peers_in: Setup, clients: Setup) -> None:
        """What security asks of the sockets, before they are opened."""
        peers_out(self._pub)
        peers_in(self._sub)
        clients(self._router)

    def open(self, bind_url: str, bind_api: str, others: Iterable[str]) -> None:
        """Both addresses are bound before anything is connected, so that who hears of this peer can reach it."""
        for socket, address in ((self._pub, bind_url), (self._router, bind_api)):
            if "[" in address:
                socket.setsockopt(zmq.IPV6, 1)
            try:
                socket.bind(address)
            except zmq.ZMQError as error:
                if error.errno == zmq.EADDRINUSE:
                    raise InUse(f"{address} is taken: another cache peer or program listens there") from None
                raise UsageError(f"{address} cannot be listened on: {error.strerror}") from None
        for topic in (ALL, self.me):
            self._sub.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self.connect(others)

    def connect(self, others: Iterable[str]) -> None:
        """To these peers, and no others."""
        wanted = {url for url in others if url != self.me}
        left = sorted(self._connected - wanted)
        if left:
            self._read_aside()
        for url in left:
            self._sub.disconnect(url)
        for url in sorted(wanted - self._connected):
            _connect(self._sub, url)
        self._connected = wanted

    def refuse_bad(self, urls: Iterable[str]) -> None:
        """Raises `UsageError` for what cannot be connected to at all, before anything depends on it."""
        trial = self.context.socket(zmq.SUB)
        try:
            for url in urls:
                _connect(trial, url)
        finally:
            trial.close(0)

    def _read_aside(self) -> None:
        """One message, whole. The library reads the first frame when it is asked whether there is something (`look`),
        and ends the process (`!_more`, fq.cpp) if the rest is gone because its connection was given up."""
        frames = self._from_sub()
        if frames is not None:
            self._aside.append(frames)

    def from_peers(self) -> Frames | None:
        """The next message of a peer."""
        return self._aside.pop(0) if self._aside else self._from_sub()

    # --- the loop's side ----------------------------------------------------------------------------------------------

    def watch(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None]) -> None:
        """From now on `turn` is called whenever there may be something to read. It must not wait."""
        self._loop, self._turn = loop, turn
        for socket in (self._sub, self._router):
            watch(loop, socket, self._take_turn)
        self.look()

    def _take_turn(self) -> None:
        self._asked = False
        if self._loop is not None:
            self._turn()
            self.look()

    def look(self) -> None:
        """After sending outside of a turn, too: what can be read may have stopped showing on the descriptor."""
        if self._asked or self._loop is None:
            return
        if self._aside or (int(self._sub_state(EVENTS)) | int(self._router_state(EVENTS))) & READABLE:
            self.ask_turn()

    def ask_turn(self) -> None:
        """One more turn, soon, whether or not there is something to read."""
        if not self._asked and self._loop is not None:
            self._asked = True
            self._loop.call_soon(self._take_turn)

    def peers_wait(self) -> bool:
        """Is there a message of a peer? Cheaper than to try in vain, which is what most turns for clients would do."""
        return bool(self._aside) or bool(int(self._sub_state(EVENTS)) & READABLE)

    async def close(self) -> None:
        """What was sent has a moment to leave."""
        loop, self._loop = self._loop, None
        self.closed = True
        self._pub.setsockopt(zmq.LINGER, PEER_LINGER_MS)
        for socket in (self._sub, self._router):
            if loop is not None:
                unwatch(loop, socket)
        for socket in (self._sub, self._pub, self._router):
            socket.close()
        await asyncio.to_thread(self.context.term)
