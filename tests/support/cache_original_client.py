"""A double of the original HA cache's client, with its timers and its defects. It knows nothing of primacy.cache.

One DEALER to all servers. 500 ms to a first answer, 2,100 after each KEEPALIVE; then, or on SEEOTHER, at once the next
server under a new number. The time limit is looked at only when an attempt times out (L2).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FIRST_MS, NEXT_MS, EXPIRY_MS, DISCOVERY_MS, TIMEOUT_LEAST_MS = 500, 2_100, 5_000, 2_000, 1_500
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClientError(Exception):
    """What the original rejects a promise with."""


@dataclass(frozen=True)
class Found:
    value: bytes
    expire: int


def integer(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "little")


def base36(number: int) -> bytes:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return (text or "0").encode()


class OriginalClient:
    """`send` takes the frames of one message to the next server in turn."""

    def __init__(
        self,
        send: Callable[[list[bytes]], None],
        timeout_ms: int = 0,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._send = send
        self._timeout_ms = max(timeout_ms, TIMEOUT_LEAST_MS)
        self._wall_ms = wall_ms
        self._count = 0
        self._open: dict[bytes, asyncio.Queue[list[bytes]]] = {}
        self.closed = False

    def received(self, frames: list[bytes]) -> None:
        """Late answers of an attempt that was given up are dropped."""
        queue = self._open.get(frames[0])
        if queue is not None:
            queue.put_nowait(frames[1:])

    def _attempt(self, command: bytes, *frames: bytes) -> tuple[bytes, asyncio.Queue[list[bytes]]]:
        self._count = self._count % (1 << 32) + 1
        number = base36(self._count)
        queue = self._open[number] = asyncio.Queue()
        self._send([number, command, integer(self._wall_ms() + EXPIRY_MS), *frames])
        return number, queue

    async def get(self, key: bytes, after: int | None = None) -> Found:
        begun = asyncio.get_running_loop().time()
        frames = [key] if after is None else [key, integer(after)]
        while True:
            if self.closed:
                raise ClientError("closed")
            number, queue = self._attempt(b"?", *frames)
            try:
                answer = await self._answer(queue)
            finally:
                del self._open[number]
            if answer is None:
                if (asyncio.get_running_loop().time() - begun) * 1000 >= self._timeout_ms:
                    raise ClientError("timeout")
            elif answer[0] == b"=":
                return Found(answer[1], int.from_bytes(answer[2], "little"))
            elif answer[0] != b"#":
                raise ClientError(f"unknown type {answer[0]!r}")

    async def _answer(self, queue: asyncio.Queue[list[bytes]]) -> list[bytes] | None:
        """Past every KEEPALIVE; None: time is over."""
        wait_ms = FIRST_MS
        while True:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    frames = await queue.get()
            except TimeoutError:
                return None
            if frames:
                return frames
            wait_ms = NEXT_MS

    async def discover(self) -> bytes:
        """The packed list of api urls. Tried for ever."""
        while True:
            number, queue = self._attempt(b"*")
            try:
                async with asyncio.timeout(DISCOVERY_MS / 1000):
                    return (await queue.get())[1]
            except TimeoutError:
                continue
            finally:
                del self._open[number]


class SocketClient:
    """The same on a real DEALER."""

    def __init__(self, apis: list[str], timeout_ms: int = 0, highwatermark: int = 5) -> None:
        import zmq
        import zmq.asyncio

        self._context = zmq.asyncio.Context()
        self._socket: Any = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, highwatermark)
        for api in apis:
            self._socket.connect(api)
        self.client = OriginalClient(self._socket.send_multipart, timeout_ms)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            self.client.received(await self._socket.recv_multipart())

    async def get(self, key: bytes, after: int | None = None) -> Found:
        return await self.client.get(key, after)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._socket.close()
        self._context.term()
