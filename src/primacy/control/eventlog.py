"""What happened, and why: the last events in memory, and in a file that outlives the node's restarts.

Bounded in both places; `history.py` keeps a day of them. The file is for people: a crash may cost its last lines, a
torn line is skipped, and a disk that takes nothing is complained of once and stops nobody. A node has it written in a
thread: a disk that hangs holds up no election. What does not fit into what waits for the disk is counted and told.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from primacy.control import Files
from primacy.control.audit import AuditTrail
from primacy.control.disk_thread import DiskThread
from primacy.control.earlier import current_code
from primacy.control.history import History
from primacy.control.history_scan import are_right, whole
from primacy.control.key import write_new
from primacy.errors import CannotHere, Later, PrimacyError

EVENTS_MAX = 1_000
"""In memory, and those that wait for the disk: days of a quiet cluster, an hour of a bad one."""
FILE_NAME = "events.jsonl"
FILE_BYTES_MAX = 1_000_000
"""Then it is written anew with half of the events: a line has at most 700 bytes."""
TEXT_CHARS_MAX = 500
END_S = 5.0
"""How long the end waits for a disk that hangs: those of many elections are written one after the other then."""


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
    """The last events. `add` never waits; `flush` writes, and may be called by any thread."""

    def __init__(self, files: Files, complain: Callable[[str], None], *, keeps_day: bool = True) -> None:
        """`keeps_day`: a history of the last day, too."""
        self.files = files
        self.complain = complain
        self.entries: deque[Entry] = deque(_read(files), maxlen=EVENTS_MAX)
        self.newest = self.entries[-1].number if self.entries else 0
        self.wakers: set[Callable[[], None]] = set()
        """Called after every addition: those who stream it."""
        self.missing = 0
        """Events of this start that are not in the file: more waited than may wait, or the disk took none."""
        self._unwritten: deque[Entry] = deque(maxlen=EVENTS_MAX)
        self._writing = threading.Lock()
        """Who has it may use what follows."""
        self._kept: deque[Entry] = deque(self.entries, maxlen=EVENTS_MAX // 2)
        """What stays in the file when it is made small again."""
        self._newest_written = self.newest
        self._untold = 0
        self._bytes = 0
        self._complained = False
        self._handle = -1
        self._is_torn = False
        """The file ends with half a line: the next one begins on its own."""
        self._closed = False
        self.audit = AuditTrail(files, complain)
        """Who asked for what, in the same folder."""
        self.history = History(files if keeps_day else None, complain, tuple(self.entries))
        """The last day, in the same folder. Its server writes it, in a thread."""

    def add(self, at_unix_ms: int, node: str, term: int, code: str, text: str, value: int = 0) -> None:
        self.newest += 1
        entry = Entry(self.newest, at_unix_ms, node, term, code, whole(text[:TEXT_CHARS_MAX]), value)
        self.entries.append(entry)
        self._unwritten.append(entry)
        self.history.add(entry)
        for wake in tuple(self.wakers):
            wake()

    def after(self, number: int) -> list[Entry]:
        """Those that a reader has not seen. A number that was never given is of another log: then all of them."""
        return [entry for entry in self.entries if entry.number > number or number > self.newest]

    def last(self, count: int) -> list[Entry]:
        return list(self.entries)[-count:] if count > 0 else []

    def flush(self) -> None:
        """What is new goes to the file; a thread that writes already writes this, too."""
        self.audit.flush()
        while self._unwritten and not self._closed and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def close(self) -> None:
        """Waits for the disk."""
        self.history.close()
        self._end()

    async def aclose(self, disk: DiskThread) -> None:
        """Where other elections go on meanwhile: `disk` writes what is left, and is waited for for a moment at most."""
        await self.history.aclose()
        try:
            ended = asyncio.wrap_future(disk.ask(self._end))
        except Later:
            self._end()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await ended
        self._closed = True
        self.audit.files = None
        if self._writing.acquire(blocking=False):  # else whoever hangs there does it
            self._shut()
            self._writing.release()

    def _end(self) -> None:
        """The folder is about to be closed: nothing is written there any more."""
        self.flush()
        self.audit.close()
        with self._writing:
            self._closed = True
            self._shut()

    def _write(self) -> None:
        """With the lock."""
        new = []
        while self._unwritten:
            new.append(self._unwritten.popleft())
        if not new:  # another thread was quicker
            return
        left_out = new[-1].number - self._newest_written - len(new)
        self._newest_written = new[-1].number
        self._kept.extend(new)
        lost = len(new)
        try:
            lost -= self._append(_lines(new))
            if lost:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except (OSError, PrimacyError) as error:
            self._count(left_out + lost)
            if not self._complained and not self._closed:
                self._complained = True
                why = error.strerror if isinstance(error, OSError) else error
                self.complain(f"events are not kept: {self.files.path(FILE_NAME)}: {why}")
        else:
            self._count(left_out)
            self._complained = False
            if self._untold:
                self.complain(
                    f"{self.files.path(FILE_NAME)} lacks {self._untold:,} events before number {new[0].number:,}: the "
                    "disk did not take them in time"
                )
                self._untold = 0
        if self._closed:  # while it hung
            self._shut()

    def _append(self, data: bytes) -> int:
        """How many of these lines the file has now: a disk that gets full takes a part."""
        if self._handle < 0:
            self._handle = self._folder().open(FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._bytes = os.fstat(self._handle).st_size
            self._is_torn = self._bytes > 0 and os.pread(self._handle, 1, self._bytes - 1) != b"\n"
        if self._bytes + len(data) > FILE_BYTES_MAX:
            self._shut()
            self._exchange(_lines(self._kept))
            return data.count(b"\n")
        lines = b"\n" + data if self._is_torn else data
        written = os.write(self._handle, lines)
        self._bytes += written
        taken = lines[:written].count(b"\n") - (self._is_torn and written > 0)
        if written:
            self._is_torn = not lines[:written].endswith(b"\n")
        return taken

    def _exchange(self, data: bytes) -> None:
        new = f"{FILE_NAME}.new"
        write_new(self._folder(), new, data)
        self._folder().rename(new, FILE_NAME)  # asked again: it may have hung in between

    def _folder(self) -> Files:
        """Asked for each file: as of the history."""
        if self._closed:
            raise CannotHere("the folder is closed")
        return self.files

    def _count(self, events: int) -> None:
        self.missing += events
        self._untold += events

    def _shut(self) -> None:
        handle, self._handle = self._handle, -1  # also if this fails: the number may be another file's at once
        if handle >= 0:
            os.close(handle)


def _lines(entries: Iterable[Entry]) -> bytes:
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
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = (entry.at_unix_ms, entry.number, entry.term, entry.value)
    right = are_right(numbers, (entry.node, entry.code, entry.text))
    return entry._replace(code=current_code(entry.code)) if right else None
