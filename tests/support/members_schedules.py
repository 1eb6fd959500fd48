"""Schedules that broke earlier wordings of rules R, and those that show what each of them prevents.

Each is played with real machines and says what went wrong; empty if a step was refused, as it must be with all rules.
With a rule taken out it must come to something, else it would show nothing. Clocks play no part in most of them: a
schedule moves each machine's own clock as it needs. S0 to S7 were found by searches, S8 to S18 are written by hand.
"""

from __future__ import annotations

from primacy.election.effects import Start
from primacy.election.events import Code
from primacy.election.inputs import ChangeMembers, DeadlinePassed, ForceMembers, Received, RunLock
from primacy.election.messages import (
    Admission,
    FirstBallot,
    MembersTold,
    Query,
    Report,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import MembersId, Register, Role
from primacy.election.raft.register import is_observer
from primacy.election.raft.strategy import RaftStrategy
from tests.support.members_harness import Cluster, H, P, members
from tests.support.members_schedules_steps import (
    Schedule,
    Untimed,
    all_of,
    asks_another,
    asleep,
    beat,
    both_campaign,
    campaign,
    elected,
    kept_back,
    schedule,
    take,
    told,
)

# --- found by searches ------------------------------------------------------------------------------------------------


@schedule
def s0(machine: type[RaftStrategy]) -> str:
    """R1: a candidacy outlives its register. a wins by b and e, and changes abcde to acd; c, a candidate of the same
    term, only ever takes registers, and gets the vote that d gave it at first when it has the last one."""
    cluster = asleep("a b c d e", machine)
    a, c = cluster["a"], cluster["c"]
    term = campaign(a, "b e")
    assert campaign(c, "d b", term) == term
    take(cluster, VoteRequest, to="be", sender="a")
    take(cluster, VoteRequest, to="d", sender="c")
    late = kept_back(cluster, VoteReply, sender="d")
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
    assert c.m.role is not Role.LEADER, "refused: c gave its candidacy up when it took the first register of a"
    return ""


@schedule
def s1(machine: type[RaftStrategy]) -> str:
    """R6: why joint. a leads ab and shrinks the members to itself; b hears nothing of it. a leads alone, forgets, and
    asks b."""
    cluster = asleep("a b", machine)
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
    assert b.leads, "b is elected above all terms of a"
    assert list(cluster.elected.values()).count("a") == 1, "refused: a never led without b"
    return ""


@schedule
def s2(machine: type[RaftStrategy]) -> str:
    """R9: alone. a is the only voter, leads term after term alone, and forgets. b, which was removed and told so,
    remembers."""
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
    started = cluster["a"].started
    if len(started) > len(set(started)):
        return "a token is given twice"
    assert cluster["a"].m.role is Role.RECOVERING, "refused: b's answer, all others there are, is not enough"
    assert "an operator" in cluster["a"].m.view(cluster.now).waits_for
    return ""


@schedule
def s3(machine: type[RaftStrategy]) -> str:
    """R5: taking back. a proves the joint register abd<abc by c and d, and writes abd. b takes the joint one from c,
    and wins the next term with c and d under it; from then on it hears c alone."""
    joint = Register(MembersId(1, 3), members("a b d"), members("a b c"))
    final = Register(MembersId(1, 4), members("a b d"))
    cluster = asleep("a b c", machine, also="d", has={"d": joint})
    told(cluster, final, "a")
    told(cluster, joint, "bc")
    b = cluster["b"]
    elected(cluster, b, "c d")
    for _ in range(4):
        if b.leads:
            beat(b, "c")
    leader = b.m.state.leader_state
    if b.register.voters == ("a", "b", "c") and leader is not None and b.m.changing.is_proved(leader):
        return "b leads with c, while a and d are a majority of abd"
    assert b.register.prior, "refused: a may have proved it, and gone on from it"
    assert not b.heard(Code.MEMBERS_TAKEN_BACK)
    return ""


def an_observer_becomes_a_voter(cluster: Untimed) -> int:
    """a's next register, in which d votes, has reached all but a: d elects b in the next term, and forgets."""
    a, b = cluster["a"], cluster["b"]
    told(cluster, Register(MembersId(a.m.term, 2), members("a b c d e")), "bcde")
    term = elected(cluster, b, "d e")
    cluster.forget("d")
    cluster["d"].start()
    return term


@schedule
def s4(machine: type[RaftStrategy]) -> str:
    """R8: a deposed leader. a leads, and its register names d as observer. b and c go on without a. d asks a, which
    does not know yet that it is deposed; then c asks d for the same term."""
    cluster = asleep("a b c e d:observer", machine)
    a, d = cluster["a"], cluster["d"]
    elected(cluster, a, "b c")
    beat(a, "bce")
    term = an_observer_becomes_a_voter(cluster)
    take(cluster, Query, to="a", sender="d")
    if not cluster.on_wire(Admission, to="d"):
        return ""  # refused: no heartbeat of a that left after the question is proved
    take(cluster, Admission, to="d")
    assert is_observer(d.register, "d")
    return asks_another(cluster, cluster["c"], d, term)


@schedule
def s5(machine: type[RaftStrategy]) -> str:
    """R8: a late answer. d, an observer without memory, is admitted; the answer arrives a second time, much later: d
    has become a voter since, elected b, and forgot."""
    cluster = asleep("a b c e d:observer", machine)
    a, d = cluster["a"], cluster["d"]
    cluster.forget("d")
    elected(cluster, a, "b c")
    d.start()
    take(cluster, Query, to="a", sender="d")
    beat(a, "bce")
    (late,) = cluster.on_wire(Admission, to="d")
    take(cluster, Admission, to="d")
    term = an_observer_becomes_a_voter(cluster)
    cluster.wire.clear()
    d.give(Received(late))
    if d.m.ballot is None:
        return ""  # refused: the answer names the nonce of a boot that is over
    return asks_another(cluster, cluster["c"], d, term)


@schedule
def s6(machine: type[RaftStrategy]) -> str:
    """R8: a voter. Five voters, and no change of members at all. a leads, heard by b and c; d and e elect b in the next
    term; d forgets and asks a, whose heartbeat c and e still ack."""
    cluster = asleep("a b c d e", machine)
    a, b, d = (cluster[name] for name in "abd")
    elected(cluster, a, "b c")
    beat(a, "bce")
    b.now += P
    term = campaign(b, "d e")
    take(cluster, VoteRequest, to="d", sender="b")
    (vote,) = cluster.on_wire(VoteReply)
    assert vote.granted
    cluster.forget("d")
    d.start()
    take(cluster, Query, to="a", sender="d")
    kept_back(cluster, VoteRequest, VoteReply)
    beat(a, "ce")
    if not cluster.on_wire(Admission, to="d"):
        return ""  # refused: the register of a names d as voter
    take(cluster, Admission, to="d")
    return asks_another(cluster, cluster["c"], d, term)


@schedule
def s7(machine: type[RaftStrategy]) -> str:
    """R13: the run lock. One leads and works. Another wins by the third, and within its start delay shrinks the members
    to itself; then it is restarted."""
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
    return "a second one works at once" if started else ""


# --- written by hand --------------------------------------------------------------------------------------------------


def with_goal(machine: type[RaftStrategy]) -> Untimed:
    """a leads abc in term 2, and ade are wanted: all are there, and the next heartbeat carries the joint register."""
    cluster = asleep("a b c d:observer e:observer", machine)
    a = cluster["a"]
    elected(cluster, a, "b c")
    beat(a, "bcde")
    a.give(ChangeMembers(members("a d e")))
    beat(a, "bcde")
    assert a.register.goal is not None
    return cluster


@schedule
def s8(machine: type[RaftStrategy]) -> str:
    """R1: a leader takes the register of another one. One before it had begun to change abc to ade, which only a late
    message tells of."""
    cluster = asleep("a b c d:observer e:observer", machine)
    a = cluster["a"]
    term = elected(cluster, a, "b c")
    beat(a, "bcde")
    told(cluster, Register(MembersId(1, 3), members("a d e"), members("a b c")), "ad")
    for _ in range(3):
        beat(a, "d")
    both_campaign(cluster, term + 1, ("a", "d"), ("b", "c"))
    return ""


@schedule
def s9(machine: type[RaftStrategy]) -> str:
    """R2: observers. Two of them are removed, in one step, of which only b hears."""
    cluster = asleep("a b c d:observer e:observer", machine)
    a = cluster["a"]
    term = elected(cluster, a, "b c")
    beat(a, "bcde")
    a.give(ChangeMembers(members("a b c")))
    for _ in range(3):
        beat(a, "b")
    assert a.register.members == members("a b c")
    both_campaign(cluster, term + 1, ("a", "b"), ("c", "d e"))
    return ""


@schedule
def s10(machine: type[RaftStrategy]) -> str:
    """R5: an earlier proof. Of the voters before, nobody hears of the joint register."""
    cluster = with_goal(machine)
    for _ in range(2):
        beat(cluster["a"], "d")
    both_campaign(cluster, 3, ("a", "d"), ("b", "c"))
    return ""


@schedule
def s11(machine: type[RaftStrategy]) -> str:
    """R5: stored is not proved. b has the joint register, but has voted for c in the next term before: it can ack
    nothing of a."""
    cluster = with_goal(machine)
    a, b, c = (cluster[name] for name in "abc")
    b.now += P
    c.now += P
    assert campaign(c, "b", 3) == 3
    take(cluster, VoteRequest, to="b", sender="c")
    late = kept_back(cluster, VoteReply, to="c", sender="b")
    assert late
    beat(a, "d")
    take(cluster, MembersTold, to="b", sender="a")
    assert b.register.prior
    a.give(Received(VoteRequest(b.m.origin, 4, True)))
    beat(a, "d")
    cluster.wire = late
    take(cluster, VoteReply, to="c")
    assert c.leads
    both_campaign(cluster, 3, ("a", "d"))
    return ""


@schedule
def s12(machine: type[RaftStrategy]) -> str:
    """R9: a majority answers. c has voted for a, and forgets before anybody else hears of that term; all but a answer
    it. b wins that term with it; then its first vote reaches a, and e's."""
    cluster = asleep("a b c d e", machine)
    b, c = cluster["b"], cluster["c"]
    term = campaign(cluster["a"], "b c")
    take(cluster, VoteRequest, to="c", sender="a")
    late = kept_back(cluster, VoteReply, sender="c") + kept_back(cluster, VoteRequest, to="e", sender="a")
    assert len(late) == 2
    cluster.wire.clear()
    cluster.forget("c")
    c.start()
    take(cluster, Query, to="bde", sender="c")
    take(cluster, Report, to="c")
    if c.m.ballot is None:
        return ""  # refused: a has not answered
    c.now += P
    cluster.wire.clear()
    assert campaign(b, "c d", term) == term
    take(cluster, VoteRequest, to="cd", sender="b")
    take(cluster, VoteReply, to="b")
    assert b.leads
    cluster.wire += late
    take(cluster, VoteRequest, to="e", sender="a")
    take(cluster, VoteReply, to="a")
    return ""


@schedule
def s13(machine: type[RaftStrategy]) -> str:
    """R9: no closure. abc became cde; c has elected d, and forgets. a and b, which its file names, answer; b tells of
    the joint register, and so of d and e."""
    joint = Register(MembersId(1, 3), members("c d e"), members("a b c"))
    final = Register(MembersId(1, 4), members("c d e"))
    cluster = asleep("a b c", machine, also="d e", has={"b": joint, "c": final, "d": final, "e": final})
    c, d, e = (cluster[name] for name in "cde")
    term = elected(cluster, d, "c")
    cluster.forget("c")
    c.start()
    take(cluster, Query, to="ab", sender="c")
    take(cluster, Report, to="c")
    if c.m.ballot is None:
        assert set(c.m.state.recovery.missing(None)) == {"d", "e"}, "refused: they must answer, too"
        return ""
    c.now += P
    e.now += P
    cluster.wire.clear()
    assert campaign(e, "c", term) == term
    take(cluster, VoteRequest, to="c", sender="e")
    take(cluster, VoteReply, to="e")
    return ""


@schedule
def s14(machine: type[RaftStrategy]) -> str:
    """R4: left half done. A leader that is cut off writes a register that nobody else gets; another one is elected
    without it, and then all hear each other."""
    cluster = Cluster("a b c", machines=all_of(machine)).start()
    cluster.lead()
    cluster.change("a b c:2")
    cluster.until(lambda: bool(cluster.leader.heard(Code.MEMBERS_DONE)))
    first = cluster.leader
    others = " ".join(name for name in cluster.nodes if name != first.name)
    cluster.split(first.name, others)
    cluster.change("a b c:3")
    cluster.until(lambda: any(node.leads for node in cluster.nodes.values() if node is not first))
    cluster.cut.clear()
    cluster.run(2 * P)
    assert first.register.members == members("a b c:3") or cluster.has("a b c", "a b c:2")
    return "" if cluster.has("a b c", "a b c:2") else f"{first.name} keeps what it left half done"


@schedule
def s15(machine: type[RaftStrategy]) -> str:
    """R14: silence. A leader's agent is stopped, its work goes on until the hold ends. Two that acked it are gone for
    good, and an operator says so on one that was cut off from them."""
    cluster = Cluster("a b c d e", machines=all_of(machine)).start()
    leader = cluster.lead()
    left, right, *gone = [node for node in cluster.nodes.values() if node is not leader]
    cluster.split(f"{left.name} {right.name}", " ".join(node.name for node in (leader, *gone)))
    cluster.run(3 * P)
    assert leader.works
    leader.up = False
    for node in gone:
        cluster.forget(node.name)
    left.give(ForceMembers(tuple(node.name for node in gone)))
    assert left.register.voters == tuple(sorted((leader.name, left.name, right.name)))
    cluster.run(H // 2)  # its work may run until H after its last heartbeat
    return ""


@schedule
def s16(machine: type[RaftStrategy]) -> str:
    """R14: a term of its own. A leader writes its next register; on a node that is cut off an operator forces another
    one."""
    cluster = Cluster("a b c", machines=all_of(machine)).start()
    leader = cluster.lead()
    other, gone = [node for node in cluster.nodes.values() if node is not leader]
    cluster.split(other.name, f"{leader.name} {gone.name}")
    cluster.run(2 * P)
    cluster.change("a b c:2")
    cluster.until(lambda: leader.register.id.version == 2)
    cluster.forget(gone.name)
    other.give(ForceMembers((gone.name,)))
    assert other.register.id.version == 2
    return "one id has two memberships" if leader.register.id == other.register.id else ""


@schedule
def s17(machine: type[RaftStrategy]) -> str:
    """R14: those before. Only a leader that is cut off has the register that it began; the new nodes of it are gone for
    good, and an operator says so there. The others elect as before, and are right."""
    cluster = Cluster("a b c", also="d e", machines=all_of(machine)).start()
    cluster.run(3_000)
    leader = cluster.lead()
    others = [name for name in "abc" if name != leader.name]
    cluster.loses = lambda sent: bool(leader.register.prior) and (sent.sender in others) != (sent.to in others)
    cluster.change(f"{leader.name} d e")
    cluster.until(lambda: leader.register.prior != ())
    cluster.split(f"{leader.name} d e", " ".join(others))
    for gone in "de":
        cluster.forget(gone)
    cluster.kill(leader.name)
    leader.start()
    cluster.run(2 * P)
    leader.give(ForceMembers(("d", "e")))
    cluster.run(4 * P)
    return "two work" if sum(bool(node.works) for node in cluster.nodes.values()) > 1 else ""


@schedule
def s18(machine: type[RaftStrategy]) -> str:
    """R14: what was never used. d alone has a first ballot; a, which wrote it, has forgotten it, and begins anew with b
    and c, for d has told that its own was never used. An operator says on d, which is cut off, that they are gone."""
    cluster = Cluster("a b c d", blank="a b c d", auto=True, machines=all_of(machine)).start()
    a, d = cluster["a"], cluster["d"]
    cluster.loses = lambda sent: isinstance(sent.message, FirstBallot) and sent.to in "bc"
    cluster.until(lambda: d.disk is not None and d.disk.register is not None)
    cluster.forget("a")
    cluster.wire.clear()
    cluster.loses = lambda sent: isinstance(sent.message, FirstBallot) and sent.to == "d"
    a.start()
    cluster.until(lambda: a.disk is not None and a.disk.register is not None)
    cluster.split("a b c", "d")
    cluster.run(2 * P)
    d.give(ForceMembers(("a", "b", "c")))
    cluster.run(4 * P)
    return "two work" if sum(bool(node.works) for node in cluster.nodes.values()) > 1 else ""


SCHEDULES: dict[str, Schedule] = {
    play.__name__.upper(): play
    for play in (s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18)
}
