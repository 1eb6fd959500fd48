"""A client whose peer dies again and again while thousands of its answers are unread. Ends with a line, unless the
library ends it.

python -m tests.support.cache_client_of_dying_peer ROUNDS
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from random import Random

import zmq

from primacy.cache.client_servers import Server, Servers
from primacy.cache.wire_client import DiscoverRequest, request_frames
from tests.support.ports import free_ports

ANSWERS = 900
READ_S = 0.02
LATEST_S = 5.0


class Dying:
    """A peer at one address: answers a request a thousand times over, and is gone."""

    def __init__(self, api: str) -> None:
        self._context, self._api = zmq.Context(), api

    def asked(self) -> tuple[zmq.Socket[bytes], bytes]:
        """Its socket, and who asked."""
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 5_000  # all that it said leaves
        while True:
            try:
                socket.bind(self._api)
                break
            except zmq.ZMQError:  # the one before is not quite gone
                pass
        return socket, socket.recv_multipart()[0]


async def main(rounds: int) -> None:
    (api,) = (f"tcp://127.0.0.1:{port}" for port in free_ports(1))
    heard = broken = 0

    def on_answer(server: Server, frames: list[bytes]) -> None:
        nonlocal heard, broken
        heard += 1
        broken += len(frames) != 5

    loop = asyncio.get_running_loop()
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context.get("exception")))
    servers = Servers(on_answer, 1_000_000, Random(1))
    servers.open(loop, [api])
    dying = Dying(api)
    frames = request_frames(DiscoverRequest(b"1", 1 << 50))
    for _ in range(rounds):
        asked = asyncio.create_task(asyncio.to_thread(dying.asked))
        while not asked.done():  # what went to the one before is lost
            servers.choose(frames, loop.time(), ())
            await asyncio.sleep(0.005)
        socket, identity = await asked
        for number in range(ANSWERS):
            socket.send_multipart([identity, b"%d" % number, b"=", b"value", b"\1", b"x" * 30])
        time.sleep(0.005)  # this loop reads nothing meanwhile
        threading.Thread(target=socket.close).start()
        await asyncio.sleep(READ_S)
    until_s = loop.time() + LATEST_S
    while heard < rounds * ANSWERS and loop.time() < until_s:
        await asyncio.sleep(0.02)
    await servers.close()
    print(f"{rounds} deaths, {heard} answers, {broken} of them not whole, {len(faults)} faults: {faults[:1]}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
