"""The HA cache: peers over ZeroMQ that fetch each entry once for the whole cluster.

Peers answer clients at once with what they have, elect one peer per key to fetch what is missing or stale, and go on
while a majority sees each other. Machines decide (`own.py`, `document.py`: pure); `peer.py` performs it for real.

    async with primacy.cache.Client(["tcp://10.0.0.1:6001"]) as cache:
        found = await cache.get("rates/today")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primacy.cache.access import Done as Done
    from primacy.cache.access import Found as Found
    from primacy.cache.askers import close as close
    from primacy.cache.client import Client as Client
    from primacy.cache.peer import Peer as Peer
    from primacy.cache.peer import Secured as Secured
    from primacy.cache.threads import CacheClient as CacheClient

__all__ = ["CacheClient", "Client", "Done", "Found", "Peer", "Secured", "close"]

_WHERE = {
    "CacheClient": "threads",
    "Client": "client",
    "Peer": "peer",
    "Secured": "peer",
    "Done": "access",
    "Found": "access",
    "close": "askers",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'primacy.cache' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 -- machines need no sockets

    return getattr(import_module(f"primacy.cache.{_WHERE[name]}"), name)
