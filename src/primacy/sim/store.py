"""The simulated store: one table of lease rows, atomic by construction, with the faults of a real one.

The world decides when a request arrives, whether its answer is lost afterwards, and when a fault strikes; this class
only says what stands in the table. It draws no chance and knows no time.

The conditions of take, renew and release stand in small methods of their own so that a test can take one out and see
the checkers catch it (L1).
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take

HISTORY_MAX = 1_000
"""Commits that can still be lost. A replica that lags further than this is no replica."""


class SimStore:
    """The rows, the commits that made them, and the identity of the server that answers."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.up = True
        """False: every request is refused. What was committed stays."""
        self._history: deque[tuple[str, Row | None]] = deque(maxlen=HISTORY_MAX)
        self._servers = 1

    @property
    def server(self) -> str:
        """Who answers, as every answer says it (L3)."""
        return f"server-{self._servers}"

    @property
    def commits(self) -> int:
        """How many commits `fail_over` could still lose."""
        return len(self._history)

    def state(self) -> tuple[object, ...]:
        """Everything that the next answer depends on, as one value to compare and to hash."""
        return (self.server, self.up, tuple(sorted(self.rows.items())))

    # --- requests -----------------------------------------------------------------------------------------------------

    def perform(self, request: StoreRequest) -> StoreAnswer:
        """One request, at the moment it arrives."""
        if not self.up:
            return StoreAnswer(ok=False, reason="the store refuses connections")
        row = self.rows.get(request.name)
        match request:
            case Look():
                after = None
            case Take():
                after = request.row if self._may_take(row, request) else None
            case Renew():
                after = row._replace(seq=row.seq + 1) if row is not None and self._may_renew(row, request) else None
            case ReleaseRow():
                freed = row is not None and self._may_release(row, request)
                after = row._replace(released=True, successor=request.successor) if row is not None and freed else None
            case _:
                assert_never(request)
        if after is not None:
            self._commit(request.name, after)
        return StoreAnswer(ok=True, done=after is not None, row=self.rows.get(request.name), server=self.server)

    def release(self, name: str, holder: str, token: int, successor: str = "") -> StoreAnswer:
        """What the guard's prepared releaser does once the work is gone: look, then release with the seq it saw."""
        row = self.rows.get(name)
        return self.perform(ReleaseRow(name, holder, token, 0 if row is None else row.seq, successor))

    def _commit(self, name: str, row: Row) -> None:
        self._history.append((name, self.rows.get(name)))
        self.rows[name] = row._replace(server=self.server)

    # --- conditions (L1, L3, L7) --------------------------------------------------------------------------------------

    def _may_take(self, row: Row | None, take: Take) -> bool:
        if not self._same_server(take.server):
            return False
        if row is None:
            return take.seen_token == 0 and take.seen_seq == 0
        return self._same(row, take.seen_token, take.seen_seq) and self._same_list(row, take)

    def _may_renew(self, row: Row, renew: Renew) -> bool:
        mine = row.holder == renew.holder and self._same(row, renew.token, renew.seq)
        return mine and not row.released and self._same_server(renew.server)

    def _may_release(self, row: Row, release: ReleaseRow) -> bool:
        mine = row.holder == release.holder and self._same(row, release.token, release.seq)
        return mine and self._same_server(row.server)

    def _same(self, row: Row, token: int, seq: int) -> bool:
        return row.token == token and row.seq == seq

    def _same_server(self, server: str) -> bool:
        return server == self.server

    def _same_list(self, row: Row, take: Take) -> bool:
        return row.members == take.seen_members

    # --- faults -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """From now on every request is refused."""
        self.up = False

    def restart(self) -> None:
        """Answers again, as the same server, with everything that it committed."""
        self.up = True

    def fail_over(self, lost_commits: int = 0) -> None:
        """Another server answers from now on, without the last commits. The old one is fenced: it answers nobody."""
        self._servers += 1
        self.up = True
        self.forget(lost_commits)

    def forget(self, lost_commits: int) -> None:
        """Loses the last commits. Without a change of identity, no store may do this (see `election/store.py`)."""
        for _ in range(min(lost_commits, len(self._history))):
            name, before = self._history.pop()
            if before is None:
                del self.rows[name]
            else:
                self.rows[name] = before
