"""Majority arithmetic over a list of nodes (Q2): who votes, how many are enough, what a majority has acked.

Pure. Without a register of members it is fixed for a boot (M1); with one it is made anew whenever that changes, and
counts by halves (R2). A majority is one of all voters that are listed, also of those that are down: so any two of them
share a voter, which is what every rule of raft stands on. Nothing here knows of time, terms or messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from primacy.election.model import Kind, Membership, Register


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
    alone: bool = False
    """What this node has, a quorum has: it is the only voter."""
    halves: tuple[tuple[str, ...], ...] = ()
    """With a register: a quorum is a majority of each (R2). Empty without one: `voters` is all there is to count."""

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
            alone=membership.majority == 1,
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

    def has(self, yes: Collection[Any]) -> bool:
        """So many votes, each of another voter, elect."""
        if not self.halves:
            return len(yes) >= self.majority
        return all(2 * sum(name in yes for name in half) > len(half) for half in self.halves)

    def newest_acked(self, acked: Iterable[int], newest: int) -> int:
        """The newest number that a majority has, if the others acked these and the leader has `newest`; 0 for none."""
        others = self.majority - 1
        if others == 0:
            return newest
        numbers = sorted(acked, reverse=True)
        return numbers[others - 1] if len(numbers) >= others else 0

    def newest_by_halves(self, acked: Mapping[str, int]) -> int:
        """The newest number that a quorum has, if these nodes, the leader among them, have these; 0 for none."""
        found = [sorted((acked.get(name, 0) for name in half), reverse=True)[len(half) // 2] for half in self.halves]
        return min(found)

    def is_refused(self, no: Collection[Any]) -> bool:
        """So many refused that the others are no majority any more."""
        if self.halves:
            return any(2 * sum(name not in no for name in half) <= len(half) for half in self.halves)
        return len(no) > len(self.voters) - self.majority
