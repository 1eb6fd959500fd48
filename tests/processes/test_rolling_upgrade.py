"""A rolling upgrade: nodes of an earlier version and of this one share a cluster, node by node, with the same files.

Each node is ended, by a signal or by force, and started with today's code on the same settings and state folder. There
are never two holders, the command runs again after every step, and tokens only grow, all judged from the stamps. What
the earlier version has left (ballots, tokens, rows, values of the cache) is what the new nodes begin with.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from primacy import __version__
from primacy.cache.client import Client
from tests.support import cache_peers
from tests.support.earlier_version import exported, version_of
from tests.support.real_members import members_crowd
from tests.support.real_nodes import CLUSTER, ELECTION, Crowd, Node, crowd_in
from tests.support.real_nodes_on_lease import lease_crowd

pytestmark = pytest.mark.beside(order=185)

TAKES_S = 0.3


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return exported(tmp_path_factory.mktemp("earlier"))


def is_new(node: Node) -> bool:
    return version_of(node.state / CLUSTER / ELECTION) == __version__


def end(node: Node, *, by_force: bool) -> None:
    (node.process.kill if by_force else node.process.terminate)()
    node.wait()


def upgrade(crowd: Crowd, earlier: tuple[str, ...]) -> None:
    """All of the earlier version; then node by node, the one that acts by force."""
    crowd.start(under=earlier)
    crowd.agree()
    first = crowd.one_now()
    assert not any(map(is_new, crowd.nodes.values()))
    forced = 0
    for number, name in enumerate(crowd.names, 1):
        before = crowd.one_now()
        by_force = name == before.node or number == 1
        end(crowd.nodes[name], by_force=by_force)
        forced += by_force
        if name == before.node:
            crowd.acting(before.token)  # on another node, which may be of the other version
        crowd.start(name)
        crowd.agree()
        assert crowd.one_now().token >= before.token
        assert sum(map(is_new, crowd.nodes.values())) == number
    assert forced
    crowd.strike(lambda node: node.process.terminate())
    assert crowd.one_now().token > first.token
    for node in crowd.nodes.values():
        assert "Traceback" not in node.text


def test_raft_nodes_are_upgraded_one_by_one(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    with crowd_in(tmp_path) as crowd:
        upgrade(crowd, earlier)


def test_members_change_once_the_last_raft_node_is_upgraded(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    """While one is of the earlier version, the change is refused with its name. One that is started with the earlier
    version afterwards is not heard, and harms nobody."""
    with members_crowd(tmp_path / "crowd", "abc", "lan") as crowd:
        crowd.start(under=earlier)
        crowd.agree()
        first = crowd.one_now()
        *others, last = sorted(crowd.names, key=lambda name: name == first.node)
        for name in others:
            end(crowd.nodes[name], by_force=False)
            crowd.start(name)
            crowd.agree()
        crowd.order(crowd.nodes[last], "/v1/pause", {})  # of the earlier version, it leads no more
        crowd.acting(first.token)
        crowd.agree()
        crowd.come("d")
        words = ("members", "add", "d", "--addr", crowd.addr("d"))
        assert f"{last} runs an older version" in crowd.refused(others[0], *words)
        end(crowd.nodes[last], by_force=True)
        crowd.start(last)
        crowd.agree()
        assert all(map(is_new, crowd.nodes.values()))
        assert "d votes since version" in crowd.done(last, *words)
        crowd.agreed("abcd")
        now = crowd.one_now()
        assert now.token > first.token
        end(crowd.nodes[last], by_force=False)
        crowd.start(last, under=earlier)
        crowd.until(lambda: "listens on UDP" in crowd.nodes[last].text, "the node of the earlier version")
        crowd.runs_nothing_for(last, 2 * crowd.timing.promise_ms)
        assert crowd.one_now().token >= now.token


@pytest.mark.parametrize("speak", [False, True], ids=["in the store only", "and by datagrams"])
def test_nodes_on_a_lease_are_upgraded_one_by_one(speak: bool, tmp_path: Path, earlier: tuple[str, ...]) -> None:
    with lease_crowd("sqlite", tmp_path, speak=speak) as crowd:
        upgrade(crowd, earlier)
        assert crowd.row().token >= crowd.tokens()[-1]


def test_bully_nodes_are_upgraded_one_by_one(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    """It has no tokens and may have two leaders for a moment; after every step one command runs, where all say."""
    options = ("--allow-split-brain",)
    with crowd_in(tmp_path, profile="fast", options=options, more="  strategy: bully\n") as crowd:
        crowd.is_judged = False

        def runs() -> bool:
            return {one.node for one in crowd.living()} == {crowd.agree()}

        crowd.start(under=earlier)
        crowd.until(runs, "one that runs")
        for number, name in enumerate(reversed(crowd.names), 1):
            end(crowd.nodes[name], by_force=number > 1)
            crowd.until(lambda name=name: {one.node for one in crowd.living()} - {name}, "another one that runs")  # type: ignore[misc]
            crowd.start(name)
            crowd.until(runs, "one that runs where all say")
            assert sum(map(is_new, crowd.nodes.values())) == number
        for node in crowd.nodes.values():
            assert "Traceback" not in node.text


def test_cache_peers_are_upgraded_one_by_one(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    """What one of either version has fetched is found at all of them, also in the folders of before: nothing twice."""

    async def upgraded() -> None:
        async with cache_peers.Crowd(tmp_path, 3, TAKES_S, under=earlier, kept=str(tmp_path / "peer")) as crowd:
            keys = ["first"]
            await seen_by_all(crowd, keys[0])
            crowd.under = ()
            for which in range(3):
                crowd.kill(which)
                keys += [f"without-{which}", f"after-{which}"]
                await seen_by_all(crowd, keys[-2], *(other for other in range(3) if other != which))
                await crowd.restart(which)
                await seen_by_all(crowd, keys[-1])
            for key in keys:
                await seen_by_all(crowd, key)
            assert [line.key for line in crowd.begun()] == keys

    asyncio.run(upgraded())


async def seen_by_all(crowd: cache_peers.Crowd, key: str, *which: int) -> None:
    """All of these peers are asked at once; they give the same value."""

    async def get(api: str) -> bytes:
        async with Client([api], timeout_ms=60_000) as client:
            return (await client.get(key)).value

    found = await asyncio.gather(*(get(crowd.apis[each]) for each in which or range(3)))
    assert len(set(found)) == 1, (key, found)
