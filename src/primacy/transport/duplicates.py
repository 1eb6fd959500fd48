"""Two starts that speak as one node at the same time: two machines have one id, or somebody plays recordings.

The second one gets no further than its seal: it was never told our boot, for we only ever answer to the address in our
own list. So it cannot vote or lead, and nobody would know of it. Here it is noticed: a start that goes on speaking,
with counters that grow, and is not the one that is heard. A restart looks like that for a moment, and recordings as
long as they last; hence the least time. It is an alert for people, and decides nothing.

Over HTTP both get answers, and each looks like the one that is heard (`Spoken`).
"""

from __future__ import annotations

from typing import NamedTuple

LEAST_S = 2.0
"""A start that is told our boot needs milliseconds."""
LEAST_COUNT = 5
FORGOTTEN_S = 6.0
"""An alert stands until the second one was silent for so long."""
STARTS_MAX = 16


class SecondStart(NamedTuple):
    """A start that speaks beside the one that is heard."""

    since_s: float
    last_s: float
    datagrams: int
    counter: int
    """The highest one: recordings that are played twice do not grow."""
    source: str


class Duplicates:
    """The second starts of all nodes, our own included."""

    def __init__(self, forgotten_s: float = FORGOTTEN_S) -> None:
        self._forgotten_s = forgotten_s
        self._seconds: dict[tuple[str, int], SecondStart] = {}

    def note(self, now_s: float, node: str, boot: int, counter: int, source: str) -> None:
        """A datagram of this start had a good seal, and this is not the start that is heard."""
        known = self._seconds.get((node, boot))
        if known is not None and now_s - known.last_s > self._forgotten_s:
            known = None
        if known is None:
            if len(self._seconds) >= STARTS_MAX:
                del self._seconds[next(iter(self._seconds))]
            self._seconds[node, boot] = SecondStart(now_s, now_s, 1, counter, source)
        elif counter > known.counter:
            self._seconds[node, boot] = SecondStart(
                known.since_s, now_s, known.datagrams + 1, counter, source or known.source
            )

    def forget(self, node: str, boot: int) -> None:
        """It is the one that is heard, after all."""
        self._seconds.pop((node, boot), None)

    def found(self, now_s: float) -> dict[str, str]:
        """Nodes of which two starts speak, each with the address that the second one speaks from."""
        return {
            node: second.source
            for (node, _), second in sorted(self._seconds.items())
            if second.datagrams >= LEAST_COUNT
            and second.last_s - second.since_s >= LEAST_S
            and now_s - second.last_s <= self._forgotten_s
        }


class Spoken:
    """The starts of one node where nothing but their boots tells them apart, the one that spoke last at the end."""

    def __init__(self) -> None:
        self._heard_s: dict[int, float] = {}

    def again(self, now_s: float, boot: int) -> bool:
        """This start spoke. True if another one did since it was heard last, which no restart looks like."""
        if not boot:
            return False
        last = next(reversed(self._heard_s), boot)
        is_known = self._heard_s.pop(boot, None) is not None
        self._heard_s[boot] = now_s
        if len(self._heard_s) > STARTS_MAX:
            del self._heard_s[next(iter(self._heard_s))]
        return is_known and last != boot

    def beside(self, now_s: float, boot: int, within_s: float) -> bool:
        """Another start than this one spoke within so long."""
        return any(other != boot and now_s - at_s <= within_s for other, at_s in self._heard_s.items())
