"""Lease stores: the user's own database, or etcd, as one table of rows that is written by conditional writes (rules L).

`open_store(url)` gives a `LeaseStore`: synchronous, with one connection of its own, for one thread. `StoreThread` is
that thread; a machine's `AskStore` goes in, `StoreAnswered` comes out. Nothing here decides who leads.

Importing this loads no driver; `open_store` loads the one that its address needs.
"""

from __future__ import annotations

from primacy.store.batch import perform
from primacy.store.port import LeaseStore, Listing, Notifies, limit_of_ms
from primacy.store.thread import StorePort, StoreThread
from primacy.store.url import open_store

__all__ = ["LeaseStore", "Listing", "Notifies", "StorePort", "StoreThread", "limit_of_ms", "open_store", "perform"]
