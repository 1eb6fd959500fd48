"""The nodes of a cluster that grows by joining, as one node knows them: data, and how two such lists become one.

Each entry has a stamp; of two entries for one node the later stamp counts, and a removed node stays as an entry that is
gone, so that an old word does not bring it back. Stamps are Unix milliseconds of whoever took the node in, lifted above
the stamp that was there: they order changes of one entry, and nothing else follows from them. Two lists that were
exchanged both ways are equal, and so is their digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from primacy.membership.http_wire import NUMBER_MAX, address_of, is_id

NODES_MAX = 1_024
"""Entries that are kept, gone ones included; the oldest of those that are gone make room."""
WITHOUT_STAMP = 1
"""The stamp of what was heard of a node that does not know stamps: any other word counts more."""


class Entry(NamedTuple):
    """One node."""

    node: str
    addr: str
    """What others dial."""
    stamp: int = WITHOUT_STAMP
    gone: bool = False
    data: str = ""
    """Where its clients find it."""
    priority: int = 0
    started_ms: int = 0

    @property
    def row(self) -> list[Any]:
        return list(self)


def entry_in(row: Any) -> Entry | None:
    """An entry as it came from elsewhere, or None."""
    if not isinstance(row, list) or len(row) < len(Entry._fields):
        return None
    node, addr, stamp, gone, data, priority, started_ms = row[: len(Entry._fields)]
    numbers = (stamp, priority, started_ms)
    if not all(type(number) is int and 0 <= number <= NUMBER_MAX for number in numbers):
        return None
    texts_are_good = isinstance(node, str) and is_id(node) and isinstance(addr, str) and address_of(addr) is not None
    if not texts_are_good or type(gone) is not bool or not isinstance(data, str) or len(data) > 255:
        return None
    return Entry(node, addr, stamp, gone, data if data.isprintable() else "", priority, started_ms)


class MemberList:
    """One node's list. Decides nothing."""

    def __init__(self, own: Entry, others: Iterable[Entry] = ()) -> None:
        self.node = own.node
        self.entries: dict[str, Entry] = {}
        self.version = 1
        """Counts the changes on this node."""
        for entry in others:
            self.entries[entry.node] = entry
        known = self.entries.get(own.node)
        stamp = max(own.stamp, known.stamp + 1 if known is not None else 0)
        self.entries[own.node] = own._replace(stamp=stamp, gone=False)
        self._digest = ""

    def __contains__(self, node: str) -> bool:
        entry = self.entries.get(node)
        return entry is not None and not entry.gone

    @property
    def own(self) -> Entry:
        return self.entries[self.node]

    @property
    def listed(self) -> tuple[Entry, ...]:
        """In id order, with the node itself."""
        return tuple(self.entries[name] for name in sorted(self.entries) if not self.entries[name].gone)

    @property
    def others(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.listed if entry.node != self.node)

    @property
    def peers(self) -> dict[str, str]:
        """As a join answer has it."""
        return {entry.node: entry.addr for entry in self.listed}

    def addr(self, node: str) -> str:
        entry = self.entries.get(node)
        return entry.addr if entry is not None and not entry.gone else ""

    @property
    def members(self) -> tuple[tuple[str, int, int], ...]:
        """As the machines are told."""
        return tuple((entry.node, entry.priority, entry.started_ms) for entry in self.listed)

    @property
    def digest(self) -> str:
        """The same for two nodes that know the same."""
        if not self._digest:
            text = repr([tuple(self.entries[name]) for name in sorted(self.entries)])
            self._digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return self._digest

    def next_stamp(self, node: str, wall_ms: int) -> int:
        known = self.entries.get(node)
        return max(wall_ms, known.stamp + 1 if known is not None else 0)

    def take(self, entry: Entry) -> bool:
        """True if this is news. Of equal stamps the larger entry counts, so that all come to the same."""
        known = self.entries.get(entry.node)
        if known is not None and (entry.stamp, entry) <= (known.stamp, known):
            return False
        if known is None and len(self.entries) >= NODES_MAX and not self._make_room():
            return False
        if entry.node == self.node and not entry.gone and known is not None:
            # What it says of itself is its own to say: above what others have, if that is something else. With the
            # same stamp theirs would stay with them, and its own here, for ever.
            differs = entry._replace(stamp=known.stamp) != known
            entry = known._replace(stamp=min(NUMBER_MAX, entry.stamp + differs))
            if entry == known:
                return False
        self.entries[entry.node] = entry
        self._changed()
        return True

    def take_all(self, rows: Iterable[Any]) -> bool:
        found = [self.take(entry) for entry in map(entry_in, rows) if entry is not None]
        return any(found)

    def newer_than(self, rows: Iterable[Any]) -> list[Entry]:
        """What the other list does not know yet."""
        theirs = {entry.node: entry for entry in map(entry_in, rows) if entry is not None}
        return [
            entry
            for name, entry in sorted(self.entries.items())
            if name not in theirs or (entry.stamp, entry) > (theirs[name].stamp, theirs[name])
        ]

    @property
    def rows(self) -> list[list[Any]]:
        return [self.entries[name].row for name in sorted(self.entries)]

    def _make_room(self) -> bool:
        gone = [entry for entry in self.entries.values() if entry.gone and entry.node != self.node]
        if not gone:
            return False
        del self.entries[min(gone, key=lambda entry: entry.stamp).node]
        return True

    def _changed(self) -> None:
        self._digest = ""
        self.version += 1


def kept(member_list: MemberList) -> dict[str, Any]:
    """What a node keeps on its disk, to find the others after a restart."""
    return {"nodes": member_list.rows}


def entries_in(kept_before: Mapping[str, Any] | None) -> tuple[Entry, ...]:
    """What it kept, as far as it can be read."""
    rows = (kept_before or {}).get("nodes")
    return (
        tuple(entry for entry in map(entry_in, rows[:NODES_MAX]) if entry is not None) if isinstance(rows, list) else ()
    )
