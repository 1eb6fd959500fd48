"""What a client or an operator does wrong is told: times to live, sizes, secrets and clocks; and what is not said."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import primacy.cache
from primacy import settings
from primacy.agent.cache_serve import GRAVE, QUIET, Lines
from primacy.cache.client import Client
from primacy.cache.configured import machine_settings
from primacy.cache.model import CacheSettings, SourceSettings
from primacy.cache.peer import Peer, Secured
from primacy.cache.security import OLD_MS, ClientSeal, Opened, PeerSeal, ServerSeal, new_boot
from primacy.cache.shown import document
from primacy.cache.zap import client_key
from primacy.cli.cache import PeerAnswer, peers_text
from primacy.errors import CannotHere, SourceFailed, Unsure, UsageError
from primacy.node.clock import SystemClock
from primacy.node.log import Level, Log
from tests.support.canary import beside_a_canary
from tests.support.ports import free_ports

SECRET, OTHER = b"s" * 32, b"o" * 32
NOW = 1_800_000_000_000


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 90))


def addresses(count: int) -> list[str]:
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


def left_ms(expire_ms: int) -> float:
    return expire_ms - time.time() * 1_000


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_put_without_a_time_lasts_as_long_as_the_peers_say() -> None:
    async def work() -> None:
        url, api = addresses(2)
        made = CacheSettings(sources=(SourceSettings(b"s:", ttl_ms=200_000),), ttl_ms=60_000)
        async with Peer(url, api, settings=made) as peer, Client(api) as cache:
            assert (await cache.put("a", b"v")).ok
            assert (await cache.put("s:a", b"v")).ok
            assert (await peer.put(b"b", b"v")).ok
            for key, most_ms in (("a", 60_000), ("s:a", 200_000), ("b", 60_000)):
                found = await cache.get(key, fetch=False)
                assert found is not None
                assert not found.stale
                assert most_ms - 30_000 < left_ms(found.expire_ms) <= most_ms, key

    run(work)


def test_the_time_of_the_file_holds_for_keys_without_a_source() -> None:
    cache = settings.of_mapping({"cache": {"ttl_ms": 5_000}}).cache
    assert machine_settings(cache).ttl_of(b"k") == 5_000


@pytest.mark.parametrize("ttl_ms", [-1, 1, 99, 1 << 70, 1.5, "60", True])
def test_what_is_no_time_to_live_is_refused_at_once(ttl_ms: Any) -> None:
    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api) as peer, Client(api) as cache:
            for put in (cache.put("k", b"v", ttl_ms), peer.put(b"k", b"v", ttl_ms)):
                with pytest.raises(UsageError, match="ttl_ms = "):
                    await put

    run(work)


def test_a_time_that_peers_would_not_understand_is_refused() -> None:
    async def work() -> None:
        async with Client(addresses(1)) as cache:
            for timeout_ms in (1 << 60, -5):
                with pytest.raises(UsageError, match="timeout_ms = "):
                    await cache.get("k", timeout_ms=timeout_ms)

    run(work)


# --- sizes ------------------------------------------------------------------------------------------------------------


@beside_a_canary(500, passes_if_late=True)
def test_who_asks_with_too_long_a_key_is_told_at_once() -> None:
    async def work() -> None:
        url, api = addresses(2)
        async with Peer(url, api, settings=CacheSettings(key_bytes_max=100, value_bytes_max=1_000)), Client(api) as one:
            began_s = time.monotonic()
            with pytest.raises(SourceFailed, match="the key has 101 bytes; here key_bytes_max = 100"):
                await one.get(b"k" * 101)
            for work in (one.put(b"k" * 101, b"v", 1_000), one.refresh(b"k" * 101), one.invalidate(b"k" * 101)):
                done = await work
                assert (done.ok, done.reason) == (False, "the key has 101 bytes; here key_bytes_max = 100")
            done = await one.put(b"k", b"v" * 1_001, 1_000)
            assert (done.ok, done.reason) == (False, "the value is too long; here value_bytes_max = 1000")
            assert time.monotonic() - began_s < 4, "each would wait for 5 s"

    run(work)


# --- secrets and clocks -----------------------------------------------------------------------------------------------


def test_a_request_from_the_future_is_not_kept_for_a_later_start() -> None:
    key = client_key(SECRET, "c", "web")
    made = ClientSeal("c", key, 7).sealed([b"1"], NOW + OLD_MS + 1)
    assert ServerSeal("c", (SECRET,), NOW).opened([b"1"], made, NOW) == "early-seal"
    near = ClientSeal("c", key, 7).sealed([b"1"], NOW + OLD_MS)
    assert isinstance(ServerSeal("c", (SECRET,), NOW).opened([b"1"], near, NOW), Opened)


def test_a_peer_with_another_secret_is_named_in_log_and_status(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        urls = addresses(4)
        listed = [(urls[0], urls[1]), (urls[2], urls[3])]
        wall_ms = int(time.time() * 1_000)

        def made(number: int, secret: bytes) -> Peer:
            secured = Secured(PeerSeal("c", new_boot(), (secret,)), ServerSeal("c", (secret,), wall_ms))
            return Peer(*listed[number], listed, secured=secured)

        seal = ClientSeal("c", client_key(OTHER, "c", "web"), new_boot())
        async with made(0, SECRET) as peer, made(1, OTHER), Client(urls[1], seal=seal, timeout_ms=600) as cache:
            until_s = time.monotonic() + 60
            while not (peer.driver.dropped["seal: bad-seal"] and peer.serving.dropped["seal: bad-seal"]):
                assert time.monotonic() < until_s
                with pytest.raises(Exception, match="no answer"):
                    await cache.get("k")
            said = document(peer, {"node": "a"}, 0, 0)
            assert said["dropped"]["seal: bad-seal"] >= 2
            assert "bad-seal. Does everybody have this secret?" in peers_text([PeerAnswer(urls[1], said, "")])
        told = [record.getMessage() for record in caplog.records]
        named = [text for text in told if f"messages of peer {urls[2]} are dropped (bad-seal): it has another" in text]
        assert len(named) == 1, "once, however many messages"
        assert len([text for text in told if text.startswith("requests of a client are dropped (seal: bad-seal)")]) == 1

    with caplog.at_level(logging.WARNING, "primacy"):
        run(work)


@beside_a_canary(200, passes_if_late=True)
def test_a_change_that_a_minority_refuses_says_why() -> None:
    async def work() -> None:
        urls = addresses(6)
        listed = [(urls[0], urls[1]), (urls[2], urls[3]), (urls[4], urls[5])]
        async with Peer(*listed[0], listed), Client([api for _, api in listed], timeout_ms=1_500) as cache:
            with pytest.raises(Unsure, match="this peer sees no majority of the peers"):
                await cache.invalidate("k")

    run(work)


# --- a full disk, and what is said ------------------------------------------------------------------------------------


def test_a_start_without_room_names_the_folder(tmp_path: Path) -> None:
    url, api = addresses(2)
    words = (
        f"exec {sys.executable} -m primacy.cli.main cache serve --url {url} --api {api} --state-dir {tmp_path}/state"
    )
    told = subprocess.run(
        ["/bin/sh", "-c", "ulimit -f 0; " + words], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == CannotHere.exit_code, told.stderr
    assert f"the state folder {tmp_path}/state/primacy/cache/self cannot be written: " in told.stderr
    assert "make room on that disk, or name another folder with --state-dir" in told.stderr


def test_what_the_parts_say_has_the_form_of_the_log() -> None:
    reads, writes = os.pipe()
    lines = Lines(Log(SystemClock(), Level.INFO, "json", writes))
    logger = logging.Logger("parts")
    logger.addHandler(lines)
    logger.warning("messages of peer %s are dropped", "x")
    logger.critical("a defect", exc_info=ValueError("why"))
    os.close(writes)
    with os.fdopen(reads) as file:
        said = [json.loads(line) for line in file]
    assert [(one["level"], one["text"]) for one in said] == [
        ("warn", "messages of peer x are dropped"),
        ("error", "a defect"),
        ("error", "ValueError: why"),
    ]


# --- events -----------------------------------------------------------------------------------------------------------


def recorded() -> set[str]:
    """Every name of an event that the cache's code notes."""
    found = set()
    for path in Path(primacy.cache.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in ("_record", "Record"):
                    found.add(node.args[0].value)
    return found  # type: ignore[return-value]


def test_events_that_are_warnings_or_quiet_are_such_as_happen() -> None:
    assert recorded() >= GRAVE | QUIET
    assert {"clock-off", "old-peer", "floor-not-stored"} <= GRAVE
