"""The safety rules R1 to R5 and R10 to R13, about the register of members: who takes which, who counts, who is heard.

Each drives real machines by hand (`members_harness.py`), which looks at every message whether the register that it
names is on the disk (R1), and at every step whether two lead one term. Changes step by step, memory, `force`, and the
schedules that broke earlier wordings have files of their own.
"""

from __future__ import annotations

import pytest

from primacy.election.effects import Persist, Send
from primacy.election.events import Code
from primacy.election.inputs import ChangeMembers, Received, StepDown
from primacy.election.messages import (
    Ack,
    Ahead,
    Heartbeat,
    MembersTaken,
    MembersTold,
    Release,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Kind, MembersId, Register, Role
from primacy.election.raft.quorum import Quorum
from primacy.election.raft.register import first_register
from tests.support.members_harness import HEARTBEAT, Cluster, H, Node, P, members

pytestmark = pytest.mark.coverage


def register(words: str, term: int, version: int, prior: str = "") -> Register:
    before = tuple(one for one in members(prior) if one.kind is not Kind.OBSERVER)
    return Register(MembersId(term, version), members(words), before)


def told(node: Node, of: Node, what: Register) -> None:
    """`node` is told this register by `of`, which has it."""
    origin = of.m.origin._replace(members=(what.id.term, what.id.version))
    node.give(Received(MembersTold(origin, what)))


def silent(words: str = "a b c") -> Cluster:
    """Everybody is up, has met nobody, and is past its silence; nobody campaigns before a test says so."""
    cluster = Cluster(words).start()
    cluster.wire.clear()
    for node in cluster.nodes.values():
        node.now += P
    return cluster


def ask(voter: Node, candidate: Node, term: int, *, pre: bool = False, id: tuple[int, int] | None = None) -> None:
    origin = candidate.m.origin if id is None else candidate.m.origin._replace(members=id)
    voter.give(Received(VoteRequest(origin, term, pre)))


# --- R1: durable, the newer wins, a leader takes its own --------------------------------------------------------------


def test_R1_a_register_is_on_the_disk_before_anything_names_it() -> None:
    a = silent()["a"]
    told(a, a.cluster["b"], register("a b d", 3, 2, prior="a b c"))
    kinds = [type(effect) for effect in a.last]
    assert Persist in kinds
    assert Send not in kinds[: kinds.index(Persist)]
    assert a.m.origin.members == (3, 2)
    assert a.disk is not None
    assert a.disk.register == a.register


def test_R1_a_register_that_was_not_saved_is_not_named() -> None:
    a = silent()["a"]
    a.fails = "disk full"
    told(a, a.cluster["b"], register("a b d", 3, 2))
    assert a.m.origin.members == (0, 1)
    assert a.register == first_register(members("a b c"))
    assert a.m.state.quorum.voters == ("a", "b", "c")
    assert not a.heard(Code.MEMBERS_CHANGED), "what stood behind the save was not done"


def test_R1_an_older_register_never_wins_and_an_equal_one_changes_nothing() -> None:
    a = silent()["a"]
    told(a, a.cluster["b"], register("a b d", 3, 5))
    for older in (register("a b c", 3, 4), register("a b c", 2, 9), register("a b c", 3, 5)):
        told(a, a.cluster["c"], older)
        assert a.register == register("a b d", 3, 5)


def test_R1_the_term_is_raised_to_that_of_the_register_and_no_vote_is_given_in_it() -> None:
    a = silent()["a"]
    told(a, a.cluster["b"], register("a b c d", 7, 2))
    assert a.disk is not None
    assert (a.disk.term, a.disk.voted_for) == (7, "")
    told(a, a.cluster["b"], register("a b c", 7, 3))
    assert a.disk.term == 7


def test_R1_who_takes_a_register_gives_up_its_candidacy_and_its_question() -> None:
    for pre in (True, False):
        cluster = silent()
        a = cluster["a"]
        a.m.campaigning.ask_votes(a.now, 2, pre=pre)
        assert a.m.role is Role.CANDIDATE
        told(a, cluster["b"], register("a b c d", 1, 2))
        assert a.m.state.campaign is None
        a.give(Received(VoteReply(cluster["b"].m.origin, 2, pre, True, a.m.seat.boot, 1, 10_000, 0, H, 0)))
        assert not a.leads, "a vote for the older register elects nobody under the newer one"


def test_R1_a_leader_takes_none_but_its_own() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    other = next(node for node in cluster.nodes.values() if node is not leader)
    term = leader.m.term
    told(leader, other, register("a b c d", term, 9))
    assert [member.id for member in leader.register.members] == ["a", "b", "c"]
    assert leader.leads


def test_R1_a_leader_that_hears_of_a_later_ones_register_steps_down_in_order() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    other = next(node for node in cluster.nodes.values() if node is not leader)
    told(leader, other, register("a b c d", leader.m.term + 3, 2))
    assert leader.heard(Code.TERM_AHEAD)
    cluster._settle()
    assert not leader.leads
    assert leader.m.term >= 5
    cluster.lead()


def test_R1_a_register_of_a_term_that_is_too_far_ahead_is_refused_and_reported() -> None:
    a = silent()["a"]
    told(a, a.cluster["b"], register("a b d", 2_000_000, 2))
    assert a.register == first_register(members("a b c"))
    assert a.heard(Code.TERM_JUMP)


def test_R1_a_heartbeat_is_acked_once_its_register_is_stored() -> None:
    cluster = silent()
    a, b = cluster["a"], cluster["b"]
    newer = register("a b c d", 2, 2)
    origin = b.m.origin._replace(members=(2, 2))
    a.give(Received(Heartbeat(origin, 2, 1, H, True)))
    assert [type(sent.message) for sent in cluster.wire] == [MembersTaken]
    assert cluster.wire[0].message.origin.members == (0, 1), "it shows the older one"
    assert a.m.leader == ""
    a.give(Received(Heartbeat(origin, 2, 2, H, True)))
    assert len(cluster.wire) == 1, "it asks once per heartbeat (E1)"
    a.give(Received(MembersTold(origin, newer)))
    (ack,) = cluster.on_wire(Ack)
    assert (ack.number, ack.origin.members) == (2, (2, 2))
    assert a.m.leader == "b"


def test_R1_a_heartbeat_that_waited_too_long_for_its_register_is_not_acked() -> None:
    cluster = silent()
    a, b = cluster["a"], cluster["b"]
    origin = b.m.origin._replace(members=(2, 2))
    a.give(Received(Heartbeat(origin, 2, 1, H, True)))
    a.now += 3 * HEARTBEAT
    a.give(Received(MembersTold(origin, register("a b c d", 2, 2))))
    assert not cluster.on_wire(Ack)


def test_R1_a_leader_tells_its_register_to_one_that_shows_an_older_one_once_per_heartbeat() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    cluster.change("a b c d:observer")
    cluster.until(lambda: leader.register.id.version == 2)
    cluster.wire.clear()
    leader.now += HEARTBEAT
    other = next(node for node in cluster.nodes.values() if node is not leader)
    old = other.m.origin._replace(members=(0, 1))
    for _ in range(3):
        leader.give(Received(MembersTaken(old)))
    assert len(cluster.on_wire(MembersTold, to=other.name)) == 1


def test_R1_the_short_way_of_a_follower_hears_no_heartbeat_that_names_another_register() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    cluster.run(2 * P)  # the nodes of the file were asked
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    progress = leader.m.state.leader_state
    assert progress is not None
    number = progress.progress.number + 5
    same = Heartbeat(leader.m.origin, leader.m.term, number, H, True)
    assert follower.m.again(follower.now, same) is not None
    newer = same._replace(origin=leader.m.origin._replace(members=(2, 2)), number=number + 1)
    assert follower.m.again(follower.now, newer) is None


# --- R2: a quorum is a majority of each half --------------------------------------------------------------------------


def joint() -> Quorum:
    found = register("a c d o:observer", 2, 3, prior="a b c")
    return Quorum.of_register(found, found.halves, "a")


def test_R2_votes_are_counted_by_halves() -> None:
    quorum = joint()
    assert quorum.has({"a", "c"})
    assert quorum.has({"a", "b", "d"})
    assert not quorum.has({"a", "d"}), "of those before only one"
    assert not quorum.has({"a", "b"}), "of the voters only one"


def test_R2_an_observer_never_counts() -> None:
    quorum = joint()
    assert "o" not in quorum.voters
    assert not quorum.has({"a", "o"})
    assert quorum.newest_acked({"a": 5, "o": 5}) == 0


def test_R2_a_hold_is_what_both_halves_acked() -> None:
    quorum = joint()
    assert quorum.newest_acked({"a": 9, "c": 7}) == 7
    assert quorum.newest_acked({"a": 9, "d": 8}) == 0
    assert quorum.newest_acked({"a": 9, "b": 6, "d": 8}) == 6


def test_R2_who_votes_by_the_half_before_alone_is_still_asked_and_hears_heartbeats() -> None:
    quorum = joint()
    assert quorum.others == ("b", "c", "d", "o")
    assert quorum.other_voters == ("b", "c", "d")


def test_R2_refusals_exclude_a_quorum_as_soon_as_one_half_cannot_agree() -> None:
    quorum = joint()
    assert not quorum.is_refused({"b"})
    assert quorum.is_refused({"c", "d"})
    assert quorum.is_refused({"b", "c"})


def test_R2_what_a_voters_own_register_says_of_it_or_of_the_candidate_decides_nothing() -> None:
    cluster = silent("a b c")
    a = cluster["a"]
    told(a, cluster["b"], register("a:observer b c", 1, 2))
    cluster.wire.clear()
    ask(a, cluster["b"], 2, id=(1, 2))
    assert cluster.on_wire(VoteReply)[0].granted, "an observer by its own register"
    cluster = silent("a b c")
    a, other = cluster["a"], Node(cluster, "z", "a b c", None)
    other.start()
    cluster.wire.clear()
    origin = cluster["b"].m.origin._replace(node="z", boot=other.m.seat.boot, incarnation=3, members=(1, 7))
    a.give(Received(VoteRequest(origin, 2, False)))
    assert cluster.on_wire(VoteReply)[0].granted, "a candidate that it has never heard of"


def test_R2_observers_ack() -> None:
    cluster = Cluster("a b o:observer").start()
    leader = cluster.lead()
    state = leader.m.state.leader_state
    assert state is not None
    cluster.run(3 * HEARTBEAT)
    assert state.progress.acked["o"] > 0
    assert leader.m.state.quorum.halves == (("a", "b"),)


# --- R3: no vote for an older register --------------------------------------------------------------------------------


@pytest.mark.parametrize("pre", [True, False])
def test_R3_no_vote_and_no_pre_vote_for_an_older_register(pre: bool) -> None:
    cluster = silent()
    a = cluster["a"]
    told(a, cluster["b"], register("a b d", 1, 2))
    cluster.wire.clear()
    ask(a, cluster["c"], 9, pre=pre)
    (sent,) = cluster.wire
    assert isinstance(sent.message, MembersTold), "the refusal brings the newer one, and nothing else"
    assert sent.message.register == a.register
    assert a.m.term == 1, "no term is adopted"
    assert a.disk is not None
    assert a.disk.voted_for == ""


def test_R3_a_candidate_that_was_told_asks_again_soon_under_the_newer_register() -> None:
    cluster = silent()
    a, c = cluster["a"], cluster["c"]
    told(a, cluster["b"], register("a b c d", 1, 2))
    cluster.wire.clear()
    c.m.campaigning.ask_votes(c.now, 2, pre=True)
    ask(a, c, 2, pre=True)
    cluster.deliver(lambda sent: sent.to == "c", rounds=1)
    assert c.register.id == (1, 2)
    assert c.m.deadline_ms is not None
    assert c.m.deadline_ms <= c.now + HEARTBEAT


# --- R4: the winner's term --------------------------------------------------------------------------------------------


def test_R4_the_winners_register_gets_its_term_but_for_the_first_one() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    assert leader.register.id == (0, 1)
    cluster.change("a b c d:observer")
    cluster.until(lambda: leader.register.id == (leader.m.term, 2))
    term = leader.m.term
    cluster.kill(leader.name)
    cluster.until(lambda: any(node.leads for node in cluster.nodes.values()))
    assert cluster.leader.m.term > term
    assert cluster.leader.register.id == (cluster.leader.m.term, 2)


def test_R4_what_a_dead_leader_left_half_done_gives_way_also_to_the_first_register() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    left = register("a b c d:observer", leader.m.term - 1, 2)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    told(other, leader, left)
    assert other.register == left
    cluster.run(4 * HEARTBEAT)
    assert leader.leads
    assert leader.register.id == (leader.m.term, 1)
    assert other.register == leader.register


# --- R5: proved -------------------------------------------------------------------------------------------------------


def test_R5_to_have_stored_a_register_is_no_proof() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    cluster.change("a b c d:observer")
    cluster.until(lambda: leader.register.id.version == 2)
    state = leader.m.state.leader_state
    assert state is not None
    state.change.carried_from = state.progress.number + 1
    assert all(node.register.id.version == 2 for node in cluster.nodes.values())
    assert not leader.m.changing.is_proved(state)
    cluster.run(HEARTBEAT + 10)
    assert leader.m.changing.is_proved(state)


def test_R5_one_change_at_a_time() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    cluster.change("a b c d")
    refused = leader.m.why_not(ChangeMembers(members("a b")))
    assert "a change is on its way" in refused
    assert "root@a" in refused
    leader.give(ChangeMembers(members("a b")))
    assert leader.heard(Code.MEMBERS_REFUSED)[-1].detail == refused
    cluster.until(lambda: cluster.has("a b c d", "a b c d"))


def test_R5_a_save_that_fails_in_the_middle_of_a_change_is_taken_back_and_tried_again() -> None:
    cluster = Cluster(also="d").start()
    leader = cluster.lead()
    leader.fails = "disk full"
    cluster.change("a b c d")
    cluster.run(4 * HEARTBEAT)
    assert leader.leads
    assert leader.register.id == (0, 1)
    assert leader.m.origin.members == (0, 1)
    leader.fails = ""
    cluster.until(lambda: cluster.has("a b c d", "a b c d"))
    assert leader.works, "the work was never interrupted"


# --- R10: outside -----------------------------------------------------------------------------------------------------


def test_R10_who_is_not_a_member_neither_campaigns_nor_sends_heartbeats_keeps_its_ballot_and_says_so() -> None:
    cluster = silent()
    a = cluster["a"]
    told(a, cluster["b"], register("b c", 1, 4))
    assert a.heard(Code.NOT_A_MEMBER)
    assert [type(sent.message) for sent in cluster.wire] == [MembersTaken], "and the one who told it hears that"
    assert "primacy members add a" in a.m.view(a.now).waits_for
    assert a.disk is not None
    assert a.disk.term == 1
    cluster.wire.clear()
    cluster.split("a", "b c")
    cluster.run(10 * P)
    assert not any(event.code is Code.CAMPAIGNS for event in a.events)


def test_R10_a_leader_tells_whom_it_removed_until_that_one_knows() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    gone = next(name for name in "abc" if name != leader.name)
    rest = " ".join(name for name in "abc" if name != gone)
    cluster.split(gone, rest)
    cluster.change(rest)
    cluster.until(lambda: cluster.has(rest, rest))
    cluster.run(4 * HEARTBEAT)
    state = leader.m.state.leader_state
    assert state is not None
    assert list(state.change.removed) == [gone]
    cluster.cut.clear()
    cluster.run(4 * HEARTBEAT)
    assert not state.change.removed
    assert cluster[gone].register == leader.register
    assert leader.works, "nothing was interrupted"


def test_R10_one_that_was_removed_while_it_was_down_is_told_and_burns_no_term() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    gone = next(name for name in "abc" if name != leader.name)
    rest = " ".join(name for name in "abc" if name != gone)
    cluster.kill(gone)
    cluster.change(rest)
    cluster.until(lambda: cluster.has(rest, rest))
    state, term = leader.m.state.leader_state, leader.m.term
    assert state is not None
    state.change.removed.clear()  # as with a leader that knows nothing of it
    cluster[gone].start()
    cluster.run(6 * P)
    assert cluster[gone].register == leader.register
    assert cluster[gone].m.term <= term
    assert leader.m.term == term
    assert leader.works


@pytest.mark.parametrize("kind", ["voter", "witness", "observer"])
def test_R10_who_was_removed_by_a_leader_that_died_before_it_said_so_asks_and_learns_it(kind: str) -> None:
    """Nobody refuses it a vote, for it asks for none; and the next leader does not know of it."""
    rest = "a b c"
    cluster = Cluster(f"{rest} x:{kind}").start()
    leader = cluster.lead()
    if leader.name == "x":
        leader.give(StepDown("a"))
        cluster.until(lambda: cluster["a"].leads and bool(cluster["a"].works))
        leader = cluster["a"]
    x = cluster["x"]
    cluster.loses = lambda sent: (
        sent.to == "x" and isinstance(sent.message, MembersTold) and not sent.message.register.named("x")
    )
    cluster.change(rest)
    cluster.until(lambda: cluster.has(rest, rest))
    assert x.register.named("x")
    cluster.kill(leader.name)
    cluster.loses = lambda sent: False
    cluster.until(lambda: any(node.works for node in cluster.nodes.values()))
    cluster.until(lambda: bool(x.heard(Code.NOT_A_MEMBER)), 10 * P)
    assert x.register == cluster.leader.register
    assert "primacy members add x" in x.m.view(x.now).waits_for
    cluster.run(P)
    cluster.counts.clear()
    cluster.run(4 * P)
    assert not cluster.counts.get("Query"), "then it asks no more"


def test_R10_only_a_voter_that_is_ahead_makes_a_leader_step_down() -> None:
    cluster = Cluster("a b c o:observer").start()
    leader = cluster.lead()
    leader.give(Received(Ahead(cluster["o"].m.origin, 9)))
    assert not leader.heard(Code.TERM_AHEAD)
    voter = next(name for name in "abc" if name != leader.name)
    leader.give(Received(Ahead(cluster[voter].m.origin, 9)))
    assert leader.heard(Code.TERM_AHEAD)


def test_R10_an_observer_that_is_ahead_gives_its_ballot_up_and_is_admitted_anew() -> None:
    cluster = Cluster("a b c o:observer").start()
    leader = cluster.lead()
    o = cluster["o"]
    cluster.kill("o")
    assert o.disk is not None
    o.disk = o.disk._replace(term=leader.m.term + 4, token_max=o.disk.base + 77)
    o.start()
    boot = o.m.seat.boot
    cluster.until(lambda: bool(o.heard(Code.ADMITTED)))
    assert o.m.seat.boot != boot, "what was said to the earlier nonce counts no more"
    assert o.disk.term == leader.m.term
    assert o.disk.token_max >= o.disk.base + 77, "the largest token is kept"
    cluster.until(lambda: o.m.leader == leader.name)
    assert leader.works


def test_R10_the_end_of_a_ballot_that_was_given_up_outlives_a_restart() -> None:
    cluster = Cluster("a b c o:observer").start()
    leader = cluster.lead()
    o = cluster["o"]
    cluster.kill("o")
    assert o.disk is not None
    o.disk = o.disk._replace(term=leader.m.term + 4)
    o.start()
    cluster.until(lambda: bool(o.heard(Code.RECOVERING)))
    assert o.disk.void
    o.start()
    assert o.m.muted == "no-memory"


# --- R11 to R13 -------------------------------------------------------------------------------------------------------


def test_R11_a_release_names_no_register() -> None:
    cluster = silent()
    a = cluster["a"]
    a.give(Received(Heartbeat(cluster["b"].m.origin, 2, 1, H, True)))
    release = Release(cluster["b"].m.origin._replace(members=(9, 9)), 2)
    a.give(Received(release))
    assert a.heard(Code.RELEASE_APPLIED)


def test_R12_with_a_ballot_the_register_counts_and_the_file_never() -> None:
    cluster = Cluster()
    cluster["a"].file = "a x y"
    a = cluster["a"]
    a.start()
    assert [member.id for member in a.register.members] == ["a", "b", "c"]
    assert a.m.state.quorum.voters == ("a", "b", "c")


def test_R12_at_every_start_the_nodes_of_the_file_are_asked_as_well() -> None:
    cluster = Cluster(also="x")
    a, x = cluster["a"], cluster["x"]
    a.file = "a x"
    a.start()
    assert {sent.to for sent in cluster.wire} == {"b", "c", "x"}
    x.disk = a.disk
    assert a.disk is not None
    x.disk = a.disk._replace(register=register("b x", 4, 9), incarnation=1)
    x.start()
    cluster.run(2 * HEARTBEAT)
    assert a.register == register("b x", 4, 9), "an old copy of a ballot learns of it before its silence is over"
    assert a.heard(Code.NOT_A_MEMBER)


def test_R13_the_run_lock_takes_the_place_of_the_silence_only_while_the_members_are_the_first() -> None:
    alone = Cluster("a")
    alone["a"].start()
    alone.run(HEARTBEAT)
    assert alone["a"].works, "one voter, as ever (M4)"
    changed = Cluster("a")
    a = changed["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(register=register("a", 1, 3))
    a.start()
    changed.run(P - 20)
    assert not a.started
    changed.run(2 * P)
    assert a.works


def test_R4_a_first_register_is_named_anew_where_a_node_shows_one_of_a_dead_leader() -> None:
    cluster = silent()
    a, b, c = (cluster[name] for name in "abc")
    told(c, b, register("a b c d", 1, 2, prior="a b c"))
    cluster.split("a b", "c")
    cluster.until(lambda: a.leads or b.leads)
    cluster.cut.clear()
    cluster.until(lambda: a.register == b.register == c.register)
    assert c.m.leader == cluster.lead().name


def test_E1_a_register_that_is_told_again_and_again_is_answered_once_per_heartbeat() -> None:
    cluster = silent()
    a = cluster["a"]
    for _ in range(5):
        told(a, cluster["b"], register("b c", 1, 4))
    assert len(cluster.on_wire(MembersTaken)) == 1


def test_R4_a_winner_that_cannot_save_the_new_id_names_the_old_one_and_does_not_lead() -> None:
    cluster = silent()
    a, b = cluster["a"], cluster["b"]
    for node, other in ((a, b), (b, a)):
        told(node, other, register("a b c", 1, 2))
    a.m.campaigning.ask_votes(a.now, 2, pre=True)
    cluster.wire.clear()
    a.fails = "disk full"
    a.give(Received(VoteReply(b.m.origin, 2, True, True, a.m.seat.boot, 1, 10_000, 0, H, 0)))
    assert not cluster.wire
    assert not a.leads
    assert a.m.origin.members == (1, 2)
    assert a.register.id == (1, 2)
