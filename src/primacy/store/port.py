"""The port that every store implements, and the bounds that hold for all of them.

A store is synchronous and belongs to one thread. It connects when it is first asked, and again after a failure. Each
call is one conditional step (`election/store.py` says what a store owes to the rules); what the world does wrong leaves
it as `NotReached` or `Refused`, with a sentence that holds no secret. An exception means that nothing is proved: the
write may have happened, or may still happen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from primacy.election.model import TOKEN_MAX
from primacy.election.store import Look, ReleaseRow, Renew, Row, StoreAnswer, StoreRequest, Take
from primacy.errors import Refused, UsageError

NAME_MAX = 120
"""Longest name of a lease. Short enough for a primary key in every database and every character set."""
HOLDER_MAX = 190
"""Longest name of a holder, successor or server."""
MEMBERS_MAX = 64
BATCH_MAX = 100
"""Rows in one statement (L6). Larger ones hold their locks longer than they save in trips."""
LIST_MAX = 10_000
"""Rows that `lease list` reads at most."""
SEQ_MAX = 2**62
HOLD_MS_MAX = 86_400_000
"""A day. A row that claims more is broken or hostile: it would keep everybody away (A31)."""
LIMIT_MS_LEAST = 50
"""Below this every second statement would fail on a busy machine."""

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._:/@+-]{{0,{NAME_MAX - 1}}}")
_WORD = re.compile(rf"[!-~]{{0,{HOLDER_MAX}}}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Sheet(NamedTuple):
    """One row as people see it: `lease list` and `show`."""

    name: str
    row: Row
    written_at: str
    """When it was last written, by the store's clock; for people, and in no condition."""


class LeaseStore(Protocol):
    """Lease rows behind conditional writes. All requests of one call are of one kind and name different leases."""

    def look(self, requests: Sequence[Look]) -> list[StoreAnswer]:
        """The rows as they stand, with the server that says so."""
        ...

    def take(self, requests: Sequence[Take]) -> list[StoreAnswer]: ...

    def renew(self, requests: Sequence[Renew]) -> list[StoreAnswer]: ...

    def release(self, requests: Sequence[ReleaseRow]) -> list[StoreAnswer]: ...

    def close(self) -> None:
        """The connection goes; the next request makes a new one."""
        ...


class News(NamedTuple):
    """A row changed."""

    name: str
    """Empty: something was missed, look at all."""
    answer: StoreAnswer | None = None
    """What a look at a moment before this arrived would have shown; never older than what this store last answered.
    None: only that there is something to see."""


@runtime_checkable
class Notifies(Protocol):
    """A store that tells of changes, so that a watcher need not wait for its next look, or need not look at all.

    News is evidence of a row that stood there *before* the news arrived. Counting from its arrival is therefore what L3
    asks for, and news that is late or lost only delays: a take compares what the news said.
    """

    def listen(self) -> int:
        """A descriptor that becomes readable when there is news, or -1: this connection cannot. Raises like a look."""
        ...

    def news(self) -> list[News]:
        """What changed, in the order in which it did. Never waits."""
        ...


@runtime_checkable
class Lists(Protocol):
    """A store whose rows can be listed."""

    def sheets(self) -> list[Sheet]:
        """All rows in the order of their names, at most `LIST_MAX`."""
        ...


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
    check_name(request.name)
    texts: tuple[str, ...]
    match request:
        case Take(row=row):
            texts = (row.holder, row.members, request.server, request.seen_members)
        case Renew():
            texts = (request.holder, request.server)
        case ReleaseRow():
            texts = (request.holder, request.successor)
        case Look():
            return
    for text in texts:
        if not _WORD.fullmatch(text):
            raise UsageError(
                f"a name in a lease has at most {HOLDER_MAX} printable characters, no blanks: {text[:40]!r}"
            )


def check_table(table: str) -> str:
    """The table's name, if it needs no quoting anywhere (A30)."""
    if not _TABLE.fullmatch(table):
        raise UsageError(
            f"a table's name is a letter or underscore, then letters, digits or underscores, at most 63, not {table!r}"
        )
    return table


def checked_row(values: Sequence[Any]) -> Row:
    """A row from a store, in the order of `Row`, if it could be one of ours: types and bounds (A31)."""
    holder, token, seq, hold_ms, wait_ms, released, members, successor, server = values
    texts = ((holder, HOLDER_MAX), (members, MEMBERS_MAX), (successor, HOLDER_MAX), (server, HOLDER_MAX))
    numbers = ((token, TOKEN_MAX), (seq, SEQ_MAX), (hold_ms, HOLD_MS_MAX), (wait_ms, 2 * HOLD_MS_MAX))
    if not all(isinstance(text, str) and len(text) <= most for text, most in texts):
        raise Refused("the row in the store is not one of primacy's: a text in it is too long or none")
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= most for n, most in numbers):
        raise Refused("the row in the store is not one of primacy's: a number in it is out of bounds")
    if released not in (0, 1):
        raise Refused("the row in the store is not one of primacy's: `released` is neither yes nor no")
    return Row(holder, token, seq, hold_ms, wait_ms, bool(released), members, successor, server)
