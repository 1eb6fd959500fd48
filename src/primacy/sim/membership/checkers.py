"""Judges of a list that grows by joining. They see facts, and nothing of a machine.

N1: some time after the calm, all members list each other. N2: nobody lists one that was removed and has not been
started since. N3: one member leads, and all of them follow it. E2: no node sends more than any can.

A member is up and was not removed. One that was removed, has lost its memory and joins nobody begins a cluster of its
own, and is none; nor is one that could join nobody but such nodes. If the node that removed another went down before
anybody else had heard of it, both is right, as long as all are of one mind.
"""

from __future__ import annotations

from collections import defaultdict, deque

from primacy.settings.timing import RankTiming
from primacy.sim.membership.world import Fact, Kind

PER_HEARTBEAT = 4
"""Requests of one node to each other one in a heartbeat, as rule E2 has it. The most of thousands of trials is less
than half of what this and `BURST` allow."""
BURST = 4
"""To each node at once, on top: a node that starts calls all others, and tells them of one that it took in."""
WINDOW_MS = 1_000


class MembershipChecker:
    """All of them, for one trial."""

    def __init__(self, timing: RankTiming) -> None:
        self.timing = timing
        self.violations: list[str] = []
        self.most_sent = 0.0
        """By one node within a window, as a part of what the bound allows."""
        self._names: set[str] = set()
        self._up: set[str] = set()
        self._listed: dict[str, tuple[str, ...]] = {}
        self._leader: dict[str, str] = {}
        self._leads: set[str] = set()
        self._removed: dict[str, str] = {}
        """Who was removed, and by whom."""
        self._unsure: set[str] = set()
        self._apart: set[str] = set()
        """Have begun a cluster of their own."""
        self._targets: dict[str, tuple[str, ...]] = {}
        self._sent: dict[str, deque[int]] = defaultdict(deque)

    def __call__(self, fact: Fact) -> None:
        match fact.kind:
            case Kind.UP:
                self._names.add(fact.node)
                self._up.add(fact.node)
                self._targets[fact.node] = fact.names
                if fact.node in self._removed and not fact.names:
                    self._apart.add(fact.node)
                self._removed.pop(fact.node, None)
                self._unsure.discard(fact.node)
                self._listed[fact.node], self._leader[fact.node] = (fact.node,), ""
            case Kind.DOWN:
                self._up.discard(fact.node)
                self._leads.discard(fact.node)
                self._unsure |= {name for name in self._removed if self._is_unheard(name, fact.node)}
            case Kind.LISTED:
                self._listed[fact.node] = fact.names
                if len(fact.names) > 1:
                    self._apart.discard(fact.node)
            case Kind.LEADER:
                self._leader[fact.node] = fact.names[0]
                (self._leads.add if fact.leads else self._leads.discard)(fact.node)
            case Kind.REMOVED:
                self._removed[fact.names[0]] = fact.node
            case Kind.SENT:
                self._count(fact)
            case Kind.CALM:
                pass

    def _count(self, fact: Fact) -> None:
        sent, nodes = self._sent[fact.node], len(self._names)
        sent.append(fact.at_ms)
        while sent[0] <= fact.at_ms - WINDOW_MS:
            sent.popleft()
        bound = nodes * (BURST + PER_HEARTBEAT * WINDOW_MS / self.timing.heartbeat_ms)
        self.most_sent = max(self.most_sent, len(sent) / bound)
        if len(sent) == int(bound) + 1:
            self.violations.append(f"E2 at {fact.at_ms} ms: {fact.node} sent {len(sent)} requests in a second")

    def missing(self) -> list[str]:
        """What is not as it must be some time after the calm."""
        members = self._members()
        found = [
            f"N2: {node} lists {name}, which was removed"
            for node in members
            for name in self._listed[node]
            if name in self._removed
        ]
        found += [
            f"N1: {node} does not list {name}" for node in members for name in members if name not in self._listed[node]
        ]
        leaders = [node for node in members if node in self._leads]
        beliefs = {node: self._leader[node] for node in members}
        if len(leaders) != 1 or set(beliefs.values()) != set(leaders):
            found.append(f"N3: {leaders or 'nobody'} leads, and they follow {beliefs}")
        return found + [f"N3: {node} leads, and was removed" for node in sorted(self._leads & set(self._removed))]

    def _is_unheard(self, removed: str, by: str) -> bool:
        others = self._names - {removed, by}
        return self._removed[removed] == by and all(removed in self._listed[node] for node in others)

    def _members(self) -> tuple[str, ...]:
        for name in sorted(self._unsure):
            if any(name in self._listed[node] for node in self._up - {name}):
                self._removed.pop(name, None)
        outside = {*self._apart, *self._removed}
        alone = [node for node in sorted(self._up) if not self._leader[node] and self._targets[node]]
        for _ in alone:
            outside |= {node for node in alone if outside.issuperset(self._targets[node])}
        return tuple(sorted(self._up - outside))
