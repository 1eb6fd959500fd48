"""What operators see of a real cluster: a rolling upgrade, two machines with one id, files that differ, a name that
nobody knows. The command runs at most once throughout, judged by its stamps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main as entry
from tests.support.canary import beside_a_canary
from tests.support.real_nodes import Crowd, Node, crowd_in, free_ports
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=150)

MORE_FIELDS = """
import msgspec
from primacy.transport import layout, short, udp
def later(packed):
    return lambda said: msgspec.msgpack.encode([*msgspec.msgpack.decode(packed(said)), "later", {"x": [1]}])
udp.packed = short.packed = later(layout.packed)
udp.packed_word = later(layout.packed_word)
encode = short._encode
short._encode = lambda said: encode((*said, "later") if said[0] in (short.HEARTBEAT, short.ACK) else said)
"""
"""A later version that says more in every message and every word, in the layout of today."""
NEXT_LAYOUT = """
from primacy.transport import seal, udp
seal.LAYOUT = udp.LAYOUT = 2
"""
"""A later version whose messages cannot be read by today's."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Crowd]:
    with crowd_in(tmp_path) as made:
        yield made


def rows(node: Node) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in (node.ask("/v1/cluster") or {"nodes": []})["nodes"]}


def trouble(node: Node, about: str) -> str:
    return str(rows(node).get(about, {}).get("trouble") or "")


def alerts(node: Node) -> str:
    return "\n".join((node.ask("/v1/cluster") or {"alerts": []})["alerts"])


def upgrade(crowd: Crowd, name: str, plant: str) -> None:
    """Ends a node in order, and starts the later version in its place."""
    crowd.nodes[name].process.terminate()
    crowd.nodes[name].wait()
    crowd.plant = plant
    crowd.start(name)


def test_a_rolling_upgrade_over_more_fields_and_then_over_another_layout(three: Crowd) -> None:
    """Who leads meanwhile is nobody's business: a busy machine may well change it in this profile."""
    three.settle()

    # More fields: a later version and today's understand each other, in both directions.
    upgrade(three, "c", MORE_FIELDS)
    three.agree()
    for near, far in (("c", "a"), ("a", "c"), ("b", "c")):
        three.until(
            lambda near=near, far=far: rows(three.nodes[near]).get(far, {}).get("leader"), f"what {near} says of {far}"
        )
    three.acting()
    three.one_at_a_time()
    dropped = [
        node.document()["counters"].get(kind, 0) for node in three.nodes.values() for kind in ("payload", "head")
    ]
    assert not any(dropped)

    # Another layout, one node after the other. The first one is not heard, and everybody says what to do.
    upgrade(three, "c", NEXT_LAYOUT)
    says = (
        "node c speaks layout 2, and this version of primacy layout 1: they do not hear each other; upgrade this node"
    )
    three.until(lambda: says in trouble(three.nodes["a"], "c"), "what an older node says")
    three.until(lambda: "upgrade node b" in trouble(three.nodes["c"], "b"), "what the newer node says")
    assert three.acting().node in "ab"
    assert three.nodes["c"].document()["role"] != "leader"

    # With the second one the later version has the majority; the third one alone runs nothing.
    upgrade(three, "b", NEXT_LAYOUT)
    three.until(lambda: "upgrade this node" in trouble(three.nodes["a"], "b"), "what the last older node says")
    three.until(lambda: three.acting().node in "bc", "the command with the majority")
    three.one_at_a_time()
    upgrade(three, "a", NEXT_LAYOUT)
    three.agree()
    three.until(lambda: not any(trouble(node, name) for node in three.nodes.values() for name in three.names), "peace")
    three.acting()
    three.one_at_a_time()


def test_two_machines_with_one_id_and_a_file_that_differs_are_alarms_everywhere(
    three: Crowd, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    three.settle()
    here = three.nodes["a"]
    three.file("second.yaml", c=free_ports(1)[0])
    duplicate = three.start("c", state="second", file="second.yaml")
    says = "two nodes run with the id c"
    for node in three.nodes.values():  # itself as well
        three.until(lambda node=node: says in alerts(node), f"the alert on {node.name}")
    three.until(lambda: ", one of them from 127.0.0.1:" in alerts(here), "from where")
    three.until(lambda: says in here.text, "its line in the log")

    monkeypatch.chdir(three.folder)
    where = ("--config", "primacy.yaml", "--state-dir", str(here.state))

    def prints(command: str, *words: str) -> bool:
        """In this moment: on a machine that stalls, nobody may lead, or be heard, in one or the other."""
        code, said = entry.run([command, *where]), capsys.readouterr().out
        return code == 0 and all(each in said for each in words)

    three.until(lambda: prints("status", f"ALERT: {says}", "stop one of them"), "the alert in a status")
    three.until(lambda: prints("why", says), "the alert among the reasons")
    three.until(lambda: duplicate.document()["role"] == "recovering", "a second one that keeps still")
    three.acting()
    three.one_at_a_time()
    duplicate.process.kill()
    duplicate.wait()

    three.nodes["b"].process.terminate()
    three.nodes["b"].wait()
    three.file("other.yaml", profile="fast")
    three.start("b", file="other.yaml")
    another = "node b runs with another configuration than a"
    three.until(lambda: another in (told := alerts(here)) and "primacy check" in told, "the alert about another file")
    mute = "its new times to be reported by"
    three.until(
        lambda: mute in str(rows(here).get("b", {}).get("waits_for")), "that it is mute, seen from another node"
    )
    three.until(lambda: rows(here).get("b", {}).get("role") == "recovering", "and its role")
    three.acting()
    three.one_at_a_time()


def test_a_name_that_nobody_knows_is_said_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with crowd_in(tmp_path, "ab") as two:
        text = (tmp_path / "primacy.yaml").read_text()
        known = f'addr: "127.0.0.1:{two.listed["b"]}"'
        (tmp_path / "primacy.yaml").write_text(text.replace(known, 'addr: "nobody.invalid:7400"'))
        node = two.start("a")
        two.until(lambda: "nobody.invalid:7400 cannot be resolved yet" in trouble(node, "b"), "the name")
        two.until(lambda: rows(node).get("b", {"heard_ms": 0})["heard_ms"] is None, "one that was never heard")
        says = "node b: its address nobody.invalid:7400 cannot be resolved yet"

        def shown() -> bool:
            code = entry.run(["status", "--config", str(tmp_path / "primacy.yaml"), "--state-dir", str(node.state)])
            return (code, says in capsys.readouterr().out) == (1, True)

        two.until(shown, "the name in a status")


@beside_a_canary(250, passes_if_late=True)
def test_an_approval_is_passed_on_and_a_witness_and_an_observer_are_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Manual mode, said on a node that has nothing to do with it."""
    with crowd_in(tmp_path, "abwo", "lan", more="  mode: manual\n") as four:
        text = (tmp_path / "primacy.yaml").read_text()
        for name, kind in (("w", "witness"), ("o", "observer")):
            text = text.replace(f'      {name}: {{addr: "', f'      {name}: {{kind: {kind}, addr: "')
        (tmp_path / "primacy.yaml").write_text(text)
        four.start()
        leader = four.agree()
        watcher = four.nodes["o"]
        four.until(
            lambda: "primacy approve" in str(rows(watcher).get(leader, {}).get("waits_for")),
            "what the winner waits for",
        )
        wanted = {"o": ("observer", "observer"), "w": ("follower", "witness")}

        def all_four() -> bool:
            found = rows(watcher)
            kinds = {name: (row["role"], row["kind"]) for name, row in found.items() if name in wanted}
            return len(found) == 4 and all(row["role"] for row in found.values()) and kinds == wanted

        four.until(all_four, "all four, seen from the observer")
        safe(four.stamped() == [], "a command runs before it was approved")
        where = ("--config", str(tmp_path / "primacy.yaml"), "--state-dir", str(watcher.state))
        assert entry.run(["approve", *where]) == 0, capsys.readouterr().err
        assert f"a start of node {leader} in term" in capsys.readouterr().out
        assert four.acting().node == leader
        four.one_at_a_time()
