"""What came of a drill: one document, and the same in lines for a terminal. Pure.

The document has the timeline under `timeline`, in the one schema (docs/timeline.md), and the promises under `contract`,
as `primacy contract --json` has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from primacy import __version__
from primacy.control.when import instant
from primacy.drill.attempt import Attempt
from primacy.drill.catalogue import Scenario
from primacy.drill.judge import Finding, Verdict
from primacy.drill.target import Subject
from primacy.settings.contract import as_dict
from primacy.timeline.schema import Timeline

API = 1


def counts(attempts: Sequence[Attempt]) -> Counter[str]:
    """Findings by their verdict. Of an attempt that was repeated the last one counts, but for two at once."""
    found: Counter[str] = Counter()
    for attempt, is_last in _with_last(attempts):
        found.update(str(each.verdict) for each in attempt.findings if is_last or each.verdict is Verdict.NOT_KEPT)
    return found


def all_kept(attempts: Sequence[Attempt]) -> bool:
    """At least one scenario was played, and every promise of all that were was kept."""
    played = any(each.outcome == "played" for each in attempts)
    cut_short = any(each.outcome == "interrupted" for each in attempts)
    found = counts(attempts)
    return played and not cut_short and not found[Verdict.NOT_KEPT] and not found[Verdict.NOT_JUDGED]


def document(
    subject: Subject,
    plan: Sequence[Scenario],
    attempts: Sequence[Attempt],
    drawn: Timeline,
    span_ms: tuple[int, int],
    interrupted: str = "",
) -> dict[str, Any]:
    """For `--json`, and for the page."""
    found = counts(attempts)
    outcomes = Counter(each.outcome for each in attempts)
    return {
        "api": API,
        "kind": "drill",
        "version": __version__,
        "began": instant(span_ms[0]),
        "ended": instant(span_ms[1]),
        "kept": all_kept(attempts) and not interrupted,
        "verdict": verdict(attempts, interrupted),
        "interrupted": interrupted,
        "subject": {
            "name": subject.name,
            "on": subject.on,
            "where": subject.where,
            "strategy": subject.strategy,
            "profile": subject.profile,
            "nodes": subject.nodes,
        },
        "summary": {
            "played": outcomes["played"],
            "skipped": outcomes["skipped"],
            "interrupted": outcomes["interrupted"],
            "kept": found[Verdict.KEPT],
            "not_kept": found[Verdict.NOT_KEPT],
            "not_judged": found[Verdict.NOT_JUDGED],
            "overlaps": len(drawn.overlaps),
            "violations": len(drawn.violations),
            "longest_gap_ms": max((each.to_ms - each.from_ms for each in drawn.gaps), default=None),
        },
        "plan": [
            {
                "scenario": each.name,
                "fault": each.fault,
                "title": each.title,
                "must": each.must,
                "beyond_quorum": each.beyond_quorum,
            }
            for each in plan
        ],
        "done": [_done(each) for each in attempts],
        "contract": as_dict(subject.contract, subject.timing),
        "timeline": drawn.document(),
    }


def verdict(attempts: Sequence[Attempt], interrupted: str = "") -> str:
    """The whole drill, in one sentence."""
    found = counts(attempts)
    played = sum(each.outcome == "played" for each in attempts)
    skipped = [each.scenario.name for each in attempts if each.outcome == "skipped"]
    rest = f"; not played: {', '.join(skipped)}" if skipped else ""
    ended = [f"{each.scenario.name} ({each.reason})" for each in attempts if each.outcome == "interrupted"]
    rest += f"; interrupted: {', '.join(ended)}" if ended and not interrupted else ""
    faults = f"{played} fault{'' if played == 1 else 's'}"
    if found[Verdict.NOT_KEPT]:
        broken = dict.fromkeys(
            f"{each.what} ({attempt.scenario.name})"
            for attempt in attempts
            for each in attempt.findings
            if each.verdict is Verdict.NOT_KEPT
        )
        return f"NOT KEPT: {', '.join(broken)}; {faults} played{rest}"
    if interrupted:
        return f"interrupted: {interrupted}; {faults} played, no promise was broken so far{rest}"
    if not played:
        return f"nothing was played{rest}"
    if found[Verdict.NOT_JUDGED]:
        return f"not judged: {found[Verdict.NOT_JUDGED]} of {sum(found.values())} promises; {faults} played{rest}"
    return f"all kept: {found[Verdict.KEPT]} promises, {faults} played{rest}"


def _with_last(attempts: Sequence[Attempt]) -> list[tuple[Attempt, bool]]:
    """Each with whether no repetition follows it."""
    after = [*(each.attempt for each in attempts[1:]), 1]
    return [(each, following == 1) for each, following in zip(attempts, after, strict=True)] if attempts else []


def _done(attempt: Attempt) -> dict[str, Any]:
    return {
        "scenario": attempt.scenario.name,
        "fault": attempt.scenario.fault,
        "title": attempt.scenario.title,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "node": attempt.node,
        "from_unix_ms": attempt.from_ms,
        "to_unix_ms": attempt.to_ms,
        "late_ms": attempt.late_ms,
        "steps": [{"at_unix_ms": at_ms, "text": text} for at_ms, text in attempt.steps],
        "findings": [_finding(each) for each in attempt.findings],
    }


def _finding(each: Finding) -> dict[str, Any]:
    return {**each._asdict(), "verdict": str(each.verdict)}
