"""Members change while the command runs, with real nodes and commands: how long nobody runs it (R5 to R7).

A change that keeps the leader never touches the command: one start of it, one process, one token from the first moment
to the last. Where the leader itself leaves, there is one handover, as long as one that an operator asks for. Judged in
the profile `lan`, beside a canary; that there are never two is judged always.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import real_nodes as crowds
from tests.support.canary import Canary, beside_a_canary
from tests.support.real_members import MembersCrowd, members_crowd
from tests.support.safety_checks import safe
from tests.support.stamp import Stamp

pytestmark = pytest.mark.moments(order=205)

HEARTBEAT_MS = 250
"""Of `lan`."""
QUICK_MS = 50
"""A canary that wakes so often misses a stall of 75 ms at most, a third of what one handover may take longer."""
ORDINARY = 3


def still(crowd: MembersCrowd, first: Stamp) -> None:
    """The command was never stopped: one start, of one process, and it goes on."""
    assert [one.instance for one in crowd.starts()] == [first.instance]
    now = crowd.one_now()
    assert (now.instance, now.pid) == (first.instance, first.pid)


@beside_a_canary(HEARTBEAT_MS, passes_if_late=True)
def test_R6_one_to_three_to_five_to_three_to_one_and_the_command_is_never_stopped(tmp_path: Path) -> None:
    with members_crowd(tmp_path / "crowd", "a", "lan") as crowd:
        crowd.start()
        first = crowd.acting()
        crowd.list("abc")  # without it, a would begin a cluster of its own, should it lose its ballot (R12)
        crowd.start("b", "c")
        assert "b votes since version" in crowd.done("a", "members", "add", "b", "--addr", crowd.addr("b"))
        assert "c votes since version" in crowd.done("b", "members", "add", "c", "--addr", crowd.addr("c"))
        crowd.agreed("abc")
        still(crowd, first)
        five = crowd.write_file("five", "abcde").name
        crowd.start("d", "e", file=five)
        said = crowd.done("c", "members", "apply", "--yes", file=five)
        assert "a, b, c, d, e" in said
        crowd.agreed("abcde")
        still(crowd, first)
        crowd.done("e", "members", "apply", "--yes")
        crowd.agreed("abc")
        still(crowd, first)
        for name in "bc":
            assert f"{name} is out since version" in crowd.done("a", "members", "remove", name)
        assert crowd.agreed("a")["leader"] == "a"
        still(crowd, first)


@beside_a_canary(HEARTBEAT_MS, passes_if_late=True)
def test_R7_a_dead_node_is_replaced_at_a_bare_majority_and_the_command_is_never_stopped(tmp_path: Path) -> None:
    """Two of three are up, before, meanwhile and after; then any two of the new three suffice."""
    with members_crowd(tmp_path / "crowd", "abc", "lan") as crowd:
        leader = crowd.settle().name
        first = crowd.acting()
        dead, other = (name for name in "abc" if name != leader)
        crowds.kill_all(crowd.nodes[dead])
        crowd.come("d")
        said = crowd.done(other, "members", "replace", dead, "d", "--addr", crowd.addr("d"))
        assert "d votes since version" in said
        crowd.agreed("".join(sorted({leader, other, "d"})))
        still(crowd, first)
        crowds.kill_all(crowd.nodes[other])
        crowd.hand_over()  # elected by the leader and the new one


@beside_a_canary(HEARTBEAT_MS, passes_if_late=True)
def test_R7_a_leader_that_is_replaced_hands_over_once(tmp_path: Path) -> None:
    """As long as one handover that an operator asks for, and one heartbeat.

    A handover is a row of short waits of several processes, and of their disks. So the longest of some is what this one
    is compared with, beside a canary that wakes often: the one of this whole test misses a stall of 375 ms.
    """
    with members_crowd(tmp_path / "crowd", "abc", "lan") as crowd, Canary(QUICK_MS) as canary:
        crowd.settle()
        for _ in range(ORDINARY):
            before = crowd.hand_over()
            crowd.agree()
        old = crowd.acting(before.token)
        crowd.come("d")
        ordinary = crowd.gaps_ms()
        asked = crowd.say(old.node, "members", "replace", old.node, "d", "--addr", crowd.addr("d"))
        assert asked.returncode != 0
        assert "the command moves to another node first" in asked.stdout + asked.stderr
        assert crowd.acting().instance == old.instance
        other = next(name for name in "abc" if name != old.node)
        said = crowd.done(other, "members", "replace", old.node, "d", "--addr", crowd.addr("d"), "--yes")
        assert "d votes since version" in said
        crowd.agreed("".join(sorted({*"abcd"} - {old.node})))
        new = crowd.one_now()
        assert new.node != old.node
        safe(new.token > old.token, f"{new} after {old}")
        gaps = crowd.gaps_ms()
        assert (len(ordinary), len(gaps)) == (ORDINARY, ORDINARY + 1)
    canary.judge(gaps[-1] <= max(ordinary) + HEARTBEAT_MS, f"nobody ran it for so long at the handovers, in ms: {gaps}")
