"""The timeline in a real Chromium: on the dashboard, and as a file that opens from a disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from primacy.sim.trace import page as trace_page
from primacy.sim.trace import recorded
from primacy.sim.trials.trial import Plan
from tests.support.browser import LIMIT_MS, Tab, real_browser
from tests.support.dashboard_feed import Feed, Served, served, wall_ms

pytestmark = pytest.mark.beside(order=147)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COLOURS = """(selector) => {
  const canvas = document.querySelector(selector), seen = new Set();
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 16) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return seen.size;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture(scope="module")
def feed() -> Iterator[Feed]:
    one = Feed(list("abcde"), lab=True).start()
    one.story()
    one.sign("a", 30)
    at = wall_ms() - 200_000
    one.tell("c", "lab", "the lab kills node c, asked for by the dashboard", term=0, at_ms=at)
    one.tell("c", "lab", "the lab starts node c", term=0, at_ms=at + 9_000)
    one.tell("c", "started", "c starts", term=0, at_ms=at + 9_300)
    one.tell("c", "follows", "c follows a (term 7)", at_ms=at + 9_400)
    yield one
    one.close()


@pytest.fixture(scope="module")
def board(feed: Feed) -> Iterator[Served]:
    with served(feed) as one:
        yield one


def drawn(page: Page) -> Page:
    """The first answer is there."""
    page.wait_for_function("() => document.querySelector('.tl-legend').innerText.includes('leader')")
    return page


def told(page: Page) -> dict[str, float]:
    """What the address says of the timeline."""
    said = parse_qs(page.url.partition("?")[2])
    return {name: float(values[0]) for name, values in said.items() if name != "node"}


def until_address(page: Page, pattern: str) -> None:
    page.wait_for_function("(pattern) => new RegExp(pattern).test(location.hash)", arg=pattern)


def listed(page: Page) -> str:
    found: Any = page.evaluate("() => document.querySelector('.tl-list tbody').innerText")
    assert isinstance(found, str)
    return found


def inked(page: Page, selector: str) -> int:
    """How many different colours a canvas has: nothing drawn is one."""
    found: Any = page.evaluate(COLOURS, selector)
    assert isinstance(found, int)
    return found


def test_live_pause_keys_and_an_address_that_survives_a_reload(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = drawn(tab.open("timeline"))
    page.wait_for_selector('.tl-control[aria-pressed="true"] >> text=Live')
    page.wait_for_selector(".timeline-map h2 >> text=The network now")

    page.keyboard.press("Home")
    until_address(page, "from=\\d+&to=\\d+")
    page.wait_for_function("() => document.querySelector('.tl-list tbody').innerText.includes('e leads (term 6)')")
    assert "a leads (term 7)" in listed(page)
    assert inked(page, ".tl-lanes") > 6
    assert inked(page, ".tl-brush") > 3

    # From event to event, and the network as it was then: e led in term 6, before a did.
    page.click('.tl-list tr:has-text("e leads (term 6)") button')
    until_address(page, "at=\\d+")
    page.wait_for_selector('.timeline-map .knot[data-node="e"][data-tone="leader"]')
    page.keyboard.press("n")
    page.wait_for_selector(".tl-picked >> text=e: the command runs")
    page.keyboard.press("p")
    page.wait_for_selector(".tl-picked >> text=e leads (term 6)")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("v")
    page.wait_for_selector(".tl-picked >> text=No violation in this timeline.")
    page.wait_for_timeout(300)
    before, span = told(page), page.inner_text(".tl-span")
    page.reload()
    page.wait_for_selector(".timeline-map h2 >> text=The network at")
    page.wait_for_selector('.timeline-map .knot[data-node="e"][data-tone="leader"]')
    assert told(page) == before
    page.wait_for_function("(text) => document.querySelector('.tl-span').textContent === text", arg=span)

    page.keyboard.press("Space")
    page.wait_for_selector('.tl-control[aria-label="Pause"]')
    page.wait_for_timeout(300)  # some pictures
    page.keyboard.press("Space")
    page.wait_for_selector('.tl-control[aria-label="Play"]')
    page.wait_for_timeout(300)
    assert told(page)["at"] > before["at"], "it played for a moment"
    page.keyboard.press("l")
    page.wait_for_function("() => !location.hash.includes('at=')")
    page.wait_for_selector('.tl-control[aria-pressed="true"] >> text=Live')
    assert tab.said == []
    tab.close()


def knot(page: Page, node: str, tone: str, word: str) -> None:
    page.wait_for_selector(f'.timeline-map .knot[data-node="{node}"][data-tone="{tone}"] >> text={word}')


def test_back_to_a_kill_and_the_link_to_it_in_another_browser(browser: Browser, board: Served) -> None:
    """The map is drawn as it was: the killed node is down, and follows again once it was started."""
    tab = Tab(browser, board.url)
    page = drawn(tab.open("timeline"))
    page.wait_for_selector('.timeline-map .knot[data-node="c"][data-tone="follower"]')
    page.keyboard.press("Home")
    page.click('.tl-list tr:has-text("the lab kills node c") button')
    until_address(page, "at=\\d+")
    knot(page, "c", "down", "killed")
    for name in "bde":
        knot(page, name, "follower", "follower")
    assert page.locator('.timeline-map .link[data-state="down"]').count() == 4, "no link of a dead node is open"
    link = page.url
    for words in ("the lab starts node c", "c starts", "c follows a (term 7)"):
        page.keyboard.press("n")
        page.wait_for_selector(f".tl-picked >> text={words}")
    knot(page, "c", "follower", "follower")
    assert tab.said == []
    tab.close()

    fresh = Tab(browser, board.url)
    fresh.page.goto(link)
    knot(fresh.page, "c", "down", "killed")
    fresh.page.wait_for_selector(".timeline-map h2 >> text=The network at")
    fresh.page.wait_for_selector('.tl-list .picked >> text="the lab kills node c, asked for by the dashboard"')
    fresh.page.wait_for_timeout(600)
    assert fresh.page.url == link, "it stays where the link led to"
    assert fresh.said == []
    fresh.close()


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("from=abc&to=&at=x&node=%3Cscript%3E", True),
        ("from=1e300&to=Infinity&at=-1e999", True),
        ("at=99999999999999", False),
        ("from=9&to=8&at=7", False),
    ],
)
def test_nonsense_in_the_address_breaks_nothing(browser: Browser, board: Served, said: str, known: bool) -> None:
    tab = Tab(browser, board.url)
    page = drawn(tab.open(f"timeline?{said}"))
    outside = page.locator(".tl-outside >> text=Nothing is known of this time")
    outside.wait_for(state="hidden" if known else "visible")
    assert inked(page, ".tl-brush") > 3, "the whole span is still to be seen"
    page.keyboard.press("Home")
    outside.wait_for(state="hidden")
    page.wait_for_function("() => document.querySelector('.tl-list tbody').innerText !== ''")
    assert tab.said == []
    tab.close()


def test_without_a_server_the_lanes_lose_their_colours_and_what_was_then_keeps_them(
    browser: Browser, feed: Feed
) -> None:
    with served(feed) as board:
        tab = Tab(browser, board.url)
        page = drawn(tab.open("timeline"))
        assert grey(page) == "none"
        board.stop()
        page.wait_for_selector('.live[data-state="lost"]')
        page.wait_for_function("() => document.querySelector('.tl').classList.contains('stale')")
        assert "grayscale" in grey(page)
        page.wait_for_selector(".timeline-map h2 >> text=The network as it was last seen")
        assert page.evaluate(LIT) == ["true", False], "Live is chosen, and not lit"
        before = page.evaluate("() => document.querySelector('.tl-lanes').width")
        page.set_viewport_size({"width": 700, "height": 900})
        page.wait_for_function("(before) => document.querySelector('.tl-lanes').width < before", arg=before)
        page.keyboard.press("Home")
        page.wait_for_function("() => !document.querySelector('.tl').classList.contains('stale')")
        tab.close()


LIT = """() => {
  const live = [...document.querySelectorAll(".tl-control")].find((each) => each.textContent === "Live");
  const plain = [...document.querySelectorAll(".tl-control")].find((each) => each.textContent === "All");
  const colour = (element) => getComputedStyle(element).backgroundColor;
  return [live.getAttribute("aria-pressed"), colour(live) !== colour(plain)];
}"""
WRITTEN = """() => {
  window.written = new Map();
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.font.startsWith("600 12.5px")) window.written.set(y, [text, x + this.measureText(text).width]);
    write.call(this, text, x, y);
  };
}"""
TWENTY = [(zone, number) for zone in "abcd" for number in range(5)]
FORTY = {
    "the end differs": [f"scheduler-of-the-billing-of-europe-node-{zone}{number}" for zone, number in TWENTY],
    "the middle differs": [f"scheduler-of-{zone}{number}-billing-node-in-europe-01" for zone, number in TWENTY],
    "the beginning differs": [f"{zone}{number}-scheduler-of-the-billing-node-in-europe" for zone, number in TWENTY],
    "two places differ": [f"eu-{zone}-scheduler-of-the-billing-node-nr-{number}" for zone, number in TWENTY],
}


@pytest.mark.parametrize("what", FORTY)
def test_lanes_of_names_of_forty_characters_can_be_told_apart(browser: Browser, what: str) -> None:
    names = FORTY[what]
    feed = Feed(names, lab=True).start()
    feed.story()
    try:
        with served(feed) as board:
            for width, room in ((1440, 236), (390, 116)):
                tab = Tab(browser, board.url, width=width)
                tab.context.add_init_script(f"({WRITTEN})()")
                page = drawn(tab.open("timeline"))
                page.wait_for_function("() => window.written.size >= 20")
                shown = page.evaluate("() => [...window.written.values()]")
                assert len({text for text, _ in shown}) == 20, (width, shown)
                assert max(end for _, end in shown) <= room, (width, shown)
                assert page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth") <= 0
                assert tab.said == []
                tab.close()
    finally:
        feed.close()


def grey(page: Page) -> str:
    return str(page.evaluate("() => getComputedStyle(document.querySelector('.tl-lanes')).filter"))


def test_a_wheel_scrolls_the_page_and_with_ctrl_it_zooms(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url, height=500)
    page = drawn(tab.open("timeline"))
    page.keyboard.press("Home")
    until_address(page, "from=\\d+&to=\\d+")
    wide = told(page)
    page.mouse.move(800, 380)
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => window.scrollY > 50")
    page.wait_for_timeout(300)
    assert told(page) == wide, "the wheel alone moves the page"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"() => Number(new URLSearchParams(location.hash.split('?')[1]).get('from')) > {wide['from']}"
    )
    assert told(page)["to"] - told(page)["from"] < wide["to"] - wide["from"]
    tab.close()


@pytest.mark.parametrize("named", ["from=1e300&to=5&at=x", "to=-1&node=nobody"])
def test_an_address_of_nonsense_is_drawn_all_the_same(browser: Browser, board: Served, named: str) -> None:
    tab = Tab(browser, board.url)
    page = drawn(tab.open(f"timeline?{named}"))
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelector('.tl-list tbody').innerText.includes('leads (term')")
    assert tab.said == []
    tab.close()


def test_the_brush_chooses_what_is_shown(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = drawn(tab.open("timeline"))
    page.keyboard.press("Home")
    until_address(page, "from=\\d+&to=\\d+")
    wide = told(page)
    box = page.locator(".tl-brush").bounding_box()
    assert box is not None
    middle = box["y"] + 20
    page.mouse.move(box["x"] + 108, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, middle, steps=4)
    page.mouse.up()
    page.wait_for_function(f"() => !location.hash.includes('from={wide['from']:.0f}&')")
    found = told(page)
    assert abs(found["to"] - wide["to"]) <= 2
    assert found["from"] > wide["from"] + 0.2 * (wide["to"] - wide["from"])
    tab.close()


def test_a_saved_incident_opens_from_a_disk(browser: Browser, board: Served, tmp_path: Path) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("timeline")
    with page.expect_download() as waiting:
        page.click("text=Save incident")
    assert re.fullmatch(r"primacy-incident-\d{8}T\d{6}Z\.html", waiting.value.suggested_filename)
    file = tmp_path / "incident.html"
    waiting.value.save_as(file)
    tab.close()
    looked_at(browser, file, "billing · scheduler · raft", "e leads (term 6)")


def test_a_trace_opens_from_a_disk(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "trial.html"
    file.write_text(trace_page(recorded(Plan(nodes=3, minutes=1.0), 5)), encoding="utf-8")
    looked_at(browser, file, "raft, 3 nodes, seed 5", "leads (term ")


def looked_at(browser: Browser, file: Path, title: str, event: str) -> None:
    """Offline, narrow and dark: it draws, its keys work, its address leads to the moment, and it asks for nothing."""
    tab = Tab(browser, "", width=390, scheme="dark")
    tab.context.set_offline(True)
    page = tab.page
    page.goto(file.as_uri())
    page.wait_for_selector(f"h1 >> text={title}", timeout=LIMIT_MS)
    page.wait_for_function("() => document.querySelector('.tl-list tbody').innerText !== ''")
    assert inked(page, ".tl-lanes") > 6
    page.click(f'.tl-list tr:has-text("{event}") button')
    page.wait_for_selector(f".tl-picked >> text={event}")
    until_address(page, "at=\\d+")
    before = told(page)
    page.reload()
    page.wait_for_function("() => document.querySelector('.tl-list .picked') !== null")
    assert told(page) == before
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    span = page.inner_text(".tl-span")
    page.reload()
    page.wait_for_function("(text) => document.querySelector('.tl-span').textContent === text", arg=span)
    wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    assert [line for line in tab.said if file.as_uri() not in line] == []
    tab.close()
