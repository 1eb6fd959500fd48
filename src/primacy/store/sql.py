"""What the SQL stores have in common: the order of statements, and what their results mean.

A write that returns its row is done. One that returns nothing is followed by a look, so that the row in the answer is
never older than the write (a row from the write's own snapshot could be). The table and its genesis row are made on
demand: unsettled, so that a table that somebody dropped proves nothing (L9).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from primacy.election.store import (
    GENESIS,
    WAIT_MAX_MS,
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import NotReached, PrimacyError, Refused, StoreUnusable
from primacy.store.port import (
    LIST_MAX,
    NAME_MAX,
    Listing,
    check_request,
    check_wait_max,
    checked_row,
    listing_of,
)
from primacy.store.sql_text import Texts

Result = TypeVar("Result")
_LEFT_TO_THE_PARENT: list[object] = []
"""Connections that this process inherited by a fork."""


class NoTable(Exception):
    """The statement failed because the table is not there. Never leaves the store."""


class OldTable(Exception):
    """The statement failed because the table is of an earlier version. Never leaves the store."""


class ServerRefused(Refused):
    """The server refuses with this code. The text is for people, the code for the store itself."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class StatementResult(NamedTuple):
    """What one statement showed: which server said so, and the rows, the genesis row among them if it was asked for."""

    server: str
    rows: dict[str, Row]
    number: int = -1
    """Of lease rows in the table; -1: not counted."""
    position: int = 0
    wall_ms: int = 0


class SqlStore(ABC):
    """The port in terms of statements. A dialect says how they are run and what they return."""

    texts: Texts

    def __init__(self, create: bool) -> None:
        self._create = create
        """False: a missing table is an error, not an invitation."""
        self._link = 0
        """Number of the present connection."""
        self._pid = os.getpid()

    @abstractmethod
    def close(self) -> None: ...

    def _is_inherited(self, connection: object) -> bool:
        """In a forked child it is the parent's: kept alive, so that nothing closes it."""
        if os.getpid() == self._pid:
            return False
        _LEFT_TO_THE_PARENT.append(connection)
        return True

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            self.close()
            raise NotReached("this store belongs to the process that it was forked from")

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """What is done inside becomes visible at once, or not at all."""
        self._execute(begin, {})
        try:
            yield
        except BaseException:
            with suppress(PrimacyError):  # a connection that is lost rolls back by itself
                self._execute("ROLLBACK", {})
            raise
        self._execute("COMMIT", {})

    def _is_connected(self) -> bool:
        """The connection of the newest answer still stands, as far as is known. One that broke is not made anew."""
        return True

    @abstractmethod
    def _execute(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement, in autocommit mode. Raises `NoTable`, `OldTable`, or what the port says."""

    @abstractmethod
    def _look(self, names: Sequence[str], count: bool) -> StatementResult:
        """The rows of these names; the number of lease rows only if `count` is set."""

    @abstractmethod
    def _take(self, take: Take) -> StatementResult:
        """The row that this very statement wrote over the one that was seen, if it did."""

    @abstractmethod
    def _insert(self, take: Take) -> StatementResult:
        """The row that this very statement made, if it did: a fresh name (L9)."""

    @abstractmethod
    def _renew(self, requests: Sequence[Renew]) -> StatementResult:
        """The rows that this very statement renewed."""

    @abstractmethod
    def _release(self, requests: Sequence[ReleaseRow]) -> StatementResult:
        """The rows that this very statement released."""

    @abstractmethod
    def _change(self, request: Place | Settle | Prune) -> bool:
        """Whether it was done."""

    @abstractmethod
    def _migrate(self) -> None:
        """Makes a table of an earlier version fit. Raises `StoreUnusable` if this user may not."""

    # --- the port -----------------------------------------------------------------------------------------------------

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        self._check(requests)
        seen = self._seen([request.name for request in requests], any(request.count for request in requests))
        return [self._answer(seen, request.name) for request in requests]

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]:
        """One statement each: takes are rare, and each compares another row."""
        self._check(requests)
        return [self._taken(request) for request in requests]

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]:
        self._check(requests)
        return self._written(requests, self._with_table(lambda: self._renew(requests)))

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]:
        self._check(requests)
        return self._written(requests, self._with_table(lambda: self._release(requests)))

    def change(self, requests: Sequence[Place | Settle | Prune]) -> list[StoreAnswer]:
        """Each is a step of its own: they are rare, and all of them write the genesis row."""
        self._check(requests)
        return [self._changed(request) for request in requests]

    def listings(self) -> list[Listing]:
        found = self._with_table(lambda: self._execute(self.texts.listings, {"most": LIST_MAX}))
        return [listing_of(values[0], partial(row_of, values), values[13]) for values in found]

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        """As `lease schema` prints it.

        `new`: an operator's word that there was never a lease here, so that fresh names are free at once (L9).
        `wait_max_ms`: the longest wait that the table admits is raised to this, never lowered.
        """
        check_wait_max(wait_max_ms)
        self._execute(self.texts.create, {})
        self._migrated(lambda: self._execute(self.texts.genesis, {"wait_max": WAIT_MAX_MS}))
        if wait_max_ms:
            self._raise_wait_max(wait_max_ms)
        if new:
            self._settle_new()

    # --- what a store does with it ------------------------------------------------------------------------------------

    def _raise_wait_max(self, wait_max_ms: int) -> None:
        self._execute(self.texts.wait_max, {"wait_max": wait_max_ms})

    def _settle_new(self) -> None:
        seen = self._seen([], count=True)
        genesis = genesis_of(seen)
        if seen.number:
            raise Refused(
                f"{seen.number} leases are in this table, so it is not new: without that word, fresh names are free "
                f"{genesis.wait_max_ms} ms after somebody began to use it"
            )
        if not genesis.is_settled(seen.server) and not self._change(Settle("", seen.server, genesis)):
            raise Refused("somebody changed the table in this moment; try again")

    def _taken(self, take: Take) -> StoreAnswer:
        made = take.seen is None
        if not self._is_over(take.link):
            return self._answer(self._seen([take.name], count=made), take.name)
        done = self._with_table(lambda: self._insert(take) if made else self._take(take))
        return self._written([take], done, count=made)[0]

    def _is_over(self, link: int) -> bool:
        """Whether this is the connection that the evidence came over, where the machine says that it must be (L4)."""
        return link == 0 or (self._is_connected() and link == self._link)

    def _changed(self, request: Place | Settle | Prune) -> StoreAnswer:
        if isinstance(request, Settle) and not self._is_over(request.link):
            return self._answer(self._seen([request.name], count=True), request.name)
        try:
            done = self._with_table(lambda: self._change(request))
        except StoreUnusable as error:
            if not isinstance(request, Prune):
                raise
            raise StoreUnusable(f"{error}. To prune, a user also needs the right to DELETE from the table") from None
        return self._answer(self._seen([request.name], count=True), request.name)._replace(done=done)

    def _seen(self, names: Sequence[str], count: bool) -> StatementResult:
        """With the genesis row, which is made if it is missing: an old table has none, nor has one made by hand."""
        asked = [*names, GENESIS]
        seen = self._with_table(lambda: self._look(asked, count))
        if GENESIS in seen.rows or not self._create:
            return seen
        try:
            self._execute(self.texts.genesis, {"wait_max": WAIT_MAX_MS})
        except (Refused, StoreUnusable):
            return seen  # one who may only read sees a table that nobody has settled
        return self._with_table(lambda: self._look(asked, count))

    def _answer(self, seen: StatementResult, name: str, done: bool = False, whole: bool = True) -> StoreAnswer:
        return StoreAnswer(
            ok=True,
            done=done,
            row=seen.rows.get(name),
            server=seen.server,
            genesis=genesis_of(seen) if whole else None,
            position=seen.position,
            link=self._link,
            wall_ms=seen.wall_ms,
        )

    def _written(
        self, requests: Sequence[StoreRequest], done: StatementResult, count: bool = False
    ) -> list[StoreAnswer]:
        """Answers from the rows that a write returned, and for the others from a look after it."""
        missed = [request.name for request in requests if request.name not in done.rows]
        seen = self._seen(missed, count) if missed else done
        return [
            self._answer(done, request.name, done=True, whole=False)
            if request.name in done.rows
            else self._answer(seen, request.name)
            for request in requests
        ]

    def _check(self, requests: Sequence[StoreRequest]) -> None:
        for request in requests:
            check_request(request)

    def _with_table(self, statement: Callable[[], Result]) -> Result:
        """Runs it; if the table is missing, makes it, and runs it once more."""
        try:
            return self._migrated(statement)
        except NoTable as missing:
            if not self._create:
                raise NotReached(f"{missing}; nobody has used a lease here, or the table has another name") from None
        self.make_table()
        try:
            return self._migrated(statement)
        except NoTable as missing:
            raise NotReached(f"{missing}, although it was just made") from None

    def _migrated(self, statement: Callable[[], Result]) -> Result:
        """Runs it; if the table is of an earlier version, makes it fit, and runs it once more."""
        try:
            return statement()
        except OldTable:
            self._migrate()
        try:
            return statement()
        except OldTable as old:
            raise StoreUnusable(f"{old}, although it was just made to fit") from None


def row_of(values: Sequence[Any]) -> Row:
    """A row of a result: name, the columns of `COLUMNS`, proof, mark, whether it vouches."""
    return named_row(values[0], values[1:13])


def named_row(name: Any, values: Sequence[Any]) -> Row:
    """As `checked_row`; what is wrong is told with the row's name, as people will have to find it."""
    try:
        return checked_row(values)
    except Refused as error:
        raise Refused(f"{ascii(name)[:NAME_MAX]}: {error}") from None


def rows_of(found: Sequence[Sequence[Any]]) -> dict[str, Row]:
    """Rows as `row_of` reads them, by name."""
    return {str(values[0]): row_of(values) for values in found}


def genesis_of(seen: StatementResult) -> Genesis:
    """From its row; if there is none, one that nobody can take for settled."""
    row = seen.rows.get(GENESIS)
    if row is None:
        return Genesis(vouches=False, count=seen.number)
    return Genesis(
        settled=row.server,
        wait_max_ms=row.wait_ms,
        floor=row.token,
        names=row.hold_ms,
        version=row.seq,
        mark=row.mark,
        vouches=row.vouches,
        count=seen.number,
    )


def take_values(take: Take) -> dict[str, Any]:
    """What a take writes."""
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
    }


def seen_values(seen: Row) -> dict[str, Any]:
    """What a take, or a prune, compares of the row (L3)."""
    return {
        "seen_token": seen.token,
        "seen_seq": seen.seq,
        "seen_proof": seen.proof,
        "seen_released": seen.released,
        "seen_members": seen.members,
        "seen_mark": seen.mark,
        "seen_vouches": seen.vouches,
    }


def genesis_values(genesis: Genesis) -> dict[str, Any]:
    """What a step compares of the genesis row."""
    return {
        "settled": genesis.settled,
        "floor": genesis.floor,
        "version": genesis.version,
        "genesis_mark": genesis.mark,
        "count": genesis.count,
    }
