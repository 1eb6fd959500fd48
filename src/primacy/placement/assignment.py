"""Who leads what, and by how much a change would make it better (W3).

The cost of an assignment is six sums, the first more important than all that follow: elections on nodes that may not
lead them; pairs that avoid each other and share a node; pairs that belong together and do not; elections above a
capacity; places in `prefer`; and squares of how many each node leads, divided by its weight. A change is better if the
sums fall, compared from the first on. So nodes with one view make finitely many moves: the sums cannot fall for ever.
"""

from __future__ import annotations

from math import lcm

from primacy.placement.model import ElectionSeen, NodeSeen, View, why_not

Cost = tuple[int, int, int, int, int, int]
NOTHING: Cost = (0, 0, 0, 0, 0, 0)
UNWEIGHTED = 1_000
"""A node of weight 0 counts as so many times fuller than it is: it leads what no other can."""


class Assignment:
    """One view, with changes tried on it."""

    def __init__(self, view: View) -> None:
        self.nodes: dict[str, NodeSeen] = {node.node: node for node in view.nodes}
        self.elections: dict[str, ElectionSeen] = {seen.name: seen for seen in view.elections}
        self.at = {seen.name: seen.leader for seen in view.elections if seen.leader in self.nodes}
        self.led: dict[str, list[str]] = {node: [] for node in self.nodes}
        for name, node in self.at.items():
            self.led[node].append(name)
        self.scale = _scales(view.nodes)
        self.avoids = _pairs(view, "avoid")
        self.together = _pairs(view, "together")
        self.limited = any(seen.placement.capacity for seen in view.elections)
        self._may = {
            seen.name: {node.node for node in view.nodes if not why_not(seen, node)} for seen in view.elections
        }

    def may(self, name: str, node: str) -> bool:
        return node in self._may[name]

    def put(self, name: str, node: str) -> None:
        """It is led there from now on; empty: nowhere."""
        if before := self.at.pop(name, ""):
            self.led[before].remove(name)
        if node:
            self.at[name] = node
            self.led[node].append(name)

    def change(self, names: tuple[str, ...], node: str) -> Cost:
        """What the sums change by if all of these are led by `node`. Below `NOTHING`: it would be better."""
        before = {name: self.at.get(name, "") for name in names}
        touched = sorted({place for place in (*before.values(), node) if place})
        was = self._cost(names, touched)
        for name in names:
            self.put(name, node)
        now = self._cost(names, touched)
        for name in names:
            self.put(name, before[name])
        return (now[0] - was[0], now[1] - was[1], now[2] - was[2], now[3] - was[3], now[4] - was[4], now[5] - was[5])

    def _cost(self, names: tuple[str, ...], touched: list[str]) -> Cost:
        """As far as these elections and nodes are concerned. A pair among `names` counts twice, before and after."""
        at, elections = self.at, self.elections
        misplaced = shared = apart = preferred = 0
        for name in names:
            here = at.get(name, "")
            if not here:
                continue
            misplaced += here not in self._may[name]
            shared += sum(at.get(other) == here for other in self.avoids.get(name, ()))
            apart += sum(at.get(other, here) != here for other in self.together.get(name, ()))
            wanted = elections[name].placement.prefer
            preferred += wanted.index(here) if here in wanted else len(wanted)
        squares = sum(len(self.led[node]) ** 2 * self.scale[node] for node in touched)
        return misplaced, shared, apart, self._above(touched), preferred, squares

    def _above(self, touched: list[str]) -> int:
        if not self.limited:
            return 0
        above = 0
        for node in touched:
            load = len(self.led[node])
            for name in self.led[node]:
                capacity = self.elections[name].placement.capacity
                above += max(0, load - capacity) if capacity else 0
        return above


def _scales(nodes: tuple[NodeSeen, ...]) -> dict[str, int]:
    whole = lcm(*(node.weight for node in nodes if node.weight))
    return {node.node: whole // node.weight if node.weight else whole * UNWEIGHTED for node in nodes}


def _pairs(view: View, kind: str) -> dict[str, tuple[str, ...]]:
    """Both ways, whichever of the two says it."""
    known = {seen.name for seen in view.elections}
    found: dict[str, list[str]] = {}
    for seen in view.elections:
        for other in getattr(seen.placement, kind):
            if other in known and other != seen.name:
                found.setdefault(seen.name, []).append(other)
                found.setdefault(other, []).append(seen.name)
    return {name: tuple(sorted(set(others))) for name, others in found.items()}
