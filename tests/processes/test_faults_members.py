"""First starts, edited files, one id twice and other settings, with real nodes (M1, M3, R12; F37, F48-F50).

Safety, in the profile `lab`, judged from the stamps. Several clusters live at the same time here, each in a thread of
its own: what is judged is who ran, and never how soon.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from primacy.errors import Refused
from tests.support import real_members
from tests.support import real_nodes as crowds
from tests.support.real_members import members_crowd
from tests.support.real_nodes import Crowd, crowd_in, free_ports
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=9)

AT_ONCE = 6
side_by_side = partial(real_members.side_by_side, at_once=AT_ONCE)


def listens(crowd: Crowd, name: str) -> None:
    crowd.until(lambda: "listens on UDP" in crowd.nodes[name].text, f"{name} to listen")


def first_start(folder: Path, order: Sequence[str], init: str) -> None:
    """Nothing runs before all are there; then, by itself or by `init` on these nodes, one cluster with one command."""
    folder.mkdir()
    with crowd_in(folder, first="explicit" if init else "auto") as crowd:
        for name in order:
            safe(crowd.stamped() == [], "a command runs before all are there")
            crowd.start(name)
            listens(crowd, name)
        if init:
            safe(crowd.stamped() == [], "a command runs before anybody was told to begin")
            for name in init:
                crowd.until(lambda n=name: is_told_to_begin(crowd.nodes[n]), f"{name} to be told")  # type: ignore[misc]
        crowd.acting()
        crowd.agree()
        crowd.one_now()
        assert crowd.tokens()[-1] - crowd.tokens()[0] < 1_000  # one base: two clusters would be far apart


def is_told_to_begin(node: crowds.Node) -> bool:
    """Said a second time, when it has begun already, it is refused."""
    with contextlib.suppress(Refused):
        return node.ask("/v1/init", {}) is not None
    return True


def test_M3_first_start_by_itself_in_every_order(tmp_path: Path) -> None:
    side_by_side([lambda o=order: first_start(tmp_path / "".join(o), o, "") for order in permutations("abc")])  # type: ignore[misc]


def test_M3_first_start_by_init_in_every_order_on_one_node_and_on_two(tmp_path: Path) -> None:
    said = zip(permutations("abc"), ("a", "b", "c", "ac", "ba", "cb"), strict=True)
    side_by_side([lambda o=order, i=init: first_start(tmp_path / "".join(o), o, i) for order, init in said])  # type: ignore[misc]


def restart(crowd: Crowd, name: str) -> None:
    crowd.nodes[name].process.terminate()
    crowd.nodes[name].wait()
    crowd.start(name)
    listens(crowd, name)
    crowd.one_at_a_time()


def leader_last(crowd: Crowd, leader: str) -> str:
    return "".join(sorted(crowd.nodes.keys() - {leader})) + leader


def leader_first(crowd: Crowd, leader: str) -> str:
    return leader + leader_last(crowd, leader)[:-1]


def edited(folder: Path, before: str, after: str, order: Callable[[Crowd, str], str]) -> None:
    """The file changes, the nodes are restarted with it, one by one: nothing but a sentence. Then `members apply`.

    Without `after`, the file has d in the place of the leader: d finds it all the same.
    """
    with members_crowd(folder, before, "lan") as crowd:
        leader = crowd.settle().name
        old = crowd.acting()
        after = after or "".join(sorted({*before, "d"} - {leader}))
        crowd.list(after)
        fresh = [name for name in after if name not in before]
        for name in order(crowd, leader):
            if name in after:  # the others go on with the file of before
                restart(crowd, name)
        for name in fresh:
            crowd.start(name)
            listens(crowd, name)
        crowd.names = before
        crowd.agree()
        assert crowd.one_now().token >= old.token
        assert crowd.agreed(before)["version"] == 1
        differs = f"the file names {','.join(after)}; the members (version 1) are {','.join(before)} ("
        told = [crowd.members(name)["file"] for name in before if name in after]
        assert all(one.startswith(differs) and "): the file counts only for a first start" in one for one in told), told
        for name in fresh:
            crowd.until(lambda n=name: crowd.nodes[n].document()["role"] == "recovering", f"{name} to recover")  # type: ignore[misc]
        crowd.done(min({*before} & {*after}), "members", "apply", "--yes")
        crowd.agreed(after)
        crowd.until(lambda: crowd.members(after[0])["file"] is None, "a file that says the same")
        crowd.agree()
        assert crowd.one_now().node in after


def test_R12_a_file_that_was_edited_changes_nothing_until_it_is_applied(tmp_path: Path) -> None:
    """Three to five (in two orders), five to three, and the leader replaced by another."""
    side_by_side(
        [
            lambda: edited(tmp_path / "five", "abc", "abcde", leader_last),
            lambda: edited(tmp_path / "first", "abc", "abcde", leader_first),
            lambda: edited(tmp_path / "replace", "abc", "", leader_last),
            lambda: edited(tmp_path / "fewer", "abcde", "abc", leader_first),
        ]
    )


def to_one(folder: Path) -> None:
    """A node that was one of three, and whose file names nobody else now, ends and runs nothing. The old file helps."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        old = crowd.acting()
        for node in crowd.nodes.values():
            node.process.terminate()
        for node in crowd.nodes.values():
            node.wait()
        crowd.list("a")
        alone = crowd.start("a")
        assert alone.wait() == 5
        assert "node a is listed alone, and " in alone.text
        assert " tells that b, c belong to its cluster, too: " in alone.text
        assert "primacy members remove b" in alone.text
        safe(crowd.nobody(), "a node that is listed alone runs the command")
        crowd.list("abc")
        crowd.start()
        assert crowd.acting(old.token).token > old.token
        crowd.agree()
        crowd.one_now()


def rolled_back(folder: Path) -> None:
    """One node was started with another file, and then with the old one again: it follows all the time."""
    with members_crowd(folder, "abc", "lan") as crowd:
        leader = crowd.settle().name
        told = next(name for name in "abc" if name != leader)
        for listed in ("".join(sorted({leader, told, "d"})), "abcd", "abc"):
            crowd.list(listed)
            restart(crowd, told)
            crowd.names = "abc"
            crowd.agree()
            assert bool(crowd.members(told)["file"]) == (listed != "abc")
        assert crowd.agreed("abc")["version"] == 1
        crowd.one_now()


def retimed(folder: Path) -> None:
    """Other times are no members: each node waits until all voters have reported them (M1). One is gone for good."""
    with members_crowd(folder, "abc", "lab") as crowd:
        leader = crowd.settle().name
        old = crowd.acting()
        gone, stays = (name for name in "abc" if name != leader)
        crowds.kill_all(crowd.nodes[gone])
        crowd.nodes[gone].wait()
        crowd.profile = "fast"
        crowd.list("abc")
        for name in (stays, leader):
            restart(crowd, name)
        for name in (stays, leader):
            waits_for(crowd, crowd.nodes[name], f"reported by {gone} (gone for good: primacy rejoin --without {gone})")
        crowd.until(crowd.nobody, "the end of the last command")
        for name in (stays, leader):
            crowd.order(crowd.nodes[name], "/v1/rejoin", {"without": [gone]})
        crowd.acting(old.token)
        crowd.agree()
        assert crowd.one_now().token > old.token


def test_R12_a_file_that_names_one_node_is_refused_and_one_that_is_rolled_back_changes_nothing(tmp_path: Path) -> None:
    side_by_side([lambda: to_one(tmp_path / "one"), lambda: rolled_back(tmp_path / "back")])


def test_M1_other_times_wait_for_all_voters_or_an_operator(tmp_path: Path) -> None:
    retimed(tmp_path / "times")


@pytest.fixture
def three(tmp_path: Path) -> Any:
    with crowd_in(tmp_path, switched=True) as made:
        yield made


def test_F37_a_ballot_that_is_lost_or_torn_mutes_its_node_until_all_have_answered(three: Crowd) -> None:
    """While one other is away the node stays mute: it may not vote, however long it waits."""
    leader = three.settle().name
    lost, away = (name for name in three.names if name != leader)
    for spoil in (Path.unlink, lambda ballot: ballot.write_bytes(ballot.read_bytes()[:50])):
        crowds.kill_all(three.nodes[lost])
        crowds.kill_all(three.nodes[away])
        three.nodes[lost].wait()
        three.nodes[away].wait()
        spoil(three.nodes[lost].ballot)
        node = three.start(lost)
        three.until(lambda n=node: "from memory" in (n.document()["waits_for"] or ""), "the sentence")  # type: ignore[misc]
        time.sleep(2 * three.timing.promise_ms / 1_000)
        assert node.document()["role"] == "recovering"
        three.until(three.nobody, "silence: one of three is no majority")
        three.start(away)
        three.until(lambda n=node: n.document()["role"] != "recovering", "that it recovers")  # type: ignore[misc]
        three.agree()
        three.one_now()
        leader = three.acting().node
        lost, away = (name for name in three.names if name != leader)


def waits_for(crowd: Crowd, node: crowds.Node, what: str) -> None:
    crowd.until(lambda: what in (node.document()["waits_for"] or ""), f"{node.log.name} to wait for {what}")


def said_by(crowd: Crowd, name: str, said: str, why: str) -> None:
    """In what `status` is made from there, of all nodes, and in what `why` is made from."""
    node = crowd.nodes[name]

    def in_status() -> bool:
        cluster = node.ask("/v1/cluster") or {"alerts": (), "nodes": ()}
        return any(said in each for each in (*cluster["alerts"], *(str(row["waits_for"]) for row in cluster["nodes"])))

    crowd.until(in_status, f"{said!r} in the status of {name}")
    events = node.state / crowds.CLUSTER / crowds.ELECTION / "events.jsonl"
    crowd.until(lambda: why in events.read_text(), f"{why!r} in the events of {name}")


def test_F49_two_machines_with_one_id_are_both_muted_and_said(three: Crowd) -> None:
    """A disk was copied: the others hear two boots of one start, and the one that leads goes on."""
    leader = three.settle().name
    duplicate = next(name for name in three.names if name != leader)
    three.nodes[duplicate].process.terminate()
    three.nodes[duplicate].wait()
    shutil.copytree(three.nodes[duplicate].state, three.folder / "copy")
    (port,) = free_ports(1)
    three.switch(nodes={duplicate: [three.listed[duplicate], three.ports[duplicate], port]})
    three.file("copy.yaml", **{duplicate: port})
    nodes = [three.start(duplicate), three.start(duplicate, state="copy", file="copy.yaml")]
    for node in nodes:
        waits_for(three, node, "an operator: another node runs with this id")
        assert node.document()["role"] == "recovering"
    others = [name for name in three.names if name != duplicate]
    hears = three.until(
        lambda: next((n for n in others if "an id that is used twice" in three.nodes[n].text), ""), "the alert"
    )  # of whoever leads now: on a busy machine that may change
    said_by(three, hears, "is recovering, for another node runs with its id", why="an id that is used twice")
    three.one_now()
    for node in nodes:
        node.process.kill()
        node.wait()
    three.switch(nodes={duplicate: [three.listed[duplicate], three.ports[duplicate]]})
    three.start(duplicate)
    three.until(
        lambda: three.nodes[duplicate].document()["role"] != "recovering", "the one that is left to be heard again"
    )
    three.agree()
    three.one_now()


def test_F50_a_node_with_other_settings_is_left_out_and_said(three: Crowd) -> None:
    """Another profile on one node: no votes and no acks between it and the others; both sides say so."""
    leader = three.settle().name
    other = next(name for name in three.names if name != leader)
    before = three.acting()
    three.nodes[other].process.terminate()
    three.nodes[other].wait()
    three.file("other.yaml", profile="fast")
    node = three.start(other, file="other.yaml")
    waits_for(three, node, "its new times to be reported by")
    assert node.document()["role"] == "recovering"
    others = [name for name in three.names if name != other]
    three.until(lambda: any(f"{other} ignores {name}" in node.text for name in others), "the sentence")
    other_file = f"node {other} runs with another configuration than "
    hears = three.until(
        lambda: next((name for name in others if other_file + name in three.nodes[name].text), ""), "the other sentence"
    )  # of whoever leads now
    said_by(three, hears, other_file + hears, why=other_file + hears)
    time.sleep(2 * three.timing.promise_ms / 1_000)
    assert three.one_now().token >= before.token
    assert node.document()["workload"]["state"] == "stopped"
    node.process.terminate()
    node.wait()
    three.start(other)
    three.until(lambda: three.nodes[other].document()["role"] != "recovering", "the node with the old file back")
    three.agree()
    three.one_now()
