"""A node that ends: what it has begun is put right first, and what nobody would hear of is not waited for."""

from __future__ import annotations

import asyncio

import pytest

from primacy.membership import manager as http
from primacy.membership.ghoti import storms as http_storms
from tests.support.managers_in_one_loop import LIMIT_S, STEADY, Nodes, lived
from tests.support.mixed_clusters import Mixed, played


def test_a_join_that_nobody_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SETTLE_S", 3_600.0)

    async def scene(nodes: Nodes) -> None:
        nodes.port("gone")
        await nodes.start("a", election=STEADY)
        await nodes.leads("a")
        node = await nodes.start("b", ["gone", "a"], election=STEADY)
        await nodes.leads("a")
        async with asyncio.timeout(LIMIT_S):
            await nodes.up.pop("b").shutdown()
        assert node.manager.machine.state.closed

    lived(scene)


def test_lists_of_real_nodes_that_are_bent_are_put_right_before_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent ends: it lets its calls end, then closes. Here the storm would not be over for minutes."""
    monkeypatch.setattr(http, "SETTLE_S", LIMIT_S)
    monkeypatch.setattr(http_storms, "DRAIN_S", http_storms.QUIET_S / 2)
    monkeypatch.setattr(http_storms, "ROUNDS_MAX", 10_000)

    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        await nodes.double("b", "a")
        node = await nodes.start("y", ["a"], election=STEADY)
        here = node.manager.identity.addr
        await nodes.until(lambda: {each.peers.get("b") for each in nodes.doubles.values()} & {here}, "a is bent")
        await nodes.until(lambda: nodes.doubles["b"].peers.get("a") == here, "b is bent")
        await node.manager.settle()
        await nodes.kill("y")
        assert nodes.lists_are_true()

    played(scene)
