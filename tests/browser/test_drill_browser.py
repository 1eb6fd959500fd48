"""Drills in a real Chromium: the page that runs one on a real lab, and the report that opens from a disk."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.test_dashboard_lab import dashboard
from tests.browser.test_timeline_browser import looked_at
from tests.processes.test_drill import document, lab_up
from tests.support.browser import LIMIT_MS, Tab, real_browser
from tests.support.dashboard_feed import Feed, served

pytestmark = pytest.mark.beside(order=116)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


def test_a_drill_is_run_watched_and_saved_from_the_page(browser: Browser, tmp_path: Path) -> None:
    with lab_up(tmp_path / "lab", "--nodes", "3", "--profile", "lab") as folder, contextlib.ExitStack() as stack:
        url = stack.enter_context(dashboard("dashboard", "--lab", str(folder)))
        tab = Tab(browser, url)
        page = tab.open("drills")
        page.wait_for_selector(".drill-list >> text=the command alone is killed", timeout=LIMIT_MS)
        page.check('.drill-list input[value="child"]')
        page.click("text=Run the chosen ones")
        page.click("dialog >> text=Begin >> nth=-1")
        page.wait_for_selector(".drill-verdict >> text=A drill runs", timeout=LIMIT_MS)
        page.wait_for_selector(".drills-page tbody >> text=the holder and its token", timeout=LIMIT_MS)
        assert not page.locator("text=Stop the drill").is_visible()
        assert "copies of the command at once" in page.inner_text(".drills-page tbody")
        assert page.locator(".drills-page tbody .chip[data-tone=bad]").count() == 0
        with page.expect_download() as saved:
            page.click("text=Save report")
        file = tmp_path / "report.html"
        saved.value.save_as(file)
        assert tab.said == []
        tab.close()
        assert [row["process"] for row in document(folder)["nodes"]] == ["running"] * 3
    looked_at(browser, file, "Drill of lab", "the command runs")


def test_a_cluster_that_is_no_lab_says_how_a_drill_is_begun(browser: Browser) -> None:
    feed = Feed(["a", "b", "c"]).start()
    try:
        with served(feed) as board:
            tab = Tab(browser, board.url)
            page = tab.open("drills")
            page.wait_for_selector("text=primacy drill --config FILE", timeout=LIMIT_MS)
            assert not page.locator("text=Run all").is_visible()
            said = page.evaluate(
                """async () => (await fetch("/dashboard/drill", {method: "POST", body: "{}",
                headers: {"X-Primacy": "1", "Content-Type": "application/json"}})).status"""
            )
            assert said == 403, "who has not signed in begins nothing"
            assert [line for line in tab.said if "403" not in line] == [], json.dumps(tab.said)
            tab.close()
    finally:
        feed.close()
