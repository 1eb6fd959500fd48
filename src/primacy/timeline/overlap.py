"""Runs at once, and spans in which nobody ran, as far as the clocks allow to say so. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from primacy.timeline.schema import CONFIRMED, Gap, Node, Overlap, Run

PAIRS_MAX = 2_000
"""Overlaps that are listed: what is drawn red does not get redder."""


def overlaps(runs: Sequence[Run], nodes: Sequence[Node]) -> list[Overlap]:
    """Of different nodes, as far as both are sure to have run, by more than both clocks are uncertain."""
    found: list[Overlap] = []
    current: list[Run] = []
    for run in sorted(runs, key=lambda one: one.from_ms):
        current = [one for one in current if one.sure_ms > run.from_ms]
        for one in current:
            to_ms = min(one.sure_ms, run.sure_ms)
            unsure = uncertainty(nodes, one.node, run.node)
            sure = unsure is not None and to_ms - run.from_ms > unsure
            if sure and one.node != run.node and len(found) < PAIRS_MAX:
                found.append(Overlap(run.from_ms, to_ms, one.node, run.node))
        current.append(run)
    return found


def gaps(runs: Sequence[Run], nodes: Sequence[Node]) -> list[Gap]:
    """After an end that was confirmed in time, if nobody may have run meanwhile."""
    found: list[Gap] = []
    newest: Run | None = None
    for run in sorted(runs, key=lambda one: one.from_ms):
        if newest is not None and newest.end == CONFIRMED and newest.sure_ms == newest.to_ms < run.from_ms:
            found.append(Gap(newest.to_ms, run.from_ms, uncertainty(nodes, newest.node, run.node)))
        if newest is None or run.to_ms >= newest.to_ms:
            newest = run
    return found


def uncertainty(nodes: Sequence[Node], one: int, other: int) -> float | None:
    """By how much times of two nodes may be wrong against each other; None: not known."""
    if one == other:
        return 0.0
    first, second = nodes[one].uncertainty_ms, nodes[other].uncertainty_ms
    return None if first is None or second is None else first + second
