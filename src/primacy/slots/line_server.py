"""The slot server of one node, for the line protocol and its telnet variant: connections, taken and watched over."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from primacy.connection_limits import HangUp, pass_over_lost
from primacy.errors import CannotHere, InUse
from primacy.loop import unwatch, watch
from primacy.slots.connections import Link, PlainLink, TlsLink
from primacy.slots.host import HANDSHAKE_S, STALL_S, Host, Terms
from primacy.slots.kinds import Receiver
from primacy.slots.session import Session, TelnetSession
from primacy.slots.where import Where

LINE_S = {"standard": 1.0, "telnet": 60.0}
"""How long a line may wait for its end since its last byte. In telnet a human types."""
SWEEP_S = 0.25
BACKLOG = 1_024
TAKEN_MAX = 64
"""Connections that are taken in one turn."""
REST_S = 0.5
"""After an error of accepting (no descriptors left): no storm."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listening(address: str, name: str = "slots.addr") -> list[socket.socket]:
    """Sockets on every address that the host's name stands for; without a host, on all. Raises one of ours.

    `name`: the setting, for the message.
    """
    where = Where.of(address)
    try:
        found = socket.getaddrinfo(
            where.host or None, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except OSError as error:
        raise CannotHere(f"{name} = {address}: the host is not known here: {error.strerror}") from None
    sockets: list[socket.socket] = []
    fault: OSError | None = None
    for family, _, _, _, at in dict.fromkeys(found):
        try:
            made = socket.create_server(at[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            fault = error
            if error.errno == errno.EADDRNOTAVAIL:  # the name stands for an address that this machine has not
                continue
            break
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # what is accepted inherits both
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.append(made)
        fault = None
        if where.port == 0:
            break
    if sockets and fault is None:
        return sockets
    for each in sockets:
        each.close()
    assert fault is not None
    remedy = "end what has it (ss -ltnp shows it), or choose another" + (": --addr" if name == "slots.addr" else "")
    raise InUse(f"{name} = {address}: {os.strerror(fault.errno or 0)}; {remedy}")


class LineServer(Host):
    """Serves `standard` and `telnet`."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        protocol = terms.slots.protocol
        self.kind: type[Session] = TelnetSession if protocol == "telnet" else Session
        self.line_s = LINE_S[protocol]
        self.links: dict[Link, None] = {}
        self._sockets: list[socket.socket] = []
        self._tls_servers: list[asyncio.Server] = []
        self._unfinished: dict[Link, float] = {}
        self._owing: dict[Link, float] = {}
        self._later: deque[Link] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._closed = False

    async def start(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        self._sockets = sockets
        self.address = str(Where(*sockets[0].getsockname()[:2]))
        if self.tls is None:
            self._accepting(True)
            return
        pass_over_lost()
        for each in sockets:
            self._tls_servers.append(
                await loop.create_server(
                    self._taken_tls,
                    sock=each,
                    ssl=self.tls,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=HANDSHAKE_S,
                )
            )

    async def close(self) -> None:
        self._closed = True
        self._accepting(False)
        for server in self._tls_servers:
            server.close()
        for each in self._sockets:
            each.close()
        self.hall.follow("" if self.hall.board is not None else self.leader)
        self.ended()
        for link in tuple(self.links):
            link.drop()
        for timer in (self._sweeping, self._resting):
            if timer is not None:
                timer.cancel()
        await asyncio.sleep(0)  # what asyncio still has to say about its transports

    # --- who leads ----------------------------------------------------------------------------------------------------

    def everybody(self) -> Iterable[Receiver]:
        return [link.session for link in self.links]

    def began(self) -> None:
        for link in self.links:
            link.session.greet()

    def ended(self) -> None:
        """NOT_LEADER, then the connection ends: a login, a registration, a slot that was theirs are gone with it."""
        self._later.clear()
        for link in tuple(self.links):
            link.session.greet()
            link.answer(self.hall.not_leader)
            link.hang_up()

    def open_now(self) -> int:
        return len(self.links)

    # --- what connections ask for -------------------------------------------------------------------------------------

    def unfinished(self, link: Link) -> None:
        self._unfinished[link] = asyncio.get_running_loop().time() + self.line_s
        self._sweep_later()

    def later(self, link: Link) -> None:
        """One portion of one client in each turn of the loop: an election's turns come in between."""
        self._later.append(link)
        if len(self._later) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._later:  # that leadership is over
            return
        link = self._later.popleft()
        if self._later:
            asyncio.get_running_loop().call_soon(self._go_on)
        link.go_on()

    def owes(self, link: Link, *, took: bool = False) -> None:
        """What is added to its debts gives it no more time; what it takes does."""
        if took or link not in self._owing:
            self._owing[link] = asyncio.get_running_loop().time() + STALL_S
            self._sweep_later()

    def came(self, link: Link) -> None:
        self.counters["slots_connections"] += 1
        self.links[link] = None

    def gone(self, link: Link, *, slow: bool) -> None:
        if slow:
            self.counters["slots_dropped_slow"] += 1
        self.links.pop(link, None)
        self._unfinished.pop(link, None)
        self._owing.pop(link, None)
        if self.hall.board is not None:
            self.hall.board.forget(link.session)

    def _sweep_later(self) -> None:
        if self._sweeping is None and not self._closed:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now_s = asyncio.get_running_loop().time()
        for link, until_s in tuple(self._unfinished.items()):
            if not link.session.rest or link.session.more:
                del self._unfinished[link]
            elif now_s >= until_s:
                del self._unfinished[link]
                self.counters["slots_lines_unfinished"] += 1
                link.answer(link.session.give_up_line())
        for link, until_s in tuple(self._owing.items()):
            if not link.owed_bytes:
                self._owing.pop(link, None)
            elif now_s >= until_s:
                link.drop(slow=True)
        if self._unfinished or self._owing:
            self._sweep_later()

    # --- accepting ----------------------------------------------------------------------------------------------------

    def _accepting(self, on: bool) -> None:
        loop = asyncio.get_running_loop()
        if self.tls is not None:
            return
        for each in self._sockets:
            if on:
                watch(loop, each, self._accept, each)
            else:
                unwatch(loop, each)

    def _accept(self, source: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(TAKEN_MAX):
            try:
                sock, _ = source.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in FULL:
                    self._rest(error)
                    return
                continue  # of one connection that broke before it was taken
            if len(self.links) >= self.most:
                self.counters["slots_hung_up_on"] += 1
                sock.close()
                continue
            sock.setblocking(False)
            PlainLink(loop, sock, self, self._session)

    def _rest(self, error: OSError) -> None:
        self.complain(f"no connection can be taken now: {error.strerror}; tried again every {REST_S} s")
        self._accepting(False)
        self._resting = asyncio.get_running_loop().call_later(REST_S, self._accepting, True)

    def _taken_tls(self) -> asyncio.Protocol:
        if len(self.links) >= self.most:
            self.counters["slots_hung_up_on"] += 1
            return HangUp()
        return TlsLink(self, self._session)

    def _session(self, offer: Callable[[bytes], bool]) -> Session:
        return self.kind(self.hall, offer)
