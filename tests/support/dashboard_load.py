"""How the page and its server bear load: 20 nodes with long names, 200 events a second, a day of history. Measured in a
real Chromium.

Two goals, which are void beside a late canary: of twenty pictures nineteen come within 50 ms, and the first view of a
page within a second. They are measured apart from the memory: looking at that is work for the page.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from primacy.settings.timing import PROFILES
from tests.support.browser import Tab
from tests.support.canary import VOIDS, Canary
from tests.support.dashboard_feed import Feed, Served, served, wall_ms
from tests.support.history_day import BURST_AGO_MS, make_day

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODES = 20
NAMES = [f"scheduler-{at:02}.payments.europe-west.site" for at in range(NODES)]
EVENTS_PER_S = 200
FRAME_P95_MS = 50
FIRST_VIEW_MS = 1_000
WAITED_MAX = 0.6
"""A browser, its server and what feeds it wait for each other for less than that on two processors of their own."""
FRAMES_S = 2.0
"""A hundred pictures or so."""
HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
WATCHERS = 30
SETTLE_S = 1.0
"""For those who came to be sent all that went before."""
LOOKS = 24
HEAP_RISE_BYTES = 400_000
NODES_RISE = 800
LISTENERS_RISE = 100

WATCH = """() => {
  window.measured = { longest: 0, frames: [], last: 0 };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) measured.longest = Math.max(measured.longest, entry.duration);
  }).observe({ type: "longtask" });
  const frame = (now) => {
    if (measured.last) measured.frames.push(now - measured.last);
    if (measured.frames.length > 20000) measured.frames.shift();
    measured.last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""
FIRST = """() => {
  const look = () => {
    const strip = document.querySelector(".strip"), page = document.querySelector("#page > :not(.waiting)");
    if (page && strip && !["unknown", "stale"].includes(strip.dataset.level)) window.firstView = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
"""When the strip says how things stand and the page has something in it, since the address was opened."""


class Growth(NamedTuple):
    """Of the page's memory over the second half of a run, after its rubbish was collected.

    The page holds a bounded number of events, and holds that many before the run begins: whatever grows with the
    number of events that came is a leak. Elements are counted apart, for the heap does not hold them. A rise is the
    slope over the half, times its length.
    """

    events: int
    heap_bytes: int
    nodes: int
    listeners: int
    heap_rise: float
    nodes_rise: float
    listeners_rise: float


class Load(NamedTuple):
    """What was measured on one page."""

    page: str
    seconds: float
    longest_task_ms: float
    """Of the page's main thread; 0 if none was longer than 50 ms."""
    frame_ms: float
    """Mean time between two pictures."""
    empty_frame_ms: float
    """The same of an empty page in the same browser, just before."""
    growth: Growth
    events: int

    def sentence(self) -> str:
        grown = self.growth
        return (
            f"{self.page:<9} {self.seconds:.0f} s, {self.events:,} events: longest task {self.longest_task_ms:.0f} ms, "
            f"frame {self.frame_ms:.1f} ms (empty page {self.empty_frame_ms:.1f} ms); memory over the second half: "
            f"heap {grown.heap_bytes / 1e6:.2f} MB {grown.heap_rise / 1e6:+.2f} MB "
            f"({grown.heap_rise / grown.events:+.1f} bytes an event), "
            f"elements {grown.nodes:,} {grown.nodes_rise:+.0f}, "
            f"listeners {grown.listeners:,} {grown.listeners_rise:+.0f}"
        )


class Cost(NamedTuple):
    """Of the server, in thousandths of one processor and in bytes."""

    alone_mill: float
    """With one browser."""
    each_more_mill: float
    """For every further one."""
    bytes_per_s: float
    """Sent to each."""


@contextmanager
def crowd() -> Iterator[Feed]:
    """With a bad day behind it, and as many events as a page holds."""
    feed = Feed(NAMES).start()
    try:
        with tempfile.TemporaryDirectory() as place:
            feed.history_until_ms = wall_ms()
            feed.history_folder = make_day(Path(place) / "state", feed.history_until_ms, NAMES).folder
            for number in range(3_000):
                node = NAMES[number % NODES]
                feed.tell(node, "follows", f"{node} follows {NAMES[0]} for the {number}th time")
            yield feed
    finally:
        feed.close()


class Pouring:
    """Events at a steady pace, until told to end."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.count = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._pour, daemon=True)
        self.thread.start()

    def _pour(self) -> None:
        began = time.monotonic()
        while not self.over.wait(0.02):
            while self.count < (time.monotonic() - began) * EVENTS_PER_S:
                node = NAMES[self.count % NODES]
                code = ("follows", "campaigns", "promise-refused", "elected")[self.count % 4]
                self.feed.tell(node, code, f"{node} does it for the {self.count}th time", term=7 + self.count // 2_000)
                self.count += 1

    def end(self) -> int:
        self.over.set()
        self.thread.join()
        return self.count


def measure(browser: Browser, board: Served, feed: Feed, name: str, seconds: float) -> Load:
    empty = browser.new_page()
    empty.evaluate(WATCH)
    empty.wait_for_timeout(1_000)
    empty_frame_ms = _mean(empty.evaluate("() => measured.frames"))
    empty.close()
    tab = Tab(browser, board.url)
    page = tab.open(name)
    page.wait_for_timeout(500)
    pouring = Pouring(feed)
    page.wait_for_timeout(1_000)
    page.evaluate(WATCH)
    growth = grows(tab, page, seconds)
    found: Any = page.evaluate("() => measured")
    events = pouring.end()
    assert tab.said == []
    tab.close()
    return Load(name, seconds, found["longest"], _mean(found["frames"]), empty_frame_ms, growth, events)


def grows(tab: Tab, page: Page, seconds: float) -> Growth:
    """Looks at the memory again and again while the page works. Collecting rubbish is a task, and counts as one."""
    session = tab.context.new_cdp_session(page)
    began_s = time.monotonic()
    looks: list[tuple[float, int, int, int]] = []
    for number in range(1, LOOKS + 1):
        page.wait_for_timeout(max(0.0, 1_000 * (began_s + number * seconds / LOOKS - time.monotonic())))
        session.send("HeapProfiler.collectGarbage")
        heap, dom = session.send("Runtime.getHeapUsage"), session.send("Memory.getDOMCounters")
        looks.append((time.monotonic() - began_s, heap["usedSize"], dom["nodes"], dom["jsEventListeners"]))
    session.detach()
    half = looks[LOOKS // 2 :]
    half_s = half[-1][0] - half[0][0]
    rises = [half_s * slope([(look[0], look[column]) for look in half]) for column in (1, 2, 3)]
    return Growth(round(half_s * EVENTS_PER_S), *half[-1][1:], *rises)


def slope(points: list[tuple[float, float]]) -> float:
    """By which it rises in a second: the median over all pairs, so that a single odd look does not matter."""
    pairs = [(b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(points) for b in points[at + 1 :]]
    return statistics.median(pairs)


def cost(board: Served, feed: Feed, seconds: float) -> Cost:
    """Streams that read as fast as they can, as browsers do: one, then many more."""
    pouring = Pouring(feed)
    first = Reader(board)
    time.sleep(SETTLE_S)
    alone = _spent(board, seconds)
    more = [Reader(board) for _ in range(WATCHERS)]
    time.sleep(SETTLE_S)
    bytes_before, began = first.bytes, time.monotonic()
    together = _spent(board, seconds)
    per_s = (first.bytes - bytes_before) / (time.monotonic() - began)
    for reader in (first, *more):
        reader.end()
    pouring.end()
    return Cost(1_000 * alone, 1_000 * (together - alone) / WATCHERS, per_s)


class Reader:
    """One who watches, in a thread."""

    def __init__(self, board: Served) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=60)
        self.connection.request("GET", "/dashboard/stream")
        self.answer = self.connection.getresponse()
        self.bytes = 0
        self.over = False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while not self.over:
            self.bytes += len(self.answer.read1(1 << 16))

    def end(self) -> None:
        self.over = True
        self.thread.join(60)
        self.connection.close()


def _spent(board: Served, seconds: float) -> float:
    """Processor seconds per second of the server's thread."""

    async def now() -> float:
        await asyncio.sleep(0)
        return time.thread_time()

    began_s, began = time.monotonic(), board.loop.do(now())
    time.sleep(seconds)
    return float((board.loop.do(now()) - began) / (time.monotonic() - began_s))


def _mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


def check(load: Load) -> None:
    """What must hold."""
    assert load.longest_task_ms <= 200, load
    assert load.frame_ms <= 3 * load.empty_frame_ms, load
    flat(load.growth)
    assert load.events >= 0.8 * load.seconds * EVENTS_PER_S, "the load was not as heavy as it should be"


def flat(growth: Growth) -> None:
    """The bounds are what a healthy page varies by, whatever the length of the run: the longer, the smaller the leak
    that is seen. In a minute it is a fifth of what one event holds, or one element for every eighth event."""
    assert growth.heap_rise <= HEAP_RISE_BYTES, growth
    assert growth.nodes_rise <= NODES_RISE, growth
    assert growth.listeners_rise <= LISTENERS_RISE, growth


def run(browser: Browser, pages: tuple[str, ...], seconds: float, cost_s: float) -> tuple[list[Load], Cost]:
    with crowd() as feed, served(feed) as board:
        loads = [measure(browser, board, feed, name, seconds) for name in pages]
        return loads, cost(board, feed, cost_s)


class Quick(NamedTuple):
    """How quick a page was, and an empty one beside it."""

    what: str
    first_ms: float
    """0: it was open."""
    p95_ms: float
    empty_p95_ms: float
    waited: float = 0.0
    """In this share of the time something on this machine waited for a processor."""

    def sentence(self) -> str:
        first = f"first view {self.first_ms:.0f} ms, " if self.first_ms else ""
        return f"{self.what}: {first}frame p95 {self.p95_ms:.1f} ms (empty page {self.empty_p95_ms:.1f} ms)"


def judged(quick: Quick, canary: Canary) -> None:
    """Goals, once the canary has ended. A canary sleeps, and is woken in time also where those who compute wait for
    each other: a browser draws with many threads, and is as late as they are."""
    for took_ms, goal_ms in ((quick.p95_ms, FRAME_P95_MS), (quick.first_ms, FIRST_VIEW_MS)):
        said = f"{quick.sentence()}; at most {goal_ms} ms is the goal"
        if took_ms > goal_ms and quick.waited > WAITED_MAX:
            VOIDS.append(f"{said}; for {quick.waited:.0%} of the time somebody waited for a processor")
        else:
            canary.judge(took_ms <= goal_ms, said)


def pressure_s() -> float:
    """For how long something on this machine has waited for a processor, as Linux counts it; 0 where it does not."""
    try:
        return int(Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, IndexError):
        return 0.0


def quickness(browser: Browser, board: Served, name: str) -> tuple[Quick, Canary]:
    """Of a page that is opened while events pour in."""
    empty_p95_ms = _empty(browser)
    tab = Tab(browser, board.url)
    tab.context.add_init_script(f"({FIRST})()")
    began_s, before_s = time.monotonic(), pressure_s()
    with Canary(HEARTBEAT_MS) as canary:
        page = tab.open(name)
        first_ms = page.wait_for_function("() => window.firstView").json_value()
        page.wait_for_timeout(500)
        p95_ms = _p95(page)
    waited = (pressure_s() - before_s) / (time.monotonic() - began_s)
    assert tab.said == []
    tab.close()
    return Quick(name, first_ms, p95_ms, empty_p95_ms, waited), canary


def playing(browser: Browser, board: Served, feed: Feed, speed: str) -> tuple[Quick, Canary]:
    """Of the timeline, while it plays two seconds in which a leader followed on the other."""
    empty_p95_ms = _empty(browser)
    tab = Tab(browser, board.url)
    at = feed.history_until_ms - BURST_AGO_MS + 20_000
    tab.page.goto(f"{board.url}#/timeline?from={at}&to={at + 2_000}&at={at}")
    page = tab.page
    page.wait_for_function("() => /^[45]\\d\\d events/.test((document.querySelector('.tl-listed') || {}).innerText)")
    page.select_option('.tl-control[aria-label="Speed"]', speed)
    page.click('.tl-control[aria-label="Play"]')
    began_s, before_s = time.monotonic(), pressure_s()
    with Canary(HEARTBEAT_MS) as canary:
        page.wait_for_timeout(300)
        p95_ms = _p95(page)
    waited = (pressure_s() - before_s) / (time.monotonic() - began_s)
    page.wait_for_selector('.tl-control[aria-label="Pause"]')
    assert tab.said == []
    tab.close()
    return Quick(f"timeline, a burst at {speed}", 0, p95_ms, empty_p95_ms, waited), canary


def _empty(browser: Browser) -> float:
    page = browser.new_page()
    found = _p95(page, 1.0)
    page.close()
    return found


def _p95(page: Page, seconds: float = FRAMES_S) -> float:
    """So long at most nineteen of twenty pictures took."""
    page.evaluate(WATCH)
    page.wait_for_timeout(1_000 * seconds)
    frames = sorted(page.evaluate("() => measured.frames"))
    return float(frames[round(0.95 * (len(frames) - 1))])
