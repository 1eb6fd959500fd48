"""Rows in this process, for tests and for elections among threads and tasks of one program.

`memory:` is one table for the whole process, `memory:NAME` another one each. That a URL alone leads to a shared table
is the one place in this package where state is found by name: two users who only have the URL in common must meet.

It cannot forget: the table object is the server, and what it says is settled from the beginning (L9).
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Sequence

from primacy.election.store import Genesis, ReleaseRow, Renew, Row, Settle, StoreAnswer, StoreRequest, Take
from primacy.errors import NotReached, Refused
from primacy.store.conditions import after, needs_count
from primacy.store.port import LIST_MAX, Listing, News, check_request, next_link

_SHARED: dict[str, MemoryTable] = {}
_LOCK = threading.Lock()


class MemoryTable:
    """The rows, and the name of the one "server" that has them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[str, Row] = {}
        self.times: dict[str, str] = {}
        self.server = f"memory:{os.getpid()}:{os.urandom(6).hex()}"
        self.genesis = Genesis(settled=self.server)
        self.position = 0
        """Writes so far."""
        self.up = True
        """False: every request is refused, as by a server that is away."""
        self.watchers: list[MemoryStore] = []

    def state(self) -> Genesis:
        """The genesis row with the count of the rows, which is what it says itself: nobody else writes here."""
        return self.genesis._replace(names=len(self.rows), count=len(self.rows))

    def write(self, name: str, row: Row) -> Row:
        self.position += 1
        self.rows[name] = row._replace(server=self.server, proof=os.urandom(8).hex(), mark="", vouches=True)
        self.times[name] = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        return self.rows[name]

    def remove(self, name: str) -> None:
        self.position += 1
        del self.rows[name], self.times[name]


def shared(name: str) -> MemoryTable:
    """The table of that name in this process."""
    with _LOCK:
        return _SHARED.setdefault(name, MemoryTable())


class MemoryStore:
    """One user of a table. After a fork the child has a copy of its own, which holds nothing for the parent."""

    def __init__(self, table: MemoryTable | None = None) -> None:
        self.table = table or MemoryTable()
        self._pid = os.getpid()
        self._pipe: tuple[int, int] | None = None
        self._news: dict[str, bool] = {}
        """Whether it was only renewed since."""
        self._link = next_link()

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        with self._asked():
            if new and self.table.rows:
                raise Refused(f"{len(self.table.rows)} leases are here: this table is not new")
            found = self.table.genesis
            if wait_max_ms > found.wait_max_ms:
                self.table.genesis = found._replace(wait_max_ms=wait_max_ms, version=found.version + 1)

    def listings(self) -> list[Listing]:
        with self._asked():
            rows = sorted(self.table.rows.items())[:LIST_MAX]
            return [Listing(name, row, self.table.times[name]) for name, row in rows]

    def listen(self) -> int:
        with self.table.lock:
            if self._pipe is None:
                self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                self.table.watchers.append(self)
        return self._pipe[0]

    def news(self) -> list[News]:
        with self.table.lock:
            if self._pipe is not None:
                try:
                    os.read(self._pipe[0], 4096)
                except BlockingIOError:
                    return []
            news, self._news = self._news, {}
        return [News(name, renewed) for name, renewed in news.items()]

    def close(self) -> None:
        with self.table.lock:
            self._link = next_link()
            if self._pipe is not None:
                self.table.watchers.remove(self)
                os.close(self._pipe[0])
                os.close(self._pipe[1])
                self._pipe, self._news = None, {}

    def _asked(self) -> threading.Lock:
        if not self.table.up:
            self._link = next_link()
            raise NotReached("the store in memory was stopped")
        if os.getpid() != self._pid:
            raise NotReached("a store in memory belongs to the process that made it, and this one was forked from it")
        return self.table.lock

    def _tell(self, name: str, renewed: bool) -> None:
        if self._pipe is not None:
            self._news[name] = renewed and self._news.get(name, True)
            try:
                os.write(self._pipe[1], b"!")
            except BlockingIOError:
                return  # it has enough to wake up for

    def _all(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        for request in requests:
            check_request(request)  # all before the first is done: an error means that nothing is
        with self._asked():
            return [self._perform(request) for request in requests]

    look = take = renew = release = change = _all
    """Each request says itself what is asked."""

    def _perform(self, request: StoreRequest) -> StoreAnswer:
        table, name = self.table, request.name
        self._news.pop(name, None)  # this answer is newer
        change = None
        if not isinstance(request, Take | Settle) or request.link in (0, self._link):
            change = after(table.rows.get(name), table.state(), request, table.server)
        if change is not None:
            if change.genesis is not None:
                table.genesis = change.genesis
            if change.row is not None:
                table.write(name, change.row)
            elif change.removed:
                table.remove(name)
            for watcher in table.watchers:
                if watcher is not self:
                    watcher._tell(name, isinstance(request, Renew))
        return self._answer(request, change is not None)

    def _answer(self, request: StoreRequest, done: bool) -> StoreAnswer:
        genesis = None
        if not done or not isinstance(request, Renew | ReleaseRow):
            genesis = self.table.state()
            if not needs_count(request):
                genesis = genesis._replace(count=-1)
        return StoreAnswer(
            ok=True,
            done=done,
            row=self.table.rows.get(request.name),
            server=self.table.server,
            genesis=genesis,
            position=self.table.position,
            link=self._link,
        )
