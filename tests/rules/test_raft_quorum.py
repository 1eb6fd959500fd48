"""Majority arithmetic and the progress of voters, by themselves (Q2, Q3): no machine, no time but what is given."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primacy.election.model import Kind, Member, Membership
from primacy.election.raft.progress import Progress
from primacy.election.raft.quorum import Quorum

NAMES = "abcdefg"


def quorum(voters: int, node: str = "a") -> Quorum:
    return Quorum.of(Membership.of(NAMES[:voters], "list"), node)


@pytest.mark.parametrize("voters", range(1, 8))
def test_Q2_two_majorities_share_a_voter_and_one_less_is_none(voters: int) -> None:
    seen = quorum(voters)
    enough = [set(some) for some in combinations(seen.voters, seen.majority)]
    assert all(first & second for first in enough for second in enough)
    assert all(seen.has(some) for some in enough)
    assert not any(seen.has(some) for some in combinations(seen.voters, seen.majority - 1))


def test_Q2_who_votes_who_may_lead_and_who_only_follows() -> None:
    members = [Member("a"), Member("b", Kind.WITNESS), Member("c", Kind.OBSERVER), Member("d", priority=2)]
    seen = {name: Quorum.of(Membership.of(members, "list"), name) for name in "abcd"}
    assert [(seen[name].votes, seen[name].campaigns) for name in "abcd"] == [
        (True, True),
        (True, False),
        (False, False),
        (True, True),
    ]
    assert seen["a"].voters == ("a", "b", "d")
    assert seen["a"].others == ("b", "c", "d")
    assert seen["a"].other_voters == ("b", "d")
    assert seen["a"].majority == 2
    assert [seen[name].rank for name in "abcd"] == [1, 1, 1, 0]


def test_Q2_a_node_that_is_not_listed_neither_votes_nor_leads() -> None:
    seen = quorum(3, "x")
    assert (seen.votes, seen.campaigns, seen.rank) == (False, False, 0)


@given(voters=st.integers(1, 7), newest=st.integers(0, 9), numbers=st.lists(st.integers(1, 9), max_size=6))
def test_Q3_a_majority_has_the_newest_acked_and_nothing_above(voters: int, newest: int, numbers: list[int]) -> None:
    seen = quorum(voters)
    others = zip(seen.other_voters, numbers, strict=False)
    acked = {"a": newest, **{name: min(number, newest) for name, number in others}}
    found = seen.newest_acked(acked)

    def have(number: int) -> int:
        return sum(each >= number for each in acked.values())

    assert found == 0 or have(found) >= seen.majority
    assert have(found + 1) < seen.majority


@pytest.mark.parametrize("voters", range(1, 8))
def test_Q4_refusals_exclude_a_majority_when_too_few_others_are_left(voters: int) -> None:
    seen = quorum(voters)
    for no in range(voters + 1):
        assert seen.is_refused(NAMES[:no]) == (not seen.has(NAMES[no:voters]))


def test_Q3_the_hold_counts_from_the_departure_and_only_forward() -> None:
    progress = Progress(100)
    assert (progress.proved, progress.hold_from_ms) == (0, 100)
    for now_ms in (110, 120, 130):
        progress.sent(now_ms)
    assert progress.prove(2)
    assert (progress.proved, progress.hold_from_ms) == (2, 120)
    assert not progress.prove(2)
    assert not progress.prove(1)
    assert progress.hold_from_ms == 120
    assert progress.departures == {2: 120, 3: 130}, "what is older can prove nothing more"


def test_Q3_an_ack_is_news_once_and_only_of_a_heartbeat_that_was_sent() -> None:
    progress = Progress(0)
    progress.sent(10)
    progress.sent(20)
    assert progress.is_news("b", 1)
    progress.acked["b"] = 2
    assert not progress.is_news("b", 2)
    assert not progress.is_news("b", 1)
    assert not progress.is_news("c", 3)
    assert not progress.is_news("c", 0)
