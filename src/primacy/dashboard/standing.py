"""How each node stands: the youngest statement about it, whether it is there, and what may be shown of its command.

Pure. Whether a node acts is decided by `primacy.control.acting`, as for `/v1/cluster` and `primacy status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primacy.control.acting import Acting, Rules, Statement, rules_of, shown_as
from primacy.control.summary import UNKNOWN
from primacy.dashboard.known import Known
from primacy.dashboard.rows import LabNode, Said

FRESH_MS = 1_500
"""A row younger than this, or than the hold, is how the node stands; an older one is what it last said."""
DOWN = ("stopped", "killed", "ended", "restarting")
"""What a node of a lab is when it has no process."""


class Seen(NamedTuple):
    """The best statement about one node."""

    said: Said
    told_ms: int | None
    """How old the statement is now; None: there is none."""
    heard_ms: int | None
    """Since anything was heard of the node, by anybody that is read."""
    fresh: bool
    """It is how the node stands; otherwise it is what the node last said."""
    took_ms: int = 0
    """By so much later than `told_ms` says it may have been told: the answer took that long."""


def statements(known: Known) -> dict[str, Seen]:
    """Of every node the youngest statement, in the order of their names.

    What the store alone tells of a holder does not say whether its command runs, and may be younger than what the
    holder itself says: that counts while it is fresh, as in a node's own document.
    """
    best: dict[str, Seen] = {}
    limit_ms = max(FRESH_MS, known.plan.hold_ms)
    rows = [(read, row) for read in known.reads if read.document is not None for row in read.document.rows]
    for read, row in sorted(rows, key=lambda each: each[1].workload == UNKNOWN):
        since_ms = max(0, known.now_ms - read.read_ms)
        said, took_ms = row, read.took_ms
        told_ms = None if row.told_ms is None else row.told_ms + since_ms
        heard_ms = None if row.heard_ms is None else row.heard_ms + since_ms
        before = best.get(row.node)
        if before is not None and _says_more(before, row, limit_ms):
            continue
        if before is not None and _younger(before.heard_ms, heard_ms):
            heard_ms = before.heard_ms
        if before is not None and not _younger(told_ms, before.told_ms):
            said, told_ms, took_ms = before.said, before.told_ms, before.took_ms
        fresh = told_ms is not None and heard_ms is not None and min(told_ms, heard_ms) <= limit_ms
        best[said.node] = Seen(said, told_ms, heard_ms, fresh, took_ms)
    for each in known.lab.nodes if known.lab is not None else ():
        best.setdefault(each.node, Seen(Said(each.node, each.kind, each.addr), None, None, fresh=False))
    return dict(sorted(best.items()))


def _says_more(before: Seen, row: Said, limit_ms: int) -> bool:
    """Of the same token, or a later one, and whether the command runs, which the row leaves open."""
    told = before.told_ms is not None and before.told_ms <= limit_ms and before.said.workload != UNKNOWN
    return told and row.workload == UNKNOWN and row.token <= before.said.token


def _younger(age_ms: int | None, than_ms: int | None) -> bool:
    return age_ms is not None and (than_ms is None or age_ms < than_ms)


def process_of(known: Known, node: str) -> LabNode | None:
    """In a lab that answers: its process."""
    if known.lab is None or known.lab_error:
        return None
    return next((each for each in known.lab.nodes if each.node == node), None)


def there_of(known: Known, seen: Seen) -> str:
    """here | silent | never; in a lab also what became of its process: starting | frozen, or one of `DOWN`."""
    process = process_of(known, seen.said.node)
    if process is not None and process.process != "running":
        return process.process if process.process in (*DOWN, "frozen", "starting") else "stopped"
    if seen.fresh:
        return "here"
    return "never" if seen.heard_ms is None else "silent"


def acting(known: Known, seen: Mapping[str, Seen]) -> dict[str, Acting]:
    """By node, what may be shown of its command."""
    said = [_statement(known, each) for each in seen.values()]
    return shown_as(said, known.now_ms, rules(known), known.overlapping)


def rules(known: Known) -> Rules:
    plan = known.plan
    return rules_of(known.first.strategy, plan.heartbeat_ms, plan.term_at_ms, plan.hold_ms)


def _statement(known: Known, seen: Seen) -> Statement:
    said = seen.said
    said_ms = None if seen.told_ms is None else known.now_ms - seen.told_ms
    process = there_of(known, seen)
    leads = said.workload_kind == "none" and said.role == "leader"  # to lead is all it does
    state = "running" if leads else said.workload or "stopped"
    return Statement(
        node=said.node,
        state="stopped" if is_gone(known, seen) else state,
        said_ms=said_ms,
        heard_ms=None if seen.heard_ms is None else known.now_ms - seen.heard_ms,
        began_ms=known.began.get(said.node, said_ms or 0),
        token=said.token,
        hold_ms=said.hold_left_ms,
        leader=said.leader,
        votes=said.kind != "observer",
        process={"restarting": "stopped", "here": "", "silent": "", "never": ""}.get(process, process),
    )


def is_gone(known: Known, seen: Seen) -> bool:
    """The guard's report that nothing of the command is left came after what the node last said of it."""
    at_ms = known.gone.get(seen.said.node)
    return at_ms is not None and seen.told_ms is not None and at_ms >= known.now_ms - seen.told_ms


def hold_left(seen: Seen) -> int:
    """`hold_left_ms` is as of the answer, the row's own age subtracted: what passed since the answer comes off."""
    return max(0, seen.said.hold_left_ms - ((seen.told_ms or 0) - (seen.said.told_ms or 0)))
