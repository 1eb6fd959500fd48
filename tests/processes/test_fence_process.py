"""A holder that was stopped, replaced and let go on writes before anything can tell it: every fence refuses it (U1).

Real processes (`tests/support/holder_process.py`), SIGSTOP and SIGCONT. The old body never asks whether it still leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest

from primacy.fence.file import Mark
from primacy.fence.http import TokenGate, WsgiTokenGate
from tests.contracts.test_fence import SQL, Database, written
from tests.support.holder_harness import WITHIN_S, Process, holders
from tests.support.holder_process import REST_S, now_ms

pytestmark = pytest.mark.beside(order=220)

Tokens = Callable[[], list[int]]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """The test says what it saw."""


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextlib.contextmanager
def wsgi(folder: Path) -> Iterator[tuple[str, Tokens]]:
    """The standard library's server behind the gate."""
    seen: list[int] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        seen.append(environ["primacy.token"])
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    server = Threaded(("127.0.0.1", 0), Quiet)
    server.set_app(WsgiTokenGate(app, mark=Mark(folder / "mark")))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", lambda: list(seen)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def asgi(folder: Path) -> Iterator[tuple[str, Tokens]]:
    """A real ASGI server behind the gate."""
    uvicorn = pytest.importorskip("uvicorn", reason="the group `examples` of pyproject.toml is not installed")
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["primacy.token"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(TokenGate(app, mark=Mark(folder / "mark")), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        end = time.monotonic() + WITHIN_S
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"127.0.0.1:{port}", lambda: list(seen)
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, str, Tokens]]:
    found = Database(kind, folder)
    try:
        yield found.resource, "" if kind == "sqlite" else found.url, lambda: written(found)
    finally:
        found.close()


def stop_at_rest(old: Process) -> None:
    """Between two writes: in the middle of one it would keep what it writes to locked, and nobody could follow it.

    It rests for some time after it said that it wrote. If it stood only after that, it may be in the next write.
    """
    while True:
        wrote_ms = old.hear("wrote")["at"]
        if now_ms() - wrote_ms < REST_S * 1_000 / 2:
            old.stop()
            if now_ms() - wrote_ms < REST_S * 1_000:
                return
            old.go_on()


def replace_a_stopped_holder(old: Process, start: Callable[[], Process]) -> tuple[int, int]:
    """The old one is stopped at work, the new one writes, the old one goes on. Both tokens."""
    old_token = old.hear("wrote")["token"]
    stop_at_rest(old)
    new = start()
    new_token = new.hear("wrote")["token"]
    assert new_token > old_token
    old.go_on()
    assert old.hear("refused")["token"] == old_token
    old.hear("out")
    new.hear("wrote")
    late = [line for line in old.words("wrote") if line["at"] > new.words("wrote")[0]["at"]]
    assert len(late) <= 1, "what was written before the stop may be said after it, and nothing else"
    new.end()
    return old_token, new_token


def test_U1_file_a_stopped_holder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with holders(tmp_path) as crowd:
        old, new = replace_a_stopped_holder(crowd.start("file", str(path)), lambda: crowd.start("file", str(path)))
    tokens = [int(line) for line in path.read_text().split()]
    assert tokens == sorted(tokens)
    assert set(tokens) == {old, new}


@pytest.mark.parametrize("server", [wsgi, asgi])
def test_U1_http_a_stopped_holder_is_refused(server: Any, tmp_path: Path) -> None:
    with server(tmp_path) as (address, seen), holders(tmp_path) as crowd:
        old, new = replace_a_stopped_holder(crowd.start("http", address), lambda: crowd.start("http", address))
        assert seen() == sorted(seen())
        assert set(seen()) == {old, new}


@pytest.mark.parametrize("kind", SQL)
def test_U1_sql_a_stopped_holder_is_refused(kind: str, tmp_path: Path) -> None:
    """On a server, the lease itself is in the same database."""
    with database(kind, tmp_path) as (resource, store, tokens), holders(tmp_path) as crowd:
        old, new = replace_a_stopped_holder(
            crowd.start(kind, resource, store=store), lambda: crowd.start(kind, resource, store=store)
        )
        assert set(tokens()) == {old, new}
