"""The bench of containment, in small: it measures, and what the kernel needs fits the profiles."""

from __future__ import annotations

import pytest
from bench.containment import WAYS, WORDS, bare, held, kills, load, reserve_ms

from tests.support.canary import Canary
from tests.support.guard_harness import need
from tests.support.safety_checks import safe

pytestmark = pytest.mark.alone(order=130)

DYING_MS = 60
"""Guard, init and command die one after the other: each may wait for its turn for half of this."""


@pytest.mark.parametrize("way", WAYS)
def test_G1_from_the_dead_man_to_the_last_process_beside_busy_cores_and_disk(way: str) -> None:
    """The proof does it a thousand times."""
    need(WAYS[way])
    with load():
        with Canary(DYING_MS) as canary:
            (one,) = kills(WAYS[way], 1)
        safe(one.last_ms <= reserve_ms("fast"), one)
        assert one.empty_ms > 0, one
        assert one.last_ms <= one.empty_ms, one
        in_time = one.empty_ms <= reserve_ms("fast") + one.still_ms  # who looks has no core to itself, either
        canary.judge(in_time, f"{one} is more than {reserve_ms('fast')} ms after the dead-man")


def test_what_a_command_does_is_timed_with_and_without_a_guard() -> None:
    need("traced")
    assert bare(50).keys() == held("traced", 50).keys() == WORDS.keys()
