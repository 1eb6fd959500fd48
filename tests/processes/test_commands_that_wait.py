"""Commands that wait, at bad moments: Ctrl-C, and the end of the node that was asked. What was asked for goes on, and
they say so. And `primacy members` where no node has any."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.test_cli_agent import Node, Say, free_ports, say  # noqa: F401
from tests.processes.test_manual import WITHIN_S, leads, three
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=302)

GOES_ON = "what was asked for goes on; see: primacy members; to give up a change: primacy members cancel"


def asking(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command in a process of its own, once it has said what it waits for."""
    call = [sys.executable, "-m", "primacy.cli.main", *words]
    made = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    assert made.stderr is not None
    line = made.stderr.readline()
    assert line.startswith("waits: "), line
    return made


def test_what_was_asked_for_goes_on_when_nobody_waits_for_it(say: Say, tmp_path: Path) -> None:  # noqa: F811
    (port,) = free_ports(1)
    with three(tmp_path, "raft") as nodes:
        runs = leads(say, nodes["a"], lambda r: (r["workload"] or {}).get("state") == "running", "a leader that runs")
        asked = next(name for name in nodes if name != runs["node"])
        add = ("members", "add", "d", "--addr", f"127.0.0.1:{port}", "--within", "60s")
        interrupted = asking(tmp_path, *add, "--state-dir", nodes[asked].state)
        interrupted.send_signal(signal.SIGINT)
        out, err = interrupted.communicate(timeout=WITHIN_S)
        assert (interrupted.returncode, out, err.splitlines()[-2:]) == (130, "", [GOES_ON, "primacy: stopped."])
        assert json.loads(say("members", "--json", "--state-dir", nodes[asked].state).out)["goal"]
        assert say("members", "cancel", "--state-dir", nodes[asked].state).code == 0
        assert say("members", "remove", "d", "--state-dir", nodes[asked].state).code == 0

        orphaned = asking(tmp_path, *add, "--state-dir", nodes[asked].state)
        nodes[asked].process.kill()
        nodes[asked].process.wait(WITHIN_S)
        out, err = orphaned.communicate(timeout=WITHIN_S)
        assert (orphaned.returncode, out) == (3, "")
        assert re.search(rf"^primacy: the node at \S+ does not answer: .*; {GOES_ON}$", err, re.MULTILINE), err
        other = next(node for name, node in nodes.items() if name != asked)
        assert json.loads(say("members", "--json", "--state-dir", other.state).out)["goal"]
        nodes[asked] = Node(tmp_path, state=f"state-{asked}", front=("--node", asked))
        wait_until(lambda: say("status", "--state-dir", nodes[asked].state).code == 0, "its return", WITHIN_S, 0.1)


def test_a_lease_has_no_members(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """`members` said that they come with the end of somebody's hold, and `export` printed nothing, with success."""
    (tmp_path / "primacy.yaml").write_text('election: {strategy: lease, store: {url: "sqlite:///leases.db"}}\n')
    node = Node(tmp_path)
    node.runs(say)
    refused = (1, "", "primacy: lease keeps no list of members, which raft does; who takes part: primacy status\n")
    for words in (
        ("members",),
        ("members", "--json"),
        ("members", "export"),
        ("members", "add", "d", "--addr", "h:1"),
        ("members", "renew", "d"),
        ("members", "force", "--without", "d", "--yes"),
    ):
        front, verbs = (words[:2], words[2:]) if words[1:] and words[1] != "--json" else (words[:1], words[1:])
        assert say(*front, "--state-dir", node.state, *verbs) == refused, words
    assert node.end() == 0
