"""The lab: real agents that are killed, frozen and cut off, and nothing that stays behind.

Overlap is judged from the stamps of the commands, ordered by (token, run), whatever the lab itself says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main as entry
from primacy.control.client import ask, find
from primacy.errors import InUse, NotReached, Refused, UsageError
from primacy.lab.bound_process import Held, ended
from primacy.lab.cluster import Lab
from primacy.lab.network import LabNetwork, islands_of
from primacy.lab.place import LOCK, holder_of
from tests.support import stamp
from tests.support.safety_checks import one_at_a_time
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=200)

STAMP = (sys.executable, "-I", "-S", str(Path(stamp.__file__)))
WITHIN_S = 40.0
"""Far more than anything here takes: only a hang reaches it."""


@pytest.fixture
def stamps(tmp_path: Path) -> Path:
    made = tmp_path / "stamps"
    stamp.make_file(str(made))
    return made


@pytest.fixture
def lab(tmp_path: Path, stamps: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab", 5, "lab", (*STAMP, str(stamps))) as made:
        yield made


# --- links ------------------------------------------------------------------------------------------------------------


def test_a_link_is_two_streets_and_each_end_knows_its_part() -> None:
    links = LabNetwork("abc")
    links.set("a", "b", "out")
    assert links.listed() == [["a", "b"]]
    assert (links.way("a", "b"), links.way("b", "a"), links.way("a", "c")) == ("out", "in", "none")
    links.set("b", "a", "out")
    assert links.listed() == [["b", "a"]]  # a link has one state: what was said last
    links.set("a", "b", "both")
    assert {links.way("a", "b"), links.way("b", "a")} == {"both"}
    links.set("a", "b", "none")
    assert not links.cut


@pytest.mark.parametrize(
    ("shape", "count", "islands"),
    [
        ("leader-alone", 5, ["d", "abce"]),
        ("2/3", 5, ["da", "bce"]),
        ("2/3", 4, ["d", "abc"]),
        ("2/3", 3, ["c", "ab"]),
        ("halves", 4, ["da", "bc"]),
        ("halves", 5, ["da", "bc", "e"]),
    ],
)
def test_shapes_put_the_leader_where_it_loses_its_majority(shape: str, count: int, islands: list[str]) -> None:
    names = "abcde"[:count]
    found = islands_of(shape, names, "d" if count > 3 else "c")
    assert ["".join(island) for island in found] == islands
    assert len(found[0]) * 2 <= count
    links = LabNetwork(names)
    links.divide(found)
    assert len(links.cut) == count * (count - 1) - sum(len(island) * (len(island) - 1) for island in found)


def test_nonsense_about_links_gets_one_sentence() -> None:
    links = LabNetwork("ab")
    for node, other, way, part in (
        ("a", "x", "both", "no node of this lab"),
        ("a", "a", "both", "no link with itself"),
        ("a", "b", "sideways", "one of none, in, out, both"),
    ):
        with pytest.raises(UsageError, match=part):
            links.set(node, other, way)
    with pytest.raises(UsageError, match="is named twice"):
        links.divide(["a", "a"])
    with pytest.raises(UsageError, match="one of leader-alone, halves, 2/3"):
        islands_of("thirds", "ab", "a")


# --- processes --------------------------------------------------------------------------------------------------------


def stamping(lab: Lab, stamps: Path, but: str = "") -> str:
    """The next leader, once its command has stamped: what is killed before has nothing to overlap with."""

    def found() -> str:
        leader = lab.until_acting(but)
        token = (lab.state(leader) or {}).get("token")
        return leader if token in {each.token for each in stamp.read(str(stamps))} else ""

    return lab.until(found, "the stamps of a leader")


def test_one_command_at_a_time_whatever_is_done_to_the_nodes(lab: Lab, stamps: Path) -> None:
    lab.start()
    first = stamping(lab, stamps)
    lab.kill(first)
    second = stamping(lab, stamps, but=first)
    lab.start(first)

    lab.kill(second, whole=True)
    third = stamping(lab, stamps, but=second)
    with pytest.raises(Refused, match=f"node {second} is not running"):
        lab.kill(second)
    lab.start(second)

    lab.freeze(third)
    fourth = stamping(lab, stamps, but=third)
    lab.freeze(fourth, guard=True)
    fifth = stamping(lab, stamps, but=fourth)
    assert {row.process for row in lab.look() if row.node in (third, fourth)} == {"frozen"}
    lab.thaw(third)
    lab.thaw(fourth)
    lab.restart(fifth)
    stamping(lab, stamps)

    def peace() -> Any:
        """What a node that was thawed last said of itself is old news by then."""
        said = lab.cluster("a")
        return said if said["acting"] and not said["alerts"] else None

    seen = lab.until(peace, "who acts, as a knows it, without an alert")
    assert [row["node"] for row in seen["nodes"]] == list(lab.names)

    events = lab.events()
    assert {row["node"] for row in events} == set(lab.names)
    assert [row["at_unix_ms"] for row in events] == sorted(row["at_unix_ms"] for row in events)
    assert len({each.token for each in stamp.read(str(stamps))}) >= 6
    one_at_a_time(stamp.read(str(stamps)))


def test_every_shape_of_a_divided_network_and_a_cut_that_outlives_a_restart(lab: Lab, stamps: Path) -> None:
    """Who leads when the links are cut is known by the links: on a busy machine it may be another than a moment ago."""

    def reached(name: str) -> set[str]:
        return {name, *(other for other in lab.names if lab.links.way(name, other) == "none")}

    lab.start()
    lab.until_acting()
    lab.partition("leader-alone")
    alone = next(name for name in lab.names if reached(name) == {name})
    lab.until_acting(but=alone)
    lab.restart(alone)
    assert lab.get(alone, "/v1/links")["links"] == dict.fromkeys([n for n in lab.names if n != alone], "both")

    lab.heal()
    lab.partition("halves")
    lab.until(lambda: not lab.leader(), "nobody at work")
    lab.heal()
    lab.until_acting()

    lab.partition("2/3")
    small = min(map(reached, lab.names), key=len)
    assert len(small) == 2
    lab.until(lambda: lab.leader() not in ("", *small), "a leader on the larger side")
    lab.heal()

    # One way: it hears all and nobody hears it, or it hears nobody; the others elect anew in both cases.
    for way in ("out", "in"):
        deaf = lab.until_acting()
        for other in lab.names:
            if other != deaf:
                lab.cut(deaf, other, way)
        lab.until_acting(but=deaf)
        lab.heal()
    one_at_a_time(stamp.read(str(stamps)))


HOLDS = """
import sys, time
from primacy.lab.cluster import Lab
lab = Lab(sys.argv[1], 3, "lab", sys.argv[2:])
lab.start()
leader = lab.until_acting()
other = next(name for name in lab.names if name != leader)
lab.freeze(leader, guard=True)
lab.freeze(other)
print(*(node.agent.pid for node in lab.nodes.values()), flush=True)
time.sleep(60)
"""


def test_a_killed_maker_leaves_nothing_behind_not_even_what_is_frozen(tmp_path: Path, stamps: Path) -> None:
    call = [sys.executable, "-c", HOLDS, str(tmp_path / "lab"), *STAMP, str(stamps)]
    maker = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    held = Held()
    try:
        assert maker.stdout is not None
        agents = [int(word) for word in maker.stdout.readline().split()]
        assert len(agents) == 3
        held.take_tree(maker.pid)
        assert set(agents) < held.handles.keys()
        maker.send_signal(signal.SIGKILL)
        maker.wait()
        for pid, handle in held.handles.items():
            assert ended(handle, WITHIN_S), f"process {pid} lives on"
    finally:
        maker.kill()
        maker.communicate()
        held.send(signal.SIGKILL)
        held.close()


def test_the_example_of_the_document_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/lab.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    call = [sys.executable, "-c", example]
    said = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, timeout=4 * WITHIN_S, check=True)
    assert re.fullmatch("[abc] runs it now\n", said.stdout)


# --- the folder -------------------------------------------------------------------------------------------------------


def test_one_lab_per_folder_and_nothing_of_others_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    with pytest.raises(UsageError, match="it is no lab's"):
        Lab(tmp_path / "mine")
    (tmp_path / "node").mkdir()
    for name in ("ballot", "agent.lock", "events.jsonl"):
        (tmp_path / "node" / name).touch()
    with pytest.raises(UsageError, match="the state folder of a node"):
        Lab(tmp_path / "node")
    assert (tmp_path / "node" / "events.jsonl").exists()
    where = tmp_path / "lab"
    with Lab(where, 1) as first:
        with pytest.raises(InUse, match=rf"by process {os.getpid()} \(.*\); end it with: primacy lab down"):
            Lab(where, 1)
        holder = holder_of(where)
        assert holder is not None
        assert holder.pid == os.getpid()
        with pytest.raises(UsageError, match="there is no node x in this lab; there are a"):
            first.kill("x")
        (where / "kept").touch()
        secret = (where / "secret").read_text()
    assert holder_of(where) is None
    with Lab(where, 2):
        assert (where / "kept").exists()
        assert (where / "secret").read_text() != secret
    assert (where / LOCK).exists()


def test_a_node_that_cannot_start_says_why_and_another_thread_may_not_start_one(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", 1, more={"run": {"require_containment": "nonsense"}}) as lab:
        with pytest.raises(NotReached, match=r"node a ended with 2 before it answered[^$]*require_containment"):
            lab.start()
        assert lab.look()[0].process == "ended"
        wrong: list[BaseException] = []

        def elsewhere() -> None:
            try:
                lab.start()
            except AssertionError as error:
                wrong.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "the thread that made it" in str(wrong[0])


# --- the supervisor ---------------------------------------------------------------------------------------------------


class Up:
    """`primacy lab up` as a process, with handles of everything below it."""

    def __init__(self, where: Path) -> None:
        self.where = where
        call = [sys.executable, "-m", "primacy.cli.main", "lab", "up", "--nodes", "3", "--profile", "lab"]
        self.process = subprocess.Popen(
            [*call, "--dir", str(where)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.held = Held()
        self.held.take_tree(self.process.pid)

    def ask(self, path: str, order: dict[str, Any] | None = None) -> Any:
        found = find(str(self.where))
        assert found is not None
        return ask(found, path, order)

    def until(self, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        said: dict[str, Any] = {}

        def asked() -> bool:
            nonlocal said
            said = self.ask("/v1/lab")
            return check(said)

        wait_until(asked, "that of the lab", WITHIN_S, 0, told=lambda: said)
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.held.send(signal.SIGKILL)
        self.held.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path / "lab")
    yield made
    made.close()


def test_the_api_shows_the_lab_and_does_what_it_is_told(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    assert "3 nodes, profile lab" in up.line
    said = up.until(lambda said: said["leader"] and said["chain"]["height"] > 2 and said["acting"] == [said["leader"]])
    leader = said["leader"]
    assert [row["process"] for row in said["nodes"]] == ["running"] * 3

    assert leader not in up.ask(f"/v1/lab/{leader}/kill", {"whole": True})["acting"]
    up.until(lambda said: said["leader"] not in (None, leader) and said["chain"]["counters"]["handovers"] >= 1)
    up.ask(f"/v1/lab/{leader}/start", {})
    cuts = up.ask("/v1/lab/partition", {"shape": "leader-alone"})["cuts"]
    assert len(cuts) == 4
    (alone,) = (name for name in "abc" if all(name in street for street in cuts))  # whoever led when they were cut
    up.until(lambda now: now["leader"] not in (None, alone))
    assert up.ask("/v1/lab/heal", {})["cuts"] == []
    assert up.ask("/v1/lab/links", {"node": "a", "with": "b", "cut": "in"})["cuts"] == [["b", "a"]]
    assert up.ask("/v1/lab/partition", {"islands": [["a", "b", "c"]]})["cuts"] == []

    # All nodes' events and the lab's own, in one log with one numbering.
    until_s = time.monotonic() + WITHIN_S
    while "the lab kills" not in str(events := up.ask("/v1/events")) or len({e["node"] for e in events}) < 4:
        assert time.monotonic() < until_s
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))

    for order, body, kind, part in (
        ("nobody/kill", {}, UsageError, "there is no node nobody in this lab"),
        (f"{leader}/thaw", {}, Refused, "is running, not frozen"),
        ("a/kill", {"hard": True}, UsageError, "there is whole"),
        ("a/freeze", {"guard": "yes"}, UsageError, "true or false"),
        ("a/explode", {}, Refused, "there is nothing at"),
        ("links", {"node": "a", "with": 7, "cut": "in"}, UsageError, "with = 7: a word"),
        ("partition", {}, UsageError, "say either"),
        ("partition", {"islands": "ab"}, UsageError, "a list of lists"),
    ):
        with pytest.raises(kind, match=part):
            up.ask(f"/v1/lab/{order}", body)
    found = find(str(up.where))
    assert found is not None
    with pytest.raises(Refused, match="needs the control key"):
        ask(found._replace(key="0" * 64), "/v1/lab/a/kill", {})

    assert entry.run(["lab", "status", "--dir", str(up.where)]) == 0
    assert "double signatures" in capsys.readouterr().out
    assert entry.run(["lab", "up", "--dir", str(up.where)]) == 4
    assert f"by process {up.process.pid}" in capsys.readouterr().err
    assert up.ask("/v1/lab")["chain"]["counters"]["double_signatures"] == 0
    assert entry.run(["lab", "down", "--dir", str(up.where)]) == 0
    assert up.process.wait(WITHIN_S) == 0
    assert entry.run(["lab", "down", "--dir", str(up.where)]) == 3


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 0), (signal.SIGKILL, -9)], ids=["ctrl-c", "hup", "kill"]
)
def test_however_it_ends_nothing_stays_behind(up: Up, number: signal.Signals, code: int) -> None:
    up.until(lambda said: bool(said["leader"]))
    up.held.take_tree(up.process.pid)
    assert len(up.held.handles) >= 3 * 2 + 1
    up.process.send_signal(number)
    assert up.process.wait(WITHIN_S) == code
    for pid, handle in up.held.handles.items():
        assert ended(handle, WITHIN_S), f"process {pid} lives on"


SIGNALLED = """
import queue, signal
from primacy.lab.supervisor import Supervisor
up = object.__new__(Supervisor)
up.asked, up.end_s, up._orders, up._endings = 0, float("inf"), queue.SimpleQueue(), {}
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
for _ in range(2_000):
    up.rest(0.001)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_at_the_end_of_a_wait_does_not_make_it_endless() -> None:
    subprocess.run([sys.executable, "-c", SIGNALLED], check=True, timeout=2 * WITHIN_S)


def test_a_lab_in_the_background(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    where = str(tmp_path / "lab")
    assert (
        entry.run(["lab", "up", "--nodes", "1", "--profile", "lab", "--dir", where, "--detach", "--", "sleep", "60"])
        == 0
    )
    try:
        assert "1 node, profile lab" in capfd.readouterr().out
        assert entry.run(["lab", "status", "--dir", where, "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["command"] == ["sleep", "60"]
    finally:
        assert entry.run(["lab", "down", "--dir", where]) == 0
    for call, code, part in (
        (["up", "--profile", "nonsense"], 2, "raft has lab, fast"),
        (["up", "--nodes", "0"], 2, "not in the range"),
        (["kill", "a", "--dir", where], 3, "no lab is up"),
    ):
        assert entry.run(["lab", *call]) == code
        assert part in capfd.readouterr().err
