"""The page Cache in a real Chromium, of three real peers: freshness, search, and what operators may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from primacy.cache.shown import told
from primacy.cli.dashboard_cache import CacheClients
from primacy.node.clock import SystemClock
from tests.browser.test_dashboard_browser import count, expect
from tests.browser.test_dashboard_many import fits
from tests.support.browser import Tab, real_browser
from tests.support.cache_served_peers import Served as Peers
from tests.support.dashboard_feed import KEY, Feed, served

pytestmark = pytest.mark.beside(order=151)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Options(NamedTuple):
    """Where the peers are, without a file."""

    apis: tuple[str, ...]
    settings: Any = None

    def client(self, apis: tuple[str, ...], within_ms: int) -> Any:
        from primacy.cache.client import Client

        return Client(apis, timeout_ms=within_ms)


def telling(peers: Peers) -> None:
    """They say how they stand, as `primacy cache serve` has them do it."""

    def status(peer: Any, name: str) -> Any:
        clock = SystemClock()
        return lambda prefix, most: told(peer, {"node": name}, prefix, most, clock.now_ms(), clock.wall_ms(), 5)

    for peer, name in zip(peers.peers, "xyz", strict=True):
        peer.serving.status = status(peer, name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


def test_keys_by_peers_are_searched_refused_to_viewers_and_invalidated_by_operators(browser: Browser) -> None:
    feed = Feed(list("abc")).start()
    options: Any = Options(())
    try:
        with Peers() as peers:
            telling(peers)
            options = Options(tuple(peers.apis))
            for key in ("user:1", "user:2", "price/9"):
                assert peers.wait(peers.peers[0].put(key.encode(), b"value", 600_000)).ok
            with served(feed, cache=CacheClients(options)) as board:
                tab = Tab(browser, board.url)
                page = tab.open("cache")
                count(page, ".peers tbody tr", 3)
                for key in ("user:1", "user:2", "price/9"):
                    count(page, f'tr[data-key="{key}"] .cell-mark[data-state="fresh"]', 3)
                count(page, "main .cell-buttons", 0)
                page.fill("#cache-search", "user:")
                count(page, 'tr[data-key="price/9"]', 0)
                assert "q=user" in page.url
                page.click("text=Sign in")
                page.fill("#control-key", KEY)
                page.keyboard.press("Enter")
                page.click('tr[data-key="user:1"] [data-act="invalidate"]')
                expect(page, "dialog h2", "Invalidate user:1")
                page.click("dialog button[type=submit]")
                expect(page, ".toast.ok", "user:1 is invalidated")
                count(page, 'tr[data-key="user:1"] .cell-mark[data-state="fresh"]', 0)
                count(page, 'tr[data-key="user:2"] .cell-mark[data-state="fresh"]', 3)
                fits(page)
                peers.wait(peers.peers[2].stop())
                expect(page, ".peers tbody tr >> nth=2", "not known: it does not answer")
                count(page, 'tr[data-key="user:2"] .cell-mark[data-state="unknown"]', 1)
                tab.open("audit")
                expect(page, "table.audit tbody tr >> nth=0", r"cache invalidate \(key user:1\).*this page.*done")
                page = tab.open("cache")
                count(page, 'tr[data-key="user:2"] .cell-mark[data-state="fresh"]', 2)
                assert tab.said == []
                board.stop()
                count(page, '.grid .cell-mark[data-state="fresh"]', 0)
                expect(page, ".cache-page > .quiet", "As it was last seen")
                tab.close()
    finally:
        feed.close()
