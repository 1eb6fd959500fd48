"""What a command that waits takes for the outcome of its order."""

from __future__ import annotations

from typing import Any, cast

import pytest

from primacy.cli import outcome
from primacy.cli.local import Local
from primacy.cli.outcome import Patience, is_settled, leader_of, sentence, wait_for_end, why_not
from primacy.errors import Refused

pytestmark = pytest.mark.coverage


def row(node: str, role: str | None = "follower", **more: Any) -> dict[str, Any]:
    work = {"kind": more.pop("kind", "process"), "state": more.pop("state", "stopped")}
    said = {"node": node, "role": role, "term": 4, "waits_for": None, "health": "ok", "workload": work}
    return {**said, **({"workload": None} if role is None else {}), **more}


def test_a_leader_is_one_who_says_so_itself_in_this_term() -> None:
    state = {"leader": "b", "term": 4}
    assert leader_of(state, {"b": row("b", "leader")})[0] == "b"
    assert leader_of(state, {"b": row("b", "leader", term=3)})[0] == "", "what it says is older than what is known here"
    assert leader_of(state, {"b": row("b")})[0] == ""
    assert leader_of(state, {"b": row("b", None)}) == ("b", None), "of Ghoti's nodes nothing more is known"
    assert leader_of(state, {}) == ("b", None)
    assert leader_of({"leader": None, "term": 4}, {}) == ("", None)


def test_it_waits_until_the_command_runs_or_waits_for_a_person() -> None:
    assert is_settled(row("b", "leader", state="running"))
    assert is_settled(row("b", "leader", kind="none"))
    assert is_settled(row("b", "leader", state="waiting", waits_for="an approval: primacy approve b --term 4"))
    assert is_settled(None)
    for state in ("starting", "stopping", "waiting", "stopped"):
        assert not is_settled(row("b", "leader", state=state))


@pytest.mark.parametrize(
    ("found", "part"),
    [
        (None, "it is not heard"),
        (row("b", None), "it is not heard"),
        (row("b", "paused"), "primacy resume"),
        (row("b", health="the probe failed"), "it is not well: the probe failed"),
        (row("b", waits_for="c"), "it waits for c"),
        (row("b"), "did not get the votes in time; primacy why"),
    ],
)
def test_another_leader_is_told_with_the_reason(found: dict[str, Any] | None, part: str) -> None:
    assert part in why_not(found)


class Told:
    """A node that says of node b what is in the list, one after the other."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)

    def get(self, path: str) -> Any:
        if path == "/v1/state":
            return {"looks": len(self.rows)}
        return {"nodes": [self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]]}


def told(*rows: dict[str, Any]) -> Local:
    return cast(Local, Told(*rows))


def test_an_end_is_what_the_node_says_after_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of it elsewhere may be from before it led: nothing runs there, it said."""
    monkeypatch.setattr(outcome, "EVERY_S", 0.001)
    before = row("b", told_ms=60_000)
    rows = [before, row("b", "leader", state="running", told_ms=0), row("b", "paused", state="stopping", told_ms=0)]
    assert wait_for_end(told(*rows, row("b", "paused", told_ms=0)), "b", 60_000) == {"looks": 1}
    with pytest.raises(Refused, match="node b has said nothing since"):
        wait_for_end(told(before), "b", 10)
    with pytest.raises(Refused, match="node b still leads"):
        wait_for_end(told(row("b", "leader", state="running", told_ms=0)), "b", 10)
    assert wait_for_end(told(row("b", None, told_ms=None)), "b", 10) == {"looks": 1}, "it never tells anything here"


def test_the_outcome_is_one_sentence() -> None:
    state = {"leader": "b", "term": 4}
    assert sentence(state, row("b", state="running")) == "node b leads (term 4), and runs the command"
    assert sentence(state, row("b", kind="none")) == "node b leads (term 4)"
    assert sentence(state, row("b", state="waiting", waits_for="x")) == "node b leads (term 4), and waits for x"
    assert sentence(state) == "node b leads (term 4)"


def test_no_time_counts_while_the_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    patience = Patience(0)
    for _ in range(3):
        patience.spend(row("a", "leader", state="stopping"), "never said")
    assert capsys.readouterr().err == "waits: the command on a is ending\n"
    with pytest.raises(Refused, match="not within 0 ms: nobody leads"):
        patience.spend(row("a", "leader"), "nobody leads")
