"""A day of history in the state folder: what a page that is started after an incident shows of it.

64 files of at most 250 kB, `history.00.jsonl` to `history.63.jsonl`, used in turn: the newest 16 MB, whatever happens.
A file is begun when the one before is full, or an hour old; with each one that is begun, at most two of the oldest are
emptied, if they ended more than a day ago. So a day is kept, and an hour more at most, where a day fits.

Clocks may be set, so that no age is believed at once. One that was set far ahead, or back, costs two files for each
one that is begun meanwhile, which takes an hour or 250 kB; and what was written under a wrong clock goes like what is
too old, at the latest when its place is used again.

Nothing here is done on the time of an election: `add` only remembers, a thread writes and reads. The files are for
people: a crash may cost the last lines, a torn line is skipped, and a disk that takes nothing is complained of once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from primacy.control import Files
from primacy.control.disk_thread import DiskThread
from primacy.control.history_scan import (
    EVENTS_MAX,
    Hold,
    Kept,
    Scan,
    document,
    event_line,
    event_of,
    hold_line,
    is_date,
)
from primacy.errors import CannotHere, Later, PrimacyError

FILES_MAX = 64
FILE_BYTES_MAX = 250_000
"""With an hour for each file, a day takes 25 of them; the other 39 are for the hours in which much happens."""
BYTES_MAX = FILES_MAX * FILE_BYTES_MAX
FILE_MS = 3_600_000
AGE_MS = 24 * FILE_MS
FAR_MS = 31 * AGE_MS
"""What was begun so long before the newest file was begun under a wrong clock (a machine may start in 1970): it does
not count for since when a day is kept. A node that did not run for a month tells of its day after that only."""
EMPTIED_MAX = 2
"""For each file that is begun: a clock that jumps does not cost the day."""
WAITING_MAX = 5_000
"""Lines that were not written yet, the newest: a disk that hangs for 25 seconds under 200 events a second. 1 MB, and
15 MB at the very most: an agent may have a hundred elections."""
HEAD_BYTES_MAX = 100
END_S = 1.0
"""How long the end waits for a disk that hangs."""
FOR_EVER_MS = 10**15 - 1
"""Later than every time that is asked for."""
BOUNDS = {"bytes_max": BYTES_MAX, "age_max_ms": AGE_MS}
Reads = Callable[[str, int], bytes]
"""A file of the folder by its name: at most so many bytes of it. Raises `OSError`, or a `PrimacyError`."""


class Event(Protocol):
    """An event of the event log."""

    @property
    def number(self) -> int: ...
    @property
    def at_unix_ms(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def code(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def value(self) -> int: ...


def wall() -> int:
    return time.time_ns() // 1_000_000


def name_of(file: int) -> str:
    """Files are numbered on and on; their names are used in turn."""
    return f"history.{file % FILES_MAX:02}.jsonl"


def head_of(data: bytes) -> tuple[int, int] | None:
    """Its number, and when it was begun; None: it is no file of a history."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        said = json.loads(data.partition(b"\n")[0][:HEAD_BYTES_MAX])
        file, at_ms = said["history"], said["at"]
        if type(file) is int and file >= 0 and is_date(at_ms):
            return file, at_ms
    return None


def is_over(size_bytes: int, more_bytes: int, begun_ms: int, now_ms: int) -> bool:
    """It is full, or an hour old, or of another time altogether: a clock was set."""
    return size_bytes + more_bytes > FILE_BYTES_MAX or abs(now_ms - begun_ms) >= FILE_MS


def too_old(begun: dict[int, int], now_ms: int) -> list[int]:
    """Which files are emptied now, by when each was begun: it ended when the next one began."""
    in_order = sorted(begun)
    ended = zip(in_order[:-1], (begun[each] for each in in_order[1:]), strict=True)
    return [file for file, end_ms in ended if abs(now_ms - end_ms) > AGE_MS][:EMPTIED_MAX]


class History:
    """`add` and `hear_holds` never wait. `write` and `read` are for a thread."""

    def __init__(
        self,
        files: Files | None,
        complain: Callable[[str], None],
        earlier: Iterable[Event] = (),
        wall_ms: Callable[[], int] = wall,
    ) -> None:
        """`files`: None if none is kept. `earlier`: events that stand elsewhere in the folder; those that are new to
        the history go into it."""
        self.files = files
        self.complain = complain
        self.wall_ms = wall_ms
        self._earlier = tuple(earlier) if files is not None else ()
        self.wakes: Callable[[], object] = lambda: None
        """Called after every event, for the one that writes it."""
        self.bounds = BOUNDS if files is not None else dict.fromkeys(BOUNDS, 0)
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._writing = threading.Lock()
        self._holds = HeardHolds()
        self._begun: dict[int, int] | None = None
        """By number, when each file was begun; None: not looked yet."""
        self._newest = -1
        self._begun_ms = 0
        """When the newest was begun; 0: not known, or there is none."""
        self._bytes = 0
        self._is_torn = False
        self._complained = False

    # --- what happens -------------------------------------------------------------------------------------------------

    def add(self, entry: Event) -> None:
        if self.files is not None:
            self._waiting.append(_line_of(entry))
            self.wakes()

    def hear_holds(self, holds: Iterable[Hold]) -> None:
        """All that last now, or were heard last."""
        if self.files is not None:
            self._waiting.extend(map(hold_line, self._holds.hear(holds)))

    # --- writing ------------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Something waits, or the newest file is an hour old: what is too old goes, also if nothing happens."""
        if self.files is None:
            return False
        return bool(self._waiting or self._earlier) or (
            self._begun_ms > 0 and is_over(0, 0, self._begun_ms, self.wall_ms())
        )

    def write(self) -> None:
        """What waits goes to the files. One that cannot be written now is tried again the next time."""
        if self.is_due() and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def close(self) -> None:
        """The folder is about to be closed: nothing is written or read there any more. It waits for a disk for a
        moment at most; `aclose` is for where other elections go on meanwhile."""
        if self.is_due():
            with contextlib.suppress(TimeoutError, Later):
                self._last_written().result(END_S)
        self.files = None

    async def aclose(self) -> None:
        if self.is_due():
            with contextlib.suppress(TimeoutError, Later):
                async with asyncio.timeout(END_S):
                    await asyncio.wrap_future(self._last_written())
        self.files = None

    def _last_written(self) -> Future[None]:
        """Raises `Later`."""
        thread = DiskThread("primacy-history-end")
        written = thread.ask(self._write_last)
        thread.end()
        return written

    def _write_last(self) -> None:
        if self.is_due() and self._writing.acquire(timeout=END_S):
            try:
                self._write()
            finally:
                self._writing.release()

    def _write(self) -> None:
        """With the lock."""
        now_ms = self.wall_ms()
        lines = []
        while self._waiting:
            lines.append(self._waiting.popleft())
        try:
            if self._begun is None:
                lines = [*self._look(), *lines]
            if self._begun_ms and is_over(self._bytes, 0, self._begun_ms, now_ms):
                self._begin(now_ms)
            while lines:
                fitting = _fitting(lines, FILE_BYTES_MAX - self._bytes) if self._begun_ms else 0
                if fitting:
                    self._append(b"".join(lines[:fitting]))
                    del lines[:fitting]
                else:
                    self._begin(now_ms)
            self._complained = False
        except (OSError, PrimacyError) as error:
            files = self.files
            if files is not None and not self._complained:
                self._complained = True
                why = error.strerror if isinstance(error, OSError) else error
                self.complain(
                    f"the history of the last day is not kept: {files.path(name_of(max(0, self._newest)))}: {why}"
                )

    def _folder(self) -> Files:
        """Asked for each file: a thread that hung in the last one may find that the folder was closed meanwhile, and
        that its descriptor is something else by now."""
        if self.files is None:
            raise CannotHere("the folder is closed")
        return self.files

    def _reads(self, name: str, most_bytes: int) -> bytes:
        handle = self._folder().open(name, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            return file.read(most_bytes)

    def _create(self, name: str, data: bytes) -> None:
        """Whole, or not at all: a file with half a head would be nobody's, with all that follows."""
        handle = self._folder().create(name)
        try:
            if os.write(handle, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)

    def _look(self) -> list[bytes]:
        """What earlier starts left; and the lines that the history lacks."""
        begun = heads(self._reads)
        newest = max(begun, default=-1)
        number = 0
        if begun:
            data = self._reads(name_of(newest), 2 * FILE_BYTES_MAX)
            self._bytes, self._is_torn = len(data), not data.endswith(b"\n")
            number = _newest_number(self._reads, sorted(begun)[-2:])
        self._begun, self._newest, self._begun_ms = begun, newest, begun.get(newest, 0)
        earlier, self._earlier = self._earlier, ()
        return [_line_of(entry) for entry in earlier if entry.number > number]

    def _begin(self, now_ms: int) -> None:
        assert self._begun is not None
        number = self._newest + 1
        head = json.dumps({"history": number, "at": now_ms}).encode() + b"\n"
        self._create(name_of(number), head)
        self._begun = {file: at_ms for file, at_ms in self._begun.items() if file > number - FILES_MAX}
        self._begun[number] = self._begun_ms = now_ms
        self._newest, self._bytes, self._is_torn = number, len(head), False
        for file in too_old(self._begun, now_ms):
            self._create(name_of(file), b"")
            del self._begun[file]

    def _append(self, data: bytes) -> None:
        begun_ms, self._begun_ms = self._begun_ms, 0
        handle = self._folder().open(name_of(self._newest), os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        self._begun_ms = begun_ms  # else it is gone, or not ours any more, and the next one is begun the next time
        try:
            whole = b"\n" + data if self._is_torn else data
            written = os.write(handle, whole)
            self._bytes += written
            self._is_torn = written < len(whole)  # the disk is full: the rest is lost, and what follows is whole
        finally:
            os.close(handle)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(
        self,
        from_ms: int = 0,
        to_ms: int = FOR_EVER_MS,
        most: int = EVENTS_MAX,
        node: str = "",
        beside: Sequence[Event] = (),
    ) -> dict[str, Any]:
        """The document of a range: for a thread. What happened up to now is in it, if the disk takes it. `beside`: as
        of `told`."""
        if self.is_due() and self._writing.acquire(timeout=END_S):
            try:
                self._write()
            finally:
                self._writing.release()
        return {**told(self._reads, from_ms, to_ms, most, node, beside), **self.bounds}


def told(
    reads: Reads, from_ms: int, to_ms: int, most: int = EVENTS_MAX, node: str = "", beside: Sequence[Event] = ()
) -> dict[str, Any]:
    """What the files of a folder say of a range. Raises nothing: a file that cannot be read is left out.

    `beside`: events that stand elsewhere in the folder; what the history lacks of them is told, too.
    """
    scan = Scan(from_ms, to_ms, most)
    begun, size, least_ms = heads(reads), 0, 0
    far_ms = begun[max(begun)] - FAR_MS if begun else 0
    for file in sorted(begun):
        with contextlib.suppress(OSError, PrimacyError):
            data = reads(name_of(file), 2 * FILE_BYTES_MAX)
            if (head := head_of(data)) is None or head[0] != file:
                continue  # begun anew meanwhile
            scan.take(data)
            size += len(data)
            if head[1] > far_ms:
                least_ms = least_ms or min(head[1], _first_ms(data, head[1]))
            time.sleep(0)  # a node's election is another thread of this process
    number = _newest_number(reads, sorted(begun)[-2:]) if beside else 0
    missing = [each for each in beside if each.number > number]
    scan.take(b"".join(map(_line_of, missing)))
    least_ms = least_ms or min((each.at_unix_ms for each in missing), default=0)
    return document(scan, Kept(least_ms, size), BOUNDS, node)


def kept(
    folder: str, from_ms: int = 0, to_ms: int = FOR_EVER_MS, most: int = EVENTS_MAX, beside: Sequence[Event] = ()
) -> dict[str, Any]:
    """Of a node that does not run."""

    def reads(name: str, most_bytes: int) -> bytes:
        handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            return file.read(most_bytes)

    return told(reads, from_ms, to_ms, most, beside=beside)


def heads(reads: Reads) -> dict[int, int]:
    """The files that there are: by number, when each was begun."""
    found = {}
    for slot in range(FILES_MAX):
        with contextlib.suppress(OSError, PrimacyError):
            head = head_of(reads(name_of(slot), HEAD_BYTES_MAX))
            if head is not None and head[0] % FILES_MAX == slot:
                found[head[0]] = head[1]
    newest = max(found, default=0)
    return {file: at_ms for file, at_ms in found.items() if file > newest - FILES_MAX}


class HeardHolds:
    """Which holds are worth a line: a new one, one that lasts every five seconds, and the last of each leadership."""

    EVERY_MS = 5_000
    SAME_MS = 5
    """Two clocks are read, one after the other."""

    def __init__(self) -> None:
        self._heard: dict[str, Hold] = {}
        self._written: dict[str, Hold] = {}

    def hear(self, holds: Iterable[Hold]) -> list[Hold]:
        found = []
        now = {hold.node: hold for hold in holds}
        for node, heard in tuple(self._heard.items()):
            hold, written = now.get(node), self._written[node]
            is_last = hold is None or hold.token != heard.token or hold.to_ms <= heard.to_ms + self.SAME_MS
            if is_last and written != heard:
                found.append(heard)
                self._written[node] = heard
            if hold is None:
                del self._heard[node], self._written[node]
        for node, hold in now.items():
            before = self._written.get(node)
            if before is None or before.token != hold.token or hold.to_ms >= before.to_ms + self.EVERY_MS:
                found.append(hold)
                self._written[node] = hold
            heard_before = self._heard.get(node)
            is_same = heard_before is not None and heard_before.token == hold.token
            if heard_before is None or not is_same or hold.to_ms > heard_before.to_ms + self.SAME_MS:
                self._heard[node] = hold
        return found


def _line_of(event: Event) -> bytes:
    return event_line(event.at_unix_ms, event.code, event.node, event.term, event.number, event.value, event.text)


def _fitting(lines: list[bytes], room_bytes: int) -> int:
    """How many of them fit. A line has at most a few thousand bytes, and a new file has room for each."""
    for count, line in enumerate(lines):
        room_bytes -= len(line)
        if room_bytes < 0:
            return count
    return len(lines)


def _newest_number(reads: Reads, files: list[int]) -> int:
    """Of the last event in these files: they are in its order."""
    for file in reversed(files):
        with contextlib.suppress(OSError, PrimacyError):
            for line in reversed(reads(name_of(file), 2 * FILE_BYTES_MAX).split(b"\n")):
                if (event := event_of(line)) is not None:
                    return event.number
    return 0


def _first_ms(data: bytes, begun_ms: int) -> int:
    """Of its first event, unless that has another date altogether."""
    for line in data.split(b"\n", 4)[1:4]:
        if (first := event_of(line)) is not None:
            return first.at_unix_ms if abs(first.at_unix_ms - begun_ms) <= AGE_MS else begun_ms
    return begun_ms
