"""What a dashboard shows beside one election, invented as the feed is: a store, slots, a cache; and other elections.

Real ones are in `tests/browser/test_dashboard_many.py` and `test_dashboard_cache.py`. These have any names, and any
number of them, so that every page can be looked at with hostile and long ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from primacy.dashboard.lease_reader import StoreAt
from primacy.dashboard.slots import Declared
from primacy.election.store import Row
from primacy.store.port import Listing

HELD = Row("a#1", 7, 10, hold_ms=10_000, wait_ms=10_100, released=False, server="s", proof="p", mark="m")
ELECTION = "scheduler"
"""Of the feed."""


class InventedStore:
    """One lease for each name, the first of them renewed at each look; one that is free, one that nobody can read."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.looks = itertools.count(10)

    def listings(self) -> list[Listing]:
        seq = next(self.looks)
        found = [
            Listing(f"{name} reports", HELD._replace(holder=f"{name}#1", seq=10 if at else seq), "02:13:43")
            for at, name in enumerate(self.names)
        ]
        free = Listing("nightly", HELD._replace(released=True), "02:13:43")
        wrong = Listing("zz", None, "02:13:43", f"its row is not one of primacy's: {self.names[0]}")
        return sorted([*found, free, wrong], key=lambda each: each.name)

    def close(self) -> None:
        return


class InventedSlots:
    """Each value names a node, and another one in each second."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        kinds = ("simple_memory", "ticker", "atomic", "timeout_memory")
        self.declared = tuple(Declared(f"{at:03}", kinds[at % 4], restricted=at == 3) for at in range(6))
        self.reads = itertools.count()

    async def get(self, number: str) -> bytes:
        read = next(self.reads)
        return str(read).encode() if number == "001" else f"{self.names[read % len(self.names)]} has it".encode()

    async def hang_up(self) -> None:
        return


class InventedCache:
    """A peer on each of at most five nodes, which have copies of keys that are called like nodes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = {f"127.0.0.1:{7_600 + at}": name for at, name in enumerate(names[:5])}
        self.apis = tuple(self.names)
        self.looks = itertools.count(1)

    async def status(self, api: str, prefix: str, most: int) -> dict[str, Any]:
        name, look = self.names[api], next(self.looks)
        states = ("fresh", "stale", "absent")
        rows = [
            {"key": f"user:{other}", "state": states[at % 3], "role": "sourcing" if at == 1 else "", "left_ms": 9_000}
            for at, other in enumerate(self.names.values())
        ]
        counters = {"hits": 90 * look, "stale": look, "misses": 9 * look, "waiting": 1}
        said = {"node": name, "url": f"http://{api}", "in_touch": True, "keys": 5, "fetches": 9, "counters": counters}
        return {**said, "rows": [row for row in rows if str(row["key"]).startswith(prefix)][:most], "more": 3}

    async def invalidate(self, key: str, *, prefix: bool) -> Any:
        raise NotImplementedError

    async def refresh(self, key: str) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        return


def more(names: Sequence[str]) -> dict[str, Any]:
    """Parts of a dashboard's plan."""
    store: Any = InventedStore(names)
    at = StoreAt(f"sqlite:{names[0]}.db", "primacy_leases", lambda: store)
    return {"stores": (at,), "slots": InventedSlots(names), "cache": InventedCache(names)}


def elections(names: Sequence[str], leader: str, *, acts: bool, two: bool) -> dict[str, Any]:
    """An agent's `/v1/elections`: that of the feed, and others of which each is in another state."""
    head = {"strategy": "raft", "mode": "automatic", "role": "follower", "term": 7}
    acting = [leader] if acts else []
    rows = [
        {**head, "election": ELECTION, "leader": leader, "acting": [*names[:2]] if two else acting},
        {**head, "election": f"{names[-1]} mail", "leader": leader, "acting": acting, "mode": "manual"},
        {**head, "election": "nightly", "waits_for": f"an operator: primacy resume {names[0]}"},
        {**head, "election": "reports", "strategy": "lease", "leader": names[-1]},
        {**head, "election": "stock", "alerts": [f"alert about {names[0]}"] if not acts else [], "acting": acting},
        {"election": "zz", "here": False, "why": f"only {names[0]} takes part"},
    ]
    return {"api": 1, "cluster": "billing", "node": names[0], "elections": rows}
