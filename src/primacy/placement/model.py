"""What one node knows when it decides where elections should be led. Immutable, sorted, of plain values.

Everything here may be late or wrong: it comes from gossip. What follows from a wrong view is a needless move (W6).
"""

from __future__ import annotations

from typing import NamedTuple


class Placement(NamedTuple):
    """Where one election wants to be led. What stands first here counts more, but for `only`, which is kept always."""

    only: tuple[str, ...] = ()
    """Other nodes do not campaign; empty: all may."""
    avoid: tuple[str, ...] = ()
    """Elections that another node should lead."""
    together: tuple[str, ...] = ()
    """Elections that the same node should lead; the setting is `with`."""
    capacity: int = 0
    """Its node should lead at most so many elections, this one included; 0: any number."""
    prefer: tuple[str, ...] = ()
    """These nodes before all others, the first before the second."""
    spread: bool = True
    """Moved for the sake of an even spread; False: only for what stands above."""


class Intent(NamedTuple):
    """What a node is about to hand over, told to all before it begins, and until it is over (W4)."""

    election: str
    to: str


class NodeSeen(NamedTuple):
    """A node, as it was last heard."""

    node: str
    heard: bool = True
    """It has spoken recently; this node itself always has."""
    up_ms: int = 0
    """For how long it has been up, by its own word."""
    weight: int = 1
    """Its share of the elections; 0: leads what no other can."""
    drained: bool = False
    intent: Intent | None = None


class ElectionSeen(NamedTuple):
    """An election, as this node takes part in it."""

    name: str
    placement: Placement = Placement()
    leader: str = ""
    unable: tuple[tuple[str, str], ...] = ()
    """Nodes that would not lead it now, and why: paused, recovering, not well, a witness, its command gave up there."""


class View(NamedTuple):
    """All of it, at one moment. Both lists are sorted by name."""

    nodes: tuple[NodeSeen, ...] = ()
    elections: tuple[ElectionSeen, ...] = ()
    maintenance: bool = False
    """An operator wants no automatic moves; what he asks for (drain, rebalance) is done (W7)."""


class Step(NamedTuple):
    """One handover of a plan."""

    election: str
    leaves: str
    to: str
    reason: str
    """One word of `REASONS`."""


REASONS = ("drain", "only", "unable", "avoid", "with", "capacity", "prefer", "spread")
"""Why an election moves, the most urgent first. The first three are never put off (W4)."""
URGENT = REASONS[:3]


def why_not(seen: ElectionSeen, node: NodeSeen) -> str:
    """Why this node may not lead it, in words that follow its name; empty if it may (W2)."""
    if seen.placement.only and node.node not in seen.placement.only:
        return "is not named by placement.only"
    if node.drained:
        return "is drained"
    if not node.heard:
        return "is not heard"
    return dict(seen.unable).get(node.node, "")
