"""Ghoti's slots: small values, locks, limits, counters and signals on the node that leads.

async with primacy.slots.Client("localhost:25873") as slots:
    await slots.set("000", "hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primacy.slots.client import Client as Client
    from primacy.slots.client import Watch as Watch

__all__ = ["Client", "Watch"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'primacy.slots' has no attribute {name!r}")
    from primacy.slots import client  # noqa: PLC0415 -- a line_server needs no client

    return getattr(client, name)
