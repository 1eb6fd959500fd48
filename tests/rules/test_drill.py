"""The judge of drills, from records that are written here: what is kept, what is not, and what cannot be judged."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from primacy.cli.drill import _confirm
from primacy.drill.attempt import Attempt
from primacy.drill.catalogue import CLUSTER, LAB, SCENARIOS, Scenario, chosen, known, offered
from primacy.drill.judge import Finding, Limits, Played, Verdict, judged
from primacy.drill.page import page
from primacy.drill.record import Doubles, Record, Signature, Standing
from primacy.drill.report import all_kept, document, verdict
from primacy.drill.target import Subject
from primacy.errors import Refused, UsageError
from primacy.settings.contract import Contract, contract
from primacy.settings.timing import PROFILES

TIMING = PROFILES["lab"]
MADE = contract(TIMING, "raft")
assert isinstance(MADE, Contract)
LIMITS = Limits(MADE, 25)
BASE, T0 = 1_794_000_000_000, 1_800_000_000_000
"""What tokens have more than terms; and when the fault begins."""
BY_NAME = {each.name: each for each in SCENARIOS}


def record(*events: tuple[int, str, int, str, str]) -> Record:
    """(milliseconds after the fault, node, term, code, text)."""
    made = Record()
    left = {"stopping": 150}  # until KILL: an end within this time is known
    rows = [
        {"number": n, "at_unix_ms": T0 + at, "node": node, "term": term, "code": code, "text": text}
        | {"value": left.get(code, 0)}
        for n, (at, node, term, code, text) in enumerate(events, 1)
    ]
    made.add_events(rows)
    made.token_base, made.names = BASE, ("a", "b", "c")
    return made


def runs(at: int, node: str, term: int) -> tuple[int, str, int, str, str]:
    return at, node, term, "running", f"the command runs: run 1 (term {term})"


def gone(at: int, node: str, term: int) -> tuple[int, str, int, str, str]:
    return at, node, term, "gone", "nothing of the command is left"


def told_to_end(at: int, node: str, term: int) -> tuple[int, str, int, str, str]:
    return at, node, term, "stopping", "the command is told to end"


def findings(name: str, made: Record, **more: Any) -> dict[str, Finding]:
    """Judged as if the fault were complete after 5 ms, and everything watched for five seconds."""
    standing = {"before": Standing("a", BASE + 1), "after": Standing("b", BASE + 2)}
    moments = {"from_ms": T0, "done_ms": T0 + 5, "mended_ms": T0 + 2_000, "to_ms": T0 + 5_000}
    played = Played(BY_NAME[name], **{**standing, **moments, **more})
    drawn = made.timeline("a drill", T0 + 5_000, one_machine=True)
    return {each.what: each for each in judged(played, drawn, made, LIMITS)}


def verdicts(found: dict[str, Finding]) -> set[Verdict]:
    return {each.verdict for each in found.values()}


def test_a_failover_within_the_bounds_is_kept() -> None:
    made = record(runs(-1_000, "a", 1), runs(600, "b", 2))
    made.signatures = [Signature(T0 + 300, "a", BASE + 1, 100), Signature(T0 + 620, "b", BASE + 2, 320)]
    made.has_chain = True
    found = findings("power", made)
    assert verdicts(found) == {Verdict.KEPT}, found
    assert found["the old command is dead, after the fault"].measured_ms == 300
    assert found["the next start, after the fault"].measured_ms == 600
    assert found["the next start, after the fault"].promised_ms == MADE.failover_worst_ms
    assert found["nobody ran it"].measured_ms == 300


def test_a_fault_that_took_long_to_be_complete_is_not_judged_where_that_decides() -> None:
    made = record(runs(-1_000, "a", 1), runs(1_500, "b", 2))
    made.has_chain = True
    what = "the next start, after the fault"
    found = findings("one-way", made, done_ms=T0 + 900)[what]
    assert (found.verdict, found.measured, found.again) == (Verdict.NOT_JUDGED, "600 to 1,500 ms", True)
    assert findings("one-way", made, done_ms=T0 + 100)[what].verdict is Verdict.NOT_KEPT


def test_an_old_command_that_signs_too_long_is_found() -> None:
    made = record(runs(-1_000, "a", 1), runs(900, "b", 2))
    made.signatures, made.has_chain = [Signature(T0 + 700, "a", BASE + 1, 100)], True
    assert findings("freeze", made)["the old command is dead, after the fault"].verdict is Verdict.NOT_KEPT


def test_a_start_that_is_late_is_found_and_not_judged_on_a_machine_that_was_late() -> None:
    made = record(runs(-1_000, "a", 1), runs(3_000, "b", 2))
    made.has_chain = True
    late = "the next start, after the fault"
    assert findings("power", made)[late].verdict is Verdict.NOT_KEPT
    made.late.append((T0 + 1_000, 400))
    found = findings("power", made)[late]
    assert found.verdict is Verdict.NOT_JUDGED
    assert "late by 400 ms" in found.why
    made.late[:] = [(T0 - 60_000, 400)]  # long before
    assert findings("power", made)[late].verdict is Verdict.NOT_KEPT


def test_an_agent_that_says_it_woke_late_counts_but_not_the_one_that_was_struck() -> None:
    said = "woke 1,200 ms late: this machine stood still"
    for node, expected in (("c", Verdict.NOT_JUDGED), ("a", Verdict.NOT_KEPT)):
        made = record(runs(-1_000, "a", 1), (500, node, 1, "late", f"node {node} {said}"), runs(3_000, "b", 2))
        made.has_chain = True
        assert findings("power", made)["the next start, after the fault"].verdict is expected


def test_nobody_who_starts_is_never_excused() -> None:
    made = record(runs(-1_000, "a", 1))
    made.has_chain = True
    made.late.append((T0 + 1_000, 4_000))
    found = findings("power", made, after=Standing())
    assert found["the next start, after the fault"].verdict is Verdict.NOT_KEPT
    assert found["the next token"].verdict is Verdict.NOT_KEPT


def test_two_at_once_are_found_on_a_late_machine_too() -> None:
    """By the timeline, and by the chain."""
    made = record(runs(-1_000, "a", 1), runs(100, "b", 2), told_to_end(400, "a", 1), gone(410, "a", 1))
    made.acting = {"b": T0 + 4_000}
    made.late.append((T0 + 200, 4_000))
    found = findings("stop", made)["copies of the command at once"]
    assert found.verdict is Verdict.NOT_KEPT
    assert found.why == "a and b ran at once"
    assert found.at_ms == T0 + 100
    quiet = record(runs(-1_000, "a", 1), runs(600, "b", 2))
    quiet.doubles = Doubles(1, ("a signs height 7 after b had begun",))
    found = findings("power", quiet, doubles=1)["copies of the command at once"]
    assert found.verdict is Verdict.NOT_KEPT
    assert found.measured == "two, once"
    assert found.why == "the chain recorded 1 double signature; a signs height 7 after b had begun"
    found = findings("power", quiet, doubles=1_200)["copies of the command at once"]
    assert found.measured == "two, 1,200 times"
    assert found.why.startswith("the chain recorded 1,200 double signatures; ")
    assert findings("power", quiet, doubles=0)["copies of the command at once"].verdict is Verdict.KEPT


def test_a_planned_stop_is_judged_from_the_confirmed_end() -> None:
    made = record(runs(-1_000, "a", 1), told_to_end(0, "a", 1), gone(2_500, "a", 1), runs(2_600, "b", 2))
    found = findings("stop", made)
    assert verdicts(found) == {Verdict.KEPT}
    assert found["the next start, after the confirmed end"].measured_ms == 100
    slow = record(runs(-1_000, "a", 1), told_to_end(0, "a", 1), gone(3_500, "a", 1), runs(4_100, "b", 2))
    found = findings("stop", slow)
    assert found["the command ends, after the request"].verdict is Verdict.NOT_KEPT
    assert found["the next start, after the confirmed end"].verdict is Verdict.NOT_KEPT


def test_a_token_that_does_not_grow_and_the_wrong_successor_are_found() -> None:
    made = record(runs(-1_000, "a", 1), gone(100, "a", 1), runs(200, "b", 2))
    assert findings("transfer", made, after=Standing("b", BASE + 1))["the next token"].verdict is Verdict.NOT_KEPT
    found = findings("transfer", made, after=Standing("b", BASE + 2), successor="c")["the next token"]
    assert (found.verdict, found.why) == (Verdict.NOT_KEPT, "b leads, not c")


def test_a_role_that_should_stay() -> None:
    made = record(runs(-1_000, "a", 1))
    same = Standing("a", BASE + 1)
    assert verdicts(findings("child", made, after=same)) == {Verdict.KEPT}
    assert verdicts(findings("link", made)) == {Verdict.KEPT, Verdict.NOT_KEPT}
    moments = {"mended_ms": T0 + 70}
    assert verdicts(findings("stall", made, after=same, **moments)) == {Verdict.KEPT}
    assert verdicts(findings("stall", made, **moments)) == {Verdict.KEPT, Verdict.NOT_KEPT}
    assert Verdict.NOT_JUDGED in verdicts(findings("stall", made, mended_ms=T0 + 900)), "it stood still for too long"


def test_an_outage_has_no_start_before_it_is_over() -> None:
    made = record(runs(-1_000, "a", 1), runs(2_300, "b", 2))
    made.has_chain = True
    assert verdicts(findings("halves", made)) == {Verdict.KEPT}
    early = record(runs(-1_000, "a", 1), runs(1_300, "b", 2))
    early.has_chain = True
    assert findings("halves", early)["starts while nobody may run it"].verdict is Verdict.NOT_KEPT


def test_without_an_outside_system_an_end_that_nobody_reported_is_not_judged() -> None:
    made = record(runs(-1_000, "a", 1), runs(600, "b", 2))
    assert findings("freeze", made)["the old command is dead, after the fault"].verdict is Verdict.NOT_JUDGED


# --- the catalogue ----------------------------------------------------------------------------------------------------


def test_all_never_goes_beyond_the_quorum_and_fits_the_strategy() -> None:
    assert not any(each.beyond_quorum for each in chosen((), LAB, "raft", beyond_quorum=False))
    assert "halves" in [each.name for each in chosen((), LAB, "raft", beyond_quorum=True)]
    assert "minority" not in [each.name for each in offered(LAB, "lease")]
    assert {each.name for each in offered(CLUSTER, "lease")} == {"step-down", "transfer", "pause"}
    for names, on, part in (
        (("sideways",), LAB, "no scenario for a lab of raft; there are stop, kill"),
        (("power",), CLUSTER, "no scenario for a cluster that is no lab of raft"),
        (("halves",), LAB, "add --beyond-quorum"),
    ):
        with pytest.raises(UsageError, match=part):
            chosen(names, on, "raft", beyond_quorum=False)
    known(("power", "pause"))
    with pytest.raises(UsageError, match="--scenario sideways: there is no such scenario; there are stop, kill"):
        known(("sideways",))


# --- the report -------------------------------------------------------------------------------------------------------

KEPT = Finding("copies of the command at once", "never two", "never two were seen", Verdict.KEPT)
OPEN = Finding("the next start", "within 1 ms", "9 ms", Verdict.NOT_JUDGED, "this machine was late by 90 ms")
BROKEN = KEPT._replace(verdict=Verdict.NOT_KEPT)
POWER: Scenario = BY_NAME["power"]


def attempt(*found: Finding, number: int = 1, outcome: str = "played") -> Attempt:
    return Attempt(POWER, outcome, findings=found, attempt=number)


def test_only_what_was_played_and_judged_is_kept() -> None:
    assert all_kept([attempt(KEPT)])
    assert not all_kept([])
    assert not all_kept([Attempt(POWER, "skipped", "one node is down")])
    assert not all_kept([attempt(KEPT, OPEN)])
    assert not all_kept([attempt(KEPT, outcome="interrupted")])
    assert all_kept([attempt(KEPT, OPEN), attempt(KEPT, KEPT, number=2)]), "it was repeated, and judged then"
    assert not all_kept([attempt(BROKEN, OPEN), attempt(KEPT, number=2)]), "two at once are never made good"
    assert verdict([attempt(KEPT)]).startswith("all kept: 1 promises, 1 fault played")
    assert verdict([attempt(BROKEN)]).startswith("NOT KEPT: copies of the command at once (power)")
    assert verdict([attempt(KEPT, OPEN)]).startswith("not judged: 1 of 2")
    assert "not played: power" in verdict([Attempt(POWER, "skipped", "one node is down")])


def test_the_page_is_whole_and_nothing_in_it_can_run_but_its_own_script() -> None:
    hostile = "</script><script>alert(1)</script>"
    made = record(runs(-1_000, "a", 1), (0, "", 0, "lab", hostile), runs(600, "b", 2))
    subject = Subject(hostile, "raft", "lab", LAB, 3, MADE, TIMING, "somewhere", "billing")
    drawn = made.timeline(hostile, T0 + 5_000, one_machine=True)
    said = document(subject, [POWER], [attempt(KEPT)], drawn, (T0, T0 + 5_000))
    written = page(json.loads(json.dumps(said)))
    assert written.count("<script") == 2
    assert "alert(1)</script>" not in written
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', written)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    data = re.search(r'id="data">(.*?)</script>', written)
    assert data is not None
    found = json.loads(data[1])
    assert (found["kind"], found["drill"]["verdict"]) == ("drill", "all kept: 1 promises, 1 fault played")
    assert not re.search(r'(?:src|href)=["\']', written)


# --- before anything is broken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("billing\n", ""),
        (" billing \n", ""),
        ("yes\n", "the answer was not the name of the cluster, billing"),
        ("Billing\n", "the answer was not the name of the cluster, billing"),
        ("\n", "the answer was not the name of the cluster, billing"),
        ("", "nobody answered; if you are sure, say --yes"),
    ],
)
def test_a_drill_of_a_cluster_goes_on_only_after_its_name_was_typed(
    typed: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    subject = Subject("billing · main", "raft", "lab", CLUSTER, 3, MADE, TIMING, "primacy.yaml", "billing")
    plan = [each for each in SCENARIOS if each.on == CLUSTER]
    if why:
        with pytest.raises(Refused, match=rf"^nothing was done: {why}$"):
            _confirm(subject, plan, yes=False)
    else:
        _confirm(subject, plan, yes=False)
    out, err = capsys.readouterr()
    assert not out, "standard output is the report's"
    assert "step-down, transfer, pause" in err
    assert "Type the name of the cluster to go on: " in err


def test_a_lab_is_not_asked_about_and_neither_is_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    for on, yes in ((LAB, False), (CLUSTER, True)):
        _confirm(Subject("", "raft", "lab", on, 3, MADE, TIMING, "", "billing"), [], yes=yes)
