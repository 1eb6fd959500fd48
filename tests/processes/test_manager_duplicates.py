"""Two machines with one id: an alert on whoever hears both, in the words of the other transport."""

from __future__ import annotations

import asyncio

import pytest

from primacy.agent.cluster import ManagedCluster
from primacy.settings import of_mapping
from primacy.transport.duplicates import LEAST_COUNT, STARTS_MAX, Spoken
from tests.support.managers_in_one_loop import STEADY, Nodes, lived, mapping, three

pytestmark = pytest.mark.beside(order=225)


def test_a_start_that_speaks_again_after_another_is_no_restart() -> None:
    spoken = Spoken()
    assert [spoken.again(1.0, boot) for boot in (1, 1, 2, 2, 3, 3)] == [False] * 6, "restarts"
    assert [spoken.again(2.0, boot) for boot in (2, 2, 3, 2)] == [True, False, True, True]
    assert not spoken.again(2.0, 0), "a node that does not say"
    assert spoken.beside(4.0, 2, 2.0), "3 spoke at 2.0"
    assert not spoken.beside(4.1, 2, 2.0)
    assert not Spoken().beside(0.0, 2, 2.0)
    assert not any(spoken.again(3.0, boot) for boot in range(10, 1_000))
    assert len(spoken._heard_s) == STARTS_MAX


def alerts(node: ManagedCluster) -> list[str]:
    return [each.sentence for each in node.manager.troubles if each.alert]


def duplicate(nodes: Nodes, name: str, port: int, join: str) -> ManagedCluster:
    """A second machine with the id of another."""
    settings = of_mapping(mapping(name, port, [nodes.port(join)], election=STEADY))
    return ManagedCluster(settings, complain=nodes.said.append)


def test_a_second_one_is_not_taken_in_where_the_first_is_heard_and_is_an_alarm_there() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election=STEADY)
        await nodes.until(lambda: "c" in nodes.up["a"].view().alive, "a hears c")
        second = duplicate(nodes, "c", nodes.port("second c"), "a")
        await second.start()
        (sentence,) = await nodes.until(lambda: alerts(nodes.up["a"]), "the leader hears both")
        assert sentence.startswith("two nodes run with the id c at the same time, one of them from 127.0.0.1:")
        assert sentence.endswith("two have this id, or a disk was copied; stop one of them")
        why = f"another node runs with the id c, at 127.0.0.1:{nodes.port('c')}: give this one an id of its own"
        await nodes.until(lambda: [each for each in second.manager.troubles if why in each.sentence], "so does it")
        assert nodes.up["a"].manager.member_list.addr("c") == f"127.0.0.1:{nodes.port('c')}"
        await nodes.kill("c")
        await nodes.until(lambda: second.leader() == "a", "with the first one gone it is taken in")
        await second.kill()

    lived(scene)


def test_one_that_got_in_at_another_node_is_an_alarm_of_the_leader() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election=STEADY)
        second = duplicate(nodes, "c", nodes.port("second c"), "b")
        await second.start()
        await nodes.until(lambda: second.leader() == "a", "b, which hears neither, takes it in")
        await nodes.until(lambda: alerts(nodes.up["a"]), "the leader hears both")
        await second.kill()

    lived(scene)


def test_one_that_asks_to_join_itself_is_an_alarm_there() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a", election=STEADY)
        await nodes.leads("a")
        port = nodes.port("second a")
        second = duplicate(nodes, "a", port, "a")
        await second.start()
        (sentence,) = await nodes.until(lambda: alerts(nodes.up["a"]), "it is told of its namesake")
        assert f"run with the id a at the same time, one of them from 127.0.0.1:{port}:" in sentence
        taken = "its id is taken"
        await nodes.until(lambda: [each for each in second.manager.troubles if taken in each.sentence], "so does it")
        assert second.leadership() is None
        await second.kill()

    lived(scene)


def test_restarts_and_moves_are_no_alarm() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election=STEADY)
        for turn in range(LEAST_COUNT + 2):
            await nodes.kill("c")
            if turn == LEAST_COUNT:  # to another address: taken in once the earlier start counts as gone
                nodes.ports["c"] = nodes.port("moved")
            node = await nodes.start("c", ["a"], election=STEADY)
            await nodes.until(lambda node=node: node.leader() and nodes.agreed(), "it is back")  # type: ignore[misc]
            await asyncio.sleep(0.3)  # heard at some looks, so that all lasts longer than the least time
        assert not alerts(nodes.up["a"])
        assert not alerts(nodes.up["b"])

    lived(scene)
