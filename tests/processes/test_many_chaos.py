"""Five agents in chaos for a minute: no command runs twice at once, and no election is without one beyond its bound.

What `make proof PART=many` does for ten minutes with sixty elections (`tests/support/proof_many.py`, which says what
the bound is). Here there are fifteen: the commands of sixty would take one of two processors for their stamps alone,
which three other files of tests need meanwhile. That the spread is even afterwards is judged in `test_placement.py`.
"""

from __future__ import annotations

import pytest

from primacy.settings.timing import DEFAULT_PROFILE
from tests.support import stamp
from tests.support.proof_many import Disturbance, Gap, bound_ms, chaos, gaps

pytestmark = pytest.mark.beside(order=7)

MINUTES, ELECTIONS = 1.0, 15
EVERY_S = (1.0, 6.0)
MS = 1_000_000


def one(start: int, first_ms: int, last_ms: int) -> stamp.Stamp:
    return stamp.Stamp(b"a", start, start, 1, stamp.COMMAND, 7, first_ms * MS, last_ms * MS)


def test_what_is_judged_is_the_time_between_any_two_starts_and_at_both_ends() -> None:
    stamps = [one(1, 500, 900), one(3, 2_000, 2_600), one(2, 880, 1_000)]
    found = [(gap.from_ns // MS, gap.to_ns // MS) for gap in gaps("e", stamps, 400 * MS, 3_000 * MS)]
    assert found == [(400, 500), (1_000, 2_000), (2_600, 3_000)]
    assert gaps("e", stamps, 520 * MS, 990 * MS) == []
    assert [gap.ms for gap in gaps("e", [], 0, 70 * MS)] == [70]


def test_what_goes_wrong_meanwhile_adds_a_failover_and_what_was_before_does_not() -> None:
    gap = Gap("e", 1_000 * MS, 9_000 * MS)
    alone = bound_ms(gap, [Disturbance("kill", 999 * MS), Disturbance("start", 9_001 * MS)], 5_000, 10)
    assert bound_ms(gap, [Disturbance("kill", 999 * MS), Disturbance("kill", 4_000 * MS)], 5_000, 10) == alone + 5_000


def test_chaos_overlaps_nowhere_and_each_election_runs_again_within_its_bound() -> None:
    print(chaos(MINUTES, ELECTIONS, DEFAULT_PROFILE, even=False, every_s=EVERY_S))
