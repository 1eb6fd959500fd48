"""The file that the guarded command reads its hold from: `PRIMACY_LEASE_FILE`.

One line of JSON that follows the renewals. It is exchanged as a whole, so a reader never sees half of one, and removed
when the work is gone. It is news, not a promise: whoever must be sure checks the token at the resource.

It stands in a folder that the command's own user may enter, which the state folder is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Mapping

import msgspec

from primacy.election.model import Leadership
from primacy.node.clock import Clock

NAME = "lease"
ENTERED = 0o711
"""Others may open what they know the name of, and see nothing else."""
READ = 0o644
PARTS = 3
"""A renewal is written once it adds a third of the hold to what stands there: each costs more than a heartbeat."""


class LeaseFile:
    """Written by the agent alone. A disk that fails costs the news, never the work."""

    def __init__(self, folder: str, election: str, clock: Clock, complain: Callable[[str], None]) -> None:
        self.folder = folder
        self.path = os.path.join(folder, NAME)
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
        fresh = self.path + ".new"
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
        for path in (self.path, self.path + ".new"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def close(self) -> None:
        self.remove()
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def lease_folder(state: str, environment: Mapping[str, str], uid: int) -> str:
    """A folder for the lease of the election whose state is kept in `state`, made if need be.

    The folder that a service was given for this (RUNTIME_DIRECTORY, as systemd says it), the system's folder for what
    lives until the next boot (root), or the user's; if none can be used, the state folder itself, which the command can
    enter only if it runs as the same user.

    In a container the system's folder is often on a disk. A write there, several a second, costs more than all else
    that an idle node does, and holds it up while the disk is busy: shared memory is preferred then.
    """
    given = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given or uid:
        return _made(given or environment.get("XDG_RUNTIME_DIR", ""), state, uid) or state
    bases = ("/run", "/dev/shm") if _in_memory("/run") or not _in_memory("/dev/shm") else ("/dev/shm", "/run")
    return next((found for base in bases if (found := _made(base, state, uid))), state)


def _in_memory(folder: str) -> bool:
    """Whether it is on a file system that has no disk."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            return any(line.split()[1:3] == [folder, "tmpfs"] for line in file)
    except OSError:
        return False


def _made(base: str, state: str, uid: int) -> str:
    """The folder in this one, that only this user can change; empty if there can be none."""
    if not base or not os.path.isabs(base):
        return ""
    mark = hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    where = base
    try:
        for name in ("primacy", mark):
            where = os.path.join(where, name)
            with contextlib.suppress(FileExistsError):
                os.mkdir(where, ENTERED)
                os.chmod(where, ENTERED)
            found = os.lstat(where)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
                return ""
    except OSError:
        return ""
    return where
