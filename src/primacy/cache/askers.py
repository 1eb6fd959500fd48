"""Clients for cached functions: one per process for threads, one per event loop for coroutines.

Made when a function is first called, never at import, so that a server that forks its workers (Celery, gunicorn) has
one in each: a client does not survive a fork, and is not asked to. They are closed at the end of the process;
`close` ends those of a loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from primacy.cache.cached import LOCAL_MS, WITHIN_MS, Asker, decorated
from primacy.cache.client import TIMEOUT_MS, Client
from primacy.cache.security import ClientSeal, new_boot, read_key
from primacy.errors import UsageError
from primacy.loop_thread import LoopThread

APIS_VARIABLE = "PRIMACY_CACHE"
"""Where peers answer clients, separated by commas, for functions that name none."""
KEY_VARIABLE = "PRIMACY_CACHE_KEY"
"""The file of the client's key, where the peers want one."""


class ClientAskers:
    """All cached functions of one process that name the same peers share this."""

    def __init__(self, apis: tuple[str, ...], key_file: str, local_ms: int, timeout_ms: int) -> None:
        self._apis, self._key_file, self._local_ms, self._timeout_ms = apis, key_file, local_ms, timeout_ms
        self._lock = threading.Lock()
        self._pid = 0
        self._thread: LoopThread | None = None
        self._client: Client | None = None
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()

    def _made(self) -> Client:
        apis = self._apis or tuple(filter(None, os.environ.get(APIS_VARIABLE, "").split(",")))
        if not apis:
            raise UsageError(
                f"cached: no peers are named; say cached(apis=[...]) or set {APIS_VARIABLE}=tcp://HOST:PORT,..."
            )
        options: dict[str, Any] = {"local_ms": max(1, self._local_ms), "timeout_ms": self._timeout_ms}
        key_file = self._key_file or os.environ.get(KEY_VARIABLE, "")
        if key_file:
            cluster, key = read_key(key_file)
            options["seal"] = ClientSeal(cluster, key, new_boot())
        return Client(apis, **options)

    def for_threads(self) -> tuple[Client, LoopThread]:
        """The client of this process, and the thread that it lives in."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    client = self._made()
                    thread = LoopThread("primacy-cached")
                    thread.wait(client.__aenter__())
                    self._client, self._thread, self._pid = client, thread, os.getpid()
                    atexit.register(self._close, client, thread, os.getpid())
        assert self._thread is not None
        return self._client, self._thread

    @staticmethod
    def _close(client: Client, thread: LoopThread, pid: int) -> None:
        if os.getpid() == pid:
            thread.wait(client.close())
            thread.close()

    def for_loop(self) -> Asker:
        loop = asyncio.get_running_loop()
        client = self._of_loops.get(loop)
        if client is None:
            client = self._of_loops[loop] = self._made()
            client.open()
        return client

    async def close(self) -> None:
        """The client of the running loop."""
        client = self._of_loops.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


_shared: dict[tuple[tuple[str, ...], str, int, int], ClientAskers] = {}
"""By what they are made from. One per combination that the program's decorators name: few, and for good."""


def askers(
    apis: Iterable[str] = (), key_file: str = "", local_ms: int = LOCAL_MS, timeout_ms: int = TIMEOUT_MS
) -> ClientAskers:
    """The one for these peers."""
    names = (apis,) if isinstance(apis, str) else tuple(apis) if isinstance(apis, Iterable) else (apis,)
    if not all(isinstance(api, str) for api in names):
        raise UsageError(f"apis = {apis!r}: addresses of peers, such as ['tcp://10.0.0.1:6001']")
    made_from = (names, key_file, local_ms, timeout_ms)
    return _shared.setdefault(made_from, ClientAskers(*made_from))


async def close() -> None:
    """Close what cached coroutine functions use in the running loop. To be awaited before the loop ends."""
    for shared in tuple(_shared.values()):
        await shared.close()


def cached(
    function: Callable[..., Any] | None = None,
    *,
    ttl_ms: int,
    stale_ms: int = 0,
    apis: Iterable[str] = (),
    key_file: str = "",
    name: str = "",
    key: Callable[..., str | bytes] | None = None,
    serializer: str = "json",
    returns: Any = None,
    within_ms: int = WITHIN_MS,
    local_ms: int = LOCAL_MS,
) -> Any:
    """Compute each result once for a fleet of processes, and give it to all of them until it is `ttl_ms` old.

    - `stale_ms`: a result that expired less than this ago is given at once, and computed anew behind it.
    - `apis`: where the peers answer clients; without them PRIMACY_CACHE says it. `key_file`: the client's key.
    - `name`: what keys begin with; default: module and name of the function. Equal in all processes.
    - `key`: a function of the same arguments that returns text or bytes, where arguments are no plain values.
    - `serializer`: `json`, `msgpack`, `text` or `bytes`; `returns`: the type that results are read back as.
    - `within_ms`: how long a caller waits for another's result before it computes its own.
    - `local_ms`: how long a copy in this process is used without asking a peer; 0: never.
    """
    shared = askers(apis, key_file, local_ms)
    options: Mapping[str, Any] = {
        "ttl_ms": ttl_ms,
        "stale_ms": stale_ms,
        "local_ms": local_ms,
        "within_ms": within_ms,
        "name": name,
        "key": key,
        "serialized_by": serializer,
        "returns": returns,
    }
    if function is not None:
        return decorated(function, shared, **options)
    return lambda decorated_later: decorated(decorated_later, shared, **options)
