"""One real cache peer in a process of its own, with a source that writes down when it is called. Ends with its input.

python -m tests.support.cache_peer_process '{"url": ..., "api": ..., "peers": [[url, api], ...], "takes_s": 2.5, "log":
path}'

`kept` is the beginning of the name of the folder in which it keeps what it has; it has none without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, NoReturn
from urllib.parse import quote_from_bytes

from primacy.cache.http import CacheServer
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.peer import Peer
from primacy.node.clock import SystemClock


def note(log: str, *words: object) -> None:
    """One line, whole, whoever else writes."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, (" ".join(map(str, (time.monotonic(), os.getpid(), *words))) + "\n").encode())
    os.close(handle)


def note_own_end(log: str) -> None:
    """A peer whose call is not over in time ends itself by this one call. Nothing of it runs afterwards."""
    leave = os._exit

    def noted(code: int) -> NoReturn:
        note(log, "leave", "-")
        leave(code)

    os._exit = noted


async def served(stack: AsyncExitStack, peer: Peer, complaints: list[str]) -> int:
    """By HTTP as well, at any port."""
    server = CacheServer(peer, SystemClock(), "k" * 64, "127.0.0.1", peer.settings.key_bytes_max, complaints.append)
    listening = socket.create_server(("127.0.0.1", 0))
    await server.start(listening)
    stack.push_async_callback(server.close)
    port: int = listening.getsockname()[1]
    return port


async def main(given: dict[str, Any]) -> None:
    note_own_end(given["log"])

    async def source(key: bytes) -> bytes:
        note(given["log"], "begin", quote_from_bytes(key))
        try:
            await asyncio.sleep(given["takes_s"])
            if key.startswith(b"bad"):
                note(given["log"], "failed", quote_from_bytes(key))
                raise ValueError("the source has nothing of that name")
        except asyncio.CancelledError:
            note(given["log"], "cancelled", quote_from_bytes(key))
            raise
        note(given["log"], "end", quote_from_bytes(key))
        return b"value of " + key + b" by %d" % os.getpid()

    peer = Peer(
        given["url"],
        given["api"],
        given["peers"],
        given.get("source", source),
        LmdbStorage(given["kept"] + given["api"].rpartition(":")[2]) if "kept" in given else None,
        bind_url=given.get("bind_url"),
        bind_api=given.get("bind_api"),
        ttl_ms=given.get("ttl_ms", 60_000),
        mode=given.get("mode", "own"),
    )
    complaints: list[str] = []
    async with peer, AsyncExitStack() as stack:
        port = await served(stack, peer, complaints) if given.get("http") else 0
        print("ready", flush=True)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            if line.strip() == b"counts":
                dropped = {**peer.driver.dropped, **peer.serving.dropped}
                print(
                    json.dumps(
                        {
                            **peer.counts,
                            "dropped": dropped,
                            "http": port,
                            "complaints": complaints,
                            "events": peer.driver.events,
                            "machine": getattr(peer.machine, "counts", {}),
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
