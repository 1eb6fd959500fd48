"""The cache of a file for the dashboard: a client for each of its peers, opened when it is first asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from primacy.cli.call import Call

if TYPE_CHECKING:
    from primacy.cache.access import Done
    from primacy.cache.client import Client
    from primacy.cli.cache import PeerOptions

WITHIN_MS = 2_000
CHANGE_MS = 10_000


class CacheClients:
    """The peers that the file lists."""

    def __init__(self, options: PeerOptions) -> None:
        self.options = options
        self.apis = options.apis
        self._clients: dict[tuple[str, ...], Client] = {}

    def _client(self, apis: tuple[str, ...], within_ms: int) -> Client:
        found = self._clients.get(apis)
        if found is None:
            found = self._clients[apis] = self.options.client(apis, within_ms)
            found.open()
        return found

    async def status(self, api: str, prefix: str, most: int) -> dict[str, Any]:
        return await self._client((api,), WITHIN_MS).status(prefix, most)

    async def invalidate(self, key: str, *, prefix: bool) -> Done:
        return await self._client(self.apis, CHANGE_MS).invalidate(key, prefix=prefix)

    async def refresh(self, key: str) -> Done:
        return await self._client(self.apis, CHANGE_MS).refresh(key)

    def control_key(self) -> str:
        """Of the peer of the file that runs on this machine, if its folder can be read: it makes an operator."""
        from primacy.agent.cache_serve import folder_of
        from primacy.control.client import find

        settings = self.options.settings
        assert settings is not None
        for name in settings.cache.peers:
            found = find(folder_of(settings, os.environ, os.geteuid(), name))
            if found is not None and found.key:
                return found.key
        return ""

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def cache_of(call: Call, config: str | None) -> CacheClients | None:
    """None if the file has no cache."""
    from primacy.cli.cache import PeerOptions

    if call.file(config) is None:
        return None
    options = PeerOptions(call, config=config, apis=(), key_file=None)
    if options.settings is None or not options.settings.cache.peers:
        return None
    return CacheClients(options)
