"""A whole peer with each kind of source and with its storage on disk: real sockets, real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from primacy.cache import Client, Peer
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.shown import document
from primacy.cache.source import SourceSpec
from primacy.cache.storage import MemoryStorage
from primacy.errors import UsageError
from tests.support import cache_functions
from tests.support.ports import free_ports
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.beside(order=510)


def addresses() -> tuple[str, str]:
    return tuple(f"tcp://127.0.0.1:{port}" for port in free_ports(2))  # type: ignore[return-value]


@pytest.mark.parametrize(
    "source",
    [
        "cmd:/bin/echo -n <{key}>",
        "call:tests.support.cache_functions:echo",
        "call:tests.support.cache_functions:aecho",
        cache_functions.echo,
        cache_functions.aecho,
        [SourceSpec("cmd:/bin/echo -n never {key}", b"other"), SourceSpec(cache_functions.aecho)],
    ],
    ids=["command", "named function", "named async function", "function", "async function", "several"],
)
def test_a_peer_fetches_by_any_source(source: object) -> None:
    async def main() -> None:
        url, api = addresses()
        async with Peer(url, api, source=source) as peer, Client(api, timeout_ms=20_000) as cache:  # type: ignore[arg-type]
            found = await cache.get("a b", fresh=True)
            assert found is not None
            assert found.value == b"<a b>"
            assert peer.counts is not None

    asyncio.run(main())


def test_a_source_that_cannot_be_used_is_told_when_the_peer_starts() -> None:
    async def main() -> None:
        url, api = addresses()
        with pytest.raises(UsageError, match="there is no program"):
            await Peer(url, api, source="cmd:./no-such-program {key}").start()
        with pytest.raises(UsageError, match="cannot be loaded"):
            await Peer(url, api, source="call:no.such:function").start()
        async with Peer(url, api, source=cache_functions.aecho):
            pass  # the addresses are free again

    asyncio.run(main())


def test_a_restarted_peer_has_its_entries_from_the_disk(tmp_path: Path) -> None:
    calls: list[bytes] = []

    async def source(key: bytes) -> bytes:
        calls.append(key)
        return b"value of " + key

    async def main() -> None:
        url, api = addresses()
        for _ in range(3):
            storage = LmdbStorage(str(tmp_path / "cache"))
            async with Peer(url, api, source=source, storage=storage), Client(api, timeout_ms=20_000) as cache:
                for key in ("a", "b" * 700):
                    found = await cache.get(key, fresh=True)
                    assert found is not None
                    assert found.value == b"value of " + key.encode()

    asyncio.run(main())
    assert sorted(calls) == [b"a", b"b" * 700], "each once, however often it is started"


def test_a_full_disk_is_gone_on_from_memory(tmp_path: Path) -> None:
    """A limit on the size of files stands for it; the peer is a process of its own."""
    script = """
import asyncio, logging, resource, signal, sys
from primacy.cache import Client, Peer
from primacy.cache.lmdb_storage import LmdbStorage
from tests.processes.test_cache_peer_source import addresses
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
logging.basicConfig()

async def source(key):
    return key * 20_000

async def main():
    url, api = addresses()
    storage = LmdbStorage(sys.argv[1])
    async with Peer(url, api, source=source, storage=storage) as peer, Client(api, timeout_ms=20_000) as cache:
        assert (await cache.get("first")).value == b"first" * 20_000
        while storage.read(b"first") is None:  # it is given before it is on the disk
            await asyncio.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        for n in range(20):
            assert (await cache.get(f"key {n}")).value == b"key %d" % n * 20_000
        while not peer.counts["write_failures"]:
            await asyncio.sleep(0.01)
        for n in range(20):
            assert (await cache.get(f"key {n}", fetch=False)).value == b"key %d" % n * 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for n in range(1_000):  # what is on its way to the disk may still be refused
            assert (await cache.get(f"last {n}")).value == b"last %d" % n * 20_000
            await asyncio.sleep(0.05)
            if not peer.driver.writer.failure:
                break
        assert (await cache.get("last")).value == b"last" * 20_000
    again = LmdbStorage(sys.argv[1])
    assert again.read(b"first")[1] == b"first" * 20_000
    assert again.read(b"last")[1] == b"last" * 20_000
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache")],
        check=False,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "the cache goes on from memory" in done.stderr
    assert "the cache's storage takes entries again" in done.stderr


def test_a_peer_without_storage_or_source_serves_what_it_is_given() -> None:
    async def main() -> None:
        url, api = addresses()
        async with Peer(url, api, storage=MemoryStorage()), Client(api, timeout_ms=5_000) as cache:
            assert (await cache.put("a", b"x", ttl_ms=60_000)).ok
            found = await cache.get("a")
            assert found is not None
            assert found.value == b"x"

    asyncio.run(main())


def test_the_status_says_how_calls_are_bound_and_why_the_storage_refuses() -> None:
    async def main() -> None:
        url, api = addresses()
        async with Peer(url, api, source="cmd:/bin/echo -n {key}") as peer, Client(api, timeout_ms=20_000) as cache:
            await cache.get("a")
            await wait_until_async(lambda: not peer.calls.running, "the end of the call, behind its value")
            found = document(peer, {}, 0, 0)
            assert found["calls"] == {"running": 0, "containment": peer.calls.containment}
            assert found["calls"]["containment"] in ("strong", "weak")
            assert found["storage"] == {"durable": False, "failure": ""}

    asyncio.run(main())
