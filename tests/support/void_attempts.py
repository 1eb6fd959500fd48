"""What the canary voids is run again, with fixtures of its own, three times in all at most; then it is skipped.

An attempt is repeated only if its body was void and nothing else was wrong with it: whatever fails before or after the
body, as the judges of safety in the fixtures' ends do, fails the test at once. What no canary of its own excuses is
run again, too, if the machine or its disk was late, but its last attempt counts. Part of `conftest.py`.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Generator
from functools import cache

import pytest
from _pytest.runner import runtestprotocol

from tests.support import canary
from tests.support.canary import StandingCanary, TriedAgain, Void, excused_if_late, note
from tests.support.safety_checks import violation_in

TRIES = 3
VOID = pytest.StashKey[str]()
LAST_COUNTS = pytest.StashKey[bool]()
IN_REAL_TIME = {"browser", "contracts", "docs", "processes"}
"""Folders of tests that a slow machine may fail."""
SAFETY_SAID = re.compile(
    "overlap|double|grow|at_a_time|at once|token|twice|two |both|lived|living|lives|alive|commands|stamped|beside",
    re.IGNORECASE,
)
"""What a failed statement about safety says, wherever it does not say so by `safe`: judged at once."""
Failed = pytest.fail.Exception


@cache
def standing() -> StandingCanary:
    found = StandingCanary()
    atexit.register(found.end)
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Whatever `Canary.judge` found to be void voids the test, once all else in it was judged."""
    canary.VOIDS.clear()
    beside = standing() if IN_REAL_TIME.intersection(pyfuncitem.path.parts) else None
    if beside is not None:
        beside.late()
    try:
        found = yield
    except Void:
        raise
    except (Exception, Failed) as fault:
        is_safety = violation_in(fault) is not None or SAFETY_SAID.search(str(fault))
        late = beside.late() if beside is not None and not is_safety else ""
        if late:
            raise TriedAgain(f"{late} (failed: {fault!r:.200})") from fault
        raise
    if canary.VOIDS:
        raise Void("; ".join(canary.VOIDS))
    return found


@pytest.hookimpl(tryfirst=True, specname="pytest_pyfunc_call")
def pytest_pyfunc_call_beside_a_canary(pyfuncitem: pytest.Function) -> bool | None:
    """Tests of a module that says `CANARY_HEARTBEAT_MS`."""
    heartbeat_ms = getattr(pyfuncitem.module, "CANARY_HEARTBEAT_MS", 0)
    if not heartbeat_ms:
        return None
    named = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    excused_if_late(heartbeat_ms, lambda: pyfuncitem.obj(**named))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[VOID] = ""
        if call.excinfo is not None and isinstance(call.excinfo.value, Void):
            item.stash[VOID] = str(call.excinfo.value)
            item.stash[LAST_COUNTS] = isinstance(call.excinfo.value, TriedAgain)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    voids: list[str] = []
    while True:
        item.stash[VOID] = ""
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        void = item.stash[VOID]
        if not void or any(report.failed for report in reports if report.when != "call"):
            break
        voids.append(void)
        note(f"void: {item.nodeid}: {void}")
        if len(voids) == TRIES:
            if not item.stash[LAST_COUNTS]:
                _skipped(item, reports, voids)
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _skipped(item: pytest.Item, reports: list[pytest.TestReport], voids: list[str]) -> None:
    path, line, _ = item.location
    for report in reports:
        if report.when == "call":
            report.outcome = "skipped"
            report.longrepr = (path, (line or 0) + 1, f"Skipped: void {len(voids)} times: {' | '.join(voids)}")
