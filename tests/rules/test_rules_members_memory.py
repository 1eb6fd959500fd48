"""The safety rules R8, R9 and R12, and M1 and M3 with a register: nodes without memory, and first starts."""

from __future__ import annotations

from typing import Any

import pytest

from primacy.election.events import Code
from primacy.election.inputs import CancelChange, Received
from primacy.election.messages import Ack, Admission, Heartbeat, Query, Report, VoteReply, VoteRequest
from primacy.election.model import CLOSED, Kind, ListRecord, MembersId, Register, Role
from primacy.election.raft.recovery import FLOOR
from primacy.election.raft.register import first_register
from tests.support.members_harness import HEARTBEAT, TIMES, Cluster, H, Node, P, members
from tests.support.raft_harness import BASE

pytestmark = pytest.mark.coverage


def register(words: str, term: int, version: int, prior: str = "") -> Register:
    before = tuple(one for one in members(prior) if one.kind is not Kind.OBSERVER)
    return Register(MembersId(term, version), members(words), before)


def report(node: Node, of: str, what: Register | None, term: int = 3, **more: Any) -> None:
    """`node` is told by `of`, from memory unless `memory=False`."""
    memory = more.pop("memory", True)
    origin = node.m.origin._replace(
        node=of, boot=ord(of), incarnation=5 if memory else 0, base=BASE if memory else 0, config=TIMES
    )
    fields: dict[str, Any] = {"hold_max_ms": H, "token_max": BASE + term, "echo": node.m.seat.boot, **more}
    echo = fields.pop("echo")
    said = Report(origin, echo, memory, memory, term, fields.pop("hold_max_ms"), fields.pop("token_max"), **fields)
    node.give(Received(said._replace(register=what)))


def blank(name: str = "a", words: str = "a b c") -> Node:
    cluster = Cluster(words)
    cluster.forget(name)
    cluster[name].start()
    return cluster[name]


# --- R8: admission ----------------------------------------------------------------------------------------------------


def admitted() -> tuple[Cluster, Admission]:
    """A cluster with an observer d without memory, and the admission that is on its way to it."""
    cluster = Cluster("a b c d:observer", blank="d").start()
    cluster.loses = lambda sent: isinstance(sent.message, Admission)
    cluster.lead()
    found: list[Admission] = []
    hand = cluster._hand

    def kept(sent: Any) -> int:
        if isinstance(sent.message, Admission):
            found.append(sent.message)
        return hand(sent)

    cluster._hand = kept  # type: ignore[method-assign]
    cluster.until(lambda: bool(found))
    cluster.loses = lambda sent: False
    return cluster, found[0]


def test_R8_a_blank_observer_is_admitted_as_if_it_had_just_read_its_ballot() -> None:
    cluster, told = admitted()
    d, leader = cluster["d"], cluster.leader
    cluster.wire.clear()
    d.give(Received(told))
    assert d.disk is not None
    assert (d.disk.base, d.disk.term, d.disk.voted_for) == (BASE, leader.m.term, CLOSED)
    assert d.disk.register == leader.register
    assert d.disk.hold_max_ms >= H
    assert d.disk.token_max >= BASE + leader.m.term
    assert {name for name, _, _ in d.disk.seen} >= {"a", "b", "c"} - {leader.name}
    assert d.m.state.promise_left(d.now) == P
    assert d.heard(Code.ADMITTED)[0].subject == leader.name
    cluster.run(2 * HEARTBEAT)
    assert d.m.leader == leader.name


def test_R8_the_answer_waits_for_a_heartbeat_that_left_after_the_question_to_be_proved() -> None:
    cluster = Cluster("a b c d:observer", blank="d").start("a b c")
    leader = cluster.lead()
    others = " ".join(name for name in "abc" if name != leader.name)
    cluster.run(2 * HEARTBEAT)
    cluster.split(leader.name, others)
    d = cluster["d"]
    d.start()
    cluster.run(2 * HEARTBEAT)
    assert leader.leads, "it does not know yet that it may be deposed"
    assert not cluster.counts.get("Admission")
    assert cluster.counts["Query"], "although it was asked"
    cluster.cut.clear()
    cluster.until(lambda: bool(d.heard(Code.ADMITTED)))


def test_R8_a_heartbeat_that_had_left_before_the_question_proves_nothing() -> None:
    cluster = Cluster("a b c d:observer", blank="d").start("a b c")
    leader = cluster.lead()
    cluster.loses = lambda sent: isinstance(sent.message, Ack)
    cluster.run(HEARTBEAT)
    state = leader.m.state.leader_state
    assert state is not None
    number = state.progress.number
    query = Query(leader.m.origin._replace(node="d", incarnation=0, boot=7, base=0, members=(0, 0)), False)
    leader.give(Received(query))
    cluster.wire.clear()
    other = next(node for node in cluster.nodes.values() if node.name in "abc" and node is not leader)
    leader.give(Received(Ack(other.m.origin, leader.m.term, number, leader.m.seat.boot)))
    assert state.progress.proved == number
    assert not cluster.on_wire(Admission)
    cluster.loses = lambda sent: False
    cluster.run(HEARTBEAT + 5)
    assert cluster.counts["Admission"] == 1


def test_R8_an_answer_to_an_earlier_boot_is_not_taken() -> None:
    cluster, told = admitted()
    d = cluster["d"]
    cluster.forget("d")
    d.start()
    d.give(Received(told))
    assert d.m.role is Role.RECOVERING
    assert d.m.ballot is None


def test_R8_a_voter_is_never_admitted_whatever_says_so() -> None:
    cluster = Cluster("a b c").start()
    leader = cluster.lead()
    gone = next(name for name in "abc" if name != leader.name)
    cluster.forget(gone)
    cluster[gone].start()
    cluster.run(6 * HEARTBEAT)
    assert not cluster.counts.get("Admission")
    node = blank()
    named = Admission(
        node.m.origin._replace(node="b", boot=5, base=BASE, members=(3, 2)),
        *(node.m.seat.boot, 3, register("a b c", 3, 2), H, BASE),
    )
    node.give(Received(named))
    assert node.m.ballot is None


def test_R8_who_has_a_ballot_or_other_times_is_not_admitted() -> None:
    cluster, told = admitted()
    d = cluster["d"]
    d.give(Received(told._replace(origin=told.origin._replace(config="times-2"))))
    assert d.m.ballot is None
    d.give(Received(told))
    d.give(Received(told._replace(term=99)))
    assert d.disk is not None
    assert d.disk.term == told.term, "the first one counts"


def test_R8_a_question_that_is_repeated_at_every_heartbeat_is_answered_all_the_same() -> None:
    cluster = Cluster("a b c d:observer", blank="d").start("a b c")
    leader = cluster.lead()
    state = leader.m.state.leader_state
    assert state is not None
    query = Query(leader.m.origin._replace(node="d", incarnation=0, boot=7, base=0, members=(0, 0)), False)
    leader.give(Received(query))
    asked = dict(state.change.questions)
    state.progress.sent(leader.now)
    leader.give(Received(query))
    assert state.change.questions == asked


def test_R8_a_node_whose_file_has_its_own_line_more_is_admitted_where_files_were_compared_before() -> None:
    """With the first register all show the hash of their files, which a new node's differs from: it shows none."""
    cluster = Cluster("a b c", also="d", compares_files=True)
    cluster["d"].file = "a b c d"
    cluster.start()
    leader, d = cluster.lead(), cluster["d"]
    assert leader.m.origin.config == f"{TIMES} of a b c"
    cluster.change("a b c d")
    cluster.until(lambda: bool(d.heard(Code.ADMITTED)))
    cluster.until(lambda: d.register.voters == ("a", "b", "c", "d"))
    assert d.m.origin.config == leader.m.origin.config == TIMES


def test_R12_a_node_whose_file_names_nobody_but_itself_is_not_admitted() -> None:
    cluster, told = admitted()
    d = cluster["d"]
    cluster.forget("d")
    d.file = "d"
    d.start()
    d.give(Received(told._replace(echo=d.m.seat.boot)))
    assert d.m.ballot is None
    assert "names nobody but itself" in d.heard(Code.NOT_A_MEMBER)[0].detail


# --- R9: a voter that forgot ------------------------------------------------------------------------------------------


def test_R9_a_voter_that_forgot_votes_again_when_all_others_have_answered_from_memory() -> None:
    a = blank()
    newest = register("a b c", 4, 7)
    report(a, "b", newest, 4)
    assert a.m.role is Role.RECOVERING
    report(a, "c", first_register(members("a b c")), 6)
    assert a.m.role is not Role.RECOVERING
    assert a.disk is not None
    assert (a.disk.term, a.disk.voted_for) == (6, CLOSED), "the highest term, closed"
    assert a.disk.register == newest, "the newest register"
    assert a.m.state.promise_left(a.now) == P


def test_R9_both_halves_of_every_register_that_it_is_told_of_are_asked() -> None:
    a = blank()
    a.cluster.wire.clear()
    report(a, "b", register("a b d", 4, 7, prior="a b c"), 4)
    report(a, "c", register("a b c", 3, 2), 4)
    assert a.m.ballot is None, "d is a voter, too"
    a.now += HEARTBEAT
    a.m._wake(a.now)
    assert "d" in a.m.state.recovery.to_ask(None)
    report(a, "d", register("a b d e", 2, 1), 4)
    assert a.m.ballot is None, "and it tells of e"
    report(a, "e", register("a b d", 4, 7, prior="a b c"), 4)
    assert a.m.ballot is not None


def test_R9_an_answer_without_memory_or_to_another_boot_does_not_count() -> None:
    a = blank()
    report(a, "b", register("a b c", 4, 7), 4)
    report(a, "c", register("a b c", 0, 1), 0, memory=False)
    assert a.m.ballot is None
    report(a, "c", register("a b c", 4, 7), 4, echo=1)
    assert a.m.ballot is None
    assert a.m.view(a.now).waits_for == (
        "an operator: too few remember to elect a leader; on b: primacy members force --without a --without c, "
        "then primacy members add for each"
    )


def test_R9_one_that_is_away_is_named_with_what_to_do() -> None:
    a = blank()
    report(a, "b", register("a b c", 4, 7), 4)
    waits = a.m.view(a.now).waits_for
    assert waits.endswith("by c (gone for good: primacy members remove c)"), waits


@pytest.mark.parametrize(("version", "recovers"), [(1, True), (7, False)])
def test_R9_who_gave_up_a_first_ballot_that_was_never_used_need_not_remember(version: int, recovers: bool) -> None:
    """M3: while there are no other members than the first, there is nothing to know but terms."""
    a = blank()
    report(a, "b", register("a b c", 0, version), 4)
    report(a, "c", register("a b c", 0, 1), 0, memory=False, gave_way=True)
    assert (a.m.ballot is not None) is recovers
    if a.m.ballot is not None:
        assert (a.m.ballot.term, a.m.ballot.voted_for) == (4 + FLOOR, CLOSED)


def test_R9_where_one_that_is_out_already_must_answer_the_node_itself_is_renewed() -> None:
    """c is gone for good and was removed; d, which is out as well, knows of a time when c voted."""
    a = blank(words="a b c d")
    report(a, "b", register("a b e", 4, 7), 4)
    report(a, "d", register("a b c d", 3, 2), 3)
    report(a, "e", register("a b e", 4, 7), 4)
    assert a.m.ballot is None
    waits = a.m.view(a.now).waits_for
    assert waits.endswith("by c (gone for good: primacy members renew a, on another node)"), waits
    report(a, "b", register("a:observer b e", 4, 9), 4)
    assert a.m.view(a.now).waits_for == "the leader to admit it"


@pytest.mark.parametrize(("words", "prior"), [("a", ""), ("a", "a b"), ("a b c", "a")])
def test_R9_not_if_it_is_the_only_voter_of_a_half_of_the_newest_register(words: str, prior: str) -> None:
    a = blank()
    for name in "bc":
        report(a, name, register(words, 4, 7, prior=prior), 4)
    assert a.m.ballot is None
    assert "an operator" in a.m.view(a.now).waits_for


def test_R9_an_older_register_in_which_it_was_alone_hinders_nobody() -> None:
    a = blank()
    report(a, "b", register("a b", 4, 7), 4)
    report(a, "c", register("a", 3, 2), 4)
    assert a.m.ballot is not None


def test_R9_who_is_no_voter_of_the_newest_register_waits_to_be_admitted_or_added() -> None:
    a = blank()
    report(a, "b", register("a:observer b", 4, 7), 4)
    assert a.m.ballot is None
    assert a.m.view(a.now).waits_for == "the leader to admit it"
    report(a, "b", register("b c", 4, 8), 4)
    report(a, "c", register("b c", 4, 8), 4)
    assert a.m.ballot is None
    assert "primacy members add a" in a.m.view(a.now).waits_for


def test_R9_the_vote_that_was_forgotten_is_not_given_again() -> None:
    a = blank()
    report(a, "b", register("a b c", 0, 1), 5)
    report(a, "c", register("a b c", 0, 1), 5)
    a.now += P
    a.cluster.wire.clear()
    origin = a.m.origin._replace(node="b", boot=ord("b"), incarnation=5)
    a.give(Received(VoteRequest(origin, 5, False)))
    assert not a.cluster.on_wire(VoteReply)[0].granted, "the term is closed"
    a.give(Received(VoteRequest(origin, 6, False)))
    assert a.cluster.on_wire(VoteReply)[1].granted


def test_R9_in_a_running_cluster_a_voter_comes_back_without_its_disk() -> None:
    cluster = Cluster().start()
    leader = cluster.lead()
    gone = next(name for name in "abc" if name != leader.name)
    cluster.forget(gone)
    cluster[gone].start()
    cluster.until(lambda: cluster[gone].m.leader == leader.name)
    assert leader.works == leader.started[0]


# --- M1 for times, and M3 ---------------------------------------------------------------------------------------------


def test_M1_changed_times_wait_for_all_voters_of_the_register_of_both_halves() -> None:
    cluster = Cluster("a b c")
    a = cluster["a"]
    assert a.disk is not None
    old = ListRecord("times-0", ("a", "b", "c"), confirmed=True)
    a.disk = a.disk._replace(lists=(old,), register=register("a b d", 2, 3, prior="a b c"))
    a.start()
    assert a.m.muted == "other-list"
    told = register("a b d", 2, 3, prior="a b c")
    for name in "bc":
        report(a, name, told, 4)
    assert a.m.muted, "d votes, too"
    report(a, "d", told, 4)
    assert not a.m.muted
    assert a.disk.register == told
    assert (a.disk.term, a.disk.voted_for) == (4, CLOSED)


def test_M1_the_members_of_the_file_are_no_reason_to_recover() -> None:
    cluster = Cluster("a b c")
    cluster["a"].file = "a b c d e"
    cluster["a"].start()
    assert not cluster["a"].m.muted


def test_M3_a_first_start_writes_the_files_members_as_the_first_register() -> None:
    cluster = Cluster("a b c", blank="a b c", auto=True).start()
    leader = cluster.lead()
    assert leader.register == first_register(members("a b c"))
    assert {node.register for node in cluster.nodes.values()} == {leader.register}


def test_M3_files_that_name_other_members_begin_no_cluster_although_no_hash_tells_so() -> None:
    cluster = Cluster("a b c", blank="a b c", auto=True)
    cluster["b"].file = "a b c d"
    cluster.start()
    cluster.run(6 * P)
    assert all(node.m.ballot is None for node in cluster.nodes.values())
    assert "another list of nodes" in cluster["a"].m.view(cluster.now).waits_for


def test_M3_a_node_that_is_started_blank_beside_a_cluster_waits_to_be_added() -> None:
    cluster = Cluster("a b c", also="d", auto=True).start()
    cluster.lead()
    cluster.run(4 * P)
    assert cluster["d"].m.ballot is None
    assert "primacy members add d" in cluster["d"].m.view(cluster.now).waits_for


def test_R12_a_node_that_the_file_does_not_name_asks_until_it_belongs_also_with_a_ballot() -> None:
    """It was removed and is added again, at an address where it does not listen: nobody but itself can ask."""
    cluster = Cluster(also="d").start("a b c")
    cluster.lead()
    d = cluster["d"]
    assert cluster["a"].disk is not None
    d.disk = cluster["a"].disk._replace(register=register("a b c", 1, 2), incarnation=1)
    d.joins = True
    d.start()
    cluster.loses = lambda sent: sent.to == "d" and not isinstance(sent.message, Report)  # sent to where it is not
    cluster.run(3 * P)
    assert "primacy members add d" in d.m.view(d.now).waits_for
    cluster.change("a b c d")
    cluster.until(lambda: d.register.get("d") is not None, 3 * P)
    cluster.loses = lambda _: False  # now it listens there
    cluster.until(lambda: cluster.has("a b c d", "a b c d"))


def test_R12_one_that_was_admitted_at_a_wrong_address_goes_on_asking_and_is_found_at_the_right_one() -> None:
    """Nothing reaches it there but what answers its questions. The change is given up, and d taken out and in again."""
    cluster = Cluster(also="d").start("a b c")
    leader = cluster.lead()
    d = cluster["d"]
    d.joins = True
    d.start()
    cluster.loses = lambda sent: sent.to == "d" and not isinstance(sent.message, Report | Admission)
    cluster.change("a b c d")
    cluster.until(lambda: d.m.ballot is not None, 3 * P)
    assert d.register.get("d") is not None
    cluster.run(3 * P)
    leader.give(CancelChange())
    cluster.until(lambda: d.register.goal is None, 3 * P)
    cluster.change("a b c")
    cluster.until(lambda: d.register.get("d") is None, 3 * P)
    cluster.change("a b c d")
    cluster.until(lambda: d.register.get("d") is not None, 3 * P)
    cluster.kill("d")
    d.start()  # what it remembers has the wrong address
    cluster.run(3 * P)
    leader.give(CancelChange())
    cluster.until(lambda: d.register.goal is None, 3 * P)
    cluster.loses = lambda _: False  # now it is where they have it
    cluster.until(lambda: d.m.leader == leader.name, 3 * P)
    cluster.until(lambda: d.m.state.file_ask_at_ms == 0, 2 * P)  # it hears a leader, and asks no more
    cluster.kill(leader.name)
    cluster.until(lambda: d.m.state.file_ask_at_ms > 0, 6 * P)


def test_R12_one_that_others_name_asks_no_longer_than_the_silence_of_its_start() -> None:
    cluster = Cluster()
    a = cluster["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(register=register("b c", 1, 4))
    a.start()
    cluster.run(3 * P)
    cluster.wire.clear()
    cluster.run(10 * P)
    assert not cluster.wire


def test_R12_a_ballot_from_before_there_were_registers_tells_its_voters() -> None:
    cluster = Cluster("a b c")
    a = cluster["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(register=None)
    a.start()
    assert a.register == first_register(members("a b c"))
    other = Cluster("a b c")["a"]
    assert other.disk is not None
    record = ListRecord(TIMES, ("a", "b", "x"), confirmed=True)
    other.disk = other.disk._replace(register=None, lists=(record,))
    other.start()
    assert other.register.voters == ("a", "b", "x"), "what it promised counts, not the file"


def test_Q10_starts_of_nodes_outside_of_the_register_are_remembered_and_bounded() -> None:
    cluster = Cluster().start("a")
    a = cluster["a"]
    for number in range(120):
        origin = a.m.origin._replace(node=f"n{number}", boot=5 + number, incarnation=3)
        a.give(Received(Heartbeat(origin, 1, 1, H, True)))
    assert a.disk is not None
    assert 0 < len(a.disk.seen) <= 101
