"""What a lease strategy asks of its store and what it is answered (L1). Nothing here knows SQL.

Take, renew and release compare token and seq; the store's clock stands in no condition. Every answer says which server
gave it, so that a fail-over to another one is noticed (L3).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """The lease's row."""

    holder: str
    """Unique per start of a node, so that nobody mistakes an earlier life's row for its own."""
    token: int
    seq: int
    hold_ms: int
    wait_ms: int
    """The holder's hold times the holder's drift ratio: what others wait at least."""
    released: bool
    members: str = ""
    """Hash of the fixed list that may take it (failsafe, L7); empty for everybody."""


class Look(NamedTuple):
    """Read the row."""

    name: str


class Take(NamedTuple):
    """Write `row` if the present row is exactly (`seen_token`, `seen_seq`) on this server, or missing and both are 0."""

    name: str
    seen_token: int
    seen_seq: int
    server: str
    row: Row


class Renew(NamedTuple):
    """seq + 1 where holder, token and seq match and it is not released (L2)."""

    name: str
    holder: str
    token: int
    seq: int


class ReleaseRow(NamedTuple):
    """Mark the row released where holder, token and seq match. Only after the work is confirmed gone."""

    name: str
    holder: str
    token: int
    seq: int


StoreRequest = Look | Take | Renew | ReleaseRow


class StoreAnswer(NamedTuple):
    """`ok` False: no answer, an error, or nothing provable. `done`: exactly one row was changed. `row`: what stands there."""

    ok: bool
    done: bool = False
    row: Row | None = None
    server: str = ""
    reason: str = ""
