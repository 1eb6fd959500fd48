"""Sources of the cache that are URLs, against a real server: keys, answers, sizes, times to live, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from primacy.cache.model import Failure, Fetched
from primacy.cache.source import SourceSpec
from primacy.cache.source_http import ttl_of, url_for
from tests.support.source_harness import LIMIT_S, Harness, reason, with_harness

pytestmark = pytest.mark.beside(order=500)

CANARY_HEARTBEAT_MS = 200
"""Holds and limits here are of some hundred milliseconds: that a call ends as it was told to, and not for one of them,
is asked of a machine that lets it run."""


async def serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> tuple[web.AppRunner, str]:
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    return runner, f"http://127.0.0.1:{port}"


def with_server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    work: Callable[[Harness], Awaitable[None]],
    path: str = "/x/{key}?k={key}",
    **more: Any,
) -> Harness:
    async def main() -> Harness:
        runner, url = await serve(handler)
        value_bytes_max = more.pop("value_bytes_max", 16 << 20)
        harness = Harness(SourceSpec(url + path, **more), value_bytes_max=value_bytes_max)
        await harness.calls.open()
        try:
            await work(harness)
        finally:
            await harness.calls.close()
            await runner.cleanup()
        return harness

    return asyncio.run(main())


def test_every_byte_of_a_key_is_encoded_in_a_url() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(body=b"value")

    async def work(harness: Harness) -> None:
        for key in [b"plain", b"a/../b?x=1&y#z", b"\0\xff %41", "grün".encode(), b"..."]:
            assert await harness.get(key) == Fetched(b"value")
        assert "a step in the path" in reason(await harness.get(b".."))
        assert "a step in the path" in reason(await harness.get(b"."))

    with_server(handler, work)
    assert seen == [
        f"/x/{text}?k={text}" for text in ("plain", "a%2F..%2Fb%3Fx%3D1%26y%23z", "%00%FF%20%2541", "gr%C3%BCn", "...")
    ]
    assert url_for("http://h/x?k={key}", b"..") == "http://h/x?k=.."
    assert url_for("http://h/a{key}", b"..") == "http://h/a.."


def test_what_an_answer_means() -> None:
    async def handler(request: web.Request) -> web.Response:
        code = int(request.query["k"])
        headers = {"Location": "/x/200?k=200"} if code == 302 else {}
        return web.Response(status=code, body=b"v" if code not in (204, 304) else None, headers=headers)

    async def work(harness: Harness) -> None:
        assert await harness.get(b"200") == Fetched(b"v")
        assert await harness.get(b"203") == Fetched(b"v")
        assert await harness.get(b"204") == Fetched(b"")
        assert await harness.get(b"302") == Fetched(b"v")
        for code in (b"404", b"410"):
            assert await harness.get(code) == Failure(
                f"the source has no such entry (HTTP {code.decode()})", missing=True
            )
        for code in (b"500", b"503", b"401", b"429"):
            found = await harness.get(code)
            assert f"HTTP {code.decode()}" in reason(found)
            assert isinstance(found, Failure)
            assert not found.missing

    with_server(handler, work)


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(10_000):
            await answer.write(bytes(100_000))
            sent += 100_000
        return answer

    async def work(harness: Harness) -> None:
        assert "cache.value_bytes_max is 1,000,000" in reason(await harness.get(b"a"))

    with_server(handler, work, value_bytes_max=1_000_000)
    assert sent < 100_000_000


def test_a_cancelled_url_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return web.Response()

    async def work(harness: Harness) -> None:
        over_at = harness.start(b"a", 2_000, 6_000)
        found = await harness.end()
        assert found.result == Failure("the hold was not proved anew in time")
        assert harness.clock.now_ms() <= over_at
        await asyncio.wait_for(gone.wait(), LIMIT_S)

    with_server(handler, work)


def test_a_server_that_is_not_there_is_a_failure() -> None:
    async def work(harness: Harness) -> None:
        assert "the source cannot be reached" in reason(await harness.get(b"a"))

    with_harness(work, SourceSpec("http://127.0.0.1:9/{key}"))


@pytest.mark.parametrize(
    ("control", "age", "ttl_ms"),
    [
        ("max-age=60", "", 60_000),
        ("public, Max-Age = 60", "", 60_000),
        ('max-age="60"', "20", 40_000),
        ("max-age=60, s-maxage=5", "", 5_000),
        ("max-age=60", "90", 100),
        ("max-age=0", "", 100),
        ("no-store, max-age=60", "", 100),
        ("private", "", 100),
        ("", "", None),
        ("max-age=soon", "", None),
        ("max-age=-1", "", None),
        ("max-age=60", "young", 60_000),
        ("max-age=99999999999999999999", "", 9_999_999_999_000),
    ],
)
def test_the_time_to_live_of_an_answer(control: str, age: str, ttl_ms: int | None) -> None:
    assert ttl_of(control, age) == ttl_ms


@pytest.mark.parametrize("max_age", [True, False])
def test_the_time_to_live_counts_where_it_is_wanted(max_age: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"v", headers={"Cache-Control": "max-age=7"})

    async def work(harness: Harness) -> None:
        assert await harness.get(b"a") == Fetched(b"v", 7_000 if max_age else None)

    with_server(handler, work, max_age=max_age)
