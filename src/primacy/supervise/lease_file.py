"""The file that the guarded command reads its hold from: `PRIMACY_LEASE_FILE`.

One line of JSON that follows the renewals. It is exchanged as a whole, so a reader never sees half of one, and removed
when the work is gone. It is news, not a promise: whoever must be sure checks the token at the resource.

It stands in a folder that the command's own user may enter, which the state folder is not (`lease_folder.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec

from primacy.election.model import Leadership
from primacy.node.clock import Clock
from primacy.supervise.lease_folder import NAME, NEW, LeaseFolder

READ = 0o644
PARTS = 3
"""A renewal is written once it adds a third of the hold to what stands there: each costs more than a heartbeat."""


class LeaseFile:
    """Written by the agent alone. A disk that fails costs the news, never the work."""

    def __init__(self, folder: LeaseFolder, election: str, clock: Clock, complain: Callable[[str], None]) -> None:
        self.folder = folder
        self.path = os.path.join(folder.path, NAME)
        self.election = election
        self.clock = clock
        self.complain = complain
        self._failed = False
        self._until_ms = 0
        """What stands in the file."""

    def follow(self, leadership: Leadership, run: int, hold_ms: int) -> None:
        """A renewal. One that adds little is left for the next."""
        if leadership.valid_until_ms - self._until_ms >= hold_ms // PARTS:
            self.write(leadership, run)

    def write(self, leadership: Leadership, run: int) -> None:
        self._until_ms = leadership.valid_until_ms
        left_ms = leadership.valid_until_ms - self.clock.now_ms()
        document = {
            "election": self.election,
            "node": leadership.member,
            "term": leadership.term,
            "token": leadership.token,
            "run": run,
            "valid_until_boottime_ms": leadership.valid_until_ms,
            "valid_until_unix_ms": self.clock.wall_ms() + left_ms,
        }
        fresh = os.path.join(self.folder.path, NEW)
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, READ)
            try:
                os.fchmod(handle, READ)
                os.write(handle, msgspec.json.encode(document) + b"\n")
            finally:
                os.close(handle)
            os.rename(fresh, self.path)
            self._failed = False
        except OSError as error:
            if not self._failed:
                self.complain(f"the lease file {self.path} cannot be written: {error.strerror}")
            self._failed = True

    def remove(self) -> None:
        for name in (NAME, NEW):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder.path, name))

    def close(self) -> None:
        self.remove()
        self.folder.close()
