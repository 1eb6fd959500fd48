"""Ten seconds of random and mutated frames on both ports, and requests by HTTP; a minute in `make proof PART=cache`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.cache_fuzz import fuzzed

pytestmark = pytest.mark.alone(order=300)

SECONDS = 5.0
CANARY_HEARTBEAT_MS = 60
"""A client that was not answered in time on a machine that was late says nothing; wrong answers are judged always."""


@pytest.mark.parametrize("liar", [False, True])
def test_W_L6_hostile_frames_on_both_ports(tmp_path: Path, liar: bool) -> None:
    print(asyncio.run(asyncio.wait_for(fuzzed(tmp_path, SECONDS, 7, liar=liar), 90)))
