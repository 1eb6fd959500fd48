"""How a command finds the nodes of this machine: those that died, hang, or are of another cluster do not mislead it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.agent.run import _refuse_second
from primacy.cli.call import Call
from primacy.cli.dashboard import Here
from primacy.cli.local import local, place
from primacy.cli.node import _lines
from primacy.cli.status import seen
from primacy.control.client import find
from primacy.errors import InUse
from primacy.node.folder import Folder
from primacy.node.lock import AgentLock
from primacy.settings import of_mapping
from tests.contracts.test_cli import Said, say  # noqa: F401
from tests.support.dashboard_feed import Feed
from tests.support.waiting import wait_until

Say = Callable[..., Said]
STATE = "state"
WITHIN_S = 30.0
"""On a machine that stalls, a node that is well may answer late now and then."""


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(["b", "c"]).start()
    yield one
    one.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """As a frozen process: the kernel still takes connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that has nothing to do with any node."""
    call = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(call, stdin=subprocess.PIPE) as process:
        yield process
        assert process.poll() is None, "it was ended"
        process.kill()


def node_in(
    root: Path, name: str, port: int, pid: int = 0, *, cluster: str = "primacy", election: str = "main"
) -> Path:
    """The folder of a node of `node start` that says it is at this port."""
    folder = root / "nodes" / name / cluster / election
    folder.mkdir(parents=True, mode=0o700)
    said = {"host": "127.0.0.1", "port": port, "pid": pid or os.getpid(), "node": name}
    (folder / "control.json").write_text(json.dumps(said))
    return folder


def here(root: Path) -> Any:
    return local(Call(), state_dir=str(root))


def test_a_number_that_passed_to_another_process_is_no_node_and_is_not_ended(
    say: Say,  # noqa: F811
    stranger: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    """A node was killed, or the machine restarted: its number is another process's now, of the same user."""
    folder = node_in(tmp_path / STATE, "a", 1, stranger.pid)
    (folder / "agent.lock").write_text(f"{stranger.pid}\n")
    said = say("node", "stop", "--all", "--state-dir", STATE)
    assert (said.code, stranger.poll()) == (3, None), said.out
    assert find(str(folder)) is None
    with (folder / "agent.lock").open():
        (folder / "control.json").write_text(json.dumps({"host": "127.0.0.1", "port": 1, "pid": os.getpid()}))
        assert find(str(folder)) is not None, "who has the lock open is the node"


def test_a_frozen_node_does_not_keep_the_others_from_answering(
    feed: Feed, silent: socket.socket, tmp_path: Path
) -> None:
    node_in(tmp_path, "a", silent.getsockname()[1])
    node_in(tmp_path, "b", feed.port)
    wait_until(lambda: here(tmp_path).found.port == feed.port, "the one that answers is asked", WITHIN_S)


def test_a_node_that_is_in_no_list_is_said(feed: Feed, tmp_path: Path) -> None:
    """Two were told to begin a cluster, or one was not taken in yet: what is seen from one is not all there is."""
    for name in ("b", "c", "z"):
        node_in(tmp_path, name, feed.port)
    assert seen(here(tmp_path))["beside"] == ["z"]
    assert seen(here(tmp_path)._replace(beside=("c",)))["beside"] == []


def test_nodes_of_another_cluster_or_election_are_named_with_the_command(say: Say, feed: Feed, tmp_path: Path) -> None:  # noqa: F811
    """As in the folder of a starter file, which names another cluster than the one that was started by words."""
    node_in(tmp_path / STATE, "b", feed.port)
    (tmp_path / "primacy.yaml").write_text("cluster: {name: billing}\n")
    said = say("cluster", "status", "--state-dir", STATE)
    assert said.code == 3
    assert "there is one of cluster primacy, election main: primacy status --cluster primacy" in said.err
    assert say("cluster", "status", "--state-dir", STATE, "--cluster", "primacy", "--json").code == 0
    assert say("cluster", "nodes", "--state-dir", STATE, "--cluster", "primacy").code == 0
    assert say("pause", "b", "--state-dir", STATE, "--cluster", "nowhere").code == 3
    said = say("cluster", "nodes", "--cluster", "a/b")
    assert (said.code, "--cluster 'a/b': a name has letters" in said.err) == (2, True)


def test_the_dashboard_finds_nodes_as_they_come_and_go(feed: Feed, tmp_path: Path) -> None:
    whole = Here(place(Call(), state_dir=str(tmp_path)))
    assert whole.nodes() == {}
    folder = node_in(tmp_path, "b", feed.port)
    (at,) = whole.nodes().values()
    address = whole.address("b")
    assert at() == address
    assert address is not None
    assert address.port == feed.port
    (folder / "control.json").unlink()
    assert at() is whole.address("b") is whole.address("z") is None


def test_a_leader_that_died_is_said_to_have_been_one() -> None:
    row = {"addr": "h:1", "role": "leader", "leader": "a", "workload": {"state": "running"}, "heard_ms": 61_000}
    follower = {"addr": "h:2", "role": "follower", "leader": "b", "workload": {"state": "stopped"}, "heard_ms": 41}
    unknown = {"addr": None, "role": None, "leader": None, "workload": None, "heard_ms": None}
    rows = [
        {**row, "node": "a"},
        {**row, "node": "b", "leader": "b"},
        {**follower, "node": "c"},
        {**unknown, "node": "d"},
    ]
    assert _lines({"nodes": rows, "acting": ["b"], "seen_from": "b"}) == [
        "node  address  role        follows  heard",
        "a     h:1      was leader  a        1 min ago",
        "b     h:1      leader      b        this node",
        "c     h:2      follower    b        41 ms ago",
        "d     -        ?           nobody   never",
    ]


def test_a_second_node_of_a_file_is_told_that_it_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / STATE))
    first, second = AgentLock(folder), AgentLock(folder)
    assert first.take()
    Path(folder.path("node")).write_text("a\n")
    Path(folder.path("node")).chmod(0o600)
    nodes = {name: {"addr": f"127.0.0.1:{7401 + at}"} for at, name in enumerate("ab")}
    settings = of_mapping({"cluster": {"secret_file": "secret", "manager": {"nodes": nodes}}}, "b")
    with pytest.raises(InUse, match=rf"node a runs here: process {os.getpid()} .* node b needs one of its own: say"):
        _refuse_second(second, folder, settings)
    with pytest.raises(InUse, match="node a runs here already: process"):
        _refuse_second(second, folder, of_mapping({"cluster": {"secret_file": "s", "manager": {"nodes": nodes}}}, "a"))
    for each in (first, second, folder):
        each.close()
