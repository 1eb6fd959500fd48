"""The history of the last day, with what nobody should have written: in its files, in options, and at odd hours."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from primacy.cli import why
from primacy.control import ADDRESS_FILE, history
from primacy.control.client import LOCK_FILE, FoundNode
from primacy.control.eventlog import kept as kept_events
from primacy.control.history_scan import event_line
from primacy.errors import CannotHere, Later, Refused
from primacy.timeline.history import Past, incident, past_of
from primacy.timeline.page import page
from tests.contracts.test_cli import Said, say  # noqa: F401
from tests.contracts.test_why_stopped import T, kept

Say = Callable[..., Said]
GOOD = event_line(T, "elected", "a", 1, 1, 0, "a leads")


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks are set back there on 25 October 2026, from 03:00 to 02:00, and forward on 29 March, from 02:00."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        b'[1,"",' + b"[" * 3_000 + b'",5,6]\n',
        event_line(T, "elected", "a", 1, 2, 0, "half a character: \ud800"),
        event_line(T, "elected", "\udcff", 1, 2, 0, "a leads"),
        event_line(10**15 - 2, "elected", "a", 1, 2, 0, "in the year 33658"),
        event_line(-1, "elected", "a", 1, 2, 0, "before 1970"),
    ],
)
def test_a_line_that_nobody_should_have_written_costs_itself_only(bad: bytes, tmp_path: Path) -> None:
    head = json.dumps({"history": 0, "at": T}).encode() + b"\n"
    (tmp_path / history.name_of(0)).write_bytes(head + bad + GOOD)
    said = history.kept(str(tmp_path))
    past = past_of(json.loads(json.dumps(said)))
    assert past is not None
    assert [one.text for one in past.told] == ["a leads"]
    assert "a leads" in "".join(why.lines(why.rows_of(said)))
    page(incident([past], {}, 0)).encode()


@pytest.mark.parametrize("at_ms", [10**15 - 2, 10**40, -5, True, "1"])
def test_a_file_that_was_begun_at_no_date_is_none_of_ours(at_ms: object, tmp_path: Path) -> None:
    (tmp_path / history.name_of(0)).write_bytes(json.dumps({"history": 0, "at": at_ms}).encode() + b"\n" + GOOD)
    assert history.kept(str(tmp_path))["kept_from_ms"] == 0


def test_a_document_that_says_a_date_that_is_none_has_kept_nothing() -> None:
    past = past_of({"events": [[10**15 - 2, "elected", "a", 1, 1, 0, "a leads"]], "kept_from_ms": 10**15 - 1})
    assert past is not None
    assert (past.kept_from_ms, past.told, past.sentence()) == (0, (), "")


def test_events_that_nobody_should_have_written_are_left_out(tmp_path: Path) -> None:
    """They are read as an agent starts."""
    row = {"number": 1, "at_unix_ms": T, "node": "a", "term": 1, "code": "elected", "text": "a leads", "value": 0}
    bad = [{**row, "text": "\ud800"}, {**row, "at_unix_ms": 10**20}, {**row, "at_unix_ms": -1}]
    lines = [json.dumps(one).encode() for one in (*bad, row)]
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"\n".join([b"[" * 100_000, b'{"a":' * 10_000, *lines]) + b"\n")
    assert [entry.text for entry in kept_events(str(file))] == ["a leads"]


# --- moments ----------------------------------------------------------------------------------------------------------


def moment_of(option: str, text: str) -> int:
    parameter = click.Option([option])
    return why.Moment().convert(text, parameter, None)


def test_an_hour_that_comes_twice_is_in_the_range_twice(zone: None) -> None:
    first, second = moment_of("--from", "2026-10-25T02:30"), moment_of("--to", "2026-10-25T02:30")
    assert second - first == 3_600_000
    assert moment_of("--from", "2026-10-25T02:30+01:00") == moment_of("--to", "2026-10-25T02:30+01:00") == second
    assert moment_of("--from", "2026-10-24T02:30") == moment_of("--to", "2026-10-24T02:30")


def test_an_hour_that_never_comes_makes_no_range_that_ends_before_it_begins(zone: None) -> None:
    assert moment_of("--from", "2026-03-29T02:30") <= moment_of("--to", "2026-03-29T02:30")


def test_where_to_go_on_is_said_with_its_zone(zone: None) -> None:
    """Of two times 02:30 it is this one."""
    second = moment_of("--to", "2026-10-25T02:30")
    words = why._left_words(5, [{"at_unix_ms": second}])
    assert words.endswith("go on with --to 2026-10-25T02:30:00+01:00")
    assert moment_of("--to", words.rpartition(" ")[2]) == second


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.9999", "9999-01-01T12:00", "1969-01-01", "25:00", "-5", ""])
def test_a_moment_that_cannot_be_shown_is_refused(say: Say, text: str) -> None:  # noqa: F811
    said = say("why", "--from", text, "--to", "22:05", "--state-dir", "state")
    assert (said.code, said.err.startswith(f"primacy: --from {text!r}: a moment is")) == (2, True)


def test_a_range_of_which_nothing_is_kept_is_not_said_to_be_quiet(say: Say, tmp_path: Path) -> None:  # noqa: F811
    kept(tmp_path / "state/primacy/main")
    asked = ("why", "--state-dir", "state")
    assert say(*asked, "--to", "2020-01-01").out.startswith("nothing is known of this range; it is kept since")
    assert say(*asked, "--from", "9998-01-01").out.startswith(
        "this range begins later than now, at 9998-01-01 00:00:00"
    )
    assert say(*asked, "--since", "1ms").out.startswith("nothing happened in this range; it is kept since")


# --- who answers ------------------------------------------------------------------------------------------------------


def test_a_node_that_has_too_many_readers_is_not_taken_for_one_of_an_earlier_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That one has its last events only; and nobody would be told that the range is not whole."""
    asked: list[str] = []
    refusal: list[Refused] = [Later("8 others wait")]

    def ask(_found: FoundNode, path: str) -> object:
        asked.append(path)
        if path.startswith("/v1/history"):
            raise refusal[0]
        return []

    monkeypatch.setattr(why, "ask", ask)
    node = FoundNode("127.0.0.1", 1, "")
    with pytest.raises(Later):
        why._asked(node, why.Range())
    assert len(asked) == 1
    refusal[0] = Refused("refused with 404")
    assert why._asked(node, why.Range()) == {"events": []}


def test_a_node_that_runs_and_does_not_answer_is_not_said_to_be_gone(say: Say, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "state/primacy/main"
    kept(folder)
    with (folder / LOCK_FILE).open("w"):
        (folder / ADDRESS_FILE).write_text(json.dumps({"host": "127.0.0.1", "port": 1, "pid": os.getpid()}))
        for words in ((), ("--since", "1h"), ("--from", "2020-01-01")):
            said = say("why", "--state-dir", "state", *words)
            assert "the node here does not answer; this is what it kept:" in said.err
    said = say("why", "--state-dir", "state")
    assert "no node runs here; this is what it kept:" in said.err


# --- the file of --export ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["told.json", "told.html"])
def test_a_file_that_cannot_be_written_whole_is_not_left_behind(name: str, tmp_path: Path) -> None:
    """Else the next try would be refused: it is there already."""
    path, drawn = tmp_path / name, incident([Past()], {}, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(CannotHere, match="File too large"):
            why._export(str(path), {"events": ["x" * 1_000]}, drawn)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, heard)
    assert not path.exists()
    why._export(str(path), {"events": []}, drawn)
    assert path.stat().st_size > 0
