"""Reads the peers of a cache as a client of each, and passes on what an operator asks of them.

How each peer stands is read once for all browsers; keys are read when a browser asks, at most twice a second for the
same beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from primacy.dashboard.cache import KEYS_MAX, PEERS_MAX, PeerSeen, answered, keys_view, missed, peers_view
from primacy.dashboard.known import Model
from primacy.dashboard.source import now_ms, wall_ms
from primacy.errors import PrimacyError, Refused

LOOK_S = 1.0
IDLE_LOOK_S = 5.0
SHARED_MS = 500
"""An answer about keys is shared by all who ask within this time."""
PREFIXES_MAX = 32
"""Beginnings of keys that are remembered for that."""


class Outcome(Protocol):
    """What came of a change."""

    @property
    def ok(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def missing(self) -> tuple[str, ...]: ...


class CachePort(Protocol):
    """The peers, as a command assembles it."""

    apis: tuple[str, ...]

    async def status(self, api: str, prefix: str, most: int) -> dict[str, Any]:
        """How this peer stands. Raises `PrimacyError`."""
        ...

    async def invalidate(self, key: str, *, prefix: bool) -> Outcome: ...

    async def refresh(self, key: str) -> Outcome: ...

    async def close(self) -> None: ...


class CacheReader:
    """The peers of one cache."""

    def __init__(self, port: CachePort | None, complain: Callable[[str], None]) -> None:
        self.port = port
        self.complain = complain
        self.apis = port.apis[:PEERS_MAX] if port is not None else ()
        self.peers = [PeerSeen(api) for api in self.apis]
        self.is_watched: Callable[[], bool] = lambda: False
        self._shared: dict[str, tuple[int, asyncio.Task[Model]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._look(at)) for at in range(len(self.apis))]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.complain(f"a fault of the reader of the cache: {type(fault).__name__}: {fault}")

    async def close(self) -> None:
        keys = [task for _, task in self._shared.values()]
        for task in (*self._tasks, *keys):
            task.cancel()
        await asyncio.gather(*self._tasks, *keys, return_exceptions=True)
        if self.port is not None:
            await self.port.close()

    def part(self) -> Model | None:
        return peers_view(self.peers) if self.apis else None

    async def _look(self, at: int) -> None:
        while True:
            self.peers[at] = await self._asked(self.peers[at], "", 0)
            waited_s = 0.0
            while waited_s < (LOOK_S if self.is_watched() else IDLE_LOOK_S):
                await asyncio.sleep(LOOK_S)
                waited_s += LOOK_S

    async def _asked(self, peer: PeerSeen, prefix: str, most: int) -> PeerSeen:
        assert self.port is not None
        try:
            return answered(peer, await self.port.status(peer.api, prefix, most))
        except PrimacyError as error:
            return missed(peer, str(error), wall_ms())

    async def keys(self, prefix: str) -> Model:
        """Keys that begin so, on each peer."""
        at_ms, task = self._shared.get(prefix, (0, None))
        if task is None or now_ms() - at_ms > SHARED_MS:
            task = asyncio.create_task(self._keys(prefix))
            self._shared.pop(prefix, None)
            self._shared[prefix] = (now_ms(), task)
            while len(self._shared) > PREFIXES_MAX:
                del self._shared[next(iter(self._shared))]
        return await asyncio.shield(task)

    async def _keys(self, prefix: str) -> Model:
        found = await asyncio.gather(*(self._asked(peer, prefix, KEYS_MAX) for peer in self.peers))
        return keys_view(found)

    async def change(self, do: str, key: str, *, prefix: bool) -> str:
        """What was done, as a sentence. Raises `Refused`."""
        assert self.port is not None
        if do == "refresh":
            done, what = await self.port.refresh(key), f"{key[:80]} was fetched anew"
        else:
            done = await self.port.invalidate(key, prefix=prefix)
            what = f"every key that begins with {key[:80]} is invalidated" if prefix else f"{key[:80]} is invalidated"
        self._shared.clear()
        if not done.ok:
            raise Refused(f"not done: {done.reason}")
        left = f" Not told: {', '.join(done.missing)}; they give it as stale at most." if done.missing else ""
        return f"{what}.{left}"
