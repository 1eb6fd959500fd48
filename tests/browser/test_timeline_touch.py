"""The timeline under fingers, and how fast it plays, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_timeline_browser import drawn, told, until_address
from tests.support.browser import Tab, real_browser
from tests.support.dashboard_feed import Feed, Served, served

pytestmark = pytest.mark.beside(order=152)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

STEPS = 8
PLAYED = """() => new Promise((done) => {
  const press = (name) => document.querySelector(`.tl-control[aria-label="${name}"]`).click();
  const began = performance.now();
  const look = (now) => {
    if (now - began < 1000) { requestAnimationFrame(look); return; }
    press("Pause");
    done(now - began);
  };
  press("Play");
  requestAnimationFrame(look);
})"""
"""For how long it played, by the clock of its pictures."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture(scope="module")
def board() -> Iterator[Served]:
    feed = Feed(list("abcde"), lab=True).start()
    feed.story()
    with served(feed) as one:
        yield one
    feed.close()


class Hand:
    """Fingers on the screen, as the browser's own input has them."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self.page = page
        self.session = session
        session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def _send(self, kind: str, *points: tuple[float, float]) -> None:
        fingers = [{"x": x, "y": y, "id": at} for at, (x, y) in enumerate(points)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    def move(self, *ways: tuple[tuple[float, float], tuple[float, float]]) -> None:
        """Each finger from here to there, at the same time."""
        down: list[tuple[float, float]] = []
        for begins, _ in ways:
            down.append(begins)
            self._send("touchStart", *down)
        for step in range(1, STEPS + 1):
            share = step / STEPS
            now = [(a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share) for a, b in ways]
            self._send("touchMove", *now)
            self.page.wait_for_timeout(20)
        self._send("touchEnd")


def test_two_fingers_zoom_the_lanes_and_one_scrolls_the_page(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url, width=390, height=500)
    page = drawn(tab.open("timeline"))
    hand = Hand(page, tab.context.new_cdp_session(page))
    page.keyboard.press("Home")
    until_address(page, "from=\\d+&to=\\d+")
    page.wait_for_timeout(300)
    page.evaluate("() => document.querySelector('.tl-lanes').scrollIntoView({ block: 'start' })")
    box = page.locator(".tl-lanes").bounding_box()
    assert box is not None
    middle, y = box["x"] + box["width"] * 0.6, box["y"] + 120

    def span() -> float:
        return told(page)["to"] - told(page)["from"]

    def until_other(before: dict[str, float]) -> None:
        until_address(page, f"^(?!.*from={before['from']:.0f}&to={before['to']:.0f})")

    wide, all_of_it = told(page), span()
    hand.move(((middle - 20, y), (middle - 80, y)), ((middle + 20, y), (middle + 80, y)))
    until_other(wide)
    near = told(page)
    assert all_of_it / 5 < span() < all_of_it / 3, "four times as far apart: a quarter is seen"
    assert wide["from"] < near["from"] < near["to"] < wide["to"], "what was between the fingers stays there"
    hand.move(((middle - 80, y), (middle - 40, y)), ((middle + 80, y), (middle + 40, y)))
    until_other(near)
    assert all_of_it / 2.6 < span() < all_of_it / 1.6
    assert page.evaluate("() => visualViewport.scale") == 1, "the lanes are zoomed, not the page"

    before, began = told(page), page.evaluate("() => scrollY")
    hand.move(((middle, y + 60), (middle, y - 60)))
    page.wait_for_function("(began) => scrollY > began + 50", arg=began)
    page.wait_for_timeout(300)
    assert told(page) == before, "one finger up or down moves the page, and not the time"
    hand.move(((middle, y), (middle - 60, y)))
    until_other(before)
    assert told(page)["from"] > before["from"]
    assert span() == pytest.approx(before["to"] - before["from"], abs=2)
    assert tab.said == []
    tab.close()


def test_it_plays_as_fast_as_was_chosen(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = drawn(tab.open("timeline"))
    page.keyboard.press("Home")
    page.click('.tl-list tr:has-text("e leads (term 6)") button')
    until_address(page, "at=\\d+")
    for speed in ("0.1", "1", "10"):
        page.select_option('.tl-control[aria-label="Speed"]', speed)
        page.wait_for_timeout(300)
        before = told(page)["at"]
        took_ms = page.evaluate(PLAYED)
        until_address(page, f"^(?!.*at={before:.0f}(&|$))")
        page.wait_for_timeout(300)
        most = float(speed) * took_ms
        assert 0.5 * most <= told(page)["at"] - before <= most + 2, (speed, took_ms)
    assert tab.said == []
    tab.close()
