"""How far the clocks of the nodes are apart, from what was read and from what must have come first. Pure.

Every lane has the wall clock of its own machine. Two kinds of evidence bound the offset of a clock:

- A read: the node said its time between the moments at which we asked and had the answer (Cristian's method).
- An order: a cause stands before its effect. Who follows a leader in a term does so after it was elected; what a node
  has in its own log of others happened before what it wrote there next.

Both are differences with an upper bound, so all bounds together are the shortest paths between clocks. A cycle below
zero means that the evidence contradicts itself: a clock was set meanwhile, nobody knows which, and none is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from typing import NamedTuple

from primacy.timeline.schema import Node, Told

SLACK_MS = 30.0
"""An event may be written down this much after the message that it sent: a process may stand still in between."""
TICK_MS = 1.0
"""Clocks are read in whole milliseconds."""
TOKENS_FROM = 10**9
"""Terms are smaller. A lease has its token in that place, and its row may be read before its holder has the answer."""
CONTRADICTION = "The order of the events contradicts the times: a clock was set in this span."
OF_COMMAND = re.compile(
    r"the command (runs:|is told to end|ended |could )|nothing of the command |lost the guard of run "
)
"""How the sentences about the command begin."""
AXIS = ""
"""The clock of the reader, in the graph; no node has this name."""


class Span(NamedTuple):
    """A node's clock minus the reader's, at least and at most."""

    low_ms: float
    high_ms: float


Log = tuple[str, Sequence[Told]]
"""A node, and its event log in the order in which it was written, with what it heard of others."""
Bounds = dict[tuple[str, str], float]
"""(i, j): the clock of j minus the clock of i is at most this."""


def clocks_of(
    names: Sequence[str], events: Sequence[Told], reads: Mapping[str, Span] | None = None, logs: Sequence[Log] = ()
) -> tuple[list[Node], str]:
    """Of each node its clock, in the order of `names`; and a sentence if a clock was set, else empty.

    Without reads the axis is the clock of the first node.
    """
    read = dict(reads or {})
    if not read and names:
        read[names[0]] = Span(0.0, 0.0)
    bounds = _shortest([AXIS, *names], {**_ordered(set(names), events, logs), **_measured(read)})
    if bounds is None:
        return [Node(name, 0.0, None, "unknown") for name in names], CONTRADICTION
    return [_node(name, bounds, read) for name in names], ""


def same_machine(names: Sequence[str]) -> list[Node]:
    """All read one clock, each in whole milliseconds."""
    return [Node(name, 0.0, TICK_MS, "machine") for name in names]


def _node(name: str, bounds: Bounds, read: Mapping[str, Span]) -> Node:
    high, low = bounds.get((AXIS, name), inf), -bounds.get((name, AXIS), inf)
    if high == inf or low == -inf:
        return Node(name, 0.0, None, "unknown")
    how = "axis" if low == high == 0 else "read" if name in read else "order"
    if low <= 0 <= high:  # it may be right: its times stay as they are in its log
        return Node(name, 0.0, max(-low, high), how)
    return Node(name, (low + high) / 2, (high - low) / 2, how)


def _measured(read: Mapping[str, Span]) -> Bounds:
    found: Bounds = {}
    for name, span in read.items():
        found[AXIS, name], found[name, AXIS] = span.high_ms, -span.low_ms
    return found


def _ordered(names: set[str], events: Sequence[Told], logs: Sequence[Log]) -> Bounds:
    found: Bounds = {}

    def before(cause: Told, effect: Told) -> None:
        if cause.node != effect.node and {cause.node, effect.node} <= names:
            key = (cause.node, effect.node)
            most = effect.at_unix_ms - cause.at_unix_ms + SLACK_MS + TICK_MS
            found[key] = min(found.get(key, inf), most)

    elected = {
        (one.node, one.term): one for one in events if one.code == "elected" and 0 < one.term < TOKENS_FROM and own(one)
    }
    for one in events:
        if one.code == "follows":
            leader = followed(one)
            if (cause := elected.get((leader, one.term))) is not None:
                before(cause, one)
    for reader, log in logs:
        heard: dict[str, Told] = {}
        for one in log:
            if one.node != reader:
                heard[one.node] = one
                continue
            for other in heard.values():
                before(other, one)
            heard.clear()
    return found


def own(one: Told) -> bool:
    """Of the election: its sentence begins with the node. What is told of the command may have the same code.

    A node may be called like the first word of what is told of the command: "the", "nothing", "lost".
    """
    return one.text.startswith(f"{one.node} ") and not OF_COMMAND.match(one.text)


def followed(one: Told) -> str:
    """Whom it follows, in the sentence of the event; empty if that cannot be read."""
    rest = one.text.removeprefix(f"{one.node} follows ")
    return rest.rpartition(" (")[0] if rest != one.text else ""


def _shortest(names: Sequence[str], bounds: Bounds) -> Bounds | None:
    """Floyd and Warshall; None if the bounds contradict each other."""
    found = dict(bounds)
    for middle, start, end in product(names, repeat=3):
        if (start, middle) in found and (middle, end) in found:
            through = found[start, middle] + found[middle, end]
            if start == end and through < -TICK_MS:
                return None
            if start != end and through < found.get((start, end), inf):
                found[start, end] = through
    return found
