"""The events of all nodes, as each wrote them down: read from their files, so that a node need not live to be heard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "events.jsonl"
READ_BYTES_MAX = 2_000_000
"""A node's file is smaller."""


class Tail:
    """Follows the file of one node. Its own events only: a node also tells of others what it heard."""

    def __init__(self, node: str, folder: Path) -> None:
        self.node = node
        self.path = folder / FILE_NAME
        self._file = 0
        self._at = 0
        self._newest = 0

    def new(self) -> list[dict[str, Any]]:
        """What was written since the last call. A file that was written anew is read from its beginning."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._file or found.st_size < self._at:
                    self._file, self._at = found.st_ino, 0
                file.seek(self._at)
                data = file.read(READ_BYTES_MAX)
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]  # a line that is half written is read next time
        self._at += len(whole)
        rows = [row for line in whole.splitlines() if (row := _row(line)) is not None]
        fresh = [row for row in rows if row["number"] > self._newest]
        self._newest = max((row["number"] for row in fresh), default=self._newest)
        return [row for row in fresh if row["node"] == self.node]


def merged(tails: Mapping[str, Tail]) -> list[dict[str, Any]]:
    """What is new with all of them, oldest first."""
    found = [row for tail in tails.values() for row in tail.new()]
    return sorted(found, key=lambda row: (row["at_unix_ms"], row["node"], row["number"]))


def _row(line: bytes) -> dict[str, Any] | None:
    """A torn line, after a crash, is left out."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    right = isinstance(row, dict) and row.keys() >= {"number", "at_unix_ms", "node", "term", "code", "text"}
    return row if right else None
