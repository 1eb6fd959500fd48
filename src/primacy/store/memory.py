"""Rows in this process, for tests and for elections among threads and tasks of one program.

`memory:` is one table for the whole process, `memory:NAME` another one each. That a URL alone leads to a shared table
is the one place in this package where state is found by name: two users who only have the URL in common must meet.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Sequence

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.errors import NotReached
from primacy.store.conditions import after
from primacy.store.port import LIST_MAX, News, Sheet, check_request

_SHARED: dict[str, MemoryTable] = {}
_LOCK = threading.Lock()


class MemoryTable:
    """The rows, and the name of the one "server" that has them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[str, Row] = {}
        self.times: dict[str, str] = {}
        self.server = f"memory:{os.getpid()}:{os.urandom(6).hex()}"
        self.up = True
        """False: every request is refused, as by a server that is away."""
        self.watchers: list[MemoryStore] = []

    def write(self, name: str, row: Row) -> Row:
        self.rows[name] = row._replace(server=self.server)
        self.times[name] = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        return self.rows[name]


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
        self._news: dict[str, News] = {}

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        with self._asked():
            return [self._perform(request) for request in requests]

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]:
        with self._asked():
            return [self._perform(request) for request in requests]

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]:
        with self._asked():
            return [self._perform(request) for request in requests]

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]:
        with self._asked():
            return [self._perform(request) for request in requests]

    def sheets(self) -> list[Sheet]:
        with self._asked():
            rows = sorted(self.table.rows.items())[:LIST_MAX]
            return [Sheet(name, row, self.table.times[name]) for name, row in rows]

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
        return list(news.values())

    def close(self) -> None:
        with self.table.lock:
            if self._pipe is not None:
                self.table.watchers.remove(self)
                os.close(self._pipe[0])
                os.close(self._pipe[1])
                self._pipe, self._news = None, {}

    def _asked(self) -> threading.Lock:
        if not self.table.up:
            raise NotReached("the store in memory was stopped")
        if os.getpid() != self._pid:
            raise NotReached("a store in memory belongs to the process that made it, and this one was forked from it")
        return self.table.lock

    def _tell(self, news: News) -> None:
        if self._pipe is not None:
            self._news.pop(news.name, None)
            self._news[news.name] = news
            try:
                os.write(self._pipe[1], b"!")
            except BlockingIOError:
                return  # it has enough to wake up for

    def _answer(self, name: str, done: bool) -> StoreAnswer:
        return StoreAnswer(ok=True, done=done, row=self.table.rows.get(name), server=self.table.server)

    def _perform(self, request: StoreRequest) -> StoreAnswer:
        check_request(request)
        self._news.pop(request.name, None)  # this answer is newer
        new = after(self.table.rows.get(request.name), request, self.table.server)
        if new is not None:
            self.table.write(request.name, new)
            for watcher in self.table.watchers:
                if watcher is not self:
                    watcher._tell(News(request.name, self._answer(request.name, False)))
        return self._answer(request.name, new is not None)
