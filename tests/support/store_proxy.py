"""A small proxy between a store and its users, which can be told to misbehave: cut a connection after the request went
through and before its answer came back, refuse, or lead to another server from now on."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """TCP on a free port of the loopback, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.refuses = False
        """New connections are closed at once, and present ones go."""
        self.cuts = 0
        """So many answers are dropped, each with its connection, after the server has sent them."""
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, tuple[socket.socket, bool]] = {}
        """Each end to the other one; True: what is read here comes from the server."""
        self._over = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over = True
        self._thread.join(60)
        for end in list(self._pairs):
            self._drop(end)
        self._listener.close()
        self._selector.close()

    @property
    def connections(self) -> int:
        return len(self._pairs) // 2

    def drop_all(self) -> None:
        """Every present connection goes, as when a server dies."""
        self._dropping = True

    _dropping = False

    def _live(self) -> None:
        while not self._over:
            if self._dropping or self.refuses:
                for end in list(self._pairs):
                    self._drop(end)
                self._dropping = False
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._pairs:
                    self._pass_on(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.refuses:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), 2)
        except OSError:
            client.close()
            return
        for end, other, is_server in ((client, server, False), (server, client, True)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[end] = (other, is_server)
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        other, is_server = self._pairs[end]
        try:
            data = end.recv(65_536)
            if data and is_server and self.cuts > 0:
                self.cuts -= 1
                self.cut += 1
                data = b""
            if not data:
                self._drop(end)
                return
            other.sendall(data)
        except OSError:
            self._drop(end)

    def _drop(self, end: socket.socket) -> None:
        other, _ = self._pairs.pop(end, (None, False))
        if other is not None:
            self._pairs.pop(other, None)
        for one in (end, other):
            if one is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(one)
                one.close()
