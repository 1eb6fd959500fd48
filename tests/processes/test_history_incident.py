"""A page, or `primacy why`, that comes after an incident shows it: from what the node kept of its last day."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from primacy.control.client import FoundNode, ask, find
from primacy.control.eventlog import FILE_NAME
from primacy.dashboard.page_server import DashboardPlan
from primacy.errors import NotReached
from tests.support.dashboard_feed import Served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=285)

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]
until = partial(wait_until, every_s=0.05)


class Node:
    """A node that is alone, with a command. A hold is long here: a machine that stalls must not begin a third run."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.folder = str(state / "primacy/main")
        self.log = state.parent / "log"
        with self.log.open("ab") as log:
            call = [*PRIMACY, "run", "--profile", "wan", "--state-dir", str(state), "--", "sleep", "600"]
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def runs(self) -> bool:
        """Its command, of this start; and that it does, and its hold, stand on the disk, where no kill takes them."""
        assert self.process.poll() is None, self.log.read_text()
        found = self.found()
        with suppress(NotReached):
            state = ask(found, "/v1/state") if found is not None else {"token": 0}
            return bool(state["token"]) and {("running", state["term"]), ("", state["token"])} <= self.written()
        return False

    def written(self) -> set[tuple[str, int]]:
        """Of each event its code and term, of each hold its token."""
        lines = "".join(file.read_text() for file in Path(self.folder).glob("history.*.jsonl")).splitlines(
            keepends=True
        )
        rows = [json.loads(line) for line in lines if line.startswith("[") and line.endswith("]\n")]
        return {(row[1], row[3]) for row in rows}

    def found(self) -> FoundNode | None:
        return find(self.folder)

    def history(self, query: str = "") -> dict[str, Any]:
        found = self.found()
        said: dict[str, Any] = ask(found, f"/v1/history{query}") if found is not None else {}
        return said

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


def why(state: Path, *words: str) -> str:
    call = [*PRIMACY, "why", "--state-dir", str(state), *words]
    said = subprocess.run(
        call, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "TZ": "UTC"}
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def moment(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_ms // 1_000)) + f".{unix_ms % 1_000:03}Z"


@contextmanager
def page_of(node: Node) -> Iterator[Served]:
    """A page that is started now."""
    board = Served(DashboardPlan((node.found,))).start()
    with closing(board):
        yield board


def get(board: Served, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", board.port, timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def drawn(html: str) -> dict[str, Any]:
    """What a file draws."""
    found = re.search(r'id="data"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert found is not None
    said: dict[str, Any] = json.loads(found[1])
    return said


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, int, int]]:
    """A node whose agent was killed while its command ran, and which runs again; since when, and up to when it ran."""
    state = tmp_path_factory.mktemp("node") / "state"
    first = Node(state)
    until(first.runs)
    first.end(signal.SIGKILL)
    until_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    second = Node(state)
    until(second.runs)
    from_ms = second.history()["kept_from_ms"]
    yield second, from_ms, until_ms
    if second.process.poll() is None:
        second.end(signal.SIGTERM)


def test_a_page_that_is_started_after_it_shows_the_run_of_before_with_its_hold(killed: tuple[Node, int, int]) -> None:
    node, from_ms, until_ms = killed
    with page_of(node) as board:

        def both() -> list[Any]:
            said = json.loads(get(board, "/dashboard/timeline")[1])
            return said if len(said["runs"]) == 2 and len(said["holds"]) == 2 and len(said["nodes"]) == 1 else []

        said: Any = until(both, "both runs with their holds", told=lambda: get(board, "/dashboard/timeline")[1])
        first, second = said["runs"]
        assert (first[6], second[6]) == ("unknown", "open")
        assert 0 < first[3] < second[3], "tokens"
        assert from_ms <= first[1] < until_ms <= second[1]
        holds = {hold[3]: hold for hold in said["holds"]}
        assert set(holds) == {first[3], second[3]}
        assert first[5] <= first[2] <= holds[first[3]][2], "it may have run as long as its hold lasted"
        assert said["from_ms"] <= from_ms
        assert any("has kept it since" in note and "the newest 16 MB or 24 h" in note for note in said["notes"])

        said = json.loads(get(board, f"/dashboard/timeline?from={from_ms}&to={until_ms}")[1])
        assert [run[3] for run in said["runs"]] == [first[3]]
        assert {row[2] for row in said["decisions"]} >= {"started", "elected", "running"}
        assert all(from_ms <= row[0] <= until_ms for row in said["decisions"])
        assert said["known_to_ms"] == until_ms
        assert sum(many for _, many in said["counts"]) > len(said["decisions"])


def test_the_file_of_the_page_and_the_file_of_why_are_the_same(killed: tuple[Node, int, int], tmp_path: Path) -> None:
    node, from_ms, until_ms = killed
    file = tmp_path / "why.html"
    why(node.state, "--from", moment(from_ms), "--to", moment(until_ms), "--export", str(file))
    with page_of(node) as board:
        until(lambda: json.loads(get(board, "/dashboard/timeline")[1])["nodes"])
        status, html = get(board, f"/dashboard/incident?from={from_ms}&to={until_ms}")
    assert status == 200
    saved, written = drawn(html), drawn(file.read_text())
    assert saved == written
    assert len(saved["runs"]) == 1
    assert len(saved["holds"]) == 1
    assert saved["to_ms"] == until_ms
    assert saved["kind"] == "incident"


def test_nonsense_is_refused_with_a_sentence(killed: tuple[Node, int, int]) -> None:
    node, _, _ = killed
    with page_of(node) as board:
        for path in ("timeline?from=x", "timeline?from=2&to=1", "incident?to=-1"):
            status, said = get(board, f"/dashboard/{path}")
            assert (status, "error" in json.loads(said)) == (400, True), path


def test_why_has_a_range_while_it_runs_and_when_it_does_not(killed: tuple[Node, int, int], tmp_path: Path) -> None:
    node, from_ms, until_ms = killed
    span = ("--from", moment(from_ms), "--to", moment(until_ms))
    assert "leads (term 2)" in why(node.state, "--since", "1h")
    assert "nothing is known of this range; it is kept since" in why(node.state, "--to", "2020-01-01")
    running = json.loads(why(node.state, *span, "--json"))["events"]
    assert {event["term"] for event in running} == {0, 1}
    node.end(signal.SIGTERM)
    file = tmp_path / "stopped.html"
    assert "events are in" in why(node.state, "--export", str(file))
    said = drawn(file.read_text())
    assert [run[6] for run in said["runs"]] == ["unknown", "confirmed"]
    assert len(said["holds"]) == 2
    Path(node.folder, FILE_NAME).unlink()
    Path(node.folder, FILE_NAME).touch(mode=0o600)
    assert json.loads(why(node.state, *span, "--json"))["events"] == running, "it is in the history alone"
