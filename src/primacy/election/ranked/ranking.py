"""The nodes of a bully or ring cluster as one node knows them: who is listed, who ranks where, who was heard when.

Sorted once per change of the list, so that every later comparison is one of two small integers. A node that the
leader has not heard for long may be left out of elections (`pruned`); it stays listed, is still told who leads, and
counts again as soon as it is heard: else two islands could forget each other for good.
"""

from __future__ import annotations

from primacy.election.model import Kind, Member, Membership
from primacy.election.ranked.rank import MEMBERS_MAX, rank_key


class Ranking:
    """One node's list. Decides nothing."""

    def __init__(self, node: str, membership: Membership, order: str, window_ms: int) -> None:
        self.node = node
        self.order = order
        self.window_ms = window_ms
        """Heard within this counts as alive."""
        self.heard: dict[str, int] = {}
        self.pruned: tuple[str, ...] = ()
        own = membership.get(node)
        self._own_kind = own.kind if own is not None else Kind.VOTER
        self.take(membership)

    def take(self, membership: Membership) -> None:
        """Another list, from now on."""
        self.membership = membership
        ordered = sorted(membership.members, key=lambda member: rank_key(member, self.order))
        self.place = {member.id: index for index, member in enumerate(ordered)}
        self.leaders = tuple(member.id for member in ordered if member.kind is Kind.VOTER)
        """Who may ever lead, lowest first."""
        self.others = tuple(member.id for member in ordered if member.id != self.node)
        self.higher = tuple(name for name in self.leaders if self.outranks(name, self.node))
        self.kind = self._own_kind
        self.eligible = self.node in self.leaders
        self._may_lead = frozenset(self.leaders)  # asked, never walked through
        self.heard = {name: at_ms for name, at_ms in self.heard.items() if name in self.place}
        self.pruned = tuple(name for name in self.pruned if name in self.place)

    def changed(self, members: tuple[tuple[str, int, int], ...], version: int) -> bool:
        """Takes a list that came by joining, unless it is older than the present one. Kinds stay as they are."""
        if version and version < self.membership.version:
            return False
        kinds = {member.id: member.kind for member in self.membership.members} | {self.node: self._own_kind}
        listed = [
            Member(name, kinds.get(name, Kind.VOTER), priority, at_ms) for name, priority, at_ms in members if name
        ]
        self.take(Membership.of(listed[:MEMBERS_MAX], self.membership.hash, version))
        return True

    def __contains__(self, node: str) -> bool:
        return node in self.place

    def may_lead(self, node: str) -> bool:
        """B5: listed, and of a kind that leads. Never the empty id."""
        return node in self._may_lead

    def outranks(self, one: str, other: str) -> bool:
        """An unknown node ranks below every known one."""
        return self.place.get(one, -1) > self.place.get(other, -1)

    def note(self, now_ms: int, sender: str) -> bool:
        """It was heard; True if it had been left out until now."""
        self.heard[sender] = now_ms
        if sender not in self.pruned:
            return False
        self.pruned = tuple(name for name in self.pruned if name != sender)
        return True

    def is_alive(self, now_ms: int, node: str) -> bool:
        heard_ms = self.heard.get(node)
        return heard_ms is not None and now_ms - heard_ms <= self.window_ms

    def alive(self, now_ms: int) -> tuple[str, ...]:
        """In id order, with the node itself."""
        return tuple(sorted((self.node, *(name for name in self.others if self.is_alive(now_ms, name)))))

    def has_majority(self, now_ms: int) -> bool:
        """Heard from a majority of the whole list; who was left out of elections still counts."""
        voters = self.membership.voters
        return sum(name == self.node or self.is_alive(now_ms, name) for name in voters) >= self.membership.majority

    def highest_live(self, now_ms: int) -> str:
        """The best other node that was heard lately; empty if there is none."""
        return next((name for name in reversed(self.leaders) if name != self.node and self.is_alive(now_ms, name)), "")

    def prune(self, now_ms: int, since_ms: int, limit_ms: int) -> tuple[str, ...]:
        """Leaves out who was silent for too long, counted from `since_ms` at the earliest, and says whom."""
        dead = tuple(
            name
            for name in self.others
            if name not in self.pruned and now_ms - max(self.heard.get(name, since_ms), since_ms) > limit_ms
        )
        self.pruned += dead
        return dead

    def told_pruned(self, leader: str, names: tuple[str, ...]) -> None:
        """The leader's word on who is left out."""
        self.pruned = tuple(name for name in self.others if name in names and name != leader)
