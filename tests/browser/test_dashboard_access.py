"""Who can read the page: contrast, focus, headings, motion. In a real Chromium, light and dark, wide and narrow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import ALL_PAGES, Tab, real_browser
from tests.support.dashboard_feed import Feed, Served, served

pytestmark = pytest.mark.beside(order=140)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LEGIBLE = Path(__file__).with_name("legible.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture(scope="module")
def board() -> Iterator[Served]:
    """A lab with something of everything: every role, broken links, alerts, a double signature."""
    feed = Feed(list("abcdefgh"), lab=True).start()
    feed.story()
    feed.sign("a", 12)
    feed.down.add("c")
    feed.frozen.add("d")
    feed.paused.add("e")
    feed.cut |= {("a", "b"), ("b", "a"), ("a", "f")}
    feed.extra["f"] = {"role": "candidate", "health": "failing: no answer", "version": "0.0.9"}
    feed.extra["g"] = {"role": "recovering", "waits_for": "the first start of the cluster: primacy init, once"}
    feed.extra["h"] = {"kind": "observer", "role": "observer"}
    feed.alerts.append("two nodes run with the id b")
    feed.doubles.append("height 12 has two signers: a and b")
    with served(feed) as one:
        yield one
    feed.close()


def legible(page: Page, where: str, least: int = 20, looks: int = 50) -> None:
    """As high as it is long, so that all of it can be asked what stands behind it. It may still be about to grow."""
    size = page.viewport_size
    assert size is not None
    for _ in range(looks):
        high = int(page.evaluate("() => document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": size["width"], "height": max(900, high)})
        page.wait_for_timeout(60)
        found: Any = page.evaluate(LEGIBLE)
        if found["bad"] == [] and found["seen"] >= least:
            break
    page.set_viewport_size(size)
    assert found["bad"] == [], where
    assert found["seen"] >= least, f"{where}: only {found['seen']} texts were looked at"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 380])
def test_every_text_stands_out_from_what_is_behind_it(browser: Browser, board: Served, scheme: str, width: int) -> None:
    tab = Tab(browser, board.url, width=width, scheme=scheme)
    for name in ALL_PAGES:
        page = tab.open(name)
        page.wait_for_timeout(250)
        legible(page, f"{name}, {scheme}, {width}")
    page = tab.open("nodes")
    for node in "acdefg" if width > 1_000 else "e":
        page.click(f'.tab[data-node="{node}"]')
        page.wait_for_selector(f".node-title >> text=Node {node}")
        legible(page, f"node {node}, {scheme}, {width}")
    page = tab.open("network")
    for node in "ac" if width > 1_000 else "c":
        page.click(f'.knot[data-node="{node}"]')
        page.wait_for_selector(f".panel .node-title >> text=Node {node}")
        legible(page, f"panel of {node}, {scheme}, {width}")
    page.click('[data-shape="halves"]')
    legible(page, f"question, {scheme}, {width}", least=3)
    page.click("dialog button[type=submit]")
    page.wait_for_selector("#outcome")
    legible(page, f"outcome, {scheme}, {width}")
    tab.close()


def test_the_check_of_contrast_sees_a_pale_text(browser: Browser, board: Served) -> None:
    """In the page, over a colour of its own, in the drawing, and in a field."""
    tab = Tab(browser, board.url)
    for name, selector, property_, value in (
        ("overview", ".hero-since", "color", "#999999"),
        ("overview", ".hero", "backgroundColor", "#555555"),
        ("overview", ".hero-title", "opacity", "0.3"),
        ("network", ".knot-role", "fill", "#bbbbbb"),
        ("network", ".knot-body", "fill", "#444444"),
        ("events", "#event-search", "backgroundColor", "#777777"),
    ):
        page = tab.open(name)
        page.wait_for_selector(selector)
        page.evaluate(PAINT, [selector, property_, value])
        with pytest.raises(AssertionError, match="contrast"):
            legible(page, name, looks=3)
        page.evaluate(PAINT, [selector, property_, ""])
    tab.close()


DRAWN_S = 10.0
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const halo = e.querySelector(".knot-halo"), style = getComputedStyle(halo || e);
  const ring = halo ? style.stroke !== "rgba(0, 0, 0, 0)" && Number(style.opacity) > .9 : style.outlineStyle !== "none";
  const wide = parseFloat(halo ? style.strokeWidth : style.outlineWidth) >= 2;
  const box = (e.querySelector(".knot-body") || e).getBoundingClientRect();
  const y = box.top + box.height / 2, at = document.elementFromPoint(box.left + box.width / 2, y);
  const first = !e.dataset.visited;
  e.dataset.visited = "yes";
  return { first, seen: ring && wide, within: Boolean(at) && (e.contains(at) || at.contains(e)),
    what: e.outerHTML.slice(0, 120) };
}"""
UNREACHED = """() => [...document.querySelectorAll("main a, main button, main input, main select, main summary")]
  .filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0 && !e.dataset.visited)
  .map((e) => e.outerHTML.slice(0, 120))"""
PAINT = """([selector, name, value]) => {
  for (const e of document.querySelectorAll(selector)) e.style[name] = value;
}"""
BUILT = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const heads = all("h1, h2, h3, h4").filter((e) => e.checkVisibility()), ids = all("[id]").map((e) => e.id);
  const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.querySelector("h2, h3");
  return {
    lang: document.documentElement.lang, title: document.title,
    main: all("main").length, head: all("body header").length,
    menu: all("nav").map((e) => e.getAttribute("aria-label")),
    levels: heads.map((e) => Number(e.tagName[1])),
    blank: heads.filter((e) => !e.textContent.trim()).length,
    nameless: all("section, dialog, [role=group], [role=tablist]").filter((e) => e.checkVisibility() && !named(e))
      .map((e) => e.outerHTML.slice(0, 90)),
    headless: all("table").filter((e) => !e.querySelector("thead th")).length,
    doubled: ids.filter((id, at) => ids.indexOf(id) !== at),
  };
}"""


def focused(page: Page) -> Any:
    """What has the focus now, once the browser has drawn it: it scrolls there with one of the next frames."""
    found = page.evaluate(FOCUSED)
    end_s = time.monotonic() + DRAWN_S
    while found is not None and not (found["seen"] and found["within"]) and time.monotonic() < end_s:
        page.wait_for_timeout(50)
        again = page.evaluate(FOCUSED)
        found = again and {**again, "first": found["first"]}
    return found


@pytest.mark.parametrize("width", [1440, 380])
@pytest.mark.parametrize("name", ALL_PAGES)
def test_tab_reaches_everything_and_shows_where_it_is(browser: Browser, board: Served, name: str, width: int) -> None:
    tab = Tab(browser, board.url, width=width)
    page = tab.open(name)
    page.wait_for_timeout(250)
    stops = 0
    for _ in range(150):
        page.keyboard.press("Tab")
        found = focused(page)
        if found is None or not found["first"]:
            break  # around once
        stops += 1
        assert found["seen"], f"no ring around {found['what']}"
        assert found["within"], f"out of sight: {found['what']}"
    assert stops >= 6, "the skip link, four pages and at least one tool"
    assert page.evaluate(UNREACHED) == []
    tab.close()


@pytest.mark.parametrize("name", ALL_PAGES)
def test_headings_and_landmarks_tell_how_the_page_is_built(browser: Browser, board: Served, name: str) -> None:
    tab = Tab(browser, board.url)
    page = tab.open(name)
    page.wait_for_timeout(250)
    built: Any = page.evaluate(BUILT)
    assert (built["lang"], built["main"], built["head"], built["menu"]) == ("en", 1, 1, ["Pages"])
    assert name in built["title"].lower()
    assert built["levels"][0] == 1
    assert built["levels"].count(1) == 1
    for before, after in zip(built["levels"], built["levels"][1:], strict=False):
        assert after <= before + 1, f"a heading was left out: {built['levels']}"
    assert (built["blank"], built["nameless"], built["headless"], built["doubled"]) == (0, [], 0, [])
    tab.close()


def test_no_heartbeat_moves_where_motion_is_unwelcome(browser: Browser, board: Served) -> None:
    count = "() => document.querySelectorAll('.map .heartbeat').length"
    lively = Tab(browser, board.url)
    page = lively.open("network")
    page.wait_for_function(f"() => ({count})() > 0")
    lively.close()
    calm = Tab(browser, board.url, calm=True)
    page = calm.open("network")
    page.wait_for_selector(".knot")
    for _ in range(15):
        assert page.evaluate(count) == 0
        page.wait_for_timeout(100)
    moving: Any = page.evaluate("() => document.getAnimations().filter((a) => a.playState === 'running').length")
    assert moving == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function(f"() => ({count})() > 0")
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_function(f"() => ({count})() === 0")
    calm.close()
