"""`primacy status` where it is not known whether somebody runs the command: not well, exit code 1, and not red."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.cli.status import is_unknown, is_well
from primacy.cli.status_many import all_well

LOST = "node b ran the command when it was last heard, 4 s ago; whether it still does is not known here"


def row(node: str, kind: str = "process", **more: Any) -> dict[str, Any]:
    workload = {"kind": kind, "state": "stopped", "since": None, "pid": None, "containment": ""}
    return {"node": node, "workload": workload, "heard_ms": 9, "told_ms": 9, "acting": "no", **more}


def state(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Seen from a."""
    usual = {"node": "a", "strategy": "raft", "role": "follower", "leader": "b", "acting": [], "not_known": None}
    return {**usual, "rows": list(rows), **more}


@pytest.mark.parametrize(
    "seen",
    [
        state(row("a"), row("b", acting="unknown"), not_known=LOST),
        state(row("a"), row("b", acting="unknown"), not_known=LOST, strategy="lease"),
        state(row("a"), row("b", acting="unknown"), not_known=LOST, strategy="bully"),
        state(row("a"), leader=None, not_known="this node hears nobody; it does not know whether …"),
        state(row("a"), row("b"), strategy="lease", not_known="node b leads, as others say; whether …"),
        state(row("a"), row("b"), strategy="lease"),
        state(row("a"), row("z", told_ms=None, workload=None), strategy="bully", leader="z"),
        state(row("a"), row("b", told_ms=None), role="recovering", leader=None, members=None),
        state(row("a", "none"), row("b", "none", acting="unknown"), not_known=LOST),
    ],
    ids=["raft", "lease with a list", "bully", "alone", "lease", "lease of 0.1", "Ghoti", "newcomer", "no command"],
)
def test_what_is_not_known_is_neither_well_nor_nobody(seen: dict[str, Any]) -> None:
    assert not is_well(seen)
    assert is_unknown(seen)


@pytest.mark.parametrize(
    ("seen", "well"),
    [
        (state(row("a"), row("b", acting="acts"), acting=["b"]), True),
        (state(row("a"), row("b")), False),
        (state(row("a", "none"), row("b", "none"), strategy="lease"), True),
        (state(row("a", "none"), row("z", told_ms=None, workload=None), strategy="bully", leader="z"), True),
        (state(row("a", "none"), row("b", "none"), leader=None), False),
        (state(row("a", "none"), row("b", "none", acting="over")), False),
    ],
    ids=[
        "one acts",
        "nobody",
        "holds the lease, no command",
        "Ghoti leads, no command",
        "no leader",
        "its hold is over",
    ],
)
def test_what_is_known_is_well_if_one_acts_or_leads(seen: dict[str, Any], well: bool) -> None:
    assert is_well(seen) == well


def test_of_several_elections_one_that_is_not_known_is_not_well() -> None:
    runs = {"here": True, "strategy": "raft", "role": "follower", "leader": "b", "acting": ["b"]}
    away = {"here": False}
    assert all_well({"elections": [runs, away]})
    assert not all_well({"elections": [runs, {**runs, "strategy": "lease", "acting": []}]})
    assert not all_well({"elections": [{**runs, "acting": [], "not_known": LOST}]})
