"""Who should campaign first in which election (W8).

For each election: where it would be led best if its leader were gone, with all else that this leader leads, and that
has no leader now, placed before it in order of names. So what a lost node led is spread at once, and needs no moves.
"""

from __future__ import annotations

from primacy.placement.assignment import Assignment
from primacy.placement.model import NodeSeen, View


def orders(view: View) -> dict[str, tuple[str, ...]]:
    """Of each election all nodes: those that may lead it, the best first; its leader; then those that may not."""
    found: dict[str, tuple[str, ...]] = {}
    for lost in ("", *(node.node for node in view.nodes)):
        assignment = Assignment(view)
        names = [seen.name for seen in view.elections if assignment.at.get(seen.name, "") in ("", lost)]
        orphans = [name for name in names if assignment.at.get(name, "") == lost]
        for name in names:
            assignment.put(name, "")
        for name in names:
            ranked = _ranked(assignment, name, lost)
            if name in orphans:
                found[name] = ranked
            if ranked and assignment.may(name, ranked[0]):
                assignment.put(name, ranked[0])
    return found


def aside(view: View, election: str, node: str) -> str:
    """Why this node should not campaign there at all: what an operator has said, in the file or by `drain` (W2)."""
    seen = next(seen for seen in view.elections if seen.name == election)
    here = next((each for each in view.nodes if each.node == node), NodeSeen(node))
    if seen.placement.only and node not in seen.placement.only:
        return "placement.only does not name it"
    return "it is drained" if here.drained else ""


def _ranked(assignment: Assignment, name: str, lost: str) -> tuple[str, ...]:
    def key(node: str) -> tuple[object, ...]:
        able = assignment.may(name, node)
        return not able, node == lost, assignment.change((name,), node) if able else (), node

    return tuple(sorted(assignment.nodes, key=key))
