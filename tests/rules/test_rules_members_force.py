"""The safety rule R14: `force`, the last resort of one node where nobody leads, and what is refused with the remedy."""

from __future__ import annotations

import pytest

from primacy.election.events import Code
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers
from primacy.election.messages import FirstBallot
from primacy.election.model import CLOSED
from primacy.election.raft.register import first_register, names
from tests.rules.test_rules_members import register, silent
from tests.support.members_harness import HEARTBEAT, Cluster, P, members

pytestmark = pytest.mark.coverage


def test_R14_force_is_the_last_resort_of_one_node_where_nobody_leads() -> None:
    cluster = Cluster().start("a")
    a = cluster["a"]
    a.give(ForceMembers(("b", "c")))
    assert "silence" in a.heard(Code.MEMBERS_REFUSED)[-1].detail
    cluster.run(2 * P)
    term = a.m.term
    a.give(ForceMembers(("b", "c")))
    assert a.register == register("a", term + 1_000, 2)
    assert a.disk is not None
    assert (a.disk.term, a.disk.voted_for) == (term + 1_000, CLOSED)
    at_ms = cluster.now
    cluster.until(lambda: bool(a.works))
    assert cluster.now - at_ms >= P, "silent as after a start"


def test_R14_what_is_forced_is_above_every_known_token_as_those_that_are_gone_may_have_been() -> None:
    """T2: who is gone may have led above the tokens of a lease, and have changed the members there."""
    cluster = Cluster().start("a")
    a = cluster["a"]
    cluster.run(2 * P)
    assert a.disk is not None
    a.disk = a.disk._replace(token_max=a.disk.base + 5_000)
    a.start()
    cluster.run(2 * P)
    a.give(ForceMembers(("b", "c")))
    assert a.register == register("a", 6_000, 2)
    assert (a.disk.term, a.disk.voted_for) == (6_000, CLOSED)


@pytest.mark.parametrize(("gone", "before"), [("d", "abc"), ("bd", "ac"), ("bcd", "a")])
def test_R14_the_voters_before_count_on_but_for_those_that_are_gone(gone: str, before: str) -> None:
    cluster = Cluster()
    a = cluster["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(register=register("a d", 1, 3, prior="a b c"))
    a.start()
    cluster.run(2 * P)
    a.give(ForceMembers(tuple(gone)))
    assert (names(a.register.members), names(a.register.prior)) == (("a",), tuple(before))


def test_R14_what_was_never_used_is_not_forced_and_nobody_is_told_to() -> None:
    """Only d has the first ballot; a, which wrote it, has forgotten it. It begins anew: such a ballot binds nobody."""
    cluster = Cluster("a b c d", blank="a b c d", auto=True).start()
    a, d = cluster["a"], cluster["d"]
    cluster.loses = lambda sent: isinstance(sent.message, FirstBallot) and sent.to in "bc"
    cluster.until(lambda: d.disk is not None and d.disk.register is not None)
    cluster.forget("a")
    cluster.wire.clear()
    cluster.loses = lambda sent: False
    a.start()
    cluster.run(2 * HEARTBEAT)
    assert "members force" not in a.m.view(a.now).waits_for
    assert a.m.view(a.now).waits_for.startswith("the first start of the cluster")
    d.give(ForceMembers(("a", "b", "c")))
    told = d.heard(Code.MEMBERS_REFUSED)[-1].detail
    assert "was never used" in told
    assert "remove its file ballot" in told
    cluster.run(6 * P)
    assert [bool(node.works) for node in cluster.nodes.values()].count(True) == 1
    assert {node.register for node in cluster.nodes.values()} == {a.register}, "one cluster of all four"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ForceMembers(()), "name the members"),
        (ForceMembers(("x",)), "x is not among the members"),
        (ForceMembers(("a",)), "this node would not vote"),
        (ChangeMembers(members("a b")), "nobody leads"),
        (CancelChange(), "nobody leads"),
    ],
)
def test_R14_what_makes_no_sense_is_refused_with_the_remedy(given: ForceMembers, why: str) -> None:
    cluster = silent()
    a = cluster["a"]
    assert why in a.m.why_not(given)
    a.give(given)
    assert a.heard(Code.MEMBERS_REFUSED)
    assert a.register == first_register(members("a b c"))
