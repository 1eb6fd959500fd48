"""A process without a descriptor left: its client of the cache passes over the peer that it cannot connect to, and asks
it again once it can."""

from __future__ import annotations

import asyncio
import sys

from primacy.cache.peer import Peer
from tests.processes.test_cache_peer_inside import addresses, fetch, run


def test_a_client_without_descriptors_asks_again_once_it_has_some() -> None:
    async def work() -> None:
        url, api = addresses(2)
        arguments = [sys.executable, "-m", "tests.support.cache_client_without_descriptors", api]
        pipe = asyncio.subprocess.PIPE
        peer = Peer(url, api, source=fetch)
        await peer.start()
        child = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe)
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            assert await child.stdout.readline() == b"connected\n"
            child.stdin.write(b"\n")
            assert await child.stdout.readline() == b"lacking\n"
            await peer.stop()
            assert await child.stdout.readline() == b"refused\n"
            async with Peer(url, api, source=fetch):
                assert await child.stdout.readline() == b"answered\n"
                assert await child.wait() == 0
        finally:
            await peer.stop()
            if child.returncode is None:
                child.kill()
                await child.wait()

    run(work)
