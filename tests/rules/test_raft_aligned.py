"""Several elections of one process send their heartbeats at one moment: earlier than else, and never later."""

from __future__ import annotations

from itertools import pairwise

import pytest

from primacy.election.messages import Heartbeat
from primacy.election.raft.strategy import RaftOptions
from tests.support.raft_harness import HEARTBEAT, Bench


def moments_ms(options: RaftOptions, seed: int, heartbeats: int) -> list[int]:
    """When the heartbeats of a leader leave whose work runs."""
    bench = Bench(options=options, seed=seed)
    bench.lead()
    found: list[int] = []
    while len(found) < heartbeats:
        bench.wake()
        if bench.sent(Heartbeat):
            found.append(bench.now)
            bench.ack("b")
    return found


@pytest.mark.parametrize("seed", range(12))
def test_heartbeats_come_to_whole_multiples_of_their_time_and_stay_there(seed: int) -> None:
    found = moments_ms(RaftOptions(aligned=True), seed, 12)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert all(HEARTBEAT // 2 <= gap <= HEARTBEAT for gap in gaps), gaps
    assert all(at % HEARTBEAT == 0 for at in found[6:]), found


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_with_no_other_election_beside_it_keeps_its_own_moments(seed: int) -> None:
    found = moments_ms(RaftOptions(), seed, 6)
    assert {later - earlier for earlier, later in pairwise(found)} == {HEARTBEAT}
