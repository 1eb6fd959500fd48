"""Links that were cut on purpose, in lab mode: the faults of a network, without touching the network.

A node that cuts its link drops what it would send, what it would hear, or both; counted as `cut`. A cut is a fact of
this start of the node: it is not kept.
"""

from __future__ import annotations

WAYS = ("none", "in", "out", "both")
"""`in`: what the other node sends is not heard here. `out`: nothing is sent to it."""


class LinkCuts:
    """Which links are cut, and which way."""

    def __init__(self) -> None:
        self.deaf_to: set[str] = set()
        self.dumb_to: set[str] = set()

    def cut(self, node: str, way: str) -> None:
        """From now on; `none` mends it."""
        assert way in WAYS, way
        for side, ways in ((self.deaf_to, ("in", "both")), (self.dumb_to, ("out", "both"))):
            if way in ways:
                side.add(node)
            else:
                side.discard(node)

    def way(self, node: str) -> str:
        """How this link stands, as one of `WAYS`."""
        deaf, dumb = node in self.deaf_to, node in self.dumb_to
        return "both" if deaf and dumb else "in" if deaf else "out" if dumb else "none"

    def heal(self) -> None:
        """All of them."""
        self.deaf_to.clear()
        self.dumb_to.clear()
