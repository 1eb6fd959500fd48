"""The links between nodes as they stand: open, cut, one way, or without an end that lives. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from primacy.dashboard.rows import Said


def blocked(rows: Iterable[Said], told: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """(from, to) of every way that is cut, by what the nodes say of themselves and by what the lab did."""
    found = set(told)
    for row in rows:
        for other, how in row.cuts:
            if how in ("out", "both"):
                found.add((row.node, other))
            if how in ("in", "both"):
                found.add((other, row.node))
    return found


def links(names: Sequence[str], there: Mapping[str, bool], cut: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """One per pair. `state`: open | cut | one-way (then `from` and `to` say which way is open) | down."""
    found = []
    for index, a in enumerate(names):
        for b in names[index + 1 :]:
            ab, ba = (a, b) not in cut, (b, a) not in cut
            link: dict[str, Any] = {"a": a, "b": b}
            if not ab and not ba:
                link["state"] = "cut"
            elif ab != ba:
                link.update({"state": "one-way", "from": a if ab else b, "to": b if ab else a})
            else:
                link["state"] = "open" if there.get(a) and there.get(b) else "down"
            found.append(link)
    return found
