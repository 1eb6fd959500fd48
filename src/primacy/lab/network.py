"""Which links of a lab are cut, one way or both, and the shapes of a divided network. Pure.

A link is two one-way streets. A cut street is closed at both of its ends: the sender sends nothing, the receiver hears
nothing. So the cut also holds for a release that a guard sends past its agent, and while one of the two restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from primacy.errors import UsageError

WAYS = ("none", "in", "out", "both")
"""Of a link, seen from one node: `in` what it would hear, `out` what it would send."""
SHAPES = {
    "leader-alone": "the leader is alone, the others are together",
    "halves": "no side has a majority",
    "2/3": "the leader is on the smaller side",
}
"""As a person asks for them, and as events say them."""


class LabNetwork:
    """The streets between the nodes of one lab."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.cut: frozenset[tuple[str, str]] = frozenset()
        """(sender, receiver) of every closed street."""

    def set(self, node: str, other: str, way: str) -> None:
        """What `way` says of the link, seen from `node`; what it does not name is open."""
        for name in (node, other):
            if name not in self.names:
                raise UsageError(f"node = {name[:40]}: no node of this lab; there are {', '.join(self.names)}")
        if node == other:
            raise UsageError(f"node {node} has no link with itself; name two nodes")
        link_text(node, other, way)
        streets = {(node, other): way in ("out", "both"), (other, node): way in ("in", "both")}
        closed = {street for street, is_cut in streets.items() if is_cut}
        self.cut = (self.cut - streets.keys()) | closed

    def divide(self, islands: Iterable[Iterable[str]]) -> None:
        """Only nodes of one island hear each other. Whoever is on none is alone."""
        home: dict[str, int] = {}
        for number, island in enumerate(islands):
            for name in island:
                if name not in self.names:
                    raise UsageError(f"islands: {name[:40]} is no node of this lab; there are {', '.join(self.names)}")
                if name in home:
                    raise UsageError(f"islands: {name} is named twice; a node is on one island")
                home[name] = number
        alone = {name: -1 - at for at, name in enumerate(self.names)}
        home = {**alone, **home}
        self.cut = frozenset((a, b) for a in self.names for b in self.names if home[a] != home[b])

    def heal(self) -> None:
        self.cut = frozenset()

    def way(self, node: str, other: str) -> str:
        """As `node` sees its link with `other`."""
        out, into = (node, other) in self.cut, (other, node) in self.cut
        return "both" if out and into else "out" if out else "in" if into else "none"

    def listed(self) -> list[list[str]]:
        """The closed streets in order: [sender, receiver]."""
        return [list(street) for street in sorted(self.cut)]


def shape_text(shape: str) -> str:
    """In words: who reads an event later did not type its name."""
    if shape not in SHAPES:
        raise UsageError(f"shape = {shape[:40]}: one of {', '.join(SHAPES)}")
    return SHAPES[shape]


def link_text(node: str, other: str, way: str) -> str:
    """What a lab does that sets the link so, in words: who reads it sees it from neither end."""
    if way not in WAYS:
        raise UsageError(f"cut = {way[:40]}: one of {', '.join(WAYS)}")
    if way in ("none", "both"):
        return f"the lab {'mends' if way == 'none' else 'cuts'} the link between {node} and {other}"
    sender, receiver = (other, node) if way == "in" else (node, other)
    return f"the lab cuts the link from {sender} to {receiver}, one way"


def islands_of(shape: str, names: Sequence[str], leader: str) -> list[list[str]]:
    """The islands of a named shape. Without a leader the first node takes its place.

    `halves`: with an odd number one node more is alone. `2/3`: of five nodes, two against three.
    """
    shape_text(shape)
    first = leader if leader in names else names[0]
    order = [first, *(name for name in names if name != first)]
    count = len(order)
    if shape == "leader-alone":
        return [order[:1], order[1:]]
    if shape == "2/3":
        small = max(1, (count - 1) // 2)
        return [order[:small], order[small:]]
    half = count // 2
    return [island for island in (order[:half], order[half : 2 * half], order[2 * half :]) if island]
