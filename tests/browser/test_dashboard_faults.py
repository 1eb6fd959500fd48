"""Every fault of the tour on real nodes, while a browser looks: what it showed, frame by frame, beside what was so."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from primacy.control.client import FoundNode, ask, find
from primacy.settings.timing import PROFILES
from tests.browser.test_dashboard_lab import Lab, dashboard, until
from tests.support.browser import Tab, real_browser
from tests.support.canary import Canary, note
from tests.support.safety_checks import safe

pytestmark = pytest.mark.moments(order=235)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
SAMPLES = Path(__file__).with_name("samples.js").read_text()
FROZEN_MS = 500
"""The lab says that it froze a node, and two looks."""
SETTLED_MS = 700
"""Around a change of the holder the chain and the page may differ: two looks, and a signature on its way."""


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
        """The next leader, once the page shows it."""
        leader = until(lambda: self.lab.leader(but=but), "a leader")
        self.page.wait_for_selector(f'.strip-node:text-is("{leader}")')
        return leader

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
    rows = it.lab.get("/v1/lab")["nodes"]
    pid = next(row["state"]["workload"]["pid"] for row in rows if row["node"] == leader)
    os.kill(pid, signal.SIGKILL)

    def again() -> bool:
        row = next(row for row in it.lab.get("/v1/lab")["nodes"] if row["node"] == leader)
        return ((row["state"] or {}).get("workload") or {}).get("pid") not in (None, pid)

    until(again, "the next run")


FAULTS = {
    "stop": (stop, start),
    "kill": (kill, start),
    "links": (links, heal),
    "one-way": (one_way, heal),
    "minority": (minority, heal),
    "freeze": (freeze, thaw),
    "power": (power, start),
}


def shown(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("() => window.samples")
    return found


def judged(samples: list[dict[str, Any]], signatures: list[dict[str, Any]]) -> None:
    """Never two, never green without a holder, and whom it named as holder signed."""
    for sample in samples:
        safe(len(sample["acts"]) <= 1, f"two are shown as acting: {sample}")
        safe(len(sample["leaders"]) <= 1, f"two are shown as leaders: {sample}")
        safe(sample["holder"] != "ok" or sample["acts"] == [sample["node"]], f"green without a holder: {sample}")
        safe(sample["level"] != "ok" or sample["holder"] == "ok", f"a good page without a holder: {sample}")
    for one, after in itertools.pairwise(samples):
        if one["holder"] != "ok":
            continue
        within = [
            each["node"]
            for each in signatures
            if one["at"] + SETTLED_MS < each["at_unix_ms"] < after["at"] - SETTLED_MS
        ]
        safe(set(within) <= {one["node"]}, f"{one['node']} is shown as holder while {set(within)} signs")


def test_every_fault_of_the_tour_is_shown_as_what_it_is(browser: Browser, tmp_path: Path) -> None:
    lab = Lab(Path(tempfile.mkdtemp(dir=tmp_path)) / "lab")
    try:
        with dashboard("dashboard", "--lab", str(lab.folder)) as url:
            tab = Tab(browser, url)
            page = tab.open("network")
            it = Broken(lab, page)
            it.settled()
            page.evaluate(SAMPLES)
            for fault, mend in FAULTS.values():
                it.run(fault, mend)
            child(it)
            chain = lab.get("/v1/lab")["chain"]["address"].rpartition(":")
            signed = ask(FoundNode(chain[0], int(chain[2]), ""), "/v1/signatures?after=0")
            judged(shown(page), signed)
            for words in ("the lab starts node", "the lab mends all links", "; never two"):
                assert any(words in one["change"] for one in shown(page)), f"no last change said: {words}"
            with Canary(HEARTBEAT_MS) as canary:
                red_ms, frozen_ms = outage(it), frozen(it)
            note(f"the page was red {red_ms} ms after the end of a command without a majority (negative: before)")
            note(f"a frozen holder was green for {frozen_ms} ms more")
            canary.judge(red_ms <= HEARTBEAT_MS, f"red {red_ms} ms after the end, goal {HEARTBEAT_MS} ms")
            canary.judge(frozen_ms <= FROZEN_MS, f"a frozen holder is green for {frozen_ms} ms, goal {FROZEN_MS} ms")
            judged(shown(page), [])
            assert tab.said == []
            tab.close()
    finally:
        lab.down()


def outage(it: Broken) -> int:
    """Two halves: how long after the end of the command the page was red and nothing green; negative if before."""
    leader, mark, began_ms = it.settled(), it.lab.newest(), now_ms()
    it.order("partition", shape="halves")
    it.page.wait_for_selector('.strip-holder[data-level="bad"] >> text=Nobody runs the command')
    until(lambda: "gone" in it.lab.codes(leader, mark), "the confirmed end of the command")
    ended_ms = max(row["at_unix_ms"] for row in it.lab.get(f"/v1/events?after={mark}") if row["code"] == "gone")
    late = [one for one in shown(it.page) if one["at"] >= began_ms]
    red_ms = next(one["at"] for one in late if one["level"] == "bad")
    grey_ms = next(one["at"] for one in late if one["holder"] != "ok")
    it.order("heal")
    it.settled()
    return int(max(red_ms, grey_ms) - ended_ms)


def frozen(it: Broken) -> int:
    """For how long a holder that was frozen is still drawn as acting."""
    leader, began_ms = it.settled(), now_ms()
    it.order(f"{leader}/freeze", guard=True)
    it.settled(but=leader)
    grey_ms = next(one["at"] for one in shown(it.page) if one["at"] >= began_ms and leader not in one["acts"])
    it.order(f"{leader}/thaw")
    it.settled()
    return int(grey_ms - began_ms)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
