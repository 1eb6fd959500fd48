"""Numbers and keys that make no sense: each way into the cache refuses them, with the value and what would do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from primacy.cache.access import WITHIN_MS_MAX
from primacy.cache.askers import cached
from primacy.cache.client import Client
from primacy.cache.client_claims import ClientClaim
from primacy.cache.control import _key, _within
from primacy.cache.dogpile_backend import PrimacyBackend
from primacy.cache.peer import Peer
from primacy.cli.cache import peer_settings
from primacy.cli.call import Call
from primacy.cli.main import run as command
from primacy.errors import NotReached, UsageError
from tests.support.ports import free_ports

API = "tcp://127.0.0.1:9"
NO_TIMES = (0, -1, WITHIN_MS_MAX + 1, 1 << 70, 1.5, float("nan"), "5", True, b"5", [])
LONE = "\ud800"
"""Half of a character: what a broken decoder leaves. UTF-8 cannot write it."""


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 90))


def named(name: str, value: object) -> str:
    """The beginning of the sentence, for `match`."""
    return re.escape(f"{name} = {str(value)[:40]}:")


# --- the client -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NO_TIMES)
def test_a_call_that_waits_for_no_time_is_refused_and_never_means_the_default(value: Any) -> None:
    async def work() -> None:
        async with Client(API) as cache:
            for call in (
                cache.get("k", timeout_ms=value),
                cache.get_many(["k"], timeout_ms=value),
                cache.get_many([], timeout_ms=value),
                cache.put("k", b"v", timeout_ms=value),
                cache.invalidate("k", timeout_ms=value),
                cache.refresh("k", timeout_ms=value),
                cache.status(timeout_ms=value),
            ):
                with pytest.raises(UsageError, match=named("timeout_ms", value)):
                    await call
            assert cache.counts["calls"] == 0

    run(work)


@pytest.mark.parametrize("value", NO_TIMES)
def test_a_client_of_no_time_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=named("timeout_ms", value)):
        Client(API, timeout_ms=value)


@pytest.mark.parametrize("value", [value for value in NO_TIMES if value != 0])
def test_copies_of_no_time_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=named("local_ms", value)):
        Client(API, local_ms=value)


@pytest.mark.parametrize("value", [value for value in NO_TIMES if value not in (0, -1)])
def test_discovery_after_no_time_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=named("discovery_ms", value)):
        Client(API, discovery_ms=value)


def test_the_least_and_the_most_that_make_sense_are_taken() -> None:
    Client(API, timeout_ms=1, local_ms=0, discovery_ms=0)
    Client(API, timeout_ms=WITHIN_MS_MAX, local_ms=WITHIN_MS_MAX, discovery_ms=WITHIN_MS_MAX)
    Client(API, discovery_ms=-1)

    async def work() -> None:
        async with Client(API) as cache:
            with pytest.raises(NotReached, match="within 1 ms"):
                await cache.get("k", timeout_ms=1, after=0)

    run(work)


@pytest.mark.parametrize("value", [-1, 1 << 53, 1.5, "5", True, b"5"])
def test_an_instant_that_is_none_is_refused(value: Any) -> None:
    async def work() -> None:
        async with Client(API) as cache:
            with pytest.raises(UsageError, match=named("after", value)):
                await cache.get("k", after=value)
            with pytest.raises(UsageError, match=named("after_ms", value)):
                await cache.obtain("k", after_ms=value)

    run(work)


@pytest.mark.parametrize("value", [value for value in NO_TIMES if value != 0])
def test_a_claim_after_no_time_is_refused(value: Any) -> None:
    async def work() -> None:
        async with Client(API) as cache:
            with pytest.raises(UsageError, match=named("within_ms", value)):
                await cache.obtain("k", within_ms=value)

    run(work)


@pytest.mark.parametrize(("ttl_ms", "value"), [(1, b"v"), (99, b"v"), (-1, b"v"), ("5", b"v"), (1_000, "text")])
def test_a_claim_delivers_values_that_live(ttl_ms: Any, value: Any) -> None:
    async def work() -> None:
        said: list[Any] = []
        claim = ClientClaim(b"k", (1, "tcp://a:1", 1), said.append, lambda: None)
        with pytest.raises(UsageError, match=r"ttl_ms = |a value is bytes"):
            await claim.deliver(value, ttl_ms)
        claim.end()
        assert all(report.state == "alive" for report in said)

    run(work)


@pytest.mark.parametrize("most", [-1, 10_001, 1.5, "5", True])
def test_a_number_of_keys_that_is_none_is_refused(most: Any) -> None:
    async def work() -> None:
        async with Client(API) as cache:
            with pytest.raises(UsageError, match="most = "):
                await cache.status(most=most)

    run(work)


@pytest.mark.parametrize("apis", ["", "10.0.0.1:6001", [5], [b"tcp://127.0.0.1:9"], [""], []])
def test_what_is_no_peer_is_refused_before_anything_is_asked(apis: Any) -> None:
    with pytest.raises(UsageError, match="peer"):
        Client(apis)


def test_a_server_list_without_addresses_is_counted_under_one_name() -> None:
    """What a peer says is no name of a counter: a client that runs for long would keep every such text."""

    async def work() -> None:
        async with Client(API) as cache:
            for number in range(50):
                cache._replace((f"tcp://127.0.0.1:{number + 1}", f"nothing:{number}"))
            assert cache.dropped == {"servers: no address": 50}
            assert cache.apis == (API,), "whom it knew is still asked"
            with pytest.raises(NotReached):
                await cache.get("k", timeout_ms=20)

    run(work)


@pytest.mark.parametrize("key", ["", b"", LONE, 5, None, bytearray(b"k")])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    async def work() -> None:
        async with Client(API) as cache:
            for call in (cache.get(key), cache.put(key, b"v"), cache.invalidate(key), cache.refresh(key)):
                with pytest.raises(UsageError, match="key"):
                    await call

    run(work)


# --- the decorator, dogpile -------------------------------------------------------------------------------------------


def plain(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ttl_ms", value) for value in (0, 99, -1, 1 << 70, 1.5, "60", True, None)),
        *((name, value) for name in ("stale_ms", "local_ms", "within_ms") for value in (-1, 1 << 70, 1.5, "60", True)),
    ],
)
def test_the_decorator_refuses_times_that_are_none(name: str, value: Any) -> None:
    options = {"ttl_ms": 1_000, name: value}
    with pytest.raises(UsageError, match=named(f"cached: {name}", value)):
        cached(plain, apis=[API], **options)


@pytest.mark.parametrize("apis", [5, [5], [None]])
def test_the_decorator_refuses_peers_that_are_none(apis: Any) -> None:
    with pytest.raises(UsageError, match="apis = "):
        cached(plain, ttl_ms=1_000, apis=apis)


def test_a_key_of_a_function_that_is_no_text_is_refused() -> None:
    face = cached(plain, ttl_ms=1_000, apis=[API], key=lambda number: LONE, name="f")
    with pytest.raises(UsageError, match="UTF-8"):
        face(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ttl_ms", value) for value in (0, 99, -1, 1 << 70, 1.5, "60", True)),
        *(("timeout_ms", value) for value in NO_TIMES),
    ],
)
def test_dogpile_refuses_times_that_are_none_when_it_is_configured(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=named(name, value)):
        PrimacyBackend({"apis": [API], name: value})


def test_dogpile_refuses_peers_and_prefixes_that_are_none() -> None:
    with pytest.raises(UsageError, match="apis = "):
        PrimacyBackend({"apis": 5})
    with pytest.raises(UsageError, match="key is text or bytes"):
        PrimacyBackend({"apis": [API], "prefix": 5})


# --- a peer, from inside and by its control API -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, WITHIN_MS_MAX + 1, 1.5, "5", True])
def test_a_peer_refuses_times_that_are_none(value: Any) -> None:
    async def work() -> None:
        url, api = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        async with Peer(url, api) as peer:
            for call in (
                peer.read(b"k", within_ms=value),
                peer.invalidate(b"k", within_ms=value),
                peer.refresh(b"k", within_ms=value),
                peer.put(b"k", b"v", within_ms=value),
                peer.reload([], within_ms=value),
            ):
                with pytest.raises(UsageError, match=named("within_ms", value)):
                    await call

    run(work)


def test_a_peer_refuses_what_it_is_not_made_of() -> None:
    for options, name in (({"ttl_ms": 99}, "ttl_ms"), ({"ttl_ms": "60"}, "ttl_ms"), ({"stale_ms": -1}, "stale_ms")):
        with pytest.raises(UsageError, match=f"{name} = "):
            Peer("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, 600_001, 1.5, "5", True, None])
def test_a_change_by_the_control_api_refuses_times_that_are_none(value: Any) -> None:
    with pytest.raises(UsageError, match=named("within_ms", value)):
        _within({"within_ms": value})


@pytest.mark.parametrize("value", ["", 5, None, LONE])
def test_a_change_by_the_control_api_refuses_keys_that_are_none(value: Any) -> None:
    with pytest.raises(UsageError, match="key"):
        _key({"key": value})


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["get", "k", "--within-ms", "0"],
        ["get", "k", "--within-ms", "-5"],
        ["get", "k", "--within-ms", "soon"],
        ["get", "k", "--within-ms", "3600001"],
        ["get", ""],
        ["get", "k", "--api", "nowhere"],
        ["invalidate", "k", "--within-ms", "0"],
        ["refresh", "k", "--within-ms", "0"],
        ["status", "--within-ms", "0"],
        ["keys", "--limit", "0"],
        ["keys", "--limit", "10001"],
        ["bench", "--requests", "0"],
        ["bench", "--outstanding", "0"],
        ["serve", "--ttl-ms", "99"],
        ["serve", "--ttl-ms", "99999999999999"],
        ["serve", "--ttl-ms", "soon"],
        ["serve", "--http", "nowhere"],
        ["serve", "--http", "0.0.0.0:8080"],
        ["serve", "--source", "ftp://nothing"],
        ["serve", "--peer", "tcp://127.0.0.1:6002"],
        ["key", ""],
    ],
    ids=" ".join,
)
def test_commands_refuse_what_makes_no_sense(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRIMACY_CACHE", raising=False)
    monkeypatch.setenv("PRIMACY_STATE_DIR", str(tmp_path / "state"))
    assert command(["cache", *words]) == 2
    assert capsys.readouterr().err.startswith("primacy: ")
    assert not (tmp_path / "state").exists()


OPTIONS: dict[str, Any] = {"source": None, "ttl_ms": None, "http": None, "memory": False, "peers": ()}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"http": "0.0.0.0:8080"}, "control.tls.cert is not given"),
        ({"http": "127.0.0.1"}, "--http 127.0.0.1"),
        ({"ttl_ms": 1_000}, "must be below cache.ttl_ms = 1000"),
        ({"source": "cmd:x {key}"}, "only http: has answers with an age"),
    ],
)
def test_options_beside_a_file_obey_its_rules(options: dict[str, Any], says: str, tmp_path: Any) -> None:
    file = tmp_path / "primacy.yaml"
    file.write_text('cache: {source: "http://127.0.0.1:1/{key}", refresh_ahead_ms: 2000, max_age: true}\n')
    call = Call(config=str(file))
    assert peer_settings(call, None, None, None, OPTIONS).cache.refresh_ahead_ms == 2_000
    with pytest.raises(UsageError, match=says.replace(".", "[.]")):
        peer_settings(call, None, None, None, {**OPTIONS, **options})


def test_options_beside_a_file_without_a_cache_make_one(tmp_path: Any) -> None:
    file = tmp_path / "primacy.yaml"
    file.write_text("cluster: {name: rates}\n")
    said = {**OPTIONS, "source": "cmd:./fetch {key}", "ttl_ms": 500, "memory": True}
    for call in (Call(config=str(file)), Call()):
        cache = peer_settings(call, None, None, None, said).cache
        assert (cache.source, cache.ttl_ms, cache.storage.type) == ("cmd:./fetch {key}", 500, "memory")
