"""The strip under an election on a lease, with real nodes and a real browser: what it said beside what was so.

The holder is killed (kill -9), paused by an operator, and frozen (SIGSTOP, with its guard). At every frame at most one
is shown as acting, and green only while no other command runs; how long the strip stays green after a command ended
is judged beside a canary. Who ran is read from the stamps of the commands.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from primacy.control.acting import NEWS_MS
from primacy.settings.timing import PROFILES
from tests.browser.samples import SAMPLES, SETTLED_MS, Green, Sample, greens, shown, soon, stood, stood_ms
from tests.browser.test_dashboard_lab import dashboard
from tests.support import stamp
from tests.support.browser import Tab, real_browser
from tests.support.canary import Canary, beside_a_canary, note
from tests.support.holder_harness import BETWEEN_STOPS_S
from tests.support.real_nodes import CLUSTER, Node, stop_agent_and_guards, tell_all
from tests.support.real_nodes_on_lease import LeaseCrowd, lease_crowd
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=144)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROFILE = "lan"
HEARTBEAT_MS = PROFILES[PROFILE].heartbeat_ms
GREEN = '.strip-holder[data-level="ok"] .strip-node'
GREEN_MS = NEWS_MS + SETTLED_MS
"""What a node said counts for so long; then two looks."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


class Shown:
    """Nodes on a lease, and the page that looks at all of them."""

    def __init__(self, crowd: LeaseCrowd, page: Page) -> None:
        self.crowd, self.page = crowd, page

    def holder(self) -> stamp.Stamp:
        """Once the strip names the node whose command runs."""

        def look() -> stamp.Stamp | None:
            found = self.crowd.acting()
            return found if self.page.locator(f'{GREEN}:text-is("{found.node}")').count() else None

        found: stamp.Stamp = self.crowd.until(look, "a strip that names the holder")
        return found

    def struck(self, what: str, old: stamp.Stamp) -> None:
        """The next one runs, and is what the strip says."""
        self.crowd.acting(old.token)
        assert self.holder().token > old.token, what


@contextlib.contextmanager
def looked_at(folder: Path, browser: Browser) -> Iterator[Shown]:
    """All of them are read, as nodes of one machine are."""
    with lease_crowd("sqlite", folder, profile=PROFILE) as crowd:
        nodes = folder / "root" / "nodes"
        nodes.mkdir(parents=True)
        for name in crowd.names:
            (nodes / name).symlink_to(folder / f"state-{name}")
        crowd.start()
        crowd.agree()
        crowd.one_now()
        with dashboard("dashboard", "--state-dir", str(folder / "root"), "--cluster", CLUSTER) as url:
            tab = Tab(browser, url)
            it = Shown(crowd, tab.open("network"))
            it.holder()
            it.page.evaluate(SAMPLES)
            yield it
            assert tab.said == []
            tab.close()


def kill(it: Shown, node: Node) -> None:
    node.process.kill()
    node.wait()


def restart(it: Shown, node: Node) -> None:
    it.crowd.start(node.name)


def pause(it: Shown, node: Node) -> None:
    it.crowd.order(node, "/v1/pause", {"by": "anna on host1"})


def resume(it: Shown, node: Node) -> None:
    told = [event["text"] for event in it.crowd.until(lambda: node.ask("/v1/events"), f"the events of {node.name}")]
    assert f"{node.name} is told by an operator to pause (said at {node.name}, by anna on host1)" in told
    it.crowd.order(node, "/v1/resume", {})


def freeze(it: Shown, node: Node) -> None:
    """One that stood still as it wrote would keep the file from the others."""
    stop_agent_and_guards(node)
    while it.crowd.is_locked():
        tell_all(signal.SIGCONT, (node.pid, *node.guards))
        time.sleep(BETWEEN_STOPS_S)
        stop_agent_and_guards(node)


def thaw(it: Shown, node: Node) -> None:
    it.crowd.mend()


FAULTS = {"kill -9": (kill, restart), "pause": (pause, resume), "SIGSTOP": (freeze, thaw)}


@beside_a_canary(HEARTBEAT_MS, passes_if_late=True)
def test_the_strip_of_a_lease_says_what_is_so(browser: Browser, tmp_path: Path) -> None:
    with Canary(HEARTBEAT_MS) as canary, looked_at(tmp_path, browser) as it:
        for what, (fault, mend) in FAULTS.items():
            old = it.holder()
            fault(it, it.crowd.nodes[old.node])
            it.struck(what, old)
            mend(it, it.crowd.nodes[old.node])
            it.crowd.agree()
        samples, still = shown(it.page), stood(it.page)
        ran = lived(it.crowd)
    judged(samples, ran)
    late = after_the_end(greens(samples), ran)
    worst_ms = max((one.to_ms - one.end_ms for one in late), default=0.0)
    note(f"the strip of a lease was green {worst_ms:.0f} ms after the end of a command, at most")
    for one in late:
        soon((one.end_ms, one.to_ms), GREEN_MS, still, f"{one.node} was green after the end of its command", canary)


class Run(NamedTuple):
    """A command, from its first stamp to its last, in ms since 1970. It began earlier: by as much as an interpreter
    takes to come up."""

    node: str
    begin_ms: float
    end_ms: float


class Late(NamedTuple):
    """A node was green until this moment, and its command had ended before."""

    node: str
    end_ms: float
    to_ms: float


def lived(crowd: LeaseCrowd) -> list[Run]:
    """One that waits for a processor has not ended: whoever runs has stamped since this was called."""
    asked_ns = stamp.now_ns()
    crowd.until(lambda: any(one.last_ns > asked_ns for one in crowd.stamped()), "a stamp of now")
    offset_ns = time.time_ns() - stamp.now_ns()
    found = sorted(stamp.starts(crowd.stamped()), key=lambda one: one.first_ns)
    return [Run(one.node, (one.first_ns + offset_ns) / 1e6, (one.last_ns + offset_ns) / 1e6) for one in found]


def judged(samples: list[Sample], ran: list[Run]) -> None:
    """Never two, never green without a name, and none that is named while another one still runs: how soon it is known
    that a command has ended is a matter of time, and judged as such."""
    for sample in samples:
        safe(len(sample["acts"]) <= 1, f"two are shown as acting: {sample}")
        safe(len(sample["leaders"]) <= 1, f"two are shown as leaders: {sample}")
        safe(sample["holder"] != "ok" or sample["acts"] == [sample["node"]], f"green without a holder: {sample}")
        safe(not (sample["holder"] != "ok" and re.match(r"\W* *[a-z] runs", sample["title"])), f"a title: {sample}")
    found = greens(samples)
    assert len(found) > len(FAULTS), "it was green under each of them, and before"
    for green in found:
        before = [
            run
            for run in ran
            if run.node != green.node and run.begin_ms < green.from_ms < run.end_ms - SETTLED_MS < green.to_ms
        ]
        assert not before, f"{green.node} is shown as holder, {green}, while others still ran: {before}"


def after_the_end(found: list[Green], ran: list[Run]) -> list[Late]:
    """Each time at which a node was green after its command had ended, and before its next one began. A green that
    begins then is of the next one, whose first stamp is late, if nobody else runs in between."""
    late = []
    for green in found:
        own = [run for run in ran if run.node == green.node]
        for run, after in zip([None, *own], [*own, None], strict=True):
            end_ms = run.end_ms if run is not None else -math.inf
            next_ms = after.begin_ms if after is not None else math.inf
            if green.to_ms <= end_ms or green.from_ms >= next_ms:
                continue
            others = [each for each in ran if each.end_ms > green.from_ms and each.begin_ms < next_ms]
            if green.from_ms > end_ms and after is not None and others == []:
                continue
            late.append(Late(green.node, end_ms if run is not None else green.from_ms, min(green.to_ms, next_ms)))
    return late


def sample(at_ms: float, node: str = "", until_ms: float = 0) -> Sample:
    return {"at": at_ms, "until": until_ms or at_ms, "node": node, "holder": "ok" if node else "warn"}


@pytest.mark.parametrize(
    ("what", "seen", "ran", "late_ms"),
    [
        ("as it is", "1a 6- 8b", "a0-5 b7-20", [1]),
        ("counted on, second by second", "1a 2a 3a 4a 9- 9b", "a0-3 b8-20", [6]),
        ("the first stamp of the next run is late", "1a 4- 6b 9- 10a 11- 12a", "a0-3 b5-8 a13-20", [1, 1]),
        ("green again, and another runs", "1a 4- 6a 7- 9b", "a0-3 b5-20", [1, 4]),
        ("green all the time, and another runs", "1a 20-", "a0-3 b4-8 a9-21", [6]),
        ("never ran", "2c 5- 6a", "a0-20", [3]),
        ("named to the end", "1a", "a0-3", [6]),
    ],
)
def test_green_after_the_end_is_seen(what: str, seen: str, ran: str, late_ms: list[float]) -> None:
    """The check itself."""
    spots = [re.fullmatch(r"(\d+)(.)", each) for each in seen.split()]
    samples = [sample(int(spot[1]), spot[2].strip("-"), max(9, int(spot[1]))) for spot in spots if spot]
    spans = [re.fullmatch(r"(.)(\d+)-(\d+)", each) for each in ran.split()]
    runs = [Run(span[1], int(span[2]), int(span[3])) for span in spans if span]
    assert [one.to_ms - one.end_ms for one in after_the_end(greens(samples), runs)] == late_ms, what


def test_what_explains_a_late_page_is_counted_once_and_only_where_it_was() -> None:
    when = [(0, 500), (400, 900), (1_000, 1_090), (1_500, 2_500)]
    assert stood_ms(when, 100, 2_000, 100) == 800 + 500
    assert stood_ms(when, 100, 2_000, 50) == 800 + 90 + 500
    assert stood_ms(when, 2_600, 3_000, 50) == 0
