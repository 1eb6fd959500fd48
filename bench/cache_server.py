"""The servers that bench.cache measures, each in a process of its own. Ends with its standard input.

    python -m bench.cache_server JSON      the first line on standard output is "ready"

`kind` is `peer` (a cache peer; its source writes each key that it fetches to `log`), `asyncio`
(the same answers from the same code, behind zmq.asyncio) or `pong` (the sockets of a peer that send back what they
hear).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import zmq
import zmq.asyncio

from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.peer import Peer, Secured
from primacy.cache.security import PeerSeal, ServerSeal, new_boot
from primacy.cache.serving import Serving
from primacy.cache.sockets import PeerSockets, plain_frames
from primacy.cache.wire import LIMITS
from primacy.cache.wire_client import Options, options_frame
from primacy.cache.zap import Curve
from primacy.loop import QuickLoop
from primacy.node.clock import SystemClock

CLUSTER = "bench"
SECRET = b"a secret of the benchmark of 40 bytes ..."
CLIENT = "web"
KEY = b"report:2026-11:by-region"
OPTIONS = Options(10_000)
"""As `Client` sends them."""
TTL_MS = 3_600_000


def secured(security: str) -> Secured:
    if security == "secret":
        clients = ServerSeal(CLUSTER, [SECRET], SystemClock().wall_ms())
        return Secured(PeerSeal(CLUSTER, new_boot(), [SECRET]), clients)
    return Secured(curve=Curve(SECRET, CLUSTER, (CLIENT,))) if security == "curve" else Secured()


def peer_of(given: dict[str, Any]) -> Peer:
    takes_s: float = given.get("takes_s", 0.0)

    async def source(key: bytes) -> bytes:
        if given.get("log"):
            with open(given["log"], "ab", buffering=0) as log:
                log.write(key + b"\n")
        if takes_s:
            await asyncio.sleep(takes_s)
        return b"value of " + key

    return Peer(
        given["url"],
        given["api"],
        given.get("peers", ()),
        source if given.get("source") else None,
        LmdbStorage(given["folder"]) if given.get("folder") else None,
        ttl_ms=TTL_MS,
        secured=secured(given.get("security", "none")),
        on_overrun="alert",  # a machine that is too busy is to show in the figures, and not to end the run
    )


async def fill(peer: Peer, value_bytes: int) -> None:
    """The one entry, as a peer has it at hand once it was asked for."""
    while True:
        done = await peer.put(KEY, bytes(value_bytes), TTL_MS)
        if done.ok:
            break
    found = await peer.read(KEY)
    assert getattr(found, "value", None) == bytes(value_bytes), found


async def main(given: dict[str, Any]) -> None:
    if given["kind"] == "pong":
        await pong(given)
        return
    async with peer_of(given) as peer:
        if given.get("value_bytes"):
            await fill(peer, given["value_bytes"])
        task = asyncio.create_task(behind_asyncio(peer, given["behind"])) if given["kind"] == "asyncio" else None
        print("ready", flush=True)
        await ended()
        if task is not None:
            task.cancel()


async def ended() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


class Between:
    """What `Serving` needs of sockets: one message in, and the frames that go out."""

    def __init__(self) -> None:
        self.given: list[bytes] | None = None
        self.out: list[bytes] = []

    def from_clients(self, most: int) -> list[list[bytes]]:  # noqa: ARG002
        given, self.given = self.given, None
        return [] if given is None else [given]

    def send_frame(self, frame: bytes, flags: int) -> None:  # noqa: ARG002 -- as a socket's
        self.out.append(frame)

    def to_client(self, frames: list[bytes]) -> bool:
        self.out.extend(frames)
        return True


async def behind_asyncio(peer: Peer, api: str) -> None:
    """The peer's own code for clients, behind the sockets that `zmq.asyncio` gives."""
    between = Between()
    serving = Serving(
        peer.machine,
        peer.settings,
        between,  # type: ignore[arg-type]
        SystemClock(),
        peer.driver.tell,
        peer.driver.value,
    )
    serving._hot = peer.serving._hot
    serving._remember(options_frame(OPTIONS), OPTIONS)
    socket = zmq.asyncio.Context().socket(zmq.ROUTER)
    socket.bind(api)
    while True:
        between.given = await socket.recv_multipart()
        serving.turn()
        out, between.out = between.out, []
        assert out, "a request that was no hit"
        await socket.send_multipart(out)


async def pong(given: dict[str, Any]) -> None:
    sockets = PeerSockets(given["url"], LIMITS)
    sockets.open(given["url"], given["api"], [given["other"]])

    def turn() -> None:
        while (frames := sockets.from_peers()) is not None:
            sockets.to_peers([frames[1], frames[0], *frames[2:]])

    sockets.watch(asyncio.get_running_loop(), turn)
    print("ready", flush=True)
    await ended()
    await sockets.close()


if __name__ == "__main__":
    plain_frames()  # this, and the loop, as `primacy cache serve` does it
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
