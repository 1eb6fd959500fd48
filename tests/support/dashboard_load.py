"""How the page and its server bear load: 20 nodes and 200 events a second. Measured in a real Chromium."""

from __future__ import annotations

import asyncio
import http.client
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.browser import Tab
from tests.support.dashboard_feed import Feed, Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODES = 20
EVENTS_PER_S = 200
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


def crowd() -> Feed:
    feed = Feed([f"n{number:02}" for number in range(NODES)]).start()
    for number in range(3_000):
        feed.tell(f"n{number % NODES:02}", "follows", f"n{number % NODES:02} follows n00 for the {number}th time")
    return feed


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
                node = f"n{self.count % NODES:02}"
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
    feed = crowd()
    try:
        with served(feed) as board:
            loads = [measure(browser, board, feed, name, seconds) for name in pages]
            return loads, cost(board, feed, cost_s)
    finally:
        feed.close()
