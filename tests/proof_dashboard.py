"""`make proof PART=dashboard`: 20 nodes and 200 events a second, for a minute on every page."""

from __future__ import annotations

import sys

from tests.browser import PAGES, chromium, real_browser
from tests.dashboard_load import check, run

SECONDS = 60.0


def main() -> int:
    if chromium() is None:
        print("no Chromium here, and nothing was shown; make setup-browser installs it, as root")
        return 0
    with real_browser() as browser:
        loads, cost = run(browser, PAGES, SECONDS, cost_s=10)
    for load in loads:
        print(
            f"{load.page:<9} {load.seconds:.0f} s, {load.events:,} events: longest task {load.longest_task_ms:.0f} ms, "
            f"frame {load.frame_ms:.1f} ms (empty page {load.empty_frame_ms:.1f} ms), "
            f"heap {load.heap_before_mb:.1f} -> {load.heap_after_mb:.1f} MB"
        )
        check(load)
    print(
        f"server: {cost.alone_mill / 10:.1f} % of a processor with one browser, {cost.each_more_mill / 10:.2f} % for "
        f"each more, {cost.bytes_per_s / 1e3:.0f} kB/s to each"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
