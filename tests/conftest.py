"""Options of the test suite."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support import isolated_state as isolated
from tests.support.canary import NOTES
from tests.support.guard_harness import ORDINARY
from tests.support.isolated_state import pytest_unconfigure, state_of_its_own
from tests.support.ordinary_user import why_not
from tests.support.void_attempts import (
    pytest_pyfunc_call,
    pytest_pyfunc_call_beside_a_canary,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
)

__all__ = [
    "pytest_pyfunc_call",
    "pytest_pyfunc_call_beside_a_canary",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_unconfigure",
    "state_of_its_own",
]

hypothesis_settings.register_profile(
    "other", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.register_profile("same", hypothesis_settings.get_profile("other"), derandomize=True)
hypothesis_settings.load_profile("other" if os.environ.get("PRIMACY_SIZE") == "proof" else "same")
"""Every run sees the same cases, however slow the machine is; `make proof` draws others."""


def pytest_configure(config: pytest.Config) -> None:
    """A run that was put into the background, or under nohup, is deaf to some signals; what it tests must not be."""
    isolated.pytest_configure(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As an ordinary user, what needs more than that is left out: see `ordinary_user.py`, which names it."""
    if not ORDINARY:
        return
    left_out = {}
    for item in items:
        modes = getattr(item, "callspec", None)
        why = why_not(item.name, modes.params.get("mode") if modes else None)
        if why:
            left_out[item] = why
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips, failures and their reasons, for the end of the whole run (`sizes.py`)."""
    path = os.environ.get(NOTES)
    if path and "PYTEST_XDIST_WORKER" not in os.environ:  # who started the workers says it for them
        stats = terminalreporter.stats
        with open(path, "a") as file:
            for report in stats.get("skipped", []):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
                file.write(f"skipped: {report.nodeid}: {reason.removeprefix('Skipped: ')}\n")
            for report in [*stats.get("failed", []), *stats.get("error", [])]:
                said = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
                file.write(f"failed: {report.nodeid}: {' '.join(' '.join(said).split())[:600]}\n")


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """A `primacy run` in this process ends deaf to signals, for it believes that the process ends with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write what the scenes in tests/transcripts/ give now into their files; then read the difference",
    )


@pytest.fixture
def rewrite_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-transcripts"))
