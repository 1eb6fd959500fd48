"""The page of all elections and the strip for a wall, under what every page must stand: names, contrast, keyboard,
fingers, widths, layout, and that nothing is green without a server. In a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.test_dashboard_access import BUILT, UNREACHED, focused, legible
from tests.browser.test_dashboard_browser import CROWDED, HOSTILE, WORSE, expect, overflow
from tests.browser.test_dashboard_truth import LONG, SHIFT, SMALL
from tests.support.browser import ALL_PAGES, EMBED, MANY, Tab, real_browser
from tests.support.canary import Canary
from tests.support.dashboard_feed import Feed, Served, served, served_by_agent

pytestmark = pytest.mark.beside(order=153)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

GREEN = Path(__file__).with_name("green.js").read_text()
HEARTBEAT_MS = 250
WIDTHS = (380, 900, 1440)
PLACES = (MANY, EMBED)
STATE = "() => document.documentElement.dataset.state"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture
def feed(request: pytest.FixtureRequest) -> Iterator[Feed]:
    one = Feed(getattr(request, "param", list("abcde"))).start()
    one.story()
    yield one
    one.close()


def look(tab: Tab, place: str) -> Page:
    """Opens it, and waits until it shows something."""
    if place != EMBED:
        page = tab.open(place)
        page.wait_for_selector("#page tbody tr")
        return page
    tab.page.goto(tab.url.replace("/dashboard", EMBED))
    tab.page.wait_for_function(f"() => ![undefined, 'unknown', 'stale'].includes(({STATE})())")
    return tab.page


def boarded(feed: Feed, place: str) -> Any:
    return served_by_agent(feed) if place == MANY else served(feed)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("feed", [[HOSTILE, WORSE, "c"], LONG], indirect=True, ids=["hostile", "long"])
def test_any_name_is_text_and_fits(browser: Browser, feed: Feed, place: str) -> None:
    feed.alerts.append(f"alert about {feed.names[0]}")
    with boarded(feed, place) as board:
        tab = Tab(browser, board.url)
        page = look(tab, place)
        page.wait_for_function("(name) => document.body.innerText.includes(name)", arg=feed.names[0])
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            assert overflow(page) <= 0, width
            if place == MANY:
                assert page.evaluate(CROWDED) == [], width
            assert page.evaluate(CUT_OFF) == [], width
        assert page.locator("main img, main b").count() == 0
        assert page.title() != "1"
        assert tab.said == []
        tab.close()


CUT_OFF = """() => [...document.querySelectorAll(".embed .strip-part")]
  .filter((e) => e.checkVisibility() && (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1))
  .map((e) => `${e.className}: ${e.textContent}`)"""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_with_a_holder_and_without(browser: Browser, feed: Feed, place: str, scheme: str) -> None:
    with boarded(feed, place) as board:
        tab = Tab(browser, board.url, width=380, scheme=scheme)
        page = look(tab, place)
        least = 20 if place == MANY else 3
        legible(page, f"{place}, {scheme}", least)
        assert page.evaluate(GREEN) != [], "the check itself sees green where there is a holder"
        feed.down |= set("abcde")
        expect(page, ".strip-holder", "No node answers|1 in trouble")
        legible(page, f"{place} without a holder, {scheme}", least)
        assert page.evaluate(GREEN) == []
        tab.close()


def test_the_page_of_all_elections_by_keyboard_and_by_finger(browser: Browser, feed: Feed) -> None:
    with served_by_agent(feed) as board:
        tab = Tab(browser, board.url, width=390)
        page = look(tab, MANY)
        assert page.evaluate(SMALL) == []
        for _ in range(60):
            page.keyboard.press("Tab")
            found = focused(page)
            if found is None or not found["first"]:
                break
            assert (found["seen"], found["within"]) == (True, True), found["what"]
        assert page.evaluate(UNREACHED) == []
        built: Any = page.evaluate(BUILT)
        assert built["levels"][0] == 1
        assert (built["blank"], built["nameless"], built["headless"], built["doubled"]) == (0, [], 0, [])
        page.focus('tr[data-election="stock"] a')
        page.keyboard.press("Enter")
        expect(page, "h1", "Overview")
        assert "election=stock" in page.url
        assert tab.said == []
        tab.close()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_moves_while_it_loads(browser: Browser, feed: Feed, place: str, width: int) -> None:
    with boarded(feed, place) as board:
        tab = Tab(browser, board.url, width=width)
        look(tab, place)
        with Canary(HEARTBEAT_MS) as canary:
            tab.page.goto("about:blank")
            page = look(tab, place)
            page.evaluate(SHIFT)
            page.wait_for_timeout(400)
            shift = page.evaluate("() => window.shift")
        canary.judge(shift < 0.05, f"{place} moved by {shift:.3f} while it loaded")
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_server_nothing_is_green_anywhere(browser: Browser, feed: Feed, scheme: str) -> None:
    """Every page that was open, each with something green before or not."""
    with served(feed) as board, served_by_agent(feed) as agent:
        tabs = {}
        for place in (*ALL_PAGES, MANY, EMBED):
            tabs[place] = Tab(browser, (agent if place == MANY else board).url, scheme=scheme)
            look(tabs[place], place) if place in PLACES else tabs[place].open(place)
        for place in ("overview", "leases", "cache", MANY, EMBED):
            tabs[place].page.wait_for_function(f"() => ({GREEN})().length > 0")
        _stop(board, agent)
        for place, tab in tabs.items():
            tab.page.wait_for_function(f"() => ({STATE})() === 'stale'")
            tab.page.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => done(true)))")
            assert tab.page.evaluate(GREEN) == [], place
            tab.close()


def _stop(*boards: Served) -> None:
    for board in boards:
        board.stop()
