"""What a lease strategy asks of its store and what it is answered (L1). Nothing here knows SQL.

A store may forget. A server restarts without its last commits, a backup is put back, a dump is read into the running
server, a replica is promoted that lagged behind. So three things tell the machine what it looks at:

- The *identity* (`server` in every answer) names this start of this server. It changes whenever an answered commit may
  have been lost: at every start, promotion and restore, and when the table was made anew (L5). A row carries the
  identity that it was last written under.
- The *mark* vouches for one very write (L5). A row that came from a dump, or that somebody changed by hand, carries the
  mark of another write: it does not vouch. Engines without a mark always vouch.
- The *position* only grows while history is kept; one that fell tells of lost history.

One *genesis row* per table says what no lease row can: for which identity names are settled, the longest wait that the
table admits, and the largest token that was ever removed (L9, L10).

What a store must do for the rules to hold: each request is one atomic step; an answered write is not lost while the
identity stays the same; `row` in an answer is read in the same step as the write, or after it, never before. One
exception: an answered release may be lost as long as no later write was answered, for who acts on it commits after it.
The store's own clock stands in no condition; `wall_ms` may lift a token and nothing else (T1).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple


def holder_id(node: str, boot: int) -> str:
    """The holder's name in the row: unique per start of a node (L1)."""
    return f"{node}#{boot:x}"


def node_of(holder: str) -> str:
    """The node in a holder's name, for people and for hints; no rule depends on it."""
    return holder.rpartition("#")[0] or holder


def list_hash(members: tuple[str, ...]) -> str:
    """Names a failsafe list in the row; empty for none."""
    if not members:
        return ""
    return blake2b("\0".join(sorted(set(members))).encode(errors="replace"), digest_size=8).hexdigest()


IDLE = "!"
"""No node's name begins with it."""
GENESIS = ":genesis"
"""Name of the genesis row. No lease can have it."""
FAILSAFE = "="
"""Begins the name of a failsafe election's row (L7). No user of the library can give such a name."""
WAIT_MAX_MS = 10_500
"""`wait_max` of a table that is made without an operator's word: above the wait of every profile (10,203 ms)."""


class Row(NamedTuple):
    """The lease's row. `proof`, `mark`, `vouches` and `server` are the store's: what a taker says of them is lost."""

    holder: str
    """Unique per start of a node, so that nobody mistakes an earlier start's row for its own; empty: a placeholder."""
    token: int
    seq: int
    hold_ms: int
    wait_ms: int
    """The holder's hold times the holder's drift ratio: what others wait at least. Those who reckon with worse clocks
    wait for the hold times their own ratio (L3)."""
    released: bool
    members: str = ""
    """Hash of the fixed list that may take it (failsafe, L7); empty for everybody."""
    successor: str = ""
    """In a released row: the node that should take it; the others hold back a little. A hint, in no condition.
    Behind `IDLE`: the work of this leadership never ran, so that its release says nothing of those before it (G8)."""
    server: str = ""
    """The identity that it was last written under."""
    proof: str = ""
    """Random, new with every write, also of a release."""
    mark: str = ""
    """What the engine itself says of this write (L5), such as PostgreSQL's xmin; compared byte by byte."""
    vouches: bool = True
    """The mark fits the row: this very row was written by a user of leases on this server's history."""

    @property
    def is_placeholder(self) -> bool:
        """Nobody's: made to be watched, as a missing row cannot be (L3)."""
        return self.holder == ""

    def renewed(self, server: str) -> Row:
        """As a renewal under this identity leaves it. Written out: it happens all the time."""
        holder, token, seq, hold_ms, wait_ms, released, members, successor, _, proof, mark, vouches = self
        return Row(holder, token, seq + 1, hold_ms, wait_ms, released, members, successor, server, proof, mark, vouches)


class Genesis(NamedTuple):
    """The genesis row (L1, L9, L10)."""

    settled: str = ""
    """The identity under which missing rows count as released; empty: none."""
    wait_max_ms: int = WAIT_MAX_MS
    """No holder in this table waits for longer than this on a clock of the default error; a hold that needs more is
    refused (L3)."""
    floor: int = 0
    """The largest token that was ever removed (L10)."""
    names: int = 0
    """Rows made less rows removed."""
    version: int = 0
    """Grows by one with every write of the genesis row."""
    mark: str = ""
    vouches: bool = True
    count: int = -1  # type: ignore[assignment]  # a field hides the method of tuples, which nobody needs here
    """Lease rows that stand in the table, placeholders included; -1: not counted, as nobody asked for it."""

    def is_settled(self, server: str) -> bool:
        """Under this identity a missing row stands for a released one (L9). Needs a look that counted."""
        return self.vouches and self.settled == server and self.names == self.count


def heir_of(row: Row) -> str:
    """The node that should take a released row; empty for anybody."""
    return row.successor.removeprefix(IDLE)


def covers(row: Row) -> bool:
    """A release by a leadership whose work ran: everything before it is proved gone (G8)."""
    return row.released and not row.successor.startswith(IDLE)


class Look(NamedTuple):
    """Read the row and the genesis row."""

    name: str
    count: bool = False  # type: ignore[assignment]
    """Count the rows, too: asked for where a fresh name, or a release of another identity, is at stake (L9)."""


class Take(NamedTuple):
    """Write `row` if the present row is `seen` in all that the decision rested on, under this identity (L3).

    Compared: token, seq, proof, released, members, mark and vouches, and the identity that answers. The writer's row
    gets a new proof and mark. With `seen` None (a fresh name, L9): inserts, if there is no row and the genesis row is
    as in `genesis` (settled, floor, version, mark) and settled under this identity; adds 1 to names and version.
    """

    name: str
    seen: Row | None
    server: str
    row: Row
    genesis: Genesis | None = None
    link: int = 0
    """If not 0: only over this connection, on which its evidence came (L4 `watched`, L5 etcd). A store that would have
    to use another one changes nothing and answers what a look shows."""


class Renew(NamedTuple):
    """seq + 1 where holder, token and seq match, it is not released, and it vouches; under this identity (L2).

    The row may have been written under an earlier identity: a holder whose hold never broke moves along.
    """

    name: str
    holder: str
    token: int
    seq: int
    server: str


class ReleaseRow(NamedTuple):
    """Mark the row released where holder, token and seq match, it vouches, and its server is the identity that answers.

    Only after the work is confirmed gone. It needs no server of its own, so that the guard can order it by itself.
    """

    name: str
    holder: str
    token: int
    seq: int
    successor: str = ""


class Place(NamedTuple):
    """Insert a placeholder if there is no row: nobody's, token = floor, seq 1, unreleased, hold and wait = wait_max.

    Under this identity; adds 1 to names and version. It gives nobody anything but a row to watch (L3).
    """

    name: str
    server: str


class Settle(NamedTuple):
    """Genesis: settled = this identity, names = the rows that stand there now, version + 1, mark anew (L9).

    Compared: identity, version and mark of the genesis row, and that the count is `genesis.count`.
    """

    name: str
    """The lease in whose interest it is asked; the answer has its row."""
    server: str
    genesis: Genesis
    link: int = 0
    """As in `Take`."""


class Prune(NamedTuple):
    """Remove the row if it is `seen` in everything that `Take` compares, under a settled identity (L10).

    Raises the floor to its token, takes 1 from names and adds 1 to version, in the same step. Compares the genesis row
    as an insert does.
    """

    name: str
    seen: Row
    server: str
    genesis: Genesis


StoreRequest = Look | Take | Renew | ReleaseRow | Place | Settle | Prune


class StoreAnswer(NamedTuple):
    """`ok` False: no answer, an error, or nothing provable. `done`: exactly this was changed.

    `row`: what stands there after the request, also after one that changed nothing; None only if there is no row.
    """

    ok: bool
    done: bool = False
    row: Row | None = None
    server: str = ""
    """The identity that answers."""
    reason: str = ""
    final: bool = False
    """With `ok` False: it cannot pass by itself (wrong password, no rights, no such database, TLS refused)."""
    genesis: Genesis | None = None
    """In every answer to a look, and to a write that matched nothing; None in the answer to a renewal that did."""
    position: int = 0
    """Only grows under one identity while history is kept; 0: this engine has none."""
    link: int = 0
    """Number of the connection that answered, within this process; a new one for each connection that is made."""
    linked: bool = False
    """A broken connection starts every observation anew: the identity alone does not tell all restarts (etcd)."""
    watched: bool = False
    """This engine cannot name its start at the moment: as with `store.trust: watched`, nothing is believed at once
    before this process has watched over this connection for wait_max (L4)."""
    wall_ms: int = 0
    """The store's Unix time, if it was asked; it may lift a token and stands in no condition (T1)."""
