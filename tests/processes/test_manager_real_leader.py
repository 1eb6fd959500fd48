"""What our nodes show, and what they know of each other, while a real node of Ghoti leads them (a double of one)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from primacy.cli.status import OLD_MS, acting, sentences
from primacy.membership.ghoti import storms as http_storms
from primacy.membership.ghoti.beliefs import QUIET_S
from primacy.membership.http_handlers import MOVING
from primacy.transport.layout import packed_word, unpacked_word
from tests.processes.test_manager_process import WITHIN_S, Node
from tests.support.ghoti_double import Double
from tests.support.managers_in_one_loop import LIMIT_S, PASSWORD, USER
from tests.support.mixed_clusters import Mixed, played
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=60)

WORD = [1, "how it stands"]


# --- in one loop ------------------------------------------------------------------------------------------------------


def listens(nodes: Mixed, name: str) -> set[str]:
    """Of whom this node hears; it says something of itself meanwhile, as an agent does."""
    heard: set[str] = set()
    manager = nodes.up[name].manager
    manager._overhear = lambda node, _, row: heard.add(node)
    return heard


def says(nodes: Mixed, number: int) -> None:
    for node in nodes.up.values():
        for entry in node.manager.member_list.others:
            node.manager.tell(entry.node, [*WORD, node.node, number], later=True)


def test_words_have_a_form_that_travels() -> None:
    assert unpacked_word(packed_word([*WORD, "a", 1])) == [*WORD, "a", 1]


def test_under_a_real_leader_our_nodes_hear_of_each_other_and_of_nobody_else() -> None:
    """Four of ours that have met only a real node; a second real one is asked once who it is, and let be."""

    async def scene(nodes: Mixed) -> None:
        leader = await nodes.double("z")
        follower = await nodes.double("y", "z")
        for name in "abcd":
            await nodes.start(name, ["z"])
        everybody = set("abcdyz")
        await nodes.until(
            lambda: all(set(node.manager.member_list.peers) == everybody for node in nodes.up.values()),
            "all are listed",
        )
        await nodes.calmed()
        await nodes.until(lambda: nodes.agreed() in "yz" and nodes.agreed(), "a real node leads")
        heard = {name: listens(nodes, name) for name in nodes.up}
        number = 0

        def all_heard() -> bool:
            nonlocal number
            number += 1
            says(nodes, number)
            return all(heard[name] == set(nodes.up) - {name} for name in nodes.up)

        await nodes.until(all_heard, "each of ours hears of each other")
        assert leader.heard["/members"] == follower.heard["/members"] == 0

    played(scene, pace=1.0)


def test_under_a_leader_of_ours_nothing_is_sent_for_it() -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.start("b")
        await nodes.leads("b")
        await nodes.start("a", ["b"])
        await nodes.double("z", "b")
        await nodes.until(
            lambda: all("z" in node.manager.member_list.peers for node in nodes.up.values()), "all know z"
        )
        await nodes.leads("b", "a", "b")
        before = [dict(node.manager.counters) for node in nodes.up.values()]  # nothing else has a turn in between
        for node in nodes.up.values():
            node.manager.machine.gossip.turn()
        assert [dict(node.manager.counters) for node in nodes.up.values()] == before

    played(scene)


# --- lines in a real node's log ---------------------------------------------------------------------------------------


LOGGED = ("/coordinator", "/remove", "/election", "/join")
"""A real node writes two or three lines for each of these, and none for a look."""
WATCHED_S = 4.0


async def written(nodes: Mixed, double: Double) -> tuple[float, int, int]:
    """For how long it was watched, what it wrote lines about, and how often it gave a reason for more."""

    def reasons() -> int:
        """Calls, announcements and joins of doubles, and elections among all: each may be answered at once."""
        asked = [node.manager.counters for node in nodes.up.values()]
        moves = sum(counted.get(f"received{path}", 0) for counted in asked for path in MOVING)
        return moves + len(nodes.events)

    def lines() -> int:
        return sum(double.heard[path] for path in LOGGED)

    loop = asyncio.get_running_loop()
    began_s, before, moved = loop.time(), lines(), reasons()
    await nodes.until(lambda: loop.time() - began_s > WATCHED_S and lines() > before, "it was told or asked")
    return loop.time() - began_s, lines() - before, reasons() - moved


def test_a_real_follower_of_ours_is_told_every_two_seconds_and_not_at_every_heartbeat() -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.start("b")
        await nodes.leads("b")
        double = await nodes.double("a", "b")
        await nodes.settled()
        span_s, lines, reasons = await written(nodes, double)
        assert lines <= 2 + span_s / (QUIET_S - 0.5) + 2 * reasons

    played(scene, pace=1.0)


def test_a_real_leader_of_ours_is_asked_every_two_seconds_whether_it_leads() -> None:
    async def scene(nodes: Mixed) -> None:
        double = await nodes.double("z")
        for name in "ab":
            await nodes.start(name, ["z"])
        await nodes.settled()
        span_s, lines, reasons = await written(nodes, double)
        assert lines <= 2 * (2 + span_s / (QUIET_S - 0.5) + 2 * reasons)

    played(scene, pace=1.0)


def test_a_real_node_that_changes_its_mind_is_told_at_the_next_heartbeat() -> None:
    """What real nodes say makes us say it again at once; a silent change is found out within two seconds."""

    async def scene(nodes: Mixed) -> None:
        await nodes.start("b")
        await nodes.leads("b")
        double = await nodes.double("a", "b")
        await nodes.settled()
        for _ in range(3):
            await nodes.until(lambda: "a" in nodes.up["b"].manager.machine.beliefs._told, "it was told")
            await double.ask("POST", nodes.up["b"].manager.identity.addr, "/coordinator", '{"id":"a"}')
            assert "a" not in nodes.up["b"].manager.machine.beliefs._told
            double.leader = "nobody"
            await nodes.until(lambda: double.leader == "b", "it is told again")

    played(scene, pace=1.0)


# --- one that restarts ------------------------------------------------------------------------------------------------


def test_a_real_node_that_restarts_again_and_again_is_taken_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Echoes of its joins, which are kept waiting, look the same; but then the node is there. All within one window,
    however slow this machine is, and a wait that is noticed."""
    monkeypatch.setattr(http_storms, "STORM_S", 3_600.0)
    monkeypatch.setattr(http_storms, "HELD_S", 3_600.0)

    async def scene(nodes: Mixed) -> None:
        await nodes.start("b")
        await nodes.leads("b")
        for _ in range(http_storms.STORM_LEAST + 3):
            async with asyncio.timeout(LIMIT_S):
                await nodes.double("a", "b")
            await nodes.kill("a")
            await asyncio.sleep(http_storms.STARTS_S)
        assert "echoes_held" not in nodes.up["b"].manager.counters

    played(scene)


def test_of_tellers_that_are_kept_waiting_the_log_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_storms, "STORM_S", 3_600.0)

    async def scene(nodes: Mixed) -> None:
        await nodes.start("b")
        await nodes.leads("b")
        double = await nodes.double("a", "b")
        told = {"addr": double.addr, "id": "a"}
        at = nodes.up["b"].manager.identity.addr
        tellers = [
            asyncio.create_task(double.ask("POST", at, "/join", told)) for _ in range(http_storms.STORM_LEAST + 3)
        ]
        await nodes.until(lambda: any("tell of node a again and again" in said for said in nodes.said), "it is said")
        assert nodes.up["b"].manager.counters["echoes_held"] >= 1
        assert sum("again and again" in said for said in nodes.said) == 1
        for teller in tellers:
            teller.cancel()
        await asyncio.gather(*tellers, return_exceptions=True)

    played(scene, pace=1.0)


# --- real processes ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def real_node(name: str, port: int) -> Iterator[Double]:
    """A double in a loop and a thread of its own; it begins a cluster and leads."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    double = Double(name, port, USER, PASSWORD)
    try:
        asyncio.run_coroutine_threadsafe(double.start(), loop).result(WITHIN_S)
        yield double
    finally:
        asyncio.run_coroutine_threadsafe(double.kill(), loop).result(WITHIN_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN_S)
        loop.close()


def file_of(folder: Path, name: str, port: int, join: int) -> Path:
    manager = {"type": "join_server", "addr": f"127.0.0.1:{port}", "join": f"127.0.0.1:{join}"}
    told = {
        "cluster": {"node": name, "user": USER, "pass": PASSWORD, "manager": manager},
        "election": {"profile": "lan"},
        "state_dir": name,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(told))
    return file


def fresh(whole: dict[str, Any] | None, names: tuple[str, ...]) -> bool:
    rows = {row["node"]: row for row in (whole or {"nodes": []})["nodes"]}
    return all(name in rows and rows[name]["told_ms"] is not None and rows[name]["told_ms"] < OLD_MS for name in names)


def test_status_beside_a_real_leader_shows_our_nodes_and_does_not_say_that_nothing_runs(tmp_path: Path) -> None:
    first, *ports = free_ports(3)
    with real_node("z", first), contextlib.ExitStack() as ends:
        nodes = {}
        for name, port in zip("ab", ports, strict=True):
            words = ["--config", str(file_of(tmp_path, name, port, first))]
            node = nodes[name] = Node(tmp_path, name, [*words, "run", "--allow-split-brain", "--", "sleep", "1000"])
            node.start()
            ends.callback(node.kill)
        for name, node in nodes.items():
            wait_until(
                lambda node=node: (node.ask() or {}).get("leader") == "z", f"{name} follows the real node", WITHIN_S
            )  # type: ignore[misc]
            wait_until(
                lambda node=node: fresh(node.ask("/v1/cluster"), ("a", "b")), f"{name} hears of all of ours", WITHIN_S
            )  # type: ignore[misc]
        call = [sys.executable, "-m", "primacy.cli.main", "--config", str(tmp_path / "a.yaml"), "status"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        said = done.stdout
        assert done.returncode == 1, "not known is not well"
        assert "node z leads; whether its command runs is not known here, as Ghoti does not say it" in said
        assert "nobody runs" not in said
        assert "node b was never heard" not in said


# --- what is said -----------------------------------------------------------------------------------------------------


def shown(strategy: str, **leader: int | None) -> dict[str, Any]:
    workload = {"kind": "process", "state": "stopped", "since": None, "pid": None, "containment": ""}
    here = {"node": "a", "workload": workload, "heard_ms": 0, "told_ms": 0}
    there = {"node": "z", "workload": None, "heard_ms": None, "told_ms": None, **leader}
    rows = [here, there]
    return {"node": "a", "strategy": strategy, "leader": "z", "acting": [], "not_known": None, "rows": rows}


def test_that_nobody_runs_it_is_said_only_if_it_is_known() -> None:
    assert "not known here" in acting(shown("bully", heard_ms=300))
    assert acting(shown("bully", heard_ms=300, told_ms=300)) == "nobody runs the command"
    assert acting(shown("bully")) == "nobody runs the command"
    assert acting(shown("raft", heard_ms=300)) == "nobody runs the command"
    assert sentences({"node": "z", "waits_for": "", "health": None, "trouble": "", "heard_ms": 9}, shown("bully")) == []
