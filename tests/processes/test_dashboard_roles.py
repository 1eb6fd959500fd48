"""Viewers and operators, a trusted proxy, the audit trail and the strip for a wall: the dashboard's server."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

import pytest

from primacy.dashboard.access import TrustedProxy
from tests.processes.test_dashboard_server import ORDER, Stream, ask, is_seen, session
from tests.support.dashboard_feed import KEY, Feed, Served, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=412)

HERE = (ipaddress.ip_network("127.0.0.1/32"),)
ELSEWHERE = (ipaddress.ip_network("10.0.0.5/32"),)
PROXY = TrustedProxy(HERE, "X-Forwarded-Email", operators=("ann@x",))
PAUSE = {"do": "pause", "node": "b"}


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(list("abc")).start()
    yield one
    one.close()


@pytest.fixture
def board(feed: Feed) -> Iterator[Served]:
    with served(feed, proxy=PROXY, hosts=("board.example",)) as one:
        path = "/dashboard/node?node=b"
        wait_until(lambda: ask(one, "GET", path, headers=by("bob@x")).status == 200, "the cluster")
        yield one


def by(user: str, **more: str) -> dict[str, str]:
    return {**ORDER, "X-Forwarded-Email": user, **more}


def me(board: Served, headers: dict[str, str]) -> Any:
    return ask(board, "GET", "/dashboard/me", headers=headers).json()


def test_the_proxy_names_a_viewer_and_an_operator(feed: Feed, board: Served) -> None:
    assert (me(board, by("ann@x"))["role"], me(board, by("bob@x"))["role"]) == ("operator", "viewer")
    assert me(board, by("bob@x"))["user"] == "bob@x"
    refused = ask(board, "POST", "/dashboard/order", PAUSE, by("bob@x"))
    assert (refused.status, feed.orders) == (403, [])
    assert refused.json()["error"].startswith("bob@x is a viewer here")
    assert ask(board, "POST", "/dashboard/order", PAUSE, by("ann@x")).status == 200
    assert feed.orders == [("/v1/pause", {"node": "b"})]
    assert feed.asked_by == ["ann@x on the dashboard"]


def test_through_the_proxy_nobody_is_named_and_nobody_reads(board: Served) -> None:
    """On loopback, too: whoever comes through it may be anywhere."""
    for headers in (dict(ORDER), by(""), by("x" * 200)):
        assert me(board, headers)["role"] == ""
        assert ask(board, "GET", "/dashboard/stream", headers=headers).status == 401
        assert ask(board, "GET", "/dashboard/audit", headers=headers).status == 401
        assert ask(board, "POST", "/dashboard/order", PAUSE, headers).status == 403


def test_a_header_from_another_address_is_not_believed(feed: Feed) -> None:
    """Off by default, and of the listed addresses only: here everybody of this machine looks, and no more."""
    for proxy in (TrustedProxy(), PROXY._replace(networks=ELSEWHERE)):
        with served(feed, proxy=proxy) as board:
            assert (me(board, by("ann@x"))["role"], me(board, by("ann@x"))["user"]) == ("viewer", "")
            assert ask(board, "POST", "/dashboard/order", PAUSE, by("ann@x")).status == 403
    assert feed.orders == []


def test_behind_a_proxy_with_tls_an_order_comes_from_its_page_and_no_other_site(feed: Feed, board: Served) -> None:
    good = by("ann@x", Host="board.example", Origin="https://board.example")
    assert ask(board, "POST", "/dashboard/order", PAUSE, good).status == 200
    for bad in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert ask(board, "POST", "/dashboard/order", PAUSE, {**good, **bad}).status == 403, bad
    del good["X-Primacy"]
    assert ask(board, "POST", "/dashboard/order", PAUSE, good).status == 403
    assert len(feed.orders) == 1


def test_the_trail_has_what_the_nodes_and_the_page_were_asked(feed: Feed, board: Served) -> None:
    ask(board, "POST", "/dashboard/order", PAUSE, by("bob@x"))
    ask(board, "POST", "/dashboard/order", PAUSE, by("ann@x"))
    ask(board, "POST", "/dashboard/order", PAUSE, session_of(board, "bob@x"))
    rows = ask(board, "GET", "/dashboard/audit", headers=by("bob@x")).json()["requests"]
    assert sorted((row["who"], row["asked"], row["outcome"], row["node"]) for row in rows) == [
        ("ann@x on the dashboard", "pause (node b)", "done", "a"),
        ("bob@x", "pause (node b)", "refused", ""),
        ("bob@x", "sign in with the control key", "done", ""),
        ("bob@x, with the control key on the dashboard", "pause (node b)", "done", "a"),
    ]
    assert [row["at_unix_ms"] for row in rows] == sorted((row["at_unix_ms"] for row in rows), reverse=True)


def session_of(board: Served, user: str) -> dict[str, str]:
    answer = ask(board, "POST", "/dashboard/login", {"key": KEY}, by(user))
    assert answer.status == 200
    return {**by(user), "Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def test_a_node_that_does_not_tell_its_trail_is_named(feed: Feed, board: Served) -> None:
    feed.stop()
    said = ask(board, "GET", "/dashboard/audit", headers=by("bob@x")).json()
    assert said["missed"] == ["a"]
    feed.start()


def test_what_a_lab_is_asked_is_in_the_trail_too() -> None:
    feed = Feed(list("abc"), lab=True).start()
    try:
        with served(feed) as board:
            stream = Stream(board)
            stream.until(is_seen)
            stream.close()
            assert ask(board, "POST", "/dashboard/order", {"do": "heal"}, ORDER).status == 200
            feed.refuse = "not now"
            assert ask(board, "POST", "/dashboard/order", {"do": "kill", "node": "b"}, ORDER).status == 409
            rows = ask(board, "GET", "/dashboard/audit").json()["requests"]
            assert sorted((row["who"], row["asked"], row["outcome"], row["why"]) for row in rows) == [
                ("the dashboard", "heal", "done", ""),
                ("the dashboard", "kill (node b)", "refused", "not now"),
            ]
    finally:
        feed.close()


# --- the strip for a wall ---------------------------------------------------------------------------------------------


def test_only_the_strip_can_be_framed_and_only_by_the_sites_of_the_settings(feed: Feed) -> None:
    def policy(board: Served, path: str) -> str:
        return ask(board, "GET", path).headers["Content-Security-Policy"]

    strip = "/dashboard/embed/status"
    with served(feed) as board:
        assert ask(board, "GET", "/embed/status").headers["Location"] == strip
        assert "frame-ancestors 'none'" in policy(board, strip)
    with served(feed, frame_ancestors=("https://wall.example", "https://*.tv.example:8443")) as board:
        wanted = "frame-ancestors 'self' https://wall.example https://*.tv.example:8443"
        assert policy(board, strip).endswith(wanted)
        for path in ("/dashboard", "/dashboard/static/app.js", "/dashboard/me", "/embed/status"):
            assert "frame-ancestors 'none'" in policy(board, path), path


def test_the_strip_shows_nothing_to_whoever_may_not_read(feed: Feed) -> None:
    with served(feed, loopback=False, secure=True) as board:
        assert ask(board, "GET", "/dashboard/embed/status").status == 200, "the page itself, which holds nothing"
        assert ask(board, "GET", "/dashboard/stream").status == 401
        session(board, code=board.code())
