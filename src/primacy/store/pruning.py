"""`lease prune`: removes rows that nobody has used for a long time (L10).

A row goes only if its release could be taken at once just now (L4): it is released, it vouches, and it was last written
under the identity that answers, or that identity is settled. The step that removes it compares all of that and raises
the table's floor to its token, so that a token of a removed row is never given again.
"""

from __future__ import annotations

import datetime

from primacy.election.store import Look, Prune, StoreAnswer
from primacy.store.batch import perform
from primacy.store.port import LeaseStore, Listing


def unused_ms(listing: Listing, wall_ms: int) -> int:
    """Since it was last written, by the store's clock; 0 if that cannot be read."""
    try:
        written = datetime.datetime.fromisoformat(listing.written_at)
    except ValueError:
        return 0
    if written.tzinfo is None:
        written = written.replace(tzinfo=datetime.UTC)
    return wall_ms - int(written.timestamp() * 1_000)


def prune(store: LeaseStore, name: str) -> str:
    """Removes the row. Empty if it is gone, else why it stays."""
    (seen,) = perform(store, [Look(name, count=True)])
    why = why_not(seen)
    if why or seen.row is None or seen.genesis is None:
        return why
    (answer,) = perform(store, [Prune(name, seen.row, seen.server, seen.genesis)])
    if not answer.ok:
        return answer.reason
    return "" if answer.done else "it, or the table, was changed in this moment"


def why_not(seen: StoreAnswer) -> str:
    """Why a row must stay; empty if it may go."""
    row, genesis = seen.row, seen.genesis
    if not seen.ok:
        return seen.reason
    if row is None:
        return "it is gone"
    if genesis is None:
        return "this store keeps all rows: remove it by its own means, when nobody uses it any more"
    if not row.released:
        return "it is not released"
    if not row.vouches:
        return "it was not written here: a dump was restored, or it was changed by hand"
    if not genesis.is_settled(seen.server):
        return "the store has (re)started and is not settled yet: try again when somebody has used a lease for a while"
    return ""
