"""What the SQL stores have in common: the order of statements, and what their results mean.

A write that returns its row is done. One that returns nothing is followed by a look, so that the row in the answer is
never older than the write (a row from the write's own snapshot could be). The table is made on demand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.errors import NotReached
from primacy.store.port import LIST_MAX, Sheet, check_name, check_request, checked_row
from primacy.store.sql_text import Texts

Result = TypeVar("Result")


class NoTable(Exception):
    """The statement failed because the table is not there. Never leaves the store."""


class Seen(NamedTuple):
    """What one statement showed: which server said so, and the rows."""

    server: str
    rows: dict[str, Row]


class SqlStore(ABC):
    """The port in terms of five statements. A dialect says how they are run and what they return."""

    texts: Texts

    def __init__(self, create: bool) -> None:
        self._create = create
        """False: a missing table is an error, not an invitation."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement, in autocommit mode. Raises `NoTable`, `NotReached` or `Refused`."""

    @abstractmethod
    def _look(self, names: Sequence[str]) -> Seen: ...

    @abstractmethod
    def _take(self, text: str, take: Take) -> Seen: ...

    @abstractmethod
    def _renew(self, requests: Sequence[Renew]) -> Seen:
        """The rows that this very statement renewed."""

    @abstractmethod
    def _release(self, requests: Sequence[ReleaseRow]) -> Seen:
        """The rows that this very statement released."""

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        seen = self._seen([request.name for request in requests])
        return [StoreAnswer(ok=True, row=seen.rows.get(request.name), server=seen.server) for request in requests]

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]:
        """One statement each: takes are rare, and each compares another row."""
        return [answer for request in requests for answer in self._written([request], self._take_one(request))]

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]:
        self._check(requests)
        return self._written(requests, self._with_table(lambda: self._renew(requests)))

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]:
        self._check(requests)
        return self._written(requests, self._with_table(lambda: self._release(requests)))

    def sheets(self) -> list[Sheet]:
        found = self._with_table(lambda: self._execute(self.texts.sheets, {"most": LIST_MAX}))
        return [Sheet(name, checked_row(values[:-1]), str(values[-1])) for name, *values in found]

    def make_table(self) -> None:
        """As `lease schema` prints it."""
        self._execute(self.texts.create, {})

    def _take_one(self, take: Take) -> Seen:
        self._check([take])
        is_first = not take.seen_token and not take.seen_seq
        return self._with_table(lambda: self._take(self.texts.first if is_first else self.texts.take, take))

    def _seen(self, names: Sequence[str]) -> Seen:
        for name in names:
            check_name(name)
        return self._with_table(lambda: self._look(names))

    def _written(self, requests: Sequence[StoreRequest], done: Seen) -> list[StoreAnswer]:
        """Answers from the rows that a write returned, and for the others from a look after it."""
        missed = [request.name for request in requests if request.name not in done.rows]
        seen = self._seen(missed) if missed else done
        return [
            StoreAnswer(ok=True, done=True, row=done.rows[request.name], server=done.server)
            if request.name in done.rows
            else StoreAnswer(ok=True, row=seen.rows.get(request.name), server=seen.server)
            for request in requests
        ]

    def _check(self, requests: Sequence[StoreRequest]) -> None:
        for request in requests:
            check_request(request)

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        """Runs it; if the table is missing, makes it, and runs it once more."""
        try:
            return statement()
        except NoTable as missing:
            if not self._create:
                raise NotReached(f"{missing}; nobody has used a lease here, or the table has another name") from None
        self.make_table()
        try:
            return statement()
        except NoTable as missing:
            raise NotReached(f"{missing}, although it was just made") from None


def rows_of(found: Sequence[Sequence[Any]]) -> dict[str, Row]:
    """Rows that begin with the name."""
    return {str(values[0]): checked_row(values[1:10]) for values in found}


def take_values(take: Take) -> dict[str, Any]:
    """The parameters of both forms of a take."""
    row = take.row
    return {
        "name": take.name,
        "holder": row.holder,
        "token": row.token,
        "seq": row.seq,
        "hold_ms": row.hold_ms,
        "wait_ms": row.wait_ms,
        "members": row.members,
        "server": take.server,
        "seen_token": take.seen_token,
        "seen_seq": take.seen_seq,
        "seen_members": take.seen_members,
    }
