"""The slots of a file for the dashboard: a client that reads, by the protocol that the file says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.cli.call import Call
from primacy.dashboard.slots import Declared
from primacy.errors import NotReached

if TYPE_CHECKING:
    from primacy.settings.schema import Settings
    from primacy.slots.client import Client

WITHIN_MS = 2_000


class SlotsClient:
    """As nobody: slots of users are not read."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        numbered = sorted(settings.slots.numbered.items())
        self.declared = tuple(Declared(number, slot.kind, bool(slot.users)) for number, slot in numbered)
        self._client: Client | None = None

    async def get(self, number: str) -> bytes:
        slots = self.settings.slots
        if slots.protocol == "http" or slots.tls.cert:
            how = "over HTTP" if slots.protocol == "http" else "behind TLS"
            raise NotReached(f"values are read by the line protocol without TLS only, and these are served {how}")
        if self._client is None:
            from primacy.cli.slots import addresses_of
            from primacy.slots.client import Client

            nodes = addresses_of(self.settings, ())
            self._client = Client(nodes, within_ms=WITHIN_MS, telnet=slots.protocol == "telnet")
        return await self._client.get(number)

    async def hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def slots_of(call: Call, config: str | None) -> SlotsClient | None:
    """None if the file has no slots."""
    from primacy.settings import load

    file = call.file(config)
    settings = load(file, call.node) if file is not None else None
    return SlotsClient(settings) if settings is not None and settings.slots.numbered else None
