"""The kinds of slots: small machines that are told the time and answer with bytes.

No clock, no socket, no chance of their own. Times are milliseconds of one steady clock that was set to Unix time once,
at the start: windows are aligned to whole seconds, minutes and hours as in Ghoti's program, and a step of the wall
clock changes nothing. A read never fails. A write answers with what is said to the writer, or None if it is refused.

Where we depart from that program: a bucket that was left alone for several windows is refilled for each of them; a
counter never gives one number twice; a clock that steps back neither fills nor empties anything.
"""

from __future__ import annotations

import re
from random import Random
from typing import Protocol

from primacy.settings.schema_work import Slot as SlotSettings

INT64_MAX = 2**63 - 1
NUMBER = re.compile(rb"[+-]?[0-9]+")
PERIOD_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000}
LEAK_MS = 1_000
DEREG_TRIES = 3
"""Messages in a row that a registered client did not take, until it is no longer registered."""
DEREG_AFTER_S = 1
"""And so long at least it must have stood still: a burst alone proves nothing."""


class Kind(Protocol):
    """What every slot can do."""

    writable: bool
    """False: every write is refused for want of permission, whoever asks."""

    def read(self, now_ms: int) -> bytes: ...

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:
        """`owner`: the connection that writes. None: the value or the writer is refused."""
        ...


class SimpleMemory:
    """Keeps the last value."""

    writable = True

    def __init__(self) -> None:
        self.value = b""

    def read(self, now_ms: int) -> bytes:  # noqa: ARG002
        return self.value

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        self.value = value
        return value


class TimeoutMemory:
    """Belongs to whoever wrote last, until the timeout has passed since. The value stays for ever."""

    writable = True

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.value = b""
        self.owner: object = None
        self.until_ms = -1

    def read(self, now_ms: int) -> bytes:  # noqa: ARG002
        return self.value

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:
        if owner != self.owner and now_ms <= self.until_ms:
            return None
        self.owner, self.until_ms, self.value = owner, now_ms + self.timeout_ms, value
        return value


class TokenBucket:
    """Each period adds tokens, up to its size; a read takes some and says how many it got."""

    writable = False

    def __init__(self, size: int, period_ms: int, added: int, per_read: int, now_ms: int) -> None:
        self.size, self.period_ms, self.added, self.per_read = size, period_ms, added, per_read
        self.tokens = added
        self.window = now_ms // period_ms

    def read(self, now_ms: int) -> bytes:
        window = now_ms // self.period_ms
        if window > self.window:
            self.tokens = min(self.size, self.tokens + self.added * (window - self.window))
            self.window = window
        taken = min(self.tokens, self.per_read)
        self.tokens -= taken
        return b"%d" % taken

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        return None


class LeakyBucket:
    """Loses one drop per window; a read adds one and says 1, or 0 if it is full."""

    writable = False

    def __init__(self, size: int, leak_ms: int, now_ms: int) -> None:
        self.size, self.leak_ms = size, leak_ms
        self.level = 0
        self.window = now_ms // leak_ms

    def read(self, now_ms: int) -> bytes:
        window = now_ms // self.leak_ms
        if window > self.window:
            self.level = max(0, self.level - (window - self.window))
            self.window = window
        if self.level >= self.size:
            return b"0"
        self.level += 1
        return b"1"

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        return None


class Ticker:
    """A number that falls by one per window, down to 0. The first step comes with the next window."""

    writable = True

    def __init__(self, value: int, step_ms: int, now_ms: int) -> None:
        self.value, self.step_ms = value, step_ms
        self.window = now_ms // step_ms

    def read(self, now_ms: int) -> bytes:
        window = now_ms // self.step_ms
        if window > self.window:
            self.value = max(0, self.value - (window - self.window))
            self.window = window
        return b"%d" % self.value

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        number = number_in(value)
        if number is None:
            return None
        self.value, self.window = number, max(self.window, now_ms // self.step_ms)
        return b"%d" % number


class Atomic:
    """A counter: each read gives the next number, and no number twice before it wraps to 0."""

    writable = True

    def __init__(self) -> None:
        self.value = 0

    def read(self, now_ms: int) -> bytes:  # noqa: ARG002
        self.value = self.value + 1 if self.value < INT64_MAX else 0
        return b"%d" % self.value

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        number = number_in(value)
        if number is None:
            return None
        self.value = number
        return b"%d" % number


class Receiver(Protocol):
    """Somebody who is told what is written to a signal slot."""

    @property
    def user(self) -> str:
        """Who it has shown to be; empty for nobody."""
        ...

    def offer(self, event: bytes) -> bool:
        """False if it was not taken at once: it comes later, or never. Never raises."""
        ...

    def deregistered(self) -> None:
        """It did not take what it had asked for, and is told nothing more."""
        ...


class Registered:
    """How a registered receiver stands: how often in a row, and since when, it did not take what was sent."""

    __slots__ = ("missed", "since_ms")

    def __init__(self) -> None:
        self.missed = 0
        self.since_ms = 0


class Signal:
    """Passes each value on: to everybody, to all who registered, or to one of them. A read gives the last value.

    `everybody`: of a line protocol, all connections are receivers of a broadcast; a stream over HTTP registers.
    """

    writable = True

    def __init__(self, kind: str, random: Random, tries: int = DEREG_TRIES, after_ms: int = DEREG_AFTER_S * 1_000):
        assert kind in SIGNALS
        self.kind = kind
        self.random = random
        self.tries, self.after_ms = tries, after_ms
        self.value = b""
        self.registered: dict[Receiver, Registered] = {}

    def read(self, now_ms: int) -> bytes:  # noqa: ARG002
        return self.value

    def write(self, now_ms: int, owner: object, value: bytes) -> bytes | None:  # noqa: ARG002
        """Alone it only keeps the value; `board.py` sends it."""
        self.value = value
        return value

    def register(self, receiver: Receiver) -> None:
        self.registered.setdefault(receiver, Registered())

    def deregister(self, receiver: Receiver) -> None:
        self.registered.pop(receiver, None)

    def chosen(self, allowed: list[Receiver]) -> list[Receiver]:
        """To whom this message goes, of those who may read it."""
        return [self.random.choice(allowed)] if self.kind == "random" and allowed else allowed

    def delivered(self, now_ms: int, receiver: Receiver, taken: bool) -> None:
        """Who does not take what it asked for is forgotten: it stood still long enough, often enough.

        Not of a broadcast: a stream of it has its own bounds.
        """
        stands = self.registered.get(receiver)
        if stands is None or self.kind == "broadcast":
            return
        if taken:
            stands.missed = 0
            return
        if not stands.missed:
            stands.since_ms = now_ms
        stands.missed += 1
        if stands.missed >= self.tries and now_ms - stands.since_ms >= self.after_ms:
            del self.registered[receiver]
            receiver.deregistered()


SIGNALS = ("broadcast", "multicast", "random")
"""Kinds that send."""
REGISTERING = ("multicast", "random")
"""Kinds that send to those who asked for it."""


def number_in(value: bytes) -> int | None:
    """A signed decimal of 64 bits that is not negative, without spaces; None for anything else."""
    if not NUMBER.fullmatch(value):
        return None
    number = int(value)
    return number if 0 <= number <= INT64_MAX else None


def made(settings: SlotSettings, now_ms: int, random: Random) -> Kind:
    """A fresh slot. The settings have been checked: what a kind needs is there."""
    kind, rate = settings.kind, settings.refresh_rate
    if kind == "simple_memory":
        return SimpleMemory()
    if kind == "timeout_memory":
        assert settings.timeout is not None
        return TimeoutMemory(settings.timeout * 1_000)
    if kind == "token_bucket":
        assert settings.bucket_size is not None
        return TokenBucket(
            settings.bucket_size, PERIOD_MS[settings.period], rate or 1, settings.tokens_per_req or 1, now_ms
        )
    if kind == "leaky_bucket":
        assert settings.bucket_size is not None
        return LeakyBucket(settings.bucket_size, rate or LEAK_MS, now_ms)
    if kind == "ticker":
        assert settings.initial_value is not None
        assert rate is not None
        return Ticker(settings.initial_value, rate, now_ms)
    if kind == "atomic":
        return Atomic()
    after_ms = (settings.timeout or DEREG_AFTER_S) * 1_000
    return Signal(kind, random, settings.dereg_tries or DEREG_TRIES, after_ms)
