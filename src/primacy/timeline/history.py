"""A range of what a node kept of the last day, and the timeline of it. Pure.

`primacy why --export` and "Save incident" both end here: the same range of the same node is the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from primacy.timeline.clocks import TOKENS_FROM, Span
from primacy.timeline.fold import EVENTS_MAX, Facts, timeline_of
from primacy.timeline.schema import Timeline, Told

HOLDS_MAX = 2_000
COUNTS_MAX = 1_000
FIELDS = 7
NAME_CHARS_MAX = 80
TEXT_CHARS_MAX = 500
TIME_MAX_MS = 10**15
DATE_MAX_MS = 253_370_764_800_000
"""The year 9999 begins: nothing that happened is later, and it could not be shown as a date."""
HOUR_MS = 3_600_000


class Past(NamedTuple):
    """A range, as a node answers it (`/v1/history`)."""

    node: str = ""
    from_ms: int = 0
    to_ms: int = 0
    told: tuple[Told, ...] = ()
    """The events of the range."""
    before: tuple[Told, ...] = ()
    """Of each node and code the last one before it: how things stood."""
    after: tuple[Told, ...] = ()
    """And the first one after it: how it went on."""
    holds: tuple[tuple[str, int, int, int], ...] = ()
    """(node, from, to, token)"""
    counts: tuple[tuple[int, int], ...] = ()
    left: int = 0
    """Events of the range that are too many for one answer: the oldest."""
    kept_from_ms: int = 0
    """0: nothing is kept."""
    bytes_max: int = 0
    age_max_ms: int = 0

    @property
    def all_told(self) -> tuple[Told, ...]:
        """In the order of the log."""
        return (*self.before, *self.told, *self.after)

    def sentence(self) -> str:
        """How far back it is kept."""
        if not self.kept_from_ms:
            return ""
        who = f"Node {self.node}" if self.node else "The node"
        bound = f"the newest {self.bytes_max // 1_000_000} MB or {self.age_max_ms // HOUR_MS} h"
        if not self.age_max_ms:
            bound = "its last events only"
        return f"{who} has kept it since {moment(self.kept_from_ms)}: {bound}."


def past_of(raw: object) -> Past | None:
    """From a document that somebody else wrote: a wrong row is left out. None: it is no such document."""
    if not isinstance(raw, dict) or not isinstance(raw.get("events"), list):
        return None
    events = told_of(raw["events"])
    return Past(
        node=_text(raw.get("node"), NAME_CHARS_MAX),
        from_ms=_number(raw.get("from_ms")),
        to_ms=_number(raw.get("to_ms")),
        told=events,
        before=told_of(raw.get("before")),
        after=told_of(raw.get("after")),
        holds=tuple(_holds(raw.get("holds"))),
        counts=tuple(_counts(raw.get("counts"))),
        left=max(0, _number(raw.get("events_of_range")) - len(events)) if raw.get("cut_ms") is not None else 0,
        kept_from_ms=_number(raw.get("kept_from_ms"), DATE_MAX_MS),
        bytes_max=_number(raw.get("bytes_max")),
        age_max_ms=_number(raw.get("age_max_ms")),
    )


def told_of(rows: object) -> tuple[Told, ...]:
    found = []
    for row in rows[-EVENTS_MAX:] if isinstance(rows, list) else ():
        if not isinstance(row, list | tuple) or len(row) != FIELDS:
            continue
        at_ms, code, node, term, _, value, text = row
        if all(type(each) is int for each in (at_ms, term, value)) and 0 < at_ms < DATE_MAX_MS:
            words = [_text(node, NAME_CHARS_MAX), _text(code, NAME_CHARS_MAX), _text(text, TEXT_CHARS_MAX)]
            if words[0] and words[1]:
                found.append(Told(at_ms, words[0], term, words[1], words[2], value))
    return tuple(found)


def _holds(rows: object) -> Iterable[tuple[str, int, int, int]]:
    for row in rows[-HOLDS_MAX:] if isinstance(rows, list) else ():
        if isinstance(row, list | tuple) and len(row) == 4:
            node, since, to, token = row
            if _text(node, NAME_CHARS_MAX) and all(type(each) is int for each in (since, to, token)):
                yield node, since, to, token


def _counts(rows: object) -> Iterable[tuple[int, int]]:
    for row in rows[-COUNTS_MAX:] if isinstance(rows, list) else ():
        if isinstance(row, list | tuple) and len(row) == 2 and all(type(each) is int for each in row):
            yield row[0], row[1]


def _number(value: object, most: int = TIME_MAX_MS) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0


def _text(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


def moment(unix_ms: float) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- the timeline of it -----------------------------------------------------------------------------------------------


def incident(
    pasts: Sequence[Past],
    cluster: Mapping[str, Any],
    now_ms: int,
    *,
    promised: bool | None = None,
    notes: Sequence[str] = (),
) -> Timeline:
    """What these nodes kept of one range. `cluster`: how it stands now, as one of them says (`/v1/cluster`), empty if
    none runs; then `now_ms` is 0. `promised`: whether there is at most one, by the file, should nobody say so now."""
    rows = [row for row in cluster.get("nodes", ()) if isinstance(row, Mapping) and isinstance(row.get("node"), str)]
    terms = [(row.get("token") or 0, row.get("term") or 0) for row in rows]
    reader, acting = cluster.get("seen_from", ""), cluster.get("acting", ())
    logs = [(past.node or reader, past.all_told) for past in pasts]
    facts = Facts(
        now_ms=now_ms,
        title=" · ".join(cluster[part] for part in ("cluster", "election", "strategy") if cluster.get(part))
        or "primacy",
        at_most_one=cluster.get("at_most_one", True) is not False if cluster else promised is True,
        names=[row["node"] for row in rows],
        acting={row["node"]: now_ms - (row.get("told_ms") or 0) for row in rows if row["node"] in acting},
        token_base=max((token - term for token, term in terms if 0 < term < TOKENS_FROM), default=0),
        reads={reader: Span(0.0, 0.0)} if reader else None,
        logs=[log for log in logs if log[0]],
        holds=[hold for past in pasts for hold in past.holds],
        notes=[
            f"As node {reader} kept it." if reader else "As a node kept it that does not run any more.",
            *(sentence for past in pasts if (sentence := past.sentence())),
            *notes,
        ],
    )
    found = timeline_of([one for past in pasts for one in past.all_told], facts)
    return cut_to(found, pasts, is_whole=True)


def cut_to(found: Timeline, pasts: Sequence[Past], *, is_whole: bool) -> Timeline:
    """Without what only says how things stood around the range. `is_whole`: the range is all that there is; else the
    span is all that is kept, and only the range is known of it."""
    from_ms: float = max((past.from_ms for past in pasts), default=0)
    to_ms: float = min((past.to_ms or found.to_ms for past in pasts), default=found.to_ms)
    if not any(past.before for past in pasts):  # nothing is known from before: the first event has room before it
        from_ms = min(from_ms, found.from_ms) if from_ms else found.from_ms
    to_ms = max(from_ms, min(to_ms, found.to_ms))
    found = _inside(found, from_ms, to_ms, clips=is_whole)
    left = sum(past.left for past in pasts)
    words = [f"{left:,} older events of this range: choose a shorter one"] if left else []
    counts = next((past.counts for past in pasts if past.counts), ())
    if is_whole:
        return found._replace(from_ms=from_ms, to_ms=to_ms, left_out=[*found.left_out, *words])
    kept_ms = min((past.kept_from_ms for past in pasts if past.kept_from_ms), default=from_ms)
    return found._replace(
        from_ms=min(kept_ms, from_ms),
        known_from_ms=from_ms,
        known_to_ms=to_ms,
        counts=counts,
        left_out=[*found.left_out, *words],
    )


def _inside(found: Timeline, from_ms: float, to_ms: float, *, clips: bool) -> Timeline:
    """Rows that touch the range; `clips`: and nothing of them that is outside."""
    least, most = (from_ms, to_ms) if clips else (float("-inf"), float("inf"))

    def touches(since_ms: float, until_ms: float) -> bool:
        return since_ms <= to_ms and until_ms >= from_ms

    def clip(at_ms: float) -> float:
        return min(max(at_ms, least), most)

    return found._replace(
        roles=[
            each._replace(from_ms=clip(each.from_ms), to_ms=clip(each.to_ms))
            for each in found.roles
            if touches(each.from_ms, each.to_ms)
        ],
        runs=[
            each._replace(from_ms=clip(each.from_ms), to_ms=clip(each.to_ms), sure_ms=clip(each.sure_ms))
            for each in found.runs
            if touches(each.from_ms, each.to_ms)
        ],
        holds=[
            each._replace(from_ms=clip(each.from_ms), to_ms=clip(each.to_ms))
            for each in found.holds
            if touches(each.from_ms, each.to_ms)
        ],
        faults=[
            each._replace(from_ms=clip(each.from_ms), to_ms=clip(each.to_ms))
            for each in found.faults
            if touches(each.from_ms, each.to_ms)
        ],
        links=[
            each._replace(from_ms=clip(each.from_ms), to_ms=clip(each.to_ms))
            for each in found.links
            if touches(each.from_ms, each.to_ms)
        ],
        decisions=[each for each in found.decisions if touches(each.at_ms, each.at_ms)],
        chain=[each for each in found.chain if touches(each.at_ms, each.at_ms)],
        overlaps=[each for each in found.overlaps if touches(each.from_ms, each.to_ms)],
        gaps=[each for each in found.gaps if touches(each.from_ms, each.to_ms)],
        violations=[each for each in found.violations if touches(each.at_ms, each.at_ms)],
    )
