"""From view models to frames, and from frames to browsers.

One frame is made for all who watch, with the parts that changed and the events that are new. A browser that comes gets
everything first; one that was away for a moment goes on where it left off; one that does not read in time is dropped,
for it comes back by itself and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Any

from primacy.dashboard.record import Record
from primacy.dashboard.rows import Row

FRAMES_MAX = 64
"""What a browser may be behind: about ten seconds. Then it is dropped."""
WATCHERS_MAX = 64
QUIET_MS = 2_000
"""A frame at least this often, with nothing in it if need be: by its absence a page knows that the server is gone."""


class Hub:
    """The newest model, the last frames and those who wait for more."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.boot = secrets.token_hex(4)
        """Another start of the server is another stream: what a page knows of the old one is thrown away."""
        self.number = 0
        self.frames: deque[tuple[int, bytes]] = deque(maxlen=FRAMES_MAX)
        self.parts: dict[str, str] = {}
        self.watchers: set[asyncio.Event] = set()
        self.dropped = 0
        self._quiet_since_ms = 0

    def publish(self, model: dict[str, Any], fresh: Sequence[Row], now_ms: int, wall_ms: int) -> None:
        """Makes a frame if there is something to say."""
        parts = {name: _json(part) for name, part in model.items()}
        changed = {name: text for name, text in parts.items() if self.parts.get(name) != text}
        gone = [name for name in self.parts if name not in parts]
        self.parts = parts
        if not changed and not gone and not fresh and now_ms - self._quiet_since_ms < QUIET_MS:
            return
        self._quiet_since_ms = now_ms
        self.number += 1
        self.frames.append((self.number, self._frame(changed, gone, fresh, wall_ms, whole=False)))
        for watcher in tuple(self.watchers):
            watcher.set()

    def snapshot(self, wall_ms: int) -> bytes:
        """Everything, for a page that knows nothing."""
        return self._frame(self.parts, [], list(self.record.rows), wall_ms, whole=True)

    def seen_by(self, last_event_id: str) -> int | None:
        """The number of the last frame that a browser has, if this stream can go on from there."""
        boot, _, number = last_event_id.partition("-")
        if boot != self.boot or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        return int(number) if self._reaches(int(number)) else None

    def after(self, number: int) -> bytes | None:
        """The frames that a browser lacks. None: it fell too far behind."""
        if not self._reaches(number):
            return None
        return b"".join(data for each, data in self.frames if each > number)

    def _reaches(self, number: int) -> bool:
        oldest = self.frames[0][0] if self.frames else self.number + 1
        return oldest - 1 <= number <= self.number

    def _frame(
        self, parts: dict[str, str], gone: list[str], rows: Sequence[Row], wall_ms: int, *, whole: bool
    ) -> bytes:
        inner = ",".join(f"{_json(name)}:{text}" for name, text in parts.items())
        said = (
            f'{{"whole":{"true" if whole else "false"},"at_unix_ms":{wall_ms},"parts":{{{inner}}},'
            f'"gone":{_json(gone)},"events":{_json(rows)}}}'
        )
        return f"id: {self.boot}-{self.number}\nevent: frame\ndata: {said}\n\n".encode("utf-8", "replace")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
