"""Chance that is written down, and chance that is read back.

Both stand below the methods of `Random` that people call: `randint`, `choice` and all others ask for `random` or
`getrandbits`, which are what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Draw = float | list[int]
"""What `random` returned; or [bits, what `getrandbits` returned]."""


class OtherDraw(Exception):
    """The code at hand asks for chance otherwise than it was recorded."""


class NotedRandom(Random):
    """Another source of chance, whose draws are told to `note`."""

    def __init__(self, source: Random, note: Callable[[Draw], None]) -> None:
        super().__init__(0)
        self._source = source
        self._note = note

    def random(self) -> float:
        drawn = self._source.random()
        self._note(drawn)
        return drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = self._source.getrandbits(k)
        self._note([k, drawn])
        return drawn


class GivenRandom(Random):
    """Returns what was recorded, in order."""

    def __init__(self) -> None:
        super().__init__(0)
        self._left: list[Draw] = []

    def expect(self, draws: list[Draw]) -> None:
        self._left = list(reversed(draws))

    def check_used(self) -> None:
        if self._left:
            raise OtherDraw(f"{len(self._left)} recorded draws were not asked for, the first: {self._left[-1]}")

    def random(self) -> float:
        drawn = self._next("a number between 0 and 1")
        if type(drawn) is not float:
            raise OtherDraw(f"a number between 0 and 1 is drawn, recorded are {drawn[0]} bits")
        return drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = self._next(f"{k} bits")
        if type(drawn) is not list or drawn[0] != k:
            raise OtherDraw(f"{k} bits are drawn, recorded is {drawn}")
        return int(drawn[1])

    def _next(self, what: str) -> Any:
        if not self._left:
            raise OtherDraw(f"a draw that was not recorded: {what}")
        return self._left.pop()
