"""Folders that a demo makes for itself, and what removes them: its end, or else the next demo.

A demo whose terminal is closed, or that is killed, leaves its folder behind. The next one removes it, if that is safe:
it has our prefix, it is ours and closed to others, a mark in it says that it may go, and its lock is free. The mark is
made once the lock is held, so that no folder of a demo that starts just now has one. A folder that a user named, or
that is kept as evidence, has none. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from primacy.errors import CannotHere
from primacy.lab.place import LOCK, TEMPORARY
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock

PREFIX = "primacy-demo-"


def new_temporary() -> Path:
    """A folder that nobody else has."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def mark(folder: Folder) -> None:
    """It may go. Said by who holds its lock."""
    os.close(folder.create(TEMPORARY))


def keep(where: Path) -> None:
    """It may not go any more."""
    (where / TEMPORARY).unlink(missing_ok=True)


def sweep() -> None:
    """Removes those whose demo is gone."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError, CannotHere):
                    _remove_if_over(entry.path)


def _remove_if_over(where: str) -> None:
    folder = Folder(where, make=False)
    try:
        _marked(folder)
        lock = AgentLock(folder)
        try:
            if lock.take():
                _marked(folder)  # nobody took the mark away meanwhile
                _remove(folder)
        finally:
            lock.close()
    finally:
        folder.close()


def _marked(folder: Folder) -> None:
    os.close(folder.open(TEMPORARY, os.O_RDONLY | os.O_NONBLOCK))


def _remove(folder: Folder) -> None:
    """What cannot be removed yet leaves the mark and the lock, for the next demo."""
    for name in os.listdir(folder.handle):
        if name in (TEMPORARY, LOCK):
            continue
        if stat.S_ISDIR(os.stat(name, dir_fd=folder.handle, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder.handle)
        else:
            os.unlink(name, dir_fd=folder.handle)
    for name in (TEMPORARY, LOCK):
        os.unlink(name, dir_fd=folder.handle)
    os.rmdir(folder.where)
