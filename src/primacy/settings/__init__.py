"""The schema of the one file, its profiles, its checks and the arithmetic of the contract. Everybody may import it.

The names below are found when they are first asked for, so that a machine which needs nothing but `timing` loads
nothing but `timing`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primacy.settings.canonical import config_hash, lease_hash, plain_hash
    from primacy.settings.loading import (
        has_peers,
        is_ranked,
        load,
        membership_rows,
        of_mapping,
        rank_timing_of,
        store_url,
        timing_of,
    )
    from primacy.settings.schema import Settings

__all__ = [
    "Settings",
    "config_hash",
    "has_peers",
    "is_ranked",
    "lease_hash",
    "load",
    "membership_rows",
    "of_mapping",
    "plain_hash",
    "rank_timing_of",
    "store_url",
    "timing_of",
]

_HOME = {
    "Settings": "schema",
    "config_hash": "canonical",
    "has_peers": "loading",
    "is_ranked": "loading",
    "lease_hash": "canonical",
    "load": "loading",
    "membership_rows": "loading",
    "of_mapping": "loading",
    "plain_hash": "canonical",
    "store_url": "loading",
    "rank_timing_of": "loading",
    "timing_of": "loading",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
