"""What the dashboard says under faults, without a browser: the holder, the margin, the strip, the last change."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.dashboard.change import STEPS_MAX, last_change
from primacy.dashboard.known import Known, Plan, Read
from primacy.dashboard.rows import Chain, Cluster, Lab, LabNode, Row, Said, Signature
from primacy.dashboard.view import view

PLAN = Plan(hold_ms=1_000, heartbeat_ms=100, term_at_ms=400)
NOW_MS = 50_000
AT_MS = 1_794_700_000_000


def said(node: str, leader: str = "a", **more: Any) -> Said:
    leads = node == leader
    found = Said(
        node,
        heard_ms=0,
        told_ms=0,
        role="leader" if leads else "follower",
        term=7,
        leader=leader,
        token=700 if leads else 0,
        hold_left_ms=900 if leads else 0,
        workload_kind="process",
        workload="running" if leads else "stopped",
        since_unix_ms=AT_MS if leads else 0,
        health="ok",
    )
    return found._replace(**more)


def lab(*rows: Said, silent_ms: int = 100, **processes: str) -> Known:
    """A lab whose nodes are each read by themselves; `processes`: those that do not run, by name."""
    ages = {row.node: silent_ms if row.node in processes else 100 for row in rows}
    reads = tuple(
        Read(row.node, Cluster("lab", "main", "raft", "automatic", row.node, (row,)), NOW_MS - ages[row.node])
        for row in rows
    )
    nodes = tuple(LabNode(row.node, processes.get(row.node, "running"), 11) for row in rows)
    return Known(NOW_MS, reads, plan=PLAN, lab=Lab(nodes, (), "raft", "fast"))


def five(**more: Any) -> list[Said]:
    return [said(name, **more) for name in "abcde"]


def greens(model: dict[str, Any]) -> list[str]:
    """Whoever the page would draw as running."""
    return [name for name in model["order"] if model[f"node:{name}"]["acts"] == "acts"]


# --- the holder -------------------------------------------------------------------------------------------------------


def test_a_frozen_ex_leader_is_never_shown_as_running() -> None:
    for silent_ms in (0, 300, 999, 1_001, 60_000):
        model = view(lab(*five(), silent_ms=silent_ms, a="frozen"))
        assert greens(model) == []
        assert model["job"]["level"] != "ok"
        assert model["node:a"]["there"] == "frozen"
    early = view(lab(*five(), silent_ms=300, a="frozen"))
    assert early["job"]["text"] == "Not known whether the command runs: a is frozen"
    assert (early["job"]["node"], early["node:a"]["work"]) == ("a", "not known, was running")
    assert early["node:a"]["hold_left_ms"] == 600, "its bar runs out"
    late = view(lab(*[each._replace(leader="") for each in five()], silent_ms=1_100, a="frozen"))
    assert late["node:a"]["work"] == "was running"
    assert late["job"]["text"].startswith("Nobody runs the command")


def test_after_a_handover_one_node_is_shown_as_leader_although_two_rows_say_so() -> None:
    rows = [said("a"), said("b", "b", term=8, token=800, since_unix_ms=AT_MS + 5), *map(said, "cde")]
    known = lab(*rows)._replace(began={"a": NOW_MS - 9_000, "b": NOW_MS - 120})
    model = view(known)
    assert greens(model) == ["b"]
    assert (model["node:a"]["role"], model["node:a"]["leads"], model["node:b"]["leads"]) == ("was leader", False, True)
    assert model["node:a"]["hold_left_ms"] == 0
    assert model["job"]["text"] == "Running on b"


def test_two_that_were_seen_at_once_are_both_shown_and_everything_is_red() -> None:
    rows = [said("a"), said("b", "b", term=8, token=800), *map(said, "cde")]
    model = view(lab(*rows)._replace(overlapping=("a", "b")))
    assert greens(model) == ["a", "b"]
    assert (model["strip"]["level"], model["strip"]["alert"]) == ("bad", "two")


def test_the_report_of_the_guard_counts_at_once() -> None:
    """Before the node is asked again: what it said is older than the report that nothing of its command is left."""
    known = lab(*five())._replace(gone={"a": NOW_MS - 20})
    model = view(known)
    assert greens(model) == []
    assert (model["node:a"]["work"], model["job"]["level"]) == ("stopped", "warn")
    again = view(known._replace(gone={"a": NOW_MS - 200}))
    assert greens(again) == ["a"], "it said later that it runs again"
    assert [again[f"node:{name}"]["work"] for name in "ab"] == ["running", "stopped"]


def test_frozen_nodes_have_no_open_links() -> None:
    model = view(lab(*five(), b="frozen"))
    states = {(link["a"], link["b"]): link["state"] for link in model["links"]}
    assert {states[pair] for pair in states if "b" in pair} == {"down"}
    assert states["a", "c"] == "open"


# --- margin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("down", "level", "text"),
    [
        ({}, "ok", "5 of 5 nodes up, 2 more may fail"),
        ({"e": "stopped"}, "ok", "4 of 5 nodes up, 1 more may fail"),
        ({"d": "killed", "e": "stopped"}, "warn", "3 of 5 nodes up, none more may fail"),
        ({"c": "frozen", "d": "killed", "e": "stopped"}, "bad", "2 of 5 nodes up, 3 needed"),
    ],
)
def test_the_margin_of_the_quorum_has_its_colour(down: dict[str, str], level: str, text: str) -> None:
    margin = view(lab(*five(), silent_ms=5_000, **down))["strip"]["margin"]
    assert (margin["level"], margin["text"]) == (level, text)


def test_no_majority_is_an_outage_and_red() -> None:
    rows = [said(name, leader="") for name in "abcde"]
    model = view(lab(*rows, silent_ms=5_000, c="killed", d="stopped", e="frozen"))
    assert model["job"]["text"] == "Nobody runs the command: 2 of 5 nodes up, 3 needed"
    assert (model["job"]["state"], model["strip"]["level"], model["strip"]["title"]) == ("outage", "bad", "nobody runs")


def test_two_halves_are_no_majority_although_all_are_up() -> None:
    rows = [said(name, leader="") for name in "abcd"]
    known = lab(*rows)
    assert known.lab is not None
    cut = tuple((one, other) for one in "abcd" for other in "abcd" if (one in "ab") != (other in "ab"))
    model = view(known._replace(lab=known.lab._replace(cuts=cut)))
    words = "Nobody runs the command: 4 of 4 nodes up, but at most 2 hear each other, 3 needed"
    assert (model["job"]["level"], model["job"]["text"]) == ("bad", words)
    assert model["strip"]["margin"] == {"level": "bad", "text": "4 of 4 nodes up, no majority"}


def test_who_is_not_heard_may_run_it_elsewhere() -> None:
    """Beside one node, without a lab: that the others are down is not known."""
    rows = (said("b", leader=""), said("c", leader=""), *(Said(name) for name in "ade"))
    read = Read("x", Cluster("billing", "main", "raft", "automatic", "b", rows), NOW_MS - 50)
    model = view(Known(NOW_MS, (read,), plan=PLAN))
    assert model["job"]["level"] == "bad"
    assert model["job"]["text"] == (
        "Nobody runs the command: 2 of 5 nodes heard, 3 needed; the others may run it where they are not heard"
    )


def test_all_stopped_is_said_and_no_node_that_answers_is_another_thing() -> None:
    known = lab(*five(), silent_ms=5_000, **dict.fromkeys("abcde", "stopped"))
    model = view(known)
    assert model["job"]["text"] == "All 5 nodes are stopped: nobody runs the command"
    assert (model["job"]["level"], model["strip"]["title"], model["source"]["ok"]) == ("bad", "all stopped", True)
    gone = tuple(read._replace(error="gone", failing_since_unix_ms=AT_MS) for read in known.reads)
    lost = view(known._replace(reads=gone, lab_error="nothing answers"))
    assert lost["job"]["text"] == "Not known whether the command runs: a is not heard"
    assert (lost["job"]["level"], lost["source"]["ok"]) == ("unknown", False)


def test_a_lone_reader_of_a_lease_knows_no_margin() -> None:
    read = Read("x", Cluster("billing", "main", "lease", "automatic", "a", (said("a"),)), NOW_MS - 50)
    strip = view(Known(NOW_MS, (read,), plan=PLAN))["strip"]
    assert (strip["level"], strip["margin"]["level"]) == ("ok", "unknown")


def test_an_observer_is_no_voter() -> None:
    model = view(lab(*map(said, "abc"), said("o", kind="observer")))
    assert model["strip"]["margin"]["text"] == "3 of 3 nodes up, 1 more may fail"


def test_killed_stopped_restarting_frozen_and_starting_are_told_apart() -> None:
    kinds = {"b": "killed", "c": "restarting", "d": "frozen", "e": "starting"}
    model = view(lab(*five(), silent_ms=5_000, **kinds))
    assert {name: model[f"node:{name}"]["there"] for name in kinds} == kinds


# --- the strip and the last change ------------------------------------------------------------------------------------


def test_the_strip_says_who_holds_the_margin_and_the_last_change() -> None:
    rows = (
        Row(AT_MS, "e", 6, "elected", "e leads (term 6)"),
        Row(AT_MS + 10, "e", 6, "running", "the command runs: process 1, run 1"),
        Row(AT_MS + 5_000, "e", 6, "majority-lost", "e lost its majority"),
        Row(AT_MS + 5_030, "e", 6, "gone", "nothing of the command is left (run 1)"),
        Row(AT_MS + 5_080, "a", 7, "elected", "a leads (term 7)"),
        Row(AT_MS + 5_094, "a", 7, "running", "the command runs: process 2, run 1"),
    )
    known = lab(*five())._replace(rows=rows, chain=Chain(9, 0))
    strip = view(known)["strip"]
    assert (strip["level"], strip["title"]) == ("ok", "a runs")
    assert strip["holder"] == {"level": "ok", "text": "One holder", "node": "a", "since_unix_ms": AT_MS}
    assert (strip["change"]["text"], strip["change"]["gap"]) == (
        "e lost its majority",
        "nobody ran for 64 ms; never two",
    )
    bare = view(known._replace(chain=None))["strip"]["change"]["gap"]
    assert bare == "nobody ran for 64 ms; two were not seen"
    doubled = view(known._replace(chain=Chain(9, 2, ("height 4 has two signers",))))["strip"]
    assert (doubled["level"], doubled["alert"], doubled["title"]) == ("bad", "two", "two signed at once")
    assert doubled["holder"]["text"] == "Two nodes signed at once, 2 times"
    assert doubled["change"]["gap"] == "nobody ran for 64 ms"


def test_how_long_nobody_ran_after_a_kill_is_told_by_the_chain() -> None:
    """A node that was killed cannot say when its command ended."""
    rows = [
        Row(AT_MS, "e", 6, "elected", "e leads (term 6)"),
        Row(AT_MS + 3_000, "e", 0, "lab", "the lab kills node e"),
        Row(AT_MS + 3_040, "a", 6, "release-applied", "a takes the release by e (term 6)"),
        Row(AT_MS + 3_060, "a", 7, "elected", "a leads (term 7)"),
    ]
    signed = Signature(9, AT_MS + 3_150, "a", 701, 9, 190), Signature(8, AT_MS + 2_960, "e", 601, 8, 100)
    change = last_change(rows, Chain(9, 0, (), signed))
    assert change is not None
    assert (change["gap_ms"], change["asked"]) == (190, "the lab kills node e")
    without = last_change(rows)
    assert without is not None
    assert without["gap_ms"] is None


def test_what_a_person_did_is_the_last_change_and_names_who_asked() -> None:
    rows = [
        Row(AT_MS, "a", 7, "elected", "a leads (term 7)"),
        Row(AT_MS + 60_000, "b", 7, "told", "b is told by an operator to pause (said at c)"),
        Row(AT_MS + 60_002, "b", 7, "paused", "b is paused (term 7)"),
    ]
    change = last_change(rows)
    assert change is not None
    assert (change["text"], change["person"]) == ("b is told by an operator to pause (said at c)", True)
    assert [step["code"] for step in change["steps"]] == ["told", "paused"]


def test_the_win_is_never_cut_off_and_rounds_of_bully_are_folded() -> None:
    rounds = [Row(AT_MS + at, "d", 2, "campaigns", "d campaigns (term 2)") for at in range(30)]
    noise = [Row(AT_MS + 40 + at, "bc"[at % 2], 2, "start-delay", f"waits {at}") for at in range(30)]
    rows = [
        Row(AT_MS - 9_000, "e", 1, "elected", "e leads (term 1)"),
        Row(AT_MS - 5, "e", 1, "step-down", "e steps down (term 1)"),
        *rounds,
        *noise,
        Row(AT_MS + 90, "d", 2, "elected", "d leads (term 2)"),
        Row(AT_MS + 95, "d", 2, "running", "the command runs: process 9, run 1"),
    ]
    change = last_change(rows)
    assert change is not None
    codes = [step["code"] for step in change["steps"]]
    assert len(codes) <= STEPS_MAX
    assert codes[-2:] == ["elected", "running"]
    assert codes.count("campaigns") == 1
    assert next(step["text"] for step in change["steps"] if step["code"] == "campaigns").endswith("30 times")
