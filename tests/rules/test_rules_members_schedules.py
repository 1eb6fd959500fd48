"""Schedules that broke earlier wordings of rules R, each played with real machines: which step is refused, and why.

Each is also played with the rule taken out: then it must end in what the rule prevents, else the schedule would show
nothing. Clocks play no part: a test moves each machine's own clock as it needs.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from primacy.election.effects import Start
from primacy.election.events import Code
from primacy.election.inputs import ChangeMembers, DeadlinePassed, Received, RunLock
from primacy.election.messages import (
    Ack,
    Admission,
    Heartbeat,
    MembersTaken,
    MembersTold,
    Query,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import MembersId, Register, Role
from primacy.election.raft.admit import Admitting
from primacy.election.raft.change import Changing
from primacy.election.raft.recall import Recall
from primacy.election.raft.register import is_observer
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.raft.tell import Telling
from tests.support.members_harness import Cluster, H, Node, P, Sent, members

pytestmark = pytest.mark.coverage


class Untimed(Cluster):
    """Each clock goes as the schedule says, so only terms are judged: who works when is a matter of time."""

    def _at_most_one(self, cause: Sent, caused: Iterable[Sent]) -> None:
        """A machine that lacks a rule may answer twice: that is not what is looked for here."""
        if not self.machines or set(self.machines.values()) == {RaftStrategy}:
            super()._at_most_one(cause, caused)

    def _judge(self) -> None:
        working = {name: node.works for name, node in self.nodes.items()}
        for node in self.nodes.values():
            node.works = 0
        super()._judge()
        for name, term in working.items():
            self.nodes[name].works = term


def all_of(kind: type[RaftStrategy], names: str = "abcdef") -> dict[str, type[RaftStrategy]]:
    return dict.fromkeys(names, kind)


def asleep(words: str, machines: dict[str, type[RaftStrategy]], **more: str) -> Untimed:
    """All are up, met nobody, and are past their silence; the wire is empty."""
    cluster = Untimed(words, machines=machines, **more)  # type: ignore[arg-type]
    cluster.start()
    for node in cluster.nodes.values():
        node.now += P
        node.m.state.file_ask_at_ms = 0
    cluster.wire.clear()
    return cluster


def campaign(node: Node, would: str, term: int = 0) -> int:
    """It asks for votes for real, after the pre-votes of these. Its requests are on the wire."""
    cluster, term = node.cluster, term or node.m.term + 1
    node.m.campaigning.ask_votes(node.now, term, pre=True)
    for name in would.split():
        voter = cluster[name].m
        node.give(Received(VoteReply(voter.origin, term, True, True, node.m.seat.boot, term - 1, 10_000, 0, H, 0)))
    assert cluster.on_wire(VoteRequest, sender=node.name), "it asks for real"
    return term


def only(*kinds: type, to: str = "", sender: str = "") -> object:
    return lambda sent: (
        isinstance(sent.message, kinds) and sent.to in (to or sent.to) and sent.sender in (sender or sent.sender)
    )


def take(cluster: Cluster, *kinds: type, to: str = "", sender: str = "") -> None:
    """Hands over these now, once."""
    cluster.deliver(only(*kinds, to=to, sender=sender), rounds=1)  # type: ignore[arg-type]


def beat(leader: Node, to: str) -> None:
    """The leader's next heartbeat, its register first, and the acks of these; what is for others stays on the wire."""
    cluster = leader.cluster
    assert leader.m.deadline_ms is not None
    leader.now = max(leader.now, leader.m.deadline_ms)
    leader.give(DeadlinePassed())
    for _ in range(3):
        take(cluster, MembersTold, to=to, sender=leader.name)
        take(cluster, Heartbeat, to=to, sender=leader.name)
        take(cluster, Ack, MembersTaken, to=leader.name)
    cluster._settle()


# --- S0: a candidacy outlives its register ----------------------------------------------------------------------------


class StaysCandidate(RaftStrategy):
    """R1: who takes a register goes on with its candidacy."""

    class telling_class(Telling):
        def give_up_candidacy(self, now_ms: int) -> None:
            pass


def s0(machine: type[RaftStrategy]) -> Node:
    """a wins by b and e, and changes abcde to acd; c, a candidate of the same term, only ever takes registers, and gets
    the vote that d gave it at first when it has the last one."""
    cluster = asleep("a b c d e", all_of(machine))
    a, c = cluster["a"], cluster["c"]
    term = campaign(a, "b e")
    assert campaign(c, "d b", term) == term
    take(cluster, VoteRequest, to="be", sender="a")
    take(cluster, VoteRequest, to="d", sender="c")
    late = [sent for sent in cluster.wire if isinstance(sent.message, VoteReply) and sent.sender == "d"]
    cluster.wire = [sent for sent in cluster.wire if sent not in late]
    take(cluster, VoteReply, to="a")
    assert a.leads
    beat(a, "bde")
    a.give(ChangeMembers(members("a c d")))
    for _ in range(8):
        beat(a, "bde")
        take(cluster, MembersTold, to="c", sender="a")
        cluster.wire.clear()
    assert c.register == Register(a.register.id, members("a c d"))
    cluster.wire += late
    take(cluster, VoteReply, to="c")
    return c


def test_R1_S0_a_vote_for_an_older_register_elects_nobody_under_the_newer_one() -> None:
    c = s0(RaftStrategy)
    assert c.m.role is not Role.LEADER, "refused: c gave its candidacy up when it took the first register of a"


def test_R1_S0_taken_out_two_lead_one_term() -> None:
    with pytest.raises(AssertionError, match="two leaders in term"):
        s0(StaysCandidate)


# --- S1: why joint ----------------------------------------------------------------------------------------------------


class SingleSteps(RaftStrategy):
    """R6: voters change in one step."""

    class changing_class(Changing):
        def needs_joint(self, register: object, goal: object) -> bool:
            return False


def s1(machine: type[RaftStrategy]) -> Untimed:
    """a leads ab and shrinks the members to itself; b hears nothing of it. a leads alone, forgets, and asks b."""
    cluster = asleep("a b", all_of(machine))
    a, b = cluster["a"], cluster["b"]
    campaign(a, "b")
    take(cluster, VoteRequest, VoteReply)
    take(cluster, VoteRequest, VoteReply)
    beat(a, "b")
    a.give(ChangeMembers(members("a")))
    beat(a, "-")
    cluster.wire.clear()
    for _ in range(3):
        beat(a, "-")
        cluster.wire.clear()
    cluster.kill("a")
    a.start()
    for _ in range(20):  # a may campaign: alone, if its register says so
        a.now = max(a.now, a.m.deadline_ms or 0)
        a.give(DeadlinePassed())
        cluster._judge()
        cluster.wire.clear()
    cluster.forget("a")
    a.start()
    b.now += P
    for _ in range(3):
        a.now = max(a.now, a.m.deadline_ms or 0)
        a.give(DeadlinePassed())
        cluster.deliver(lambda sent: not isinstance(sent.message, VoteRequest))
    a.now += P
    cluster.wire.clear()
    campaign(b, "a")
    cluster.deliver(lambda sent: isinstance(sent.message, VoteRequest | VoteReply))
    return cluster


def test_R6_S1_the_voters_before_must_have_stored_the_step() -> None:
    cluster = s1(RaftStrategy)
    assert cluster["b"].leads, "b is elected above all terms of a"
    assert list(cluster.elected.values()).count("a") == 1, "refused: a never led without b"


def test_R6_S1_taken_out_two_lead_one_term() -> None:
    with pytest.raises(AssertionError, match="two leaders in term"):
        s1(SingleSteps)


# --- S2: alone --------------------------------------------------------------------------------------------------------


class PassesAlone(RaftStrategy):
    """R9: who was all of a half gets its memory back from others."""

    class state_class(RaftState):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            recall = Recall(self.seat, auto=False, token_max=0)
            recall.is_alone = lambda newest: False  # type: ignore[method-assign]
            self.recovery = recall


def s2(machine: type[RaftStrategy]) -> Cluster:
    """a is the only voter, leads term after term alone, and forgets. b, which was removed and told so, remembers."""
    cluster = Cluster("a b", machines=all_of(machine)).start()
    cluster.lead()
    if cluster.leader.name != "a":
        cluster.run(P)
    cluster.change("a")
    cluster.until(lambda: cluster.has("a b", "a") and cluster["a"].works > 0)
    cluster.kill("b")
    for _ in range(3):
        cluster.kill("a")
        cluster["a"].start()
        cluster.until(lambda: cluster["a"].works > 0)
    cluster.forget("a")
    cluster.start("a b")
    cluster.run(4 * P)
    return cluster


def test_R9_S2_nobody_else_knows_what_a_node_did_alone() -> None:
    cluster = s2(RaftStrategy)
    assert cluster["a"].m.role is Role.RECOVERING, "refused: b's answer, all others there are, is not enough"
    assert "an operator" in cluster["a"].m.view(cluster.now).waits_for


def test_R9_S2_taken_out_it_leads_a_term_again_that_it_led_before() -> None:
    cluster = s2(PassesAlone)
    started = cluster["a"].started
    assert len(started) > len(set(started)), "a token is given twice"


# --- S3: taking back --------------------------------------------------------------------------------------------------


class AnybodyTakesBack(RaftStrategy):
    """R5: a leader takes back a joint register that another one wrote."""

    class changing_class(Changing):
        def may_take_back(self, leader: object) -> bool:
            return True


def s3(machine: type[RaftStrategy]) -> Node:
    """a proves the joint register abd<abc by c and d, and writes abd. b takes the joint one from c, and wins the next
    term with c and d under it; from then on it hears c alone."""
    cluster = asleep("a b c", all_of(machine), also="d")
    joint = Register(MembersId(1, 3), members("a b d"), members("a b c"))
    final = Register(MembersId(1, 4), members("a b d"))
    origin = cluster["a"].m.origin
    d = cluster["d"]
    d.disk = cluster["a"].disk
    assert d.disk is not None
    d.disk = d.disk._replace(register=joint, incarnation=5)
    d.start()
    d.now += P
    for name, has in (("a", final), ("b", joint), ("c", joint)):
        told = MembersTold(origin._replace(node="z", boot=9, incarnation=0, members=tuple(has.id)), has)  # type: ignore[arg-type]
        cluster[name].give(Received(told))
    cluster.wire.clear()
    b = cluster["b"]
    campaign(b, "c d")
    take(cluster, VoteRequest, to="cd")
    take(cluster, VoteReply, to="b")
    assert b.leads
    for _ in range(4):
        if b.leads:
            beat(b, "c")
    return b


def test_R5_S3_a_joint_register_of_another_leader_is_not_taken_back_unproved() -> None:
    b = s3(RaftStrategy)
    assert b.register.prior, "refused: a may have proved it, and gone on from it"
    assert not b.heard(Code.MEMBERS_TAKEN_BACK)


def test_R5_S3_taken_out_two_quorums_no_longer_overlap() -> None:
    b = s3(AnybodyTakesBack)
    assert b.register.voters == ("a", "b", "c"), "b leads with c, while a and d are a majority of abd"
    state = b.m.state.leader_state
    assert state is not None
    assert b.m.changing.is_proved(state)


# --- S4 to S6: admission ----------------------------------------------------------------------------------------------


class AnswersAtOnce(RaftStrategy):
    """R8: a leader admits without a proof that it leads still."""

    class admitting_class(Admitting):
        def is_proved(self, leader: object, number: int) -> bool:
            return True


class AnyBoot(RaftStrategy):
    """R8: an answer to an earlier boot is taken."""

    class admitting_class(Admitting):
        def is_answer(self, admission: object) -> bool:
            return True


class AdmitsVoters(RaftStrategy):
    """R8: a leader admits one of its voters."""

    class admitting_class(Admitting):
        def may_admit(self, register: Register, node: str) -> bool:
            return register.named(node)


def elected(cluster: Untimed, node: Node, by: str) -> int:
    """It wins the next term with these votes."""
    for name in by.split():
        cluster[name].now += P
    node.now += P
    term = campaign(node, by)
    take(cluster, VoteRequest, to=by.replace(" ", ""), sender=node.name)
    take(cluster, VoteReply, to=node.name)
    cluster.wire.clear()
    assert node.leads
    return term


def s4(machine: type[RaftStrategy]) -> tuple[Untimed, bool]:
    """Five nodes. a leads, and its register names d as observer. b and c go on without a: d votes, elects b in the next
    term, and forgets. d asks a, which does not know yet that it is deposed; then c asks d for the same term."""
    cluster = asleep("a b c e d:observer", all_of(machine))
    a, b, c, d = (cluster[name] for name in "abcd")
    elected(cluster, a, "b c")
    beat(a, "bce")
    newer = Register(MembersId(a.m.term, 2), members("a b c d e"))
    for name in "bcde":
        told = MembersTold(a.m.origin._replace(node="z", boot=9, incarnation=0, members=tuple(newer.id)), newer)  # type: ignore[arg-type]
        cluster[name].give(Received(told))
    term = elected(cluster, b, "d e")
    cluster.forget("d")
    d.start()
    take(cluster, Query, to="a", sender="d")
    if not cluster.on_wire(Admission, to="d"):
        return cluster, False
    take(cluster, Admission, to="d")
    assert is_observer(d.register, "d")
    d.now += P
    c.now += 2 * P
    cluster.wire.clear()
    assert campaign(c, "a d", term) == term
    take(cluster, VoteRequest, to="d", sender="c")
    return cluster, cluster.on_wire(VoteReply, to="c")[0].granted


def test_R8_S4_a_deposed_leader_admits_nobody() -> None:
    _, voted_twice = s4(RaftStrategy)
    assert not voted_twice, "refused: no heartbeat of a that left after the question is proved"


def test_R8_S4_taken_out_a_vote_is_given_twice_in_one_term() -> None:
    _, voted_twice = s4(AnswersAtOnce)
    assert voted_twice


def s5(machine: type[RaftStrategy]) -> tuple[Untimed, bool]:
    """Five nodes. d, an observer without memory, is admitted; the answer arrives a second time, much later: d has
    become a voter since, elected b, and forgot."""
    cluster = asleep("a b c e d:observer", all_of(machine))
    a, b, c, d = (cluster[name] for name in "abcd")
    cluster.forget("d")
    elected(cluster, a, "b c")
    d.start()
    take(cluster, Query, to="a", sender="d")
    beat(a, "bce")
    (late,) = cluster.on_wire(Admission, to="d")
    take(cluster, Admission, to="d")
    newer = Register(MembersId(a.m.term, 2), members("a b c d e"))
    for name in "bcde":
        told = MembersTold(a.m.origin._replace(node="z", boot=9, incarnation=0, members=tuple(newer.id)), newer)  # type: ignore[arg-type]
        cluster[name].give(Received(told))
    term = elected(cluster, b, "d e")
    cluster.forget("d")
    d.start()
    cluster.wire.clear()
    d.give(Received(late))
    if d.m.ballot is None:
        return cluster, False
    d.now += P
    c.now += 2 * P
    cluster.wire.clear()
    assert campaign(c, "a d", term) == term
    take(cluster, VoteRequest, to="d", sender="c")
    return cluster, cluster.on_wire(VoteReply, to="c")[0].granted


def test_R8_S5_an_answer_to_an_earlier_boot_is_not_taken() -> None:
    _, voted_twice = s5(RaftStrategy)
    assert not voted_twice, "refused: the answer names the nonce of a boot that is over"


def test_R8_S5_taken_out_a_vote_is_given_twice_in_one_term() -> None:
    _, voted_twice = s5(AnyBoot)
    assert voted_twice


def s6(machine: type[RaftStrategy]) -> tuple[Untimed, bool]:
    """Five voters, and no change of members at all. a leads, heard by b and c; d and e elect b in the next term; d
    forgets and asks a, whose heartbeat c and e still ack."""
    cluster = asleep("a b c d e", all_of(machine))
    a, b, c, d = (cluster[name] for name in "abcd")
    elected(cluster, a, "b c")
    beat(a, "bce")
    b.now += P
    term = campaign(b, "d e")
    take(cluster, VoteRequest, to="d", sender="b")
    votes = [sent for sent in cluster.wire if isinstance(sent.message, VoteReply)]
    assert votes
    assert votes[0].message.granted  # type: ignore[union-attr]
    cluster.forget("d")
    d.start()
    cluster.wire = [sent for sent in cluster.wire if isinstance(sent.message, Query)]
    take(cluster, Query, to="a", sender="d")
    beat(a, "ce")
    if not cluster.on_wire(Admission, to="d"):
        return cluster, False
    take(cluster, Admission, to="d")
    d.now += P
    c.now += 2 * P
    cluster.wire.clear()
    assert campaign(c, "a d", term) == term
    take(cluster, VoteRequest, to="d", sender="c")
    return cluster, cluster.on_wire(VoteReply, to="c")[0].granted


def test_R8_S6_a_voter_is_not_admitted() -> None:
    _, voted_twice = s6(RaftStrategy)
    assert not voted_twice, "refused: the register of a names d as voter"


def test_R8_S6_taken_out_a_vote_is_given_twice_in_one_term() -> None:
    _, voted_twice = s6(AdmitsVoters)
    assert voted_twice


# --- S7: the run lock -------------------------------------------------------------------------------------------------


class LockSuffices(RaftStrategy):
    """R13: one voter with a free run lock starts at once, whatever its members were."""

    class state_class(RaftState):
        def has_changed_members(self) -> bool:
            return False


def s7(machine: type[RaftStrategy]) -> list[Start]:
    """One leads and works. Another wins by the third, and within its start delay shrinks the members to itself; then it
    is restarted."""
    cluster = Cluster("a b c", machines=all_of(machine)).start()
    working = cluster.lead()
    a = next(node for node in cluster.nodes.values() if node is not working)
    cluster.kill(a.name)
    assert a.disk is not None
    alone = Register(MembersId(a.disk.term + 1, 4), members(a.name))
    a.disk = a.disk._replace(term=a.disk.term + 1, voted_for=a.name, register=alone)
    a.start()
    a.now = cluster.now + 1
    a.give(RunLock(held=False))
    started = [effect for effect in a.last if isinstance(effect, Start)]
    while a.m.deadline_ms is not None and a.m.deadline_ms <= a.now:
        started += [effect for effect in a.give(DeadlinePassed()) if isinstance(effect, Start)]
    assert working.works
    return started


def test_R13_S7_a_free_run_lock_is_no_proof_once_the_members_have_changed() -> None:
    assert not s7(RaftStrategy), "refused: a keeps its silence, in which the work of the one before ends"


def test_R13_S7_taken_out_a_second_one_works_at_once() -> None:
    assert s7(LockSuffices)
