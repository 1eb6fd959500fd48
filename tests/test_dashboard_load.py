"""The page under load, in short; `make proof PART=dashboard` does it for a minute on every page."""

from __future__ import annotations

from tests.browser import real_browser
from tests.dashboard_load import check, run


def test_twenty_nodes_and_two_hundred_events_a_second() -> None:
    with real_browser() as browser:
        loads, cost = run(browser, ("events", "network"), seconds=5, cost_s=2)
    for load in loads:
        print(load)
        check(load)
    print(cost)
    assert cost.each_more_mill < 100, "a tenth of a processor for every browser would be a fault"
