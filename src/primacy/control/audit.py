"""The audit trail: every change that somebody asked for, who asked, from where, and what came of it.

One file in the state folder of the node, `audit.jsonl`: its control API writes there, and so does the dashboard beside
it. A line is appended whole, so that both may write; a file that is full becomes `audit.1.jsonl`, in place of the one
before. So it is bounded, and at least the last thousand requests are kept. It is written beside the loop: a disk that
hangs holds up the answer to a request for a moment, never an election. A disk that takes nothing is complained of once.

Who has the control key may say any name: the trail tells operators apart, it convicts nobody.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from primacy.control import Files
from primacy.control.history_scan import whole
from primacy.control.when import instant
from primacy.errors import PrimacyError

FILE_NAME = "audit.jsonl"
BEFORE_NAME = "audit.1.jsonl"
FILE_BYTES_MAX = 1_000_000
"""Then it is renamed: a line has at most a thousand bytes, most have two hundred."""
REMEMBERED_MAX = 500
"""Where there is no folder to write to."""
SHOWN_MAX = 1_000
WHO_CHARS_MAX = 120
ASKED_CHARS_MAX = 240
WHY_CHARS_MAX = 300
NOT_RECORDED = ("health",)
"""What monitors say all the time; what follows from it is an event."""
END_S = 1.0
"""How long the end waits for a disk that hangs."""
DONE, PASSED, REFUSED, UNKNOWN = "done", "passed on", "refused", "not known"
NAMELESS = "a holder of the control key"


class AuditEntry(NamedTuple):
    """One request."""

    at_unix_ms: int
    who: str
    """As the one who asked says; a name of a trusted proxy, or of the user of a command."""
    origin: str
    """The address that it came from, or the node that passed it on."""
    node: str
    """Which node was asked."""
    election: str
    asked: str
    outcome: str
    """done | passed on | refused | not known"""
    why: str = ""
    """Of a refusal; of a request that was passed on, to whom."""


class AuditTrail:
    """What was asked. `add` never waits; `flush` writes, and may be called by any thread."""

    def __init__(self, files: Files | None, complain: Callable[[str], None]) -> None:
        """`files`: None if nothing can be written; then the last ones are remembered until the end."""
        self.files = files
        self.complain = complain
        self._remembered: deque[AuditEntry] = deque(maxlen=REMEMBERED_MAX)
        self._unwritten: deque[AuditEntry] = deque(maxlen=REMEMBERED_MAX)
        self._writing = threading.Lock()
        self._complained = False

    def add(self, entry: AuditEntry) -> None:
        entry = AuditEntry(entry.at_unix_ms, *map(whole, entry[1:]))  # else it could be neither written nor shown
        if self.files is None:
            self._remembered.append(entry)
        else:
            self._unwritten.append(entry)

    def flush(self) -> None:
        """What is new goes to the file; a thread that writes already writes this, too."""
        while self._unwritten and self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def _write(self) -> None:
        files, entries = self.files, []
        while self._unwritten:
            entries.append(self._unwritten.popleft())
        if files is None:
            self._remembered.extend(entries)
            return
        try:
            handle = files.open(FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(handle, _lines(entries))
                full = os.fstat(handle).st_size > FILE_BYTES_MAX
                if full and self.files is not None and _is_file(files, handle):  # else it was closed while this hung
                    files.rename(FILE_NAME, BEFORE_NAME)
            finally:
                os.close(handle)
            self._complained = False
        except (OSError, PrimacyError) as error:
            self._remembered.extend(entries)
            if not self._complained:
                self._complained = True
                why = error.strerror if isinstance(error, OSError) else error
                self.complain(f"the audit trail is not kept: {files.path(FILE_NAME)}: {why}")

    def close(self) -> None:
        """The folder is about to be closed: nothing is written there any more."""
        self.flush()
        if self._writing.acquire(timeout=END_S):
            self.files = None
            self._writing.release()

    def last(self, count: int) -> list[AuditEntry]:
        """The newest, oldest first. It reads the files: not for the loop."""
        files = self.files
        found: list[AuditEntry] = []
        for name in (BEFORE_NAME, FILE_NAME) if files is not None else ():
            assert files is not None
            try:
                found += entries_of(files.read(name, 2 * FILE_BYTES_MAX))
            except (OSError, PrimacyError):
                continue  # none yet, or not ours: what is remembered is shown all the same
        found += [*self._remembered, *self._unwritten]
        return sorted(found, key=lambda entry: entry.at_unix_ms)[-count:] if count > 0 else []


def last_of(trails: Sequence[AuditTrail], count: int) -> list[AuditEntry]:
    """The newest of all, oldest first. What was asked of several elections at once stands there once, of none."""
    if len(trails) == 1:
        return trails[0].last(count)
    found: dict[AuditEntry, set[str]] = {}
    for trail in trails:
        for entry in trail.last(count):
            found.setdefault(entry._replace(election=""), set()).add(entry.election)
    whole = [entry._replace(election=next(iter(names)) if len(names) == 1 else "") for entry, names in found.items()]
    return sorted(whole, key=lambda entry: entry.at_unix_ms)[-count:] if count > 0 else []


def entries_of(data: bytes) -> list[AuditEntry]:
    """The lines of a file; what cannot be read is left out."""
    found = []
    for line in data.splitlines():
        try:
            entry = AuditEntry(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        if type(entry.at_unix_ms) is int and all(type(word) is str for word in entry[1:]):
            found.append(entry)
    return found


def kept(folder: str) -> list[AuditEntry]:
    """What the files of a node that does not run say."""
    found: list[AuditEntry] = []
    for name in (BEFORE_NAME, FILE_NAME):
        try:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        with os.fdopen(handle, "rb") as file:
            found += entries_of(file.read(2 * FILE_BYTES_MAX))
    return found


def row_of(entry: AuditEntry) -> dict[str, Any]:
    """As documents have it."""
    return {"at": instant(entry.at_unix_ms), **entry._asdict()}


def who_of(said: str) -> str:
    """From the header of a request: its value names who asks, and `1` names nobody."""
    name = said.strip()[:WHO_CHARS_MAX]
    return name if name not in ("", "1") and name.isprintable() else NAMELESS


def asked_of(name: str, body: Mapping[str, Any]) -> str:
    """A request in a few words: `transfer (to b)`."""
    words = ", ".join(f"{key} {_short(value)}" for key, value in body.items() if key != "by")
    return (f"{name} ({words})" if words else name)[:ASKED_CHARS_MAX]


def entry_of(
    at_unix_ms: int, who: str, origin: str, where: tuple[str, str], asked: str, outcome: str, why: str = ""
) -> AuditEntry:
    """`where`: node and election."""
    return AuditEntry(at_unix_ms, who, origin[:WHO_CHARS_MAX], *where, asked, outcome, why[:WHY_CHARS_MAX])


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_short, value[:8]))
    return (value if isinstance(value, str) else json.dumps(value))[:60]


def _is_file(files: Files, handle: int) -> bool:
    """The file has its name still: the other one who writes here may have seen that it is full, too."""
    try:
        other = files.open(FILE_NAME, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(handle), os.fstat(other))
    finally:
        os.close(other)


def _lines(entries: Iterable[AuditEntry]) -> bytes:
    return b"".join(json.dumps(entry._asdict(), ensure_ascii=False).encode() + b"\n" for entry in entries)
