"""Which machines are recorded, how they are called, and what is asked of them now and then.

The one table that names classes of the code at hand: who renames one of them changes it here, and in `names.toml`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from primacy.cache.document import DocumentMachine
from primacy.cache.own import OwnMachine
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.ring import RingStrategy
from primacy.supervise.gate import Gate
from primacy.supervise.health import HealthWatch
from primacy.supervise.machine import Watchdog

SHOWN_EVERY = 25
"""Calls of one machine from one look at it to the next: what people are shown of it is recorded, too."""
KEYS_SHOWN = 3


class Face(NamedTuple):
    """How a kind of machine is used."""

    clocks: int
    """Leading arguments of a step that are times, in ms: now; of the cache, the wall clock behind it."""
    after: tuple[str, ...]
    """Attributes that its driver reads after each step."""
    shows: Callable[[Any, tuple[int, ...], Callable[[str], str]], Any]
    """Machine, times, and how a method is called now: what it shows."""


def _election(machine: Any, clocks: tuple[int, ...], called: Callable[[str], str]) -> Any:
    return getattr(machine, called("view"))(*clocks)


def _cache(machine: Any, clocks: tuple[int, ...], called: Callable[[str], str]) -> Any:
    keys = sorted(getattr(machine, called("known_keys"))())[:KEYS_SHOWN]
    look = getattr(machine, called("view"))
    return (getattr(machine, called("in_touch"))(clocks[0]), *(look(*clocks, key) for key in keys))


def _supervise(machine: Any, clocks: tuple[int, ...], called: Callable[[str], str]) -> Any:
    return tuple(getattr(machine, called(name), None) for name in ("state", "waits", "failing"))


ELECTION = Face(1, ("deadline_ms",), _election)
CACHE = Face(2, ("deadline_ms", "fresh_until_ms"), _cache)
SUPERVISE = Face(1, ("deadline_ms",), _supervise)
FACES = {"election": ELECTION, "cache": CACHE, "supervise": SUPERVISE}

MACHINES: dict[type, str] = {
    RaftStrategy: "election",
    LeaseStrategy: "election",
    BullyStrategy: "election",
    RingStrategy: "election",
    OwnMachine: "cache",
    DocumentMachine: "cache",
    Watchdog: "supervise",
    Gate: "supervise",
    HealthWatch: "supervise",
}
"""Class -> its face."""
