"""The cache client for threads and scripts: the same client, on a loop in a thread of its own.

with primacy.blocking.CacheClient(["tcp://10.0.0.1:6001"]) as cache:
    print(cache.get("rates/today").value)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from primacy.cache.access import Absent, Done, Found
from primacy.cache.client import Client
from primacy.cache.client_claims import ClientClaim
from primacy.errors import UsageError
from primacy.loop_thread import LoopThread


class CacheClient:
    """The arguments are those of `primacy.cache.Client`. Any thread may use it, inside of its `with` block."""

    def __init__(self, apis: str | Iterable[str], **options: Any) -> None:
        self._client: Client | None = Client(apis, **options)
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        if self._client is None or self._thread is not None:
            raise UsageError("this client was entered before; make a new one for a new block")
        self._thread = LoopThread("primacy-cache")
        try:
            self._thread.wait(self._client.__aenter__())
        except BaseException:
            self._thread.close()
            self._client = None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        client, thread = self._open
        self._client = None
        thread.wait(client.close())
        thread.close()

    def get(self, key: str | bytes, **options: Any) -> Found | None:
        """As `Client.get`."""
        client, thread = self._open
        found: Found | None = thread.wait(client.get(key, **options))
        return found

    def get_many(self, keys: Iterable[str | bytes], **options: Any) -> dict[str | bytes, Found]:
        """As `Client.get_many`."""
        client, thread = self._open
        return thread.wait(client.get_many(keys, **options))

    def put(self, key: str | bytes, value: bytes, ttl_ms: int = 0, **options: Any) -> Done:
        """As `Client.put`."""
        client, thread = self._open
        return thread.wait(client.put(key, value, ttl_ms, **options))

    def invalidate(self, key: str | bytes, **options: Any) -> Done:
        """As `Client.invalidate`."""
        client, thread = self._open
        return thread.wait(client.invalidate(key, **options))

    def refresh(self, key: str | bytes, **options: Any) -> Done:
        """As `Client.refresh`."""
        client, thread = self._open
        return thread.wait(client.refresh(key, **options))

    def claim(self, key: str | bytes, *, within_ms: int) -> Found | Absent | ThreadClaim:
        """An entry, or the claim to compute it, as `Client.obtain`."""
        client, thread = self._open
        got = thread.wait(client.obtain(key, after_ms=1 << 52, within_ms=within_ms))
        return ThreadClaim(got, thread) if isinstance(got, ClientClaim) else got

    @property
    def _open(self) -> tuple[Client, LoopThread]:
        if self._client is None or self._thread is None:
            raise UsageError("a cache client is used in its own `with` block")
        return self._client, self._thread


class ThreadClaim:
    """A claim for threads. It is kept alive until one of these is called."""

    def __init__(self, claim: ClientClaim, thread: LoopThread) -> None:
        self._claim, self._thread = claim, thread

    def deliver(self, value: bytes, ttl_ms: int) -> bool:
        return self._thread.wait(self._claim.deliver(value, ttl_ms))

    def give_up(self, reason: str) -> None:
        self._thread.wait(self._claim.give_up(reason))

    def release(self) -> None:
        self._thread.wait(self._claim.release())
