"""The client of slots for threads and scripts: the same client, on a loop in a thread of its own.

with primacy.blocking.SlotsClient("localhost:25873") as slots:
    slots.set("000", "hello")
    for value in slots.watch("014"):
        print(value)
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

from primacy.errors import UsageError
from primacy.loop_thread import LoopThread
from primacy.slots.client import Client

T = TypeVar("T")


class SlotsClient:
    """The arguments are those of `primacy.slots.Client`. Any thread may use it, inside of its `with` block."""

    def __init__(self, *addresses: Any, **options: Any) -> None:
        self._addresses, self._options = addresses, options
        self._client: Client | None = None
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise UsageError("this client was entered before; make a new one for a new block")
        self._client = Client(*self._addresses, **self._options)
        self._thread = LoopThread("primacy-slots")
        return self

    def __exit__(self, *_: object) -> None:
        client, self._client = self._open, None
        assert self._thread is not None
        self._thread.wait(client.close())
        self._thread.close()

    def get(self, slot: str | int) -> bytes:
        """As `Client.get`."""
        return self._wait(self._open.get(slot))

    def set(self, slot: str | int, value: bytes | str) -> bytes:
        """As `Client.set`."""
        return self._wait(self._open.set(slot, value))

    def watch(self, slot: str | int) -> Iterator[bytes]:
        """The values that are written to a signal slot, from the first `next` on."""
        client = self._open

        async def begun() -> Any:
            return await client.watch(slot).__aenter__()

        watch = self._wait(begun())
        try:
            while True:
                try:
                    yield self._wait(watch.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            if self._thread is not None and not self._thread.loop.is_closed():
                self._wait(watch.__aexit__(None, None, None))

    @property
    def leaderships(self) -> int:
        return self._open.leaderships

    @property
    def _open(self) -> Client:
        if self._client is None:
            raise UsageError("a client of slots is used in its own `with` block")
        return self._client

    def _wait(self, what: Coroutine[Any, Any, T]) -> T:
        assert self._thread is not None
        return self._thread.wait(what)
