"""CURVE on real sockets: admitted keys are heard, others and plain connections are not; domains are apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from primacy.cache.security import client_secret
from primacy.cache.zap import CLIENTS, PEERS, Pair, Zap, client_key, connect_with, pair, serve_with

SECRET = b"0123456789abcdef0123456789abcdef-one"
WAIT_MS = 60_000
QUIET_MS = 300


class Server:
    """A ROUTER that admits the client `reports`, and a PUB that admits peers, in one context with one `Zap`."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.context = context
        self.own = pair(SECRET, "c")
        reports = client_key(SECRET, "c", "reports")
        self.zap = Zap(context, {PEERS: {self.own.public: "peer"}, CLIENTS: {reports.public: "reports"}})
        self._sockets: list[zmq.Socket[bytes]] = []
        self.router, self.router_at = self._bound(zmq.ROUTER, CLIENTS)
        self.pub, self.pub_at = self._bound(zmq.PUB, PEERS)

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.linger = 0
        self._sockets.append(made)
        return made

    def _bound(self, kind: int, domain: str) -> tuple[zmq.Socket[bytes], str]:
        socket = self.socket(kind)
        serve_with(socket, self.own, domain)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        return socket, f"tcp://127.0.0.1:{port}"

    def connected(self, kind: int, at: str, keys: Pair | None) -> zmq.Socket[bytes]:
        socket = self.socket(kind)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        if keys is not None:
            connect_with(socket, keys, self.own.public)
        socket.connect(at)
        return socket

    def wait_for(self, socket: zmq.Socket[bytes], within_ms: int, say: zmq.Socket[bytes] | None = None) -> bool:
        """Whether something arrives; questions of ZAP are answered meanwhile, and `say` publishes now and then."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self.zap.socket, zmq.POLLIN)
        for _ in range(max(1, within_ms // 20)):
            if say is not None:
                say.send(b"word")
            ready = dict(poller.poll(20))
            self.zap.answer()
            if socket in ready:
                return True
        return False

    def until_refused(self, domain: str) -> None:
        """Somebody has asked to be admitted to it, and was not."""
        for _ in range(WAIT_MS // 20):
            if self.zap.refused[domain]:
                return
            self.zap.socket.poll(20)
            self.zap.answer()
        raise AssertionError(f"nobody was refused: {domain}")

    def close(self) -> None:
        self.zap.close()
        for socket in self._sockets:
            socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = Server(context)
    yield made
    made.close()
    context.destroy(linger=0)


def keys_of(name: str, secret: bytes = SECRET) -> Pair:
    found = client_key(secret, "c", name)
    return Pair(found.public, found.private)


def test_a_listed_client_is_heard(server: Server) -> None:
    dealer = server.connected(zmq.DEALER, server.router_at, keys_of("reports"))
    dealer.send(b"hello")
    assert server.wait_for(server.router, WAIT_MS)
    assert server.router.recv_multipart()[1] == b"hello"


@pytest.mark.parametrize("keys", [keys_of("billing"), keys_of("reports", b"another secret of 32 bytes length"), None])
def test_no_other_is_heard(server: Server, keys: Pair | None) -> None:
    dealer = server.connected(zmq.DEALER, server.router_at, keys)
    dealer.send(b"hello")
    assert not server.wait_for(server.router, QUIET_MS)


def test_a_client_cannot_listen_to_peers_and_a_peer_can(server: Server) -> None:
    stranger = server.connected(zmq.SUB, server.pub_at, keys_of("reports"))
    server.until_refused(PEERS)
    assert not server.wait_for(stranger, QUIET_MS, server.pub)
    peer = server.connected(zmq.SUB, server.pub_at, server.own)
    assert server.wait_for(peer, WAIT_MS, server.pub)


def test_a_client_that_is_no_longer_admitted_is_refused_at_its_next_connection(server: Server) -> None:
    server.zap.admit({PEERS: {}, CLIENTS: {}})
    dealer = server.connected(zmq.DEALER, server.router_at, keys_of("reports"))
    dealer.send(b"hello")
    server.until_refused(CLIENTS)
    assert not server.wait_for(server.router, QUIET_MS)


def test_a_malformed_question_is_refused(server: Server) -> None:
    asker = server.socket(zmq.REQ)
    asker.connect("inproc://zeromq.zap.01")
    for frames in ([b"nonsense"], [b"1.0", b"1", b"clients", b"", b"", b"NULL"], [b"2.0"] * 7):
        asker.send_multipart(frames)
        assert server.wait_for(asker, WAIT_MS)
        assert asker.recv_multipart()[2] == b"400"


def test_keys_of_clients_have_both_kinds() -> None:
    key = client_key(SECRET, "c", "reports")
    assert key.key == client_secret(SECRET, "c", "reports")
    assert len(key.public) == len(key.private) == len(key.server) == 40
    assert key.server == pair(SECRET, "c").public != key.public
