"""The manager under random bytes and mutated requests: no fault, no growth, and the election goes on beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from pathlib import Path
from random import Random
from typing import NamedTuple

from primacy.agent.cluster import ManagedCluster
from primacy.membership.ghoti.storms import HELD_MAX
from primacy.membership.http_wire import Credentials
from tests.support.managers_in_one_loop import PASSWORD, USER, Nodes

SPAN_S = {"quick": 2.0, "proof": 60.0}.get(os.environ.get("PRIMACY_SIZE", ""), 10.0)
ASKED_LEAST = 30
GROWTH_KIB_MAX = 48 * 1_024
"""Of the whole process, tests included."""
GOOD = Credentials(USER, PASSWORD).header
PATHS = ("/join", "/remove", "/election", "/coordinator", "/heartbeat", "/members", "/ring", "/words", "/leader", "/x")
BODIES = (
    b'{"addr":"127.0.0.1:1","id":"q"}',
    b'{"id":"b"}',
    b'{"id":"b","kind":"baton","starter":"b","round":"1","best":"b","hops":"1"}',
    b'{"words":["AAAA"]}',
    b"[" * 3_000,
    b"null",
    b"",
)
HEADERS = (
    "node=b&boot=5&kin=primacy/main/bully/id&addr=127.0.0.1:1&list=00&n=1&epoch=99999999999999999999",
    "node=b&boot=5&kin=primacy/main/ring/id&stamp=7&of_addr=x&of_rank=.&word=%ff%fe",
    "node=%00&kin=&pruned=%2C%2C&handover=1&unknown=1",
    "=&=&&&" + "a=b&" * 40,
)


def request(chance: Random) -> bytes:
    body = chance.choice(BODIES)
    lines = [f"{chance.choice(('GET', 'POST', 'PUT', 'BREW'))} {chance.choice(PATHS)} HTTP/1.1", "Host: :2222"]
    if chance.random() < 0.7:
        lines.append(f"Authorization: {GOOD if chance.random() < 0.8 else 'Basic ////'}")
    if chance.random() < 0.6:
        lines.append(f"Primacy: {chance.choice(HEADERS)}")
    if chance.random() < 0.3:
        lines.append(chance.choice(("Transfer-Encoding: chunked", "Expect: 100-continue", "Connection: upgrade")))
    length = len(body) if chance.random() < 0.8 else chance.choice((0, 1, 10**6, 10**20))
    lines.append(f"Content-Length: {length}")
    found = bytearray("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    for _ in range(chance.choice((0, 0, 1, 5, 50))):
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found) if chance.random() < 0.8 else chance.randbytes(chance.randrange(1, 3_000))


async def pestered(port: int, chance: Random, until_s: float) -> int:
    loop, asked = asyncio.get_running_loop(), 0
    while loop.time() < until_s or asked < ASKED_LEAST:  # the latter on a machine that stalls
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            continue
        with contextlib.suppress(OSError, TimeoutError):
            for _ in range(chance.choice((1, 1, 4))):
                writer.write(request(chance))
                asked += 1
            async with asyncio.timeout(0.05):
                await reader.read(4_096)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return asked


class Size(NamedTuple):
    """What could grow, at one moment."""

    tasks: int
    connections: int
    kib: int


SIZES: list[Size] = []


def connections_of(node: ManagedCluster) -> int:
    """Those that are open; the server's own count forgets closed ones every two seconds."""
    runner = node.manager.server._runner
    assert runner is not None
    assert runner.server is not None
    return len(runner.server.connections)


async def measured(nodes: Nodes) -> None:
    SIZES.clear()
    while True:
        connections = sum(connections_of(node) for node in nodes.up.values())
        kib = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_024
        SIZES.append(Size(len(asyncio.all_tasks()), connections, kib))
        await asyncio.sleep(0.1)


def bounded(sizes: list[Size]) -> None:
    """Tellers of echoes are kept waiting, two managers' at the most; the first fifth of the time fills what is kept."""
    first = sizes[len(sizes) // 5]
    most = Size(*map(max, zip(*sizes, strict=True)))
    print(f"at first {first}, at most {most}, in the end {sizes[-1]}")
    assert most.tasks <= 2 * 2 * HELD_MAX + 100
    assert most.connections <= 2 * HELD_MAX + 200
    assert sizes[-1].kib - first.kib <= GROWTH_KIB_MAX


def test_random_bytes_and_mutated_requests_do_no_harm() -> None:
    async def whole() -> None:
        async with Nodes() as nodes:
            calm = {"profile": "wan"}
            await nodes.start("a", election=calm)
            await nodes.leads("a")
            await nodes.start("c", ["a"], election=calm)
            await nodes.leads("a")
            until_s = asyncio.get_running_loop().time() + SPAN_S
            measuring = asyncio.create_task(measured(nodes))
            guests = (pestered(nodes.port(name), Random(seed), until_s) for seed, name in enumerate("acac"))
            assert sum(await asyncio.gather(*guests)) >= 4 * ASKED_LEAST
            measuring.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await measuring
            bounded(SIZES)
            assert not [line for line in nodes.said if "fault" in line], nodes.said
            for node in nodes.up.values():
                assert len(node.manager.member_list.entries) <= 64
                assert node.manager.machine.storms._held <= 512
            strangers = [name for name in nodes.up["a"].manager.member_list.peers if name not in "ac"]
            for name in [*nodes.leaders()]:
                for stranger in strangers:
                    nodes.up[name].manager.remove(stranger)
            await nodes.until(nodes.agreed, "one leads, whatever was said")

    asyncio.run(whole())
