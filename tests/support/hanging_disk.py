"""`primacy` on a disk that takes nothing while a file says so: whoever changes anything in a folder waits.

python -m tests.support.hanging_disk ...     as `primacy ...`; FOLDER names the folder, HANGS the file

Reads are answered, as from the memory of a machine whose disk is busy. What SQLite does is not held up, nor what other
processes do: a guard, a command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from primacy.cli.main import main

FOLDER = "PRIMACY_TEST_DISK"
HANGS = "PRIMACY_TEST_DISK_HANGS"
LOOK_S = 0.01
CHANGES = ("write", "fsync", "open", "mkdir", "rename", "unlink", "ftruncate", "pwrite")
"""Calls of `os`. Each names what it changes by its first argument, and by the folder that this stands in."""


def slow(name: str, folder: str, hangs: str) -> None:
    call: Callable[..., Any] = getattr(os, name)
    stat = os.stat

    def is_held(place: Any, flags: int, more: dict[str, Any]) -> bool:
        if name == "open" and not flags & os.O_CREAT:
            return False
        where = more.get("dir_fd", more.get("src_dir_fd"))
        if isinstance(place, int):
            where = place
        found = os.readlink(f"/proc/self/fd/{where}") if where is not None else os.path.abspath(place)
        return found.startswith(folder)

    def there() -> bool:
        try:
            stat(hangs)
        except FileNotFoundError:
            return False
        return True

    def held_up(place: Any, *rest: Any, **more: Any) -> Any:
        if there() and is_held(place, rest[0] if name == "open" else 0, more):
            while there():
                time.sleep(LOOK_S)
        return call(place, *rest, **more)

    setattr(os, name, held_up)


if __name__ == "__main__":
    for each in CHANGES:
        slow(each, os.environ[FOLDER], os.environ[HANGS])
    sys.exit(main())
