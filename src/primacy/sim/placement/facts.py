"""What happened in a trial of placement, in true time. Checkers see this, and nothing of a machine."""

from __future__ import annotations

from typing import NamedTuple

from primacy.placement.model import Placement


class Led(NamedTuple):
    """A node leads an election from now on; `node` empty: nobody. `how`: campaign, move, or lost."""

    at_ms: int
    election: str
    node: str
    how: str


class Moved(NamedTuple):
    """A handover, from its beginning to its end."""

    began_ms: int
    ended_ms: int
    election: str
    leaves: str
    to: str
    reason: str
    ok: bool


class Happened(NamedTuple):
    """Something that is no placement's doing: kill, start, drain, undrain, unable, able, maintenance, ..."""

    at_ms: int
    what: str
    node: str = ""
    election: str = ""


class Facts(NamedTuple):
    """One trial."""

    kind: str
    """Which class of trial: it says which checkers apply."""
    clear: bool
    """No gossip was lost or late."""
    nodes: tuple[tuple[str, int], ...]
    """With their weights."""
    placements: tuple[tuple[str, Placement], ...]
    led: tuple[Led, ...]
    moves: tuple[Moved, ...]
    happened: tuple[Happened, ...]
    calm_ms: int
    """From when on nothing new happened."""
    end_ms: int
    last: tuple[tuple[str, str], ...]
    """Who leads what at the end."""
    able: tuple[tuple[str, tuple[str, ...]], ...]
    """Of each election the nodes that may lead it at the end: up, not drained, in `only`, not unable."""
    up: tuple[str, ...]
    drained: tuple[str, ...]
    settle_ms: int
    disturb_ms: int
    """For how long after a disturbance nothing may begin that could wait."""
