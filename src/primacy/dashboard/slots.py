"""The slots of the node that leads: their values, how often they change, and what their clients do. Pure.

Only a slot that a read leaves as it is, and that everybody may read, is read. A read takes from a bucket and counts an
atomic on; those, and slots of users, show why there is no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primacy.dashboard.known import Model

SAMPLES_MAX = 60
"""One a second: a minute."""
SLOTS_MAX = 200
VALUE_CHARS_MAX = 160
PLAIN = ("simple_memory", "timeout_memory", "ticker", "broadcast", "multicast", "random")
"""Kinds that a read leaves as they are."""
RATES = {"slots_requests": "requests", "slots_events": "events", "slots_connections": "connections"}
"""Counters of a node, and what they count."""
OPEN = "slots_open"
NOT_YET = "not known yet"
"""No trouble: nobody has looked."""


class Declared(NamedTuple):
    """A slot, as the file has it."""

    number: str
    kind: str
    restricted: bool = False
    """It names users."""

    @property
    def why_not(self) -> str:
        """Why it is not read; empty if it is."""
        if self.kind not in PLAIN:
            return "not read: a read would change it"
        return "not read: it is for its users" if self.restricted else ""


class SlotSeen(NamedTuple):
    """One slot, over the looks so far."""

    value: str = ""
    known: bool = False
    changed_unix_ms: int = 0
    """When another value was first seen; 0: not yet."""
    changes: int = 0
    samples: tuple[float | None, ...] = ()
    """Of values that are numbers; None where one was not."""


class Rate(NamedTuple):
    """A counter, over the looks so far."""

    total: int = 0
    at_ms: int = 0
    samples: tuple[float, ...] = ()
    """A second's worth, each."""


class SlotsSeen(NamedTuple):
    """All slots, as they were last read."""

    slots: Mapping[str, SlotSeen] = {}
    rates: Mapping[str, Rate] = {}
    node: str = ""
    """Whose counters these are."""
    open_now: int = 0
    error: str = ""
    counters_error: str = NOT_YET
    looked_unix_ms: int = 0


def read(seen: SlotSeen, value: bytes, wall_ms: int) -> SlotSeen:
    """After a read that was answered."""
    text = value.decode("utf-8", "backslashreplace")[:VALUE_CHARS_MAX]
    samples = (*seen.samples, _number(text))[-SAMPLES_MAX:]
    if not seen.known or text == seen.value:
        return seen._replace(value=text, known=True, samples=samples)
    return SlotSeen(text, True, wall_ms, seen.changes + 1, samples)


def counted(seen: SlotsSeen, node: str, counters: Mapping[str, int], now_ms: int) -> SlotsSeen:
    """After a look at the counters of the node that leads. Another node, or another start, begins anew."""
    rates = {}
    for name in RATES:
        count, before = counters.get(name, 0), seen.rates.get(name, Rate()) if node == seen.node else Rate()
        samples = before.samples
        if before.at_ms and count >= before.total and now_ms > before.at_ms:
            samples = (*samples, 1_000 * (count - before.total) / (now_ms - before.at_ms))[-SAMPLES_MAX:]
        elif count < before.total:
            samples = ()
        rates[name] = Rate(count, now_ms, samples)
    return seen._replace(rates=rates, node=node, open_now=counters.get(OPEN, 0), counters_error="")


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) < 2**53 else None


def slots_view(declared: Sequence[Declared], seen: SlotsSeen) -> Model:
    """The page."""
    rows = []
    for slot in declared[:SLOTS_MAX]:
        one = seen.slots.get(slot.number, SlotSeen())
        known = one.known and not seen.error and not slot.why_not
        rows.append(
            {
                "slot": slot.number,
                "kind": slot.kind,
                "known": known,
                "value": one.value if one.known else "",
                "why": slot.why_not or (f"not known: {seen.error}" if seen.error else "" if known else NOT_YET),
                "changed_unix_ms": one.changed_unix_ms,
                "changes": one.changes,
                "samples": list(one.samples),
            }
        )
    return {
        "slots": rows,
        "more": max(0, len(declared) - SLOTS_MAX),
        "error": seen.error,
        "node": seen.node,
        "open_now": seen.open_now if not seen.counters_error else None,
        "counters_error": "" if seen.counters_error == NOT_YET else seen.counters_error,
        "looked_unix_ms": seen.looked_unix_ms,
        "rates": [
            {
                "name": word,
                "count": seen.rates.get(name, Rate()).total,
                "now": None if seen.counters_error or not (got := seen.rates.get(name, Rate()).samples) else got[-1],
                "samples": list(seen.rates.get(name, Rate()).samples),
            }
            for name, word in RATES.items()
        ],
    }
