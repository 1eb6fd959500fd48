"""Who leads where, in a cluster whose strategy has one leader in each part of a divided network. Pure.

Two leaders are an alert where at most one was promised. Under bully, ring, or a user's own strategy that promises no
more, they show that the network is divided, and where: each node says whom it believes in, and those that believe in
the same one are an island. That is worth a look, and ends by itself when the parts meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from primacy.dashboard.rows import Said

NAMES_SHOWN = 6


class Island(NamedTuple):
    """A leader, and who follows it."""

    leader: str
    nodes: tuple[str, ...]


def islands(fresh: Iterable[Said], at_once: Sequence[str]) -> tuple[Island, ...]:
    """None unless two lead, and were seen to do so at one time (`at_once`): a row may be older than its node's end."""
    rows = list(fresh)
    leaders = sorted(row.node for row in rows if row.role == "leader" and row.node in at_once)
    if len(leaders) < 2:
        return ()
    return tuple(
        Island(leader, tuple(sorted(row.node for row in rows if leader in (row.node, row.leader))))
        for leader in leaders
    )


def told(found: Sequence[Island]) -> str:
    """In short, for a headline."""
    return f"{len(found)} parts: " + " · ".join(f"{each.leader} leads {_names(each)}" for each in found)


def explained(strategy: str, found: Sequence[Island]) -> str:
    """What it is, and what ends it."""
    leaders = " and ".join(each.leader for each in found)
    return (
        f"{leaders} lead, each in its part of the network. {strategy} promises one leader per part, no more; they "
        "become one when the parts meet. Where two must never act at once, use raft or lease."
    )


def _names(island: Island) -> str:
    others = [name for name in island.nodes if name != island.leader]
    if not others:
        return "nobody else"
    more = len(others) - NAMES_SHOWN
    return ", ".join(others[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
