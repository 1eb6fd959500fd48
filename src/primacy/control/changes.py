"""From events to changes of leadership: who leads since when, why, and how long each phase took; and of the members.
Pure.

The events may be of several nodes, whose clocks differ by whatever they differ: spans across nodes are for people, and
one that would be negative is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from primacy.election.events import Code

ELECTED = (Code.ELECTED,)
CAUSES = (
    Code.TRANSFER,
    Code.STEP_DOWN,
    Code.PAUSED,
    Code.UNHEALTHY,
    Code.STOPPING,
    Code.MAJORITY_LOST,
    Code.GUARD_LOST,
    Code.CANNOT_START,
    Code.TERM_AHEAD,
    Code.HIGHER_TERM,
    Code.TOKEN_LOW,
    Code.WORK_ENDED,
    Code.RENEWAL_LATE,
    Code.LEASE_LOST,
    Code.OUTRANKED,
    Code.REMOVED,
    Code.STALE_INCARNATION,
    Code.TWO_BOOTS,
)
"""Why the one before gave up, as it says itself."""
NOTICED = (Code.LEADER_SILENT, Code.EARLIER_GONE, Code.LEADER_LEFT, Code.RELEASE_APPLIED)
"""How another node knows."""
RUNNING, GONE = "running", "gone"
TOLD = "told"
"""An operator's word."""
OF_MEMBERS = "to change the members"
TOKENS_FROM = 10**9
"""Terms are small; a lease has its token in that place, and its nodes say nothing to each other."""


class Change(NamedTuple):
    """One new leader. Spans in milliseconds; None where the events do not tell."""

    term: int
    leader: str
    at_unix_ms: int
    reason: str
    noticed_ms: int | None
    """From the cause to the moment at which somebody else knew of it."""
    elected_ms: int | None
    """From there to the new leader."""
    started_ms: int | None
    """From there to the running command."""
    gap_ms: int | None
    """From the confirmed end of the command to its next start."""


def changes(events: Sequence[dict[str, Any]]) -> list[Change]:
    """Oldest first. `events` are rows of `/v1/events`, in any order."""
    rows = sorted(events, key=lambda row: (row["at_unix_ms"], row["number"]))
    found: list[Change] = []
    begins = 0
    for place, row in enumerate(rows):
        if row["code"] in ELECTED and _own(row):
            after = next((n for n in range(place + 1, len(rows)) if rows[n]["code"] in ELECTED), len(rows))
            last_term = found[-1].term if found else 0
            begins = max([begins, *_led_elsewhere(rows[:place], last_term, row["term"])])
            found.append(_change(rows[begins:place], row, rows[place + 1 : after]))
            begins = place
    return found


class MembersChange(NamedTuple):
    """One change of the members that came to its end."""

    at_unix_ms: int
    done: bool
    """As was asked for; else it was taken back."""
    text: str
    """In the words of the leader."""
    asked: str
    """Who asked for what, in the words of the node that was asked; empty if that is not known."""
    took_ms: int | None
    """From there to the end."""


def members_changes(events: Sequence[dict[str, Any]]) -> list[MembersChange]:
    """Oldest first. Of a change that goes on under another leader the end counts, and the request."""
    rows = sorted(events, key=lambda row: (row["at_unix_ms"], row["number"]))
    found: list[MembersChange] = []
    asked: dict[str, Any] | None = None
    for row in rows:
        if row["code"] == TOLD and OF_MEMBERS in str(row["text"]):
            asked = row
        elif row["code"] in (Code.MEMBERS_DONE, Code.MEMBERS_TAKEN_BACK) and _own(row):
            done = row["code"] == Code.MEMBERS_DONE
            said = str(asked["text"]) if asked is not None else ""
            found.append(MembersChange(row["at_unix_ms"], done, str(row["text"]), said, _span(asked, row)))
            asked = None if done else asked
    return found


def _led_elsewhere(rows: list[dict[str, Any]], above: int, below: int) -> list[int]:
    """Where a leader is followed of whom no more is known: nodes on a lease do not tell each other what happens."""
    return [n for n, row in enumerate(rows) if row["code"] == Code.FOLLOWS and above < row["term"] < below]


def _change(before: list[dict[str, Any]], elected: dict[str, Any], after: list[dict[str, Any]]) -> Change:
    at_ms, leader, term = elected["at_unix_ms"], elected["node"], elected["term"]
    last = before[0] if before and before[0]["code"] in (*ELECTED, Code.FOLLOWS) else None
    led = last["term"] if last is not None else 0  # who led before that, and says it late, is no cause
    cause = _last([row for row in before if _own(row) and row["term"] >= led], CAUSES)
    told = [row for row in before if cause is None or row["at_unix_ms"] >= cause["at_unix_ms"]]
    noticed = _first([row for row in told if row["node"] == leader], NOTICED) or _first(told, NOTICED)
    runs = _first([row for row in after if row["node"] == leader], (RUNNING,))
    by = last["node"] if last is not None and last["code"] in ELECTED else None
    gone = _last([row for row in before if by in (None, row["node"])], (GONE,))
    return Change(
        term=term,
        leader=leader,
        at_unix_ms=at_ms,
        reason=_reason(cause or noticed, begins=not before or not _any_leader(before)),
        noticed_ms=_span(cause, noticed),
        elected_ms=_span(noticed or cause, elected),
        started_ms=_span(elected, runs),
        gap_ms=_span(gone, runs),
    )


def _reason(cause: dict[str, Any] | None, *, begins: bool) -> str:
    if cause is not None:
        silent = "; the one before gave no reason: its agent was killed, or its last message was lost"
        told = cause["term"] < TOKENS_FROM and cause["code"] == Code.RELEASE_APPLIED
        return str(cause["text"]) + (silent if told else "")
    return "nobody led before" if begins else "not known here"


def _own(row: dict[str, Any]) -> bool:
    """Of the election: its sentence begins with the node. What is told of the command may have the same code."""
    return str(row["text"]).startswith(f"{row['node']} ")


def _any_leader(rows: list[dict[str, Any]]) -> bool:
    return any(row["code"] in ELECTED or row["code"] == Code.FOLLOWS for row in rows)


def _first(rows: list[dict[str, Any]], codes: Sequence[str]) -> dict[str, Any] | None:
    return next((row for row in rows if row["code"] in codes), None)


def _last(rows: list[dict[str, Any]], codes: Sequence[str]) -> dict[str, Any] | None:
    return next((row for row in reversed(rows) if row["code"] in codes), None)


def _span(start: dict[str, Any] | None, end: dict[str, Any] | None) -> int | None:
    if start is None or end is None:
        return None
    span_ms = int(end["at_unix_ms"] - start["at_unix_ms"])
    return span_ms if span_ms >= 0 else None
