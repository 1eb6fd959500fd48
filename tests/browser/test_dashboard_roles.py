"""Viewers, operators, the audit trail and the strip for a wall, in a real Chromium."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from primacy.dashboard.access import TrustedProxy
from tests.browser.test_dashboard_browser import count, expect, overflow
from tests.support.browser import Tab, real_browser
from tests.support.dashboard_feed import KEY, Feed, Served, served

pytestmark = pytest.mark.beside(order=149)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROXY = TrustedProxy((ipaddress.ip_network("127.0.0.1/32"),), "X-Forwarded-Email", operators=("ann@x.example",))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(list("abcde")).start()
    one.story()
    yield one
    one.close()


@pytest.fixture
def board(feed: Feed) -> Iterator[Served]:
    with served(feed, proxy=PROXY) as one:
        yield one


def signed_in(browser: Browser, board: Served, user: str, **more: Any) -> Tab:
    """As a proxy would bring somebody."""
    tab = Tab(browser, board.url, **more)
    tab.context.set_extra_http_headers({"X-Forwarded-Email": user})
    return tab


def test_a_viewer_looks_an_operator_changes_and_the_trail_names_both(
    browser: Browser, feed: Feed, board: Served
) -> None:
    viewer = signed_in(browser, board, "bob@x.example")
    page = viewer.open("network")
    expect(page, ".me", re.escape("bob@x.example · viewer"))
    expect(page, ".panel", "Read only")
    count(page, "main button:visible", 0)
    operator = signed_in(browser, board, "ann@x.example")
    page = operator.open("network")
    expect(page, ".me", re.escape("ann@x.example · operator"))
    page.click('[data-act="Pause"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome", "a is paused: it will not lead.")
    page = viewer.open("audit")
    expect(page, ".audit-page .filters", "You are bob@x.example, a viewer: you may look")
    expect(page, "table.audit tbody tr >> nth=0", re.escape("ann@x.example on the dashboard"))
    expect(page, "table.audit tbody tr >> nth=0", r"pause \(node a\).*done")
    page.click("text=Sign in")
    page.fill("#control-key", KEY)
    page.keyboard.press("Enter")
    expect(page, ".audit-page .filters", "an operator: you may change things")
    expect(page, "table.audit tbody tr >> nth=0", r"bob@x\.example.*sign in with the control key.*this page.*done")
    page.fill("#audit-search", "ANN@")
    count(page, "table.audit tbody tr", 1)
    assert "q=ANN" in page.url
    page.reload()
    count(page, "table.audit tbody tr", 1)
    feed.stop()
    expect(page, ".mark-differs", "Not told by a")
    feed.start()
    assert (viewer.said, operator.said) == ([], [])
    viewer.close()
    operator.close()


def test_whom_the_proxy_does_not_name_is_asked_to_sign_in(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    tab.page.goto(board.url)
    expect(tab.page, "dialog h2", "Sign in")
    tab.page.fill("#control-key", KEY)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector('.live[data-state="live"]')
    tab.close()


def test_a_server_that_is_gone_is_said_on_the_trail(browser: Browser, feed: Feed, board: Served) -> None:
    tab = signed_in(browser, board, "ann@x.example", width=390)
    page = tab.open("audit")
    expect(page, ".audit-page > .quiet", "Nothing was asked for yet")
    assert overflow(page) <= 0
    board.stop()
    expect(page, ".audit-page > .quiet", "As it was last seen")
    tab.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_strip_for_a_wall_shows_the_state_and_has_nothing_to_click(
    browser: Browser, feed: Feed, width: int
) -> None:
    with served(feed) as board:
        tab = Tab(browser, board.url, width=width, height=300)
        page = tab.page
        page.goto(board.url.replace("/dashboard", "/embed/status"))
        expect(page, ".strip-holder", "One holder: a, for 4 min")
        expect(page, ".embed-name", "billing · scheduler")
        assert page.evaluate("() => document.querySelectorAll('a[href], button, input').length") == 0
        assert overflow(page) <= 0
        level = "() => document.documentElement.dataset.state"
        assert page.evaluate(level) == "ok"
        feed.old["a"] = (0, {**feed.row("a", "a"), "told_ms": 0})
        expect(page, ".strip-holder", "^(?!.*One holder)")
        assert page.evaluate(level) != "ok"
        board.stop()
        expect(page, ".strip-holder", "Not known: the dashboard's server does not answer")
        assert page.evaluate(level) == "stale"
        tab.close()
