"""What the placement machine can be told, and what it answers with. Closed."""

from __future__ import annotations

from typing import NamedTuple

from primacy.placement.model import Intent, View


class Seen(NamedTuple):
    """What this node knows now. Told whenever it changes; the same again changes nothing."""

    view: View


class DeadlinePassed(NamedTuple):
    """The clock reached `deadline_ms`."""


class MoveEnded(NamedTuple):
    """The handover that `Move` asked for is over: another node leads, or it failed and this one may lead on."""

    election: str
    moved: bool


class Rebalance(NamedTuple):
    """An operator wants the best spread now: nothing rests, and maintenance does not stop it (W7)."""


Input = Seen | DeadlinePassed | MoveEnded | Rebalance


class Order(NamedTuple):
    """Who should campaign first if this election has no leader, then who, with all nodes in it."""

    election: str
    nodes: tuple[str, ...]
    aside: str
    """Why this node should not campaign at all: drained, or not in `only`; empty: it may (W2)."""


class Announce(NamedTuple):
    """Tell all nodes what this one is about to hand over; None: nothing any more."""

    intent: Intent | None


class Move(NamedTuple):
    """Hand this election over to that node, by an ordinary transfer; `MoveEnded` says how it went."""

    election: str
    to: str
    reason: str


Effect = Order | Announce | Move
