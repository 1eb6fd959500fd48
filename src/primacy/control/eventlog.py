"""What happened, and why: the last events in memory, and in a file that outlives the node's restarts.

Bounded in both places. The file is for people: a crash may cost its last lines, a torn line is skipped, and a disk that
takes nothing is complained of once and stops nobody.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.control import Files
from primacy.control.earlier import current_code
from primacy.control.key import write_whole
from primacy.errors import PrimacyError

EVENTS_MAX = 1_000
"""In memory, and kept when the file is made small again: days of a quiet cluster, an hour of a bad one."""
FILE_NAME = "events.jsonl"
FILE_BYTES_MAX = 1_000_000
"""Then it is written anew with half of the events: a line has at most 700 bytes."""
TEXT_CHARS_MAX = 500


class Entry(NamedTuple):
    """One event, as everybody reads it."""

    number: int
    """Grows by one, over restarts too: where a reader goes on."""
    at_unix_ms: int
    node: str
    term: int
    code: str
    text: str
    """The event's own sentence, with the reason."""
    value: int = 0


class EventLog:
    """The last events. `add` never waits; `flush` writes."""

    def __init__(self, files: Files, complain: Callable[[str], None]) -> None:
        self.files = files
        self.complain = complain
        self.entries: deque[Entry] = deque(_read(files), maxlen=EVENTS_MAX)
        self.newest = self.entries[-1].number if self.entries else 0
        self.wakers: set[Callable[[], None]] = set()
        """Called after every addition: those who stream it."""
        self._unwritten: list[Entry] = []
        self._bytes = 0
        self._complained = False
        self._handle = -1

    def add(self, at_unix_ms: int, node: str, term: int, code: str, text: str, value: int = 0) -> None:
        self.newest += 1
        entry = Entry(self.newest, at_unix_ms, node, term, code, text[:TEXT_CHARS_MAX], value)
        self.entries.append(entry)
        if len(self._unwritten) < EVENTS_MAX:
            self._unwritten.append(entry)
        for wake in tuple(self.wakers):
            wake()

    def after(self, number: int) -> list[Entry]:
        """Those that a reader has not seen. A number that was never given is of another log: then all of them."""
        return [entry for entry in self.entries if entry.number > number or number > self.newest]

    def last(self, count: int) -> list[Entry]:
        return list(self.entries)[-count:] if count > 0 else []

    def flush(self) -> None:
        """What is new goes to the file."""
        if not self._unwritten:
            return
        data = _lines(self._unwritten)
        self._unwritten.clear()
        try:
            if self._handle < 0:
                self._handle = self.files.open(FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._bytes = os.fstat(self._handle).st_size
            if self._bytes + len(data) > FILE_BYTES_MAX:
                self._shorten()
            else:
                self._bytes += os.write(self._handle, data)
            self._complained = False
        except (OSError, PrimacyError) as error:
            if not self._complained:
                self._complained = True
                why = error.strerror if isinstance(error, OSError) else error
                self.complain(f"events are not kept: {self.files.path(FILE_NAME)}: {why}")

    def close(self) -> None:
        self.flush()
        self._shut()

    def _shorten(self) -> None:
        """The newest half, which includes what was to be written."""
        self._shut()
        write_whole(self.files, FILE_NAME, _lines(self.last(EVENTS_MAX // 2)))

    def _shut(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _lines(entries: list[Entry]) -> bytes:
    return b"".join(json.dumps(entry._asdict(), ensure_ascii=False).encode() + b"\n" for entry in entries)


def _read(files: Files) -> list[Entry]:
    """What earlier starts wrote; whatever cannot be read is left out."""
    try:
        data = files.read(FILE_NAME, 2 * FILE_BYTES_MAX)
    except OSError:
        return []
    return _entries(data)


def kept(path: str) -> list[Entry]:
    """The events in the file of a node that does not run. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        return _entries(file.read(2 * FILE_BYTES_MAX))


def _entries(data: bytes) -> list[Entry]:
    entries: list[Entry] = []
    for line in data.splitlines()[-EVENTS_MAX:]:
        entry = _entry(line)
        if entry is not None and (not entries or entry.number > entries[-1].number):
            entries.append(entry)
    return entries


def _entry(line: bytes) -> Entry | None:
    try:
        found: Any = json.loads(line)
        entry = Entry(**found)
    except (ValueError, TypeError):
        return None
    numbers = (entry.number, entry.at_unix_ms, entry.term, entry.value)
    texts = (entry.node, entry.code, entry.text)
    right = all(type(n) is int for n in numbers) and all(type(t) is str for t in texts)
    return entry._replace(code=current_code(entry.code)) if right else None
