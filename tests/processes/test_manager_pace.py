"""A manager among nodes that answer late: it slows down, says so, and comes back; news never crowd out an election."""

from __future__ import annotations

import asyncio

import pytest

from primacy.election.inputs import Paced
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import paced
from primacy.election.ranked.ring import RingStrategy
from primacy.membership.http_server import Respond
from primacy.membership.http_wire import Asked, Reply
from primacy.membership.machine import WORDS_EACH_S
from primacy.membership.pace import KEPT_S, PACE_MAX, Pace
from primacy.settings.timing import RANK_PROFILES
from tests.support.managers_in_one_loop import STEADY, Nodes, lived
from tests.support.rank_harness import Cluster

LIMIT_S = 0.25


def heard(pace: Pace, now_s: float, **took_s: float) -> list[bool]:
    return [pace.answered(now_s, name, took, LIMIT_S) for name, took in took_s.items()]


# --- the measure ------------------------------------------------------------------------------------------------------


def test_answers_in_time_change_nothing() -> None:
    pace = Pace()
    assert not any(heard(pace, 1.0, a=0.002, b=0.12, c=0.125))
    assert pace.factor == 1


def test_two_that_answer_late_slow_it_down_and_one_alone_does_not() -> None:
    pace = Pace()
    assert heard(pace, 1.0, a=0.9) == [False]
    assert heard(pace, 1.1, a=2.0) == [False]
    assert heard(pace, 1.2, b=0.2) == [True]
    assert pace.factor == 2, "as slow as the second of them asks for"
    assert heard(pace, 1.3, b=0.4) == [True]
    assert pace.factor == 4


def test_the_pace_has_an_end() -> None:
    pace = Pace()
    heard(pace, 1.0, a=100.0, b=100.0)
    assert pace.factor == PACE_MAX


def test_it_quickens_step_by_step_when_answers_come_in_time_again() -> None:
    pace = Pace()
    heard(pace, 1.0, a=1.0, b=1.0)
    assert pace.factor == 8
    heard(pace, 2.0, a=0.01, b=0.01)
    assert pace.factor == 8, "one answer in time does not undo it"
    seen = []
    for heartbeat in range(40):
        heard(pace, 2.0 + heartbeat, a=0.01, b=0.01)
        seen.append(pace.factor)
    assert seen[-1] == 1
    assert sorted(seen, reverse=True) == seen
    assert set(seen) == {8, 4, 2, 1}
    assert seen.index(1) + 2.0 >= 1.0 + 3 * KEPT_S


def test_the_leader_alone_can_keep_it_slow_but_not_make_it_slower() -> None:
    """A follower looks at nobody else: what it knew of the others is old, and no reason to accuse a slow leader."""
    pace = Pace()
    heard(pace, 1.0, a=0.4, b=0.4)
    for heartbeat in range(20):
        heard(pace, 2.0 + heartbeat, a=2.0)
    assert pace.factor == 4


# --- the machines -----------------------------------------------------------------------------------------------------


def led(cluster: Cluster, span_ms: int) -> set[str]:
    """All who led at any of many looks within this time."""
    found: set[str] = set()
    for _ in range(span_ms // 50):
        cluster.run(50)
        found |= {name for name, machine in cluster.machines.items() if machine.leader == name}
    return found


@pytest.mark.parametrize("kind", [BullyStrategy, RingStrategy])
def test_nodes_whose_answers_take_longer_than_the_limits_agree_only_at_a_slower_pace(
    kind: type[BullyStrategy] | type[RingStrategy],
) -> None:
    """Without it each takes all others for dead, for ever, and announces itself at every heartbeat."""
    messages = {}
    for factor in (1, 8):
        cluster = Cluster(kind, " ".join(f"n{number:02}" for number in range(12)))
        cluster.delay = lambda: 400
        for name in cluster.names:
            cluster.give(name, Paced(factor))
        cluster.run(40_000)
        before = sum(cluster.sent.values())
        leaders = led(cluster, 10_000)
        messages[factor] = sum(cluster.sent.values()) - before
        assert (leaders == {"n11"}) == (factor == 8), f"at pace {factor}: {leaders}"
    assert messages[8] * 8 < messages[1], f"slower, and quieter: {messages}"


def test_a_pace_changes_all_times_and_is_taken_back() -> None:
    cluster = Cluster(BullyStrategy, "a b c")
    calm = RANK_PROFILES["lan"]
    cluster.give("a", Paced(4))
    assert cluster.machines["a"]._state.timing == paced(calm, 4)
    assert paced(calm, 4).misses == calm.misses
    cluster.give("a", Paced(1))
    assert cluster.machines["a"]._state.timing == calm


# --- over real sockets ------------------------------------------------------------------------------------------------


@pytest.mark.later
def test_late_answers_of_several_nodes_are_measured_beyond_the_limit_and_said() -> None:
    async def scene(nodes: Nodes) -> None:
        for name, join in (("a", []), ("b", ["a"]), ("c", ["a"])):
            await nodes.start(name, join, election=STEADY)
        await nodes.until(lambda: nodes.agreed() and len(nodes.up["a"].manager.member_list.listed) == 3, "three nodes")
        late_s = 6 * nodes.up["a"].manager.machine.state.timing.answer_ms / 1_000
        for node in nodes.up.values():
            answer = node.manager.server.answer

            async def slowly(asked: Asked, answer: Respond = answer) -> Reply | None:
                await asyncio.sleep(late_s)
                return await answer(asked)

            node.manager.server.answer = slowly

        def slow() -> bool:
            return any(node.manager.counters["pace"] >= 4 for node in nodes.up.values())

        await nodes.until(slow, "they slow down")
        await nodes.until(lambda: any("more slowly" in line for line in nodes.said), "it is said")

    lived(scene)


def test_news_are_gathered_so_that_an_election_is_not_crowded_out() -> None:
    """Each call with words delays the next ones; what waits goes together, and arrives."""

    async def scene(nodes: Nodes) -> None:
        for name, join in (("a", []), ("b", ["a"]), ("c", ["a"]), ("d", ["a"])):
            await nodes.start(name, join, election=STEADY)
        manager = nodes.up["a"].manager
        others = ("b", "c", "d")
        await nodes.until(lambda: all(manager.machine.state.peer(name).boot for name in others), "all are known")
        got: list[int] = []
        nodes.up["b"].manager._overhear = lambda node, boot, row: got.append(row[1])
        loop = asyncio.get_running_loop()
        began_s, before = loop.time(), manager.counters.get("sent/words", 0)
        for number in range(40):
            for name in others:
                manager.tell(name, [2, number, 1, "code", "text", 0])
            await asyncio.sleep(0.01)
        await nodes.until(lambda: sorted(set(got)) == list(range(40)), f"all words arrive: {got}")
        calls = manager.counters["sent/words"] - before
        most = len(others) + (loop.time() - began_s) / WORDS_EACH_S
        assert calls <= most, f"{calls} calls, {most:.0f} at most"

    lived(scene)
