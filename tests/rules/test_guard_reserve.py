"""Guards that are kept ready for several commands of one process: bounded, and never needed for safety."""

from __future__ import annotations

from primacy.agent.many import GUARDS_READY_LEAST, _guards_ready
from primacy.supervise.process_workload import Reserve


def test_a_reserve_has_so_many_places_and_gets_them_back() -> None:
    reserve = Reserve(2)
    assert [reserve.take() for _ in range(3)] == [True, True, False]
    reserve.give_back()
    assert [reserve.take() for _ in range(2)] == [True, False]
    reserve.most = 3  # the file has more elections now
    assert reserve.take()


def test_at_fifty_elections_a_quarter_of_the_guards_in_reserve_is_kept() -> None:
    assert [_guards_ready(count) for count in (1, 10, 16, 50, 300)] == [GUARDS_READY_LEAST] * 3 + [13, 75]
