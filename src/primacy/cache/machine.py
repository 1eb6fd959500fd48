"""What a driver needs of a machine of the cache. Both modes have this face: `own.py` and `document.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from primacy.cache.effects import Effect
from primacy.cache.inputs import Input
from primacy.cache.model import Meta, Role

NOT_LISTED = "this peer is not in its own list of peers"


class KeyView(NamedTuple):
    """What a peer shows of one key."""

    key: bytes
    role: Role
    term: int
    meta: Meta
    fresh: bool
    source: str
    """Who fetches it, as far as this peer knows; empty: nobody."""
    waiting: int


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

    def retire(self) -> None:
        """This peer is about to end: it campaigns for no further call."""
        ...

    def view(self, now_ms: int, wall_ms: int, key: bytes) -> KeyView:
        """What this peer does about one key. Changes nothing."""
        ...

    def known_keys(self) -> Iterable[bytes]:
        """Every key of which this peer knows something, in no order."""
        ...

    def in_touch(self, now_ms: int) -> bool:
        """Is a majority known to be there? Mode `mixed`: not partitioned."""
        ...
