"""Peers of the HA cache in virtual time: doubles of the original, and machines of mode `mixed`, on one network.

Both speak in frames, as on the wire. A link has a delay; peers can be silent (dead or cut off). Clients are doubles of
the original's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.cache_original_client import OriginalClient
from tests.support.cache_original_peer import OriginalPeer, Storage
from tests.support.virtual_time import now_ms

WALL_MS = 1_794_704_000_000


@dataclass(frozen=True)
class Call:
    """One call of a source, in virtual ms. `ended_ms` None: it runs still."""

    key: bytes
    peer: str
    started_ms: int
    ended_ms: int | None = None
    ok: bool = False


@dataclass(frozen=True)
class Sent:
    at_ms: int
    sender: str
    frames: tuple[bytes, ...]


class World:
    """`delay_ms(sender, receiver)`: how long a message takes; None: it is lost."""

    def __init__(self, seed: int = 0, source_ms: Callable[[bytes, str], float] = lambda key, peer: 300.0) -> None:
        self.chance = Random(seed)
        self.source_ms = source_ms
        self.fails: Callable[[bytes, str], bool] = lambda key, peer: False
        self.sent: list[Sent] = []
        self.calls: list[Call] = []
        self.silent: set[str] = set()
        self.peers: dict[str, Any] = {}
        self.fatal: list[str] = []
        self.delay_ms: Callable[[str, str], float | None] = lambda sender, receiver: 1.0
        self._clients: dict[bytes, OriginalClient] = {}
        self._last_s: dict[tuple[str, str], float] = {}
        self._turn = 0

    def wall_ms(self) -> int:
        return WALL_MS + now_ms()

    # --- peers --------------------------------------------------------------------------------------------------------

    def original(
        self, url: str, urls: list[str], storage: Storage | None = None, chance: Random | None = None
    ) -> OriginalPeer:
        peer = OriginalPeer(
            url,
            [(other, f"api-{other}") for other in urls],
            publish=lambda frames: self.publish(url, frames),
            reply=lambda frames: self.reply(url, frames),
            source=lambda key: self.fetch(key, url),
            fatal=self.fatal.append,
            wall_ms=self.wall_ms,
            storage=storage,
            ttl_ms=60_000,
            chance=chance or Random(self.chance.getrandbits(32)),
        )
        self.peers[url] = peer
        return peer

    def fetch(self, key: bytes, url: str) -> Awaitable[bytes]:
        started_ms = now_ms()
        place = len(self.calls)
        self.calls.append(Call(key, url, started_ms))

        async def work() -> bytes:
            ok = False
            try:
                await asyncio.sleep(self.source_ms(key, url) / 1000)
                if self.fails(key, url):
                    raise OSError("the source fails")
                ok = True
                return b"value-of-" + key
            finally:
                self.calls[place] = Call(key, url, started_ms, now_ms(), ok)

        return work()

    def publish(self, sender: str, frames: list[bytes]) -> None:
        """To every peer that subscribes to a beginning of the target, in order per link."""
        if sender in self.silent:
            return
        self.sent.append(Sent(now_ms(), sender, tuple(frames)))
        loop = asyncio.get_running_loop()
        for url, peer in self.peers.items():
            if url == sender or not (frames[0].startswith(b"*") or frames[0].startswith(url.encode())):
                continue
            delay_ms = self.delay_ms(sender, url)
            if delay_ms is None:
                continue
            link = (sender, url)
            at_s = max(self._last_s.get(link, 0.0), loop.time() + delay_ms / 1000)
            self._last_s[link] = at_s
            loop.call_at(at_s, self._deliver, url, peer, list(frames))

    def _deliver(self, url: str, peer: Any, frames: list[bytes]) -> None:
        if url not in self.silent and self.peers.get(url) is peer:
            peer.peer_message(frames)

    # --- clients ------------------------------------------------------------------------------------------------------

    def client(self, urls: list[str], timeout_ms: int = 0) -> OriginalClient:
        """Asks these peers in turn."""
        identity = b"\x00%d" % len(self._clients)
        turn = iter(range(1 << 30))

        def send(frames: list[bytes]) -> None:
            url = urls[next(turn) % len(urls)]
            asyncio.get_running_loop().call_later(0.001, self._request, url, [identity, *frames])

        made = OriginalClient(send, timeout_ms, self.wall_ms)
        self._clients[identity] = made
        return made

    def _request(self, url: str, frames: list[bytes]) -> None:
        if url not in self.silent and url in self.peers:
            self.peers[url].client_message(frames)

    def reply(self, url: str, frames: list[bytes]) -> None:
        client = self._clients.get(frames[0])
        if url not in self.silent and client is not None:
            asyncio.get_running_loop().call_later(0.001, client.received, frames[1:])

    def overlaps(self) -> list[bytes]:
        """Keys that two calls fetched at the same time."""
        spans: dict[bytes, list[tuple[int, int]]] = {}
        for call in self.calls:
            ended_ms = 1 << 60 if call.ended_ms is None else call.ended_ms
            spans.setdefault(call.key, []).append((call.started_ms, ended_ms))
        return [
            key
            for key, of_key in spans.items()
            if any(
                first[0] < second[1] and second[0] < first[1] for i, first in enumerate(of_key) for second in of_key[:i]
            )
        ]
