"""The store of a lab whose strategy is lease: a SQLite file in its folder, and how it is kept from everybody."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

PATIENCE_S = 1.0
"""How long is waited for one that writes: a statement takes milliseconds."""


class LeaseFile:
    """One file; at most one of us has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taken: sqlite3.Connection | None = None

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def take(self) -> bool:
        """Nobody else reads or writes it, until it is given back or this process ends. False: somebody has it."""
        if self._taken is None:
            self._taken = self._locked()
        return self._taken is not None

    def give(self) -> None:
        if self._taken is not None:
            self._taken.close()
            self._taken = None

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Nobody is in the midst of a statement. Where that cannot be had, because somebody who has the file stands
        still, or nobody made it yet, it goes on all the same."""
        held = self._locked() if self._taken is None and self.path.exists() else None
        try:
            yield
        finally:
            if held is not None:
                held.close()

    def _locked(self) -> sqlite3.Connection | None:
        place = f"file:{quote(str(self.path))}?mode=rw"
        # the thread that ends a lab is not always the one that broke it
        made = sqlite3.connect(place, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False, uri=True)
        try:
            made.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            made.close()
            return None
        return made
