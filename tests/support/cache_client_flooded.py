"""A client whose loop stands still while a peer sends it more than it can queue and then dies. It goes on with others.

The library's own heartbeats end a process whose full queue meets a connection that broke: they write to it although it
has failed, and an assertion of libzmq forbids that.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import zmq

from primacy.cache import client_servers
from primacy.cache.client import Client

ANSWERS = 15_000
BLOCKED_S = 3.0


def bound(context: zmq.Context[zmq.Socket[bytes]], api: str) -> zmq.Socket[bytes]:
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.sndhwm = 0
    router.bind(api)
    return router


def serve(api: str, ended: threading.Event) -> None:
    context = zmq.Context()
    router = bound(context, api)
    while not ended.is_set():
        if not router.poll(20):
            continue
        identity, *request = router.recv_multipart()
        if request[1] == b"?" and request[3] == b"flood":
            for _ in range(ANSWERS):
                router.send_multipart([identity, request[0]])
            time.sleep(0.05)
            router.close()  # it dies, and is started again
            time.sleep(0.2)
            router = bound(context, api)
        else:
            router.send_multipart([identity, request[0], b"=", b"v", b"\xff" * 6])
    router.close()
    context.term()


async def work(api: str) -> None:
    client_servers.ANSWERS_MAX = 1_000
    async with Client(api, timeout_ms=30_000) as cache:
        await cache.get("warm")
        flood = asyncio.create_task(cache.get("flood"))
        await asyncio.sleep(0.01)
        time.sleep(BLOCKED_S)
        flood.cancel()
        assert (await cache.get("after")).value == b"v"


def main(api: str) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=serve, args=(api, ended))
    thread.start()
    try:
        asyncio.run(work(api))
    finally:
        ended.set()
        thread.join()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
