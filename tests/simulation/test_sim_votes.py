"""I3 where a memory was lost: which vote is held against a node that remembers it no longer."""

from __future__ import annotations

import pytest

from primacy.election.events import Code
from primacy.election.messages import VoteReply
from primacy.election.model import Role
from primacy.sim.checkers import TermChecker, Violation
from primacy.sim.facts import MEMORY_LOST, Fact, Kind
from tests.support.raft_harness import Bench, P, boot_of, origin

UP, DOWN = Fact(0, Kind.UP, "a", 1), Fact(1, Kind.DOWN, "a")
LOST = Fact(1, Kind.FAULT, "a", 1, MEMORY_LOST)


def vote(node: str, candidate: str, term: int = 7) -> Fact:
    return Fact(1, Kind.VOTE, node, term, candidate)


def judged(*facts: Fact) -> list[str]:
    found: list[Violation] = []
    checker = TermChecker(found.append)
    for fact in facts:
        checker(fact)
    return [violation.rule for violation in found]


def test_I3_a_vote_for_itself_that_nobody_joined_goes_with_the_boot_and_its_memory() -> None:
    assert judged(UP, vote("a", "a"), DOWN, LOST, UP, vote("a", "b")) == []
    late = vote("c", "a")  # the request was on its way, and whoever answers it answers a boot that is gone
    assert judged(UP, vote("a", "a"), DOWN, LOST, UP, late, vote("a", "b")) == []
    assert judged(UP, vote("a", "a"), DOWN, LOST, UP, vote("a", "b"), vote("a", "c")) == ["I3"]


@pytest.mark.parametrize(
    "facts",
    [
        (UP, vote("a", "a"), DOWN, UP),
        (UP, vote("a", "c"), DOWN, LOST, UP),
        (UP, vote("a", "a"), vote("c", "a"), DOWN, LOST, UP),
        (UP, UP, vote("a", "a"), DOWN, LOST, UP),
        (UP, vote("a", "a"), Fact(1, Kind.EVENT, "a", 7, Code.ELECTED, 7), DOWN, LOST, UP),
        (UP, vote("a", "a"), DOWN, LOST._replace(node="c"), UP),
        (UP, vote("a", "a"), DOWN, LOST._replace(text="power lost"), UP),
    ],
    ids=["remembered", "for another", "joined", "two machines", "elected", "another's", "another fault"],
)
def test_I3_every_other_vote_is_held_against_it(facts: tuple[Fact, ...]) -> None:
    assert judged(*facts, vote("a", "b")) == ["I3"]


def test_M2_votes_for_a_boot_that_is_gone_count_for_no_later_one() -> None:
    """The node asked in term 1, lost its memory and asks again in term 1: only answers to this boot count."""
    bench = Bench(blank=True, boot=77)
    bench.report("b", 0)
    bench.report("c", 0)
    bench.wait(2 * P)
    bench.yes("b", 1, pre=True)
    assert bench.m.ballot is not None
    assert (bench.m.ballot.term, bench.m.role) == (1, Role.CANDIDATE)
    for node in ("b", "c"):
        bench.hear(VoteReply(origin(node), 1, False, True, boot_of("a"), 1))
    assert bench.m.role is Role.CANDIDATE
    bench.yes("b", 1)
    assert bench.m.role is Role.LEADER
