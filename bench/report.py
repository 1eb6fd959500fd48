"""A comparison's result as rows: what, ours, theirs, the ratio, its goal, and whether it is kept."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One figure beside its goal; lower is better."""

    part: str
    what: str
    ours: str
    beside: str
    """What it is compared with, in words."""
    value: float
    goal: float
    promise: bool = True
    """A promise that fails makes the run fail; without it the figure is news for people."""

    @property
    def kept(self) -> bool:
        return self.value <= self.goal


def measurable(names: Sequence[str], missing: Callable[[str], str], *, named: bool) -> tuple[str, ...] | None:
    """Those for which nothing is missing here. The others are said, and skipped: None if they were named."""
    why = {name: missing(name) for name in names}
    for reason in dict.fromkeys(filter(None, why.values())):
        which = ", ".join(name for name in names if why[name] == reason)
        print(f"bench: {'cannot measure' if named else 'skipped'}: {which}: {reason}", file=sys.stderr, flush=True)
    return None if named and any(why.values()) else tuple(name for name in names if not why[name])


def spread(values: Sequence[float], unit: str = "ms") -> str:
    """Median, and the least and the most."""
    return f"{median(values):.1f} ({min(values):.1f}..{max(values):.1f}) {unit}"


def table(rows: list[Row]) -> str:
    """For people."""
    head = ("", "ours", "beside", "value", "goal", "kept")
    lines = [
        (
            f"{row.part}: {row.what}",
            row.ours,
            row.beside,
            f"{row.value:.3g}",
            f"{row.goal:.3g}",
            ("yes" if row.kept else "NO") if row.promise else ("(yes)" if row.kept else "(no)"),
        )
        for row in rows
    ]
    widths = [max(len(cells[i]) for cells in (head, *lines)) for i in range(len(head))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in (head, *lines)
    )


def document(rows: list[Row], raw: dict[str, Any], **more: Any) -> str:
    """For machines."""
    shown = [{**row._asdict(), "kept": row.kept} for row in rows]
    return json.dumps({**more, "rows": shown, "missed": missed(rows), "raw": raw}, indent=2)


def missed(rows: list[Row]) -> list[str]:
    """The promises that were not kept, each as a sentence."""
    return [
        f"{row.part}: {row.what}: {row.value:.3g}, and at most {row.goal:.3g} was promised"
        for row in rows
        if row.promise and not row.kept
    ]


def told(rows: list[Row], raw: dict[str, Any], rounds: int, as_json: bool) -> int:
    """Prints it all; the exit code: 1 if a promise was not kept."""
    print(document(rows, raw, rounds=rounds, load=os.getloadavg()[0]) if as_json else table(rows))
    lost = missed(rows)
    for sentence in lost:
        print(f"MISSED: {sentence}", file=sys.stderr)
    return 1 if lost else 0
