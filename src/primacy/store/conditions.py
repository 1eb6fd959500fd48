"""The conditions of take, renew and release (L1 to L4, L7), for stores that do not speak SQL."""

from __future__ import annotations

from typing import assert_never

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreRequest, Take


def after(row: Row | None, request: StoreRequest, server: str) -> Row | None:
    """The row as the request would leave it on this server, or None if its condition does not hold."""
    match request:
        case Look():
            return None
        case Take():
            seen = (0, 0, request.seen_members) if row is None else (row.token, row.seq, row.members)
            same = (request.seen_token, request.seen_seq, request.seen_members) == seen
            return request.row._replace(server=server) if same and request.server == server else None
        case Renew():
            if row is None or row.released or request.server != server or not _own(row, request):
                return None
            return row._replace(seq=row.seq + 1, server=server)
        case ReleaseRow():
            if row is None or row.server != server or not _own(row, request):
                return None
            return row._replace(released=True, successor=request.successor)
    assert_never(request)


def _own(row: Row, request: Renew | ReleaseRow) -> bool:
    return (row.holder, row.token, row.seq) == (request.holder, request.token, request.seq)
