"""Every fault of the tour on real nodes, while a browser looks: what it showed, frame by frame, beside what was so."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from primacy.control.client import FoundNode, ask, find
from tests.browser.samples import HEARTBEAT_MS, SAMPLES, Sample, judged, shown, soon, stood
from tests.browser.test_dashboard_lab import Lab, dashboard, until
from tests.support.browser import Tab, real_browser
from tests.support.canary import Canary, note
from tests.support.safety_checks import SafetyViolation, safe

pytestmark = pytest.mark.moments(order=235)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FROZEN_MS = 500
"""The lab says that it froze a node, and two looks."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


class Broken:
    """A lab that is told what to break, as `primacy lab` would, and the page that looks at it."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        found = find(str(lab.folder))
        assert found is not None
        self.at: FoundNode = found

    def order(self, path: str, **body: Any) -> None:
        ask(self.at, f"/v1/lab/{path}", body, 60.0)

    def settled(self, but: str = "") -> str:
        """The next leader, once the page shows it: another one may follow before that."""

        def look() -> str:
            leader = self.lab.leader(but=but)
            return leader if leader and self.page.locator(f'.strip-node:text-is("{leader}")').count() else ""

        return until(look, "a leader that the page shows")

    def sampled(self, what: str, began_ms: int, argument: str = "") -> float:
        """When the page was first seen like this since then: what is drawn is seen with the next frame."""
        found = self.page.wait_for_function(
            f"([began, it]) => (window.samples.find((one) => one.at >= began && ({what})) || {{}}).at",
            arg=[began_ms, argument],
        )
        return float(found.json_value())

    def others(self, leader: str) -> list[str]:
        return [name for name in "abcde" if name != leader]

    def run(self, fault: Callable[[Broken, str], None], mend: Callable[[Broken, str], None]) -> None:
        leader = self.settled()
        fault(self, leader)
        self.settled(but=leader)
        mend(self, leader)


def stop(it: Broken, leader: str) -> None:
    it.order(f"{leader}/stop")


def start(it: Broken, leader: str) -> None:
    it.order(f"{leader}/start")


def kill(it: Broken, leader: str) -> None:
    it.order(f"{leader}/kill")


def power(it: Broken, leader: str) -> None:
    it.order(f"{leader}/kill", whole=True)


def freeze(it: Broken, leader: str) -> None:
    it.order(f"{leader}/freeze", guard=True)
    it.page.wait_for_selector(f'.knot[data-node="{leader}"][data-tone="frozen"]')
    open_links = it.page.evaluate(
        "() => [...document.querySelectorAll('.map .link[data-state=open] title')].map((e) => e.textContent)"
    )
    assert not any(leader in words.split(":")[0].split(" – ") for words in open_links), open_links


def thaw(it: Broken, leader: str) -> None:
    it.order(f"{leader}/thaw")


def links(it: Broken, leader: str) -> None:
    for other in it.others(leader)[:3]:
        it.order("links", node=leader, **{"with": other}, cut="both")


def one_way(it: Broken, leader: str) -> None:
    for other in it.others(leader):
        it.order("links", node=leader, **{"with": other}, cut="in")


def minority(it: Broken, leader: str) -> None:
    it.order("partition", shape="2/3")


def heal(it: Broken, leader: str) -> None:
    it.order("heal")


def child(it: Broken) -> None:
    """Only its command is killed: the same node starts it again, and no other is ever shown."""
    leader = it.settled()

    def running() -> int:
        row = next(row for row in it.lab.get("/v1/lab")["nodes"] if row["node"] == leader)
        return int(((row["state"] or {}).get("workload") or {}).get("pid") or 0)

    pid = until(running, f"the command on {leader}")
    os.kill(pid, signal.SIGKILL)
    until(lambda: running() not in (0, pid), "the next run")


FAULTS = {
    "stop": (stop, start),
    "kill": (kill, start),
    "links": (links, heal),
    "one-way": (one_way, heal),
    "minority": (minority, heal),
    "freeze": (freeze, thaw),
    "power": (power, start),
}


def test_every_fault_of_the_tour_is_shown_as_what_it_is(browser: Browser, tmp_path: Path) -> None:
    lab = Lab(Path(tempfile.mkdtemp(dir=tmp_path)) / "lab")
    try:
        with dashboard("dashboard", "--lab", str(lab.folder)) as url:
            tab = Tab(browser, url)
            page = tab.open("network")
            it = Broken(lab, page)
            it.settled()
            page.evaluate(SAMPLES)
            with Canary(HEARTBEAT_MS) as canary:
                for fault, mend in FAULTS.values():
                    it.run(fault, mend)
                child(it)
                samples, still = shown(page), stood(page)
            judged(samples, lab.signed(), still, canary)
            for words in ("the lab starts node", "the lab mends all links", "; never two"):
                assert any(words in one["change"] for one in shown(page)), f"no last change said: {words}"
            with Canary(HEARTBEAT_MS) as canary:
                red, grey = outage(it), frozen(it)
            still = stood(page)
            red_ms, grey_ms = red[1] - red[0], grey[1] - grey[0]
            note(f"the page was red {red_ms:.0f} ms after the end of a command without a majority (negative: before)")
            note(f"a frozen holder was green for {grey_ms:.0f} ms more")
            soon(red, HEARTBEAT_MS, still, "the page was red after the end of the command", canary)
            soon(grey, FROZEN_MS, still, "a frozen holder was green", canary)
            until(lambda: lab.signer() == lab.leader(), "a signature by the last one")
            judged(shown(page), lab.signed(), stood(page), canary)
            assert tab.said == []
            tab.close()
            rewound(browser, url, lab)
    finally:
        lab.down()


def rewound(browser: Browser, url: str, lab: Lab) -> None:
    """Back to before and after the kill of a leader, each by a link in a browser that was never here."""
    told = lab.get("/v1/events")
    kill = next(row for row in told if row["code"] == "lab" and row["text"].startswith("the lab kills node "))
    for after_ms, tone in ((-200, "leader"), (250, "down")):  # a lab says that it kills before it does
        at_ms = kill["at_unix_ms"] + after_ms
        tab = Tab(browser, url)
        tab.page.goto(f"{url}#/timeline?from={at_ms - 5_000}&to={at_ms + 5_000}&at={at_ms}")
        tab.page.wait_for_selector(f'.timeline-map .knot[data-node="{kill["node"]}"][data-tone="{tone}"]')
        safe(tab.page.locator('.timeline-map .knot[data-tone="leader"]').count() <= 1, "two leaders on the map")
        assert tab.said == []
        tab.close()


def test_what_the_strip_said_is_compared_with_the_chain() -> None:
    """The judge itself, with invented samples: b takes over from a at 1,000 ms, and signs from 1,400 ms on."""
    signatures = [{"node": "a", "token": 1, "at_unix_ms": at, "gap_ms": 100} for at in range(0, 1_000, 100)]
    signatures += [{"node": "b", "token": 2, "at_unix_ms": at, "gap_ms": 100} for at in range(1_400, 6_000, 100)]
    signatures[10]["gap_ms"] = 500

    def sample(at: int, node: str, gap: str = "", said: str = "") -> Sample:
        acts, level = ([node], "ok") if node else ([], "warn")
        change = {"change": f"last change 10:00:00: a lost its majority{gap}", "changed": 1_000 if gap else -9_000}
        shows = {"acts": acts, "leaders": acts, "level": level, "holder": level, "node": node}
        return {"at": at, "until": 5_900, **shows, **change, "said": said or f"One holder: {node}, for 1 s"}

    def judge(*samples: Sample) -> None:
        judged(list(samples), signatures, [], Canary(HEARTBEAT_MS))

    before, nobody = sample(0, "a"), sample(950, "", said="Nobody runs the command: no node leads yet")
    gap = "; nobody ran for 410 ms; never two"
    judge(before, nobody, sample(1_600, "b", gap))
    with pytest.raises(AssertionError, match="nobody runs what signs"):
        judge(before, nobody, sample(2_500, "b", gap))
    with pytest.raises(AssertionError, match="nobody runs what signs"):
        judge(sample(100, "", said="Nobody runs the command: 2 of 5 nodes up, 3 needed"), sample(1_600, "b", gap))
    for wrong in ("90", "640", "1,410"):
        with pytest.raises(AssertionError, match="the chain says 500 ms"):
            judge(before, nobody, sample(1_600, "b", f"; nobody ran for {wrong} ms; never two"))
    with pytest.raises(SafetyViolation, match="a is shown as holder"):
        judge(before, sample(2_500, "b", gap))


def outage(it: Broken) -> tuple[float, float]:
    """Two halves: the end of the command, and when the page was red and nothing green: that may be before."""
    it.settled()
    mark, began_ms = it.lab.newest(), now_ms()
    it.order("partition", shape="halves")
    it.page.wait_for_selector('.strip-holder[data-level="bad"] >> text=Nobody runs the command')

    def ends() -> list[int]:
        told = it.lab.get(f"/v1/events?after={mark}")
        return [row["at_unix_ms"] for row in told if row["code"] == "gone" and row["at_unix_ms"] >= began_ms]

    ended_ms = max(until(ends, "the confirmed end of the command"))
    asked = [row["text"] for row in it.lab.get(f"/v1/events?after={mark}") if row["code"] == "lab"]
    assert asked == ["the lab divides the network: no side has a majority"], "in words, not by the name of the shape"
    red_ms = it.sampled("one.level === 'bad'", began_ms)
    grey_ms = it.sampled("one.holder !== 'ok'", began_ms)
    it.order("heal")
    it.settled()
    return ended_ms, max(red_ms, grey_ms)


def frozen(it: Broken) -> tuple[float, float]:
    """From when to when a holder that was frozen is still drawn as acting."""
    leader, began_ms = it.settled(), now_ms()
    it.order(f"{leader}/freeze", guard=True)
    it.settled(but=leader)
    grey_ms = it.sampled("!one.acts.includes(it)", began_ms, leader)
    it.order(f"{leader}/thaw")
    it.settled()
    return began_ms, grey_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000
