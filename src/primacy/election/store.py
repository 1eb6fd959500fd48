"""What a lease strategy asks of its store and what it is answered (L1). Nothing here knows SQL.

Take, renew and release compare token and seq; the store's clock stands in no condition. Every answer says which server
gave it, so that a fail-over to another one is noticed (L3).

What a store must do for the rules to hold: each request is one atomic step; an answered write is not lost while the
server's identity stays the same (a server that may forget answered commits at a restart, like one that commits
asynchronously, must therefore name its start time in its identity); `row` in an answer is read in the same step as the
write, or after it, never before. One exception: an answered release may be lost as long as no later write was answered,
for whoever sees it can only take the row, and without it the row looks like that of a silent holder.

Every write compares the server that its sender means, and the row says on which server its holder last wrote it.
Without this a release could be believed that is older than a leadership: the row is released, b takes it and works, the
take is lost in a fail-over, and the new server shows the release again. It counts only on the server that it was
written on (L4).
"""

from __future__ import annotations

from typing import NamedTuple


def holder_id(node: str, boot: int) -> str:
    """The holder's name in the row: unique per start of a node (L1)."""
    return f"{node}#{boot:x}"


def node_of(holder: str) -> str:
    """The node in a holder's name, for people and for hints; no rule depends on it."""
    return holder.rpartition("#")[0] or holder


IDLE = "!"
"""No node's name begins with it."""


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
    successor: str = ""
    """In a released row: the node that should take it; the others hold back a little. A hint, in no condition.
    Behind `IDLE`: the work of this leadership never ran, so that its release says nothing of those before it (G8)."""
    server: str = ""
    """Where it was last written, stamped by the store with the identity that it answers with."""


def heir_of(row: Row) -> str:
    """The node that should take a released row; empty for anybody."""
    return row.successor.removeprefix(IDLE)


def covers(row: Row) -> bool:
    """A release by a leadership whose work ran: everything before it is proved gone (G8)."""
    return row.released and not row.successor.startswith(IDLE)


class Look(NamedTuple):
    """Read the row."""

    name: str


class Take(NamedTuple):
    """Write `row` if the present one is (`seen_token`, `seen_seq`) on this server, or is missing and both are 0."""

    name: str
    seen_token: int
    seen_seq: int
    server: str
    row: Row
    seen_members: str = ""
    """Compared too: a failsafe row is taken by its own list or after a release (L7)."""


class Renew(NamedTuple):
    """seq + 1 where holder, token and seq match and it is not released, on this server (L2).

    The row may have been written on an earlier server: a holder whose hold never broke moves along with a fail-over.
    """

    name: str
    holder: str
    token: int
    seq: int
    server: str


class ReleaseRow(NamedTuple):
    """Mark the row released where holder, token and seq match and the row was last written on the server that answers.

    Only after the work is confirmed gone. It needs no server of its own, so that the guard can order it by itself.
    """

    name: str
    holder: str
    token: int
    seq: int
    successor: str = ""


StoreRequest = Look | Take | Renew | ReleaseRow


class StoreAnswer(NamedTuple):
    """`ok` False: no answer, an error, or nothing provable. `done`: exactly one row was changed.

    `row`: what stands there after the request, also after one that changed nothing; None only if there is no row.
    """

    ok: bool
    done: bool = False
    row: Row | None = None
    server: str = ""
    reason: str = ""
