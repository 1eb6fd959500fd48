"""What a node says of its members to people, and the rare ways through a change that no other test takes."""

from __future__ import annotations

import pytest

from primacy.election.events import Code
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers, Received, StepDown
from primacy.election.messages import Ahead, Heartbeat, MembersTold, Query, VoteReply
from primacy.election.model import Kind, MembersId, Register
from primacy.election.raft.view import enough
from tests.support.members_harness import HEARTBEAT, Cluster, H, Node, P, members

pytestmark = pytest.mark.coverage

JOINT = Register(MembersId(1, 3), members("a c d"), members("a b c"))


def silent(words: str = "a b c", register: Register | None = None) -> Cluster:
    """Everybody is up and past its silence, with this register; the wire is empty."""
    cluster = Cluster(words)
    for node in cluster.nodes.values():
        assert node.disk is not None
        node.disk = node.disk._replace(register=register) if register is not None else node.disk
    cluster.start()
    cluster.wire.clear()
    for node in cluster.nodes.values():
        node.now += P
        node.m.state.file_ask_at_ms = 0
    return cluster


def other_of(leader: Node) -> Node:
    return next(node for node in leader.cluster.nodes.values() if node is not leader)


# --- sentences --------------------------------------------------------------------------------------------------------


def test_R2_a_candidate_says_how_many_of_each_half_it_needs() -> None:
    a = silent(register=JOINT)["a"]
    assert enough(a.m.state) == "2 of a, c, d and 2 of a, b, c"
    a.m.campaigning.ask_votes(a.now, 2, pre=True)
    assert "2 of a, c, d and 2 of a, b, c" in a.m.view(a.now).waits_for
    assert enough(silent()["a"].m.state) == "2 of 3 voting nodes"


def test_R7_a_leader_says_what_its_change_waits_for() -> None:
    cluster = Cluster(also="d").start("a b c")
    leader = cluster.lead()
    assert leader.m.view(leader.now).change == ""
    leader.give(ChangeMembers(members("a b c d")))
    assert leader.m.view(leader.now).change == "d to be heard (nothing has changed for the others; primacy members " + (
        "cancel) (d added)"
    )
    cluster.until(lambda: leader.register.id.version == 2)
    cluster.run(HEARTBEAT)
    told = other_of(leader).m.view(cluster.now)
    assert told.change == "the leader to go on with it (d as voter)"
    assert told.members == leader.register.id
    leader.give(StepDown())
    assert leader.m.view(leader.now).change.startswith("its leader to hand over")


def test_R6_a_joint_register_waits_for_both_halves() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    cluster.change("a b c d")
    cluster.loses = lambda sent: bool(leader.register.prior)
    cluster.until(lambda: bool(leader.register.prior))
    assert leader.m.view(leader.now).change.startswith("a majority of the voters, and of those before, to ack")


def test_R9_a_node_whose_file_is_its_own_alone_says_what_to_do() -> None:
    cluster = Cluster("a b c", blank="c")
    cluster["c"].file = "c"
    c = cluster["c"]
    cluster.start()
    c.give(Received(Query(cluster["a"].m.origin, True)))
    a = cluster["a"]
    a.give(Received(Query(c.m.origin, False)))
    cluster.run(HEARTBEAT)
    assert c.m.ballot is None
    assert "names nobody but itself" in c.m.view(c.now).waits_for


# --- rare ways --------------------------------------------------------------------------------------------------------


def test_R7_a_leader_that_steps_down_changes_nothing_more_and_says_so() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    cluster.change("a b c d:observer")
    leader.give(StepDown())
    assert "steps down" in leader.m.why_not(ChangeMembers(members("a b")))
    assert "steps down" in leader.m.why_not(CancelChange())
    leader.now += HEARTBEAT
    state = leader.m.state.leader_state
    assert state is not None
    assert not leader.m.changing.at_heartbeat(leader.now, state)


def test_R7_a_leader_that_leaves_stays_while_nobody_that_stays_answers() -> None:
    cluster = Cluster("a b c", also="d").start()
    leader = cluster.lead()
    cluster.run(2 * P)
    stays = sorted({*"abc"} - {leader.name})
    goal = Register(leader.register.id, members(" ".join([*stays, "d"]))).members
    state = leader.m.state.leader_state
    assert state is not None
    state.progress.acked.clear()
    cluster.loses = lambda sent: sent.sender in stays
    leader.give(ChangeMembers(goal))
    cluster.run(2 * HEARTBEAT)
    assert leader.works
    assert not leader.heard(Code.TRANSFER)


def test_R7_a_leader_that_was_elected_again_although_it_leaves_does_not_hand_over_at_once() -> None:
    cluster = Cluster("a b c").start()
    leader = cluster.lead()
    stays = " ".join(sorted({*"abc"} - {leader.name}))
    cluster.change(stays)
    cluster.run(P // 2)
    assert leader.leads
    assert not leader.heard(Code.TRANSFER)
    cluster.until(lambda: cluster.has(stays, stays))
    assert leader.heard(Code.TRANSFER)


def test_R14_force_is_refused_where_somebody_leads_or_nobody_could() -> None:
    cluster = Cluster("a b:witness c").start()
    leader = cluster.lead()
    follower = next(node for node in cluster.nodes.values() if node.name != leader.name)
    assert "leads: change the members there" in follower.m.why_not(ForceMembers(("a",)))
    witness = silent("a b:witness c")["b"]
    assert "no voter would be left" in witness.m.why_not(ForceMembers(("a", "c")))
    before = Register(MembersId(1, 3), members("a c"), members("a b c"))
    assert "this node would not vote" in silent(register=before)["b"].m.why_not(ForceMembers(("c",)))


@pytest.mark.parametrize(
    ("refusals", "asks_again"),
    [({"c": 300, "d": 0}, True), ({"b": 300, "c": 300}, True), ({"c": 0, "d": 0}, False), ({"b": 300}, False)],
)
def test_R2_a_candidate_asks_again_when_enough_of_each_half_will_vote(
    refusals: dict[str, int], asks_again: bool
) -> None:
    a = silent(register=JOINT)["a"]
    a.m.campaigning.ask_votes(a.now, 2, pre=True)
    for name, retry_ms in refusals.items():
        origin = a.m.origin._replace(node=name, boot=ord(name), incarnation=7)
        a.give(Received(VoteReply(origin, 2, True, False, a.m.seat.boot, 1, retry_ms=retry_ms)))
    assert (a.m.state.campaign is None) == asks_again
    if asks_again:
        assert a.m.state.campaign_at_ms - a.now >= 300


def test_R1_a_leader_of_an_earlier_term_than_the_register_is_told_it_and_not_only_the_term() -> None:
    cluster = silent()
    a, b = cluster["a"], cluster["b"]
    newer = Register(MembersId(5, 2), members("a b c"))
    a.give(Received(MembersTold(b.m.origin._replace(members=(5, 2)), newer)))
    cluster.wire.clear()
    a.give(Received(Heartbeat(b.m.origin, 4, 1, H, True)))
    (sent,) = cluster.wire
    assert isinstance(sent.message, MembersTold)
    a.m.state.adopt(7)
    cluster.wire.clear()
    a.now += HEARTBEAT
    a.give(Received(Heartbeat(b.m.origin._replace(members=(5, 2)), 6, 1, H, True)))
    (sent,) = cluster.wire
    assert isinstance(sent.message, Ahead)


def test_R1_a_node_without_memory_takes_no_register() -> None:
    cluster = Cluster("a b c", blank="a").start()
    a = cluster["a"]
    a.give(Received(MembersTold(cluster["b"].m.origin, JOINT)))
    assert a.m.state.register is None


def test_R8_only_a_leader_keeps_questions_and_only_of_blank_observers() -> None:
    cluster = Cluster("a b c o:observer").start()
    leader = cluster.lead()
    state = leader.m.state.leader_state
    assert state is not None
    asked = leader.m.origin._replace(node="o", incarnation=0, boot=7, base=0, members=(0, 0))
    leader.give(Received(Query(asked, True)))
    leader.give(Received(Query(asked._replace(config="times-9"), False)))
    assert not state.change.questions
    leader.give(Received(Query(asked, False)))
    assert state.change.questions
    voters = tuple(m._replace(kind=Kind.VOTER) for m in leader.register.members)
    leader.m.state.write_register(Register(MembersId(leader.m.term, 9), voters))
    assert not leader.m.admitting.answer()
    assert not state.change.questions, "who is a voter by now is not admitted"
