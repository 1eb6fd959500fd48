"""Two locks per election on a machine, both freed by the kernel when their last holder is gone.

- `agent.lock` is held by the agent for as long as it lives, so that one ballot has one writer. A second agent learns
  who holds it.
- `run.lock` is taken by the guard and held by the guarded tree as well, so that it is free only when the last
  descendant is gone (G3). The agent never keeps it: it only looks whether it is held (Q6).

They are flock locks: they belong to the open file, and pass on to processes that inherit it.

A file can be removed while somebody holds it, and be made anew, free: by hand, by whatever clears "stale" locks, by a
copy that deletes what it does not know. So each lock is one of the file, which shows who has it and which an agent of
an earlier version knows, and one of the folder, which cannot be removed while there are files in it: a flock of the
agent, and a lock of its own kind of the guard (`guard_tree.keep_folder`), so that they do not meet. An agent whose file
is no longer what its name says does nothing more that needs the lock, and ends: of an earlier version, or in a new
folder of this name, another one may be at work (G11).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import NamedTuple

from primacy.errors import CannotHere
from primacy.node.folder import Folder

AGENT = "agent.lock"
RUN = "run.lock"
HOLDER_BYTES_MAX = 64
NAME_BYTES_MAX = 64
"""The kernel keeps 15."""
TAKES_MAX = 8
"""A file that is removed again and again while it is taken."""
FLOCK = struct.Struct("hhqqi4x")
"""struct flock: kind, whence, start, length (0: all), process. As the guard knows it, which imports nothing of ours."""
NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF)
"""A file system, or a kernel, that has no locks of folders: there is the file only."""


class Holder(NamedTuple):
    """Who has a lock."""

    pid: int
    """0 if it did not say."""
    command: str
    """Its name; empty if it is gone or not ours to see."""

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"


class AgentLock:
    """The one writer of a folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.handle = folder.open(AGENT, os.O_RDWR | os.O_CREAT)
        try:
            self._below = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder.handle)
        except BaseException:
            os.close(self.handle)
            raise

    def take(self) -> bool:
        """True if it is ours now; our process number then stands in the file, for whoever comes second."""
        if not self._take_folder():
            return False
        if not self._take_file():
            fcntl.flock(self._below, fcntl.LOCK_UN)
            return False
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, f"{os.getpid()}\n".encode(), 0)
        self.folder.is_ours = self.is_ours
        return True

    def _take_folder(self) -> bool:
        try:
            return _take(self._below)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return True
            raise

    def _take_file(self) -> bool:
        """A file that has lost its name is not the lock that others will see; while it is held, its holder lives."""
        for _ in range(TAKES_MAX):
            if not _take(self.handle):
                return False
            if self.is_ours():
                return True
            if not _is(self.folder.where, self.folder.handle):
                raise CannotHere(
                    f"the state folder {self.folder.where} was removed, or replaced by another one, while this agent "
                    "waited for it; start the agent again"
                )
            fresh = self.folder.open(AGENT, os.O_RDWR | os.O_CREAT)
            os.close(self.handle)
            self.handle = fresh
        return False

    def is_ours(self) -> bool:
        """The file that we hold, or wait for, is the one that others find under its name."""
        return _is(AGENT, self.handle, self._below) and _is(self.folder.where, self._below)

    def holder(self) -> Holder:
        """Who has it, as far as the file says."""
        text = os.pread(self.handle, HOLDER_BYTES_MAX, 0).strip()
        pid = int(text) if text.isdigit() else 0
        return Holder(pid, command_of(pid))

    def close(self) -> None:
        os.close(self.handle)
        os.close(self._below)


class RunLock:
    """A look at the lock that guards and trees hold."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.path = folder.path(RUN)
        self.handle = folder.open(RUN, os.O_RDWR | os.O_CREAT)

    @property
    def may_start(self) -> bool:
        """Nobody else can have taken the place of this agent."""
        return self.folder.is_ours()

    def is_held(self) -> bool:
        """Taken for an instant and given back. Never asked between an order to start and its answer."""
        if not self.may_start or _is_kept(self.folder.handle) or _is_locked(self.handle):
            return True
        if _is(RUN, self.handle, self.folder.handle):
            return False
        try:
            fresh = self.folder.open(RUN, os.O_RDWR | os.O_CREAT)
        except OSError:
            return True  # nobody can tell
        os.close(self.handle)
        self.handle = fresh
        return _is_locked(self.handle)

    def close(self) -> None:
        os.close(self.handle)


def _is(name: str, handle: int, folder: int | None = None) -> bool:
    """What has this name is what is open here. What cannot be looked at now counts as the same."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_kept(folder: int) -> bool:
    """A guard, or what keeps the lock in its place, has the folder."""
    wanted = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        found = fcntl.fcntl(folder, fcntl.F_OFD_GETLK, wanted)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return bool(FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _is_locked(handle: int) -> bool:
    if not _take(handle):
        return True
    fcntl.flock(handle, fcntl.LOCK_UN)
    return False


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def command_of(pid: int) -> str:
    """The name of a process, for a sentence. Not its arguments: they may hold what is nobody's business."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            text = file.read(NAME_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return "".join(char if char.isprintable() else "?" for char in text)
