"""The page in a real Chromium, fed by an invented cluster: what a person sees, clicks, types and is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import ALL_PAGES, LIMIT_MS, Tab, real_browser
from tests.support.dashboard_feed import KEY, Feed, Served, served

pytestmark = pytest.mark.beside(order=130)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = '<img src=x onerror="document.title=1">'
WORSE = "</script><b>\"'&{{7*7}}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(list("abcde")).start()
    one.story()
    yield one
    one.close()


@pytest.fixture
def lab() -> Iterator[Feed]:
    one = Feed(list("abcde"), lab=True).start()
    one.story()
    one.sign("a", 30)
    yield one
    one.close()


@pytest.fixture
def board(feed: Feed) -> Iterator[Served]:
    with served(feed) as one:
        yield one


@pytest.fixture
def lab_board(lab: Feed) -> Iterator[Served]:
    with served(lab) as one:
        yield one


def expect(page: Page, selector: str, pattern: str) -> None:
    """Waits until it says so."""
    from playwright.sync_api import expect as wait

    wait(page.locator(selector).first).to_have_text(re.compile(pattern), timeout=LIMIT_MS)


def shows(page: Page, words: str) -> None:
    """Waits until they can be read anywhere in it."""
    page.wait_for_function("(words) => document.querySelector('main').innerText.includes(words)", arg=words)


def count(page: Page, selector: str, number: int) -> None:
    """Waits until there are so many: what a page shows may come in several frames."""
    from playwright.sync_api import expect as wait

    wait(page.locator(selector)).to_have_count(number, timeout=LIMIT_MS)


def ground(page: Page) -> str:
    found = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert isinstance(found, str)
    return found


def until_other(page: Page, before: str) -> None:
    """Waits for another ground."""
    page.wait_for_function("(before) => getComputedStyle(document.body).backgroundColor !== before", arg=before)


def overflow(page: Page) -> int:
    found = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert isinstance(found, int)
    return found


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_PAGES)
def test_each_page_loads_without_a_word_on_the_console(browser: Browser, lab_board: Served, name: str) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open(name)
    expect(page, "h1", name.capitalize())
    page.wait_for_timeout(600)
    assert tab.said == []
    tab.close()


def test_R_the_overview_shows_the_version_of_the_members_and_a_change_on_its_way(
    browser: Browser, feed: Feed, board: Served
) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("overview")
    expect(page, ".hero-title", "Running on")
    assert not page.locator(".members").is_visible(), "a node of an earlier version says nothing of them"
    feed.members = {"term": 7, "version": 4, "waits_for": None, "removed_untold": []}
    expect(page, ".members", "^Version 4 of the members\\.$")
    assert not page.locator(".members-change").is_visible()
    waits = "d to be heard (nothing has changed for the others; primacy members cancel) (d as voter, asked for by root)"
    feed.members = {"term": 7, "version": 5, "waits_for": waits, "removed_untold": ["x"]}
    expect(page, ".members-change", "on its way: it waits for d to be heard .* x was removed and not told: keep off")
    assert overflow(page) <= 0
    assert tab.said == []
    tab.close()


def test_R_the_page_of_a_node_shows_that_its_file_differs_from_the_members(
    browser: Browser, feed: Feed, board: Served
) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("nodes")
    expect(page, ".node-title", "Node a")
    assert not page.locator(".members-file").is_visible()
    said = "the file names a,b,c; the members (version 4) are a,b,c,d (d is not in the file): primacy members apply"
    feed.members = {"term": 7, "version": 4, "waits_for": None, "removed_untold": [], "file": said}
    expect(page, ".members-file", f"^{re.escape(said)}$")
    assert overflow(page) <= 0
    feed.members = {**feed.members, "file": None}
    expect(page, ".members-file", "^$")
    assert not page.locator(".members-file").is_visible()
    assert tab.said == []
    tab.close()


def test_the_overview_says_where_the_job_runs_and_what_changed_last(browser: Browser, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open()
    expect(page, ".hero-title", "Running on a")
    expect(page, ".hero-since", r"since \d\d \w{3} \d{4} \d\d:\d\d:\d\d \S+, for 4 min")
    expect(page, ".hold-left", r"\d+ ms of 1,000 ms")
    expect(page, ".change-text", r"a leads \(term 7\)")
    expect(page, ".change-why", "e lost its majority")
    expect(page, 'th[scope="col"] >> nth=3', "Workload")
    expect(page, 'tr[data-node="a"]', "running")
    expect(page, 'tr[data-node="b"]', "stopped")
    for words in (
        "1794700800007",
        "Time between two holders, at least",
        "20 ms",
        "30 recorded, never two signers at once",
    ):
        shows(page, words)
    page.click("summary")
    expect(page, "pre.code", re.escape("********"))
    assert tab.said == []
    tab.close()


def test_two_that_act_and_a_double_signature_are_loud(browser: Browser, lab: Feed, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open()
    running = {"kind": "process", "state": "running", "since": lab.began_ms, "pid": 9, "containment": "weak"}
    lab.extra["b"] = {"role": "leader", "workload": running}
    expect(page, ".banner.alert", "a, b claimed to run the command at the same time")
    expect(page, ".hero-title", "Two nodes claimed to run the command: a, b")
    lab.doubles.append("height 12 has two signers: a and b")
    expect(page, ".banner.alert >> nth=1", "double signature, once: height 12 has two signers")
    tab.close()


def test_a_node_that_dies_and_returns(browser: Browser, feed: Feed, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("nodes")
    page.click('.tab[data-node="c"]')
    expect(page, ".node-title", "Node c")
    feed.down.add("c")
    expect(page, '.tab[data-node="c"] .chip', "silent for")
    expect(page, ".next", "Next: look at its machine")
    feed.down.discard("c")
    expect(page, '.tab[data-node="c"] .chip', "follower")
    assert tab.said == []
    tab.close()


def test_a_node_says_why_it_waits_and_the_raw_document_is_there_on_demand(
    browser: Browser, feed: Feed, board: Served
) -> None:
    feed.paused.add("b")
    tab = Tab(browser, board.url)
    page = tab.open("nodes")
    page.click('.tab[data-node="b"]')
    expect(page, ".wait", "It waits for an operator: primacy resume")
    expect(page, ".next", "Next: primacy resume b")
    page.click('.tab[data-node="a"]')
    expect(page, ".node-panel", "datagrams in")
    page.click("text=Raw state document")
    expect(page, "pre.code", '"api": 1')
    assert tab.said == []
    tab.close()


def test_what_grows_is_shown_with_its_rate(browser: Browser, feed: Feed, board: Served) -> None:
    feed.growing.update(slots_requests=5_000, slots_open=2)
    tab = Tab(browser, board.url)
    page = tab.open("nodes")
    page.click('.tab[data-node="a"]')
    expect(page, '.fact:has-text("slots requests")', r"000 \([0-9,]+ a second\)")
    assert "a second" not in page.inner_text('.fact:has-text("slots open")')
    assert tab.said == []
    tab.close()


# --- events -----------------------------------------------------------------------------------------------------------


def test_events_are_grouped_searched_filtered_followed_and_exported(
    browser: Browser, feed: Feed, board: Served, tmp_path: Path
) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("events")
    expect(page, ".group", r"Term 7 · a led · \d+ events")
    rows = "table.events tbody tr:not(.group)"
    count(page, rows, len(feed.events))
    page.fill("#event-search", "LOST its majority")
    count(page, rows, 1)
    page.fill("#event-search", "")
    page.select_option("#event-node", "e")
    page.select_option("#event-code", "elected")
    count(page, rows, 1)
    expect(page, rows, r"e leads \(term 6\)$")
    page.select_option("#event-code", "")
    count(page, rows, sum(row["node"] == "e" for row in feed.events))
    with page.expect_download() as download:
        page.click("text=Export JSON lines")
    download.value.save_as(tmp_path / "events.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    wanted = [row["text"] for row in feed.events if row["node"] == "e"]
    assert [line["text"] for line in lines] == wanted
    assert lines[0].keys() >= {"at_unix_ms", "node", "term", "code", "text", "value"}
    page.select_option("#event-node", "")
    count(page, rows, len(feed.events))
    feed.tell("d", "paused", "d is paused and stands back (term 7)")
    expect(page, f"{rows} >> nth=0", "d is paused and stands back")
    page.click('label:has-text("Follow")')
    feed.tell("d", "recovered", "d came while nobody followed")
    page.wait_for_selector("text=Show 1 new")
    assert page.locator("text=d came while nobody followed").count() == 0
    page.click("text=Show 1 new")
    expect(page, f"{rows} >> nth=0", "d came while nobody followed")
    assert tab.said == []
    tab.close()


# --- looks ------------------------------------------------------------------------------------------------------------


def test_light_dark_and_the_switch_that_is_remembered(browser: Browser, board: Served) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        tab = Tab(browser, board.url, scheme=scheme)
        page = tab.open()
        grounds[scheme] = ground(page)
        page.click('button[aria-label$="colours"]')
        until_other(page, grounds[scheme])
        page.reload()
        page.wait_for_selector('.live[data-state="live"]')
        assert ground(page) != grounds[scheme]
        assert tab.said == []
        tab.close()
    assert grounds["light"] != grounds["dark"]


CROWDED = """() => {
  const texts = [], walker = document.createTreeWalker(document.querySelector(".shell"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility() || element.closest("svg, .unseen, noscript, .code")) continue;
    const hidden = (e) => e && (getComputedStyle(e).clipPath !== "none" || getComputedStyle(e).position === "fixed");
    if (hidden(element.closest(".nav")) || hidden(element.closest("thead"))) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) texts.push({ box, element, words: node.data.trim().slice(0, 40) });
  }
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const bad = [];
  texts.forEach((one, at) => {
    for (const other of texts.slice(at + 1))
      if (one.element !== other.element && meet(one.box, other.box)) bad.push(`${one.words} / ${other.words}`);
  });
  for (const each of document.querySelectorAll(".scroll, .card, .button"))
    if (each.checkVisibility() && each.scrollWidth > each.clientWidth + 1) bad.push(`cut off: ${each.className}`);
  return bad;
}"""


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_page_fits_its_screen(browser: Browser, lab_board: Served, name: str) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open(name)
    for width in (380, 700, 900, 1024, 1200, 1440, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        for _ in range(100):  # until it is drawn
            page.wait_for_timeout(120)
            if overflow(page) <= 0 and page.evaluate(CROWDED) == []:
                break
        assert overflow(page) <= 0, width
        assert page.evaluate(CROWDED) == [], width
        assert page.locator("nav a").count() == len(ALL_PAGES)
        assert page.locator("nav a").first.is_visible()
    assert tab.said == []
    tab.close()


# --- strangers --------------------------------------------------------------------------------------------------------


def test_a_hostile_name_is_text_on_every_page(browser: Browser) -> None:
    feed = Feed([HOSTILE, WORSE, "c"]).start()
    feed.story()
    feed.tell(HOSTILE, HOSTILE, f"{HOSTILE} says {WORSE}")
    feed.alerts.append(f"alert about {HOSTILE}")
    feed.extra["c"] = {"waits_for": HOSTILE, "health": f"failing: {WORSE}", "version": HOSTILE}
    try:
        with served(feed) as board:
            tab = Tab(browser, board.url, width=380)
            for name in ALL_PAGES:
                page = tab.open(name)
                shows(page, "<img src=x")
                page.wait_for_timeout(300)
                assert page.locator("main img, main b:has-text('{{')").count() == 0
                assert page.title() != "1"
                assert overflow(page) <= 0, name
            assert tab.said == []
            tab.close()
    finally:
        feed.close()


def test_no_control_without_the_key(browser: Browser, feed: Feed, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("network")
    page.wait_for_selector(".knot")
    expect(page, ".panel", "Read only")
    count(page, "main button:visible", 0)
    page.click("text=Sign in")
    page.fill("#control-key", "0" * 64)
    page.click("dialog button[type=submit]")
    expect(page, ".toast.bad", "not the control key")
    page.click("text=Sign in")
    page.fill("#control-key", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-act="Step down"]:visible')
    for word in ("Kill", "Stop", "Freeze"):
        assert not page.locator(f'[data-act="{word}"]').is_visible(), "faults are for the lab"
    page.click('[data-act="Pause"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome", "a is paused: it will not lead.")
    assert feed.orders == [("/v1/pause", {"node": "a"})]
    assert page.evaluate("() => document.cookie") == "", "no script can read the cookie"
    page.click("text=Sign out")
    expect(page, ".panel", "Read only")
    count(page, "main button:visible", 0)
    tab.close()


def test_the_printed_link_signs_in_once_and_leaves_no_trace(browser: Browser, board: Served) -> None:
    code = board.code()
    tab = Tab(browser, board.url)
    tab.page.goto(f"{board.url}#enter={code}")
    tab.page.wait_for_selector("text=Sign out")
    assert code not in tab.page.url
    other = Tab(browser, board.url)
    other.page.goto(f"{board.url}#enter={code}")
    expect(other.page, ".toast.bad", "the link was used or is too old")
    tab.close()
    other.close()


def test_a_winner_that_waits_for_a_person_is_approved_here(browser: Browser, feed: Feed, board: Served) -> None:
    workload = {"kind": "process", "state": "waiting", "since": None, "pid": None, "containment": "strong"}
    feed.extra["a"] = {"waits_for": "an approval: primacy approve a --term 7", "workload": workload}
    tab = Tab(browser, board.url)
    tab.page.goto(f"{board.url}#enter={board.code()}")
    tab.page.wait_for_selector("text=Sign out")
    page = tab.open("nodes")
    expect(page, ".next", "Next: primacy approve a --term 7")
    page = tab.open("network")
    page.click('[data-act="Approve"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome", "a was approved for term 7")
    assert feed.orders == [("/v1/approve", {"node": "a", "term": 7})]
    tab.close()


# --- controls ---------------------------------------------------------------------------------------------------------


def test_it_asks_before_it_hurts_and_says_what_came_of_it(browser: Browser, lab: Feed, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open("network")
    page.click('.knot[data-node="b"]')
    page.click('[data-act="Kill"]')
    expect(page, "dialog h2", "Kill node b")
    page.keyboard.press("Escape")
    assert lab.orders == []
    page.click('[data-act="Kill"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome", "The agent of b was killed")
    assert lab.orders == [("/v1/lab/b/kill", {})]
    page.wait_for_selector('.knot[data-node="b"][data-tone="down"]')
    page.click('[data-act="Start"]')
    page.wait_for_selector('.knot[data-node="b"][data-tone="follower"]')
    lab.refuse = "node b is frozen already"
    page.click('[data-act="Freeze"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome.bad", "node b is frozen already")
    tab.close()


def test_links_are_broken_made_one_way_and_mended(browser: Browser, lab: Feed, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open("network")
    page.click('.knot[data-node="b"]')
    for word, cut, state in (
        ("One-way", {("c", "b")}, "one way: c hears b"),
        ("Break", {("b", "c"), ("c", "b")}, "broken"),
    ):
        page.click(f'.link-row[data-other="c"] >> text={word}')
        page.click("dialog button[type=submit]")
        expect(page, '.link-row[data-other="c"] .chip', state)
        assert lab.cut == cut
    page.click('.link-row[data-other="c"] >> text=Mend')
    expect(page, '.link-row[data-other="c"] .chip', "open")
    assert lab.cut == set()
    page.click('[data-shape="halves"]')
    page.click("dialog button[type=submit]")
    expect(page, "#outcome", "The network is divided: no side has a majority")
    page.click('[data-act="heal"]')
    expect(page, "#outcome", "All links are mended")
    assert [path for path, _ in lab.orders][-2:] == ["/v1/lab/partition", "/v1/lab/heal"]
    tab.close()


def test_everything_by_keyboard_alone(browser: Browser, lab: Feed, lab_board: Served) -> None:
    """From the top of the page to a killed node and back, without a pointer."""
    tab = Tab(browser, lab_board.url)
    page = tab.open()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.dataset.page") == "network":
            break
    page.keyboard.press("Enter")
    expect(page, "h1", "Network")
    page.wait_for_function("() => document.activeElement.id === 'main'")
    _tab_to(page, "() => document.activeElement.dataset.node")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.dataset.node === 'c'")
    page.keyboard.press("Enter")
    expect(page, ".panel .node-title", "Node c")
    _tab_to(page, "() => document.activeElement.dataset.act === 'Kill'")
    page.keyboard.press("Enter")
    expect(page, "dialog h2", "Kill node c")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page, "#outcome", "The agent of c was killed")
    assert lab.orders == [("/v1/lab/c/kill", {})]
    page.goto(f"{lab_board.url}#/nodes")
    page.wait_for_selector(".tab")
    page.focus('.tab[aria-selected="true"]')
    page.keyboard.press("End")
    expect(page, ".node-title", "Node e")
    tab.close()


def _tab_to(page: Page, check: str, most: int = 60) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(check):
            return
    raise AssertionError(f"no Tab leads there: {check}")


def test_a_screen_reader_finds_names_for_everything(browser: Browser, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    for name in ALL_PAGES:
        page = tab.open(name)
        page.wait_for_timeout(200)
        nameless: Any = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, select, [role=button], [role=tab], [role=meter]')]
            .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim()
              || (e.labels && e.labels.length) || e.title)).map((e) => e.outerHTML.slice(0, 90))"""
        )
        assert nameless == []
        assert page.locator("h1").count() == 1
        assert page.locator('nav a[aria-current="page"]').count() == 1
    expect(page, "#spoken", "^Running on a$")
    tab.close()


# --- when the server goes ---------------------------------------------------------------------------------------------


def test_a_page_left_open_while_the_server_restarts(browser: Browser, feed: Feed, board: Served) -> None:
    tab = Tab(browser, board.url)
    page = tab.open("events")
    rows, before = "table.events tbody tr:not(.group)", len(feed.events)
    count(page, rows, before)
    board.stop()
    expect(page, ".banner.bad", r"does not answer\. Since \d\d \w{3} \d{4} \d\d:\d\d:\d\d")
    expect(page, ".live", "server gone")
    feed.tell("b", "paused", "b is paused while the page was blind")
    board.start()
    page.wait_for_selector('.live[data-state="live"]')
    page.wait_for_selector("text=b is paused while the page was blind")
    count(page, rows, before + 1)
    page.wait_for_selector(".banner.bad", state="hidden")
    errors = [line for line in tab.said if "Failed to load resource" not in line and "asked elsewhere" not in line]
    assert errors == []
    tab.close()


def test_a_page_left_open_after_everything_has_ended(browser: Browser, lab: Feed, lab_board: Served) -> None:
    tab = Tab(browser, lab_board.url)
    page = tab.open("network")
    page.wait_for_selector(".knot")
    lab.stop()
    expect(page, ".banner.warn", "The cluster is not seen")
    lab_board.stop()
    expect(page, ".banner.bad", "What you see is how things stood then")
    assert page.locator('[data-picture="mend"]').is_disabled(), "a page that knows nothing changes nothing"
    lab.start()
    tab.close()
