"""What a node of an earlier version says, under the names of this one. Pure.

While a cluster is upgraded node by node, commands and the dashboard meet documents of both versions. They are read
under one set of names; nothing is written under an earlier one.
"""

from __future__ import annotations

from typing import Any

KEYS = {"duty": "workload", "alarms": "alerts", "doubles": "double_signatures"}
"""Of `/v1/state`, `/v1/cluster`, and of the lab's and the chain's documents."""
ROLES = {"muted": "recovering"}
CODES = {"muted": "recovering", "unmuted": "recovered", "alarm": "alert", "stands": "campaigns"}
"""Of events: in documents, in the file of the event log, and as nodes tell them each other."""
DOUBLED = "an operator: another machine speaks with this id"
"""So began what a node waits for whose id was heard twice."""
INSIDE = ("nodes", "state", "chain", "counters")
"""Where such a document holds others. Nothing else is looked into: other keys may be names of nodes."""


TIMES = {"beat_ms": "heartbeat_ms"}
"""Of `election.timing`."""
VALUES = {"role": ROLES, "code": CODES}
"""By key: a node's role, an event's code."""
DEEP = 4
"""A lab's document holds rows, which hold state documents, which hold rows. Deeper ones were written by no node."""


def current(said: Any, deep: int = DEEP) -> Any:
    """A document, or a list of them, with today's keys. What has them already is returned equal."""
    if isinstance(said, list):
        return [current(each, deep) if isinstance(each, dict) else each for each in said]
    if not isinstance(said, dict) or not deep:
        return said
    found = {KEYS.get(key, key): value for key, value in said.items() if KEYS.get(key) not in said}
    for key, words in VALUES.items():
        if isinstance(found.get(key), str):
            found[key] = words.get(found[key], found[key])
    return {key: current(value, deep - 1) if key in INSIDE else value for key, value in found.items()}


def current_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Of `/v1/config`."""
    election = settings.get("election")
    timing = election.get("timing") if isinstance(election, dict) else None
    if not isinstance(election, dict) or not isinstance(timing, dict):
        return settings
    times = {TIMES.get(name, name): span for name, span in timing.items()}
    return {**settings, "election": {**election, "timing": times}}


def current_code(code: str) -> str:
    """Of an event."""
    return CODES.get(code, code)
