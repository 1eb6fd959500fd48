"""Options of the test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write what the scenes in tests/transcripts/ give now into their files; then read the difference",
    )


@pytest.fixture
def rewrite_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-transcripts"))
