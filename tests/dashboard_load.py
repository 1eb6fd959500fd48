"""How the page and its server bear load: 20 nodes and 200 events a second. Measured in a real Chromium."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.browser import Tab
from tests.dashboard_feed import Feed, Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODES = 20
EVENTS_PER_S = 200
WATCHERS = 10

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
    heap_before_mb: float
    heap_after_mb: float
    events: int


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
                code = ("follows", "stands", "promise-refused", "elected")[self.count % 4]
                self.feed.tell(node, code, f"{node} does it for the {self.count}th time", term=7 + self.count // 2_000)
                self.count += 1

    def end(self) -> int:
        self.over.set()
        self.thread.join()
        return self.count


def measure(browser: Browser, board: Served, feed: Feed, name: str, seconds: float) -> Load:
    empty = browser.new_page()
    empty.evaluate(WATCH)
    empty.wait_for_timeout(2_000)
    empty_frame_ms = _mean(empty.evaluate("() => measured.frames"))
    empty.close()
    tab = Tab(browser, board.url)
    page = tab.open(name)
    page.wait_for_timeout(1_000)
    pouring = Pouring(feed)
    page.wait_for_timeout(1_500)
    heap_before = _heap(tab, page)
    page.evaluate(WATCH)
    page.wait_for_timeout(seconds * 1_000)
    found: Any = page.evaluate("() => measured")
    heap_after = _heap(tab, page)
    events = pouring.end()
    assert tab.said == []
    tab.close()
    return Load(
        name, seconds, found["longest"], _mean(found["frames"]), empty_frame_ms, heap_before, heap_after, events
    )


def cost(board: Served, feed: Feed, seconds: float) -> Cost:
    """Streams that read as fast as they can, as browsers do: one, then many more."""
    pouring = Pouring(feed)
    first = Reader(board)
    alone = _spent(board, seconds)
    more = [Reader(board) for _ in range(WATCHERS)]
    bytes_before, began = first.bytes, time.monotonic()
    together = _spent(board, seconds)
    per_s = (first.bytes - bytes_before) / (time.monotonic() - began)
    for reader in (first, *more):
        reader.end()
    pouring.end()
    return Cost(1_000 * alone, 1_000 * max(0.0, together - alone) / WATCHERS, per_s)


class Reader:
    """One who watches, in a thread."""

    def __init__(self, board: Served) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=10)
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
        self.thread.join(5)
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


def _heap(tab: Tab, page: Page) -> float:
    """Megabytes in use, after the rubbish was collected."""
    session = tab.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    found = session.send("Runtime.getHeapUsage")
    session.detach()
    return float(found["usedSize"]) / 1e6


def check(load: Load) -> None:
    """What must hold."""
    assert load.longest_task_ms <= 200, load
    assert load.frame_ms <= 3 * load.empty_frame_ms, load
    assert load.heap_after_mb <= load.heap_before_mb * 1.15 + 1, load
    assert load.events >= 0.8 * load.seconds * EVENTS_PER_S, "the load was not as heavy as it should be"


def run(browser: Browser, pages: tuple[str, ...], seconds: float, cost_s: float) -> tuple[list[Load], Cost]:
    feed = crowd()
    try:
        with served(feed) as board:
            loads = [measure(browser, board, feed, name, seconds) for name in pages]
            return loads, cost(board, feed, cost_s)
    finally:
        feed.close()
