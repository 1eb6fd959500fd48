"""`primacy why --export` of a node that does not run any more: at most one is claimed only where it is promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primacy.cli.why import STRATEGY_NOT_KNOWN
from tests.contracts.test_cli import Said, say  # noqa: F401

Say = Callable[..., Said]
T = 1_794_700_000_000


def kept(folder: Path) -> None:
    """The events of two nodes that ran at the same time, as one of them wrote them down."""
    folder.mkdir(parents=True)
    runs = "the command runs: process 41, run 1"
    rows = [
        (T, "a", "elected", "a leads (term 1)"),
        (T + 10, "a", "running", runs),
        (T + 10, "b", "running", runs),
        (T + 9_000, "a", "gone", "nothing of the command is left (run 1)"),
        (T + 9_000, "b", "gone", "nothing of the command is left (run 1)"),
    ]
    keys = ("number", "at_unix_ms", "node", "term", "code", "text")
    events = [dict(zip(keys, (at, *row[:2], 1, *row[2:]), strict=True)) for at, row in enumerate(rows, 1)]
    (folder / "events.jsonl").write_text("".join(json.dumps({**one, "value": 0}) + "\n" for one in events))


def exported(say: Say, *words: str) -> dict[str, Any]:  # noqa: F811
    said = say("why", "--export", "told.json", "--state-dir", "state", *words)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(Path("told.json").read_text())["timeline"]
    return found


@pytest.mark.parametrize(("strategy", "promised"), [("bully", False), ("ring", False), ("raft", True), ("lease", True)])
def test_the_file_says_what_the_strategy_promises(
    strategy: str,
    promised: bool,
    say: Say,  # noqa: F811
    tmp_path: Path,
) -> None:
    kept(tmp_path / "state/primacy/main")
    nodes = "{a: {addr: '127.0.0.1:7401'}, b: {addr: '127.0.0.1:7402'}}"
    store = ", store: {url: 'sqlite:///l.db'}" if strategy == "lease" else ""
    cluster = f"cluster: {{node: a, secret_file: s, manager: {{nodes: {nodes}}}}}\n"
    Path("f.yaml").write_text(f"{cluster}election: {{strategy: {strategy}{store}}}\n")
    found = exported(say, "--config", "f.yaml")
    assert found["at_most_one"] is promised
    assert STRATEGY_NOT_KNOWN not in found["notes"]
    assert [row[1] for row in found["violations"]] == []  # how far the clock of b is off is not known


def test_without_a_file_nothing_is_claimed_and_that_is_said(say: Say, tmp_path: Path) -> None:  # noqa: F811
    kept(tmp_path / "state/primacy/main")
    found = exported(say)
    assert found["at_most_one"] is False
    assert STRATEGY_NOT_KNOWN in found["notes"]


def test_a_file_of_another_node_says_nothing_of_one_that_was_started_without(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """The file of this folder is raft's; the events are of a node of `primacy node start`."""
    kept(tmp_path / "state/nodes/localhost-5001/primacy/main")
    Path("primacy.yaml").write_text("election: {strategy: raft}\n")
    found = exported(say)
    assert found["at_most_one"] is False
    assert STRATEGY_NOT_KNOWN in found["notes"]
