"""Hearing that somebody touched a file, by the kernel's inotify: how users of one SQLite file tell each other.

A release is followed by a new time stamp on the database file. That changes no content, costs no statement, and is an
event that neither a commit nor a checkpoint causes, so that renewals wake nobody. Whoever hears it looks; a touch by
anybody else, or one that is not heard (other machine, other file system), costs a look or a delay and nothing more.
"""

from __future__ import annotations

import ctypes
import errno
import os

IN_ATTRIB = 0x0000_0004
"""Time stamps, rights, links: the file itself, not what is in it."""
READ_BYTES = 65_536

_libc = ctypes.CDLL(None, use_errno=True)


class Ear:
    """Listens to one file. The descriptor is readable when it was touched."""

    def __init__(self, path: str) -> None:
        """Raises OSError, as when the user has too many of them, or where the kernel has none."""
        if not hasattr(_libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            _checked(_libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_ATTRIB))
        except OSError:
            self.close()
            raise

    def touched(self) -> bool:
        """Since it was last asked. Never waits."""
        try:
            return bool(os.read(self.descriptor, READ_BYTES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self.descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
