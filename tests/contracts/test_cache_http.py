"""The cache by HTTP: what answers say, who may delete, and what nonsense gets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from yarl import URL

from primacy.cache.access import Absent, Done, Found, Why
from primacy.cache.http import WITHIN_MS_MAX, CacheServer
from primacy.cache.peer import Peer
from primacy.cache.source import SourceSpec
from primacy.control import KEY_HEADER, ORDER_HEADER
from primacy.node.clock import HandClock, SystemClock
from tests.support.ports import free_ports

KEY = "k" * 64
MAY = {KEY_HEADER: KEY, ORDER_HEADER: "1"}
NOW = 1_800_000_000_000
FRESH = Found(b"value", NOW + 60_000, 5_500, "tcp://a:1", stale=False)


class Entries:
    """A peer's port: gives what it is told to give, and remembers what it was asked."""

    def __init__(self, found: Found | Absent = FRESH, done: Done = Done(True)) -> None:  # noqa: B008
        self.found, self.done = found, done
        self.asked: list[Any] = []

    async def read(self, key: bytes, *, after_ms: int = 0, within_ms: int = 0, fetch: bool = True) -> Found | Absent:
        self.asked.append((key, after_ms, within_ms, fetch))
        return self.found

    async def invalidate(self, key: bytes, *, prefix: bool = False, within_ms: int = 0) -> Done:
        self.asked.append((key, prefix, within_ms))
        return self.done


@contextlib.asynccontextmanager
async def served(entries: Entries) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    complaints: list[str] = []
    server = CacheServer(entries, HandClock(0, NOW), KEY, "127.0.0.1", 4_096, complaints.append)
    listening = socket.create_server(("127.0.0.1", 0))
    await server.start(listening)
    at = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            yield session, at
    finally:
        await server.close()
    assert complaints == []


def asked(method: str, path: str, entries: Entries, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
    async def run() -> tuple[int, Mapping[str, str], bytes]:
        async with (
            served(entries) as (session, at),
            session.request(method, URL(at + path, encoded=True), **options) as answer,
        ):
            return answer.status, answer.headers, await answer.read()

    return asyncio.run(run())


def test_a_hit_says_its_age_and_for_how_long_it_may_be_kept() -> None:
    status, headers, body = asked("GET", "/cache/a", Entries())
    assert (status, body, headers["X-Cache"]) == (200, b"value", "HIT")
    assert headers["Age"] == "5"
    assert headers["Cache-Control"] == "max-age=65"  # less its age: 60 s, as the peer says
    assert headers["X-Cache-Fetcher"] == "tcp://a:1"
    assert headers["Content-Type"] == "application/octet-stream"


def test_what_was_fetched_for_this_request_is_a_miss() -> None:
    assert asked("GET", "/cache/a", Entries(FRESH._replace(waited=True)))[1]["X-Cache"] == "MISS"


def test_stale_is_never_shown_as_fresh() -> None:
    for expire_ms in (NOW - 1, NOW + 60_000):  # expired; out of touch
        status, headers, _ = asked("GET", "/cache/a", Entries(FRESH._replace(stale=True, expire_ms=expire_ms)))
        assert (status, headers["X-Cache"]) == (200, "STALE")
        assert headers["Cache-Control"] == "max-age=0, must-revalidate"


def test_an_entity_tag_saves_the_body() -> None:
    tag = asked("GET", "/cache/a", Entries())[1]["ETag"]
    for header in (tag, f'"x", W/{tag}', "*"):
        status, headers, body = asked("GET", "/cache/a", Entries(), headers={"If-None-Match": header})
        assert (status, body, headers["ETag"], headers["X-Cache"]) == (304, b"", tag, "HIT")
    other = asked("GET", "/cache/a", Entries(FRESH._replace(value=b"w")), headers={"If-None-Match": tag})
    assert other[0] == 200


def test_head_has_no_body() -> None:
    status, headers, body = asked("HEAD", "/cache/a", Entries())
    assert (status, body, headers["Content-Length"]) == (200, b"", "5")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a", b"a"),
        ("a/b//c", b"a/b//c"),
        ("%00%ff", b"\x00\xff"),
        ("a%2Fb", b"a/b"),
        ("a%3Fb?fetch=1", b"a?b"),
        ("../x", b"../x"),
        ("%C3%A9", "é".encode()),
        ("a+b%20c", b"a+b c"),
    ],
)
def test_every_key_can_be_asked_for(path: str, key: bytes) -> None:
    entries = Entries()
    assert asked("GET", "/cache/" + path, entries)[0] == 200
    assert entries.asked[0][0] == key


def test_how_to_ask() -> None:
    entries = Entries()
    asked("GET", "/cache/a?fresh=1&within_ms=700&fetch=0", entries)
    assert entries.asked == [(b"a", NOW, 700, False)]


@pytest.mark.parametrize(("why", "status"), [(Why.MISS, 404), (Why.SOURCE, 502), (Why.ELSEWHERE, 503), (Why.LATE, 504)])
def test_no_entry_says_why(why: Why, status: int) -> None:
    found, headers, body = asked("GET", "/cache/a", Entries(Absent(why, "the source said 500")))
    assert found == status
    assert headers["Cache-Control"] == "no-store"
    assert b"the source said 500" in body


@pytest.mark.parametrize(
    "path",
    ["/cache/", "/cache/?fetch=1", "/cache/a?fetch=maybe", f"/cache/a?within_ms={WITHIN_MS_MAX + 1}",
     "/cache/a?within_ms=-1", "/cache/a?within_ms=x", "/cache/a?within_ms=", "/cache/a?within_ms=1e3",
     "/cache/a?within_ms=0x10", "/cache/a?within_ms=%D9%A3", "/cache/a?within_ms=99999999999999999999",
     "/cache/a?within_ms=1&within_ms=2", "/cache/a?fetch=1&fetch=0", "/cache/a?fetch=", "/cache/" + "k" * 4_097,
     "/cache/%zz", "/cache/a%", "/cache/a%4", "/cache/%%41", "/cache/%4g?fetch=1", "/cache/%u0041"],
)  # fmt: skip
def test_nonsense_is_refused_with_a_sentence(path: str) -> None:
    entries = Entries()
    status, _, body = asked("GET", path, entries)
    assert (status, entries.asked) == (400, [])
    assert b'"error"' in body


def test_delete_needs_the_key() -> None:
    entries = Entries()
    assert asked("DELETE", "/cache/a", entries)[0] == 403
    assert asked("DELETE", "/cache/a", entries, headers={ORDER_HEADER: "1", KEY_HEADER: "x"})[0] == 403
    assert entries.asked == []
    assert asked("DELETE", "/cache/a?within_ms=100", entries, headers=MAY)[0] == 200
    assert asked("DELETE", "/cache/?prefix=1", entries, headers=MAY)[0] == 200
    assert asked("DELETE", "/cache/", entries, headers=MAY)[0] == 400
    assert entries.asked == [(b"a", False, 100), (b"", True, 5_000)]


def test_delete_names_who_was_not_told_and_a_minority_refuses() -> None:
    status, _, body = asked("DELETE", "/cache/a", Entries(done=Done(True, "", ("tcp://b:1",))), headers=MAY)
    assert status == 200
    assert b"tcp://b:1" in body
    status, _, body = asked("DELETE", "/cache/a", Entries(done=Done(False, "1 of 3 peers answers")), headers=MAY)
    assert (status, b"1 of 3 peers answers" in body) == (503, True)


def test_a_page_of_another_site_reads_nothing() -> None:
    entries = Entries()
    assert asked("GET", "/cache/a", entries, headers={"Host": "evil.example"})[0] == 403
    assert entries.asked == []


def test_other_paths_and_methods() -> None:
    assert asked("GET", "/", Entries())[0] == 404
    assert asked("GET", "/cache", Entries())[0] == 404
    assert asked("GET", "/healthz", Entries())[0] == 200


@pytest.mark.parametrize("headers", [MAY, {}], ids=["with the key", "without"])
@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_is_told_which_there_are(method: str, headers: dict[str, str]) -> None:
    entries = Entries()
    status, told, body = asked(method, "/cache/a", entries, headers=headers)
    assert (status, told["Allow"], entries.asked) == (405, "DELETE, GET, HEAD", [])
    assert method.encode() in body
    assert asked(method, "/healthz", entries, headers=headers)[1]["Allow"] == "GET, HEAD"
    assert asked(method, "/nothing", entries, headers=headers)[0] == 404


def test_another_method_of_another_site_or_name_learns_nothing() -> None:
    assert asked("PUT", "/cache/a", Entries(), headers={"Host": "evil.example"})[0] == 403


def test_the_longest_key_may_be_percent_encoded_whole() -> None:
    entries = Entries()
    assert asked("GET", "/cache/" + "%C3" * 4_096, entries)[0] == 200
    assert entries.asked[0][0] == b"\xc3" * 4_096
    for count in (4_097, 8_190, 9_000, 40_000):  # above what a line may have at all
        assert asked("GET", "/cache/" + "k" * count, Entries())[0] == 400


@pytest.mark.parametrize("header", ["W/*", '"x", *', '*, "x"', "", '"', "x", '"x", "*"', "W/", '""'])
def test_what_is_no_tag_of_this_entry_saves_nothing(header: str) -> None:
    assert asked("GET", "/cache/a", Entries(), headers={"If-None-Match": header})[0] == 200


def test_tags_may_stand_in_several_lines_and_have_commas() -> None:
    tag = asked("GET", "/cache/a", Entries())[1]["ETag"]
    for lines in (['"x"', tag], [f'"a, b", {tag}'], [f'W/"x",W/{tag} , "y"'], [" * "]):
        headers = [("If-None-Match", line) for line in lines]
        assert asked("GET", "/cache/a", Entries(), headers=headers)[0] == 304


@pytest.mark.parametrize(("why", "status"), [(Why.MISS, 404), (Why.SOURCE, 502), (Why.ELSEWHERE, 503), (Why.LATE, 504)])
def test_head_of_a_miss_says_what_get_says_without_its_body(why: Why, status: int) -> None:
    absent = Absent(why, "not here")
    got, head = asked("GET", "/cache/a", Entries(absent)), asked("HEAD", "/cache/a", Entries(absent))
    assert (head[0], head[2]) == (status, b"")
    for name in ("X-Cache", "Cache-Control", "Content-Type", "Content-Length"):
        assert head[1][name] == got[1][name]
    # a tag says nothing of what is not there
    for header in ("*", '"x"'):
        assert asked("GET", "/cache/a", Entries(absent), headers={"If-None-Match": header})[0] == status


def test_delete_says_what_is_wrong_with_the_key() -> None:
    entries = Entries()
    without = asked("DELETE", "/cache/a", entries, headers={ORDER_HEADER: "1"})
    wrong = asked("DELETE", "/cache/a", entries, headers={ORDER_HEADER: "1", KEY_HEADER: "x" * 64})
    assert (without[0], wrong[0], entries.asked) == (403, 403, [])
    assert b"needs the control key in" in without[2]
    assert b"this is another" in wrong[2]


def test_a_key_that_no_source_serves_and_nobody_has_is_not_found() -> None:
    """By a real peer: nothing failed, there is no such entry."""

    async def fetch(key: bytes) -> bytes:
        return b"value of " + key

    async def run() -> None:
        url, api = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        clock = SystemClock()
        async with Peer(url, api, source=[SourceSpec(fetch, b"rate:")]) as peer:
            server = CacheServer(peer, clock, KEY, "127.0.0.1", 4_096, pytest.fail)
            listening = socket.create_server(("127.0.0.1", 0))
            await server.start(listening)
            at = f"http://127.0.0.1:{listening.getsockname()[1]}/cache/"
            try:
                async with aiohttp.ClientSession() as session:
                    for method in ("GET", "HEAD"):
                        async with session.request(method, at + "other") as answer:
                            assert (answer.status, answer.headers["X-Cache"]) == (404, "MISS")
                    async with session.get(at + "rate:EUR") as answer:
                        assert (answer.status, await answer.read()) == (200, b"value of rate:EUR")
            finally:
                await server.close()

    asyncio.run(asyncio.wait_for(run(), 90))
