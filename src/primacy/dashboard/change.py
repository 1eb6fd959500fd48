"""The last change: of who leads, with its cause, its gap and its steps; or what a person did since. Pure.

The cause and the gap are those of `primacy why`: one record for all screens. Here the steps are added, and what `why`
cannot say yet: that the role was lost since, and nobody has it; and what a person did to the nodes, and who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primacy.control.changes import CAUSES, ELECTED, TOLD, changes
from primacy.dashboard.rows import Chain, Row

PERSON = (TOLD, "lab", "approved")
"""What a person did, by the API or in a lab."""
STEPS = (
    *(str(code) for code in (*ELECTED, *CAUSES)),
    *("leader-silent", "leader-left", "release-applied", "released", "campaigns", "start-delay"),
    *("exited", "gone", "running", "not-started"),
    *PERSON,
)
OWN = ("leader-silent", "leader-left", "release-applied")
"""Everybody notices the end of a leader; the winner's own word is enough."""
KEPT = (*(str(code) for code in ELECTED), "running", *PERSON)
"""Never left out, however many steps there are."""
STEPS_MAX = 12
LOOK_BACK_MAX = 400
"""Events to look at: a change is near the end of the list, and this runs several times a second."""
SETTLE_MS = 10_000
"""What a winner does later than this is no part of the change."""
BEFORE_MS = 5_000
"""What a person did within this time before the first step is shown with it."""


def last_change(rows: Sequence[Row], chain: Chain | None = None) -> dict[str, Any] | None:
    """None if nobody was ever seen to lead and no person did anything."""
    recent = sorted(list(rows)[-LOOK_BACK_MAX:], key=lambda row: row.at_unix_ms)
    told = changes([{**row._asdict(), "number": at} for at, row in enumerate(recent)])
    acts = [row for row in recent if row.code in PERSON]
    found = _of_leader(recent, told, chain) if told else None
    ends_ms = found["ends_unix_ms"] if found is not None else 0
    if acts and acts[-1].at_unix_ms > ends_ms:
        return _of_person(acts[-1], recent)
    return found


def _of_leader(recent: Sequence[Row], told: Sequence[Any], chain: Chain | None) -> dict[str, Any]:
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
    gap_ms = newest.gap_ms if newest.gap_ms is not None else _chain_gap(chain, win)
    return _told(win, newest.reason, gap_ms, begins_ms, recent, {win.term, _term_before(recent, win)})


def _of_person(act: Row, recent: Sequence[Row]) -> dict[str, Any]:
    found = _told(act, "", None, act.at_unix_ms, recent, {act.term})
    return {**found, "person": True}


def _chain_gap(chain: Chain | None, win: Row) -> int | None:
    """A node that was killed cannot say when its command ended; the chain saw how long nobody signed."""
    if chain is None:
        return None
    by_winner = [each for each in chain.newest if each.node == win.node and each.at_unix_ms >= win.at_unix_ms]
    first = min(by_winner, key=lambda each: each.number, default=None)
    if first is None or not any(each.number == first.number - 1 and each.token != first.token for each in chain.newest):
        return None
    return first.gap_ms


def _term_before(rows: Sequence[Row], win: Row) -> int:
    return max((row.term for row in rows if row.term < win.term), default=0)


def _told(
    head: Row, because: str, gap_ms: int | None, begins_ms: int, recent: Sequence[Row], terms: set[int]
) -> dict[str, Any]:
    ends_ms = head.at_unix_ms + SETTLE_MS
    asked = [row for row in recent if row.code in PERSON and begins_ms - BEFORE_MS <= row.at_unix_ms <= head.at_unix_ms]
    begins_ms = min([begins_ms, *(row.at_unix_ms for row in asked[-1:])])
    near = [
        row for row in recent if begins_ms <= row.at_unix_ms <= ends_ms and (row.term in terms or row.code in PERSON)
    ]
    steps = [row for row in near if row.code in STEPS and (row.code not in OWN or row.node == head.node)]
    last = [row for row in steps if row.at_unix_ms >= head.at_unix_ms and row.node == head.node]
    return {
        "text": head.text,
        "node": head.node,
        "term": head.term,
        "at_unix_ms": head.at_unix_ms,
        "ends_unix_ms": max((row.at_unix_ms for row in last), default=head.at_unix_ms),
        "because": because,
        "asked": asked[-1].text if asked and asked[-1] is not head else "",
        "person": False,
        "gap_ms": gap_ms,
        "steps": [
            {"after_ms": row.at_unix_ms - begins_ms, "node": row.node, "text": text, "code": row.code}
            for row, text in _fitting(_folded(steps))
        ],
    }


def _folded(steps: Sequence[Row]) -> list[tuple[Row, str]]:
    """Rounds of the same node and kind, one after the other, are one step: bully campaigns again and again."""
    found: list[tuple[Row, str, int]] = []
    for row in steps:
        if found and found[-1][0].code == row.code == "campaigns" and found[-1][0].node == row.node:
            first, _, many = found[-1]
            found[-1] = (first, row.text, many + 1)
        else:
            found.append((row, row.text, 1))
    return [(row, text if many == 1 else f"{text}, {many} times") for row, text, many in found]


def _fitting(steps: Sequence[tuple[Row, str]]) -> list[tuple[Row, str]]:
    """As many as fit; what a person did, the win and the start stay."""
    over = len(steps) - STEPS_MAX
    found = []
    for row, text in reversed(steps):
        if over > 0 and row.code not in KEPT:
            over -= 1
            continue
        found.append((row, text))
    return list(reversed(found))
