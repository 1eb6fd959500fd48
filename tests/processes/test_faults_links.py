"""Links of a real cluster that are cut, one way or both, and nodes that restart all the time (F15, F18-F22, F47).

Safety, in the profile `lab`, judged from the stamps, and never repeated; the datagrams go through a switch of our own
(`datagram_switch.py`), so that a guard's release is cut like everything else of its node. The functions `case_...` are
what `make proof PART=run` counts. What must *not* change is in `test_faults_calm.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support import real_nodes as crowds
from tests.support.real_nodes import LEAVING, Crowd, crowd_in
from tests.support.silence import moves_away, outwaits_the_hold

pytestmark = pytest.mark.beside(order=20)

FLAPPING_S = 2.5
STORM_S = 5.0


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    with crowd_in(tmp_path_factory.mktemp("five"), "abcde", switched=True) as made:
        yield made


def others(crowd: Crowd, *names: str) -> str:
    return "".join(name for name in crowd.names if name not in names)


def case_leader_alone(crowd: Crowd) -> None:
    crowd.settle(*LEAVING, "ignore-term")
    outwaits_the_hold(crowd, lambda node: crowd.apart(node.name, others(crowd, node.name)))
    crowd.one_now()
    crowd.cut()
    crowd.agree()
    crowd.one_now()


def case_two_and_three(crowd: Crowd) -> None:
    """The leader on the small side, with a friend who goes on hearing it."""
    crowd.settle(*LEAVING, "ignore-term")

    def small(leader: str) -> str:
        return leader + others(crowd, leader)[0]

    moves_away(crowd, lambda node: crowd.apart(small(node.name), others(crowd, *small(node.name))), small)
    crowd.one_now()
    crowd.cut()
    crowd.agree()
    crowd.one_now()


def case_cannot_receive(crowd: Crowd) -> None:
    """It sends, and hears nobody: by its own clock it stops, and falls silent, so that others may elect."""
    crowd.settle(*LEAVING, "ignore-term")
    moves_away(crowd, lambda node: crowd.cut(*(x + node.name for x in others(crowd, node.name))), str)
    crowd.one_now()


def case_cannot_send(crowd: Crowd) -> None:
    """It hears everybody, and nobody hears it."""
    crowd.settle(*LEAVING, "ignore-term")
    moves_away(crowd, lambda node: crowd.cut(*(node.name + x for x in others(crowd, node.name))), str)
    crowd.one_now()


def case_bridge(crowd: Crowd) -> None:
    """The leader keeps one friend who hears it; only one other node reaches a majority (F15)."""
    crowd.settle(*LEAVING, "ignore-term")

    def isolate(node: crowds.Node) -> None:
        friend, bridge, *rest = others(crowd, node.name)  # type: ignore[str-unpack]
        isolated = [node.name + x for x in (bridge, *rest)] + [friend + x for x in rest]
        crowd.cut(*isolated, *(way[::-1] for way in isolated))

    moves_away(crowd, isolate, str)
    crowd.one_now()


def case_flapping(crowd: Crowd) -> None:
    """The links of whoever leads come and go, from a few milliseconds to most of a hold."""
    crowd.settle(*LEAVING, "ignore-term")
    chance = random.Random(7)
    end = time.monotonic() + FLAPPING_S
    while time.monotonic() < end:
        leader = next((one.node for one in reversed(crowd.living())), chance.choice(crowd.names))
        crowd.apart(leader, others(crowd, leader))
        time.sleep(chance.uniform(0.01, 0.9) * crowd.timing.hold_ms / 1_000)
        crowd.cut()
        time.sleep(chance.uniform(0.01, 0.9) * crowd.timing.hold_ms / 1_000)
    crowd.one_at_a_time()
    crowd.agree()
    crowd.one_now()


def case_lossy(crowd: Crowd) -> None:
    """A third is lost, a fifth comes twice, and the leader is killed meanwhile."""
    crowd.settle(*LEAVING, "ignore-term")
    crowd.switch(loss=0.3, double=0.2)
    try:
        crowd.strike(crowds.kill_agent)
        time.sleep(1)
    finally:
        crowd.switch(loss=0, double=0)
    crowd.one_at_a_time()
    crowd.settle(*LEAVING, "ignore-term")
    crowd.one_now()


def case_storm(crowd: Crowd) -> None:
    """All agents are killed and started again, again and again, each with a life of a second or two."""
    crowd.settle(*LEAVING, "ignore-term")
    chance = random.Random(11)
    end = time.monotonic() + STORM_S
    while time.monotonic() < end:
        node = crowd.nodes[chance.choice(crowd.names)]
        chance.choice((crowds.kill_agent, crowds.kill_all))(node)
        node.wait()
        crowd.start(node.name)
        time.sleep(chance.uniform(0.05, 0.5))
    crowd.one_at_a_time()
    crowd.agree()
    crowd.one_now()


CASES: dict[str, Callable[[Crowd], None]] = {
    "F15 bridge": case_bridge,
    "F18 leader alone": case_leader_alone,
    "F18 two and three": case_two_and_three,
    "F19 leader cannot receive": case_cannot_receive,
    "F20 leader cannot send": case_cannot_send,
    "F21 flapping": case_flapping,
    "F22 loss and repetition": case_lossy,
    "F47 restart storm": case_storm,
}


def test_F15_a_leader_with_a_friend_and_a_bridge(five: Crowd) -> None:
    case_bridge(five)


def test_F18_the_leader_alone(five: Crowd) -> None:
    case_leader_alone(five)


def test_F18_two_and_three(five: Crowd) -> None:
    case_two_and_three(five)


def test_F19_the_leader_sends_and_cannot_receive(five: Crowd) -> None:
    case_cannot_receive(five)


def test_F20_the_leader_receives_and_cannot_send(five: Crowd) -> None:
    case_cannot_send(five)


def test_F21_links_that_flap(five: Crowd) -> None:
    case_flapping(five)


def test_F22_loss_and_repetition(five: Crowd) -> None:
    case_lossy(five)


def test_F47_a_storm_of_restarts(five: Crowd) -> None:
    case_storm(five)


def case_two_and_two(crowd: Crowd) -> None:
    """Half of four is no majority: nobody runs, and both sides say so; healed, one does."""
    leader = crowd.settle(*LEAVING, "ignore-term").name
    friend = others(crowd, leader)[0]
    crowd.apart(leader + friend, others(crowd, leader, friend))
    crowd.until(crowd.nobody, "silence")
    crowd.nobody_for(3 * crowd.timing.promise_ms)
    for node in crowd.nodes.values():
        crowd.until(lambda n=node: n.document()["workload"]["state"] == "stopped", f"{node.name} to say so")  # type: ignore[misc]
    crowd.cut()
    crowd.agree()
    crowd.one_now()


def test_F18_two_and_two_of_four_and_nobody_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    with crowd_in(tmp_path_factory.mktemp("four"), "abcd", switched=True) as four:
        case_two_and_two(four)
