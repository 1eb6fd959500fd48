"""The last change of who leads, with its cause and its steps. Pure.

The cause and the gap are those of `primacy why`: one record for all screens. Here the steps are added, and what `why`
cannot say yet: that the role was lost since, and nobody has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primacy.control.changes import CAUSES, ELECTED, changes
from primacy.dashboard.rows import Row

STEPS = (
    *(str(code) for code in (*ELECTED, *CAUSES)),
    *("leader-silent", "leader-left", "release-applied", "released", "campaigns", "start-delay"),
    *("exited", "gone", "running", "not-started"),
)
OWN = ("leader-silent", "leader-left", "release-applied")
"""Everybody notices the end of a leader; the winner's own word is enough."""
STEPS_MAX = 12
LOOK_BACK_MAX = 400
"""Events to look at: a change is near the end of the list, and this runs several times a second."""
SETTLE_MS = 10_000
"""What a winner does later than this is no part of the change."""


def last_change(rows: Sequence[Row]) -> dict[str, Any] | None:
    """None if nobody was ever seen to lead."""
    recent = sorted(list(rows)[-LOOK_BACK_MAX:], key=lambda row: row.at_unix_ms)
    told = changes([{**row._asdict(), "number": at} for at, row in enumerate(recent)])
    if not told:
        return None
    newest = told[-1]
    win = next(row for row in reversed(recent) if row.code in ELECTED and row.node == newest.leader)
    lost = [
        row
        for row in recent
        if row.code in CAUSES
        and row.node == win.node
        and row.at_unix_ms > win.at_unix_ms
        and row.text.startswith(f"{row.node} ")
    ]
    if lost:
        return _told(lost[0], "", None, lost[0].at_unix_ms, recent, {win.term, lost[0].term})
    spans = [newest.noticed_ms or 0, newest.elected_ms or 0]
    begins_ms = newest.at_unix_ms - sum(spans)
    return _told(win, newest.reason, newest.gap_ms, begins_ms, recent, {win.term, _term_before(recent, win)})


def _term_before(rows: Sequence[Row], win: Row) -> int:
    return max((row.term for row in rows if row.term < win.term), default=0)


def _told(
    head: Row, because: str, gap_ms: int | None, begins_ms: int, recent: Sequence[Row], terms: set[int]
) -> dict[str, Any]:
    ends_ms = head.at_unix_ms + SETTLE_MS
    near = [row for row in recent if row.term in terms and begins_ms <= row.at_unix_ms <= ends_ms]
    steps = [row for row in near if row.code in STEPS and (row.code not in OWN or row.node == head.node)]
    return {
        "text": head.text,
        "node": head.node,
        "term": head.term,
        "at_unix_ms": head.at_unix_ms,
        "because": because,
        "gap_ms": gap_ms,
        "steps": [
            {"after_ms": row.at_unix_ms - begins_ms, "node": row.node, "text": row.text, "code": row.code}
            for row in steps[:STEPS_MAX]
        ],
    }
