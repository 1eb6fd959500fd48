"""A client of slots: several addresses, one connection, many requests at once.

    async with primacy.slots.Client("10.0.0.1:25873", "10.0.0.2:25873") as slots:
        await slots.set("000", b"hello")
        print(await slots.get("000"))
        async for value in slots.watch("014"):
            print(value)

It finds the node that leads, follows when another one does, and comes back after a break: with a growing pause that
has chance in it, so that many clients do not come back in step. What was surely not done (nobody was reached, or the
node said that it does not lead) is tried again until the time is over. A write whose answer was lost, or did not come
in time, is not: it may have been done, and `Unsure` says so. A read is: at worst a counter skips a number.

Slots start empty under each new leader; a client that relies on what it wrote looks at `leaderships`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from random import Random
from typing import Self, TypeVar

from primacy.errors import NotReached, SlotRefused, Unsure, UsageError
from primacy.settings.accepted import wrong_listen
from primacy.slots.where import Where

T = TypeVar("T")
WITHIN_MS = 5_000
CONNECT_S = 2.0
ANSWER_S = 2.0
"""A server answers in the same turn in which it reads: one that does not is frozen, or cut off."""
WATCH_S = 5.0
"""So often a connection that is only listened to is asked whether it is there: one that is cut off says nothing."""
PAUSE_S = 0.05
PAUSE_S_MAX = 1.0
VALUE_BYTES_MAX = 36
WORD_BYTES_MAX = 39
"""Of a user's name, and of a password."""
WAITING_MAX = 1_000
"""Events that wait for a slow `async for`; the oldest is forgotten for a newer one."""
ANSWER_BYTES_MAX = 4_096
"""A line of a server is far shorter; whoever sends more is none."""
NOT_LEADER = b"exxx000"
NO_COMMAND = b"?"
"""Answered by every node that is awake, whoever leads, and nothing comes of it."""
MEANING = {
    "001": "no such command",
    "002": "this is no user name",
    "003": "a password has at least 4 characters",
    "004": "no such user, or another password",
    "005": "there is no such slot",
    "006": "no permission to write, or a slot that is only read",
    "007": "the slot refuses the value, or belongs to another client",
    "008": "no permission to read",
    "010": "the slot cannot be registered with",
}


class Wire(asyncio.Protocol):
    """One connection. Answers come in the order of the requests; events at any time."""

    def __init__(self, client: Client, address: str) -> None:
        self.client = client
        self.address = address
        self.led = False
        """It has answered as a leader does."""
        self.pending: deque[asyncio.Future[bytes]] = deque()
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"a"):
                self.client._heard(line[1:4].decode("latin-1"), line[4:])
            elif self.pending:
                answer = self.pending.popleft()
                if not answer.done():
                    answer.set_result(line)
            else:
                self.drop()  # it was said that this node does not lead any more
        if len(self._rest) > ANSWER_BYTES_MAX:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended = True
        self.gone.set_result(None)
        for answer in self.pending:
            if not answer.done():
                answer.set_exception(ConnectionResetError())
                answer.exception()  # whoever asked may have left
        self.pending.clear()
        self.client._ended(self)

    def ask(self, line: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.ended or self.transport is None:
            answer.set_exception(ConnectionResetError())
        else:
            self.pending.append(answer)
            self.transport.write(line + self.client.line_end)
        return answer

    async def answer(self, line: bytes) -> bytes:
        """Raises `ConnectionError` if none comes. That is looked at even if whoever asked has left by then."""
        asked = self.ask(line)
        overdue = asyncio.get_running_loop().call_later(ANSWER_S, self._overdue, asked)
        await asyncio.wait([asked])
        overdue.cancel()
        return asked.result()

    def _overdue(self, asked: asyncio.Future[bytes]) -> None:
        if not asked.done():
            self.drop()

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Slots of a cluster, or of one node."""

    def __init__(
        self,
        *addresses: str | Mapping[str, str],
        user: str = "",
        password: str = "",
        within_ms: int = WITHIN_MS,
        tls: ssl.SSLContext | None = None,
        telnet: bool = False,
    ) -> None:
        """`addresses`: host:port of each node; or a mapping from ids to them, so that a node's hint is followed."""
        self.nodes: dict[str, str] = {}
        for each in addresses:
            self.nodes |= {each: each} if isinstance(each, str) else dict(each)
        if not self.nodes:
            raise UsageError("a client of slots needs an address, such as localhost:25873")
        for address in self.nodes.values():
            if wrong := wrong_listen(address):
                raise UsageError(f"{address[:80]}: {wrong}")
        if user and not all(
            4 <= len(word.encode()) <= WORD_BYTES_MAX and "\n" not in word for word in (user, password)
        ):
            raise UsageError(f"a user's name and a password have 4 to {WORD_BYTES_MAX} bytes and no line feed")
        self.user, self.password = user, password
        self.within_ms = within_ms
        self.tls = tls
        self.line_end = b"\r\n" if telnet else b"\n"
        self.leaderships = 0
        """Connections to a node that led: with each but the first, slots may have started empty."""
        self.missed = 0
        """Events that a slow `async for` did not take."""
        self._random = Random()
        self._order = list(self.nodes.values())
        self._random.shuffle(self._order)
        self._wire: Wire | None = None
        self._lock = asyncio.Lock()
        self._watches: dict[str, list[Watch]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._fault = ""
        """Why a node was not reached, last."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop()
        for watches in self._watches.values():
            for each in watches:
                each.end()
        await asyncio.sleep(0)

    # --- what it is for -----------------------------------------------------------------------------------------------

    async def get(self, slot: str | int) -> bytes:
        """What a read of the slot gives. Raises `SlotRefused`, `NotReached`."""
        return await self._ask(b"r" + number(slot), repeat=True)

    async def set(self, slot: str | int, value: bytes | str) -> bytes:
        """What the server says to it: the value, or A/B/C of a signal. Raises `SlotRefused`, `NotReached`, `Unsure`."""
        return await self._ask(b"w" + number(slot) + valued(value), repeat=False)

    def watch(self, slot: str | int) -> Watch:
        """The values that are written to a signal slot from now on. Registers where that is needed."""
        watch = Watch(self, number(slot).decode())
        self._hear(watch)
        return watch

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _ask(self, line: bytes, *, repeat: bool) -> bytes:
        async def asked(wire: Wire) -> bytes:
            return self._led(wire, await wire.answer(line))

        return await self._tried(asked, repeat=repeat)

    async def _tried(self, act: Callable[[Wire], Awaitable[T]], *, repeat: bool) -> T:
        """With one node after the other, until one that leads has done it. `repeat`: also if that is not known."""
        if self._closed:
            raise UsageError("this client is closed")
        why, waits_at = "", ""
        try:
            async with asyncio.timeout(self.within_ms / 1_000):
                for turn in count():
                    if turn:
                        await self._pause(turn)
                    wire = await self._connected()
                    waits_at = wire.address
                    try:
                        return await act(wire)
                    except NotLeading as error:
                        why, waits_at = str(error), ""
                        self._leave(wire, error.leader)
                    except ConnectionError:
                        why, waits_at = f"{wire.address} did not answer", ""
                        self._leave(wire, "")
                        if not repeat:
                            raise _unsure(wire.address) from None
        except TimeoutError:
            if waits_at and not repeat:
                raise _unsure(waits_at) from None
            raise self._in_vain(why) from None
        raise AssertionError("it counts for ever")

    def _led(self, wire: Wire, line: bytes) -> bytes:
        """The value. Whoever answers anything but NOT_LEADER leads."""
        try:
            return answered(line)
        finally:
            if not wire.led and not line.startswith(NOT_LEADER):
                wire.led = True
                self.leaderships += 1

    async def _pause(self, turn: int) -> None:
        """All were asked once at once; from then on there is a growing pause, with chance in it."""
        circles = turn // len(self._order)
        if circles:
            await asyncio.sleep(min(PAUSE_S * 2 ** min(circles - 1, 8), PAUSE_S_MAX) * (0.5 + self._random.random()))

    def _leave(self, wire: Wire, leader: str) -> None:
        """It does not lead: the next one, or the one that it names."""
        was_used = wire is self._wire
        if was_used:
            self._wire = None
        wire.drop()
        self._last(wire.address)
        address = self.nodes.get(leader)
        if address is not None and address != wire.address:
            self._order.remove(address)
            self._order.insert(0, address)
        if was_used:
            self._keep()  # whoever asked may give up; those who watch do not

    def _last(self, address: str) -> None:
        self._order.remove(address)
        self._order.append(address)

    def _in_vain(self, why: str) -> NotReached:
        at = ", ".join(sorted(set(self._order)))
        why = why or self._fault
        return NotReached(
            f"no node that leads answered at {at} within {self.within_ms:,} ms{'; ' + why if why else ''}"
        )

    async def _connected(self) -> Wire:
        """A connection, to a node that leads as far as is known. Waits for ever; whoever asks has a limit."""
        async with self._lock:
            turn = 0
            while self._wire is None or self._wire.ended:
                if turn:
                    await self._pause(turn)
                self._wire = await self._open(self._order[0])
                turn += 1
            return self._wire

    async def _open(self, address: str) -> Wire | None:
        """None if it is not there or does not lead. Raises `SlotRefused` if it does not let us in."""
        where = Where.of(address)
        wire: Wire | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                _, wire = await asyncio.get_running_loop().create_connection(
                    lambda: Wire(self, address), where.host or "localhost", where.port, ssl=self.tls
                )
                await self._greet(wire)
        except NotLeading as error:
            assert wire is not None
            self._leave(wire, error.leader)
            return None
        except (OSError, TimeoutError) as error:
            if wire is not None:
                wire.drop()
            self._last(address)
            self._fault = f"{address}: {fault_of(error)}"
            return None
        except BaseException:  # refused, or nobody waits for it any more: whoever asks next asks another first
            if wire is not None:
                wire.drop()
            self._last(address)
            raise
        return wire

    async def _greet(self, wire: Wire) -> None:
        """Is anybody there? Then it logs in, and registers again.

        A node that is frozen takes connections, too: nothing is sent to it that it might do when it goes on.
        """
        await wire.answer(NO_COMMAND)
        if self.user:
            self._led(wire, await wire.answer(b"u" + self.user.encode()))
            self._led(wire, await wire.answer(b"p" + self.password.encode()))
        for slot in tuple(self._watches):
            try:
                await self._register(wire, slot)
            except SlotRefused as error:  # its watches end; all else goes on
                for each in self._watches.pop(slot, ()):
                    each.end(error)

    async def _register(self, wire: Wire, slot: str) -> None:
        """With a slot that wants it; a broadcast does not, and says so. Raises `SlotRefused` without a permission."""
        try:
            self._led(wire, await wire.answer(b"s" + slot.encode()))
        except SlotRefused as error:
            if error.code not in ("001", "010"):
                raise
            self._led(wire, await wire.answer(b"r" + slot.encode()))  # may it be read at all?

    # --- events -------------------------------------------------------------------------------------------------------

    def _heard(self, slot: str, value: bytes) -> None:
        for watch in self._watches.get(slot, ()):
            self.missed += watch.put(value)

    def _ended(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = None
            self._keep()

    def _keep(self) -> None:
        """Somebody watches: a connection is needed, without being asked for."""
        if self._watches and not self._closed and (self._watching is None or self._watching.done()):
            self._watching = asyncio.get_running_loop().create_task(self._stay())

    async def _stay(self) -> None:
        """As long as somebody watches. Raises nothing: who watches is told."""
        try:
            while self._watches:
                wire = await self._connected()
                await asyncio.wait([wire.gone], timeout=WATCH_S)
                if not wire.ended:
                    await self._look(wire)
        except SlotRefused as error:  # the login
            for watches in self._watches.values():
                for each in watches:
                    each.end(error)

    async def _look(self, wire: Wire) -> None:
        """Is it there, and does it lead? Registering again asks that, and brings back who was too slow for a while."""
        for slot in tuple(self._watches):
            try:
                self._led(wire, await wire.answer(b"s" + slot.encode()))
            except SlotRefused:
                pass  # a broadcast: nobody registers with it
            except NotLeading as error:
                self._leave(wire, error.leader)
                return
            except ConnectionError:
                self._leave(wire, "")
                return

    async def _begin(self, watch: Watch) -> None:
        """Its connection, and its registration. Raises `NotReached`, `SlotRefused`."""
        await self._tried(lambda wire: self._register(wire, watch.slot), repeat=True)
        self._keep()

    def _hear(self, watch: Watch) -> None:
        found = self._watches.setdefault(watch.slot, [])
        if watch not in found:
            found.append(watch)

    def _forget(self, watch: Watch) -> None:
        """With the last watch the registration ends: the next message of a random slot is another's."""
        left = self._watches.get(watch.slot, [])
        if watch in left:
            left.remove(watch)
            if not left:
                del self._watches[watch.slot]
                if self._wire is not None and not self._wire.ended:
                    self._wire.ask(b"d" + watch.slot.encode())


class Watch:
    """The values of one signal slot, as `async for`; `async with` makes sure that it is registered before the body."""

    def __init__(self, client: Client, slot: str) -> None:
        self.client = client
        self.slot = slot
        self._values: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._news = asyncio.Event()
        self._begun = False
        self._over = False
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        if not self._begun:
            self.client._hear(self)
            try:
                await self.client._begin(self)
            except BaseException:
                self.client._forget(self)
                raise
            self._begun = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client._forget(self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await self.__aenter__()
        while not self._values:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._values.popleft()

    def put(self, value: bytes) -> int:
        """1 if an older one was forgotten for it."""
        full = len(self._values) == WAITING_MAX
        self._values.append(value)
        self._news.set()
        return int(full)

    def end(self, error: Exception | None = None) -> None:
        self._over, self._error = True, error
        self._news.set()


class NotLeading(Exception):
    """The node said so. Within this file."""

    def __init__(self, leader: str) -> None:
        self.leader = leader
        super().__init__(f"{leader} leads, as was said last" if leader else "nobody leads, as was said last")


def fault_of(error: OSError) -> str:
    """In words. Several addresses of one name make one error without a number; TLS has words of its own."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", "") or error.reason or "no TLS"
    if isinstance(error, socket.gaierror):
        return error.strerror or "the host is not known"
    return os.strerror(error.errno) if error.errno else str(error) or "no answer"


def _unsure(address: str) -> Unsure:
    return Unsure(f"{address} did not answer: it may have been done; read it, or say it again")


def number(slot: str | int) -> bytes:
    """The three digits of a slot. Raises `UsageError`."""
    text = str(slot)
    if not text.isascii() or not text.isdigit() or not 0 <= int(text[:9]) <= 999 or len(text) > 3:
        raise UsageError(f"slot {text[:20]}: a slot is a number from 0 to 999")
    return f"{int(text):03}".encode()


def valued(value: bytes | str) -> bytes:
    """As it stands in a line. Raises `UsageError`."""
    data = value.encode() if isinstance(value, str) else value
    if len(data) > VALUE_BYTES_MAX or b"\n" in data:
        raise UsageError(f"a value has at most {VALUE_BYTES_MAX} bytes and no line feed; this has {len(data)}")
    return data


def answered(line: bytes) -> bytes:
    """The value of an answer: `v000VALUE`. Raises `SlotRefused`, `NotLeading`."""
    if line.startswith(NOT_LEADER):
        raise NotLeading(line[len(NOT_LEADER) :].decode("utf-8", "replace"))
    if line.startswith(b"e"):
        slot, code = line[1:4].decode("latin-1"), line[4:7].decode("latin-1")
        raise SlotRefused("" if slot == "xxx" else slot, code, MEANING.get(code, "refused"))
    return line[4:]
