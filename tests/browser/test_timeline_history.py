"""A page that is started after a bad day, in a real Chromium: 20 nodes with long names, 24 h, 200 events a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Tab, real_browser
from tests.support.dashboard_feed import Feed, Served, served, wall_ms
from tests.support.history_day import BURST_AGO_MS, HOUR, NAMES, Day, make_day

pytestmark = pytest.mark.beside(order=146)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    return make_day(tmp_path_factory.mktemp("day") / "state", wall_ms())


@pytest.fixture(scope="module")
def board(day: Day) -> Iterator[Served]:
    feed = Feed(NAMES).start()
    feed.history_folder = day.folder
    with served(feed) as one:
        yield one
    feed.close()


def test_back_to_a_moment_of_the_day_and_into_the_burst(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    began_s = time.monotonic()
    page = tab.open("timeline")
    page.wait_for_function("() => document.querySelector('.tl-notes').innerText.includes('has kept it since')")
    print(f"first view after {1_000 * (time.monotonic() - began_s):.0f} ms")
    assert "the newest 16 MB or 24 h" in page.inner_text(".tl-notes")

    # Ten minutes in the morning: nothing of it was read when the page was opened.
    at = wall_ms() - 15 * HOUR
    page.goto(f"{board.url}#/timeline?from={at}&to={at + 600_000}&at={at + 300_000}")
    page.wait_for_function("() => document.querySelectorAll('.tl-list tbody tr').length > 20")
    assert "follows" in page.inner_text(".tl-list tbody")
    page.wait_for_selector('.timeline-map .knot[data-tone="leader"]')

    # The whole day: the newest are drawn, and it says that older ones are not.
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelector('.tl-notes').innerText.includes('older events of this range')")

    # A second of the burst.
    burst = wall_ms() - BURST_AGO_MS + 20_000
    page.goto(f"{board.url}#/timeline?from={burst}&to={burst + 1_000}")
    page.wait_for_function("() => /^[12]\\d\\d events/.test(document.querySelector('.tl-listed').innerText)")
    href = page.get_attribute('a:has-text("Save incident")', "href")
    assert href is not None
    assert f"from={burst}" in href

    page.keyboard.press("l")
    page.wait_for_selector('.tl-control[aria-pressed="true"] >> text=Live')
    page.wait_for_selector(".timeline-map h2 >> text=The network now")
    assert tab.said == []
    tab.close()
