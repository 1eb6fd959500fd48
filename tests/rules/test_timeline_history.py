"""The timeline of a range of the last day: what stood before it, how it went on, what is left out; its documents."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.dashboard.cluster_timeline import cluster_timeline, past_facts, past_timeline
from primacy.dashboard.known import Known, Plan, Read
from primacy.dashboard.record import BEFORE_MAX, Record
from primacy.dashboard.rows import Cluster, Row, Said
from primacy.dashboard.spans import Spans
from primacy.timeline.history import Past, incident, past_of
from primacy.timeline.schema import Told

T = 1_794_700_000_000
BASE = 1_794_600_000_000
HOUR = 3_600_000


def runs(at_ms: int, node: str, term: int) -> Told:
    return Told(T + at_ms, node, term, "running", f"the command runs: process 41, run {term}")


def gone(at_ms: int, node: str, term: int) -> Told:
    return Told(T + at_ms, node, term, "gone", f"nothing of the command is left (run {term})")


def leads(at_ms: int, node: str, term: int) -> Told:
    return Told(T + at_ms, node, term, "elected", f"{node} leads (term {term})")


CLUSTER: dict[str, Any] = {
    "cluster": "billing",
    "election": "scheduler",
    "strategy": "raft",
    "seen_from": "a",
    "nodes": [{"node": "a", "term": 3, "token": BASE + 3, "told_ms": 0}, {"node": "b", "term": 3, "token": None}],
    "acting": ["a"],
}


def past(told: tuple[Told, ...] = (), **more: Any) -> Past:
    return Past("a", T, T + HOUR, told, kept_from_ms=T - 20 * HOUR, **more)


# --- what stood around it ---------------------------------------------------------------------------------------------


def test_in_a_range_in_which_nothing_happened_what_lasts_is_drawn() -> None:
    """The run began before it and ended after it; the role is that of before."""
    around = past(before=(leads(-9_000, "b", 1), runs(-8_000, "b", 1)), after=(gone(2 * HOUR, "b", 1),))
    found = incident([around], CLUSTER, T + 10 * HOUR)
    assert [(run.from_ms, run.to_ms, run.token) for run in found.runs] == [(T, T + HOUR, BASE + 1)]
    assert [(role.role, role.from_ms, role.to_ms) for role in found.roles] == [("leader", T, T + HOUR)]
    assert (found.from_ms, found.to_ms, found.decisions) == (T, T + HOUR, [])


def test_what_follows_the_range_is_not_drawn_and_claims_nothing_in_it() -> None:
    later = (gone(2 * HOUR, "b", 1), leads(3 * HOUR, "a", 2), runs(3 * HOUR, "a", 2))
    found = incident([past((leads(10, "b", 1), runs(20, "b", 1)), after=later)], CLUSTER, T + 10 * HOUR)
    assert [(run.node, run.to_ms) for run in found.runs] == [(1, T + HOUR)]
    assert [one.code for one in found.decisions] == ["elected", "running"]
    assert (found.overlaps, found.gaps, found.violations) == ([], [], [])


def test_a_hold_that_was_kept_says_up_to_when_a_run_is_sure() -> None:
    held = past((runs(1_000, "b", 1),), holds=(("b", T + 61_000, T + 64_000, BASE + 1),))
    [run] = incident([held], CLUSTER, T + 10 * HOUR).runs
    assert (run.sure_ms, run.to_ms, run.end) == (T + 61_000, T + 64_000, "unknown")


def test_it_says_how_far_back_it_is_kept_and_what_is_left_out() -> None:
    found = incident([past((leads(1, "a", 3),), left=4_321, bytes_max=16_000_000, age_max_ms=24 * HOUR)], CLUSTER, T)
    assert "Node a has kept it since 2026-11-14 03:46:40 UTC: the newest 16 MB or 24 h." in found.notes
    assert "4,321 older events of this range: choose a shorter one" in found.left_out


# --- on the page ------------------------------------------------------------------------------------------------------


def known(rows: list[Row], before: tuple[Row, ...] = ()) -> Known:
    said = Said("a", heard_ms=0, told_ms=0, role="leader", term=3, leader="a", token=BASE + 3, hold_left_ms=900,
                workload_kind="process", workload="running", since_unix_ms=T)  # fmt: skip
    cluster = Cluster("billing", "scheduler", "raft", "automatic", "a", (said,))
    plan = Plan(heartbeat_ms=100, hold_ms=1_000)
    return Known(1_000, (Read("here", cluster, 1_000),), rows, plan, before=before)


def test_the_span_of_the_page_is_all_that_is_kept_and_the_range_is_what_is_known() -> None:
    around = past((leads(10, "b", 1),), before=(runs(-5, "b", 1),), counts=((T, 1),))
    found = past_timeline(past_facts(known([]), Spans(), T + 10 * HOUR, [around]), [around])
    assert (found.from_ms, found.to_ms) == (T - 20 * HOUR, T + 10 * HOUR)
    assert (found.known_from_ms, found.known_to_ms) == (T, T + HOUR)
    assert [tuple(each) for each in found.counts] == [(T, 1)]
    assert [run.from_ms for run in found.runs] == [T - 5], "what reaches into it is drawn whole"


def test_live_what_is_older_than_the_rows_still_tells_how_things_stood() -> None:
    record = Record(3)
    record.add([Row(*runs(at, "b" if at else "a", 3)) for at in range(6)])
    assert [row.at_unix_ms - T for row in record.rows] == [3, 4, 5]
    assert record.dropped_ms == T + 2
    assert {(row.node, row.at_unix_ms - T) for row in record.before.values()} == {("a", 0), ("b", 2)}
    before = tuple(record.before.values())
    kept = [Past("a", T + 3, 0, before=tuple(Told(*row) for row in before), kept_from_ms=T - HOUR)]
    found = cluster_timeline(known(list(record.rows), before), Spans(), T + 9_000, kept=kept)
    assert (found.from_ms, found.known_from_ms, found.known_to_ms) == (T - HOUR, T + 3, T + 9_000)
    assert [(run.from_ms, run.end) for run in found.runs if run.node == 0] == [(T, "open")]
    for at in range(2 * BEFORE_MAX):
        record.stood(Row(T + at, "a", 1, f"code-{at}", "text"))
    assert len(record.before) == BEFORE_MAX


# --- documents of others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [None, [], "x", 7, {}, {"events": 1}, {"events": None}])
def test_what_is_no_history_is_none(raw: object) -> None:
    assert past_of(raw) is None


def test_of_a_hostile_document_the_rows_of_known_form_are_left() -> None:
    right = [T, "elected", "a", 1, 1, 0, "a leads"]
    wrong: list[Any] = [None, [], right[:6], [*right, 1], ["x", *right[1:]], [-1, *right[1:]], [T, "", *right[2:]],
                        [T, "elected", "", 1, 1, 0, "t"], [True, *right[1:]],
                        [T, "elected", {}, 1, 1, 0, "t"]]  # fmt: skip
    raw = {
        "events": [*wrong, right],
        "before": wrong,
        "after": "x",
        "holds": [["a", T, T + 1, 7], ["a", T, "x", 7], None, ["a"], [7, T, T, 7]],
        "counts": [[T, 1], [T], ["x", 1]],
        "node": "n" * 5_000,
        "from_ms": -1,
        "to_ms": 10**30,
        "kept_from_ms": "x",
        "cut_ms": 5,
        "events_of_range": 3,
    }
    found = past_of(raw)
    assert found is not None
    assert found.told == (Told(T, "a", 1, "elected", "a leads"),)
    assert (found.before, found.after, found.holds, found.counts) == ((), (), (("a", T, T + 1, 7),), ((T, 1),))
    assert (len(found.node), found.from_ms, found.to_ms, found.kept_from_ms, found.left) == (80, 0, 0, 0, 2)
