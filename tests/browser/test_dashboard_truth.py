"""The page under faults, fed by an invented cluster: colours that tell the truth, addresses, long names, sizes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.test_dashboard_browser import count, expect, overflow
from tests.support.browser import ALL_PAGES, PAGES, Tab, real_browser
from tests.support.canary import Canary
from tests.support.dashboard_feed import Feed, Served, served, wall_ms

pytestmark = pytest.mark.beside(order=145)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

GREEN = Path(__file__).with_name("green.js").read_text()
HEARTBEAT_MS = 250
STALE_S = 3
HEARD_MS = 380
"""How old what the feed says of another node is."""
LONG = [f"eu-west-1{zone}-scheduler-{number:02d}" for zone in "abcd" for number in range(1, 6)]
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture
def lab() -> Iterator[Feed]:
    one = Feed(list("abcde"), lab=True).start()
    one.story()
    one.sign("a", 12)
    yield one
    one.close()


@pytest.fixture
def board(lab: Feed) -> Iterator[Served]:
    with served(lab) as one:
        yield one


def level(page: Page, wanted: str) -> None:
    page.wait_for_selector(f'.strip[data-level="{wanted}"]')


def green(page: Page) -> Any:
    return page.evaluate(GREEN)


def icon(page: Page) -> str:
    return str(page.evaluate("() => document.querySelector('link[rel=icon]').getAttribute('href')"))


# --- colours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_green_without_a_holder(browser: Browser, lab: Feed, board: Served, scheme: str) -> None:
    """On every page, in every fault. The check itself sees green where there is a holder."""
    tab = Tab(browser, board.url, scheme=scheme)
    page = tab.open("network")
    level(page, "ok")
    assert green(page) != []
    assert page.title().startswith("● a runs · Network · billing")
    lab.frozen.add("a")
    lab.extra = {name: {"leader": None} for name in "bcde"}
    not_shown = '.knot[data-node="a"] .knot-work:is([data-acts="unknown"], [data-acts="over"])'
    page.wait_for_selector(not_shown, state="attached")  # over, as a slow machine may find it at once, is not drawn
    assert green(page) == []
    page.wait_for_selector('.strip-holder[data-level="warn"] >> text=Nobody runs the command: no node leads yet')
    assert green(page) == []
    lab.down |= {"b", "c"}
    level(page, "bad")
    expect(page, ".strip-holder", "Nobody runs the command: 2 of 5 nodes up, 3 needed")
    assert (page.title()[0], icon(page)) == ("✖", "/dashboard/static/favicon-bad.svg")
    for name in PAGES:
        tab.open(name)
        page.wait_for_selector("#page > *")
        page.wait_for_timeout(150)
        assert green(page) == [], name
    lab.down |= set("abcde")
    lab.frozen.clear()
    expect(page, ".strip-holder", "All 5 nodes are stopped: nobody runs the command")
    assert page.locator(".banner.warn").is_hidden(), "that nodes are stopped is known: they are not unseen"
    assert green(page) == []
    assert tab.said == []
    tab.close()


@pytest.mark.parametrize(("strategy", "late_s"), [("raft", 0), ("lease", 0), ("lease", 0.9)])
def test_two_rows_that_both_say_leader_are_one_holder_on_the_page(
    browser: Browser, strategy: str, late_s: float
) -> None:
    """As after every handover: the old one's row is older than the new one's start. Then the old one is heard again.

    Also where the question was asked before the handover, and is answered after it.
    """
    feed = Feed(list("abcde")).start()
    feed.strategy, feed.leader = strategy, "b"  # a is the one that is read, and hears of the others
    feed.story()
    try:
        with served(feed) as board:
            tab = Tab(browser, board.url)
            page = tab.open("network")
            level(page, "ok")
            page.evaluate(Path(__file__).with_name("samples.js").read_text())
            for new in ("c", "d", "c"):
                old, feed.late_s = feed.leader, late_s
                page.wait_for_timeout(600 * late_s)
                feed.old[old] = wall_ms() - HEARD_MS, feed.row(old, "a")
                feed.move_to(new)
                feed.late_s = 0
                page.wait_for_selector(f'.strip-node:text-is("{new}")')
                page.wait_for_timeout(300)
                feed.old.pop(old)
                page.wait_for_selector(f'.knot[data-node="{old}"][data-tone="follower"]')
            for sample in page.evaluate("() => window.samples"):
                assert len(sample["acts"]) <= 1, sample
                assert len(sample["leaders"]) <= 1, sample
                assert sample["holder"] != "ok" or sample["acts"] == [sample["node"]], sample
            tab.close()
    finally:
        feed.close()


def test_a_double_signature_turns_everything_red(browser: Browser, lab: Feed, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("overview")
    level(page, "ok")
    lab.doubles.append("height 12 has two signers: a and b")
    expect(page, ".strip-holder", "Two nodes signed at once")
    assert (page.title()[0], icon(page)) == ("✖", "/dashboard/static/favicon-bad.svg")
    for name in ALL_PAGES:
        tab.open(name)
        page.wait_for_selector("#page > *")
        page.wait_for_timeout(150)
        assert green(page) == [], name
    tab.close()


DRAWN = """(tone) => [...document.querySelectorAll(`.map .knot[data-tone="${tone}"]`)].map((knot) => {
  const [r, g, b] = getComputedStyle(knot.querySelector(".knot-body")).stroke.match(/\\d+/g).map(Number);
  return [knot.dataset.node, r > g + 60 && r > b + 60 ? "red" : "calm"];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_leaders_of_bully_are_shown_as_two_and_nothing_is_green(
    browser: Browser, lab: Feed, board: Served, scheme: str
) -> None:
    """No promise is broken, and two act: on every page, from the first picture of a page that begins meanwhile."""
    lab.strategy, lab.at_most_one = "bully", False
    tab = Tab(browser, board.url, scheme=scheme)
    page = tab.open("network")
    level(page, "ok")
    assert green(page) != []
    lab.parts = {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    lab.cut = {(one, other) for one in "abc" for other in "de"} | {(one, other) for one in "de" for other in "abc"}
    expect(page, ".strip-holder", "2 parts: a leads b, c · d leads e")
    for name in "ad":
        page.wait_for_selector(f'.knot[data-node="{name}"][data-tone="leader"] .knot-work[data-acts="acts"]')
    assert page.evaluate(DRAWN, "leader") == [["a", "red"], ["d", "red"]]
    assert page.evaluate(DRAWN, "follower") == [[name, "calm"] for name in "bce"], "they are cut off, and no trouble"
    assert (page.title()[:9], icon(page)) == ("✖ divided", "/dashboard/static/favicon-bad.svg")
    assert page.inner_text(".strip-margin") == "5 of 5 nodes up"
    page.wait_for_selector("#banners .banner.bad >> text=a and d lead, each in its part")
    later = Tab(browser, board.url, scheme=scheme)
    for name in ALL_PAGES:
        for each in (tab, later):
            each.open(name)
            each.page.wait_for_selector("#page > *")
            level(each.page, "bad")
            each.page.wait_for_timeout(150)
            assert green(each.page) == [], name
    later.page.goto(board.url.replace("/dashboard", "/embed/status"))
    expect(later.page, ".strip-holder", "2 parts: a leads b, c · d leads e")
    assert green(later.page) == []
    later.close()
    lab.parts.clear()
    lab.cut.clear()
    expect(page, ".strip-holder", "One holder: a")
    assert green(page) != []
    assert tab.said == []
    tab.close()


def test_the_margin_is_green_yellow_at_zero_and_red_without_a_majority(
    browser: Browser, lab: Feed, board: Served
) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("overview")
    for down, colour, words in (
        ("e", "ok", "4 of 5 nodes up, 1 more may fail"),
        ("de", "warn", "3 of 5 nodes up, none more may fail"),
        ("cde", "bad", "2 of 5 nodes up, 3 needed"),
    ):
        lab.down = set(down)
        expect(page, f'.strip-margin[data-level="{colour}"]', words)
    level(page, "bad")
    tab.close()


def test_a_page_without_its_server_is_stale_at_once(browser: Browser, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("network")
    level(page, "ok")
    with Canary(HEARTBEAT_MS) as canary:
        board.stop()
        stopped_s = time.monotonic()
        level(page, "stale")
        took_s = time.monotonic() - stopped_s
    canary.judge(took_s < STALE_S, f"the page was stale after {took_s:.1f} s, {STALE_S} are wanted")
    assert green(page) == []
    assert page.title().startswith("… not known, server gone")
    assert page.locator("main button:enabled:visible, .strip button:enabled").count() == 0, "controls are off"
    page.wait_for_timeout(100)  # a few frames, in which what was counted is taken away
    before = page.inner_text(".shell")
    page.wait_for_timeout(1_300)
    assert page.inner_text(".shell") == before, "no time is counted"
    page.goto(f"{board.url}#/timeline")
    expect(page, ".timeline-page .outcome", "the server was gone before it told what happened")
    page.goto(f"{board.url}#/overview")
    board.start()
    level(page, "ok")
    page.wait_for_selector("text=Running on a")
    tab.close()


FROZEN = "Not known whether the command runs: a is frozen"
NOTE_WHAT_IS_SHOWN = """() => {
  const text = (selector) => document.querySelector(selector)?.textContent || "";
  window.shown = [];
  const cell = 'tr[data-node="a"] td:nth-of-type(3)';
  const note = () => window.shown.push([text(".hero-title"), text(".hero-since"), text(cell)]);
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


def test_the_bar_of_a_holder_that_is_lost_runs_out(browser: Browser, lab: Feed, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("overview")
    expect(page, ".hero-title", "Running on a")
    page.evaluate(NOTE_WHAT_IS_SHOWN)  # the hold is short, and whoever looks from outside may look too late
    lab.frozen.add("a")
    lab.extra = {name: {"leader": None} for name in "bcde"}
    expect(page, ".hold-left", "no hold known")
    expect(page, 'tr[data-node="a"] td >> nth=2', "^was running$")
    not_known = [(since, cell) for title, since, cell in page.evaluate("() => shown") if FROZEN in title]
    assert any("Its hold runs out; until then the command may still live" in since for since, _ in not_known), not_known
    assert any("not known, was running" in cell for _, cell in not_known), not_known
    tab.close()


# --- addresses --------------------------------------------------------------------------------------------------------


def test_everything_that_is_shown_stands_in_the_address_and_survives_a_reload(
    browser: Browser, lab: Feed, board: Served
) -> None:
    tab = Tab(browser, board.url)
    page = tab.page
    page.goto(f"{board.url}?node=c")
    expect(page, ".node-title", "Node c")
    assert page.url.endswith("#/nodes?node=c")
    page.click('.tab[data-node="d"]')
    page.reload()
    expect(page, ".node-title", "Node d")
    page.click("text=Its events")
    rows = "table.events tbody tr:not(.group)"
    count(page, rows, sum(row["node"] == "d" for row in lab.events))
    page.select_option("#event-code", "follows")
    page.fill("#event-search", "term 7")
    count(page, rows, 1)
    page.click('label:has-text("Group by term")')
    page.reload()
    count(page, rows, 1)
    assert page.input_value("#event-search") == "term 7"
    assert not page.is_checked("#event-grouped")
    page.go_back()
    expect(page, ".node-title", "Node d")
    tab.open("network")
    page.click('.knot[data-node="e"]')
    page.reload()
    expect(page, ".panel .node-title", "Node e")
    page.click(".panel >> text=Details")
    expect(page, ".node-title", "Node e")
    page.click(".strip-change")
    expect(page, "h1", "Events")
    assert re.search(r"#/events\?from=\d+&to=\d+$", page.url)
    count(page, f'{rows}[data-code="elected"]', 1)
    page.select_option("#event-time", "")
    count(page, rows, len(lab.events))
    assert page.url.endswith("#/events")
    assert tab.said == []
    tab.close()


def test_what_a_person_did_is_the_last_change(browser: Browser, lab: Feed, board: Served) -> None:
    lab.tell("b", "lab", "the lab stops node b, asked for by the dashboard", term=0)
    tab = Tab(browser, board.url)
    page = tab.open("overview")
    expect(page, ".change-text", "the lab stops node b, asked for by the dashboard")
    expect(page, ".strip-change", "last change .*: the lab stops node b, asked for by the dashboard")
    tab.close()


@pytest.mark.parametrize(
    ("days", "said"), [(0, r"\d\d:\d\d:\d\d"), (1, r"\d\d \w+ \d\d:\d\d:\d\d"), (400, r"\d\d \w+ \d{4} \d\d:\d\d:\d\d")]
)
def test_a_change_that_was_not_today_has_its_date(browser: Browser, days: int, said: str) -> None:
    """In the strip, in that for a wall and below the map. The title has it always, with the zone."""
    feed = Feed(list("abcde")).start()
    feed.story()
    feed.move_to("b")
    for row in feed.events:
        row["at_unix_ms"] -= days * 86_400_000
    try:
        with served(feed) as board:
            tab = Tab(browser, board.url)
            page = tab.open("network")
            expect(page, ".strip-change", rf"^last change {said}: a steps down")
            title = page.get_attribute(".strip-change", "title") or ""
            assert re.match(r"last change \d\d \w+ \d{4} \d\d:\d\d:\d\d [A-Z][A-Z0-9:+-]+: a steps down", title)
            expect(page, ".feed time", rf"^{said}\.\d{{3}}$")
            page.goto(board.url.replace("/dashboard", "/embed/status"))
            expect(page, ".strip-change", rf"^last change {said}: a steps down")
            assert tab.said == []
            tab.close()
    finally:
        feed.close()


def test_transfer_is_offered_only_where_it_can_work(browser: Browser, lab: Feed, board: Served) -> None:
    lab.paused.add("b")
    lab.extra = {"c": {"kind": "observer"}, "d": {"health": "failing: no answer"}}
    tab = Tab(browser, board.url)
    page = tab.open("network")
    for node, offered in (("a", False), ("b", False), ("c", False), ("d", False), ("e", True)):
        page.click(f'.knot[data-node="{node}"]')
        expect(page, ".panel .node-title", f"Node {node}")
        assert page.locator('[data-act="Transfer here"]').is_visible() is offered, node
    lab.frozen.add("a")
    page.wait_for_selector('[data-act="Transfer here"]', state="hidden")
    tab.close()


# --- names and sizes --------------------------------------------------------------------------------------------------


LABELS = """() => {
  const boxes = [...document.querySelectorAll(".map .knot text")].filter((e) => e.textContent)
    .map((e) => ({ box: e.getBoundingClientRect(), words: e.textContent }));
  const map = document.querySelector(".map").getBoundingClientRect(), bad = [];
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  boxes.forEach((one, at) => {
    const { left, right, top } = one.box;
    if (left < map.left || right > map.right || top < map.top) bad.push(`outside: ${one.words}`);
    for (const other of boxes.slice(at + 1)) if (meet(one.box, other.box)) bad.push(`${one.words} / ${other.words}`);
  });
  return bad;
}"""
SHORT = (
    """([names, most]) => import("/dashboard/static/names.js").then((it) => [...it.shortNames(names, most).values()])"""
)


@pytest.mark.parametrize("count", [6, 7])
def test_a_few_long_names_stay_apart_on_a_phone(browser: Browser, count: int) -> None:
    """Too few for the way of many, and too long to stand under each other."""
    feed = Feed([f"eu-{number}-scheduler-of-the-billing-node-nr-{number}" for number in range(count)], lab=True).start()
    feed.story()
    try:
        with served(feed) as board:
            tab = Tab(browser, board.url, width=390)
            for name in ("network", "timeline"):
                page = tab.open(name)
                page.wait_for_function("(count) => document.querySelectorAll('.map .knot').length === count", arg=count)
                page.wait_for_function(f"() => ({LABELS})().length === 0")
            tab.close()
    finally:
        feed.close()


def test_twenty_long_names_stay_readable_and_different(browser: Browser) -> None:
    feed = Feed(LONG, lab=True).start()
    feed.story()
    try:
        with served(feed) as board:
            for width in (1440, 900, 390):
                tab = Tab(browser, board.url, width=width)
                page = tab.open("network")
                page.wait_for_selector(f'.knot[data-node="{LONG[19]}"] text')
                page.wait_for_timeout(200)
                assert page.evaluate(LABELS) == [], width
                shown = page.evaluate("() => [...document.querySelectorAll('.knot-name')].map((e) => e.textContent)")
                assert len(set(shown)) == 20, shown
                for name in ALL_PAGES if width == 390 else ():
                    tab.open(name)
                    page.wait_for_selector("#page > *")
                    page.wait_for_timeout(100)
                    assert overflow(page) <= 0, (name, width)
                if width == 1440:
                    for most in (9, 12, 16, 24):
                        short = page.evaluate(SHORT, [LONG, most])
                        assert len(set(short)) == 20, short
                        assert max(map(len, short)) <= most
                    odd = ["a", "a-very-long-name-that-differs-1-in-the-middle-only", HOSTILE]
                    odd.append("a-very-long-name-that-differs-2-in-the-middle-only")
                    assert len(set(page.evaluate(SHORT, [odd, 12]))) == 4
                    assert page.evaluate(SHORT, [["a", "bc"], 12]) == ["a", "bc"]
                assert tab.said == []
                tab.close()
    finally:
        feed.close()


SHIFT = """() => {
  window.shift = 0;
  const add = (e) => { if (!e.hadRecentInput) window.shift += e.value; };
  new PerformanceObserver((list) => list.getEntries().forEach(add))
    .observe({ type: "layout-shift", buffered: true });
}"""


SMALL = """() => [...document.querySelectorAll("a, button, input, select, summary, [role=tab], .check, .map .knot")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest(".skip, .step-text"))
  .filter((e) => e.type !== "checkbox")
  .map((e) => ({ box: e.getBoundingClientRect(), words: e.outerHTML.slice(0, 100) }))
  .filter(({ box }) => box.width && (box.height < 43.5 || box.width < 43.5)).map(({ box, words }) =>
    `${Math.round(box.width)} x ${Math.round(box.height)}: ${words}`)"""


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_moves_while_a_page_loads_the_map_fits_and_fingers_hit(
    browser: Browser, board: Served, width: int
) -> None:
    tab = Tab(browser, board.url, width=width)
    expect(tab.open("overview"), ".change-text", "a leads")  # what a server says in its first second may come in parts
    for name in ALL_PAGES:
        page = tab.page
        with Canary(HEARTBEAT_MS) as canary:  # a machine that stands still lets the page say for a moment that it does
            page.goto("about:blank")
            page.goto(f"{board.url}#/{name}")
            page.evaluate(SHIFT)
            level(page, "ok")
            page.wait_for_timeout(400)
            shift = page.evaluate("() => window.shift")
        canary.judge(shift < 0.05, f"{name} moved by {shift:.3f} while it loaded")
        if width < 500:
            assert page.evaluate(SMALL) == [], name
    page = tab.open("network")
    page.wait_for_selector(".knot")
    bottom = page.evaluate("() => document.querySelector('.map svg').getBoundingClientRect().bottom + scrollY")
    assert bottom <= 900
    tab.close()


COVERED = """() => {
  const box = document.querySelector(".toast").getBoundingClientRect();
  const words = (e) => !e.children.length && e.textContent.trim() && e.checkVisibility();
  const meet = (b) => Math.min(b.right, box.right) - Math.max(b.left, box.left) > 1
    && Math.min(b.bottom, box.bottom) - Math.max(b.top, box.top) > 1;
  return [...document.querySelectorAll("main *, nav a, .strip *")].filter(words)
    .filter((e) => meet(e.getBoundingClientRect())).map((e) => e.outerHTML.slice(0, 80));
}"""


def test_an_outcome_covers_nothing(browser: Browser, lab: Feed, board: Served) -> None:
    for width, height in ((1440, 900), (390, 844)):
        tab = Tab(browser, board.url, width=width, height=height)
        page = tab.open("network")
        page.click('[data-act="heal"]')
        page.wait_for_selector(".toast")
        covered = page.evaluate(COVERED)
        assert covered == [], width
        tab.close()
