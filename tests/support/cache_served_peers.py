"""Three cache peers without a source, in a thread of their own, so that threads and processes can be clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

from primacy.cache.peer import Peer
from tests.support.ports import free_ports

LIMIT_S = 120.0


def addresses(count: int) -> list[tuple[str, str]]:
    ports = free_ports(2 * count)
    return [(f"tcp://127.0.0.1:{ports[2 * i]}", f"tcp://127.0.0.1:{ports[2 * i + 1]}") for i in range(count)]


class Served:
    """In its `with` block they run and see each other."""

    def __enter__(self) -> Served:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.where = addresses(3)
        self.peers = [self.wait(self._made(url, api)) for url, api in self.where]
        self.apis = [api for _, api in self.where]
        until_s = time.monotonic() + LIMIT_S
        while not all(self.wait(peer.put(b"first", b"", 100)).ok for peer in self.peers):
            assert time.monotonic() < until_s, "three peers do not find each other"
        return self

    async def _made(self, url: str, api: str) -> Peer:
        peer = Peer(url, api, self.where)
        await peer.start()
        return peer

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    def __exit__(self, *error: object) -> None:
        for peer in self.peers:
            self.wait(peer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
