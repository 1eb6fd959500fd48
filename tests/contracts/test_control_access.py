"""The control API in one process: who may ask, and what is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable

import aiohttp
import aiohttp.web
import pytest

from primacy.control import KEY_HEADER, ORDER_HEADER, loopback
from primacy.control.loopback import BODY_BYTES_MAX
from primacy.election.inputs import Pause
from tests.support.canary import beside_a_canary
from tests.support.control_harness import (
    KEY,
    LIMIT_S,
    MAY,
    Play,
    Served,
    folder,
    serve,
)

__all__ = ["folder", "serve"]

# --- who may ask ------------------------------------------------------------------------------------------------------


def test_an_order_needs_key_and_header(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        wrong: list[dict[str, str]] = [
            {},
            {ORDER_HEADER: "1"},
            {KEY_HEADER: KEY},
            {ORDER_HEADER: "1", KEY_HEADER: ""},
            {ORDER_HEADER: "1", KEY_HEADER: KEY[:-1]},
            {ORDER_HEADER: "1", KEY_HEADER: "K" * 64},
            {ORDER_HEADER: "1", KEY_HEADER: "é" * 64},
            {ORDER_HEADER: "1", "Authorization": f"Bearer {KEY}"},
        ]
        for headers in wrong:
            status, said = await served.post("/v1/pause", headers=headers)
            assert status == 403, headers
            assert KEY not in json.dumps(said)
            assert "needs the" in said["error"]
        assert served.agent.told == []
        assert (await served.post("/v1/pause"))[0] == 200
        assert served.agent.told == [Pause()]

    serve(play)


def test_from_another_machine_even_reading_needs_the_key(
    serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What listens on all addresses. A certificate, if wanted, is asked for first."""
    monkeypatch.setattr(loopback, "is_loopback", lambda _: False)

    async def play(served: Served) -> None:
        served.server.is_open = True
        for path in ("/v1/state", "/v1/cluster", "/v1/config", "/v1/events", "/leader"):
            status, said = await served.get(path, headers={"Host": "billing.example"})
            assert (status, "even reading needs the control key" in said["error"]) == (403, True)
            assert (await served.get(path, headers={**MAY, "Host": "billing.example"}))[0] in (200, 503)
        assert (await served.post("/v1/pause", headers={ORDER_HEADER: "1"}))[0] == 403
        served.server.certified = True
        status, said = await served.get("/v1/state", headers=MAY)
        assert (status, "a certificate is needed" in said["error"]) == (403, True)
        assert served.agent.told == []

    serve(play)


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1", "::1%lo")],
        *[(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "", "::ffff:10.0.0.1", "localhost.x", "fe80::1%x")],
    ],
)
def test_which_addresses_are_this_machine(host: str, is_one: bool) -> None:
    assert loopback.is_loopback(host) is is_one


def test_only_loopback_names_lead_here(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1:7480", "", "[fe80::1]:80", "localhost.evil"):
            status, said = await served.get("/v1/state", headers={"Host": host})
            assert status == 403, host
            assert "loopback" in said["error"]
            assert (await served.post("/v1/pause", headers={**MAY, "Host": host}))[0] == 403
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1", f"127.0.0.1:{served.port}", "[::1]:7480", "[::1]"):
            assert (await served.get("/v1/state", headers={"Host": host}))[0] == 200, host
        assert served.agent.told == []

    serve(play)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_bodies_are_bounded_and_are_objects(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for body in (b"x" * (BODY_BYTES_MAX + 1), b"[" * (BODY_BYTES_MAX + 1)):
            async with served.http.post(served.url + "/v1/pause", data=body, headers=MAY) as answer:
                assert answer.status == 413
                assert "at most 16384 bytes" in (await answer.json())["error"]
        for body in (b"[]", b"1", b"null", b"{", b"\xff", b'"x"', b"[" * BODY_BYTES_MAX):
            async with served.http.post(served.url + "/v1/pause", data=body, headers=MAY) as answer:
                assert answer.status == 400, body
                assert "no JSON object" in (await answer.json())["error"]
        assert served.agent.told == []

    serve(play)


@beside_a_canary(500, passes_if_late=True)
def test_a_body_that_does_not_come_is_not_waited_for(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "READ_S", 1.0)  # the head has so long, too

    async def play(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\n{KEY_HEADER}: {KEY}\r\n{ORDER_HEADER}: 1\r\n"
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert b"408" in await reader.readline()
        writer.close()

    serve(play)


def test_a_connection_that_asks_nothing_is_closed(
    serve: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "READ_S", 0.1)

    async def play(served: Served) -> None:
        for said in (b"", b"GET /v1/state HTTP/1.1\r\nHost: local"):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said)
            with contextlib.suppress(ConnectionResetError):  # if what it said came after that
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
            writer.close()

    serve(play)


def test_what_is_no_http_harms_nobody(serve: Callable[[Play], None]) -> None:
    async def play(served: Served) -> None:
        for said in (b"\0" * 500 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"y" * 20_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said + b"\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()
        assert (await served.get("/healthz"))[0] == 200

    serve(play)


def test_connections_are_bounded_for_a_node_needs_descriptors_itself() -> None:
    """Whoever is on this machine may connect: that must not keep the node from its disk, its guards and the others."""

    class Server(loopback.LoopbackServer):
        def routes(self, router: aiohttp.web.UrlDispatcher) -> None:
            router.add_get("/healthz", self.healthz)

    async def play() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = Server("", "127.0.0.1", print)
        await server.start(listening)
        most = loopback.CONNECTIONS_MAX
        first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most)]
        more = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in more:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
        for _, writer in (*first, *more):
            writer.close()
        async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    assert (await session.get(f"http://127.0.0.1:{port}/healthz")).status == 200
                    break
        await server.close()

    asyncio.run(play())
