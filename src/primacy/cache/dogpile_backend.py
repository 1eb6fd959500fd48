"""A backend for dogpile.cache: `region.configure("primacy.cache", arguments={"apis": ["tcp://10.0.0.1:6001"]})`.

dogpile keeps its own expiry in the value and decides when to regenerate; the cache keeps the bytes for `ttl_ms`, on
every peer, and its mutex is a claim on a key beside: one process of the fleet regenerates. The mutex of a process that
dies is free again after a second and a half. Where no peer answers, reads are misses and writes are dropped, with a
line in the log: the application goes on without the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex

from primacy.cache.access import WITHIN_MS_MAX, Found, as_key, check_ms, named_key
from primacy.cache.askers import askers
from primacy.cache.client import TIMEOUT_MS, Client
from primacy.cache.client_claims import ClientClaim
from primacy.errors import NotReached, PrimacyError
from primacy.loop_thread import LoopThread
from primacy.settings.schema_cache import TTL_MS_LEAST, TTL_MS_MOST

TTL_MS = 86_400_000
TRY_MS = 300
"""For `acquire(False)`: a free mutex is had much sooner, and a taken one is not waited for."""
WAIT_MS = 60_000
"""One ask of a waiting `acquire`; then it asks again."""
FAR_MS = 1 << 52
"""After every expiry: an entry that somebody stored under a mutex's key is never taken for the mutex."""
MUTEX = b"mutex:"

log = logging.getLogger("primacy.cache")


class PrimacyBackend(BytesBackend):
    """Arguments: `apis` (or the variable PRIMACY_CACHE), `key_file`, `prefix` of all keys, `ttl_ms` (a day),
    `timeout_ms` of one call (10 s)."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        timeout_ms = arguments.get("timeout_ms", TIMEOUT_MS)
        self._ttl_ms = arguments.get("ttl_ms", TTL_MS)
        check_ms("timeout_ms", timeout_ms, 1, WITHIN_MS_MAX)
        check_ms("ttl_ms", self._ttl_ms, TTL_MS_LEAST, TTL_MS_MOST)
        self._prefix = as_key(arguments.get("prefix", ""), empty=True)
        self._askers = askers(
            arguments.get("apis", ()), arguments.get("key_file", ""), local_ms=0, timeout_ms=timeout_ms
        )

    def _key(self, key: str) -> bytes:
        return self._prefix + as_key(key)

    def _client(self) -> tuple[Client, LoopThread]:
        return self._askers.for_threads()

    def get_serialized(self, key: str) -> Any:
        client, thread = self._client()
        try:
            found = thread.wait(client.get(self._key(key), fresh=True, fetch=False))
        except NotReached as error:
            log.warning("a read of %s is a miss: %s", key[:100], error)
            return NO_VALUE
        return NO_VALUE if found is None or found.stale else found.value

    def get_serialized_multi(self, keys: Iterable[str]) -> Any:
        return [self.get_serialized(key) for key in keys]

    def set_serialized(self, key: str, value: bytes) -> None:
        client, thread = self._client()
        try:
            done = thread.wait(client.put(self._key(key), value, self._ttl_ms))
        except NotReached as error:
            log.warning("a write of %s is dropped: %s", key[:100], error)
            return
        if not done.ok:
            log.warning("a write of %s is dropped: %s", key[:100], done.reason)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        for key, value in mapping.items():
            self.set_serialized(key, value)

    def delete(self, key: str) -> None:
        """Raises `NotReached` where it cannot be done: who deletes must know that the old value may still be given."""
        client, thread = self._client()
        done = thread.wait(client.invalidate(self._key(key)))
        if not done.ok:
            raise NotReached(f"{key[:100]} was not deleted: {done.reason}")

    def delete_multi(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def get_mutex(self, key: str) -> CacheMutex:
        return PrimacyMutex(self, MUTEX + self._key(key))


class PrimacyMutex(CacheMutex):
    """A claim on a key that never gets a value."""

    def __init__(self, backend: PrimacyBackend, key: bytes) -> None:
        self._backend, self._key = backend, key
        self._claim: ClientClaim | None = None

    def acquire(self, wait: bool = True) -> bool:
        claim = self._obtained(WAIT_MS if wait else TRY_MS)
        while claim is None and wait:
            claim = self._obtained(WAIT_MS)
        if claim is not None:
            self._claim = claim
        return claim is not None

    def _obtained(self, within_ms: int) -> ClientClaim | None:
        client, thread = self._backend._client()
        try:
            got = thread.wait(client.obtain(self._key, after_ms=FAR_MS, within_ms=within_ms))
        except NotReached:
            return None
        if isinstance(got, ClientClaim):
            return got
        if isinstance(got, Found):
            raise PrimacyError(
                f"{named_key(self._key)} holds a value; keys that begin with {MUTEX.decode()} are mutexes"
            )
        return None

    def release(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self._backend._client()[1].wait(claim.release())

    def locked(self) -> bool:
        """By anybody. Tried and let go at once: there is no other way to ask all peers."""
        claim = self._obtained(TRY_MS)
        if claim is not None:
            self._backend._client()[1].wait(claim.release())
        return claim is None
