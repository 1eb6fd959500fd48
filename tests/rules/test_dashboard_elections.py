"""All elections of an agent on one page: what is shown of each, and the strip of all. Without a browser."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.dashboard.elections import ElectionRow, elections_view, standing_of, told_of

WELL: dict[str, Any] = {
    "election": "mail",
    "strategy": "raft",
    "mode": "automatic",
    "role": "leader",
    "term": 4,
    "leader": "a",
    "token": 9,
    "hold_left_ms": 900,
    "waits_for": None,
    "workload": {"state": "running", "pid": 5},
    "here": True,
    "acting": ["a"],
    "not_known": None,
    "alerts": [],
    "health": "ok",
}
ABSENT = {"election": "gone", "here": False, "why": "its store is of no use"}


def row(**more: Any) -> ElectionRow:
    told = told_of({"elections": [{**WELL, **more}]})
    assert told is not None
    return told.rows[0]


@pytest.mark.parametrize(
    ("more", "level", "holder", "words"),
    [
        ({}, "ok", "a", "runs on a"),
        ({"role": "follower", "leader": "b", "acting": ["b"], "workload": {"state": "stopped"}}, "ok", "b", "on b"),
        ({"workload": {"state": "starting"}}, "warn", "a", "starts on a"),
        ({"workload": {"state": "stuck"}}, "bad", "a", "does not end"),
        ({"acting": ["a", "b"]}, "bad", "", "a and b both claim it"),
        ({"alerts": ["two nodes run with the id c"]}, "bad", "a", "the id c"),
        ({"acting": [], "not_known": "node a ran it"}, "unknown", "", "not known: node a ran it"),
        ({"acting": [], "leader": None, "waits_for": "a leader to be elected"}, "warn", "", "nobody runs it"),
        ({"acting": [], "leader": None, "waits_for": "votes of a majority: 2 of 3"}, "bad", "", "majority"),
        ({"acting": [], "strategy": "lease", "role": "follower", "leader": "b"}, "unknown", "", "b holds the lease"),
        (ABSENT, "unknown", "", "does not take part: its store is of no use"),
    ],
)
def test_green_is_one_node_that_acts_and_nothing_else(more: Any, level: str, holder: str, words: str) -> None:
    found = standing_of(row(**more), stale=False)
    assert found[:2] == (level, holder)
    assert words in found[2]
    assert standing_of(row(**more), stale=True)[0] == "unknown", "an agent that does not answer says nothing of now"


def test_the_strip_counts_and_has_the_colour_of_the_worst() -> None:
    rows = [WELL, {**WELL, "election": "b"}, {**WELL, "election": "c", "acting": []}, ABSENT]
    told = told_of({"cluster": "billing", "node": "a", "elections": rows})
    model = elections_view(told, "", 0)
    strip = model["strip"]
    text = "4 elections: 2 held by one node, 1 without a holder, 1 not known"
    assert (strip["level"], strip["holder"]["text"], strip["title"]) == ("warn", text, "2 of 4 held")
    assert strip["margin"]["text"] == "as node a tells it"
    assert model["head"]["many"] is True
    well = elections_view(told_of({"node": "a", "elections": [WELL]}), "", 0)["strip"]
    assert (well["level"], well["alert"]) == ("ok", "")
    two = elections_view(told_of({"elections": [{**WELL, "acting": ["a", "b"]}]}), "", 0)["strip"]
    assert (two["level"], two["alert"]) == ("bad", "two")


def test_an_agent_that_does_not_answer_leaves_nothing_green() -> None:
    told = told_of({"cluster": "billing", "node": "a", "elections": [WELL]})
    model = elections_view(told, "nothing answers at 127.0.0.1:1", 5)
    assert model["source"] == {"ok": False, "text": "nothing answers at 127.0.0.1:1", "since_unix_ms": 5}
    assert (model["strip"]["level"], model["strip"]["alert"]) == ("unknown", "")
    assert [each["level"] for each in model["elections"]["rows"]] == ["unknown"]
    never = elections_view(None, "no agent runs here; primacy agent starts one", 5)
    assert never["elections"]["rows"] == []
    assert never["strip"]["level"] == "unknown"


@pytest.mark.parametrize("raw", [None, [], {}, {"elections": 5}, "x"])
def test_what_is_no_document_of_an_agent_is_none(raw: object) -> None:
    assert told_of(raw) is None


def test_whatever_a_row_holds_it_is_bounded_and_of_known_form() -> None:
    told = told_of({"elections": [7, {}, {"election": "x" * 900, "acting": "a", "alerts": [5], "term": "9"}] * 900})
    assert told is not None
    assert len(told.rows) <= 1_000
    assert {len(each.election) for each in told.rows} == {80}
    assert {(each.acting, each.term) for each in told.rows} == {((), 0)}
