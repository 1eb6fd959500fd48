"""Every order of events in a small world of the cache: S1, S2 and S4 hold, and planted defects are found unaimed.

Larger scopes: `python -m primacy.sim.cache.small --help`, and the proof (`tests/support/proof_cache.py`).
"""

from __future__ import annotations

import os

import pytest

from primacy.sim.cache.small import Scope, SmallCache, search
from tests.support.mutants_cache import CACHE_MUTANTS

QUICK = os.environ.get("PRIMACY_SIZE") == "quick"
SCOPE = Scope(peers=3, ballots=2, announces=2, restarts=1, disturbances=1 if QUICK else 2)
FOUND = {"AnyBallot": "S4", "VotesGiveRight": "S1", "CalledEachRound": "S4", "CandidateWithinPromise": "S1"}
"""Defects that show in the small scope; others mask each other, or need more
(tests/simulation/test_mutants_cache.py)."""


@pytest.mark.parametrize("askers", [(0, 1), (1, 0)])
def test_no_order_of_events_breaks_a_promise(askers: tuple[int, ...]) -> None:
    found = search(SCOPE._replace(askers=askers))
    assert found.wrong == "", "\n".join(found.story)
    assert found.complete
    assert found.calls > 100, "the bounds are wide enough to matter"
    assert found.second > 0, "a second call begins under a higher epoch"


@pytest.mark.later
def test_nor_does_one_if_restarts_forget_everything() -> None:
    """S1 needs no memory, no term and no disk."""
    found = search(Scope(peers=3, ballots=2, announces=2, restarts=1, disturbances=1, forgets=True))
    assert found.wrong == "", "\n".join(found.story)
    assert found.complete


def test_two_peers() -> None:
    found = search(Scope(peers=2, ballots=2, announces=2, restarts=2, disturbances=2))
    assert found.wrong == "", "\n".join(found.story)
    assert found.complete


def test_a_search_that_ends_at_its_bound_says_so() -> None:
    found = search(SCOPE._replace(states=500))
    assert not found.complete
    assert found.wrong == ""


def test_the_same_search_twice_is_the_same() -> None:
    first, second = (search(Scope(peers=2, restarts=0, disturbances=1)) for _ in range(2))
    assert first._replace(seconds=0) == second._replace(seconds=0)


def test_time_alone_makes_no_new_state() -> None:
    """Machines are compared by times relative to their clocks: what waits long enough is one state."""
    world = SmallCache(SCOPE._replace(askers=(0,)))
    blank = world.first()._replace(sent=0, coming=0)
    before = [blank]
    for _ in range(40):
        before.append(world._tick(before[-1]))
    assert before[-1] == before[-2]


@pytest.mark.later
@pytest.mark.parametrize("name", FOUND)
def test_a_planted_defect_is_found_as_a_short_story(name: str) -> None:
    defect = next(mutant.machine for mutant in CACHE_MUTANTS if mutant.name == name)
    found = search(SCOPE._replace(disturbances=2), defect)
    assert found.wrong.startswith(FOUND[name])
    assert 5 <= len(found.story) <= 30
