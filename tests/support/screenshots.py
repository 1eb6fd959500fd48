"""`make screenshots`: a picture of each page, light and dark, wide and narrow, of a lab that has lived a little; then
of what a person on call looks at first, under each fault of the tour, without a majority, without the page's server.

Those of the documents are made as well, small in every sense, into docs/pictures/.

python -m tests.support.screenshots FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.test_dashboard_faults import FAULTS, Broken, heal
from tests.browser.test_dashboard_lab import Lab, dashboard, until
from tests.support.browser import PAGES, Tab, chromium, real_browser
from tests.support.shrink_image import shrink

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
README = {"overview": ("dark", 960), "network": ("light", 960), "timeline": ("light", 740)}
"""By page: its colours, and how much of its height is shown."""
README_WIDTH = 1440
README_BYTES_MAX = 150_000
SIZES = {"wide": (1440, 900), "narrow": (380, 800)}
UNDER_FAULTS = ("overview", "network", "timeline")
AT_ONCE_MS = 200
LAST_MS = 1_500
LOOKS = (("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark"))
"""Each of them of one moment, in tabs side by side."""


def main() -> int:
    if chromium() is None:
        print("no Chromium here; make setup-browser installs it, as root", file=sys.stderr)
        return 4
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, real_browser() as browser:
        lab = Lab(Path(place) / "lab")
        try:
            with dashboard("dashboard", "--lab", str(lab.folder)) as url:
                _live_a_little(lab, Tab(browser, url))
                for size, (width, height) in SIZES.items():
                    for scheme in ("light", "dark"):
                        tab = Tab(browser, url, width=width, height=height, scheme=scheme)
                        for name in PAGES:
                            tab.page.set_viewport_size({"width": width, "height": height})
                            page = tab.open(name)
                            file = folder / f"{name}-{size}-{scheme}.png"
                            _picture(page, width, height, file)
                            print(file)
                        assert tab.said == [], tab.said
                        tab.close()
                _for_readme(browser, url)
                tabs = _under_faults(browser, url, lab, folder)
            _all_screens(tabs, folder, "server-gone", LAST_MS)
        finally:
            lab.down()
    return 0


def _under_faults(browser: Browser, url: str, lab: Lab, folder: Path) -> dict[tuple[str, str], Tab]:
    """The tabs, which are left open: what they show when their server is gone is the last picture."""
    sizes = {look: SIZES[look[0]] for look in LOOKS}
    tabs = {look: Tab(browser, url, width=size[0], height=size[1], scheme=look[1]) for look, size in sizes.items()}
    for tab in tabs.values():
        tab.open("overview")
    broken = Broken(lab, tabs[LOOKS[0]].page)
    heal(broken, "")
    for row in lab.get("/v1/lab")["nodes"]:
        if row["process"] != "running":
            broken.order(f"{row['node']}/start")
    for name, (fault, mend) in FAULTS.items():
        leader = broken.settled()
        tabs[LOOKS[0]].open("network")
        fault(broken, leader)
        _all_screens(tabs, folder, name, AT_ONCE_MS)
        broken.settled(but=leader)
        _all_screens(tabs, folder, f"{name}-after", AT_ONCE_MS)
        mend(broken, leader)
    broken.settled()
    broken.order("partition", shape="halves")
    _all_screens(tabs, folder, "no-majority", LAST_MS)
    heal(broken, "")
    broken.settled()
    for node in "abcde":
        broken.order(f"{node}/stop")
    _all_screens(tabs, folder, "all-stopped", LAST_MS)
    return tabs


def _all_screens(tabs: dict[tuple[str, str], Tab], folder: Path, fault: str, after_ms: int) -> None:
    """Of what the screen shows, not of the whole page."""
    for name in UNDER_FAULTS:
        for tab in tabs.values():
            tab.page.evaluate("(name) => { location.hash = `#/${name}`; }", name)
        next(iter(tabs.values())).page.wait_for_timeout(after_ms)
        for (size, scheme), tab in tabs.items():
            file = folder / f"fault-{fault}-{name}-{size}-{scheme}.png"
            tab.page.screenshot(path=str(file))
            print(file)


def _for_readme(browser: Browser, url: str) -> None:
    """As much as a reader sees at once; in 256 colours, so that a clone of the project stays small."""
    PICTURES.mkdir(exist_ok=True)
    for name, (scheme, height) in README.items():
        tab = Tab(browser, url, width=README_WIDTH, height=height, scheme=scheme)
        page = tab.open(name)
        if name == "timeline":
            page.click(".tl-control >> text=All")
        page.wait_for_timeout(900)
        file = PICTURES / f"{name}.png"
        page.screenshot(path=str(file))
        size = shrink(file)
        assert size <= README_BYTES_MAX, f"{file} has {size:,} bytes"
        print(f"{file}, {size:,} bytes")
        tab.close()


def _live_a_little(lab: Lab, tab: Tab) -> None:
    """A leader is lost, a node is stopped and a link is one-way, so that there is something to see."""
    first = until(lab.leader, "a leader")
    page = tab.open("network")
    page.click('[data-picture="cut-leader"]')
    page.click("dialog button[type=submit]")
    leader = until(lambda: lab.leader() if lab.leader() != first else "", "another leader")
    page.wait_for_selector('[data-picture="mend"]:not(:disabled)')
    page.click('[data-picture="mend"]')
    until(lambda: lab.get("/v1/lab")["cuts"] == [], "whole links")
    quiet = [name for name in "abcde" if name != leader]
    page.click(f'.knot[data-node="{quiet[0]}"]')
    page.wait_for_selector('[data-act="Stop"]:not(:disabled)')
    page.click('[data-act="Stop"]')
    page.click("dialog button[type=submit]")
    page.wait_for_selector(f'.map .knot[data-node="{quiet[0]}"][data-tone="down"]')
    page.click(f'.knot[data-node="{quiet[1]}"]')
    page.click(f'.link-row[data-other="{quiet[2]}"] >> text=One-way')
    page.click("dialog button[type=submit]")
    page.wait_for_selector('.map .link[data-state="one-way"]')
    tab.close()


def _picture(page: Page, width: int, height: int, file: Path) -> None:
    """The whole page, as if the screen were as high as it."""
    page.wait_for_timeout(900)
    high = page.evaluate("() => document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": max(height, int(high))})
    page.wait_for_timeout(400)
    page.screenshot(path=str(file))


if __name__ == "__main__":
    sys.exit(main())
