"""What a peer's memory holds of its keys beside values: how many bytes each takes. Reads only.

Measured on some of the keys, spread over all, as Python has laid them out here. What several keys share, such as the
url of the peer that fetched them, counts once. Values are not part of it: `cache.storage` and the bounds of
docs/cache.md say where these are.
"""

from __future__ import annotations

from sys import getsizeof
from typing import NamedTuple

from primacy.cache.machine import Machine

SAMPLE_KEYS = 256
"""Measured in a millisecond or two: a peer has other things to do."""
PLACE_BYTES = 52
"""A place in a dictionary: 30 to 60 bytes, depending on how full it is."""
GRAIN_BYTES = 16
"""Python's allocator gives out whole grains."""


class KeyMemory(NamedTuple):
    """Of all keys of which something is known."""

    keys: int
    keys_bytes: int

    @property
    def per_key_bytes(self) -> int:
        return self.keys_bytes // self.keys if self.keys else 0


def key_memory(machine: Machine, now_ms: int) -> KeyMemory:
    """How much memory the keys take."""
    known = list(machine.known_keys())
    sample = known[:: max(1, len(known) // SAMPLE_KEYS)]
    parts: dict[int, object] = {}
    for key in sample:
        _gather(key, parts)
        _gather(machine.view(now_ms, 0, key).meta, parts)
    measured = sum(-(-getsizeof(part) // GRAIN_BYTES) * GRAIN_BYTES for part in parts.values())
    each = measured / len(sample) + PLACE_BYTES if sample else 0
    return KeyMemory(len(known), round(each * len(known)))


def _gather(part: object, parts: dict[int, object]) -> None:
    """It and what it consists of, each once."""
    parts[id(part)] = part
    if isinstance(part, tuple):
        for each in part:
            _gather(each, parts)
