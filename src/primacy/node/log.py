"""One line per event, to standard error: when, how grave, and a sentence. Secrets never reach it.

Written by hand and not with `logging`: the stream is shared with the guarded command, so that each line must leave in
one write, and a reader that is slow or has left must not stop the agent.
"""

from __future__ import annotations

import json
import os
import select
import time
from enum import IntEnum

from primacy.election.events import Code, Event, sentence
from primacy.node.clock import Clock

LINE_CHARS_MAX = 2_000
"""A sentence is far shorter; what others make us quote might not be."""


class Level(IntEnum):
    """How grave a line is."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


GRAVE: dict[Code, Level] = {
    Code.STARTED: Level.DEBUG,
    Code.CAMPAIGNS: Level.DEBUG,
    Code.LATE_ACK: Level.DEBUG,
    Code.PROMISE_REFUSED: Level.DEBUG,
    Code.RELEASE_APPLIED: Level.DEBUG,
    Code.RELEASE_REFUSED: Level.DEBUG,
    Code.SPLIT_VOTE: Level.DEBUG,
    Code.MAJORITY_LOST: Level.WARN,
    Code.UNHEALTHY: Level.WARN,
    Code.CANNOT_START: Level.WARN,
    Code.GUARD_LOST: Level.WARN,
    Code.RENEWAL_LATE: Level.WARN,
    Code.LEASE_LOST: Level.WARN,
    Code.STORE_FAILED: Level.WARN,
    Code.STORE_UNUSABLE: Level.ERROR,
    Code.FAILSAFE: Level.WARN,
    Code.TOKEN_LOW: Level.WARN,
    Code.RECOVERING: Level.WARN,
    Code.NO_MEMORY: Level.WARN,
    Code.OTHER_LIST: Level.WARN,
    Code.OTHER_CLUSTER: Level.WARN,
    Code.MEMBERS_REFUSED: Level.WARN,
    Code.MEMBERS_TAKEN_BACK: Level.WARN,
    Code.NOT_A_MEMBER: Level.WARN,
    Code.LOCK_HELD: Level.WARN,
    Code.TWO_BOOTS: Level.ERROR,
    Code.STALE_INCARNATION: Level.ERROR,
    Code.TERM_JUMP: Level.ERROR,
    Code.DISK_FAILED: Level.ERROR,
}
"""What is not here is information."""


class Log:
    """Lines of at least a certain gravity, as text or as JSON."""

    def __init__(self, clock: Clock, level: Level = Level.INFO, form: str = "text", handle: int = 2) -> None:
        self.clock = clock
        self.level = level
        self.form = form
        self.handle = handle
        self.lost = 0
        """Lines that nobody took."""

    def say(self, level: Level, text: str, **more: str | int) -> None:
        """One line. `more`: what a machine may want to know besides; shown as JSON only."""
        if level < self.level:
            return
        text = "".join(char if char.isprintable() else "?" for char in text[:LINE_CHARS_MAX])
        if self.lost:
            text += f" ({self.lost} lines before this one found no reader)"
        now_ms, name = self.clock.wall_ms(), level.name.lower()
        if self.form == "json":
            line = json.dumps({"at_unix_ms": now_ms, "level": name, "text": text, **more}, ensure_ascii=False)
        else:
            shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1_000))
            line = f"{shown}.{now_ms % 1_000:03} {name:5} {text}"
        self._write(line.encode("utf-8", "replace") + b"\n")

    def _write(self, line: bytes) -> None:
        """A reader that stopped reading must not stop the agent: a line that would have to wait is dropped."""
        look = select.poll()
        look.register(self.handle, select.POLLOUT)
        try:
            ready = look.poll(0)
            if not ready or not ready[0][1] & select.POLLOUT:
                self.lost += 1
                return
            os.write(self.handle, line)
            self.lost = 0
        except OSError:
            self.lost += 1

    def debug(self, text: str, **more: str | int) -> None:
        self.say(Level.DEBUG, text, **more)

    def info(self, text: str, **more: str | int) -> None:
        self.say(Level.INFO, text, **more)

    def warn(self, text: str, **more: str | int) -> None:
        self.say(Level.WARN, text, **more)

    def error(self, text: str, **more: str | int) -> None:
        self.say(Level.ERROR, text, **more)

    def event(self, node: str, event: Event, level: Level | None = None) -> None:
        """An event of the election, as its own sentence."""
        grave = level if level is not None else GRAVE.get(event.code, Level.INFO)
        self.say(grave, sentence(node, event), code=event.code, node=node, term=event.term)


def level_of(word: str, verbose: int = 0) -> Level:
    """The level that the settings name; `-v` says more."""
    return Level.DEBUG if verbose else Level[word.upper()]
