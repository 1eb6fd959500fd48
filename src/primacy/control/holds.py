"""Who holds, up to when: as a node knows it of itself, and of the others from what they said last. Pure."""

from __future__ import annotations

from primacy.control import NodeStatus
from primacy.control.history_scan import Hold
from primacy.control.summary import Summary, summary_of
from primacy.settings import timing_of
from primacy.settings.timing import Timing


def holds_of(status: NodeStatus) -> list[Hold]:
    """On this node's wall clock. What a node that is silent by now said last is in it: so far its hold lasts."""
    timing = timing_of(status.settings) if status.at_most_one else None
    if not isinstance(timing, Timing):
        return []
    said = [(status.node, summary_of(status), 0)]
    said += [(name, heard.summary, status.now_ms - heard.at_ms) for name, heard in sorted(status.others.items())]
    return [_hold(status, *each, timing.hold_ms) for each in said if _holds(each[1])]


def _holds(summary: Summary) -> bool:
    return summary.role == "leader" and summary.token > 0 and summary.hold_left_ms > 0


def _hold(status: NodeStatus, node: str, summary: Summary, age_ms: int, hold_ms: int) -> Hold:
    to_ms = status.wall_ms - age_ms + summary.hold_left_ms
    return Hold(node, to_ms - hold_ms, to_ms, summary.token)
