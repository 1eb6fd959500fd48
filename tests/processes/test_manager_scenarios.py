"""The ten failure scenarios of Ghoti over the real wire: our nodes alone, and beside one, two and three doubles.

What it says happens, or what we do better (docs/origins/deviations.md). Where real nodes take part, the end is one
leader that all of them know; which one it is depends on who declared itself last, since a real node believes anybody.
"""

from __future__ import annotations

import asyncio
import os
import urllib.request

import pytest

from primacy.election.inputs import StepDown
from primacy.errors import NotReached
from tests.support.canary import beside_a_canary
from tests.support.managers_in_one_loop import LIMIT_S
from tests.support.mixed_clusters import Mixed, played

pytestmark = pytest.mark.beside(order=8)

PROOF = os.environ.get("PRIMACY_SIZE") == "proof"
RING = os.environ.get("PRIMACY_SCENARIOS") == "ring"
"""The same scenes with ring (`make proof PART=manager`): among our own nodes, for real ones do not know it."""
BESIDE = pytest.mark.parametrize("doubles", [0] if RING else [0, 1, 2, 3])
STILL = pytest.mark.parametrize("doubles", [0] if RING else [0, 1, 2, 3] if PROOF else [0, 2])
"""Scenes that take long, for it is watched that nothing happens."""
STRATEGY = "ring" if RING else "bully"
QUICK = {"profile": "fast", "strategy": STRATEGY}
CALM = {"profile": "lan", "strategy": STRATEGY}
WATCH_S = 1.0


async def formed(nodes: Mixed, doubles: int, election: dict[str, str] = QUICK) -> None:
    """b bootstraps and leads; d joins it, and the doubles a, c and z."""
    await nodes.start("b", election=election)
    await nodes.leads("b")
    await nodes.start("d", ["b"], election=election)
    for name in "acz"[:doubles]:
        await nodes.double(name, "b")
    known = {"b", "d", *"acz"[:doubles]}
    await nodes.until(
        lambda: (
            all(set(node.manager.member_list.peers) == known for node in nodes.up.values()) and nodes.lists_are_true()
        ),
        f"all know {known}",
    )
    await b_leads(nodes)


async def b_leads(nodes: Mixed) -> None:
    """Before a scene begins. If another one has taken over, as a machine that stands still lets it, it hands over to b
    first; a real node, which hands over to nobody, is started anew."""
    loop = asyncio.get_running_loop()
    last_s = loop.time() + LIMIT_S
    while (found := await nodes.one_leader()) != "b":
        assert loop.time() < last_s, f"b never leads; {nodes.story()}"
        if found in nodes.doubles:
            await nodes.kill(found)
            await nodes.until(lambda found=found: nodes.agreed() not in ("", found), f"another one than {found} leads")  # type: ignore[misc]
            await nodes.double(found, "b")
            await nodes.until(nodes.lists_are_true, f"{found} is known again")
        else:
            nodes.up[found].driver.give(StepDown("b", "the scene begins with b"))
            await nodes.until(lambda node=nodes.up[found]: node.leader() != node.node, f"{found} hands over")  # type: ignore[misc]


def ends_with_the_highest(nodes: Mixed, leader: str) -> None:
    """Ours alone: the highest. With real nodes it may be another."""
    if not nodes.doubles:
        assert leader == max(nodes.up)


@BESIDE
def test_scenario_01_leader_crashes_and_one_leads_again(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        await nodes.kill("b")
        ends_with_the_highest(nodes, await nodes.one_leader())

    played(scene)


@STILL
@beside_a_canary(250)
def test_scenario_02_follower_crashes_and_nothing_changes(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles, CALM)
        await nodes.start("e", ["b"], election=CALM)
        await b_leads(nodes)
        await nodes.kill("d")
        nodes.events.clear()
        await asyncio.sleep(WATCH_S)
        assert nodes.agreed() == "b"
        assert not nodes.events
        assert "d" in nodes.up["b"].manager.member_list.peers, "it stays listed until it is removed"

    played(scene, pace=1.0)


async def split(nodes: Mixed) -> None:
    names = [*nodes.up, *nodes.doubles]
    for name in names:
        nodes.cut(name, " ".join(other for other in names if other != name))


@BESIDE
def test_scenario_03_full_split_everybody_leads_and_one_after_healing(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        await split(nodes)
        await nodes.until(lambda: all(name == said for name, said in nodes.beliefs().items()), "everybody leads")
        nodes.heal()
        ends_with_the_highest(nodes, await nodes.one_leader())

    played(scene)


@BESIDE
def test_scenario_04_partial_split_one_leader_per_side_and_one_after_healing(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        await nodes.start("e", ["b"], election=QUICK)
        await b_leads(nodes)
        here = ["b", *(["a"] if doubles else [])]
        there = [name for name in (*nodes.up, *nodes.doubles) if name not in here]
        nodes.cut(" ".join(here), " ".join(there))
        other = await nodes.one_leader(*there)
        side = await nodes.one_leader(*here)
        assert doubles or side == "b", "the old leader goes on with those that reach it"
        nodes.heal()
        found = await nodes.one_leader()
        assert doubles or found == other == "e"

    played(scene)


@BESIDE
def test_scenario_05_clients_reach_all_and_nodes_nobody(doubles: int) -> None:
    """Every one of ours tells its clients that it leads; with `require_majority` none of them would."""

    def asked(port: int) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/leader", timeout=30) as answer:
            assert answer.read() == b"leader"
            return int(answer.status)

    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        await split(nodes)
        await nodes.until(lambda: nodes.leaders() == ["b", "d"], "both of ours lead")
        assert [await asyncio.to_thread(asked, nodes.port(name)) for name in "bd"] == [200, 200]
        nodes.heal()
        await nodes.one_leader()

    played(scene)


@STILL
@beside_a_canary(250)
def test_scenario_06_a_higher_id_joins_and_stays_quiet(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles, CALM)
        await nodes.start("y", ["d"], election=CALM)
        await nodes.leads("b")
        nodes.events.clear()
        await asyncio.sleep(WATCH_S)
        assert nodes.agreed() == "b"
        assert not nodes.events
        await nodes.kill("b")
        ends_with_the_highest(nodes, await nodes.one_leader())

    played(scene, pace=0.5)


@STILL
@beside_a_canary(250)
def test_scenario_07_a_former_leader_rejoins_and_follows(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles, CALM)
        await nodes.start("y", ["b"], election=CALM)
        await (nodes.calmed() if doubles else b_leads(nodes))  # real nodes may have made another one lead meanwhile
        await nodes.kill("b")
        await nodes.one_leader()
        await nodes.kill("y")
        await nodes.calmed()
        leader = await nodes.settled()
        await nodes.start("y", ["d"], election=CALM)
        await nodes.leads(leader)
        nodes.events.clear()
        await asyncio.sleep(WATCH_S)
        assert nodes.agreed() == leader
        assert not nodes.events

    played(scene, pace=0.5)


@BESIDE
def test_scenario_08_all_restart_at_once(doubles: int) -> None:
    """In Ghoti the joining nodes fail if the first one is not ready; ours wait for it."""

    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        for name in [*nodes.up, *nodes.doubles]:
            await nodes.kill(name)
        await nodes.start("d", ["b"], election=QUICK)
        await nodes.until(lambda: nodes.up["d"].manager.troubles, "it says that it could not join")
        assert nodes.up["d"].leader() == ""
        await nodes.start("b", election=QUICK)
        for name in "acz"[:doubles]:
            await nodes.double(name, "b")
        assert await nodes.one_leader()

    played(scene)


@BESIDE
def test_scenario_09_a_slow_leader_is_replaced_and_follows(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        nodes.cut("b", "d", "out")  # it hears, and what it says does not arrive in time
        nodes.up["d"].manager.links.heal()
        for each in nodes.doubles.values():
            each.cut.add(f"127.0.0.1:{nodes.port('b')}")
        await nodes.until(lambda: "d" in nodes.leaders() or nodes.beliefs()["d"] not in ("", "b"), "b is given up")
        nodes.heal()
        ends_with_the_highest(nodes, await nodes.one_leader())

    played(scene)


@BESIDE
def test_scenario_10_wrong_credentials_stay_outside(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await formed(nodes, doubles)
        stranger = await nodes.start("x", ["b"], election=QUICK, cluster={"pass": "another_one"})
        await nodes.until(lambda: stranger.manager.troubles, "it says why")
        assert "cluster.user and cluster.pass" in stranger.manager.troubles[0].sentence
        assert (stranger.leader(), stranger.leadership()) == ("", None)
        with pytest.raises(RuntimeError, match="400"):
            await nodes.double("y", "b", password="another_one")
        with pytest.raises(NotReached, match=r"cluster\.user and cluster\.pass"):
            await stranger.join(f"127.0.0.1:{nodes.port('d')}")
        assert "x" not in nodes.up["b"].manager.member_list.peers
        await nodes.kill("x")
        assert await nodes.one_leader()
        assert nodes.up["b"].manager.counters["credentials"] >= 2
        said = [line for line in nodes.said if "no cluster was joined yet" in line and "cluster.pass" in line]
        assert len(said) == 1, "the log says why, and only once"
        refusers = [line for line in nodes.said if line.startswith("somebody at 127.0.0.1 asks with other credentials")]
        assert 1 <= len(refusers) <= 2, "so do b, which refuses it, and d: not at every try"

    played(scene)
