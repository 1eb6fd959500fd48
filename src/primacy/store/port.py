"""The port that every store implements, and the bounds that hold for all of them.

A store is synchronous and belongs to one thread. It connects when it is first asked, and again after a failure. Each
call is one conditional step (`election/store.py` says what a store owes to the rules); what the world does wrong leaves
it as `NotReached` or `Refused`, with a sentence that holds no secret. An exception means that nothing is proved: the
write may have happened, or may still happen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from operator import gt
from typing import Any, NamedTuple, Protocol, runtime_checkable

from primacy.election.model import TOKEN_MAX
from primacy.election.store import (
    FAILSAFE,
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
from primacy.errors import Refused, UsageError

NAME_MAX = 120
"""Longest name of a lease. Short enough for a primary key in every database and every character set."""
HOLDER_MAX = 190
"""Longest name of a holder, successor or server."""
MEMBERS_MAX = 64
PROOF_MAX = 64
MARK_MAX = 64
BATCH_MAX = 100
"""Rows in one statement (L6). Larger ones hold their locks longer than they save in trips."""
LIST_MAX = 10_000
"""Rows that `lease list` reads at most."""
SEQ_MAX = 2**62
HOLD_MS_MAX = 86_400_000
"""A day. A row that claims more is broken or hostile: it would keep everybody away (A31)."""
NAMES_MAX = 10**9
"""Rows of one table. A genesis row that claims more is broken or hostile."""
LIMIT_MS_LEAST = 50
"""Below this every second statement would fail on a busy machine."""

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._:/@+-]{{0,{NAME_MAX - 1}}}")
ROW_TEXTS = (HOLDER_MAX, MEMBERS_MAX, HOLDER_MAX, HOLDER_MAX, PROOF_MAX, MARK_MAX)
"""How long the texts of a row may be: holder, members, successor, server, proof, mark."""
ROW_NUMBERS = (TOKEN_MAX, SEQ_MAX, HOLD_MS_MAX, 2 * HOLD_MS_MAX)
"""How large its numbers may be: token, seq, hold, wait."""

_PLAIN = re.compile(r"[!-~]*")
_WORD = re.compile(rf"[!-~]{{0,{HOLDER_MAX}}}")
_LINKS = itertools.count(1)
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


Change = Place | Settle | Prune


class Listing(NamedTuple):
    """One row as people see it: `lease list` and `show`."""

    name: str
    row: Row | None
    """None: what stands there is not one of primacy's."""
    written_at: str
    """When it was last written, by the store's clock; for people, and in no condition."""
    wrong: str = ""
    """What is wrong with it."""


class LeaseStore(Protocol):
    """Lease rows behind conditional writes. All requests of one call are of one kind and name different leases."""

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        """The rows as they stand, with the server that says so."""
        ...

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]: ...

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]: ...

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]: ...

    def change(self, requests: Sequence[Change]) -> list[StoreAnswer]:
        """What is asked rarely: placeholders, settling and pruning. One step each; all are of one kind."""
        ...

    def close(self) -> None:
        """The connection goes; the next request makes a new one."""
        ...


class News(NamedTuple):
    """Somebody wrote a row. It says no more than that: it wakes a look and shortens nothing (L3)."""

    name: str
    """Empty: which one is not known, look at all."""
    renewed: bool = False
    """It is said to be a mere renewal: who watches may look later, or not at all for this one. A hint, no evidence."""


@runtime_checkable
class Notifies(Protocol):
    """A store that tells of changes, so that a watcher need not wait for its next look.

    Who may tell is not checked, so nothing rests on it: news that is a lie, late or lost costs a look or a delay.
    """

    def listen(self) -> int:
        """A descriptor that becomes readable when there is news, or -1: this connection cannot. Raises like a look."""
        ...

    def news(self) -> list[News]:
        """What changed since it was last asked. Never waits."""
        ...


@runtime_checkable
class Lists(Protocol):
    """A store whose rows can be listed."""

    def listings(self) -> list[Listing]:
        """All leases in the order of their names, at most `LIST_MAX`; the genesis row is none."""
        ...


@runtime_checkable
class MakesTable(Protocol):
    """A store whose table, with its genesis row, can be made beforehand."""

    def make_table(self, new: bool = False, wait_max_ms: int = 0) -> None:
        """What is missing is made; nothing that stands there is lost.

        `new`: the operator says that no lease was ever held here, so that names are free at once (L9).
        `wait_max_ms`: the longest wait that the table admits from now on, if it is larger than what stands there.
        """
        ...


def next_link() -> int:
    """A number for a new connection (`StoreAnswer.link`), used by no other in this process."""
    return next(_LINKS)


def limit_of_ms(hold_ms: int) -> int:
    """What one statement, one lock wait and one trip over the network may take: below a third of the hold."""
    return max(LIMIT_MS_LEAST, hold_ms * 3 // 10)


def server_limit_ms(limit_ms: int) -> int:
    """What the server itself is told: less, so that it refuses before the connection is given up."""
    return limit_ms * 2 // 3


def wrong_lease(name: str) -> str:
    """What is wrong with the name of a lease; empty for nothing."""
    if _NAME.fullmatch(name):
        return ""
    return f"a lease's name has at most {NAME_MAX} letters, digits and . _ : / @ + -, not {name[:40]!r}"


def check_name(name: str) -> str:
    """The name, if it may stand in a store."""
    if wrong := wrong_lease(name):
        raise UsageError(wrong)
    return name


def check_request(request: StoreRequest) -> None:
    """Raises if a text in it could be compared otherwise than byte by byte, or be cut off, by any of the stores.

    MySQL's binary collations, for instance, still ignore blanks at the end.
    """
    plain = request.name.removeprefix(FAILSAFE)
    if len(request.name) > NAME_MAX or not _NAME.fullmatch(plain):
        raise UsageError(wrong_lease(request.name) or wrong_lease(plain + "!"))
    texts: tuple[str, ...]
    match request:
        case Take(row=row, seen=seen):
            texts = (row.holder, row.members, request.server, *_texts(seen), *_texts(request.genesis))
            try:
                checked_row(row)
            except Refused as error:
                raise UsageError(f"this row would be read by nobody: {str(error).partition(': ')[2]}") from None
        case Renew():
            texts = (request.holder, request.server)
        case ReleaseRow():
            texts = (request.holder, request.successor)
        case Place():
            texts = (request.server,)
        case Settle():
            texts = (request.server, *_texts(request.genesis))
        case Prune():
            texts = (request.server, *_texts(request.seen), *_texts(request.genesis))
        case Look():
            return
    if _WORD.fullmatch("".join(texts)):
        return  # as nearly always: all of them together are no longer than one may be
    for text in texts:
        if not _WORD.fullmatch(text):
            raise UsageError(
                f"a name in a lease has at most {HOLDER_MAX} printable characters, no blanks: {text[:40]!r}"
            )


def _texts(seen: Row | Genesis | None) -> tuple[str, ...]:
    """What of it is compared."""
    match seen:
        case None:
            return ()
        case Row():
            return (seen.proof, seen.mark, seen.members)
        case Genesis():
            return (seen.settled, seen.mark)


def check_wait_max(wait_max_ms: int) -> None:
    if not 0 <= wait_max_ms <= HOLD_MS_MAX:
        raise UsageError(f"the longest wait of a table is at most {HOLD_MS_MAX} ms, not {wait_max_ms}")


def check_table(table: str) -> str:
    """The table's name, if it needs no quoting anywhere (A30)."""
    if not _TABLE.fullmatch(table):
        raise UsageError(
            f"a table's name is a letter or underscore, then letters, digits or underscores, at most 63, not {table!r}"
        )
    return table


def checked_row(values: Sequence[Any]) -> Row:
    """A row from a store, in the order of `Row`, if it could be one of ours: types and bounds (A31)."""
    holder, token, seq, hold_ms, wait_ms, released, members, successor, server, proof, mark, vouches = values
    _check_texts((holder, members, successor, server, proof, mark), ROW_TEXTS)
    _check_numbers((token, seq, hold_ms, wait_ms), ROW_NUMBERS)
    if released not in (0, 1):
        raise Refused("the row in the store is not one of primacy's: `released` is neither yes nor no")
    return Row(
        holder, token, seq, hold_ms, wait_ms, bool(released), members, successor, server, proof, mark, bool(vouches)
    )


def listing_of(name: Any, read: Callable[[], Row], written_at: Any) -> Listing:
    """One row for people; of one that is not primacy's, what is wrong: the others are shown all the same."""
    try:
        return Listing(str(name), read(), str(written_at))
    except Refused as error:
        return Listing(ascii(name)[1:-1][:NAME_MAX], None, "", str(error))


def checked_genesis(values: Sequence[Any]) -> Genesis:
    """A genesis row from a store, in the order of `Genesis`, if it could be one of primacy's."""
    settled, wait_max_ms, floor, names, version, mark, vouches, count = values
    _check_texts((settled, mark), (HOLDER_MAX, MARK_MAX))
    _check_numbers((wait_max_ms, floor, names, version), (2 * HOLD_MS_MAX, TOKEN_MAX, NAMES_MAX, SEQ_MAX))
    if not isinstance(count, int) or count < -1:
        raise Refused("the row in the store is not one of primacy's: the rows could not be counted")
    return Genesis(settled, wait_max_ms, floor, names, version, mark, bool(vouches), count)


def _check_texts(texts: tuple[Any, ...], most: tuple[int, ...]) -> None:
    try:
        fit = _PLAIN.fullmatch("".join(texts))
    except TypeError:
        fit = None
    if not fit or any(map(gt, map(len, texts), most)):
        raise Refused("the row in the store is not one of primacy's: a text in it is too long, not plain, or none")


def _check_numbers(numbers: tuple[Any, ...], most: tuple[int, ...]) -> None:
    for number, bound in zip(numbers, most, strict=True):
        if type(number) is not int or not 0 <= number <= bound:
            raise Refused("the row in the store is not one of primacy's: a number in it is out of bounds")
