"""The commands that speak to a running node: a real one, alone, started once for all of the tests that it survives."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from primacy.cli import main as entry
from primacy.cli.new import write_secret
from primacy.cli.status import is_unknown, is_well
from primacy.cli.status import lines as status_lines
from primacy.cli.why import lines as why_lines
from primacy.cli.why import took_text
from primacy.control.client import asked_by
from primacy.control.eventlog import FILE_NAME
from primacy.control.placement import AGENT_REQUESTS
from primacy.control.requests import ORDERS
from tests.support.ports import free_ports
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=300)

BY = asked_by("/v1/pause")
WITHIN_S = 180.0
"""Far more than anything here takes: only a hang reaches it."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Say = Callable[..., Said]
STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Say]:
    """The command line in this process, in an empty folder. No node of a test that failed outlives it."""
    monkeypatch.chdir(tmp_path)
    before = len(STARTED)

    def run(*args: str) -> Said:
        code = entry.run(list(args))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    yield run
    for process in STARTED[before:]:
        if process.poll() is None:
            process.kill()
            process.wait(WITHIN_S)
    del STARTED[before:]


class Node:
    """One `primacy run`, in a state folder of its own."""

    def __init__(self, folder: Path, *args: str, state: str = "state", front: tuple[str, ...] = ()) -> None:
        self.state, self.err = str(folder / state), folder / f"err-{state}"
        call = [sys.executable, "-m", "primacy.cli.main", *front, "run", "--state-dir", self.state]
        call += [*args, "--", "sleep", "300"]
        with self.err.open("ab") as err:
            self.process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd=folder)
        STARTED.append(self.process)

    def _document(self, say: Say) -> dict[str, Any]:
        said = say("status", "--json", "--state-dir", self.state)
        return json.loads(said.out) if said.code in (0, 1) and said.out else {}

    def document(self, say: Say) -> dict[str, Any]:
        """Of a node that runs: one that stands still for a moment is asked again."""
        return self.until(say, bool, "an answer")

    def until(self, say: Say, check: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        state: dict[str, Any] = {}

        def asked() -> dict[str, Any] | None:
            nonlocal state
            state = self._document(say)
            return state if state and check(state) else None

        wait_until(asked, what, WITHIN_S, 0.01, told=lambda: f"{state}\n{self.err.read_text()}")
        return state

    def runs(self, say: Say) -> dict[str, Any]:
        return self.until(say, lambda s: s["workload"]["state"] == "running", "a running command")

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WITHIN_S)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    yield made
    assert made.end() == 0
    assert not os.path.exists(os.path.join(made.state, "primacy/main/control.json"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- looking ----------------------------------------------------------------------------------------------------------


def test_status_says_who_leads_and_what_runs(node: Node, say: Say) -> None:
    state = node.runs(say)
    assert (state["role"], state["leader"], state["cluster"], state["election"]) == (
        "leader",
        state["node"],
        "primacy",
        "main",
    )
    assert alive(state["workload"]["pid"])
    said = say("status", "--state-dir", node.state)
    assert (said.code, said.err) == (0, "")
    row = next(line for line in said.out.splitlines() if "this node" in line)
    assert row.startswith(state["node"])
    assert f"running, process {state['workload']['pid']}" in row
    assert re.search(r"[\d,]+ ms +(weak +)?this node$", row)
    assert max(map(len, said.out.split("\n\n")[1].splitlines())) <= 80
    assert f"token: {state['token']}" in said.out
    assert re.search(
        rf"^node {state['node']}: containment is (strong \(.*kernel|weak: .*to make it strong)", said.out, re.M
    )
    assert re.search(
        rf"^the command runs on {state['node']}, for [\d,]+ (ms|s|min), since 20[\d-]+ [\d:]+$", said.out, re.M
    )
    assert (state["acting"], state["alerts"], len(state["rows"])) == ([state["node"]], [], 1)
    assert "versions: " in say("-v", "status", "--state-dir", node.state).out


def test_why_says_what_changed_and_how_long_it_took(node: Node, say: Say) -> None:
    node.runs(say)
    said = say("why", "--state-dir", node.state, "--last", "1000")
    assert (said.code, said.err) == (0, "")
    assert re.search(
        r"\+[\d,]+ ms  \S+ leads \(term 1\)\n.*\+[\d,]+ ms  the command runs: process \d+, run 1", said.out
    )
    assert re.search(r"leads term 1, because: nobody led before \(started \+[\d,]+ ms\)\n", said.out)
    said = say("--json", "why", "--state-dir", node.state, "--last", "1")
    (event,) = json.loads(said.out)["events"]
    assert {"number", "at_unix_ms", "at", "node", "term", "code", "text", "value"} == event.keys()


# --- changing ---------------------------------------------------------------------------------------------------------


def test_pause_stops_the_command_and_resume_starts_it_again(node: Node, say: Say) -> None:
    before = node.runs(say)
    said = say("pause", "--state-dir", node.state)
    assert said.code == 0, said.err
    assert "is paused and does not lead; to end this: primacy resume" in said.out
    state = node.until(say, lambda s: s["role"] == "paused" and s["workload"]["state"] == "stopped", "a paused node")
    safe(not alive(before["workload"]["pid"]), "something of it lives")
    assert state["waits_for"] == "an operator: primacy resume"
    shown = say("status", "--state-dir", node.state)
    assert "waits for an operator: primacy resume" in shown.out
    assert ("nobody runs the command" in shown.out, shown.code) == (True, 1)
    assert say("status", "--json", "--state-dir", node.state).code == 1
    refused = say("step-down", "--state-dir", node.state)
    assert (refused.code, refused.out) == (1, "")
    assert "does not lead" in refused.err
    assert say("resume", "--state-dir", node.state).code == 0
    after = node.runs(say)
    assert after["token"] > before["token"]
    assert "is told by an operator to resume" in say("why", "--state-dir", node.state).out


def test_step_down_ends_the_term_and_the_only_node_leads_the_next(node: Node, say: Say) -> None:
    before = node.runs(say)
    said = say("step-down", "--state-dir", node.state, "--json")
    after = json.loads(said.out)  # it waited for the outcome
    assert (after["term"] > before["term"], after["workload"]["state"]) == (True, "running")
    assert (after["token"] > before["token"], alive(before["workload"]["pid"])) == (True, False)
    told = say("why", "--state-dir", node.state).out
    assert f"{BY} asked for it" in told
    assert f"is told by an operator to step down (said at {before['node']}, by {BY})" in told


def test_what_makes_no_sense_is_refused_and_changes_nothing(node: Node, say: Say) -> None:
    before = node.runs(say)
    name = before["node"]
    for args, code, part in (
        (["transfer", "zz"], 2, f"no node of this cluster; there are {name}"),
        (["transfer"], 2, "Missing argument"),
        (["pause", "b"], 2, f"node = b: no node of this cluster; there are {name}"),
        (["resume", ""], 2, "no node of this cluster"),
        (["pause", name, name], 2, "unexpected extra argument"),
        (["pause", "x" * 5_000], 2, "no node of this cluster"),
        (["init", "--yes"], 1, "this node remembers the cluster"),
        (["init", "--without", "zz", "--yes"], 2, "no node of this cluster"),
        (["rejoin"], 2, "Missing option '--without'"),
        (["rejoin", "--without", "zz", "--yes"], 1, "is not recovering"),
        (["rejoin", "--without", "../x", "--yes"], 2, "is no name of a node"),
        (["why", "--last", "0"], 2, "--last"),
        (["status", "--election", "../x"], 2, "a name has letters"),
    ):
        said = say(*args, "--state-dir", node.state)
        assert (said.code, part in said.err, said.out) == (code, True, ""), (args, said)
    said = say("transfer", name, "--state-dir", node.state)
    assert (said.code, said.out) == (0, f"node {name} leads already (term {before['term']}): nothing to do\n")
    assert node.document(say)["token"] == before["token"]


def test_orders_with_a_risk_ask_first(node: Node, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    node.runs(say)
    for answer in ("no", "y", "YES", ""):
        monkeypatch.setattr("click.prompt", lambda *_, answer=answer, **__: answer)
        said = say("rejoin", "--without", "c", "--state-dir", node.state)
        assert said.code == 1
        assert "vouch that c is gone for good" in said.err
        assert "nothing was done" in said.err
    said = say("init", "--without", "c", "--state-dir", node.state)
    assert "may run twice" in said.err
    assert "is told by" not in say("why", "--state-dir", node.state, "--last", "1").out
    monkeypatch.setattr("click.prompt", lambda *_, **__: "yes")
    assert "is not recovering" in say("rejoin", "--without", "c", "--state-dir", node.state).err


def test_at_names_the_node(node: Node, say: Say) -> None:
    node.runs(say)
    address = json.loads(Path(node.state, "primacy/main/control.json").read_text())
    at = f"127.0.0.1:{address['port']}"
    assert say("--at", at, "status").code == 0
    said = say("--at", at, "pause")
    assert (said.code, "run this as the user that runs the node" in said.err) == (1, True)
    other = Path(os.environ["PRIMACY_STATE_DIR"], "primacy/main")
    other.mkdir(parents=True)
    (other / "control.key").write_text("0" * 64)  # a node of this machine that is no more, or another one
    said = say("--at", at, "pause")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "needs the control key of this node, and this is another: run this as the user that runs" in said.err
    assert "--state-dir" in said.err
    assert say("--at", at, "resume", "--state-dir", node.state).code == 0
    assert say("--at", "127.0.0.1:1", "status").code == 3
    assert say("--at", "nonsense", "status").code == 2


def test_watch_goes_on_until_it_is_stopped(node: Node, say: Say) -> None:
    node.runs(say)
    call = [sys.executable, "-m", "primacy.cli.main", "status", "--watch", "--json", "--state-dir", node.state]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            seen = 0
            while seen < 2:  # a node that is late for once is said, and looked at again
                said = json.loads(process.stdout.readline())
                assert said.get("api") == 1 or "does not answer" in said["error"], said
                seen += "api" in said
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 130
        finally:
            process.kill()


# --- three nodes ------------------------------------------------------------------------------------------------------


FILE = """
cluster:
  name: billing
  secret_file: secret
  first_start: explicit
  manager: {{type: static, nodes: {{{nodes}}}}}
election: {{profile: lan}}
"""


def test_three_nodes_begin_by_init_and_the_leader_hands_over(say: Say, tmp_path: Path) -> None:
    """They share a machine, so that two of them find the default control port taken, and use another."""
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    (tmp_path / "primacy.yaml").write_text(FILE.format(nodes=listed))
    write_secret(tmp_path / "secret")

    def whys(node: Node) -> str:
        return say("why", "--state-dir", node.state, "--last", "1000").out

    nodes = {name: Node(tmp_path, state=f"state-{name}", front=("--node", name)) for name in names}
    try:
        waiting = nodes["b"].until(say, lambda s: all(row["heard_ms"] is not None for row in s["nodes"]), "all heard")
        assert (waiting["role"], waiting["term"]) == ("recovering", 0)
        assert "primacy init, once, on one node" in say("status", "--state-dir", nodes["b"].state).out
        begun = say("init", "--yes", "--state-dir", nodes["b"].state)
        assert (begun.code, "node b begins the cluster" in begun.out, "not heard" in begun.out) == (0, True, False), (
            begun
        )

        def running() -> dict[str, Any] | None:
            said = [node._document(say) for node in nodes.values()]
            return next((s for s in said if s and s["workload"]["state"] == "running"), None)

        before = wait_until(running, "a leader whose command runs", WITHIN_S, 0.01, told=lambda: whys(nodes["b"]))
        assert before is not None
        leader = nodes[before["node"]]
        follower = next(nodes[name] for name in names if name != before["node"])
        follower.until(say, lambda s: s["leader"] == before["node"], "a follower")

        # Any node shows them all, and passes on what is said to it.
        def is_told(s: dict[str, Any]) -> bool:
            row = next(r for r in s["rows"] if r["node"] == before["node"])
            runs = (row["workload"] or {}).get("state") == "running"  # its word may still say that it starts
            follow = {r["leader"] for r in s["rows"]} == {before["node"]}
            return s["acting"] == [before["node"]] and runs and follow and not s["alerts"]

        whole = follower.until(say, is_told, "who acts, seen elsewhere")
        row = next(r for r in whole["rows"] if r["node"] == before["node"])
        assert (row["role"], row["workload"]["pid"], row["workload"]["state"]) == (
            "leader",
            before["workload"]["pid"],
            "running",
        )
        to = follower.document(say)["node"]
        said = say("transfer", to, "--state-dir", follower.state)
        after = follower.document(say)
        assert (said.code, said.out.splitlines()) == (
            0,
            [
                f"node {before['node']} steps down in favour of {to}",
                f"node {to} leads (term {after['term']}), and runs the command",
            ],
        ), said
        assert (after["leader"], after["workload"]["state"]) == (to, "running"), "it waited for the outcome"
        assert (after["token"] > before["token"], alive(before["workload"]["pid"])) == (True, False)
        assert f"in favour of {to} (said at {to}, by {BY})" in say("why", "--state-dir", leader.state).out

        # Paused from another machine, seen from a third; what happened there is known here.
        here = next(name for name in names if name not in (before["node"], to))
        third = nodes[here]
        said = say("pause", to, "--state-dir", third.state)
        assert (said.code, said.out.splitlines()[0]) == (
            0,
            f"node {to} is paused and does not lead; to end this: primacy resume {to}",
        )
        assert follower.document(say)["workload"]["state"] == "stopped", "it waited for the end of the command"
        leader.until(say, lambda s: s["leader"] not in (None, to) and s["acting"], "the next leader")

        def sees_the_pause(s: dict[str, Any]) -> bool:
            return any(r["node"] == to and r["role"] == "paused" for r in s["rows"]) and to not in s["acting"]

        third.until(say, sees_the_pause, "a paused node, seen from a third")  # one of the two leads, and refuses
        paused = leader.until(say, sees_the_pause, "a paused node, seen from another")
        refused = say("transfer", to, "--state-dir", third.state)
        assert (refused.code, refused.out) == (1, "")
        assert f"node {to} is paused (primacy resume) or stopping, and cannot take over" in refused.err
        assert f"node {to} waits for an operator: primacy resume" in "\n".join(status_lines(paused))
        asked = f"{to} is told by an operator to pause (said at {here}, by {BY})"
        leader.until(say, lambda _: asked in whys(leader), "its event")
        assert say("resume", to, "--state-dir", leader.state).out.startswith(f"node {to} may lead again")

        # A node that is down is not reached, and keeps nobody waiting.
        third.process.kill()
        third.process.wait(WITHIN_S)
        gone = next(name for name in names if nodes[name] is third)
        said = say("pause", gone, "--state-dir", leader.state)
        assert (said.code, f"node {gone} was not reached" in said.err) == (3, True), said
    finally:
        for one in nodes.values():
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
        codes = [one.process.wait(WITHIN_S) for one in nodes.values()]  # asked once: a second TERM may meet an exit
    assert sorted(codes) == [-9, 0, 0]


# --- open to others ---------------------------------------------------------------------------------------------------


def test_a_node_behind_tls_is_found_by_its_certificate_and_serves_the_public_apart(say: Say, tmp_path: Path) -> None:
    """On all addresses of this machine; the commands here know it by the fingerprint in its folder."""
    made = ["-subj", "/CN=primacy", "-days", "2", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "c.pem")]
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *made]
    subprocess.run(openssl, check=True, capture_output=True)
    (tmp_path / "key.pem").chmod(0o600)
    listen, public = free_ports(2)
    tls = "tls: {cert: c.pem, key: key.pem, ca: c.pem}"
    control = f'listen: "0.0.0.0:{listen}", public: "127.0.0.1:{public}", {tls}'
    (tmp_path / "primacy.yaml").write_text(f"control: {{{control}}}\n")
    node = Node(tmp_path)
    try:
        node.runs(say)
        assert say("pause", "--state-dir", node.state).code == 0
        assert say("--at", f"localhost:{listen}", "status", "--state-dir", node.state).code == 1, "it is paused"
        with pytest.raises(OSError, match=r"."):
            urllib.request.urlopen(f"http://127.0.0.1:{listen}/healthz", timeout=WITHIN_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{public}/metrics", timeout=WITHIN_S) as answer:
            assert b'primacy_role{role="paused"} 1.0' in answer.read()
        address = Path(node.state, "primacy/main/control.json")
        said = json.loads(address.read_text())
        assert (said["host"], len(said["certificate"])) == ("127.0.0.1", 64)
        address.write_text(json.dumps({**said, "certificate": "0" * 64}))
        refused = say("resume", "--state-dir", node.state)
        assert (refused.code, "another certificate" in refused.err) == (3, True)
    finally:
        assert node.end() == 0
    (tmp_path / "key.pem").chmod(0o644)
    assert (Node(tmp_path).process.wait(WITHIN_S), "chmod 600" in node.err.read_text()) == (4, True)
    (tmp_path / "key.pem").chmod(0o600)
    (tmp_path / "key.pem").write_text("nonsense")
    assert (Node(tmp_path).process.wait(WITHIN_S), "no certificate and its key" in node.err.read_text()) == (
        2,
        True,
    )


# --- nobody there -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["status"], ["why"], ["pause"], ["step-down"], ["init", "--yes"]])
def test_not_reached_is_3_with_the_next_command(say: Say, args: list[str], tmp_path: Path) -> None:
    said = say(*args, "--state-dir", str(tmp_path / "none"))
    assert (said.code, said.out) == (3, "")
    assert "no node of election main runs here" in said.err
    assert "primacy run -- CMD" in said.err
    assert not (tmp_path / "none").exists()


def test_another_election_here_is_named(node: Node, say: Say) -> None:
    node.runs(say)
    said = say("status", "--election", "nightly", "--state-dir", node.state)
    assert said.code == 3
    assert "there is one of cluster primacy, election main: primacy status --election main" in said.err


def test_a_killed_node_is_not_reached_and_its_events_are_kept(say: Say, tmp_path: Path) -> None:
    first = Node(tmp_path)
    token = first.runs(say)["token"]
    kept = Path(first.state, "primacy/main", FILE_NAME)
    first.until(say, lambda _: kept.exists() and "the command runs" in kept.read_text(), "its events in the file")
    first.process.kill()
    first.process.wait(WITHIN_S)
    assert say("status", "--state-dir", first.state).code == 3
    said_before = said = say("why", "--state-dir", first.state)
    assert (said.code, "the command runs" in said.out, "no node runs here" in said.err) == (0, True, True)
    for code, part in ((0, "events are in"), (2, "it is there already")):
        said = say("why", "--state-dir", first.state, "--export", str(tmp_path / "told.json"))
        assert (said.code, part in said.out + said.err) == (code, True)
    told = json.loads((tmp_path / "told.json").read_text())
    assert [(change["term"], change["reason"]) for change in told["changes"]] == [(1, "nobody led before")]
    assert [run[6] for run in told["timeline"]["runs"]] == ["unknown"], "its agent was killed: nobody reported an end"
    assert f"/dashboard#/timeline?from={told['changes'][-1]['at_unix_ms'] - 5_000}&to=" in said_before.out
    said = say("why", "--state-dir", first.state, "--export", str(tmp_path / "told.html"))
    assert (said.code, "events are in" in said.out) == (0, True)
    assert (tmp_path / "told.html").read_text().startswith("<!doctype html>")
    assert say("why", "--state-dir", first.state, "--export", str(tmp_path / "no/such/folder")).code == 4
    second = Node(tmp_path)
    try:
        assert second.runs(say)["token"] > token
        events = json.loads(say("--json", "why", "--last", "1000", "--state-dir", first.state).out)["events"]
        numbers = [event["number"] for event in events]
        assert numbers == list(range(1, len(numbers) + 1))
        assert [event["code"] for event in events].count("started") == 2
    finally:
        assert second.end() == 0


def test_a_chosen_control_port_that_is_taken_ends_with_4(say: Say, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "primacy.yaml").write_text(f'control: {{listen: "{address}"}}\n')
        node = Node(tmp_path)
        assert node.process.wait(WITHIN_S) == 4
    assert f"control.listen = {address}: Address already in use" in node.err.read_text()


def test_the_page_for_operators_names_commands_paths_and_options_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text()
    named = set(re.findall(r"primacy (?:--node a )?([a-z-]+)", page)) - {"primacy", "layout"}
    assert named <= entry.COMMANDS.keys(), named - entry.COMMANDS.keys()
    read = {"state", "cluster", "config", "events", "history", "links", "elections", "placement", "audit"}
    asked = {*ORDERS, *AGENT_REQUESTS}
    assert set(re.findall(r"`?/v1/([a-z-]+)`", page)) - read == asked


# --- screens ----------------------------------------------------------------------------------------------------------


def test_status_says_who_was_never_heard_and_where_it_should_be() -> None:
    row = dict.fromkeys(("role", "leader", "term", "token", "waits_for", "workload", "health", "trouble", "told_ms"))
    row["kind"] = "voter"
    workload = {"kind": "process", "state": "stopped", "pid": None, "since": None, "containment": "weak"}
    waits = "the first start of the cluster: primacy init, once, on one node"
    said = {
        **row,
        "role": "recovering",
        "term": 0,
        "hold_left_ms": 0,
        "waits_for": waits,
        "workload": workload,
        "health": "ok",
    }
    state: dict[str, Any] = {
        "cluster": "billing",
        "election": "main",
        "strategy": "raft",
        "mode": "automatic",
        "node": "a",
        "role": "recovering",
        "leader": None,
        "term": 0,
        "hold_left_ms": 0,
        "token": None,
        "waits_for": waits,
        "acting": [],
        "alerts": [],
        "counters": {},
        "rows": [
            {**said, "node": "a", "addr": "h:1", "heard_ms": 0, "told_ms": 0},
            {**said, "node": "b", "addr": "h:2", "heard_ms": 41, "told_ms": 41},
            {**row, "node": "c", "addr": "h:3", "heard_ms": None},
            {**row, "node": "d", "addr": "h:4", "heard_ms": None, "trouble": "node d: h:4 cannot be resolved yet"},
            {**said, "node": "e", "addr": "h:5", "heard_ms": 61_000, "told_ms": 61_000, "health": "failing: http"},
        ],
    }
    text = click.unstyle("\n".join(status_lines(state)))
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 80
    assert not is_well(state)
    assert not is_well({**state, "acting": ["a", "b"]})
    assert is_well({**state, "acting": ["a", "b"], "at_most_one": False})
    assert is_well({**state, "acting": ["a"]})
    assert not is_well({**state, "strategy": "lease", "leader": "b"}), "what runs there is not known here"
    assert is_unknown({**state, "strategy": "lease", "leader": "b"})
    assert "node a waits for the first start of the cluster: primacy init, once, on one node" in text
    assert "node c was never heard; it should be at h:3: is it started there, and does the firewall let UDP" in text
    beside = status_lines({**state, "beside": ["z"]})
    assert "node z runs here, too, and is not in this list; primacy --node z status shows it" in beside
    assert "does the firewall let TCP through?" in "\n".join(status_lines({**state, "strategy": "ring"}))
    assert "node b was never" not in text
    assert re.search(r"^b .* 41 ms ago$", text, re.MULTILINE)
    assert "node d: h:4 cannot be resolved yet" in text
    assert "node d was never heard" not in text
    assert "node e was last heard 1 min ago" in text
    assert "node e: failing: http" in text
    assert "nobody is known to run the command" in text, "as of a node of an earlier version"
    assert "nobody runs the command" in map(click.unstyle, status_lines({**state, "not_known": None}))
    unsure = "this node hears nobody; it does not know whether the command runs elsewhere"
    assert unsure in status_lines({**state, "not_known": unsure})
    bare = [{**each, "workload": {**workload, "kind": "none"}} for each in (state["rows"][0],)]
    assert "whether somebody leads elsewhere is not known here" in "\n".join(
        status_lines({**state, "not_known": unsure, "rows": bare})
    )
    killed = {**said, "node": "f", "addr": "h:6", "heard_ms": 900, "told_ms": 900, "role": "leader"}
    killed["workload"] = {**workload, "state": "running", "pid": 7}
    assert re.search(
        r"^f +was leader +nobody +0 +was running, process 7",
        click.unstyle("\n".join(status_lines({**state, "rows": [killed]}))),
        re.MULTILINE,
    )
    unheard = click.unstyle("\n".join(status_lines({**state, "rows": [{**killed, "acting": "unknown"}]})))
    assert re.search(r"^f +was leader +nobody +0 +not known, was running, process 7", unheard, re.MULTILINE)
    state["acting"], state["alerts"] = ["a", "b"], ["nodes a and b both say that they run the command"]
    red = status_lines(state)
    assert "ALERT: nodes a and b both say" in red[0]
    assert red[0].startswith("\x1b[31m")
    assert [line[:5] == "\x1b[31m" for line in red if "recovering" in line] == [True, True, False], "e is yellow"
    assert "a and b BOTH CLAIM THE COMMAND" in "\n".join(red)


def test_durations_are_counted_within_a_term() -> None:
    events = [
        {"at_unix_ms": at_ms, "term": term, "text": f"event {term}", "node": "a"}
        for at_ms, term in ((1_000, 1), (1_020, 1), (9_000, 2), (60_000, 1), (8_000, 2))
    ]
    took = [line.split("  ", 1)[1].split("event")[0].strip() for line in why_lines(events)]
    assert took == ["", "+20 ms", "", "+58 s", "?"]
    assert took_text(9_999) == "+9,999 ms"
