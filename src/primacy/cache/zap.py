"""CURVE: the peers' pair of keys, those of clients, and who is admitted (ZeroMQ's authentication protocol, ZAP 1.0).

libzmq asks the socket bound to `inproc://zeromq.zap.01` of its context about every connection to a server socket that
names a domain. The answer is 200 for a listed public key, 400 for another. Peers and clients have a domain each, so
that a client's key opens the sockets for clients and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primacy.cache.security import ClientKey, client_secret, curve_seed
from primacy.errors import CannotHere, MissingExtra

try:
    import zmq
    from zmq.utils import z85
except ModuleNotFoundError:
    raise MissingExtra("the cache", "cache") from None

ADDRESS = "inproc://zeromq.zap.01"
PEERS = "peers"
CLIENTS = "clients"
PER_TURN_MAX = 100
"""Handshakes answered before the loop does something else."""
REQUEST_FRAMES = 7
"""Version, number, domain, address, routing id, mechanism, public key."""


class Pair(NamedTuple):
    """A pair of CURVE keys as Z85 text."""

    public: bytes
    private: bytes


def needs_curve() -> None:
    """A sentence where this libzmq was built without it."""
    if not zmq.has("curve"):
        raise CannotHere("security: curve needs a libzmq with CURVE; this one has none. Take `security: secret`")


def pair(secret: bytes, cluster: str, name: str = "") -> Pair:
    """The pair of the peers, or of one client name."""
    needs_curve()
    private = z85.encode(curve_seed(secret, cluster, name))
    return Pair(zmq.curve_public(private), private)


def client_key(secret: bytes, cluster: str, name: str) -> ClientKey:
    """All that a client of this name needs, for `secret` and for `curve` (where libzmq has it)."""
    key = client_secret(secret, cluster, name)
    if not zmq.has("curve"):
        return ClientKey(name, key)
    own = pair(secret, cluster, name)
    return ClientKey(name, key, own.public, own.private, pair(secret, cluster).public)


def pair_of(key: ClientKey) -> Pair:
    """The client's own pair. Raises if its file has none."""
    if not key.public:
        raise CannotHere(f"the key of client {key.name} has no CURVE keys: make it anew where libzmq has CURVE")
    return Pair(key.public, key.private)


def serve_with(socket: zmq.Socket[bytes], own: Pair, domain: str) -> None:
    """This socket, before it binds, admits only whom the `Zap` of its context lists for the domain."""
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = own.public, own.private
    socket.zap_domain = domain.encode()


def connect_with(socket: zmq.Socket[bytes], own: Pair, server: bytes) -> None:
    """This socket, before it connects, speaks with these keys to servers that have this public key."""
    socket.curve_publickey, socket.curve_secretkey = own.public, own.private
    socket.curve_serverkey = server


class Curve(NamedTuple):
    """What `security: curve` is made of: the cluster's secret, and the names of clients that are admitted."""

    secret: bytes
    cluster: str
    clients: tuple[str, ...]

    @property
    def own(self) -> Pair:
        """The pair that all peers share."""
        return pair(self.secret, self.cluster)

    def admitted(self) -> dict[str, dict[bytes, str]]:
        names = {pair(self.secret, self.cluster, name).public: name for name in self.clients}
        return {PEERS: {self.own.public: "peer"}, CLIENTS: names}


class Zap:
    """Answers libzmq's questions. Its owner watches `socket` and calls `answer` when it can be read."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], admitted: Mapping[str, Mapping[bytes, str]]) -> None:
        """`admitted`: for each domain the public keys (Z85) and what their owners are called."""
        self.refused: Counter[str] = Counter()
        self._admitted: dict[str, dict[bytes, str]] = {}
        self.admit(admitted)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ADDRESS)
        self._descriptor = int(self.socket.getsockopt(zmq.FD))

    def admit(self, admitted: Mapping[str, Mapping[bytes, str]]) -> None:
        """From now on these; connections that stand go on."""
        self._admitted = {
            domain: {z85.decode(public): name for public, name in keys.items()} for domain, keys in admitted.items()
        }

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answers from now on, in this loop."""
        self._loop = loop
        loop.add_reader(self._descriptor, self.answer)
        loop.call_soon(self.answer)

    def answer(self) -> None:
        """Answer what is waiting. The descriptor tells of a change once, so that all of it is taken."""
        for _ in range(PER_TURN_MAX):
            if self.socket.closed:
                return
            try:
                asked = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self._answer(asked))
        if self._loop is not None:
            self._loop.call_soon(self.answer)

    def _answer(self, asked: Sequence[bytes]) -> list[bytes]:
        number = asked[1] if len(asked) > 1 else b""
        if len(asked) != REQUEST_FRAMES or asked[0] != b"1.0" or asked[5] != b"CURVE":
            self.refused["malformed"] += 1
            return [b"1.0", number, b"400", b"CURVE is needed", b"", b""]
        domain = asked[2].decode("utf-8", "replace")
        name = self._admitted.get(domain, {}).get(asked[6])
        if name is None:
            self.refused[domain] += 1
            return [b"1.0", number, b"400", b"this key is not admitted", b"", b""]
        return [b"1.0", number, b"200", b"OK", name.encode(), b""]

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
        self.socket.close()
