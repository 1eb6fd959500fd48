"""`primacy node`: Hecaton's scenario, as written and with every strategy in its form; with real processes."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pytest

from primacy.cli.call import Call
from primacy.cli.dashboard import Here
from primacy.cli.local import place as place_of
from primacy.cli.node_settings import NodeOptions as Words
from primacy.cli.node_settings import settings_of
from tests.contracts.test_cli import Said, say  # noqa: F401
from tests.support.canary import beside_a_canary
from tests.support.real_nodes_without_workload import WITHIN_S, Node, NodeCrowd, node_crowd
from tests.support.safety_checks import tokens_grow
from tests.support.store_harness import made_new
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=190)

Say = Callable[..., Said]


def words_of(crowd: NodeCrowd, strategy: str, place: int) -> list[str]:
    """How the node at this place of the list is started: Hecaton's words, in the form that the strategy needs."""
    if strategy == "lease":
        return ["--algorithm", "lease", "--store", f"sqlite:///{crowd.folder}/leases.db"]
    if strategy in ("bully", "ring"):
        joins = ["--join", f"localhost:{crowd.ports[0]}"] if place else ["--leader"]
        return [*joins, *(["--algorithm", "RING"] if strategy == "ring" else [])]
    return ["--algorithm", strategy, "--nodes", ",".join(f"localhost:{port}" for port in crowd.ports)]


def started(crowd: NodeCrowd, strategy: str) -> NodeCrowd:
    if strategy == "lease":
        made_new(f"sqlite:///{crowd.folder}/leases.db")
    for place, port in enumerate(crowd.ports):
        crowd.add(port, *words_of(crowd, strategy, place))
    return crowd


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[NodeCrowd]:
    with node_crowd(tmp_path) as made:
        yield made


# --- Hecaton's scenario -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["raft", "lease"])
def test_three_nodes_the_leader_killed_another_leads_and_the_third_follows_it(crowd: NodeCrowd, strategy: str) -> None:
    """In the form of strategies with a fixed list or a store, where whoever wins leads.

    One story, for each start costs seconds: the killed one comes back; the next leader is frozen, which is noticed, and
    goes on as a follower. Every leadership has a larger token. On SQLite it is stopped instead: a process that is
    frozen in the very middle of a write keeps the file's lock (docs/leases.md).
    """
    started(crowd, strategy)
    first, token = crowd.led()
    tokens = [token]
    first.kill()
    second, token = crowd.led()
    tokens.append(token)
    first.start()
    second = crowd.agree()
    second.tell(signal.SIGSTOP if strategy == "raft" else signal.SIGTERM)
    _, token = crowd.led([node for node in crowd.nodes.values() if node is not second])
    tokens.append(token)
    second.tell(signal.SIGCONT)
    crowd.agree()
    tokens_grow(tokens)


@pytest.mark.parametrize("strategy", ["bully", "ring"])
@beside_a_canary(250)
def test_the_seeds_scenario_as_it_is_written(tmp_path: Path, strategy: str) -> None:
    """Three nodes, one after the other; the leader is killed; the youngest leads, and the other reconnects to it.

    Without Hecaton's wait: the leader dies right after the last one has joined, which made two leaders for good there.
    Then the new leader is frozen, which is noticed too, and goes on as one of the others.
    """
    with node_crowd(Path(mkdtemp(dir=tmp_path)), 3, "lan") as crowd:
        first, second, third = (crowd.add_after(port, *words_of(crowd, strategy, n)) for n, port in places(crowd))
        assert [node.ask()["leader"] for node in (first, second, third)] == [first.name] * 3
        first.kill()
        assert crowd.agree() is third
        assert second.ask()["leader"] == third.name
        assert len(third.ask("/v1/cluster")["nodes"]) == 3, "a node that died stays listed"
        first.start()
        assert crowd.agree() is third, "who comes back joins below a leader that is well"
        third.tell(signal.SIGSTOP)
        fourth = crowd.agree([first, second])
        third.tell(signal.SIGCONT)
        assert crowd.agree() is not None
        assert fourth.ask()["term"] > 0


def places(crowd: NodeCrowd) -> list[tuple[int, int]]:
    return list(enumerate(crowd.ports))


def test_a_strategy_of_ones_own_runs_for_real(crowd: NodeCrowd) -> None:
    """The example: of those that are up, the one with the highest number leads, whoever was killed or paused."""
    strategy = "examples.rendezvous:Rendezvous"
    for place, port in enumerate(crowd.ports):
        crowd.add(port, *words_of(crowd, strategy, place))
    first = crowd.agree()
    first.kill()
    second = crowd.agree()
    assert second is not first
    first.start()
    assert wait_until(lambda: crowd.agree() is first, "the highest leads again", WITHIN_S)
    first.ask("/v1/pause", {})
    assert wait_until(lambda: crowd.agree() is second, "the next one leads", WITHIN_S)
    assert first.ask()["role"] == "paused"
    assert second.ask("/v1/cluster")["at_most_one"] is False
    second.tell(signal.SIGTERM)
    assert second.process.wait(WITHIN_S) == 0


def test_a_leader_that_is_stopped_hands_over_in_order(crowd: NodeCrowd, say: Say) -> None:  # noqa: F811
    """What is seen meanwhile, and every way to end a node: its exit codes, and the release that spares the wait."""
    started(crowd, "raft")
    leader = crowd.agree()
    root = str(leader.root)
    shown = say("cluster", "status", "--state-dir", root)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"node localhost-\d+ leads", shown.out)
    assert "command" not in shown.out, "there is none"

    def all_follow() -> bool:
        """News are a second old."""
        rows = json.loads(say("cluster", "nodes", "--state-dir", root, "--json").out)["nodes"]
        assert [row["node"] for row in rows] == sorted(crowd.nodes)
        return len({row["leader"] for row in rows}) == 1 and rows[0]["leader"] is not None

    wait_until(all_follow, "all nodes with one leader", WITHIN_S)
    table = say("cluster", "nodes", "--state-dir", root).out.splitlines()
    assert len(table) == 4
    assert [line.split()[:2] for line in table[1:]] == [[name, name.replace("-", ":")] for name in sorted(crowd.nodes)]
    read = Here(place_of(Call(), state_dir=root)).nodes()
    assert len({where() for where in read.values()}) == 3, "the dashboard reads all that run here"
    several = say("pause", "--state-dir", root)
    assert several.code == 2
    assert "several nodes run here: say primacy --node ID" in several.err
    assert say("node", "stop", "--state-dir", root).code == 2
    again = subprocess.run(leader.call, capture_output=True, text=True, check=False, timeout=60)
    assert again.returncode == 4
    assert f"node {leader.name} runs here already: process {leader.process.pid}" in again.stderr

    def stop(node: Node) -> None:
        ended = say("node", "stop", node.name, "--state-dir", root)
        assert (ended.code, ended.out) == (0, f"node {node.name} ended\n")
        assert node.process.wait(WITHIN_S) == 0

    first = crowd.stopped_leader(stop)
    second = crowd.agree()
    assert any("release-applied" in node.codes() for node in crowd.up), "the next one need not wait out the hold"
    told = say("--node", second.name, "why", "--state-dir", root).out
    assert re.search(r"localhost-\d+ leads term", told)
    first.start()
    second = crowd.agree()
    paused = say("--node", second.name, "pause", "--state-dir", root)
    assert paused.code == 0, paused.err
    third = crowd.agree(but=second.name)
    third.tell(signal.SIGINT)
    assert third.process.wait(WITHIN_S) == 130
    gone = say("node", "stop", "--all", "--state-dir", root, "--json")
    assert sorted(json.loads(gone.out)["ended"]) == sorted(set(crowd.nodes) - {third.name})
    assert say("node", "stop", "--all", "--state-dir", root).code == 3
    assert say("cluster", "status", "--state-dir", root).code == 3


def test_a_node_waits_for_an_approval_in_manual_mode(tmp_path: Path, say: Say) -> None:  # noqa: F811
    """What stands between an election and its outcome is the agent's, whatever the workload: also none."""
    file = tmp_path / "primacy.yaml"
    file.write_text("election: {mode: manual, profile: fast}\nstate_dir: state\n")
    call = [sys.executable, "-m", "primacy.cli.main", "node", "start", "--config", str(file)]
    process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
    try:

        def waits() -> str:
            return say("approve", "--config", str(file), "--json").out

        assert json.loads(wait_until(waits, "an approval that was waited for", WITHIN_S))["role"] == "leader"
        wait_until(
            lambda: json.loads(say("status", "--config", str(file), "--json").out)["workload"]["state"] == "running",
            "a leader that was approved",
            WITHIN_S,
        )
        assert say("node", "stop", "--config", str(file)).code == 0
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.communicate()


# --- what the words mean ----------------------------------------------------------------------------------------------


def test_ids_are_made_of_host_and_port_and_ranks_of_the_start(tmp_path: Path) -> None:
    """As in Hecaton, unless something else is said; a fixed list does not say when its nodes were started."""
    root = str(tmp_path / "state")
    first = settings_of(Words(leader=True, state_dir=root), None)
    assert (first.node, first.election.strategy, first.election.rank) == ("localhost-5001", "bully", "started")
    joins = settings_of(Words(port=5002, join=("localhost:5001",), strategy="RING", state_dir=root), None)
    assert (joins.node, joins.election.strategy, joins.election.rank) == ("localhost-5002", "ring", "started")
    assert joins.cluster.manager.join == ("localhost:5001",)
    named = settings_of(Words(id="a", port=5003, leader=True, rank="natural", state_dir=root), None)
    assert (named.node, named.election.rank) == ("a", "natural")
    listed = Words(nodes=("localhost:5001", "b=localhost:5002"), id="b", state_dir=root)
    assert (settings_of(listed, None).node, settings_of(listed, None).election.rank) == ("b", "id")
    assert len({each.state_dir for each in (first, joins, named)}) == 3, "each node has a folder of its own"


def test_nodes_of_one_machine_share_a_secret_that_is_made_once_and_for_them_alone(tmp_path: Path) -> None:
    """Also if they are started together: whoever comes second must find a whole one."""
    root = tmp_path / "state"

    def read(port: int) -> str:
        settings = settings_of(Words(port=port, join=("localhost:5001",), state_dir=str(root)), None)
        return Path(settings.cluster.secret_file).read_text()

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(read, range(5002, 5034)))
    assert len(found) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", found.pop())
    made = root / "nodes" / "secret"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (root, made.parent, made)] == [0o700, 0o700, 0o600]
    assert sorted(each.name for each in made.parent.iterdir()) == ["secret"], "nothing is left of making it"
    own = tmp_path / "own"
    own.write_text("0" * 64)
    own.chmod(0o600)
    far = Words(host="10.0.0.1", leader=True, secret_file=str(own), state_dir=str(tmp_path / "far"))
    assert settings_of(far, None).cluster.secret_file == str(own)
    assert not (tmp_path / "far").exists(), "nothing is made where one was named"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--algorithm", "raft", "--leader"], "--leader does not go with raft: a majority needs a fixed list"),
        (["--algorithm", "raft", "--join", "localhost:5001"], "--join does not go with raft: a majority needs"),
        (["--algorithm", "raft"], "raft needs its list: --nodes"),
        (["--leader", "--join", "localhost:5001"], "--leader and --join exclude each other"),
        (["--leader", "--config", "f.yaml"], "--leader and --config f.yaml exclude each other"),
        (["--port", "5002", "--config", "f.yaml"], "--port 5002 and --config f.yaml exclude each other"),
        (["--cluster", "x", "--config", "f.yaml"], "--cluster x and --config f.yaml exclude each other"),
        (["--algorithm", "lease"], "needs a store: say --store URL"),
        (["--algorithm", "lease", "--store", "sqlite:///f", "--leader"], "--leader does not go with lease"),
        (["--algorithm", "raft", "--store", "sqlite:///f"], "--store goes with --algorithm lease, not with raft"),
        (["--algorithm", "paxos", "--leader"], "--algorithm paxos: a strategy is one of raft, lease, bully, ring"),
        ([], "is this the first node of a cluster, or does it join one?"),
        (["--algorithm", "raft", "--nodes", "localhost:5002,localhost:5003"], "localhost:5001 is not in --nodes"),
        (["--algorithm", "raft", "--nodes", "localhost:5001,localhost"], "--nodes localhost: this is no host:port"),
        (["--algorithm", "raft", "--nodes", "localhost:5001,localhost:5001"], "a node is named twice"),
        (["--algorithm", "raft", "--nodes", "a b=localhost:5001"], "'a b' is no id of a node"),
        (
            ["--algorithm", "raft", "--nodes", "localhost:5001,10.0.0.2:5001"],
            "10.0.0.2:5001 is not on this machine alone, and nodes that others can reach need a secret",
        ),
        (["--leader", "--host", "a-host-with-a-very-long-name"], "an id is 1 to 20"),
        (["--rank", "id", "--algorithm", "raft", "--nodes", "localhost:5001"], "raft has no ranks"),
        (["--algorithm", "raft", "--nodes", "localhost:5001", "--profile", "ghoti"], "does not fit the strategy raft"),
        (["--leader", "--port", "0"], "0 is not in the range"),
        (
            ["--nodes", "localhost:5001", "--rank", "started"],
            "election.rank = started: a node tells when",
        ),
        (["--join", "http://localhost:5001"], "--join http://localhost:5001: an address is a host and a port, nothing"),
        (["--join", "localhost:5001"], "--join localhost:5001 is this node itself"),
        (["--leader", "--cluster", "a/b"], "--cluster 'a/b': a name has letters"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(say: Say, words: list[str], reason: str) -> None:  # noqa: F811
    said = say("node", "start", "--state-dir", "state", *words)
    assert said.code == 2, said.err
    assert reason in said.err
    assert said.out == ""


def test_without_a_word_the_file_of_this_folder_counts(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """As with every other command."""
    (tmp_path / "primacy.yaml").write_text("election: {strategy: lease}\n")
    said = say("node", "start")
    assert (said.code, "needs a store" in said.err) == (2, True), said.err
    assert "is this the first node" in say("node", "start", "--port", "5001").err
