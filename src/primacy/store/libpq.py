"""A connection to PostgreSQL that waits no longer than it is told, and on which statements can be kept ready.

A statement that is kept ready is parsed and planned beforehand, and goes past psycopg's own preparations: out of quiet,
a renewal takes half as long (docs/speed.md). It is the one thing besides LISTEN that belongs to a session, so it must
never matter whose session it is. A pooler may give a statement to a session in which somebody else has prepared others;
therefore its name is made of its text: what is found under that name is that very text, or nothing, which is an error
before anything was done (`NOT_READY`).
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Generator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

NOT_READY = ("26000", "42P05", "0A000")
"""No such statement here, one of that name is here already, or the table was made anew: nothing was done."""
BOOLEAN = 16
WHOLE = (20, 21, 23)
"""PostgreSQL's numbers for its types; all others are read as texts."""
PARAMETER = re.compile(r"%\((\w+)\)s")


class Ready(NamedTuple):
    """A statement that the server keeps."""

    name: bytes
    parameters: tuple[str, ...]
    """In the order of $1, $2, …"""


class Limited(psycopg.Connection[tuple[Any, ...]]):
    """One connection, used by one thread."""

    limit_s = 1.0

    def wait(self, gen: Generator[Any, Any, Any], interval: float = 0.0, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Drives one of psycopg's generators: it says what it waits for, and is told what is ready."""
        end = time.monotonic() + self.limit_s
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._ready(int(wanted), end))
        except StopIteration as done:
            return done.value

    def keep_ready(self, rehearsals: Sequence[tuple[str, Mapping[str, Any], int]]) -> dict[str, Ready]:
        """Has the server parse statements, written as for psycopg, and perform each so many times, all in one trip.

        What is performed must match nothing: it only makes the server plan, and load what it needs for that.
        """
        kept: dict[str, Ready] = {}
        words: list[bytes] = []
        for text, values, times in rehearsals:
            kept[text], numbered = _named(text)
            given = b", ".join(_quoted(_spelled(values[name])) for name in kept[text].parameters)
            words.append(b"PREPARE %s AS %s" % (kept[text].name, numbered))
            words += [b"EXECUTE %s (%s)" % (kept[text].name, given)] * times
        self.pgconn.send_query(b"; ".join(words))
        self._answer()
        return kept

    def run(self, ready: Ready, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement that was kept ready. In autocommit mode it is a transaction of its own."""
        self.pgconn.send_query_prepared(ready.name, [_spelled(values[name]) for name in ready.parameters])
        result = self._answer()
        kinds = [result.ftype(column) for column in range(result.nfields)]
        return [
            tuple(_read(result.get_value(row, column), kind) for column, kind in enumerate(kinds))
            for row in range(result.ntuples)
        ]

    def _answer(self) -> pq.abc.PGresult:
        """Of what was just sent, within the limit. Notifications that come along stay until they are asked for."""
        end = time.monotonic() + self.limit_s
        while self.pgconn.flush():
            if self._ready(3, end) & 1:
                self.pgconn.consume_input()
        last: pq.abc.PGresult | None = None
        while (result := self._next_result(end)) is not None:
            last = result  # an error is the last one
        if last is None:
            raise psycopg.OperationalError("the connection was lost")
        if last.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise _error(last)
        return last

    def _next_result(self, end: float) -> pq.abc.PGresult | None:
        while self.pgconn.is_busy():
            self._ready(1, end)
            self.pgconn.consume_input()
        return self.pgconn.get_result()

    def _ready(self, wanted: int, end: float) -> int:
        """1: readable, 2: writable, as in `psycopg.waiting`."""
        left_s = end - time.monotonic()
        poller = select.poll()
        poller.register(
            self.pgconn.socket, (select.POLLIN if wanted & 1 else 0) | (select.POLLOUT if wanted & 2 else 0)
        )
        found = poller.poll(max(0.0, left_s) * 1_000)
        if not found:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.limit_s * 1_000:.0f} ms")
        event = found[0][1]
        ready = (1 if event & ~select.POLLOUT else 0) | (2 if event & select.POLLOUT else 0)
        return ready & wanted or wanted


def _named(text: str) -> tuple[Ready, bytes]:
    """A name that is made of the text, and the text with its parameters numbered."""
    order: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in order:
            order.append(found[1])
        return f"${order.index(found[1]) + 1}"

    spelled = PARAMETER.sub(numbered, text).encode()
    name = b"primacy_" + blake2b(spelled, digest_size=16).hexdigest().encode()
    return Ready(name, tuple(order)), spelled


def _error(result: pq.abc.PGresult) -> psycopg.Error:
    """As psycopg would raise it. Without a code, as for a lost connection, it means that nothing is proved."""
    code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode(errors="replace")
    said = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"no reason given"
    try:
        kind: type[psycopg.Error] = psycopg.errors.lookup(code)
    except KeyError:
        kind = psycopg.OperationalError
    error = kind(said.decode(errors="replace"))
    error.sqlstate = code or None
    return error


def _spelled(value: Any) -> bytes | None:
    """A parameter as a text of PostgreSQL's: a number, a text, a list of either, or nothing."""
    if value is None:
        return None
    if isinstance(value, list):
        return b"{" + b",".join(_element(one) for one in value) + b"}"
    return str(value).encode()


def _quoted(spelled: bytes | None) -> bytes:
    """The same inside of a statement. Only what stands in this program is written like this, never what came from
    outside."""
    return b"NULL" if spelled is None else b"'" + spelled.replace(b"'", b"''") + b"'"


def _element(value: str | int) -> bytes:
    if isinstance(value, int):
        return str(value).encode()
    return b'"' + value.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"'


def _read(value: bytes | None, kind: int) -> Any:
    if value is None:
        return None
    if kind in WHOLE:
        return int(value)
    return value == b"t" if kind == BOOLEAN else value.decode(errors="replace")
