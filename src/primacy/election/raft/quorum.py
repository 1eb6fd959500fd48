"""Majority arithmetic over a list of nodes (Q2): who votes, how many are enough, what a majority has acked.

Pure, and fixed for a boot, for a list changes only with a restart (M1). A majority is one of all voters that are
listed, also of those that are down: so any two of them share a voter, which is what every rule of raft stands on.
Nothing here knows of time, terms or messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import NamedTuple

from primacy.election.model import Kind, Membership


class Quorum(NamedTuple):
    """A list of nodes as one of them sees it."""

    votes: bool
    """This node votes and acks; an observer only follows."""
    campaigns: bool
    """This node may lead; a witness only votes."""
    candidates: tuple[str, ...]
    """Who may lead."""
    voters: tuple[str, ...]
    others: tuple[str, ...]
    other_voters: tuple[str, ...]
    majority: int
    """So many voters are enough."""
    rank: int
    """How many priorities of candidates stand above this node's."""

    @classmethod
    def of(cls, membership: Membership, node: str) -> Quorum:
        mine = membership.get(node)
        able = [member for member in membership.members if member.kind is Kind.VOTER]
        levels = sorted({member.priority for member in able}, reverse=True)
        return cls(
            votes=mine is not None and mine.kind is not Kind.OBSERVER,
            campaigns=mine is not None and mine.kind is Kind.VOTER,
            candidates=tuple(member.id for member in able),
            voters=membership.voters,
            others=tuple(name for name in membership.ids if name != node),
            other_voters=tuple(name for name in membership.voters if name != node),
            majority=membership.majority,
            rank=levels.index(mine.priority) if mine is not None and mine.priority in levels else 0,
        )

    def has(self, yes: Sized) -> bool:
        """So many votes, each of another voter, elect."""
        return len(yes) >= self.majority

    def newest_acked(self, acked: Iterable[int], newest: int) -> int:
        """The newest number that a majority has, if the others acked these and the leader has `newest`; 0 for none."""
        others = self.majority - 1
        if others == 0:
            return newest
        numbers = sorted(acked, reverse=True)
        return numbers[others - 1] if len(numbers) >= others else 0

    def is_refused(self, no: Sized) -> bool:
        """So many refused that the others are no majority any more."""
        return len(no) > len(self.voters) - self.majority
