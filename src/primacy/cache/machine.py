"""What a driver needs of a machine of the cache. Both modes have this face: `own.py` and `document.py`."""

from __future__ import annotations

from typing import Protocol

from primacy.cache.effects import Effect
from primacy.cache.inputs import Input


class Machine(Protocol):
    """All keys of one peer."""

    @property
    def deadline_ms(self) -> int | None:
        """On the machine's clock: when it next wants `TimerPassed`."""
        ...

    @property
    def fresh_until_ms(self) -> int:
        """On the machine's clock: until then a value that `Give` called fresh may be given as fresh again without a
        step, while its expiry is ahead and no later effect stored, dropped or floored its key (C12). 0: not at all. It
        changes in `step` only. N = 1, and mode `mixed`, which has no C12: far ahead."""
        ...

    def step(self, now_ms: int, wall_ms: int, given: Input) -> list[Effect]:
        """The one way in."""
        ...
