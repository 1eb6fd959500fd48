"""The trace page: one file, everything of a trial in it, nothing that a name or a text could break."""

from __future__ import annotations

import html.parser
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from primacy.election.events import Code
from primacy.election.messages import Coordinator, Heartbeat, Origin, VoteReply, VoteRequest
from primacy.election.model import Member
from primacy.sim import trace
from primacy.sim.facts import Fact, Kind
from primacy.sim.sentences import SAYS, sentence
from primacy.sim.trace import Kept, Recorder, Recording, Row, page, recorded, timeline_of
from primacy.sim.trials.raft import run_trial
from primacy.sim.trials.trial import Plan
from primacy.timeline import SCHEMA

PLAN = Plan(nodes=3, minutes=1.0)
ORIGIN = Origin("a")


@pytest.fixture(scope="module")
def recording() -> Recording:
    return recorded(PLAN, 5)


def data_of(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    document = json.loads(found.group(1))
    assert isinstance(document, dict)
    return document


def test_recording_changes_nothing(recording: Recording) -> None:
    assert recording.outcome == run_trial(PLAN, 5)


def test_the_page_is_one_file_with_nothing_from_outside(recording: Recording) -> None:
    text = page(recording)
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://|\bimport\b[^a-z]*["']""", text)
    assert "default-src 'none'; script-src 'sha256-" in text
    assert "unsafe" not in text
    assert "{{" not in text


def test_a_leader_is_drawn_with_its_term(recording: Recording) -> None:
    """Of a trial of raft: the term of every leader, and no term twice."""
    terms = [row[4] for row in recording.roles if row[3] == "leader"]
    assert terms
    assert 0 not in terms
    assert len(set(terms)) == len(terms)


def test_the_page_holds_the_trial(recording: Recording) -> None:
    data = data_of(page(recording))
    assert data["nodes"] == [
        {"name": name, "offset_ms": 0.0, "uncertainty_ms": 0.0, "clock": "axis"} for name in ("n1", "n2", "n3")
    ]
    assert (data["timeline"], data["axis"], data["kind"], data["to_ms"]) == (SCHEMA, "trial", "trial", 60_000)
    for part in ("roles", "runs", "decisions", "messages", "routine", "faults", "labels", "gaps"):
        assert data[part], part
    for part in ("roles", "runs", "faults"):
        rows = data[part]
        assert isinstance(rows, list)
        assert all(0 <= row[1] <= row[2] <= 60_000 for row in rows), part


def test_roles_of_a_node_neither_overlap_nor_leave_a_gap(recording: Recording) -> None:
    for node in range(3):
        rows = [row for row in recording.roles if row[0] == node]
        assert all(a[2] == b[1] for a, b in pairwise(rows))
        assert rows[-1][2] == 60_000


def test_texts_cannot_leave_their_place(recording: Recording) -> None:
    evil = "</script><script>alert(1)</script><!--"
    recording = trace._record(Plan(nodes=3, minutes=1.0, members=(Member(evil), Member("b"), Member("c"))), 5, 0.0)
    text = page(recording)
    assert evil not in text
    nodes = data_of(text)["nodes"]
    assert isinstance(nodes, list)
    assert [node["name"] for node in nodes] == [evil, "b", "c"]
    assert text.count("<script") == 2


def test_the_page_is_well_formed(recording: Recording) -> None:
    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "input"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    tags = Tags()
    tags.feed(page(recording))
    assert tags.open == []


def test_the_size_is_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MESSAGES_MAX", 10)
    short = recorded(PLAN, 5)
    assert len(short.messages.rows) == len(short.routine.rows) == 10
    left_out = data_of(page(short))["left_out"]
    assert isinstance(left_out, list)
    assert [text.split(" ", 1)[1] for text in left_out] == ["heartbeats", "other messages"]


def test_a_long_trial_is_drawn_around_its_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MESSAGES_MAX", 10)
    monkeypatch.setattr(trace, "BEFORE_MS", 1_000)
    real = trace._record

    def violated(plan: Plan, seed: int, from_ms: float) -> Recording:
        found = real(plan, seed, from_ms)
        found.outcome.violations.append(trace_violation)
        return found

    from primacy.sim.checkers import Violation

    trace_violation = Violation(30_000.0, "I1", "two at once")
    monkeypatch.setattr(trace, "_record", violated)
    recording = recorded(PLAN, 5)
    assert recording.from_ms == 29_000
    assert all(row[0] >= 29_000 for row in recording.routine.rows + recording.marks.rows)
    assert data_of(page(recording))["violations"] == [[30_000.0, "I1", "two at once"]]


# --- the recorder -----------------------------------------------------------------------------------------------------


def told(*facts: Fact) -> Recorder:
    recorder = Recorder()
    for fact in facts:
        recorder.fact(fact)
    return recorder


def test_faults_end_when_they_are_calmed_or_with_the_calm() -> None:
    recorder = told(
        Fact(1.0, Kind.FAULT, "a", 1, "stopped"),
        Fact(2.0, Kind.FAULT, "", 2, "partition"),
        Fact(3.0, Kind.FAULT, "", 0, "failed over"),
        Fact(4.0, Kind.CALM, "a", 1, "stopped"),
        Fact(4.0, Kind.CALM, "a", 9, "unknown"),
    )
    recorder.close(10.0, 7.0)
    assert recorder.faults.rows == [
        [-1, 3.0, 3.0, "failed over"],
        [0, 1.0, 4.0, "stopped"],
        [-1, 2.0, 7.0, "partition"],
    ]


def test_overlaps_are_found_in_true_time(recording: Recording) -> None:
    work: list[Row] = [[0, 0.0, 10.0, 1, 1], [1, 8.0, 20.0, 2, 1], [2, 9.0, 9.5, 3, 1], [0, 20.0, 30.0, 4, 1]]
    found = timeline_of(replace(recording, work=work)).overlaps
    assert [row[:2] for row in found] == [(8.0, 10.0), (9.0, 9.5), (9.0, 9.5)]


def test_work_that_still_runs_is_drawn_to_the_end() -> None:
    recorder = told(Fact(5.0, Kind.WORK_STARTED, "a", 7, "1", 1, "900"))
    recorder.close(10.0, None)
    assert recorder.work.rows == [[0, 5.0, 10.0, 7, 1]]


def test_heartbeats_are_kept_apart() -> None:
    recorder = Recorder()
    recorder.message(1.0, "a", "b", Heartbeat(ORIGIN, 1, 1, 500, True), 0.5)
    recorder.message(2.0, "a", "b", VoteRequest(ORIGIN, 2, True), -1.0)
    recorder.message(3.0, "b", "a", VoteReply(ORIGIN, 2, False, True, 1, 2), 0.5)
    recorder.message(4.0, "a", "b", Coordinator(ORIGIN, 3), 0.5)
    recorder.message(5.0, "a", "b", Coordinator(ORIGIN, 3), 0.5)
    recorder.message(6.0, "a", "b", Coordinator(ORIGIN, 4), 0.5)
    assert [row[0] for row in recorder.routine.rows] == [1.0, 5.0]
    assert [row[0] for row in recorder.messages.rows] == [2.0, 3.0, 4.0, 6.0]
    assert recorder.messages.rows[0] == [2.0, 0, 1, -1.0, 1]
    assert list(recorder.labels)[:3] == ["Heartbeat (term 1)", "would you vote (term 2)", "vote: yes (term 2)"]


def test_a_full_list_counts() -> None:
    kept = Kept(1)
    kept.add([1])
    kept.add([2])
    assert (kept.rows, kept.left_out) == ([[1]], 1)


# --- sentences --------------------------------------------------------------------------------------------------------


def test_every_code_has_a_sentence() -> None:
    missing = [code for code in Code if code not in SAYS]
    assert not missing


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_fact_can_be_told(kind: Kind) -> None:
    for number in (0, 1, 2):
        text = sentence(Fact(1.0, kind, "a", number, "x", number, "900"))
        assert "{" not in text
        assert bool(text) == (kind not in (Kind.ROLE, Kind.LEADER, Kind.CALM))


def test_a_sentence_says_node_what_term_and_why() -> None:
    fact = Fact(1.0, Kind.EVENT, "a", 7, Code.MAJORITY_LOST, 0, "", "no majority acked a heartbeat in time")
    assert sentence(fact) == "a lost its majority and stops its work (term 7): no majority acked a heartbeat in time"
    assert sentence(Fact(1.0, Kind.EVENT, "a", 0, "some-new-code")) == "a some new code"
    assert sentence(Fact(1.0, Kind.EVENT, "a", 3, Code.PROMISE_REFUSED, 1200, "b")).startswith("a refuses b its vote")
