"""What the dashboard keeps for its timeline, and what `primacy why --export` writes: holds, clocks, tokens, a file."""

from __future__ import annotations

import re

from primacy.cli.why import timeline, timeline_link
from primacy.dashboard.cluster_timeline import cluster_timeline
from primacy.dashboard.known import Known, Plan, Read
from primacy.dashboard.rows import Chain, Cluster, Lab, LabNode, Row, Said, Signature, cluster_of
from primacy.dashboard.spans import HOLDS_MAX, SIGNATURES_MAX, Spans
from primacy.timeline.page import page

T = 1_794_700_000_000
BASE = 1_794_600_000_000


def known(rows: list[Row], *, lab: bool = False) -> Known:
    said = [
        Said("a", heard_ms=0, told_ms=0, role="leader", term=2, leader="a", token=BASE + 2, hold_left_ms=900,
             workload_kind="process", workload="running", since_unix_ms=T),
        Said("b", heard_ms=40, told_ms=300, role="follower", term=2, leader="a", workload_kind="process"),
    ]  # fmt: skip
    cluster = Cluster("billing", "scheduler", "raft", "automatic", "a", tuple(said))
    nodes = Lab(tuple(LabNode(each.node, "running") for each in said)) if lab else None
    return Known(1_000, (Read("here", cluster, 1_000),), rows, Plan(heartbeat_ms=100, hold_ms=1_000), nodes)


RUN = Row(T, "a", 2, "running", "the command runs: process 4120, run 1")


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_hold_ends_where_its_newest_renewal_says() -> None:
    spans = Spans()
    for ends_ms in (T + 1_000, T + 1_400, T + 1_200):
        spans.hear_hold("a", 7, ends_ms, 1_000)
    assert spans.holds == {("a", 7): (T + 400, T + 1_400)}
    for token in range(2 * HOLDS_MAX):
        spans.hear_hold("a", token, T, 1_000)
    assert len(spans.holds) == HOLDS_MAX


def test_signatures_are_kept_once_and_in_order() -> None:
    def chain(*numbers: int) -> Chain:
        return Chain(newest=tuple(Signature(n, T + n, "a", 7, n, 200) for n in reversed(numbers)))

    spans = Spans()
    spans.hear_chain(chain(1, 2, 3))
    spans.hear_chain(chain(2, 3, 4))
    assert list(spans.signatures) == [1, 2, 3, 4]
    spans.hear_chain(chain(1, 2))
    assert list(spans.signatures) == [1, 2], "another chain"
    spans.hear_chain(chain(*range(3, SIGNATURES_MAX + 10)))
    assert (len(spans.signatures), max(spans.signatures)) == (SIGNATURES_MAX, SIGNATURES_MAX + 9)


def test_reads_of_a_clock_narrow_it_and_one_that_was_set_counts_anew() -> None:
    spans = Spans()
    spans.hear_clock("a", T + 500, T, T + 40)
    spans.hear_clock("a", T + 1_490, T + 1_000, T + 1_010)
    assert spans.clocks()["a"] == (479.0, 491.0)
    spans.hear_clock("a", T + 2_000, T + 2_000, T + 2_010)
    assert spans.clocks()["a"] == (-11.0, 1.0)
    spans.hear_clock("b", 0, T, T)
    assert "b" not in spans.clocks(), "it did not tell its time"


def test_a_document_says_its_time() -> None:
    found = cluster_of({"nodes": [], "at": "2026-11-15T00:00:00.250Z"})
    assert found is not None
    assert found.at_unix_ms % 1_000 == 250


# --- the timeline of the page -----------------------------------------------------------------------------------------


def test_the_page_knows_tokens_holds_and_who_acts() -> None:
    spans = Spans()
    spans.hear_hold("a", BASE + 2, T + 5_900, 1_000)
    spans.hear_clock("a", T, T - 1, T + 1)
    found = cluster_timeline(known([RUN]), spans, T + 5_000)
    assert [(run.token, run.end, run.to_ms) for run in found.runs] == [(BASE + 2, "open", T + 5_000)]
    assert [tuple(hold) for hold in found.holds] == [(0, T + 4_900, T + 5_900, BASE + 2)]
    assert [(node.name, node.clock) for node in found.nodes] == [("a", "read"), ("b", "unknown")]
    assert (found.title, found.kind) == ("billing · scheduler · raft", "cluster")


def test_the_nodes_of_a_lab_read_one_clock() -> None:
    assert {node.clock for node in cluster_timeline(known([RUN], lab=True), Spans(), T).nodes} == {"machine"}


# --- the files --------------------------------------------------------------------------------------------------------


EVENTS = [
    {"number": 1, "at_unix_ms": T, "node": "a", "term": 2, "code": "elected", "text": "a leads (term 2)", "value": 0},
    {"number": 2, **RUN._asdict()},
]


def test_an_exported_timeline_says_whose_log_it_is() -> None:
    cluster = {
        "cluster": "billing",
        "election": "scheduler",
        "strategy": "raft",
        "seen_from": "a",
        "nodes": [{"node": "a", "term": 2, "token": BASE + 2}, {"node": "b", "term": 2, "token": None}],
        "acting": ["a"],
    }
    found = timeline(EVENTS, cluster)
    assert [(node.name, node.clock) for node in found.nodes] == [("a", "axis"), ("b", "unknown")]
    assert [(run.token, run.end) for run in found.runs] == [(BASE + 2, "open")]
    assert "As node a kept it." in found.notes


def test_of_a_dead_node_nothing_is_shown_as_running() -> None:
    found = timeline(EVENTS, {})
    assert [(run.end, run.sure_ms, run.to_ms) for run in found.runs] == [("unknown", T, T)]


def test_the_link_leads_to_the_last_change() -> None:
    assert timeline_link([T], []) == f"/dashboard#/timeline?from={T - 5_000}&to={T + 5_000}&at={T}"
    assert timeline_link([], EVENTS).endswith(f"at={T}")


def test_a_file_is_whole_and_hostile_names_stay_names() -> None:
    evil = "</script><script>alert(1)</script><!--{{title}}"
    text = page(timeline([{**EVENTS[0], "node": evil, "text": f"{evil} leads"}], {"cluster": evil, "seen_from": evil}))
    assert evil not in text
    assert text.count("<script") == 2
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", text)
