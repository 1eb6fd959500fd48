"""A private folder: ours alone, opened once, and used by its descriptor from then on.

What a node must not forget stands here, so nobody else may be able to change or replace it: the folder belongs to us,
is closed to all others (0700), and no link is followed to it or inside it. What does not fit is refused with the
sentence that says how to mend it; nothing is mended silently but what we have just made ourselves.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import stat
from collections.abc import Callable

from primacy.errors import CannotHere

PRIVATE = 0o700
FILE = 0o600
OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


class Folder:
    """An open private folder. Names are plain names inside it, never paths."""

    def __init__(self, where: str, *, make: bool = True) -> None:
        """Makes it, and the ones above it, if they are not there. Raises `CannotHere` if it is not safe."""
        self.where = os.path.abspath(where)
        self.is_ours: Callable[[], bool] = lambda: True
        """Whether the lock of its one writer still is what its name says. Its taker puts the look here."""
        try:
            if make:
                _make(self.where)
            self.handle = os.open(self.where, os.O_RDONLY | os.O_DIRECTORY | OPEN)
        except OSError as error:
            raise CannotHere(_refusal(self.where, error)) from None
        try:
            _check(self.where, os.fstat(self.handle))
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.handle):
                raise CannotHere(f"the state folder {self.where} cannot be written; choose another with --state-dir")
        except BaseException:
            os.close(self.handle)
            raise

    def again(self) -> Folder:
        """The same folder, open once more: for a thread that may need it longer."""
        other = copy.copy(self)
        other.handle = os.dup(self.handle)
        return other

    def close(self) -> None:
        os.close(self.handle)

    def path(self, name: str) -> str:
        return os.path.join(self.where, name)

    def open(self, name: str, flags: int) -> int:
        """A file of ours, made if `flags` say so; a link, or anybody else's file, is refused."""
        try:
            handle = os.open(name, flags | OPEN, FILE, dir_fd=self.handle)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise CannotHere(f"{self.path(name)} is a link, and no link is followed here; move it away") from None
            raise
        found = os.fstat(handle)
        wrong = _wrong_file(self.path(name), found)
        if wrong:
            os.close(handle)
            raise CannotHere(wrong)
        return handle

    def create(self, name: str) -> int:
        """A new, empty file; what a crash left under this name is removed first."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle)
        return self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def read(self, name: str, most_bytes: int) -> bytes:
        """The whole file. More than `most_bytes` is an `OSError`, like any other file that cannot be ours."""
        handle = self.open(name, os.O_RDONLY | os.O_NONBLOCK)
        parts: list[bytes] = []
        left = most_bytes + 1
        try:
            while left > 0 and (part := os.read(handle, left)):
                parts.append(part)
                left -= len(part)
        finally:
            os.close(handle)
        if left <= 0:
            raise OSError(errno.EFBIG, "it is far too large")
        return b"".join(parts)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def sync(self) -> None:
        os.fsync(self.handle)


def _make(where: str) -> None:
    """Folders that are missing are made private, and their names durable: a ballot in a lost folder is lost, too."""
    if os.path.lexists(where):
        return
    above = os.path.dirname(where)
    _make(above)
    try:
        os.mkdir(where, PRIVATE)
    except FileExistsError:
        return  # somebody else was quicker; it is checked like any other
    handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(where: str, error: OSError) -> str:
    if error.errno == errno.ELOOP or os.path.islink(where):
        return f"the state folder {where} is a link; name the folder itself with --state-dir"
    if error.errno == errno.ENOTDIR:
        return f"the state folder {where} cannot be made: a part of its path is no folder"
    return f"the state folder {where} cannot be used: {error.strerror}; choose another with --state-dir"


def _check(where: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise CannotHere(
            f"the state folder {where} belongs to user {found.st_uid}, and this is user {os.geteuid()}; run as its "
            "owner, or choose another with --state-dir"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise CannotHere(f"the state folder {where} is open to others (mode {mode:04o}): chmod 700 {where}")


def _wrong_file(path: str, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is no plain file; move it away"
    if found.st_uid != os.geteuid():
        return f"{path} belongs to user {found.st_uid}, and this is user {os.geteuid()}: chown {os.geteuid()} {path}"
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return f"{path} is open to others (mode {mode:04o}): chmod 600 {path}"
    return ""
