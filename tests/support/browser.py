"""A real Chromium for tests: the distribution's, headless, with an empty profile. Without it they skip, and say why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIMIT_MS = 60_000
"""For whatever must come: only a page that is broken makes one wait so long."""
PAGES = ("overview", "network", "nodes", "timeline", "events", "audit", "drills")
"""Of every election."""
BESIDE = ("leases", "slots", "cache")
"""Offered where there is a store, slots, a cache: their colours tell of those, and not of the election."""
ALL_PAGES = (*PAGES, *BESIDE)
MANY = "elections"
"""Offered by an agent that has several."""
EMBED = "/embed/status"
"""The strip for a wall: no page of the menu."""


def chromium() -> str | None:
    """Where it is, if it is here."""
    return next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


@contextmanager
def real_browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        how = "make setup-browser installs it" if os.geteuid() == 0 else "installing it needs root: make setup-browser"
        pytest.skip(f"there is no Chromium here; {how}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page with its own profile, which remembers whatever the console said."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        width: int = 1440,
        height: int = 900,
        scheme: str = "light",
        calm: bool = False,
    ) -> None:
        assert scheme in ("light", "dark")
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            accept_downloads=True,
            reduced_motion="reduce" if calm else "no-preference",
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.said: list[str] = []
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("requestfailed", lambda request: self.elsewhere(request.url))
        self.page.on("request", lambda request: self.elsewhere(request.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.said.append(f"{kind}: {text}")

    def elsewhere(self, url: str) -> None:
        """Nothing is ever asked of another host."""
        if not url.startswith(("http://127.0.0.1:", "http://localhost:", "blob:", "data:")):
            self.said.append(f"asked elsewhere: {url}")

    def open(self, page: str = "overview") -> Page:
        self.page.goto(f"{self.url}#/{page}")
        self.page.wait_for_selector('.live[data-state="live"]')
        return self.page

    def close(self) -> None:
        self.context.close()
