"""Majority arithmetic over members (Q2): who votes, how many are enough, what a quorum has acked.

Pure. It is made anew whenever the register changes, and counts by halves (R2). A majority is one of all voters that are
named, also of those that are down: so any two of them share a voter, which is what every rule of raft stands on.
Nothing here knows of time, terms or messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from primacy.election.model import Kind, Membership, Register


class Quorum(NamedTuple):
    """The members as one node sees them."""

    votes: bool
    """This node votes and acks; an observer only follows."""
    campaigns: bool
    """This node may lead; a witness only votes."""
    voters: tuple[str, ...]
    others: tuple[str, ...]
    other_voters: tuple[str, ...]
    majority: int
    """So many of the voters after a change are enough of them."""
    rank: int
    """How many priorities of candidates stand above this node's."""
    alone: bool
    """What this node has, a quorum has: it is the only voter."""
    halves: tuple[tuple[str, ...], ...]
    """A quorum is a majority of each (R2)."""

    @classmethod
    def of(cls, membership: Membership, node: str) -> Quorum:
        """The nodes of a file, which are the members of a first start: one half."""
        mine = membership.get(node)
        levels = sorted({member.priority for member in membership.members if member.kind is Kind.VOTER}, reverse=True)
        return cls(
            votes=mine is not None and mine.kind is not Kind.OBSERVER,
            campaigns=mine is not None and mine.kind is Kind.VOTER,
            voters=membership.voters,
            others=tuple(name for name in membership.ids if name != node),
            other_voters=tuple(name for name in membership.voters if name != node),
            majority=membership.majority,
            rank=levels.index(mine.priority) if mine is not None and mine.priority in levels else 0,
            alone=membership.voters == (node,),
            halves=(membership.voters,),
        )

    @classmethod
    def of_register(cls, register: Register, halves: tuple[tuple[str, ...], ...], node: str) -> Quorum:
        """A register as one node sees it, counted by these halves. Who votes only by the half before is asked, too."""
        plain = cls.of(Membership(register.members), node)
        voters = tuple(sorted({name for half in halves for name in half}))
        return plain._replace(
            votes=node in voters,
            voters=voters,
            others=tuple(name for name in register.everybody if name != node),
            other_voters=tuple(name for name in voters if name != node),
            alone=voters == (node,),
            halves=halves,
        )

    def has(self, yes: Collection[str]) -> bool:
        """The votes of these elect."""
        return all(2 * sum(name in yes for name in half) > len(half) for half in self.halves)

    def newest_acked(self, acked: Mapping[str, int]) -> int:
        """The newest number that a quorum has, if these nodes, the leader among them, have these; 0 for none."""
        found = [sorted((acked.get(name, 0) for name in half), reverse=True)[len(half) // 2] for half in self.halves]
        return min(found)

    def is_refused(self, no: Collection[str]) -> bool:
        """So many refused that the others are no majority any more."""
        return any(2 * sum(name not in no for name in half) <= len(half) for half in self.halves)
