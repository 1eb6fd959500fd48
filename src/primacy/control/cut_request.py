"""`/v1/links`, in lab mode only: cut or mend traffic with a node, one way or both. Pure.

The single executor has a blacklist for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primacy.control import NodeStatus
from primacy.control.members import only
from primacy.errors import UsageError
from primacy.settings import membership_rows

WAYS = ("none", "in", "out", "both")
"""`in`: what the other node sends is not heard here. `out`: nothing is sent to it."""


class Cut(NamedTuple):
    """One link, from now on. An empty node means all of them."""

    node: str
    way: str


def cut_of(body: dict[str, Any], status: NodeStatus) -> Cut:
    """Raises `UsageError` for a request that makes no sense."""
    only(body, "node", "cut", "heal")
    if "heal" in body:
        if body != {"heal": True}:
            raise UsageError('heal: mends all links, and goes with nothing else: {"heal": true}')
        return Cut("", "none")
    others = [name for name, _, _ in status.listed or membership_rows(status.settings) if name != status.node]
    node, way = body.get("node"), body.get("cut")
    if not isinstance(node, str) or node not in others:
        there = f"there are {', '.join(others)}" if others else "there is none"
        raise UsageError(f"node = {str(node)[:40]}: no other node of this cluster; {there}")
    if way not in WAYS:
        raise UsageError(f"cut = {str(way)[:40]}: one of {', '.join(WAYS)}")
    return Cut(node, way)
