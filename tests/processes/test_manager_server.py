"""The manager's server by itself: what a stranger can make long, or many, is bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from primacy.membership import http_server
from primacy.membership.http_server import ManagerServer
from primacy.membership.http_wire import Asked, Reply
from tests.support.waiting import wait_until_async

LIMIT_S = 30.0
REQUEST = b"GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n"


class Guest:
    """A connection of somebody, made ready before it connects."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)

    async def connect(self, server: socket.socket) -> Guest:
        await asyncio.get_running_loop().sock_connect(self.socket, server.getsockname())
        return self

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self) -> bytes:
        """Empty when the other end hung up."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await asyncio.get_running_loop().sock_recv(self.socket, 4_096)
            except ConnectionResetError:
                return b""

    async def asks(self) -> bool:
        await self.send(REQUEST)
        return (await self.read()).startswith(b"HTTP/1.1 200")


Scene = Callable[[ManagerServer, socket.socket, list[str]], Awaitable[None]]


def opened(scene: Scene) -> None:
    async def answer(asked: Asked) -> Reply:
        return Reply(200)

    async def whole() -> None:
        said: list[str] = []
        server = ManagerServer(answer, said.append)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.open(listening, None)
        try:
            await scene(server, listening, said)
        finally:
            await server.close()

    asyncio.run(whole())


until = partial(wait_until_async, within_s=LIMIT_S, every_s=0.01)


def test_a_later_request_of_a_connection_has_no_longer_to_come_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of a head came in time for the 120 s of a quiet connection; a whole head has 10 s."""
    monkeypatch.setattr(http_server, "SWEEP_S", 0.05)

    async def scene(server: ManagerServer, listening: socket.socket, said: list[str]) -> None:
        slow, calm = await Guest().connect(listening), await Guest().connect(listening)
        assert await slow.asks()
        assert await calm.asks()
        assert await slow.asks(), "a second one that comes at once"
        monkeypatch.setattr(http_server, "FIRST_S", 0.3)
        await slow.send(REQUEST[:9])
        assert await slow.read() == b"", "hung up on"
        assert server.hung_up == 1
        assert await calm.asks(), "one that is only quiet stays"
        for each in (slow, calm):
            each.socket.close()

    opened(scene)


class Descriptors:
    """All that this process may have are in use."""

    def __init__(self) -> None:
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.held = [os.open(os.devnull, os.O_RDONLY)]

    def use_up(self) -> None:
        gc.collect()  # or what an earlier test left behind would give one back in the middle
        most = max(int(name) for name in os.listdir("/proc/self/fd")) + 8
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, self.limits[1]))
        while True:
            try:
                self.held.append(os.dup(self.held[0]))
            except OSError:
                return

    def give_back(self, count: int) -> None:
        for _ in range(count):
            os.close(self.held.pop())

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
        self.give_back(len(self.held))


def test_without_descriptors_a_quiet_connection_goes_and_the_log_stays_short() -> None:
    async def scene(server: ManagerServer, listening: socket.socket, said: list[str]) -> None:
        first, second, third = Guest(), Guest(), Guest()
        left = Descriptors()
        try:
            left.use_up()
            await first.connect(listening)
            await first.send(REQUEST)
            await until(lambda: server._not_taken >= 3)
            assert len(said) == 1, "not a line for each try"
            assert "raise the limit of open files" in said[0]
            left.give_back(1)
            assert (await first.read()).startswith(b"HTTP/1.1 200")
            await second.connect(listening)
            assert await second.asks(), "the quiet one made room"
            assert await first.read() == b""
            await third.connect(listening)
            assert await third.asks()
            assert server.hung_up == 2
            assert len(said) == 1
        finally:
            left.end()
            for each in (first, second, third):
                each.socket.close()

    opened(scene)


def test_after_a_minute_it_is_said_again_with_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SAY_AGAIN_MS", 300)

    async def scene(server: ManagerServer, listening: socket.socket, said: list[str]) -> None:
        guest, left = Guest(), Descriptors()
        try:
            left.use_up()
            await guest.connect(listening)
            await until(lambda: len(said) >= 2)
            assert " times since it was said last" in said[1]
        finally:
            left.end()
            guest.socket.close()

    opened(scene)
