"""The lines of a history, and what of them belongs to a range of time. Pure.

A line is a JSON list that begins with its time, so that a day is looked through without parsing it:

    [at, code, node, term, number, value, text]    an event
    [from, "", node, token, to]                    a hold: from its newest renewal that was heard to its end

A range alone does not tell how things stood when it began, or how what began in it ended. So, of each node and code,
the last event before it and the first one after it are told, too. What is torn, or no line of a history, is left out.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from typing import Any, NamedTuple

from primacy.control import API
from primacy.control.earlier import current_code
from primacy.control.when import DATE_MAX_MS

EVENTS_MAX = 6_000
"""In one answer, the newest of the range: as many as one timeline draws."""
EVENTS_BYTES_MAX = 2_500_000
"""The same, in bytes: with the rest it fits into what a reader takes in one answer (4 MB)."""
CONTEXT_MAX = 1_000
"""Pairs of a node and a code, before and after the range: 20 nodes with 50 codes."""
HOLDS_MAX = 2_000
"""One for each leadership."""
COUNT_MS = 300_000
"""Events are counted by five minutes: 288 in a day, about one for three pixels."""
COUNTS_MAX = 1_000
EVENT_FIELDS = 7
HOLD = b'"",'
NUMBERS_BYTES_MAX = 40
HALF = re.compile("[\ud800-\udfff]")


class Hold(NamedTuple):
    """On the clock of the node that heard it."""

    node: str
    from_ms: int
    to_ms: int
    token: int


class Told(NamedTuple):
    """One event, as a history has it."""

    at_unix_ms: int
    code: str
    node: str
    term: int
    number: int
    value: int
    text: str


def event_line(at_ms: int, code: str, node: str, term: int, number: int, value: int, text: str) -> bytes:
    return _line([at_ms, code, node, term, number, value, text])


def hold_line(hold: Hold) -> bytes:
    return _line([hold.from_ms, "", hold.node, hold.token, hold.to_ms])


def _line(row: list[Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def event_of(line: bytes) -> Told | None:
    """None if it is none."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, list) or len(row) != EVENT_FIELDS:
        return None
    told = Told(*row)
    right = are_right((told.at_unix_ms, told.term, told.number, told.value), (told.code, told.node, told.text))
    return told._replace(code=current_code(told.code)) if right and told.code else None


def are_right(numbers: tuple[object, ...], texts: tuple[object, ...]) -> bool:
    """The values of an event in a file that anything may stand in. The first number is its time. Half of a character,
    which JSON can write, is no text: it can be neither shown nor sent."""
    words = [each for each in texts if type(each) is str]
    if len(words) < len(texts) or not all(type(each) is int for each in numbers):
        return False
    return is_date(numbers[0]) and not any(map(HALF.search, words))


def whole(text: str) -> str:
    """The text without halves of characters, which come from outside: from JSON, and from names of files."""
    return HALF.sub("?", text)


def is_date(at_ms: object) -> bool:
    return type(at_ms) is int and 0 <= at_ms < DATE_MAX_MS


class Scan:
    """Given all lines, oldest first, it keeps what belongs to the range."""

    def __init__(self, from_ms: int, to_ms: int, most: int = EVENTS_MAX) -> None:
        """Both ends belong to it. Of more than `most` events the newest are kept."""
        self.from_ms, self.to_ms, self.most = from_ms, to_ms, most
        self.of = 0
        """How many events there are in the range."""
        self.cut_ms: int | None = None
        """Those of the range up to here are not kept; None: all are."""
        self.newest_number = 0
        self._inside: deque[tuple[int, bytes, bytes]] = deque()
        self._inside_bytes = 0
        self._before: dict[bytes, bytes] = {}
        self._after: dict[bytes, bytes] = {}
        self._holds: dict[tuple[bytes, bytes], tuple[int, int, int]] = {}
        """By node and token: when it was first heard, its newest renewal, its end."""
        self._counts: dict[int, int] = {}

    def take(self, data: bytes) -> None:
        """The lines of one file. Most of a day is neither asked for nor parsed: its time, its code and its node are cut
        out, and that is all."""
        from_ms, to_ms, counts, before, after = self.from_ms, self.to_ms, self._counts, self._before, self._after
        for line in data.split(b"\n"):
            code_at = line.find(b',"')
            node_at = line.find(b'"', code_at + 2) + 3
            end = line.find(b'",', node_at)
            if not line.endswith(b"]") or not 0 < code_at < node_at <= end or line[:1] != b"[":
                continue  # torn, or the head of the file
            try:
                at_ms = int(line[1:code_at])
            except ValueError:
                continue
            key = line[code_at + 1 : end + 1]
            if key.startswith(HOLD):
                self._hold(at_ms, key, line[end + 2 :])
                continue
            bucket = at_ms // COUNT_MS
            counts[bucket] = counts.get(bucket, 0) + 1
            if at_ms < from_ms:
                before.pop(key, None)  # in the order of the log
                if len(before) < CONTEXT_MAX:
                    before[key] = line
            elif at_ms <= to_ms:
                self._put_inside(at_ms, key, line)
            elif key not in after and len(after) < CONTEXT_MAX:
                after[key] = line

    def _put_before(self, key: bytes, line: bytes) -> None:
        self._before.pop(key, None)
        if len(self._before) < CONTEXT_MAX:
            self._before[key] = line

    def _put_inside(self, at_ms: int, key: bytes, line: bytes) -> None:
        self.of += 1
        self._inside.append((at_ms, key, line))
        self._inside_bytes += len(line)
        while len(self._inside) > self.most or self._inside_bytes > EVENTS_BYTES_MAX:
            gone_ms, gone_key, gone = self._inside.popleft()
            self._inside_bytes -= len(gone)
            self.cut_ms = gone_ms if self.cut_ms is None else max(self.cut_ms, gone_ms)
            self._put_before(gone_key, gone)

    def _hold(self, from_ms: int, key: bytes, rest: bytes) -> None:
        """`rest`: its token and its end."""
        token, _, end = rest[:-1].partition(b",")
        if not token.isdigit() or not end.isdigit() or len(rest) > NUMBERS_BYTES_MAX:
            return
        to_ms = int(end)
        before = self._holds.pop((key, token), None)
        if before is not None and before[2] > to_ms:  # what is heard late changes nothing
            self._holds[key, token] = before
        else:
            self._holds[key, token] = (before[0] if before is not None else from_ms, from_ms, to_ms)
        if len(self._holds) > HOLDS_MAX:
            del self._holds[next(iter(self._holds))]

    # --- what was found -----------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Told]:
        """Of the range."""
        return _events(line for _, _, line in self._inside)

    @property
    def before(self) -> list[Told]:
        return _events(self._before.values())

    @property
    def after(self) -> list[Told]:
        return _events(self._after.values())

    @property
    def holds(self) -> list[Hold]:
        """Those of leaderships that touch the range."""
        found = []
        for (key, token), (first_ms, from_ms, to_ms) in self._holds.items():
            if first_ms <= self.to_ms and to_ms >= self.from_ms:
                with contextlib.suppress(ValueError, RecursionError):  # torn, or no name
                    found.append(Hold(json.loads(b"[" + key + b"]")[1], from_ms, to_ms, int(token)))
        return found

    def counts(self, from_ms: int) -> list[tuple[int, int]]:
        """How many events there were in each five minutes since then."""
        found = sorted((at * COUNT_MS, many) for at, many in self._counts.items() if (at + 1) * COUNT_MS > from_ms)
        return found[-COUNTS_MAX:]


def _events(lines: Any) -> list[Told]:
    return [told for line in lines if (told := event_of(line)) is not None]


class Kept(NamedTuple):
    """How much there is."""

    from_ms: int = 0
    """Since when; 0: nothing is kept."""
    size_bytes: int = 0


def document(scan: Scan, kept: Kept, bounds: dict[str, int], node: str = "") -> dict[str, Any]:
    """`GET /v1/history`."""
    from_ms = max(scan.from_ms, scan.cut_ms + 1 if scan.cut_ms is not None else 0, kept.from_ms)
    return {
        "api": API,
        "node": node,
        "from_ms": from_ms,
        "to_ms": scan.to_ms,
        "events_of_range": scan.of,
        "cut_ms": scan.cut_ms,
        "kept_from_ms": kept.from_ms,
        "kept_bytes": kept.size_bytes,
        **bounds,
        "fields": list(Told._fields),
        "events": scan.events,
        "before": scan.before,
        "after": scan.after,
        "holds": scan.holds,
        "counts": scan.counts(kept.from_ms),
    }
