"""The last change of who leads, told with its cause and how long each step took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primacy.dashboard.rows import Row

WON = ("elected", "lease-taken")
LOST = (
    "transfer",
    "step-down",
    "unhealthy",
    "guard-lost",
    "majority-lost",
    "lease-lost",
    "renewal-late",
    "work-ended",
    "cannot-start",
    "outranked",
    "higher-term",
    "term-ahead",
    "overslept",
    "removed",
    "stopping",
    "paused",
    "leader-left",
    "leader-silent",
)
"""Causes, the most telling first: that the others heard nothing any more is what remains when nobody says more."""
STEPS = (*WON, *LOST, "stands", "released", "running", "start-delay", "gone", "exited", "not-started")
STEPS_MAX = 10
LOOK_BACK_MAX = 600
"""Events to look at: a change is near the end of the list, and this runs several times a second."""
SETTLE_MS = 10_000
"""What a winner does later than this is no part of the change."""


def last_change(rows: Sequence[Row]) -> dict[str, Any] | None:
    """None if nobody was ever seen to lead."""
    recent = sorted(list(rows)[-LOOK_BACK_MAX:], key=lambda row: row.at_unix_ms)
    wins = [index for index, row in enumerate(recent) if row.code in WON]
    if not wins:
        return None
    newest = wins[-1]
    after = _cause(recent[newest + 1 :], recent[newest].node)
    if after is not None:  # it was lost since, and nobody has won
        return _told(after, None, recent)
    before = [index for index in wins if recent[index].term < recent[newest].term]
    cause = _cause(recent[before[-1] + 1 : newest], "") if before else None
    return _told(cause, recent[newest], recent)


def _cause(rows: Sequence[Row], leader: str) -> Row | None:
    """The most telling of them, and of equals the first. With a leader: only what that one says of itself."""
    causes = [row for row in rows if row.code in LOST and (not leader or row.node == leader)]
    if leader:
        causes = [row for row in causes if row.code not in ("leader-left", "leader-silent")]
    return min(causes, key=lambda row: (LOST.index(row.code), row.at_unix_ms), default=None)


def _told(cause: Row | None, win: Row | None, recent: Sequence[Row]) -> dict[str, Any]:
    head = win or cause
    assert head is not None
    begins_ms = min(row.at_unix_ms for row in (cause, win) if row is not None)
    ends_ms = head.at_unix_ms + SETTLE_MS
    terms = {row.term for row in (cause, win) if row is not None}
    steps = [
        row
        for row in recent
        if row.code in STEPS and begins_ms <= row.at_unix_ms <= ends_ms and (row.term in terms or row is head)
    ]
    ran = next((row for row in steps if win is not None and row.code == "running" and row.node == win.node), None)
    return {
        "text": head.text,
        "node": head.node,
        "term": head.term,
        "at_unix_ms": head.at_unix_ms,
        "because": cause.text if cause is not None and cause is not head else "",
        "took_ms": ran.at_unix_ms - cause.at_unix_ms if ran is not None and cause is not None else None,
        "steps": [
            {"after_ms": row.at_unix_ms - begins_ms, "node": row.node, "text": row.text, "code": row.code}
            for row in steps[:STEPS_MAX]
        ],
    }
