"""The conditions of every request (L1 to L4, L7, L9, L10), for stores that do not speak SQL.

`after` says what a request would leave behind; the store itself adds proof, mark and count, and makes it one step.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from primacy.election.store import Genesis, Look, Place, Prune, ReleaseRow, Renew, Row, Settle, StoreRequest, Take


class Change(NamedTuple):
    """What a request writes. Proof and mark of what is written are drawn by the store."""

    row: Row | None = None
    """The lease's row, if it is written."""
    genesis: Genesis | None = None
    """The genesis row, if it is written."""
    removed: bool = False
    """The lease's row goes."""


def after(row: Row | None, genesis: Genesis, request: StoreRequest, server: str) -> Change | None:
    """What the request changes under this identity, or None if its condition does not hold.

    `genesis.count` is the number of rows at this moment where the request needs it (`needs_count`).
    """
    match request:
        case Look():
            return None
        case Take():
            return _take(row, genesis, request, server)
        case Renew():
            if row is None or row.released or not row.vouches or request.server != server or not _own(row, request):
                return None
            return Change(row.renewed(server))
        case ReleaseRow():
            if row is None or not row.vouches or row.server != server or not _own(row, request):
                return None
            return Change(row._replace(released=True, successor=request.successor))
        case Place():
            if row is not None or request.server != server:
                return None
            made = Row("", genesis.floor, 1, genesis.wait_max_ms, genesis.wait_max_ms, released=False, server=server)
            # The write gives the genesis row a mark that vouches: one that came from a dump must not look settled then.
            return Change(made, _one_more(genesis if genesis.vouches else genesis._replace(settled="")))
        case Settle():
            if request.server != server or not _same_genesis(genesis, request.genesis):
                return None
            if genesis.count != request.genesis.count:
                return None
            settled = genesis._replace(settled=server, names=genesis.count, version=genesis.version + 1)
            return Change(genesis=settled)
        case Prune():
            if row is None or request.server != server or not same_row(row, request.seen):
                return None
            if not _same_genesis(genesis, request.genesis) or not genesis.is_settled(server):
                return None
            floor = max(genesis.floor, row.token)
            fewer = genesis._replace(floor=floor, names=genesis.names - 1, version=genesis.version + 1)
            return Change(genesis=fewer, removed=True)
    assert_never(request)


def needs_count(request: StoreRequest) -> bool:
    """Whether the condition, or the answer, counts the rows."""
    match request:
        case Look(count=count):
            return count
        case Take(seen=seen):
            return seen is None
        case Settle() | Prune():
            return True
    return False


def same_row(row: Row, seen: Row) -> bool:
    """Everything that a decision rests on (L3)."""
    return (row.token, row.seq, row.proof, row.released, row.members, row.mark, row.vouches) == (
        seen.token,
        seen.seq,
        seen.proof,
        seen.released,
        seen.members,
        seen.mark,
        seen.vouches,
    )


def _take(row: Row | None, genesis: Genesis, take: Take, server: str) -> Change | None:
    if take.server != server:
        return None
    new = take.row._replace(server=server, released=False, successor="")
    if take.seen is not None:
        return Change(new) if row is not None and same_row(row, take.seen) else None
    if row is not None or take.genesis is None or not _same_genesis(genesis, take.genesis):
        return None
    fresh = genesis.is_settled(server) and take.row.token > genesis.floor
    return Change(new, _one_more(genesis)) if fresh else None


def _one_more(genesis: Genesis) -> Genesis:
    return genesis._replace(names=genesis.names + 1, version=genesis.version + 1)


def _same_genesis(genesis: Genesis, seen: Genesis) -> bool:
    return (genesis.settled, genesis.floor, genesis.version, genesis.mark) == (
        seen.settled,
        seen.floor,
        seen.version,
        seen.mark,
    )


def _own(row: Row, request: Renew | ReleaseRow) -> bool:
    return (row.holder, row.token, row.seq) == (request.holder, request.token, request.seq)
