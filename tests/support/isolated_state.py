"""Tests see no state but their own: no folder of the system's or of the user's, in this process and in all it starts.

For the whole run there is a home of its own, and each test has a state folder of its own, which is made by who uses it.
Part of `conftest.py`. What the product reads from the environment is unset; what the tests read of it stays.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

READ_BY_PRIMACY = (
    "PRIMACY_CLUSTER",
    "PRIMACY_ELECTION",
    "PRIMACY_LEASE_FILE",
    "PRIMACY_NODE",
    "PRIMACY_RUN",
    "PRIMACY_SLOTS_PASSWORD",
    "PRIMACY_TERM",
    "PRIMACY_TOKEN",
    "PRIMACY_TRACEBACK",
)
HOME = pytest.StashKey[Path]()
STATE = "PRIMACY_STATE_DIR"
NUMBERS = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """For fixtures of a module or of the session, too, which begin before any test."""
    home = Path(tempfile.mkdtemp(prefix="primacy-home-"))
    config.stash[HOME] = home
    for name in list(os.environ):
        if name in READ_BY_PRIMACY or name.startswith("XDG_"):
            del os.environ[name]
    os.environ.update({"HOME": str(home), STATE: str(home / "state-0")})


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[HOME], ignore_errors=True)


@pytest.fixture(autouse=True)
def state_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.environ.get(STATE, "")
    os.environ[STATE] = str(request.config.stash[HOME] / f"state-{next(NUMBERS)}")
    yield
    os.environ[STATE] = before
