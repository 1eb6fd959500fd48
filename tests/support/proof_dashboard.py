"""`make proof PART=dashboard`: every scenario of the demo for 40 s, drills, and the page under load for a minute each.

Load: 20 nodes and 200 events a second. Drills: all faults on labs of raft and lease, also beyond the quorum, in three
profiles. `python -m tests.support.proof_dashboard demos`, `drills` or `load` does one of them.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from primacy.cli.demo import SCENARIOS
from tests.processes.test_drill import assert_kept, lab_up
from tests.support.browser import ALL_PAGES, PAGES, chromium, real_browser
from tests.support.canary import VOIDS, Canary
from tests.support.dashboard_feed import served
from tests.support.dashboard_load import Pouring, Quick, check, crowd, judged, playing, quickness, run
from tests.support.demo_leaves import check as check_left
from tests.support.demo_leaves import play

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECONDS = 60.0
DEMO_SECONDS = 40


def demos() -> None:
    """Exit 0, no process left, no file outside of its folder; the folder is gone, too."""
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as place:
            left, result = play(Path(place) / "at", scenario, DEMO_SECONDS)
        check_left(left, result, scenario, DEMO_SECONDS)
        gaps = ", ".join(f"{each['gap_ms']:,} ms after {each['after']}" for each in result["failovers"])
        print(
            f"demo {scenario:<9} exit {left.code} after {result['seconds']:.0f} s, {result['signatures']} signatures, "
            f"none twice, nothing left; {gaps or 'no failover'}",
            flush=True,
        )


def drills() -> None:
    """Everything is kept. What a late machine kept from being judged is printed, and breaks nothing."""
    for strategy, profile in itertools.product(("raft", "lease"), ("lab", "fast", "lan")):
        with tempfile.TemporaryDirectory() as place:
            folder, report = Path(place) / "lab", Path(place) / "report.json"
            with lab_up(folder, "--nodes", "5", "--profile", profile, "--strategy", strategy):
                call = [sys.executable, "-m", "primacy.cli.main", "drill", "--lab", str(folder), "--beyond-quorum"]
                code = subprocess.run(
                    [*call, "--report", str(report)], stdout=subprocess.DEVNULL, check=False
                ).returncode
            said = json.loads(report.read_text(encoding="utf-8"))
        print(f"drill of {strategy}, {profile}: exit {code}, {said['verdict']}", flush=True)
        assert_kept(code, said)


def load() -> None:
    if chromium() is None:
        print("no Chromium here, and no load was shown; make setup-browser installs it, as root")
        return
    with real_browser() as browser:
        loads, cost = run(browser, PAGES, SECONDS, cost_s=10)
        found = quick(browser)
    for each in loads:
        print(each.sentence())
        check(each)
    for one, canary in found:
        print(one.sentence())
        judged(one, canary)
    for void in VOIDS:
        print(f"void: {void}")
    print(
        f"server: {cost.alone_mill / 10:.1f} % of a processor with one browser, {cost.each_more_mill / 10:.2f} % for "
        f"each more, {cost.bytes_per_s / 1e3:.0f} kB/s to each"
    )


def quick(browser: Browser) -> list[tuple[Quick, Canary]]:
    """Every page as it is opened while events pour in, and the timeline at each of its speeds."""
    with crowd() as feed, served(feed) as board:
        quickness(browser, board, "overview")
        pouring = Pouring(feed)
        found = [quickness(browser, board, name) for name in ALL_PAGES]
        pouring.end()
        return [*found, *(playing(browser, board, feed, speed) for speed in ("0.1", "1", "10"))]


def main() -> int:
    parts = {"demos": demos, "drills": drills, "load": load}
    for name in sys.argv[1:] or parts:
        parts[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
