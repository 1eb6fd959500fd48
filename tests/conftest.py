"""Options of the test suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A run that was put into the background, or under nohup, is deaf to some signals; what it tests must not be."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


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
