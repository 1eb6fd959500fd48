"""A cache client in a process that runs out of descriptors while its connection breaks. For test_cache_lacking.py.

python -m tests.support.cache_client_without_descriptors API

It says what it has done, a line each, and goes on when it is told so, by a line.
"""

from __future__ import annotations

import asyncio
import resource
import sys

from primacy.cache.client import Client
from primacy.cache.peer import Peer
from primacy.errors import CannotHere, NotReached

NONE_LEFT = 3
"""Standard input, output and error have these numbers: there is none for anything new, and what is open stays so."""
PATIENT_MS = 50_000


def say(text: str) -> None:
    print(text, flush=True)


async def told() -> None:
    line = await asyncio.to_thread(sys.stdin.readline)
    assert line, "the test is gone"


async def refused(api: str) -> None:
    """Whatever needs a new socket says so in one sentence."""
    client, peer = Client(api), Peer(api, api + "0")
    for name, begin in (("client", client.__aenter__), ("peer", peer.start)):
        said = ""
        try:
            await begin()
        except CannotHere as error:
            said = str(error)
        assert "Too many open files" in said, f"a {name} without a socket: {said}"
    await peer.stop()


async def main(api: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wrong: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(str(context)))
    async with Client(api, timeout_ms=PATIENT_MS) as cache:
        assert (await cache.get("k")).value == b"value of k"
        (server,) = cache._servers.all
        say("connected")
        await told()
        resource.setrlimit(resource.RLIMIT_NOFILE, (NONE_LEFT, hard))
        say("lacking")
        while not wrong and not server.lacking:
            await asyncio.sleep(0.01)
        said = ""
        try:
            await cache.get("other", timeout_ms=300)
        except NotReached as error:
            said = str(error)
        assert "no peer could be reached" in said, said
        assert cache.apis == (api,)
        cache._replace((api, api.replace("127.0.0.1", "127.0.0.2")))  # as discovery does
        assert cache.apis == (api,), "nothing changes where there is no socket to be had"
        await refused(api)
        say("refused")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await cache.get("other")).value == b"value of other"
    assert not wrong, wrong
    say("answered")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
